//! The shares of the machine's processors that processes used between two moments. All processes but ours and the
//! control plane's are "others".

use std::time::{Duration, Instant};

use anyhow::Result;
use signoff_tests::control_plane::OperatorProcess;

use super::harness::Harness;
use super::process;

/// The API server's name among the processes.
pub(super) const API_SERVER: &str = "kube-apiserver";
/// The operator's name among the processes.
pub(super) const OPERATOR: &str = "operator";

/// Processor time by process at one moment.
pub(super) struct Reading {
    at: Instant,
    machine: Duration,
    processes: Vec<(String, Duration)>,
}

/// Processor time by process between two moments, or in several such windows.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    wall: Duration,
    machine: Duration,
    processes: Vec<(String, Duration)>,
}

impl Reading {
    /// Reads the counters of the control plane, of this process, and of the operator if one is running.
    pub(super) fn take(harness: &Harness, operator: Option<&OperatorProcess>) -> Result<Self> {
        Self::take_with(harness, operator, None)
    }

    /// Reads the counters as [`Self::take`] does, and those of a further process by its name and id.
    pub(super) fn take_with(
        harness: &Harness,
        operator: Option<&OperatorProcess>,
        further: Option<(&str, u32)>,
    ) -> Result<Self> {
        let operator = operator.map(|operator| (OPERATOR, operator.pid()));
        let ours = operator.into_iter().chain(further).chain([("clients", std::process::id())]);
        let processes = harness.pids().into_iter().chain(ours);
        let processes =
            processes.map(|(name, pid)| Ok((name.to_owned(), process::cpu(pid)?))).collect::<Result<_>>()?;
        Ok(Self { at: Instant::now(), machine: process::machine()?, processes })
    }

    /// Returns the processor time used since `before`.
    pub(super) fn since(&self, before: &Self) -> Used {
        let used = self.processes.iter().map(|(name, now)| {
            let then = before.processes.iter().find(|(other, _)| other == name).map_or(Duration::ZERO, |(_, cpu)| *cpu);
            (name.clone(), now.saturating_sub(then))
        });
        Used {
            wall: self.at - before.at,
            machine: self.machine.saturating_sub(before.machine),
            processes: used.collect(),
        }
    }
}

impl Used {
    /// Returns the processors that each process used on average, in the order in which they were read, with the others
    /// last.
    pub(super) fn processors(&self) -> Vec<(&str, f64)> {
        let share = |cpu: Duration| cpu.as_secs_f64() / self.wall.as_secs_f64().max(f64::EPSILON);
        let mut processors_used: Vec<_> =
            self.processes.iter().map(|(name, cpu)| (name.as_str(), share(*cpu))).collect();
        processors_used.push(("others", self.others()));
        processors_used
    }

    /// Returns the processors that neither the control plane, the operator nor this process used.
    pub(super) fn others(&self) -> f64 {
        let ours: Duration = self.processes.iter().map(|(_, cpu)| *cpu).sum();
        self.machine.saturating_sub(ours).as_secs_f64() / self.wall.as_secs_f64().max(f64::EPSILON)
    }

    /// Returns one process's processor time, or zero if it was not read.
    pub(super) fn cpu(&self, name: &str) -> Duration {
        self.processes.iter().find(|(other, _)| other == name).map_or(Duration::ZERO, |(_, cpu)| *cpu)
    }
}

#[cfg(test)]
impl Used {
    /// Returns the use of one process in a second in which no other process ran.
    pub(super) fn of_one(name: &str, cpu: Duration) -> Self {
        Self { wall: Duration::from_secs(1), machine: cpu, processes: vec![(name.to_owned(), cpu)] }
    }
}

impl std::ops::Add for Used {
    type Output = Self;

    /// Adds a second window; both must name the same processes in the same order.
    fn add(self, other: Self) -> Self {
        let pairs = self.processes.into_iter().zip(other.processes);
        Self {
            wall: self.wall + other.wall,
            machine: self.machine + other.machine,
            processes: pairs.map(|((name, one), (_, two))| (name, one + two)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(start: Instant, seconds: u64, machine: u64, operator: u64) -> Reading {
        Reading {
            at: start + Duration::from_secs(seconds),
            machine: Duration::from_secs(machine),
            processes: vec![(OPERATOR.to_owned(), Duration::from_secs(operator))],
        }
    }

    #[test]
    fn others_are_what_the_machine_used_beyond_our_processes() {
        let start = Instant::now();
        let used = reading(start, 10, 112, 4).since(&reading(start, 0, 100, 1));
        assert_eq!(used.processors(), [(OPERATOR, 0.3), ("others", 0.9)]);
        assert_eq!(used.cpu(OPERATOR), Duration::from_secs(3));
        assert_eq!(used.cpu("nobody"), Duration::ZERO);
    }

    #[test]
    fn the_sum_of_two_windows_weighs_them_by_their_lengths() {
        let start = Instant::now();
        let short = reading(start, 10, 12, 2).since(&reading(start, 0, 0, 0));
        let long = reading(start, 30, 3, 3).since(&reading(start, 0, 0, 0));
        let both = short + long;
        assert_eq!(both.processors(), [(OPERATOR, 0.125), ("others", 0.25)]);
    }
}
