//! The process of a server: its lines, and its end.

use std::{
    env, io,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use signoff_executor::{excerpt, room::HTTP_ANSWER_BYTES};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

use super::command::ResolvedCommand;

/// The maximum size of a line, in bytes.
const MAX_LINE: usize = HTTP_ANSWER_BYTES;
/// The maximum size of the kept end of a server's error output, in bytes.
const MAX_ERROR_OUTPUT: usize = 2048;
/// The time in which the error output of an ended server is read to its end.
const READ_TO_END: Duration = Duration::from_millis(200);

/// A running server.
pub(super) struct ServerProcess {
    child: Child,
    /// The process group of the server.
    group: Option<Pid>,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The current line.
    line: Vec<u8>,
    /// The end of the error output.
    error_output: Arc<Mutex<Vec<u8>>>,
    /// The task that reads the error output.
    error_reader: Option<JoinHandle<()>>,
}

impl ServerProcess {
    /// Starts a command in its own process group, with `PATH`, `HOME` and its own variables only.
    pub(super) fn start(command: &ResolvedCommand) -> io::Result<Self> {
        let inherited = ["PATH", "HOME"].into_iter().filter_map(|name| Some((name, env::var_os(name)?)));
        let mut child = Command::new(command.file())
            .arg0(command.named())
            .args(&command.command().arguments)
            .current_dir(command.folder())
            .env_clear()
            .envs(inherited)
            .envs(&command.command().env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let missing = || io::Error::other("its standard streams are not there");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let error_output = Arc::new(Mutex::new(Vec::new()));
        let error_reader =
            child.stderr.take().map(|stream| tokio::spawn(keep_error_output(stream, Arc::clone(&error_output))));
        Ok(Self { child, group, input, output, line: Vec::new(), error_output, error_reader })
    }

    /// Writes a message as one line.
    pub(super) async fn write(&mut self, message: &str) -> io::Result<()> {
        self.input.write_all(message.as_bytes()).await?;
        self.input.write_all(b"\n").await?;
        self.input.flush().await
    }

    /// Returns the next line, or `None` at the end. A partly received line is kept if the caller stops waiting.
    pub(super) async fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let available = self.output.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            if self.line.len() + taken > MAX_LINE {
                return Err(io::Error::other("it wrote a line of more than 1 MiB"));
            }
            self.line.extend_from_slice(available.get(..taken).unwrap_or_default());
            self.output.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }

    /// Returns the end of the error output of a server that has ended, on one line.
    pub(super) async fn error_output(&mut self) -> String {
        if let Some(error_reader) = self.error_reader.take() {
            // Processes that the server started can keep the stream open.
            let _ = tokio::time::timeout(READ_TO_END, error_reader).await;
        }
        let error_output = self.error_output.lock().unwrap_or_else(PoisonError::into_inner);
        excerpt(&String::from_utf8_lossy(&error_output), [])
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The group id is valid as long as the process was not waited for.
        let is_running = self.child.id().is_some();
        if let Some(group) = self.group.filter(|_| is_running) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads a stream to its end, and keeps the last [`MAX_ERROR_OUTPUT`] bytes in `error_output`.
async fn keep_error_output(mut stream: ChildStderr, error_output: Arc<Mutex<Vec<u8>>>) {
    let mut piece = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        let mut error_output = error_output.lock().unwrap_or_else(PoisonError::into_inner);
        error_output.extend_from_slice(piece.get(..count).unwrap_or_default());
        let excess = error_output.len().saturating_sub(MAX_ERROR_OUTPUT);
        error_output.drain(..excess);
    }
}
