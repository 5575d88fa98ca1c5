//! Any bytes as a file of a session.
//! It may only hand the bytes over: the target itself stands in the runtime, where the tests run it too.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_local::fuzz::session(data));
