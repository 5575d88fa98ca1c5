//! Secrets of channels. They are read from mounted files at each use, so that a rotated secret takes effect without a
//! restart.

use std::path::Path;

use signoff_executor::SecretText;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use crate::channel::SendError;

/// The most bytes of a file with a secret. The longest known secret is the URL of a workflow of Teams, with about 400
/// bytes.
const MAX_BYTES: usize = 8 * 1024;

/// Reads a file, and returns its text without leading and trailing space.
///
/// # Errors
/// The file cannot be read or is invalid. The error is [`SendError::Later`], because an administrator can correct the
/// file. The error does not contain the path, because an administrator may have written the secret in place of the
/// path.
pub(crate) async fn read_secret(path: &Path) -> Result<SecretText, SendError> {
    let later = |why: String| SendError::Later { why: format!("a file of the channel {why}"), after: None };
    let unreadable = |error: std::io::Error| later(format!("cannot be read ({})", error.kind()));
    let file = File::open(path).await.map_err(unreadable)?;
    let mut bytes = Vec::new();
    // Reads one byte more than allowed, to detect a longer file.
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).await.map_err(unreadable)?;
    if bytes.len() > MAX_BYTES {
        return Err(later(format!("has more than {MAX_BYTES} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| later("is not UTF-8".to_owned()))?;
    match text.trim() {
        "" => Err(later("is empty".to_owned())),
        secret => Ok(SecretText::from(secret)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use signoff_executor::ExposeSecret;

    use super::*;

    #[tokio::test]
    async fn a_secret_is_trimmed_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, " xoxb-1\r\n").unwrap();
        assert_eq!(read_secret(&file).await.unwrap().expose_secret(), "xoxb-1");
        std::fs::write(&file, "x".repeat(MAX_BYTES)).unwrap();
        assert!(read_secret(&file).await.is_ok());
        for invalid in [vec![b'x'; MAX_BYTES + 1], vec![0xff], b" \n".to_vec()] {
            std::fs::write(&file, invalid).unwrap();
            let Err(SendError::Later { why, .. }) = read_secret(&file).await else { panic!("it was read") };
            assert!(why.starts_with("a file of the channel ") && !why.contains("token"), "{why}");
        }
        assert!(read_secret(&folder.path().join("none")).await.is_err());
    }
}
