//! The time on this machine, and lengths of time as kubectl writes them.
//!
//! For display only. The API server decides whether a decision is in time.

use std::time::Duration;

use signoff_api::Moment;

/// Returns the time by the clock of this machine.
pub fn now() -> Moment {
    Moment::from(jiff::Timestamp::now())
}

/// Returns the distance of an instant from now: `in 23h` or `5m ago`.
pub fn distance(at: Moment, now: Moment) -> String {
    if at > now { format!("in {}", length(at.since(now))) } else { format!("{} ago", length(now.since(at))) }
}

/// Returns a length of time as kubectl writes it: `45s`, `3m20s`, `90m`, `5h30m`, `30h`, `3d4h`, `12d`. Short lengths
/// have a second unit.
pub fn length(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two_units = |whole: u64, unit: &str, rest: u64, small: &str| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{small}") }
    };
    // The bounds are those of kubectl.
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two_units(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two_units(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two_units(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// Returns a length of time for a list, rounded to one unit: `45 min`, `8 h`, `3 d`.
pub fn rounded(length: Duration) -> String {
    let in_units = |unit: u64| length.as_secs().saturating_add(unit / 2) / unit;
    match length.as_secs() {
        0..3_570 => format!("{} min", in_units(60).max(1)),
        3_570..171_000 => format!("{} h", in_units(3_600)),
        _ => format!("{} d", in_units(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_kubectl_writes_them() {
        let written: Vec<_> = [45, 119, 120, 200, 5400, 19_800, 108_000, 273_600, 1_036_800]
            .into_iter()
            .map(|s| length(Duration::from_secs(s)))
            .collect();
        assert_eq!(written, ["45s", "119s", "2m", "3m20s", "90m", "5h30m", "30h", "3d4h", "12d"]);
    }

    #[test]
    fn a_rounded_length_has_one_unit() {
        let written: Vec<_> = [0, 90, 3_569, 3_570, 28_740, 170_999, 171_000, 1_036_800]
            .into_iter()
            .map(|s| rounded(Duration::from_secs(s)))
            .collect();
        assert_eq!(written, ["1 min", "2 min", "59 min", "1 h", "8 h", "47 h", "2 d", "12 d"]);
    }

    #[test]
    fn a_distance_is_in_the_past_or_in_the_future() {
        let now = now();
        assert_eq!(distance(now.after(Duration::from_secs(3600)), now), "in 60m");
        assert_eq!(distance(now, now.after(Duration::from_secs(3600))), "60m ago");
    }
}
