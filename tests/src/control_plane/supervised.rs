//! A program that ends with the process that started it, because a small shell holds the other end of a pipe.
//!
//! A parent-death signal (`PR_SET_PDEATHSIG`) would not do: it is tied to the *thread* that forked, so a program
//! started from a runtime's blocking thread would die as soon as that thread goes idle, and setting it needs `unsafe`.
//! The kernel closes a pipe whatever ends its owner (return, panic, `kill -9`). The shell then kills its own child,
//! whose process id cannot have been reused.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

/// The script of the supervising shell. Arguments: LOG DATA PROGRAM ARGUMENTS… DATA is a folder that is removed after
/// the program, or empty. Standard output gets the program's process id. Every line of standard input is the name of a
/// signal for the program; the end of standard input is KILL. Exits with the program's own code.
const SUPERVISOR: &str = r#"
log=$1 data=$2; shift 2
exec 3<&0 </dev/null
"$@" >>"$log" 2>&1 3<&- &
child=$!
echo "$child"
exec >/dev/null 2>&1
(
  while read -r signal <&3; do kill -s "$signal" "$child"; done
  kill -s KILL "$child"
) &
reader=$!
exec 3<&-
wait "$child"
code=$?
kill -s KILL "$reader"
[ -z "$data" ] || rm -rf -- "$data"
exit "$code"
"#;

/// A signal by its name, as `kill -s` knows it.
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    /// Asks the program to end, so that it can clean up.
    Term,
    /// Ends the program at once.
    Kill,
    /// Stops the program, as a machine does that is suspended for a while.
    Stop,
    /// Continues the program after [`Signal::Stop`].
    Cont,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Cont => "CONT",
        }
    }
}

/// A running program and the pipe to its supervisor. Dropping it kills the program and waits for its end.
#[derive(Debug)]
pub struct Supervised {
    name: String,
    pid: u32,
    log: PathBuf,
    supervisor: Option<Child>,
    control: Option<ChildStdin>,
}

impl Supervised {
    /// Starts `program` with `arguments`; both its outputs are appended to `log`. `KUBECONFIG` is never inherited.
    ///
    /// # Errors
    /// There is no `sh`, or it cannot start. A *program* that cannot start is an early [`Self::exited`].
    pub fn start<A: AsRef<std::ffi::OsStr>>(
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: &[(&str, &str)],
        log: &Path,
    ) -> Result<Self> {
        Self::start_with_data(name, program, arguments, environment, log, None)
    }

    /// Starts a program as [`Self::start`] does. The supervisor removes the folder `data` after the program, even when
    /// this process was killed.
    pub(crate) fn start_with_data<A: AsRef<std::ffi::OsStr>>(
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: &[(&str, &str)],
        log: &Path,
        data: Option<&Path>,
    ) -> Result<Self> {
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervise"])
            .arg(log)
            .arg(data.unwrap_or(Path::new("")))
            .arg(program)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C on a terminal goes to a whole process group. It must reach only the owner, which then ends the
            // supervisor.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name} needs `sh`"))?;
        let control = supervisor.stdin.take();
        let mut line = String::new();
        if let Some(output) = supervisor.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let pid = line
            .trim()
            .parse()
            .map_err(|_| anyhow!("{name}: the supervising shell ended before it started {}", program.display()))?;
        Ok(Self { name: name.to_owned(), pid, log: log.to_owned(), supervisor: Some(supervisor), control })
    }

    /// Returns the process id of the program itself (not of its supervisor), for `/proc`.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the name of the program in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file with everything the program printed.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the last `lines` lines of the log, for an error message.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let Ok(file) = File::open(&self.log) else {
            return format!("(no log at {})", self.log.display());
        };
        let text: Vec<String> = BufReader::new(file).lines().map_while(Result::ok).collect();
        text[text.len().saturating_sub(lines)..].join("\n")
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    /// The program has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        let control = self.control.as_mut().with_context(|| format!("{} was stopped before", self.name))?;
        writeln!(control, "{}", signal.name()).with_context(|| format!("{} has ended already", self.name))
    }

    /// Returns the exit status of the program, or `None` while it runs.
    ///
    /// # Errors
    /// The operating system cannot tell the status.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.supervisor {
            Some(supervisor) => Ok(supervisor.try_wait()?),
            None => Ok(None),
        }
    }

    /// Asks the program to end (TERM) and waits for its end; a program that takes longer than `within` is killed.
    ///
    /// # Errors
    /// The program had to be killed; the error has the end of its log.
    pub async fn terminate(mut self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::Term)?;
        let mut supervisor = self.supervisor.take().with_context(|| format!("{} was stopped before", self.name))?;
        let mut wait = tokio::task::spawn_blocking(move || supervisor.wait());
        match tokio::time::timeout(within, &mut wait).await {
            Ok(status) => Ok(status??),
            Err(_) => {
                self.control = None;
                wait.await??;
                bail!(
                    "{} did not end within {within:?} of TERM and was killed; its log ends:\n{}",
                    self.name,
                    self.log_tail(20)
                )
            }
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.control = None;
        if let Some(mut supervisor) = self.supervisor.take() {
            // A failure here has no remedy, and the closed pipe has ended the program in any case.
            let _ = supervisor.wait();
        }
    }
}
