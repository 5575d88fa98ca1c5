//! The tally of an Approval on a thread for evaluations, and the handling of a stopped tally.
//!
//! A vote whose evaluation is stopped is invalid, and the other votes are counted without it. If no vote is the cause,
//! the Approval is put into quarantine: its deadline and the end of its run still count, but no vote is read. The same
//! happens if a vote is the cause and many evaluations of the run were stopped.

use std::{collections::BTreeMap, sync::Arc};

use signoff_api::{
    Approval, EventReason, Moment,
    approval::Decision,
    conditions::{self, ConditionUpdate, reason},
};
use signoff_cluster::{
    kinds::{Name, uid},
    workqueue::Key,
};
use signoff_engine::{
    Now,
    approval::{ApprovalEvent, OwnerState, TallyResult, VoteFilter, tally_filtered},
    evaluation::Part,
};
use signoff_executor::Stopped;

use crate::{
    context::Context,
    error::Error,
    quarantine::{self, CostlyVote, MOST_STOPS, Quarantines, message, paused_message},
    withdrawal::Orders,
};

/// Returns the tally of an Approval. Votes are evaluated only while the run is open and not paused, and the Approval is
/// not in quarantine. A stopped tally puts the Approval into quarantine.
pub(super) async fn evaluate(
    context: &Context,
    name: &Name,
    approval: &Arc<Approval>,
    owner: OwnerState,
    now: &Now,
) -> Result<TallyResult, Error> {
    let evaluations = &context.evaluations;
    let key = Key::Approval(name.clone());
    let generation = approval.metadata.generation.unwrap_or_default();
    let aside = evaluations.quarantines.get(&key).filter(|aside| aside.generation == generation);
    let run = RunOfApproval { name: &name.beside(&approval.spec.request.workflow.name), approval };
    if let Some(aside) = aside.filter(|aside| now.at < aside.until) {
        let result = tally_filtered(approval, owner, now, &VoteFilter::Nothing);
        return Ok(TallyResult { wake_at: earlier(result.wake_at, aside.until), ..result });
    }
    if owner != OwnerState::Live {
        // The Approval cannot be decided any more, so no vote is evaluated.
        evaluations.clear_suspect::<Approval>(name, uid(&**approval));
        evaluations.end_quarantine(&key);
        return Ok(without_quarantine(tally_filtered(approval, owner, now, &VoteFilter::Nothing)));
    }
    if let Some(until) = run.paused_until(&evaluations.quarantines, now.at) {
        let result = tally_filtered(approval, owner, now, &VoteFilter::Nothing);
        // If the Approval itself is in quarantine, its condition says so already.
        let result = match aside {
            Some(_) => result,
            None => with_quarantine(result, approval, now, reason::TOO_COSTLY, &paused_message(until)),
        };
        return Ok(TallyResult { wake_at: earlier(result.wake_at, until), ..result });
    }
    match count_votes(context, &key, &run, owner, now).await {
        Ok(result) => {
            evaluations.clear_suspect::<Approval>(name, uid(&**approval));
            evaluations.end_quarantine(&key);
            Ok(without_quarantine(result))
        }
        Err(why @ (Stopped::Closed | Stopped::Withdrawn)) => {
            Err(Error::Stopped { object: name.as_a::<Approval>(), why })
        }
        Err(why) => {
            if !matches!(why, Stopped::Deadly { .. }) {
                evaluations.clear_suspect::<Approval>(name, uid(&**approval));
            }
            let before = aside.map_or(0, |aside| aside.failures);
            let entry = evaluations.begin_quarantine(&key, generation, before, now.at);
            let until = run.paused_until(&evaluations.quarantines, now.at);
            let until = until.map_or(entry.until, |until| until.max(entry.until));
            let message = message(&why, &entry, Some(until));
            tracing::error!(approval = %name, reason = quarantine::reason(&why), "{message}");
            let result = tally_filtered(approval, owner, now, &VoteFilter::Nothing);
            let mut result = with_quarantine(result, approval, now, quarantine::reason(&why), &message);
            let key = format!("quarantined-{generation}-{}", entry.failures);
            result.events.push(ApprovalEvent { reason: EventReason::Quarantined, message, key, gate: None });
            Ok(TallyResult { wake_at: earlier(result.wake_at, until), ..result })
        }
    }
}

