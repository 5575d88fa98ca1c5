//! Reads the end of a container's log *(I/O)*.
//!
//! **Invariant:** holds only the end of the log in memory.

use std::time::Duration;

use futures::AsyncReadExt;
use signoff_api::pod::CONTAINER;
use signoff_cluster::{
    error::{is_ambiguous, plain, status_code},
    kinds::Name,
    requests::ApiRequests,
};
use tokio::time::Instant;

/// The bytes of a log that are kept.
pub(super) const MAX_LOG: usize = 256 * 1024;
/// The bytes that reading a log takes in memory.
pub(super) const MEMORY: usize = 4 * MAX_LOG;
/// The time limit of reading a log.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit of retries if the log is only shown to people.
const SHORT_RETRY_LIMIT: Duration = Duration::from_secs(5);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// The end of a log.
pub(super) struct Log {
    pub(super) text: String,
    /// Whether the log has more text before this end.
    pub(super) is_cut: bool,
}

/// Reads the end of a log, or of its last `lines`. Retries while the API server or the node does not answer, and longer
/// if the log is needed.
///
/// # Errors
/// The reason for people why the log cannot be read.
pub(super) async fn read_end(
    requests: &ApiRequests,
    pod: &Name,
    lines: Option<i32>,
    is_needed: bool,
) -> Result<Log, String> {
    let began = Instant::now();
    let retry_limit = if is_needed { READ_TIMEOUT } else { SHORT_RETRY_LIMIT };
    let read = async {
        loop {
            match read_once(requests, pod, lines).await {
                Ok(log) => return Ok(log),
                Err(error) if is_transient(&error) && began.elapsed() < retry_limit => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(plain(&error)),
            }
        }
    };
    let read = tokio::time::timeout(READ_TIMEOUT, read).await;
    read.unwrap_or_else(|_| Err(format!("it was not read within {READ_TIMEOUT:?}")))
}

fn is_transient(error: &kube::Error) -> bool {
    is_ambiguous(error) || status_code(error) == Some(429)
}

/// Reads a log to its end, and keeps the last [`MAX_LOG`] bytes.
async fn read_once(requests: &ApiRequests, pod: &Name, lines: Option<i32>) -> Result<Log, kube::Error> {
    let stream = requests.open_log(pod, CONTAINER, lines.map(i64::from)).await?;
    let mut stream = std::pin::pin!(stream);
    let (mut kept, mut is_cut) = (Vec::new(), false);
    let mut piece = vec![0; 16 * 1024];
    loop {
        let read = stream.read(&mut piece).await.map_err(kube::Error::ReadEvents)?;
        if read == 0 {
            break;
        }
        kept.extend(piece.iter().take(read));
        if kept.len() > 2 * MAX_LOG {
            kept.drain(..kept.len() - MAX_LOG);
            is_cut = true;
        }
    }
    if kept.len() > MAX_LOG {
        kept.drain(..kept.len() - MAX_LOG);
        is_cut = true;
    }
    Ok(Log { text: String::from_utf8_lossy(&kept).into_owned(), is_cut })
}
