//! Any bytes as a Workflow.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_fuzz_drivers::engine::spec(data));
