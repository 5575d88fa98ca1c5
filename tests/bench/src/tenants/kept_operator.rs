//! The operator as a kubelet runs it: in a control group with the memory limit of the chart, and started again whenever
//! it ends. One serves a single load, because its peak belongs to that load.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signoff_tests::control_plane::OperatorProcess;
use signoff_tests::say;
use tempfile::TempDir;

use crate::counters::Counters;
use crate::harness::Harness;
use crate::process;
use signoff_tests::memory_group::{LIMIT, MemoryGroup};

/// The pause between two checks of the process.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The number of restarts after which an operator is not started again.
const MOST_RESTARTS: u32 = 20;
/// The largest share of a processor that an idle operator uses.
const IDLE: f64 = 0.1;

/// An operator, and the figures of its processes.
pub(super) struct KeptOperator<'a> {
    harness: &'a Harness,
    process: Option<OperatorProcess>,
    restarts: u32,
    peak_mib: f64,
    /// The folder of the program that enters the group, and of the operator's marks of its evaluations.
    folder: TempDir,
    /// The control group, which is dropped after the process.
    group: Option<MemoryGroup>,
}

/// The figures of an operator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needed {
    /// The largest resident memory of any of its processes, in MiB; the limit if the kernel killed one for lack of
    /// memory.
    pub(super) peak_mib: f64,
    /// The largest memory of its control group, in MiB.
    pub(super) group_mib: Option<f64>,
    /// The number of times at which the operator ended and was started again.
    pub(super) restarts: u32,
    /// The number of kills by the kernel for lack of memory.
    pub(super) kills: u64,
}

impl<'a> KeptOperator<'a> {
    /// Starts an operator with the chart's arguments that can call servers on loopback, and waits until it is ready.
    pub(super) async fn start(harness: &'a Harness) -> Result<Self> {
        let group = MemoryGroup::make().inspect_err(|error| {
            say::problem(&format!(
                "{error:#}: the operator runs without a memory limit, and only its peak is measured"
            ));
        });
        let folder = TempDir::new()?;
        let mut operator = Self { harness, process: None, restarts: 0, peak_mib: 0.0, folder, group: group.ok() };
        operator.launch().await?;
        Ok(operator)
    }

    /// Starts the process, in the control group if there is one.
    async fn launch(&mut self) -> Result<()> {
        let program = self.program_in_group()?;
        let marks = self.folder.path().display().to_string();
        let arguments = ["--allow-address", "127.0.0.0/8", "--state-dir", &marks];
        self.process = Some(self.harness.operator_by(&program, &arguments).await?);
        Ok(())
    }

    /// Returns the operator's program. With a control group it is a script that writes its process id into the group
    /// and becomes the operator; the script is written if it is missing.
    fn program_in_group(&self) -> Result<PathBuf> {
        let operator = self.harness.program();
        let Some(group) = &self.group else { return Ok(operator.to_owned()) };
        let path = self.folder.path().join("operator.sh");
        if !path.exists() {
            let (group, operator) = (group.processes(), operator.display());
            let text = format!("#!/bin/sh\necho $$ > '{}' && exec '{operator}' \"$@\"\n", group.display());
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(path)
    }

    /// Returns the process, if one runs.
    pub(super) fn process(&self) -> Option<&OperatorProcess> {
        self.process.as_ref()
    }

    /// Runs `acting`, and starts the operator again whenever the operator ends meanwhile.
    pub(super) async fn keep_running_during<T>(&mut self, acting: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            done = acting => done,
            ended = self.restart_when_ended() => Err(ended),
        }
    }

    /// Starts the operator again whenever it ends. Returns an error when it has ended too often.
    async fn restart_when_ended(&mut self) -> anyhow::Error {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if self.check_process() {
                continue;
            }
            while self.process.is_none() {
                if self.restarts >= MOST_RESTARTS {
                    return anyhow::anyhow!("the operator ended {MOST_RESTARTS} times");
                }
                self.restarts += 1;
                if let Err(error) = self.launch().await {
                    say::problem(&format!("the operator ended while it started: {error:#}"));
                }
            }
        }
    }

    /// Records the largest memory of the process while it runs, and forgets the process once it has ended. Returns
    /// whether it runs.
    fn check_process(&mut self) -> bool {
        let Some(process) = &self.process else { return false };
        match process::usage(process.pid()) {
            // A process that has ended uses no memory, even if its entry still exists.
            Ok(usage) if usage.rss_mib > 0.0 => {
                self.peak_mib = self.peak_mib.max(usage.peak_mib);
                true
            }
            _ => {
                say::problem(&format!("the operator ended; its log is {}", process.log().display()));
                self.process = None;
                false
            }
        }
    }

    /// Waits until the operator neither writes nor reads nor computes. Returns the time at which it became idle.
    pub(super) async fn wait_until_idle(&self) -> Result<Instant> {
        let process = self.process.as_ref().context("no operator runs")?;
        loop {
            let ((_, since), before) =
                (Counters::read_at_rest_with(process, || Ok(Instant::now())).await?, process::cpu(process.pid())?);
            let began = Instant::now();
            tokio::time::sleep(Duration::from_millis(500)).await;
            let used = process::cpu(process.pid())?.saturating_sub(before);
            if used.as_secs_f64() / began.elapsed().as_secs_f64() < IDLE {
                return Ok(since);
            }
        }
    }

    /// Ends the operator, and returns its figures. An operator that does not end when it is asked to is an error.
    pub(super) async fn stop(mut self) -> Result<Needed> {
        if !self.check_process() {
            self.restarts += 1;
        }
        if let Some(process) = self.process.take()
            && let Err(error) = process.stop().await
        {
            bail!("after the load: {error:#}");
        }
        let kills = self.group.as_ref().map_or(0, MemoryGroup::kills);
        let limit = (LIMIT >> 20) as f64;
        Ok(Needed {
            peak_mib: if kills > 0 { limit } else { self.peak_mib },
            group_mib: self.group.as_ref().and_then(MemoryGroup::peak_mib),
            restarts: self.restarts,
            kills,
        })
    }
}
