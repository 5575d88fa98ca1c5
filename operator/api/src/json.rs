//! The size of JSON.

use std::io;

use serde::Serialize;

/// Returns the number of bytes of the JSON of a value, without building the JSON.
///
/// # Errors
/// If the value has no JSON, such as a map whose keys are not strings.
pub fn json_bytes(value: &impl Serialize) -> Result<usize, serde_json::Error> {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value)?;
    Ok(count.0)
}

/// A writer that counts bytes and discards them.
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
