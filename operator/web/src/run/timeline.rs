//! The time line of a run: the begin and the end of each record, and the times in which the run worked and waited.
//!
//! Pure. All times are those of the journal; open records end at `now`.

use std::time::Duration;

use signoff_api::{
    Moment,
    journal::{StepKind, StepPhase, StepRecord},
};
use signoff_review::{
    clock,
    run::{State, Tone},
    text::one_line,
};

use super::shapes::class;
use crate::page::Instant;

/// The most rows; of more, the latest are shown.
const MOST: usize = 300;
/// The length of the axis, in units of the picture.
pub const AXIS: u64 = 1000;
/// The shortest bar, in units of the picture.
const SHORTEST: u64 = 3;

/// The time line of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The rows, in the order in which the records began.
    pub rows: Vec<Bar>,
    /// The number of earlier rows that are not shown.
    pub hidden: usize,
    /// The time in which at least one step worked.
    pub worked: Duration,
    /// The time in which at least one gate waited.
    pub waited: Duration,
    /// The waits of all gates, one after the other.
    pub waits: Duration,
    /// The number of gates that were asked.
    pub gates: usize,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The path of the record, with the number of a further attempt.
    pub label: String,
    /// The word for the state of the record.
    pub word: &'static str,
    /// The tone of the state of the record.
    pub tone: &'static str,
    /// Whether the record is a gate.
    pub waits: bool,
    /// The begin of the bar, from 0 to [`AXIS`].
    pub from: u64,
    /// The length of the bar, from 0 to [`AXIS`].
    pub length: u64,
    /// The start of the record.
    pub started: Instant,
    /// The end of the record, or `None` while it is open.
    pub finished: Option<Instant>,
    /// The time that the record took, until now if it is open.
    pub took: String,
}

impl Timeline {
    /// Returns the time line of records.
    pub fn of(records: &[StepRecord], now: Moment) -> Self {
        let is_shown = |record: &&StepRecord| {
            record.kind != StepKind::Condition || matches!(record.phase, StepPhase::Failed | StepPhase::Unknown)
        };
        let mut shown: Vec<&StepRecord> = records.iter().filter(is_shown).collect();
        shown.sort_by_key(|record| (record.at, record.seq));
        let end = |record: &StepRecord| record.finished_at.unwrap_or(now).max(record.at);
        let spans = |waits: bool| {
            let records = shown.iter().filter(|record| (record.kind == StepKind::Hitl) == waits);
            records.map(|record| (record.at, end(record))).collect::<Vec<_>>()
        };
        let (work, waits) = (spans(false), spans(true));
        let hidden = shown.len().saturating_sub(MOST);
        let rows = &shown[hidden..];
        let first = rows.first().map_or(now, |record| record.at);
        let last = rows.iter().map(|record| end(record)).max().unwrap_or(now);
        let total = last.since(first).as_millis().max(1);
        let position = |at: Moment| scale(at.since(first).as_millis(), total);
        let bar = |record: &&StepRecord| {
            let (from, to) = (position(record.at).min(AXIS - SHORTEST), position(end(record)));
            let state =
                record.decision.as_ref().map_or(State::Record(record.phase), |outcome| State::Decided(outcome.phase));
            let tone = if record.phase == StepPhase::Waiting { Tone::Attention } else { state.tone() };
            let attempt = if record.attempt > 1 { format!(", attempt {}", record.attempt) } else { String::new() };
            Bar {
                label: one_line(&record.path, 120) + &attempt,
                word: state.word(),
                tone: class(tone),
                waits: record.kind == StepKind::Hitl,
                from,
                length: to.saturating_sub(from).max(SHORTEST),
                started: record.at.into(),
                finished: record.finished_at.map(Instant::from),
                took: clock::length(end(record).since(record.at)),
            }
        };
        Self {
            rows: rows.iter().map(bar).collect(),
            hidden,
            worked: covered_time(work.clone()),
            waited: covered_time(waits.clone()),
            waits: waits.iter().map(|(from, to)| to.since(*from)).fold(Duration::ZERO, Duration::saturating_add),
            gates: waits.len(),
        }
    }
}

/// Returns a part of a length in units of the axis.
fn scale(part: u128, total: u128) -> u64 {
    u64::try_from(part.saturating_mul(AXIS.into()) / total).unwrap_or(AXIS).min(AXIS)
}

/// Returns the time that spans cover together. Overlapping parts count once.
fn covered_time(mut spans: Vec<(Moment, Moment)>) -> Duration {
    spans.sort();
    let (mut total, mut until) = (Duration::ZERO, None::<Moment>);
    for (from, to) in spans {
        let from = until.map_or(from, |until| from.max(until));
        if to > from {
            total = total.saturating_add(to.since(from));
            until = Some(to);
        }
    }
    total
}
