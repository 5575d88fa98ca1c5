//! The end of what a container wrote, read once.
//!
//! It may not hold more than the end of it in memory, whatever was written.

use std::time::Duration;

use futures::AsyncReadExt;

use crate::{error::plain, kinds::Name, wire::Wire};

/// How much of a log is kept, in bytes.
pub(super) const MOST: usize = 256 * 1024;
/// How long reading may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The end of a log.
pub(super) struct Log {
    pub(super) text: String,
    /// Whether there was more before it.
    pub(super) is_cut: bool,
}

/// Reads it: all of it, or so many of its last lines.
///
/// # Errors
/// Why it cannot be read, for people.
pub(super) async fn end_of(wire: &Wire, pod: &Name, lines: Option<i32>) -> Result<Log, String> {
    let read = async {
        let stream = wire.log(pod, lines.map(i64::from)).await.map_err(|error| plain(&error))?;
        let mut stream = std::pin::pin!(stream);
        let (mut kept, mut is_cut) = (Vec::new(), false);
        let mut piece = vec![0; 16 * 1024];
        loop {
            let read = stream.read(&mut piece).await.map_err(|error| error.to_string())?;
            if read == 0 {
                break;
            }
            kept.extend(piece.iter().take(read));
            if kept.len() > 2 * MOST {
                kept.drain(..kept.len() - MOST);
                is_cut = true;
            }
        }
        if kept.len() > MOST {
            kept.drain(..kept.len() - MOST);
            is_cut = true;
        }
        Ok(Log { text: String::from_utf8_lossy(&kept).into_owned(), is_cut })
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(format!("it was not read within {PATIENCE:?}")))
}