/// The run of an Approval. Stopped evaluations of the run and of its Approvals are counted together.
struct RunOfApproval<'a> {
    name: &'a Name,
    approval: &'a Arc<Approval>,
}

impl RunOfApproval<'_> {
    fn uid(&self) -> &str {
        &self.approval.spec.request.workflow.uid
    }

    fn paused_until(&self, quarantines: &Quarantines, now: Moment) -> Option<Moment> {
        quarantines.run_paused_until(self.name, self.uid(), now)
    }

    fn record_stop(&self, quarantines: &Quarantines, why: &Stopped, now: Moment) -> i32 {
        quarantines.record_stop_of_run(self.name, self.uid(), 0, why, now)
    }
}

/// Counts the votes. A vote whose evaluation is stopped is invalid.
async fn count_votes(
    context: &Context,
    key: &Key,
    run: &RunOfApproval<'_>,
    owner: OwnerState,
    now: &Now,
) -> Result<TallyResult, Stopped> {
    let (approval, quarantines) = (run.approval, &context.evaluations.quarantines);
    let attempt = |vote: &str| approval.spec.decisions.get(vote).map_or(0, Decision::attempt);
    let known = quarantines.costly_votes(key).into_iter().filter(|vote| attempt(&vote.key) == vote.attempt);
    let mut costly: BTreeMap<String, String> = known.map(|vote| (vote.key, vote.why)).collect();
    loop {
        let (object, at, filter) = (Arc::clone(approval), now.clone(), VoteFilter::AllBut(costly.clone()));
        let why = match context
            .evaluate(&**approval, Orders::default(), move || tally_filtered(&object, owner, &at, &filter))
            .await
        {
            Ok(result) => return Ok(result),
            Err(why) => why,
        };
        match why.part() {
            Some(Part::Vote(vote)) if !costly.contains_key(vote) => {
                quarantines.record_stopped_part(key, now.at);
                let reason = format!("{why}; give a shorter or simpler answer");
                let costly_vote = CostlyVote { key: vote.clone(), attempt: attempt(vote), why: reason.clone() };
                quarantines.add_costly_vote(key, costly_vote);
                costly.insert(vote.clone(), reason);
                if run.record_stop(quarantines, &why, now.at) >= MOST_STOPS {
                    return Err(why);
                }
            }
            _ => {
                if !matches!(why, Stopped::Closed | Stopped::Withdrawn) {
                    run.record_stop(quarantines, &why, now.at);
                }
                return Err(why);
            }
        }
    }
}

/// Returns the tally with the condition `Quarantined`.
fn with_quarantine(
    mut result: TallyResult,
    approval: &Approval,
    now: &Now,
    reason: &str,
    message: &str,
) -> TallyResult {
    let say = ConditionUpdate { kind: conditions::QUARANTINED, holds: true, reason, message };
    let is_news = conditions::set(&mut result.status.conditions, &say, approval.metadata.generation, now.at);
    mark_changed(result, is_news)
}

/// Returns the tally without the condition `Quarantined`.
fn without_quarantine(mut result: TallyResult) -> TallyResult {
    let is_news = conditions::remove(&mut result.status.conditions, conditions::QUARANTINED);
    mark_changed(result, is_news)
}

/// Returns the tally, marked as changed if its conditions have changed.
pub(super) fn mark_changed(mut result: TallyResult, is_news: bool) -> TallyResult {
    if is_news && !result.changed {
        result.changed = true;
        result.status.seq += 1;
    }
    result
}

/// Returns the earlier of two times, the first of which is optional.
pub(super) fn earlier(first: Option<Moment>, second: Moment) -> Option<Moment> {
    Some(first.map_or(second, |first| first.min(second)))
}
