//! A memory control group with the limit that the chart gives the operator, for both versions of Linux's control
//! groups.
//!
//! **Invariant:** a group holds only the processes that join it, and is removed when it is dropped.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The memory limit of the operator's container in the chart, in bytes.
pub const LIMIT: u64 = 512 << 20;

/// A control group with the limit of the chart. Removing it fails while a process is in it, so it must outlive the
/// operator.
pub struct MemoryGroup {
    folder: PathBuf,
    /// The file with the largest usage, in bytes.
    peak: &'static str,
    /// The file with the number of processes that the kernel killed for lack of memory.
    events: &'static str,
}

impl MemoryGroup {
    /// Creates a group with the limit of the chart.
    ///
    /// # Errors
    /// Control groups of memory are not mounted, or no group can be created.
    pub fn make() -> Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let is_unified = root.join("cgroup.controllers").exists();
        let hierarchy = if is_unified { root.to_owned() } else { root.join("memory") };
        let folder = hierarchy.join(format!("signoff-{:016x}-memory", fastrand::u64(..)));
        fs::create_dir_all(&folder).with_context(|| format!("making the control group {}", folder.display()))?;
        let (peak, events) = if is_unified {
            ("memory.peak", "memory.events")
        } else {
            ("memory.max_usage_in_bytes", "memory.oom_control")
        };
        let group = Self { folder, peak, events };
        if is_unified {
            group.write("memory.max", LIMIT)?;
            // As for a container, memory over the limit is not swapped out. Without swap this file does not exist.
            let _ = group.write("memory.swap.max", 0);
        } else {
            group.write("memory.limit_in_bytes", LIMIT)?;
            let _ = group.write("memory.memsw.limit_in_bytes", LIMIT);
        }
        Ok(group)
    }

    /// Returns the file into which a process writes its id to be in the group.
    #[must_use]
    pub fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Adds a process, whose memory counts from now on.
    ///
    /// # Errors
    /// The process has ended, or the kernel refuses to move it.
    pub fn add(&self, process: u32) -> Result<()> {
        let path = self.processes();
        fs::write(&path, process.to_string()).with_context(|| format!("writing {}", path.display()))
    }

    /// Returns the largest memory use of the group so far, with file cache and kernel, in MiB; `None` if the kernel
    /// does not report it.
    #[must_use]
    pub fn peak_mib(&self) -> Option<f64> {
        let bytes: f64 = self.read(self.peak)?.trim().parse().ok()?;
        Some(bytes / f64::from(1 << 20))
    }

    /// Returns the number of processes of the group that the kernel killed for lack of memory.
    #[must_use]
    pub fn kills(&self) -> u64 {
        parse_kills(&self.read(self.events).unwrap_or_default())
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(file)).ok()
    }

    fn write(&self, file: &str, bytes: u64) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, bytes.to_string()).with_context(|| format!("writing {}", path.display()))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A group that cannot be removed is empty and costs nothing.
        let _ = fs::remove_dir(&self.folder);
    }
}

fn parse_kills(events: &str) -> u64 {
    let count = events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
    count.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_limit_is_that_of_the_chart() {
        let values = crate::cargo::root().join("charts/signoff/values.yaml");
        let values = fs::read_to_string(values).unwrap();
        let resources = values.split("\nresources:\n").nth(1).unwrap();
        let limit = resources.lines().find(|line| line.trim_start().starts_with("limits:")).unwrap();
        assert_eq!(limit.trim(), format!("limits: {{memory: {}Mi}}", LIMIT >> 20));
    }

    #[test]
    fn kills_are_read_from_either_version() {
        assert_eq!(parse_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
        assert_eq!(parse_kills("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n"), 1);
        assert_eq!(parse_kills(""), 0);
    }
}
