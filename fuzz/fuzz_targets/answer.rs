//! Any bytes as what a model answered where JSON was asked for.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_fuzz_drivers::expressions::answer(data));
