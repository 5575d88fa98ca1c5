//! Any bytes as a template.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_fuzz_drivers::expressions::template(data));
