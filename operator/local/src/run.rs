//! One run in this process: observe, advance, claim, commit, dispatch; then wait for whatever happens first.
//!
//! It must not do anything that is not written down, and polls nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use signoff_api::{
    Approval, Decision, Digest, Moment,
    approval::ApprovalPhase,
    journal::{StepKind, StepPhase, StepRecord},
    workflow::WorkflowPhase,
};
use signoff_engine::{
    Blobs, Control, End, Fact, Journal, Now, Plan, Transition,
    approval::{OwnerState, TallyResult, VoteFilter, tally, tally_filtered},
    driver::{AfterStop, CallKey, CallsInFlight, Round, TransitionLoop},
    evaluation::Part,
    status,
    transition::Call,
};
use tokio::task::{AbortHandle, JoinSet};

use super::{
    Local, admission,
    error::Error,
    handler::{Event, GateQuestion},
    session::{Session, Snapshot},
    wait,
};
use signoff_executor::{BlobStore as _, RunRef, Stopped, Subject, calls};

/// The guard's epoch of runs that no guard watches.
pub(super) const EPOCH: &str = "local";

/// The outcome of driving a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// It is over.
    Over(End),
    /// It waits for people, or was asked to pause: it can be resumed, by any process.
    Paused,
}

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// The gate is decided.
    Decided,
    /// It takes more.
    Needs {
        /// The number of approvals that are recorded.
        have: i32,
        /// The number of approvals that are needed.
        needed: i32,
    },
}

/// The error of a decision that does not count. The gate is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// The problem and its remedy.
    #[error("{0}")]
    Because(String),
    /// The session cannot be used.
    #[error(transparent)]
    Session(#[from] Error),
}

/// A run that this process has for itself.
pub struct Run {
    pub(super) local: Local,
    pub(super) session: Session,
    plan: Arc<Plan>,
    /// The journal of the session's status.
    journal: Journal,
    /// Large values at hand.
    values: Arc<Blobs>,
    pub(super) calls: JoinSet<(CallKey, Fact)>,
    /// The calls in flight, and whether each may be repeated.
    pub(super) calls_in_flight: CallsInFlight<(AbortHandle, bool)>,
    /// When a gate acts by itself.
    pub(super) gates_wake_at: Option<Moment>,
    /// The end of the run, once it has ended.
    pub(super) end: Option<End>,
    incarnation: String,
    /// The number of requests to pause before the current operation.
    pub(super) stops: u8,
}

impl Run {
    pub(super) fn new(local: Local, session: Session, plan: Plan, journal: Journal) -> Self {
        let incarnation = format!("local-{}-{}", std::process::id(), super::session::random(8));
        Self {
            local,
            session,
            plan: Arc::new(plan),
            journal,
            values: Arc::default(),
            calls: JoinSet::new(),
            calls_in_flight: CallsInFlight::default(),
            gates_wake_at: None,
            end: None,
            incarnation,
            stops: 0,
        }
    }

