//! One run in this process: its transitions, the decisions of users, and the questions to the handler.
//!
//! A transition is written before its commands run, and nothing is polled.

mod transition;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use signoff_api::{
    Approval, Decision, Digest, Moment,
    announce::{About, Announcement, Listener, announce},
    approval::Edit,
    occurrence::Occurrence,
};
use signoff_engine::{
    Blobs, End, Fact, Journal, Now, Plan, Transition,
    approval::{ApprovalEvent, OwnerState, TallyResult, VoteFilter, tally_filtered},
    driver::{CallKey, CallsInFlight},
    evaluation::Part,
    gate::parameters,
};
use signoff_executor::{BlobStore as _, Caller, Subject};
use tokio::task::{AbortHandle, JoinSet};

use super::{
    Local, admission,
    error::Error,
    handler::{Event, GateListener, GateQuestion},
    session::{Session, Snapshot},
    wait,
};

pub(super) use transition::earlier_of;

/// The guard's epoch of runs without a guard.
pub(super) const EPOCH: &str = "local";

/// The outcome of driving a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The run has ended.
    Over(End),
    /// The run waits for people, or was asked to pause. Any process can resume it.
    Paused,
}

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// The gate is decided.
    Decided,
    /// The gate needs more decisions.
    Needs {
        /// The number of recorded approvals.
        have: i32,
        /// The number of required approvals.
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

/// A run whose session this process has locked.
pub struct Run {
    pub(super) local: Local,
    caller: Arc<dyn Caller>,
    pub(super) session: Session,
    plan: Arc<Plan>,
    /// The journal of the session's status.
    journal: Journal,
    /// The fetched large values.
    values: Arc<Blobs>,
    pub(super) calls: JoinSet<(CallKey, Fact)>,
    /// The calls in flight, and whether each may be repeated.
    pub(super) calls_in_flight: CallsInFlight<(AbortHandle, bool)>,
    /// The time at which a gate acts without a decision.
    pub(super) gates_wake_at: Option<Moment>,
    /// The end of the run, once it has ended.
    pub(super) end: Option<End>,
    incarnation: String,
    /// The number of requests to pause before the current operation.
    pub(super) stops: u8,
}

impl Run {
    pub(super) fn new(local: Local, caller: Arc<dyn Caller>, session: Session, plan: Plan, journal: Journal) -> Self {
        let incarnation = format!("local-{}-{}", std::process::id(), super::session::random_suffix(8));
        Self {
            local,
            caller,
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

    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.session.id
    }

    /// Returns the warnings about the Workflow: valid parts that may not be intended.
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

    /// Returns the Approvals that wait for people, in the order in which they asked.
    #[must_use]
    pub fn pending(&self) -> Vec<&Approval> {
        let names = self.session.workflow.status.iter().flat_map(|status| &status.pending);
        names.filter_map(|name| self.session.approvals.get(name)).collect()
    }

    /// Records a user's decision about a pending Approval: it is checked and counted as on a cluster, and stored.
    /// [`Run::go`] continues the run.
    ///
    /// # Errors
    /// [`DecisionError::Because`] if the decision does not count. The gate is unchanged, and can be answered again.
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
            let stored = Approval { status: Some(result.status), ..before.clone() };
            self.session.put(stored.clone())?;
            self.announce_tally(&stored, &result.events);
        }
        let mut next = self.session.approvals.get(name).cloned().unwrap_or(before);
        let mut decision = parameters::as_sent(&next.spec.request, decision);
        decision.groups = admission::all_groups(&next.spec.request);
        decision.request_digest = Some(next.spec.request.digest.to_string());
        admission::admit(&next, user, &decision, now.at).map_err(DecisionError::Because)?;
        next.spec.decisions.insert(user.to_owned(), decision);
        next.metadata.generation = next.metadata.generation.map(|generation| generation + 1);
        let result = self.tally(&next, &now).await?;
        if let Some(invalid) = result.status.invalid.get(user) {
            return Err(DecisionError::Because(invalid.why.clone()));
        }
        let tally = result.status.tally.unwrap_or_default();
        let outcome = match &result.status.outcome {
            Some(_) => DecisionOutcome::Decided,
            None => DecisionOutcome::Needs { have: tally.have, needed: next.spec.request.threshold() },
        };
        next.status = Some(result.status);
        self.session.put(next.clone())?;
        self.announce_tally(&next, &result.events);
        if outcome != DecisionOutcome::Decided {
            self.local.handler.happened(&Event::VoteCounted { approval: &next, user });
        }
        Ok(outcome)
    }

    /// Continues until the run has ended, or only decisions are left that the handler does not give.
    ///
    /// # Errors
    /// The session cannot be written or is damaged. Completed work is in the session as far as it was written.
    pub async fn go(&mut self) -> Result<RunOutcome, Error> {
        wait::drive(self).await
    }

    pub(super) fn now(&self) -> Now {
        Now::new(self.local.clock.now().into(), EPOCH.to_owned())
    }

    /// Counts the votes of an Approval. A vote whose evaluation is too costly is invalid, and the other votes are
    /// counted again.
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
            () = self.local.stop.wait_beyond(self.stops) => Err(Error::Interrupted { id: id() }),
        }
    }

    /// Fetches a large value of the run as text.
    async fn fetch(&self, digest: &Digest) -> Result<String, Error> {
        let bytes = self.session.blobs().get(&self.session.owner(), digest.as_str(), None).await?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes.into()).ok());
        text.ok_or_else(|| Error::ValueGone { id: self.session.id.clone(), digest: digest.clone() })
    }

    /// Announces the result of a stored tally.
    fn announce_tally(&self, approval: &Approval, notes: &[ApprovalEvent]) {
        for note in notes {
            let event = note.gate.and_then(|event| Occurrence::stored(event, approval));
            self.announce(approval, |gate| gate.gate(event).sentence(note.reason, &note.message, &note.key));
        }
    }

    /// Announces an event of a gate.
    ///
    /// `say`: completes the announcement about `approval`.
    fn announce<'a>(&self, approval: &'a Approval, say: impl FnOnce(Announcement<'a>) -> Announcement<'a>) {
        let listener = GateListener { handler: &*self.local.handler, approval };
        announce([&listener as &dyn Listener], &say(Announcement::about(About::Approval(&approval.metadata))));
    }

    /// Returns the question to the handler about a pending Approval, with its whole texts, or `None` if the Approval
    /// does not exist. `refused`: the reason why the handler's last answer did not count.
    pub(super) async fn build_question(
        &self,
        name: &str,
        refused: Option<String>,
    ) -> Result<Option<GateQuestion>, Error> {
        let Some(approval) = self.session.approvals.get(name).cloned() else { return Ok(None) };
        let context = match &approval.spec.request.context_ref {
            Some(reference) => Some(self.fetch(&reference.digest).await?),
            None => None,
        };
        let review = approval.spec.request.reviews.as_ref();
        let cut = review.filter(|review| Digest::of_bytes(review.response.as_bytes()) != review.digest);
        let reviewed = match cut {
            // The edit of an earlier response has no file of its own.
            Some(review) => self.fetch(&review.digest).await.ok(),
            None => None,
        };
        let sent = match approval.spec.request.sends.as_ref().and_then(|sent| sent.ref_.as_ref()) {
            Some(reference) => Some(self.fetch(&reference.digest).await?),
            None => None,
        };
        let mut originals = Vec::new();
        for edit in review.iter().flat_map(|review| &review.by) {
            originals.push(self.fetch_original(edit).await);
        }
        Ok(Some(GateQuestion { approval, context, reviewed, sent, originals, refused }))
    }

    /// Returns the text before an edit, from the request of the gate at which people made the edit.
    async fn fetch_original(&self, edit: &Edit) -> Result<String, String> {
        let requests = self.session.approvals.values().map(|approval| &approval.spec.request);
        let mut of_gate = requests.filter(|request| request.gate.path == edit.path);
        match of_gate.find_map(|request| request.shown_text(&edit.original)) {
            Some(Some(text)) => Ok(text.to_owned()),
            Some(None) => self.fetch(&edit.original).await.map_err(|error| error.to_string()),
            None => Err("no request of the session shows the text before this change".to_owned()),
        }
    }

    /// Returns the number of calls in flight whose outcome would be unknown if they were stopped.
    pub(super) fn count_unrepeatable(&self) -> usize {
        self.calls_in_flight.handles().filter(|(_, idempotent)| !idempotent).count()
    }

    /// Returns a pending Approval that the handler did not decline.
    pub(super) fn next_undeclined(transition: &Transition, declined: &BTreeSet<String>) -> Option<String> {
        transition.pending.iter().find(|name| !declined.contains(*name)).cloned()
    }
}
