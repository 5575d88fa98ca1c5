//! Any bytes as the `when` of an edge.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_fuzz_drivers::expressions::when(data));
