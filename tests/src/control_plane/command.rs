//! Runs real kubectl, helm and plugins against one kubeconfig and returns their output. A refusal is an ordinary result
//! until the caller asks for [`Finished::ok`].

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;

/// A command before it runs.
#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Invocation {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    search: Vec<PathBuf>,
    people: PathBuf,
    kubeconfig: PathBuf,
    input: Option<String>,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
    command: String,
}

impl Invocation {
    pub(crate) fn new<A: AsRef<OsStr>>(
        program: &Path,
        folder: &Path,
        kubeconfig: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect(),
            environment: Vec::new(),
            search: Vec::new(),
            people: folder.join("people"),
            kubeconfig: kubeconfig.to_owned(),
            input: None,
        }
    }

    /// Runs as this person of the cast instead of as `admin`.
    pub fn person(mut self, name: &str) -> Self {
        self.kubeconfig = self.people.join(format!("{name}.yaml"));
        self
    }

    /// Uses this kubeconfig file.
    pub fn kubeconfig(mut self, file: &Path) -> Self {
        self.kubeconfig = file.to_owned();
        self
    }

    /// Passes this text on standard input (`apply -f -`).
    pub fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Adds a folder that is searched before `PATH`, in which kubectl finds its plugins.
    pub fn search(mut self, folder: &Path) -> Self {
        self.search.push(folder.to_owned());
        self
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// The command cannot be started. A failing command is an `Ok` with its code.
    pub async fn run(self) -> Result<Finished> {
        let command = self.to_string();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let search = std::env::join_paths(self.search.iter().cloned().chain(std::env::split_paths(&path)))?;
        let mut child = tokio::process::Command::new(&self.program)
            .args(&self.arguments)
            // By variable and not by flag, because kubectl takes no flags before a plugin's name.
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PATH", search)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {command}"))?;
        if let (Some(text), Some(mut input)) = (self.input, child.stdin.take()) {
            // In a task of its own, because a long answer and a long input would otherwise wait for each other. A
            // command may end without reading its input.
            tokio::spawn(async move { input.write_all(text.as_bytes()).await });
        }
        let output = child.wait_with_output().await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Finished {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            command,
        })
    }
}

impl std::fmt::Display for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.program.file_name().unwrap_or_default().display())?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", argument.display()))
    }
}

impl Finished {
    /// Returns the standard output.
    ///
    /// # Errors
    /// The exit code is not 0; the error has the command and its output.
    pub fn ok(self) -> Result<String> {
        if self.code != 0 {
            bail!("`{}` ended with code {}:\n{}{}", self.command, self.code, self.stdout, self.stderr);
        }
        Ok(self.stdout)
    }

    /// Returns the standard error of a request that must be refused; the honest twin is [`Self::ok`].
    ///
    /// # Errors
    /// The command did *not* fail.
    pub fn refused(self) -> Result<String> {
        if self.code == 0 {
            bail!("`{}` should have been refused, and it printed:\n{}", self.command, self.stdout);
        }
        Ok(self.stderr)
    }
}
