//! One transition of a local run: observe *(I/O)* -> advance *(pure)* -> claim *(pure)* -> commit *(I/O)* -> dispatch
//! *(I/O)* -> report.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use signoff_api::{
    Approval, Moment,
    approval::ApprovalPhase,
    journal::{StepKind, StepPhase, StepRecord},
    occurrence::{GateEvent, Occurrence},
    workflow::WorkflowPhase,
};
use signoff_engine::{
    Control, Fact, Journal, Now, Transition,
    approval::{OwnerState, tally},
    driver::{AfterStop, Round, TransitionLoop},
    status,
    transition::Call,
};
use signoff_executor::{BlobStore as _, RunRef, Stopped, UnboundedRoom, calls};

use super::Run;
use crate::{error::Error, handler::Event};

impl Run {
    /// Computes and commits one transition. `is_pausing`: nothing new begins.
    pub(crate) async fn transition(&mut self, is_pausing: bool) -> Result<Transition, Error> {
        let now = self.now();
        let facts = self.observe(&now).await?;
        let cancel = self.session.workflow.spec.cancel.unwrap_or(false);
        let control = Control { suspend: is_pausing, asks_missing: is_pausing, cancel, ..Control::default() };
        let before = self.journal.clone();
        let mut transition = self.advance(control, facts, &now).await?;
        let claims = if is_pausing { Vec::new() } else { self.claim(&mut transition) };
        self.commit(&transition, is_pausing, now.at).await?;
        self.end.clone_from(&transition.end);
        self.report(&before, &transition);
        self.dispatch(&transition, claims, now.at)?;
        if transition.end.is_some() {
            self.cancel_open_approvals(&now)?;
        }
        Ok(transition)
    }

    /// Commits the results of finished calls, without an evaluation.
    pub(crate) async fn commit_results(&mut self) -> Result<(), Error> {
        if !self.calls_in_flight.has_results() {
            return Ok(());
        }
        let (now, before) = (self.now().at, self.journal.clone());
        let facts = self.calls_in_flight.facts(&before);
        let transition = signoff_engine::advance_quarantined(&self.session.workflow.spec, before.clone(), facts, now);
        self.commit(&transition, true, now).await?;
        self.end.clone_from(&transition.end);
        self.report(&before, &transition);
        Ok(())
    }

    /// Returns the facts of open gates and of calls. Counts the votes of open gates, writes changed Approvals, and sets
    /// the time at which a gate acts without a decision.
    async fn observe(&mut self, now: &Now) -> Result<Vec<Fact>, Error> {
        let uid = self.session.workflow.metadata.uid.clone().unwrap_or_default();
        let mut facts = self.calls_in_flight.facts(&self.journal);
        self.gates_wake_at = None;
        let journal = self.journal.clone();
        let is_open = |record: &&StepRecord| record.kind == StepKind::Hitl && record.phase == StepPhase::Waiting;
        for record in journal.records().iter().filter(is_open) {
            let Some(name) = &record.object else { continue };
            let Some(mut approval) = self.session.approvals.get(name).cloned() else {
                facts.push(Fact::ApprovalMissing { path: record.path.clone() });
                continue;
            };
            if let Some(why) = approval.mismatch(record, &uid) {
                let file = self.session.approval_file(name);
                return Err(Error::Damaged { file, why: format!("it {why}") });
            }
            let result = self.tally(&approval, now).await?;
            if result.changed {
                approval.status = Some(result.status);
                self.session.put(approval.clone())?;
                self.announce_tally(&approval, &result.events);
            }
            self.gates_wake_at = earlier_of(self.gates_wake_at, result.wake_at);
            if let Some(outcome) = approval.status.and_then(|status| status.outcome) {
                facts.push(Fact::ApprovalDecided { path: record.path.clone(), outcome: Box::new(outcome) });
            }
        }
        Ok(facts)
    }

    /// Computes the transition from the journal and the facts, and fetches the large values that the computation needs.
    async fn advance(&mut self, control: Control, facts: Vec<Fact>, now: &Now) -> Result<Transition, Error> {
        let (plan, values) = (Arc::clone(&self.plan), Arc::clone(&self.values));
        let mut rounds = TransitionLoop::new(plan, control, self.journal.clone(), facts, values, now.clone());
        loop {
            let transition = match self.evaluate(rounds.evaluation()).await {
                Err(Error::Evaluation { id, why }) => {
                    let is_limit = matches!(why, Stopped::TooCostly { .. });
                    match rounds.on_stopped(is_limit, why.part(), &why.to_string()) {
                        AfterStop::GiveUp => return Err(Error::Evaluation { id, why }),
                        AfterStop::Evaluate | AfterStop::Failed(_) => continue,
                    }
                }
                transition => transition?,
            };
            let round = rounds.on_evaluated(transition, &self.incarnation, |key| self.calls_in_flight.contains(key));
            match round.map_err(|what| Error::Bug { id: self.session.id.clone(), what })? {
                Round::Evaluate => {}
                Round::Fetch(missing) => {
                    for digest in missing {
                        let value = self.fetch(&digest).await?;
                        rounds.add_value(digest, value);
                    }
                }
                Round::Commit(transition) => {
                    self.values = rounds.into_values();
                    return Ok(*transition);
                }
            }
        }
    }

