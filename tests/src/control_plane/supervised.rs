//! One program that cannot outlive whoever started it, by a small shell that holds the other end of a pipe.
//! It must not know what the program is, and it never signals a process it did not start itself.
//!
//! Why a pipe: a parent-death signal (`PR_SET_PDEATHSIG`) is tied to the *thread* that forked, so a program
//! started from a runtime's blocking thread would die as soon as that thread goes idle, and setting it needs
//! `unsafe`. The kernel closes a pipe whatever ends its owner (return, panic, `kill -9`), and the shell then kills
//! its own child, so no process id can have been reused meanwhile.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

/// Arguments: LOG DATA PROGRAM ARGUMENTS… DATA is a folder that is removed after the program, or empty. Standard output
/// gets the program's process id. Every line of standard input is the name of a signal for the program; the end of
/// standard input is KILL. Exits with the program's own code.
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
    /// Please end: programs get to clean up.
    Term,
    /// End now.
    Kill,
    /// Stand still, as a machine does that lost its clock for a while.
    Stop,
    /// Go on after [`Signal::Stop`].
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

/// A running program and the pipe its life hangs on. Dropping it kills the program and waits for its end.
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
    /// When there is no `sh`, or it cannot start. That the *program* cannot start shows as an early [`Self::exited`].
    pub fn start<A: AsRef<std::ffi::OsStr>>(
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: &[(&str, &str)],
        log: &Path,
    ) -> Result<Self> {
        Self::start_with_data(name, program, arguments, environment, log, None)
    }

    /// As [`Self::start`]; the folder `data` goes with the program, even where nobody is left to remove it.
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
            // Ctrl-C on a terminal goes to a whole process group: it must end the owner, which then ends us in order.
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

    /// The process id of the program itself (not of its supervisor), for `/proc`.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What the program is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file with everything the program printed.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last `lines` lines of the log, for an error message.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let Ok(file) = File::open(&self.log) else {
            return format!("(no log at {})", self.log.display());
        };
        let all: Vec<String> = BufReader::new(file).lines().map_while(Result::ok).collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        let control = self.control.as_mut().with_context(|| format!("{} was stopped before", self.name))?;
        writeln!(control, "{}", signal.name()).with_context(|| format!("{} has ended already", self.name))
    }

    /// How the program ended, if it has.
    ///
    /// # Errors
    /// When the operating system cannot tell.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.supervisor {
            Some(supervisor) => Ok(supervisor.try_wait()?),
            None => Ok(None),
        }
    }

    /// Asks the program to end (TERM) and waits for it; a program that takes longer than `within` is killed.
    ///
    /// # Errors
    /// When it had to be killed, with the end of its log.
    pub async fn terminate(mut self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::Term)?;
        let mut supervisor = self.supervisor.take().with_context(|| format!("{} was stopped before", self.name))?;
        let mut waiting = tokio::task::spawn_blocking(move || supervisor.wait());
        match tokio::time::timeout(within, &mut waiting).await {
            Ok(status) => Ok(status??),
            Err(_) => {
                self.control = None;
                waiting.await??;
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
            // Nothing could be done about a failure here, and the closed pipe has ended the program in any case.
            let _ = supervisor.wait();
        }
    }
}
