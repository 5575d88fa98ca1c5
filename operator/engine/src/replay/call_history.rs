//! The calls of a run's agents, and the decisions about these calls. The history is collected once for each transition,
//! because a replay reads it at each call.
//!
//! **Invariant:** turns and decisions enter a journal as facts only, before the replay.

use std::{cell::RefCell, collections::BTreeMap};

use signoff_api::{
    Digest, RecordPath, Seq, Verdict,
    journal::{FACT_CALLS, StepKind, StepRecord},
};

use crate::{
    journal::{Journal, within},
    tools::MOST_CALLS,
};

/// The turns with calls of a run, and the decisions of its gates.
#[derive(Default)]
pub(crate) struct CallHistory {
    /// The turns, in the order of their paths.
    turns: Vec<TurnWithCalls>,
    /// For each step path the ends of the turns at or below the path in order, each with the number of calls so far.
    sums: RefCell<BTreeMap<String, Vec<(Seq, usize)>>>,
    /// The gates decided with Reject, Modify or Retry.
    decided: Vec<StepRecord>,
    /// The gates decided with Modify, by path without visit, the oldest first.
    modified: BTreeMap<String, Vec<StepRecord>>,
    /// The calls by the step of their tool and the digest of its input.
    equal: RefCell<BTreeMap<(String, Digest), Vec<RecordKey>>>,
}

/// The path and attempt of a record.
pub(crate) type RecordKey = (String, i32);

/// A finished turn with calls.
struct TurnWithCalls {
    path: String,
    done: Seq,
    calls: usize,
}

impl CallHistory {
    pub(crate) fn of(journal: &Journal) -> Self {
        let mut history = Self::default();
        for record in journal.records() {
            if let Some(done) = record.done.filter(|_| record.calls_tools()) {
                let calls = record.facts.get(FACT_CALLS).and_then(|calls| calls.parse().ok()).unwrap_or(0);
                history.turns.push(TurnWithCalls { path: record.path.clone(), done, calls: MOST_CALLS.min(calls) });
            }
            if matches!(verdict(record), Some(Verdict::Reject | Verdict::Retry | Verdict::Modify)) {
                history.decided.push(record.clone());
            }
            history.add_call(record);
        }
        for record in history.decided.iter().filter(|record| verdict(record) == Some(Verdict::Modify)) {
            let gate = RecordPath::new(&record.path).without_last_visit().to_string();
            history.modified.entry(gate).or_default().push(record.clone());
        }
        history.turns.sort_by(|a, b| a.path.cmp(&b.path));
        history
    }

    /// Returns the number of calls at a step and below it, in turns that ended before `seq`.
    pub(crate) fn calls_within(&self, step: &str, seq: Seq) -> usize {
        let mut sums = self.sums.borrow_mut();
        let sums = sums.entry(step.to_owned()).or_insert_with(|| self.sums_of(step));
        let before = sums.partition_point(|(done, _)| *done < seq);
        before.checked_sub(1).and_then(|last| sums.get(last)).map_or(0, |(_, calls)| *calls)
    }

    /// Returns the ends of the turns at or below a path in order, each with the number of calls so far.
    fn sums_of(&self, step: &str) -> Vec<(Seq, usize)> {
        let from = self.turns.partition_point(|turn| turn.path.as_str() < step);
        let turns = self.turns.get(from..).unwrap_or_default().iter().take_while(|turn| turn.path.starts_with(step));
        let turns = turns.inspect(|_| {
            #[cfg(test)]
            crate::journal::reads::count(1);
        });
        let mut ends: Vec<_> =
            turns.filter(|turn| within(&turn.path, step)).map(|turn| (turn.done, turn.calls)).collect();
        ends.sort_unstable();
        let mut sum = 0;
        for (_, calls) in &mut ends {
            sum += *calls;
            *calls = sum;
        }
        ends
    }

    /// Adds a record that begins during the replay, if it is a call of a tool.
    pub(crate) fn add_call(&self, record: &StepRecord) {
        let Some((step, input)) = RecordPath::new(&record.path).turn_above().and_then(|_| step_and_input(record))
        else {
            return;
        };
        self.equal.borrow_mut().entry((step, input)).or_default().push((record.path.clone(), record.attempt));
    }

    /// Returns the path and attempt of each call that ran a step with an input.
    pub(crate) fn equal_calls(&self, step: &str, input: &Digest) -> Vec<RecordKey> {
        self.equal.borrow().get(&(step.to_owned(), input.clone())).cloned().unwrap_or_default()
    }

    /// Returns the visits of a gate that were decided with Modify, the oldest first.
    pub(crate) fn modified_at(&self, gate: &str) -> &[StepRecord] {
        self.modified.get(gate).map_or(&[], Vec::as_slice)
    }

    /// Returns the gates that were decided with `wanted` (Reject, Modify or Retry) before `seq`, the oldest first.
    pub(crate) fn decided_before(&self, seq: Seq, wanted: Verdict) -> impl Iterator<Item = &StepRecord> {
        let decided = self.decided.iter().filter(move |record| verdict(record) == Some(wanted));
        decided.filter(move |record| record.done.is_some_and(|done| done < seq))
    }
}

/// Returns the step of a call and the digest of its input. The input of a `set` step is the rendered text.
fn step_and_input(record: &StepRecord) -> Option<(String, Digest)> {
    let input = match record.kind {
        StepKind::Http | StepKind::Mcp | StepKind::Pod => record.input_digest.clone()?,
        StepKind::Set => match (&record.response, &record.response_ref) {
            (Some(response), _) => Digest::of_bytes(response.0.as_str()?.as_bytes()),
            (None, reference) => reference.as_ref()?.digest.clone(),
        },
        StepKind::Agent | StepKind::Hitl | StepKind::Condition => return None,
    };
    Some((RecordPath::new(&record.path).last().as_str().to_owned(), input))
}

fn verdict(record: &StepRecord) -> Option<Verdict> {
    record.decision.as_ref()?.verdict
}
