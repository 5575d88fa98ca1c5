//! The tables of the page's figures, and the goals.
//!
//! **Invariant:** no goal is met or missed if others used the machine, or in a debug build.

use std::time::Duration;

use super::Measured;
use crate::crowd::percentile;
use crate::table::{hundredths, machine, milliseconds, table, tenths, whole};

/// The processors that others may use while a figure is measured.
const OTHERS: f64 = 0.2;
/// The number of requests in the goals.
const APPROVALS: usize = 1000;
const PAGES: usize = 200;

/// A figure, its goal, and its verdict.
struct Goal {
    name: &'static str,
    value: f64,
    most: f64,
    shown: fn(f64) -> String,
    others: f64,
    /// Whether it was measured with the numbers of the goal.
    is_fit: bool,
}

/// Renders all tables.
pub(super) fn render(measured: &Measured) -> String {
    let build = if measured.is_debug { "debug" } else { "release" };
    let head = format!("\nThe inbox, {build} build.\n{}.", machine());
    [head, render_votes(measured), render_pages(measured), render_live(measured), render_goals(measured)].join("\n\n")
}

fn render_votes(measured: &Measured) -> String {
    let votes = &measured.votes;
    let head =
        [format!("{} votes, one after another", whole(votes.shown.len() as f64)), "p50, ms".into(), "p99, ms".into()];
    let rows = [
        ("vote sent → shown by the page of another", &votes.shown),
        ("vote sent → seen by a bare watch", &votes.watched),
    ];
    format!(
        "{}\nShown is the event by which one request less waits, the operator's count included: p50 {} and p99 {} of a\n\
         bare watch. Processors used by others: {}",
        table(&head, rows.map(|(name, times)| (name, median_and_p99(times)))),
        ratio(&votes.shown, &votes.watched, 0.5),
        ratio(&votes.shown, &votes.watched, 0.99),
        hundredths(votes.others),
    )
}

fn render_pages(measured: &Measured) -> String {
    let pages = &measured.pages;
    let head =
        [format!("The inbox, {} requests wait", whole(measured.approvals as f64)), "p50, ms".into(), "p99, ms".into()];
    let rows = [
        ("the first page of a reader", median_and_p99(&pages.cold)),
        ("further pages", median_and_p99(&pages.warm)),
        ("a list of the API server, by the same reader", median_and_p99(&pages.lists)),
    ];
    let files: Vec<_> = pages.files.iter().map(|(name, bytes)| format!("{name} {}", kibibytes(*bytes))).collect();
    format!(
        "{}\nA further page takes {} of a list (p50), a first one {}. Sizes: the page {},\n\
         {}; the list {}.\n\
         Processors used by others: {}",
        table(&head, rows),
        ratio(&pages.warm, &pages.lists, 0.5),
        ratio(&pages.cold, &pages.lists, 0.5),
        kibibytes(pages.page_bytes),
        files.join(", "),
        kibibytes(pages.list_bytes),
        hundredths(pages.others),
    )
}

fn render_live(measured: &Measured) -> String {
    let live = &measured.live;
    format!(
        "{} open pages, each of a session of its own, {} requests wait, an idle minute:\n\
         memory {} MiB (before {}, at most {}), {} of one processor. Processors used by others: {}",
        live.count,
        whole(measured.approvals as f64),
        tenths(live.rss_mib),
        tenths(live.rss_before_mib),
        tenths(live.peak_mib),
        tenth_percent(live.cpu),
        hundredths(live.others),
    )
}

fn render_goals(measured: &Measured) -> String {
    let head = ["Goal".to_owned(), "measured".to_owned(), "goal".to_owned(), String::new()];
    let goals = goals(measured);
    let rows = goals.iter().map(|goal| {
        let cells =
            vec![(goal.shown)(goal.value), format!("≤ {}", (goal.shown)(goal.most)), goal.verdict(measured.is_debug)];
        (goal.name, cells)
    });
    table(&head, rows)
}

fn goals(measured: &Measured) -> [Goal; 5] {
    let Measured { votes, pages, live, .. } = measured;
    let enough = measured.approvals >= APPROVALS;
    let weight = pages.page_bytes + pages.files.iter().map(|(_, bytes)| bytes).sum::<usize>();
    let at_most = |name, value, most, shown, others, is_fit| Goal { name, value, most, shown, others, is_fit };
    [
        at_most(
            "vote → shown, p99, ms",
            milliseconds(percentile(&votes.shown, 0.99)),
            300.0,
            tenths,
            votes.others,
            enough,
        ),
        at_most(
            "further pages, p99, ms",
            milliseconds(percentile(&pages.warm, 0.99)),
            25.0,
            tenths,
            pages.others,
            enough,
        ),
        // Bytes do not depend on other programs.
        at_most("the page and its files, KiB", weight as f64 / 1024.0, 120.0, tenths, 0.0, enough),
        at_most(
            "memory with 200 open pages, MiB",
            live.rss_mib,
            150.0,
            tenths,
            live.others,
            enough && live.count >= PAGES,
        ),
        at_most(
            "processor time of 200 idle pages",
            live.cpu,
            0.05,
            tenth_percent,
            live.others,
            enough && live.count >= PAGES,
        ),
    ]
}

impl Goal {
    fn verdict(&self, is_debug: bool) -> String {
        match self {
            Self { others, .. } if *others > OTHERS => {
                format!("not judged: others used {} processors", hundredths(*others))
            }
            _ if is_debug => "not judged: a debug build".to_owned(),
            Self { is_fit: false, .. } => format!("not judged: the goal is for {APPROVALS} requests and {PAGES} pages"),
            Self { value, most, .. } if value <= most => "met".to_owned(),
            _ => "missed".to_owned(),
        }
    }
}

fn median_and_p99(times: &[Duration]) -> Vec<String> {
    [0.5, 0.99].map(|share| tenths(milliseconds(percentile(times, share)))).into()
}

fn ratio(ours: &[Duration], bare: &[Duration], share: f64) -> String {
    let [ours, bare] = [ours, bare].map(|times| percentile(times, share).as_secs_f64());
    format!("{:.2}×", ours / bare.max(f64::EPSILON))
}

fn kibibytes(bytes: usize) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}

fn tenth_percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_judged_only_where_the_run_can_say_so() {
        let goal = |value, others, is_fit| Goal { name: "", value, most: 1.0, shown: tenths, others, is_fit };
        assert_eq!(goal(1.0, 0.1, true).verdict(false), "met");
        assert_eq!(goal(1.1, 0.1, true).verdict(false), "missed");
        assert_eq!(goal(1.0, 0.3, true).verdict(false), "not judged: others used 0.30 processors");
        assert!(goal(1.0, 0.1, false).verdict(false).starts_with("not judged: the goal is for"));
        assert!(goal(1.0, 0.1, true).verdict(true).ends_with("a debug build"));
    }
}
