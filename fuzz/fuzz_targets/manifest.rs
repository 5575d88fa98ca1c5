//! Any bytes as a file that somebody validates.
//! It may only hand the bytes over: the target itself stands in signoff-manifest, where the tests run it too.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_manifest::fuzz::file(data));
