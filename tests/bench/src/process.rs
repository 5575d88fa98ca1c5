//! The kernel's figures of processes: processor time and memory.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The unit in which Linux reports processor time, a hundredth of a second.
const TICK: Duration = Duration::from_millis(10);

/// A process's use of the machine until now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// Processor time of all its threads, in user and in kernel mode.
    pub(super) cpu: Duration,
    /// Resident memory now, in MiB.
    pub(super) rss_mib: f64,
    /// The largest resident memory so far, in MiB.
    pub(super) peak_mib: f64,
}

/// Returns the processor time and the memory of a process so far.
pub(super) fn usage(pid: u32) -> Result<Usage> {
    let status = read(&format!("/proc/{pid}/status"))?;
    Ok(Usage { cpu: cpu(pid)?, rss_mib: mebibytes(&status, "VmRSS:"), peak_mib: mebibytes(&status, "VmHWM:") })
}

/// Returns the processor time of a process so far.
pub(super) fn cpu(pid: u32) -> Result<Duration> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    let (user, system) = (field(&stat, 14)?, field(&stat, 15)?);
    Ok(ticks(user + system))
}

/// Returns the processor time so far of a process and of all its descendants that have ended and were waited for.
pub(super) fn cpu_with_children(pid: u32) -> Result<Duration> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    let total = [14, 15, 16, 17].iter().map(|&number| field(&stat, number)).sum::<Result<u64>>()?;
    Ok(ticks(total))
}

/// Returns the time since a process was started, to a hundredth of a second.
pub(super) fn age(pid: u32) -> Result<Duration> {
    let uptime = read("/proc/uptime")?;
    let uptime: f64 = uptime.split(' ').next().and_then(|text| text.parse().ok()).context("/proc/uptime")?;
    let started = ticks(field(&read(&format!("/proc/{pid}/stat"))?, 22)?);
    Ok(Duration::from_secs_f64(uptime).saturating_sub(started))
}

/// Returns the processor time of the whole machine so far.
pub(super) fn machine() -> Result<Duration> {
    let stat = read("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat")?;
    let numbers: Vec<u64> = line.split_ascii_whitespace().skip(1).filter_map(|text| text.parse().ok()).collect();
    // The fields are user, nice, system, idle, iowait, irq, softirq and steal; the time of guests is a part of user.
    Ok(ticks([0, 1, 2, 5, 6, 7].iter().filter_map(|&index| numbers.get(index)).sum()))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{path}: this benchmark needs Linux's /proc"))
}

fn ticks(count: u64) -> Duration {
    TICK * u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns a field of `/proc/PID/stat` by its number in proc(5). The second field may hold spaces and parentheses, so
/// fields are counted from the last parenthesis.
fn field(stat: &str, number: usize) -> Result<u64> {
    let rest = stat.rsplit_once(") ").context("/proc/PID/stat has another shape")?.1;
    let text = rest.split(' ').nth(number - 3).context("/proc/PID/stat is shorter than it should be")?;
    text.trim().parse().with_context(|| format!("field {number} of /proc/PID/stat is {text:?}"))
}

fn mebibytes(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kibibytes.unwrap_or_default() / 1024.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_field() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 1900 20 21";
        assert_eq!(field(stat, 14).unwrap(), 11);
        assert_eq!(field(stat, 22).unwrap(), 1900);
    }

    #[test]
    fn the_time_of_children_is_counted_when_they_have_ended() {
        let before = cpu_with_children(std::process::id()).unwrap();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().unwrap().success());
        let (own, all) = (cpu(std::process::id()).unwrap(), cpu_with_children(std::process::id()).unwrap());
        assert!(all > before && all > own, "{all:?} {before:?} {own:?}");
    }

    #[test]
    fn this_process_uses_memory_and_was_started_before_now() {
        let usage = usage(std::process::id()).unwrap();
        assert!(usage.rss_mib > 0.0 && usage.peak_mib >= usage.rss_mib);
        assert!(age(std::process::id()).unwrap() < Duration::from_secs(3600));
        assert!(machine().unwrap() > Duration::ZERO);
    }
}
