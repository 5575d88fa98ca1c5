//! The machine that a program and its pods have to themselves: it is removed, however it ends. Here one is created
//! inside the other, without a node.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};

use signoff_tests::node::{Input, Machine};

/// A machine that runs a shell.
struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    fn start(script: &str) -> Self {
        let mut command = Machine::find().unwrap().inside(Path::new("sh"), Input::Nothing).unwrap();
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let folder =
            command.get_envs().find(|(name, _)| *name == "TMPDIR").and_then(|(_, value)| value).unwrap().into();
        Self { child: command.spawn().unwrap(), folder }
    }

    /// Returns the first line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn wait_for_end(&mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }

    /// Returns what is left of it: its folder, and control groups of its name.
    fn remaining_files(&self) -> Vec<PathBuf> {
        let name = self.folder.file_name().unwrap();
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path());
        let groups = hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]).map(|hierarchy| hierarchy.join(name));
        groups.chain([self.folder.clone()]).filter(|path| path.exists()).collect()
    }
}

fn setting() -> String {
    std::fs::read_to_string("/proc/sys/kernel/panic").unwrap()
}

#[test]
fn a_program_has_processes_a_network_and_settings_of_its_own() {
    let before = setting();
    let mut machine = Running::start(
        "echo 77 >/proc/sys/kernel/panic; echo $$ $(cat /proc/sys/kernel/panic) $(grep -c : /proc/net/dev)",
    );
    assert_eq!(machine.line(), "1 77 1");
    let (status, said) = machine.wait_for_end();
    assert!(status.success(), "{said}");
    assert_eq!(setting(), before);
    assert_eq!(machine.remaining_files(), Vec::<PathBuf>::new());
}

#[test]
fn only_the_files_of_a_failed_program_are_kept() {
    let mut machine = Running::start("echo why >$TMPDIR/log; exit 7");
    let (status, said) = machine.wait_for_end();
    assert_eq!(status.code(), Some(7));
    assert!(said.contains("is kept in"), "{said}");
    assert_eq!(machine.remaining_files(), std::slice::from_ref(&machine.folder));
    assert_eq!(std::fs::read_to_string(machine.folder.join("log")).unwrap(), "why\n");
}

#[test]
fn a_machine_ends_with_its_owner_and_all_its_control_groups() {
    // In a group and a session of its own, as a container is.
    let script = "for parent in /sys/fs/cgroup /sys/fs/cgroup/*; do
                    [ ! -d $parent/$SIGNOFF_NODE_CGROUP ] || mkdir -p $parent/$SIGNOFF_NODE_CGROUP/one/pod
                  done
                  setsid sleep 3600 &
                  for tasks in /sys/fs/cgroup/memory/$SIGNOFF_NODE_CGROUP/one/pod /sys/fs/cgroup/$SIGNOFF_NODE_CGROUP/one/pod; do
                    [ ! -d $tasks ] || echo $! >$tasks/cgroup.procs
                  done
                  echo started; wait";
    let mut machine = Running::start(script);
    assert_eq!(machine.line(), "started");
    assert!(machine.remaining_files().len() > 1, "it has control groups: {:?}", machine.remaining_files());
    // As the kernel does when its owner ends in any way.
    drop(machine.child.stdin.take());
    let (status, said) = machine.wait_for_end();
    assert!(!status.success(), "{said}");
    assert_eq!(machine.remaining_files(), Vec::<PathBuf>::new(), "{said}");
}
