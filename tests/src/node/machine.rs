//! A machine of its own for a program and its pods: namespaces in which the program is the first process, and which the
//! kernel removes with it, however it ends.
//!
//! **Invariant:** the machine around it is not changed: `guard.sh` restores what the kernel does not, also after `kill
//! -9`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::packages::Packages;
use crate::control_plane::private_folder;

/// The environment variable with the name of the control group of the machine's pods; it is set inside only.
const CGROUP: &str = "SIGNOFF_NODE_CGROUP";
/// The arguments of `unshare`, as in `guard.sh`.
const UNSHARE: [&str; 6] = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
const GUARD: &str = include_str!("guard.sh");
const INSIDE: &str = include_str!("inside.sh");

/// The standard input of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// No input: the program is a test or plays all parts itself.
    Nothing,
    /// The terminal's input, for a person.
    Terminal,
}

/// The programs of the host with which machines are created.
#[derive(Debug)]
pub struct Machine {
    packages: Packages,
}

impl Machine {
    /// Checks that machines can be created: Linux, root, writable control groups, `unshare`, and containerd, runc, CNI
    /// plugins and busybox, which apt fetches if they are missing.
    ///
    /// # Errors
    /// The missing part.
    pub fn find() -> Result<Self> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        ensure!(
            is_root,
            "pods run in namespaces and control groups that only root may make: run this as root, on Linux"
        );
        check_control_groups()?;
        let unshare = Command::new("unshare").args(UNSHARE).arg("true").output();
        let unshare = unshare.context("pods run in namespaces of their own: running `unshare` (of util-linux)")?;
        ensure!(
            unshare.status.success(),
            "pods run in namespaces of their own, which cannot be made here; it takes a machine, or a container with \
             the capability SYS_ADMIN: {}",
            String::from_utf8_lossy(&unshare.stderr).trim()
        );
        Ok(Self { packages: Packages::find()? })
    }

    /// Returns a command that runs `program` on a machine of its own; the caller adds arguments, environment and
    /// outputs. No network leads out of that machine, so everything must have been built and fetched before. A caller
    /// that wants to continue there runs its own program again, which asks [`is_inside`].
    ///
    /// The machine ends with the pipe that is the command's standard input, so the caller keeps the child. Its exit
    /// code is the program's. `TMPDIR` is a folder of its own, which is kept if the program fails and removed
    /// otherwise.
    ///
    /// # Errors
    /// That folder cannot be created.
    pub fn inside(&self, program: &Path, input: Input) -> Result<Command> {
        let folder = private_folder("signoff-machine-", &std::env::temp_dir())?.keep();
        // The name is unique, even where another suite has the same process id in namespaces of its own.
        let name = folder.file_name().context("a folder without a name")?.to_owned();
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "guard"]).arg(&name).arg(&folder);
        command.arg(if input == Input::Terminal { "/dev/tty" } else { "/dev/null" }).arg(INSIDE).arg(program);
        command.env(CGROUP, &name).env("TMPDIR", &folder).env("BUSYBOX", &self.packages.busybox).stdin(Stdio::piped());
        self.packages.set_environment(&mut command);
        Ok(command)
    }
}

/// Returns whether this process runs on a machine that [`Machine::inside`] created.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(CGROUP).is_some()
}

/// The control group of one node's pods. Dropping it kills the processes that still run in it; `guard.sh` removes it.
#[derive(Debug)]
pub(super) struct Group {
    path: String,
}

impl Group {
    /// Creates the group of the node with this number.
    ///
    /// # Errors
    /// This process does not run on a machine of [`Machine::inside`].
    pub(super) fn make(number: u8) -> Result<Self> {
        let parent = std::env::var(CGROUP).ok().context(
            "pods run on a machine of their own, and this is not one: run `cargo xtask test pods`, with the names of \
             tests after `--`",
        )?;
        let group = Self { path: format!("/{parent}/{number}") };
        for folder in group.folders() {
            fs::create_dir_all(&folder).with_context(|| format!("making the control group {}", folder.display()))?;
        }
        Ok(group)
    }

    /// Returns the path from the root of each hierarchy.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        hierarchies().into_iter().map(|hierarchy| hierarchy.join(self.path.trim_start_matches('/')))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Containers do not end with containerd, which may be restarted without them.
        let processes: BTreeSet<String> = self.folders().flat_map(|folder| processes(&folder)).collect();
        if !processes.is_empty() {
            // A process that cannot be killed has ended already, and the machine's end kills the rest.
            let _ = Command::new("kill").arg("-KILL").args(processes).stderr(Stdio::null()).status();
        }
    }
}

/// Returns the processes of a control group and of all groups below it.
fn processes(group: &Path) -> Vec<String> {
    let own = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let below = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = below.filter(|path| path.is_dir()).flat_map(|path| processes(&path));
    own.lines().map(str::to_owned).chain(below).collect()
}

/// Returns the control group hierarchies: one (v2), or one for each controller (v1).
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let is_hierarchy = |folder: &Path| folder.join("cgroup.procs").exists();
    if is_hierarchy(root) {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|folder| is_hierarchy(folder)).collect()
}

/// Checks that a control group can be created in each hierarchy.
fn check_control_groups() -> Result<()> {
    let hierarchies = hierarchies();
    ensure!(!hierarchies.is_empty(), "pods need control groups, and none are mounted at /sys/fs/cgroup");
    for hierarchy in hierarchies {
        // Other machines have process ids of their own, so an id would not be unique.
        let folder = hierarchy.join(format!("signoff-{:016x}-tried", fastrand::u64(..)));
        fs::create_dir(&folder).and_then(|()| fs::remove_dir(&folder)).with_context(|| {
            let hierarchy = hierarchy.display();
            format!("pods need control groups, and none can be made in {hierarchy}: is it mounted read-only?")
        })?;
    }
    Ok(())
}
