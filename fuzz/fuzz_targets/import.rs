//! Any bytes as a file of the Strands CLI that somebody imports.
//! It may only hand the bytes over: the target itself stands in signoff-strands, where the tests run it too.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    signoff_strands::fuzz::import(data);
    signoff_strands::fuzz::file(data);
});
