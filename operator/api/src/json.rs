//! The size of JSON.

use std::io;

use serde::Serialize;

/// Returns how many bytes the JSON of a value has, without making it.
///
/// # Errors
/// A value that has no JSON, such as a map whose keys are no text.
pub fn json_bytes(value: &impl Serialize) -> Result<usize, serde_json::Error> {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value)?;
    Ok(count.0)
}

/// Counts what is written, and keeps nothing.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
