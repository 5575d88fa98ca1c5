//! The end of what a container wrote, read once.
//!
//! It may not hold more than the end of it in memory, whatever was written.

use std::time::Duration;

use futures::AsyncReadExt;

use crate::{
    error::{is_ambiguous, plain, status_code},
    kinds::Name,
    wire::Wire,
};

/// How much of a log is kept, in bytes.
pub(super) const MOST: usize = 256 * 1024;
/// How long reading may take where the log is the response.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take where it is for people only: nothing waits for them longer.
const LITTLE_PATIENCE: Duration = Duration::from_secs(5);
/// The pause before a server that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// The end of a log.
pub(super) struct Log {
    pub(super) text: String,
    /// Whether there was more before it.
    pub(super) is_cut: bool,
}

/// Reads all of it, or so many of its last lines; again where the API server or the node does not answer for a moment; longer where the log is needed.
///
/// # Errors
/// Why it cannot be read, for people.
pub(super) async fn end_of(wire: &Wire, pod: &Name, lines: Option<i32>, is_needed: bool) -> Result<Log, String> {
    let patience = if is_needed { PATIENCE } else { LITTLE_PATIENCE };
    let mut why = format!("it was not read within {patience:?}");
    let read = async {
        loop {
            match read(wire, pod, lines).await {
                Err(error) if is_ambiguous(&error) || status_code(&error) == Some(429) => why = plain(&error),
                done => return done.map_err(|error| plain(&error)),
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let read = tokio::time::timeout(patience, read).await;
    read.unwrap_or(Err(why))
}

async fn read(wire: &Wire, pod: &Name, lines: Option<i32>) -> Result<Log, kube::Error> {
    let stream = wire.log(pod, lines.map(i64::from)).await?;
    let mut stream = std::pin::pin!(stream);
    let (mut kept, mut is_cut) = (Vec::new(), false);
    let mut piece = vec![0; 16 * 1024];
    loop {
        let read = stream.read(&mut piece).await.map_err(kube::Error::ReadEvents)?;
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
}
