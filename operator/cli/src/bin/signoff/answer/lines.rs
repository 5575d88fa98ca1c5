//! Lines that a person types, one at a time; waiting for a line can be cancelled.
//!
//! **Invariant:** no byte after the line is read: it belongs to the next reader, such as an editor.

use std::{
    io::{self, IsTerminal},
    os::fd::OwnedFd,
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, read, write},
    pipe::pipe,
    termios::{QueueSelector, tcflush},
};

/// Standard input by lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// The bytes read after the last complete line.
    rest: Vec<u8>,
}

/// The most bytes that one read returns.
const READ_BYTES: usize = 4096;

/// Cancels the wait for input when it is dropped. Holds the writing end of the pipe on which the thread waits too.
struct CancelOnDrop(OwnedFd);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // The waiting thread also wakes when the pipe closes, so an error changes nothing.
        let _ = write(&self.0, b"x");
    }
}

impl Lines {
    /// Discards the pending input of a terminal: it cannot be meant for the next question.
    ///
    /// # Errors
    /// The input cannot be discarded.
    pub fn discard_pending(&mut self) -> io::Result<()> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            self.rest.clear();
            tcflush(&stdin, QueueSelector::IFlush)?;
        }
        Ok(())
    }

    /// Returns the next line without its end, or `None` at the end of the input (ctrl-D on a terminal).
    ///
    /// Dropping the future cancels the wait. Pending input of a terminal is then discarded, so that it cannot answer
    /// another question.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub async fn read_line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(line_text(&line)));
            }
            match self.read_more().await? {
                Some(bytes) if !bytes.is_empty() => self.rest.extend(bytes),
                // On a terminal the user ends the input on purpose, even in the middle of a line.
                _ if self.rest.is_empty() || io::stdin().is_terminal() => {
                    self.rest.clear();
                    return Ok(None);
                }
                _ => return Ok(Some(line_text(&std::mem::take(&mut self.rest)))),
            }
        }
    }

    /// Returns the next bytes: empty at the end of the input, and `None` after a cancelled wait.
    async fn read_more(&self) -> io::Result<Option<Vec<u8>>> {
        let (cancel, writer) = pipe()?;
        let cancel = Arc::new(cancel);
        let _cancel_on_drop = CancelOnDrop(writer);
        let read = tokio::task::spawn_blocking(move || wait_and_read(&cancel));
        read.await.map_err(io::Error::other)?
    }
}

/// Waits for input and reads it. Returns `None` without reading if the wait is cancelled.
fn wait_and_read(cancel: &OwnedFd) -> io::Result<Option<Vec<u8>>> {
    let stdin = io::stdin();
    loop {
        let mut sources = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(cancel, PollFlags::IN)];
        match poll(&mut sources, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let [has_input, is_cancelled] = sources.map(|source| !source.revents().is_empty());
        if is_cancelled {
            if stdin.is_terminal() {
                tcflush(&stdin, QueueSelector::IFlush)?;
            }
            return Ok(None);
        }
        if has_input {
            let mut bytes = vec![0; READ_BYTES];
            let length = match read(&stdin, &mut bytes) {
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            bytes.truncate(length);
            return Ok(Some(bytes));
        }
    }
}

fn line_text(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_end_matches(['\n', '\r']).to_owned()
}
