//! Any bytes as a condition.
//! It may only hand the bytes over: the target itself stands in signoff-expr, where the tests run it too.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| signoff_expr::fuzz::condition(data));
