//! Any bytes as a file of the Strands CLI to import.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    signoff_fuzz_drivers::files::import(data);
    signoff_fuzz_drivers::files::strands(data);
});