    /// The session's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.session.id
    }

    /// Returns the warnings about the Workflow: what is allowed but was perhaps not meant.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        self.plan.warnings()
    }

    /// Returns the content of the session.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let status = self.session.workflow.status.iter();
        let names = status.flat_map(|status| &status.steps).filter_map(|record| record.object.as_ref());
        Snapshot {
            id: self.session.id.clone(),
            workflow: self.session.workflow.clone(),
            approvals: names.filter_map(|name| self.session.approvals.get(name).cloned()).collect(),
        }
    }

    /// The Approvals that wait for people, in the order in which they were asked.
    #[must_use]
    pub fn pending(&self) -> Vec<&Approval> {
        let names = self.session.workflow.status.iter().flat_map(|status| &status.pending);
        names.filter_map(|name| self.session.approvals.get(name)).collect()
    }

    /// Takes a user's decision about a pending Approval: it is checked and counted as on a cluster, and written down.
    /// The run goes on with [`Run::go`].
    ///
    /// # Errors
    /// [`DecisionError::Because`] where it does not count: the gate is then as it was, and may be answered again.
    pub async fn decide(
        &mut self,
        name: &str,
        user: &str,
        decision: Decision,
    ) -> Result<DecisionOutcome, DecisionError> {
        let now = self.now();
        let Some(before) = self.session.approvals.get(name).cloned() else {
            return Err(DecisionError::Because(format!("no gate of this run has the name {name}")));
        };
        let result = self.tally(&before, &now).await?;
        if result.changed {
            self.session.put(Approval { status: Some(result.status), ..before.clone() })?;
        }
        let mut next = self.session.approvals.get(name).cloned().unwrap_or(before);
        let mut decision = decision;
        decision.groups = admission::groups(&next.spec.request);
        decision.request_digest = Some(next.spec.request.digest.to_string());
        admission::admit(&next, user, &decision, now.at).map_err(DecisionError::Because)?;
        next.spec.decisions.insert(user.to_owned(), decision);
        next.metadata.generation = next.metadata.generation.map(|generation| generation + 1);
        let result = self.tally(&next, &now).await?;
        if let Some(invalid) = result.status.invalid.get(user) {
            return Err(DecisionError::Because(invalid.why.clone()));
        }
        let have = result.status.tally.unwrap_or_default();
        let counted = match &result.status.outcome {
            Some(_) => DecisionOutcome::Decided,
            None => DecisionOutcome::Needs { have: have.have, needed: next.spec.request.threshold() },
        };
        next.status = Some(result.status);
        self.tell(&next, &result.events);
        if counted != DecisionOutcome::Decided {
            self.local.handler.happened(&Event::VoteCounted { approval: &next, user });
        }
        self.session.put(next)?;
        Ok(counted)
    }

    /// Goes on until the run is over, or nothing is left but people's decisions that the handler does not give.
    ///
    /// # Errors
    /// The session cannot be written or is damaged: what was done is in it, as far as it was written.
    pub async fn go(&mut self) -> Result<RunOutcome, Error> {
        wait::go(self).await
    }

    pub(super) fn now(&self) -> Now {
        Now { at: self.local.clock.now().into(), guard_epoch: EPOCH.to_owned() }
    }

    /// One turn. Where it is `held`, nothing new begins.
    pub(super) async fn transition(&mut self, held: bool) -> Result<Transition, Error> {
        let now = self.now();
        let facts = self.observe(&now).await?;
        let cancel = self.session.workflow.spec.cancel.unwrap_or(false);
        let control = Control { suspend: held, cancel, ..Control::default() };
        let before = self.journal.clone();
        let mut transition = self.advance(control, facts, &now).await?;
        let claims = if held { Vec::new() } else { self.claim(&mut transition) };
        self.commit(&transition, held, now.at).await?;
        self.end.clone_from(&transition.end);
        self.report(&before, &transition);
        self.dispatch(&transition, claims, now.at)?;
        if transition.end.is_some() {
            self.call_off(&now)?;
        }
        Ok(transition)
    }

    /// Commits the results of calls that have ended, and evaluates nothing.
    pub(super) async fn keep_results(&mut self) -> Result<(), Error> {
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

    /// Returns the facts of open gates and of calls, and writes the decisions of deadlines that have passed.
    async fn observe(&mut self, now: &Now) -> Result<Vec<Fact>, Error> {
        let uid = self.session.workflow.metadata.uid.clone().unwrap_or_default();
        let mut facts = self.calls_in_flight.facts(&self.journal);
        self.gates_wake_at = None;
        let journal = self.journal.clone();
        let open = |record: &&StepRecord| record.kind == StepKind::Hitl && record.phase == StepPhase::Waiting;
        for record in journal.records().iter().filter(open) {
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
                self.tell(&approval, &result.events);
                self.session.put(approval.clone())?;
            }
            self.gates_wake_at = earlier(self.gates_wake_at, result.wake_at);
            if let Some(outcome) = approval.status.and_then(|status| status.outcome) {
                facts.push(Fact::ApprovalDecided { path: record.path.clone(), outcome: Box::new(outcome) });
            }
        }
        Ok(facts)
    }

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

    /// Counts the votes of an Approval. A vote that costs too much is invalid.
    async fn tally(&self, approval: &Approval, now: &Now) -> Result<TallyResult, Error> {
        let mut costly = BTreeMap::new();
        loop {
            let (object, at, filter) = (approval.clone(), now.clone(), VoteFilter::AllBut(costly.clone()));
            let counted = self.evaluate(move || tally_filtered(&object, OwnerState::Live, &at, &filter)).await;
            let Err(Error::Evaluation { id, why }) = counted else { return counted };
            match why.part() {
                Some(Part::Vote(key)) if !costly.contains_key(key) => {
                    costly.insert(key.clone(), format!("{why}; give a shorter or simpler answer"));
                }
                _ => return Err(Error::Evaluation { id, why }),
            }
        }
    }

    /// Evaluates text of the Workflow, or of answers, until the run is asked to pause.
    async fn evaluate<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        let id = || self.session.id.clone();
        let metadata = &self.session.workflow.metadata;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let subject = Subject {
            kind: "Workflow".to_owned(),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            uid: text(&metadata.uid),
            generation: metadata.generation.unwrap_or_default(),
        };
        tokio::select! {
            biased;
            result = self.local.evaluator.run(subject, work) => result.map_err(|why| Error::Evaluation { id: id(), why }),
            () = self.local.stop.beyond(self.stops) => Err(Error::Interrupted { id: id() }),
        }
    }

    async fn fetch(&self, digest: &Digest) -> Result<String, Error> {
        let bytes = self.session.blobs().get(&self.session.owner(), digest.as_str(), None).await?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes.into()).ok());
        text.ok_or_else(|| Error::ValueGone { id: self.session.id.clone(), digest: digest.clone() })
    }

    /// Marks the calls that begin with this turn as begun by this process, so that the commit says so before they do.
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

    /// Large values go first: they are named by their content, so that one that is never referred to harms nobody.
    async fn commit(&mut self, transition: &Transition, held: bool, now: Moment) -> Result<(), Error> {
        let is_overdue = |name| {
            let status = self.session.approvals.get(name).and_then(|approval| approval.status.as_ref());
            status.is_some_and(|status| status.phase == ApprovalPhase::Overdue)
        };
        let overdue = transition.pending.iter().any(is_overdue);
        let mut next = status::after(&self.session.workflow, &self.plan, transition, overdue, now);
        if held && next.phase == WorkflowPhase::Suspended {
            // Nothing new may begin because the run is about to pause; nobody has suspended it.
            next.phase = if next.pending.is_empty() { WorkflowPhase::Running } else { WorkflowPhase::Waiting };
            next.message = None;
        }
        if self.session.workflow.status.as_ref() != Some(&next) {
            let (blobs, owner) = (self.session.blobs(), self.session.owner());
            for (digest, text) in transition.blobs.iter().cloned().chain(status::apart(transition)) {
                blobs.put(&owner, digest.as_str(), text.into()).await?;
            }
            self.session.commit(next)?;
        }
        self.journal = transition.journal.clone();
        self.calls_in_flight.committed(&self.journal);
        Ok(())
    }

    fn dispatch(&mut self, transition: &Transition, claims: Vec<Call>, now: Moment) -> Result<(), Error> {
        for call in claims {
            self.begin(call);
        }
        for ask in transition.asks() {
            let mut approval = Approval::for_gate(&self.session.workflow, &ask.name, ask.request.clone());
            approval.metadata.creation_timestamp = Some(Time(now.timestamp()));
            approval.metadata.generation = Some(1);
            self.session.put(approval.clone())?;
            self.local.handler.happened(&Event::Asks(&approval));
            self.gates_wake_at = earlier(self.gates_wake_at, Some(ask.request.deadline));
        }
        Ok(())
    }

    fn begin(&mut self, call: Call) {
        let owner = self.session.owner();
        let run = RunRef { namespace: owner.namespace, workflow: owner.workflow, uid: owner.uid };
        let (caller, clock) = (Arc::clone(&self.local.caller), Arc::clone(&self.local.clock));
        let (key, idempotent) = (call.key(), call.idempotent);
        let (path, attempt) = key.clone();
        let task = self.calls.spawn(async move {
            let result = calls::make(&*caller, &run, call).await;
            let fact = Fact::CallFinished { path: path.clone(), attempt, result, at: clock.now().into() };
            ((path, attempt), fact)
        });
        self.calls_in_flight.start(key, (task, idempotent));
    }

    fn report(&self, before: &Journal, transition: &Transition) {
        for record in transition.journal.records() {
            let was = before.get(&record.path, record.attempt).map(|old| old.phase);
            if was == Some(record.phase) {
                continue;
            }
            if record.phase == StepPhase::Started {
                self.local.handler.happened(&Event::Began(record));
            } else if record.phase.is_end() {
                self.local.handler.happened(&Event::StepEnded(record));
            }
            let decided = record.object.as_ref().filter(|_| record.phase.is_end() && was == Some(StepPhase::Waiting));
            if let Some(approval) = decided.and_then(|name| self.session.approvals.get(name)) {
                self.local.handler.resumed(approval);
            }
        }
    }

    fn tell(&self, approval: &Approval, notes: &[signoff_engine::approval::ApprovalEvent]) {
        for note in notes {
            self.local.handler.happened(&Event::Said(approval, note));
        }
    }

    /// The run is over: nobody needs to decide anything any more.
    fn call_off(&mut self, now: &Now) -> Result<(), Error> {
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

    /// Returns the question to the handler about a pending Approval.
    pub(super) async fn question(&self, name: &str, refused: Option<String>) -> Result<Option<GateQuestion>, Error> {
        let Some(approval) = self.session.approvals.get(name).cloned() else { return Ok(None) };
        let context = match &approval.spec.request.context_ref {
            Some(reference) => Some(self.fetch(&reference.digest).await?),
            None => None,
        };
        let review = approval.spec.request.reviews.as_ref();
        let cut = review.filter(|review| Digest::of_bytes(review.response.as_bytes()) != review.digest);
        let reviewed = match cut {
            // What a person made of an earlier response has no file of its own.
            Some(review) => self.fetch(&review.digest).await.ok(),
            None => None,
        };
        Ok(Some(GateQuestion { approval, context, reviewed, refused }))
    }

    /// Whether anything is under way whose outcome would be unknown if it were given up.
    pub(super) fn unrepeatable(&self) -> usize {
        self.calls_in_flight.handles().filter(|(_, idempotent)| !idempotent).count()
    }

    /// The pending Approvals that the handler did not decline.
    pub(super) fn undeclined(transition: &Transition, declined: &BTreeSet<String>) -> Option<String> {
        transition.pending.iter().find(|name| !declined.contains(*name)).cloned()
    }
}

pub(super) fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
