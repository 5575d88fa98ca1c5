//! The one browser of a test process: a program of Node.js that takes commands as JSON lines. It ends with the process.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::tools::{Node, chromium};

/// The deadline of a command. The browser's own deadline is shorter, so this one passes only when the driver hangs.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The callers that wait for an answer, by the number of their command; `None` when no more answers will come.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Result<Value, String>>>>>>;

/// The running program.
pub(super) struct Driver {
    input: Mutex<ChildStdin>,
    waiting: Waiting,
    /// The number of the last command that waits for an answer.
    last: Mutex<u64>,
}

impl Driver {
    /// Returns the driver of this process. The first caller starts it.
    ///
    /// # Errors
    /// Node.js or Chromium is missing or does not start: every caller gets the same error.
    pub(super) async fn of_this_process() -> Result<&'static Self> {
        static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
        let start = || Self::start().map_err(|error| format!("{error:#}"));
        let started = tokio::task::spawn_blocking(move || DRIVER.get_or_init(start));
        started.await?.as_ref().map_err(|error| anyhow!("no browser: {error}"))
    }

    fn start() -> Result<Self> {
        let (node, chromium) = (Node::find()?, chromium()?);
        let mut child = Command::new(node.program())
            .args(node.arguments("driver.mjs")?)
            .current_dir(node.folder())
            .env("SIGNOFF_CHROMIUM", &chromium)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the browser's driver")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the browser's driver has no pipes");
        };
        let mut lines = BufReader::new(output).lines();
        let first = lines.next().transpose()?;
        ensure!(first.is_some(), "{} does not start by its driver: standard error says why", chromium.display());
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let callers = Arc::clone(&waiting);
        // A thread, because each test has a runtime of its own, which ends with the test.
        std::thread::spawn(move || {
            forward_answers(lines.map_while(Result::ok), &callers);
            let _ = child.wait();
        });
        Ok(Self { input: Mutex::new(input), waiting, last: Mutex::new(0) })
    }

    /// Sends one command without waiting for its answer.
    pub(super) fn tell(&self, command: &Value) {
        // A browser that has ended needs no command.
        let _ = writeln!(lock(&self.input), "{command}");
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Errors
    /// The browser's error, or the browser has ended.
    pub(super) async fn ask(&self, mut command: Value) -> Result<Value> {
        let id = {
            let mut last = lock(&self.last);
            *last += 1;
            *last
        };
        command["id"] = json!(id);
        let (sender, answer) = oneshot::channel();
        lock(&self.waiting).as_mut().context("the browser has ended")?.insert(id, sender);
        writeln!(lock(&self.input), "{command}").context("the browser has ended")?;
        match tokio::time::timeout(TIMEOUT, answer).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(error))) => Err(anyhow!(without_escape_sequences(&error))),
            Ok(Err(_)) => Err(anyhow!("the browser has ended")),
            Err(_) => Err(anyhow!("the browser did not answer within {TIMEOUT:?}")),
        }
    }
}

/// Sends each answer of the driver to the caller that waits for it. After the last line, all waiting callers get an
/// error.
fn forward_answers(lines: impl Iterator<Item = String>, callers: &Waiting) {
    for line in lines {
        let Ok(mut answer) = serde_json::from_str::<Value>(&line) else { continue };
        let id = answer["id"].as_u64().unwrap_or_default();
        let caller = lock(callers).as_mut().and_then(|waiting| waiting.remove(&id));
        if let Some(caller) = caller {
            let error = answer["error"].as_str().map(str::to_owned);
            // The caller may have stopped waiting.
            let _ = caller.send(error.map_or_else(|| Ok(answer["ok"].take()), Err));
        }
    }
    *lock(callers) = None;
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a text without the escape sequences that the browser's library writes for terminals.
fn without_escape_sequences(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}
