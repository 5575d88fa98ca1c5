//! Any bytes as a file of a session.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_fuzz_drivers::session::session(data));
