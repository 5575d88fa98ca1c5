//! Free loopback ports for programs that need their port as an argument. A port cannot be reserved: another process may
//! take it first, and then the caller starts the program again with another port.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// The first port, below the range from which Linux takes the ports of outgoing connections.
const FIRST: u16 = 20_000;
/// The number of ports in the range.
const COUNT: u16 = 12_000;

/// The number of ports that this process has tried.
static TRIED: AtomicU16 = AtomicU16::new(0);

/// Returns a free port on 127.0.0.1, never the same twice in this process.
///
/// # Errors
/// Every port of the range is taken.
pub fn free() -> Result<u16> {
    // Processes start at different ports, so that two suites seldom try the same one.
    let start = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    for _ in 0..COUNT {
        let tried = u32::from(TRIED.fetch_add(1, Ordering::Relaxed));
        let Ok(offset) = u16::try_from((start + tried) % u32::from(COUNT)) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, FIRST + offset)).is_ok() {
            return Ok(FIRST + offset);
        }
    }
    bail!("no free port between {FIRST} and {} on 127.0.0.1", FIRST + COUNT)
}
