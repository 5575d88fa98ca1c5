//! Any bytes as a condition.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_fuzz_drivers::expressions::condition(data));
