//! The effects of the verdicts, and the forms of a reader who can decide.
//!
//! Pure.

use signoff_api::Verdict;
use signoff_engine::approval::eligibility::allowed_verdicts;
use signoff_review::{
    coming::{self, PlannedRun},
    decisions,
    foreseen::Reached,
    outcome,
};

use super::comes_to;
use crate::{
    approval::{
        forms::{Decide, boxes},
        read::Read,
    },
    session::Caller,
};

/// The decision of the reader.
pub(super) struct ReaderDecision {
    /// The effects of the verdicts, as long as the request is open.
    pub(super) boxes: Vec<VerdictBox>,
    /// The forms of a reader who can decide.
    pub(super) forms: Option<Decide>,
    /// The sentences in the place of the forms.
    pub(super) instead: Option<String>,
}

/// The effect of a verdict that decides the gate.
pub(super) struct VerdictBox {
    pub(super) title: String,
    pub(super) verdict: &'static str,
    /// The effect of the reader's own decision; empty if it cannot be computed.
    pub(super) comes_to: String,
    /// The steps and gates that follow.
    pub(super) lines: Vec<String>,
}

impl ReaderDecision {
    /// Returns the decision of a reader on a request. `is_closed`: whether the gate is decided or has ended.
    pub(super) fn of(caller: &Caller, read: &Read, forms: Option<Decide>, is_closed: bool) -> Self {
        let instead = decisions::instead(&read.seen.approval, &caller.me, read.at);
        Self {
            boxes: if is_closed { Vec::new() } else { verdict_boxes(read, forms.is_some()) },
            instead: instead.filter(|_| forms.is_none()),
            forms,
        }
    }
}

/// Returns the effects of the two verdicts between which the gate decides. `is_mine`: whether the reader can give them.
fn verdict_boxes(read: &Read, is_mine: bool) -> Vec<VerdictBox> {
    let approval = &read.seen.approval;
    let request = &approval.spec.request;
    let status = approval.status.clone().unwrap_or_default();
    let planned = coming::definition(request, &read.run).and_then(PlannedRun::of);
    let effect = |verdict: Verdict| {
        let foreseen = read.foreseen.iter().find(|(other, _)| is_mine && *other == verdict);
        let comes_to = foreseen.map(|(_, reached)| comes_to(request, verdict, reached, &read.run)).unwrap_or_default();
        let is_new = |line: &String| comes_to.is_empty() || planned.is_some() && !comes_to.ends_with(line.as_str());
        // While others must still decide, or the run is suspended, this decision alone has no effect on the run.
        let follows = foreseen.is_none_or(|(_, reached)| *reached == Reached::Decided && !read.run.is_suspended);
        let lines = coming::lines(request, planned.as_ref(), verdict).into_iter();
        let lines = lines.filter(|line| follows && is_new(line)).collect();
        let title = match is_mine {
            true => format!("If you {}", outcome::does(verdict)),
            false => format!("If it is {}", outcome::done(verdict)),
        };
        VerdictBox { title, verdict: verdict.name(), lines, comes_to }
    };
    boxes(allowed_verdicts(request, &status)).into_iter().map(effect).collect()
}
