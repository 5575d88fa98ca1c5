//! Any bytes as a model's answer where JSON is expected.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_fuzz_drivers::expressions::answer(data));
