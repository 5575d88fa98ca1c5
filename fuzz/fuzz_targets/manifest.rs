//! Any bytes as a file to check.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_fuzz_drivers::files::manifest(data));
