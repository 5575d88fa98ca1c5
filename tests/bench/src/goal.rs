//! A goal: a bound for a figure, and whether a run met it. Pure.
//!
//! **Invariant:** no goal is met or missed if others used the machine, or if the operator's counters are wrong.

use serde_json::{Map, Value, json};

use super::table::{hundredths, percent, table, tenths, whole};

/// The processors that others may use while a figure is measured.
const OTHERS: f64 = 0.2;

/// A goal with its figure in a run.
#[derive(Debug)]
pub(super) struct Goal {
    /// The figure's name in `--json`; `None` for figures with another place there.
    pub(super) key: Option<String>,
    pub(super) name: String,
    bound: Bound,
    pub(super) figure: Option<Figure>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    /// At least this share, shown in percent.
    AtLeast(f64),
}

/// One measured number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) value: f64,
    /// The processors that others used during the measurement, or during the measurement of a figure for comparison.
    pub(super) others: f64,
    /// Whether the operator's counters equal those of the audit log; true for figures that are not counts.
    pub(super) is_counted_alike: bool,
}

/// The verdict of a run on a goal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    Met,
    Missed,
    NotMeasured,
    /// The goal is not judged, because others used this number of processors.
    NotSaid(f64),
    DebugBuild,
    CountedOtherwise,
}

impl Figure {
    pub(super) fn new(value: f64, others: f64) -> Self {
        Self { value, others, is_counted_alike: true }
    }

