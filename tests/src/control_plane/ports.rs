//! Free loopback ports for programs that must be told their port beforehand.
//! It cannot reserve one: another process may take it in between, so whoever starts a program starts it again then.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Below the range that Linux hands to outgoing connections, which would otherwise be taken at random.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static DRAWN: AtomicU16 = AtomicU16::new(0);

/// A port on 127.0.0.1 that nobody listens on, never the same twice in this process.
///
/// # Errors
/// When every port of the range is taken.
pub fn free() -> Result<u16> {
    // Processes start at different places, so that two suites seldom look at the same port.
    let start = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    for _ in 0..COUNT {
        let drawn = u32::from(DRAWN.fetch_add(1, Ordering::Relaxed));
        let Ok(offset) = u16::try_from((start + drawn) % u32::from(COUNT)) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, FIRST + offset)).is_ok() {
            return Ok(FIRST + offset);
        }
    }
    bail!("no free port between {FIRST} and {} on 127.0.0.1", FIRST + COUNT)
}