    /// Marks the calls that this process starts now as started, so that the commit names them before they start.
    /// Returns these calls, at most as many as there are free slots.
    fn claim(&self, transition: &mut Transition) -> Vec<Call> {
        let mut free = self.local.max_calls.saturating_sub(self.calls.len());
        let calls: Vec<Call> = transition.calls().cloned().collect();
        let mut claims = Vec::new();
        for call in calls {
            if free == 0 || self.calls_in_flight.contains(&call.key()) {
                continue;
            }
            transition.mark_started(&call.path, call.attempt, &self.incarnation);
            claims.push(call);
            free -= 1;
        }
        claims
    }

    /// Writes the status of the Workflow, after the large values that the status names. A value that no status names
    /// does no harm, because values are named by their content.
    async fn commit(&mut self, transition: &Transition, is_pausing: bool, now: Moment) -> Result<(), Error> {
        let is_overdue = |name| {
            let status = self.session.approvals.get(name).and_then(|approval| approval.status.as_ref());
            status.is_some_and(|status| status.phase == ApprovalPhase::Overdue)
        };
        let overdue = transition.pending.iter().any(is_overdue);
        let mut next = status::after(&self.session.workflow, &self.plan, transition, overdue, now);
        if is_pausing && next.phase == WorkflowPhase::Suspended {
            // The run only begins nothing new because it is about to pause; it is not suspended.
            next.phase = if next.pending.is_empty() { WorkflowPhase::Running } else { WorkflowPhase::Waiting };
            next.message = status::waiting_message(&next.pending);
        }
        if self.session.workflow.status.as_ref() != Some(&next) {
            let (blobs, owner) = (self.session.blobs(), self.session.owner());
            for (digest, text) in transition.blobs.iter().cloned().chain(status::separate_results(transition)) {
                blobs.put(&owner, digest.as_str(), text.into()).await?;
            }
            self.session.commit(next)?;
        }
        self.journal = transition.journal.clone();
        self.calls_in_flight.drop_committed(&self.journal);
        Ok(())
    }

    /// Starts the claimed calls. Writes and announces an Approval for each gate that asks.
    fn dispatch(&mut self, transition: &Transition, claims: Vec<Call>, now: Moment) -> Result<(), Error> {
        for call in claims {
            self.start_call(call);
        }
        for ask in transition.asks() {
            let mut approval = Approval::for_gate(&self.session.workflow, &ask.name, ask.request.clone());
            approval.metadata.creation_timestamp = Some(Time(now.floor_to_second().timestamp()));
            approval.metadata.generation = Some(1);
            self.session.put(approval.clone())?;
            let asked = Occurrence::stored(GateEvent::Asked, &approval);
            self.announce(&approval, |gate| gate.gate(asked));
            self.gates_wake_at = earlier_of(self.gates_wake_at, Some(ask.request.deadline));
        }
        Ok(())
    }

    /// Starts a call in a task of its own, and adds it to the calls in flight.
    fn start_call(&mut self, call: Call) {
        let owner = self.session.owner();
        let run = RunRef { namespace: owner.namespace, workflow: owner.workflow, uid: owner.uid };
        let (caller, clock) = (Arc::clone(&self.caller), Arc::clone(&self.local.clock));
        let (key, idempotent) = (call.key(), call.idempotent);
        let (path, attempt) = key.clone();
        let task = self.calls.spawn(async move {
            let result = calls::make(&*caller, &run, call, &UnboundedRoom).await;
            let fact = Fact::CallFinished { path: path.clone(), attempt, result, at: clock.now().into() };
            ((path, attempt), fact)
        });
        self.calls_in_flight.start(key, (task, idempotent));
    }

    /// Reports started steps, ended steps and decided gates to the handler.
    fn report(&self, before: &Journal, transition: &Transition) {
        for record in transition.journal.records() {
            let old_phase = before.get(&record.path, record.attempt).map(|old| old.phase);
            if old_phase == Some(record.phase) {
                continue;
            }
            if record.phase == StepPhase::Started {
                self.local.handler.happened(&Event::Began(record));
            } else if record.phase.is_end() {
                self.local.handler.happened(&Event::StepEnded(record));
            }
            let ended_gate =
                record.object.as_ref().filter(|_| record.phase.is_end() && old_phase == Some(StepPhase::Waiting));
            let approval = ended_gate.and_then(|name| self.session.approvals.get(name));
            // A gate that ends with the run has no outcome yet, and the run does not continue.
            let has_outcome =
                |approval: &&Approval| approval.status.as_ref().is_some_and(|status| status.outcome.is_some());
            if let Some(approval) = approval.filter(has_outcome) {
                let taken = Occurrence::taken(record, approval.metadata.uid.as_deref().unwrap_or_default());
                self.announce(approval, |gate| gate.gate(taken));
            }
        }
    }

    /// Stops the calls in flight, and cancels the open Approvals of a finished run.
    fn cancel_open_approvals(&mut self, now: &Now) -> Result<(), Error> {
        self.calls.abort_all();
        self.calls_in_flight.retain(|_| false);
        let open: Vec<Approval> = self.session.approvals.values().cloned().collect();
        for mut approval in open {
            let result = tally(&approval, OwnerState::Finished, now);
            if result.changed {
                approval.status = Some(result.status);
                self.session.put(approval)?;
            }
        }
        Ok(())
    }
}

/// Returns the earlier of two times, or the only one that is set.
pub(crate) fn earlier_of(left: Option<Moment>, right: Option<Moment>) -> Option<Moment> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (left, right) => left.or(right),
    }
}