    /// Returns the larger of two figures; a reason to doubt either is a reason to doubt the result.
    pub(super) fn worse(self, other: Self) -> Self {
        Self {
            value: self.value.max(other.value),
            others: self.others.max(other.others),
            is_counted_alike: self.is_counted_alike && other.is_counted_alike,
        }
    }
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl Goal {
    pub(super) fn at_most(key: &str, name: &str, most: f64, figure: Option<Figure>) -> Self {
        Self { key: Some(key.to_owned()), name: name.to_owned(), bound: Bound::AtMost(most), figure }
    }

    pub(super) fn at_least(key: &str, name: &str, least: f64, figure: Option<Figure>) -> Self {
        Self { key: Some(key.to_owned()), name: name.to_owned(), bound: Bound::AtLeast(least), figure }
    }

    pub(super) fn further(name: String, most: f64, figure: Option<Figure>) -> Self {
        Self { key: None, name, bound: Bound::AtMost(most), figure }
    }

    /// Returns the verdict on the figure, for a run of a debug build or a release build.
    pub(super) fn verdict(&self, is_debug: bool) -> Verdict {
        match self.figure {
            None => Verdict::NotMeasured,
            Some(figure) if figure.others > OTHERS => Verdict::NotSaid(figure.others),
            Some(_) if is_debug => Verdict::DebugBuild,
            Some(figure) if !figure.is_counted_alike => Verdict::CountedOtherwise,
            Some(figure) if self.bound.holds(figure.value) => Verdict::Met,
            Some(_) => Verdict::Missed,
        }
    }

    /// Returns the goal with the figure and its verdict, as `--json` writes it.
    pub(super) fn to_json(&self, is_debug: bool) -> Value {
        json!({
            "name": self.name,
            "goal": self.bound(),
            "measured": self.figure.map(|figure| figure.value),
            "others": self.figure.map(|figure| figure.others),
            "verdict": self.verdict(is_debug).to_string(),
        })
    }

    /// Returns the bound as text.
    pub(super) fn bound(&self) -> String {
        match self.bound {
            Bound::AtMost(most) => format!("≤ {}", whole(most)),
            Bound::AtLeast(least) => format!("≥ {}", percent(least)),
        }
    }

    /// Returns the figure as text.
    pub(super) fn measured(&self) -> String {
        match (self.figure, self.bound) {
            (None, _) => "–".to_owned(),
            (Some(figure), Bound::AtLeast(_)) => format!("{} %", tenths(figure.value * 100.0)),
            (Some(figure), Bound::AtMost(_)) => hundredths(figure.value),
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Met => f.write_str("met"),
            Self::Missed => f.write_str("missed"),
            Self::NotMeasured => f.write_str("not measured"),
            Self::NotSaid(others) => write!(f, "not judged: others used {others:.2} processors"),
            Self::DebugBuild => f.write_str("not judged: a debug build"),
            Self::CountedOtherwise => f.write_str("not judged: the counters differ"),
        }
    }
}

/// Returns the figures of the goals that have a key, as the object `goals` of `--json`.
pub(super) fn figures(goals: &[Goal]) -> Map<String, Value> {
    goals.iter().filter_map(|goal| Some((goal.key.clone()?, json!(goal.figure.map(|figure| figure.value))))).collect()
}

/// Returns the table of all goals.
pub(super) fn render_table(goals: &[Goal], is_debug: bool) -> String {
    let rows = goals
        .iter()
        .map(|goal| (goal.name.as_str(), vec![goal.bound(), goal.measured(), goal.verdict(is_debug).to_string()]));
    table(&["Goals", "goal", "measured", ""].map(str::to_owned), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(bound: Bound, figure: Option<Figure>) -> Goal {
        Goal { key: None, name: "a figure".to_owned(), bound, figure }
    }

    #[test]
    fn a_goal_is_met_at_its_bound_and_missed_beyond_it() {
        let verdict = |bound, value| goal(bound, Some(Figure::new(value, 0.02))).verdict(false);
        assert_eq!(verdict(Bound::AtMost(4.0), 4.0), Verdict::Met);
        assert_eq!(verdict(Bound::AtMost(4.0), 4.001), Verdict::Missed);
        assert_eq!(verdict(Bound::AtLeast(0.85), 0.85), Verdict::Met);
        assert_eq!(verdict(Bound::AtLeast(0.85), 0.8499), Verdict::Missed);
        assert_eq!(verdict(Bound::AtMost(4.0), f64::NAN), Verdict::Missed);
        assert_eq!(verdict(Bound::AtLeast(0.85), f64::NAN), Verdict::Missed);
    }

    #[test]
    fn a_goal_is_not_judged_where_others_used_a_fifth_of_a_processor() {
        let verdict = |others| goal(Bound::AtMost(4.0), Some(Figure::new(1.0, others))).verdict(false);
        assert_eq!(verdict(0.2), Verdict::Met);
        assert_eq!(verdict(0.21).to_string(), "not judged: others used 0.21 processors");
        let missed = goal(Bound::AtMost(4.0), Some(Figure::new(9.0, 1.5))).verdict(false);
        assert_eq!(missed, Verdict::NotSaid(1.5));
    }

    #[test]
    fn a_goal_is_not_judged_for_a_debug_build_or_wrong_counters() {
        let figure = Figure::new(1.0, 0.0);
        assert_eq!(goal(Bound::AtMost(4.0), Some(figure)).verdict(true), Verdict::DebugBuild);
        assert_eq!(goal(Bound::AtMost(4.0), None).verdict(false), Verdict::NotMeasured);
        let wrong = Figure { is_counted_alike: false, ..figure };
        assert_eq!(goal(Bound::AtMost(4.0), Some(wrong)).verdict(false), Verdict::CountedOtherwise);
    }

    #[test]
    fn the_worse_of_two_figures_keeps_others_and_wrong_counters() {
        let one = Figure { value: 2.0, others: 0.3, is_counted_alike: true };
        let two = Figure { value: 3.0, others: 0.1, is_counted_alike: false };
        let worse = one.worse(two);
        assert_eq!((worse.value, worse.others, worse.is_counted_alike), (3.0, 0.3, false));
    }

    #[test]
    fn figures_are_shown_in_the_unit_of_their_bound() {
        let share = goal(Bound::AtLeast(0.85), Some(Figure::new(0.7412, 0.0)));
        assert_eq!([share.bound(), share.measured()], ["≥ 85 %", "74.1 %"]);
        let ratio = goal(Bound::AtMost(40.0), Some(Figure::new(71.346, 0.0)));
        assert_eq!([ratio.bound(), ratio.measured()], ["≤ 40", "71.35"]);
        assert_eq!(goal(Bound::AtMost(40.0), None).measured(), "–");
    }
}
