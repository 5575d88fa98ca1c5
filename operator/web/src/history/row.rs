//! A row of the history: a few facts of an Approval that has ended.
//!
//! **Invariant:** only people whom the outcome names are deciders.

use signoff_api::{
    Approval, Moment, Verdict,
    approval::{ApprovalPhase, Source},
};
use signoff_expr::text::display;
use signoff_review::{meaning::retries_step, outcome::done, text::one_line};

/// The longest text, in characters: more than any text of an Approval has, even with each hidden character named.
const WHOLE: usize = 40_000;

/// A row of the history. Texts are already shown as in [`display`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// The uid of the Approval.
    pub uid: String,
    /// The namespace of the Approval.
    pub namespace: String,
    /// The name of the Approval.
    pub name: String,
    /// The name of the run's Workflow.
    pub workflow: String,
    /// The path of the gate.
    pub gate: String,
    /// The digest of the request.
    pub digest: String,
    /// The time of the decision, if the outcome has one.
    pub at: Option<Moment>,
    /// The verdict, or `None` if there is no decision.
    pub verdict: Option<Verdict>,
    /// Whether the gate asked about a step that failed, so that a Retry ran it again.
    pub is_of_failure: bool,
    /// The phase in which the Approval ended.
    pub phase: ApprovalPhase,
    /// The source of the outcome: people, a timeout, a grant or the operator.
    pub source: Source,
    /// The people who decided.
    pub deciders: Vec<Decider>,
    /// The reason of the outcome, or `None` if it is empty.
    pub reason: Option<String>,
}

/// A person whose vote led to an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decider {
    /// The user name of the person.
    pub name: String,
    /// The user who sent the vote on behalf of the person, if another user did.
    pub via: Option<String>,
    /// The channel, if the API server verified it.
    pub channel: Option<String>,
}

impl HistoryRow {
    /// Returns the row of an Approval, or `None` if it has no outcome.
    #[must_use]
    pub fn of(approval: &Approval) -> Option<Self> {
        let (request, meta) = (&approval.spec.request, &approval.metadata);
        let outcome = approval.status.as_ref()?.outcome.as_ref()?;
        Some(Self {
            uid: meta.uid.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            workflow: one_line(&request.workflow.name, WHOLE),
            gate: one_line(&request.gate.path, WHOLE),
            digest: one_line(&request.digest.to_string(), WHOLE),
            at: outcome.decided_at,
            verdict: outcome.verdict,
            is_of_failure: retries_step(request),
            phase: outcome.phase,
            source: outcome.source,
            deciders: outcome.decided_by.iter().map(|user| Decider::of(approval, user)).collect(),
            reason: outcome.reason.as_ref().map(|reason| display(reason, WHOLE)).filter(|reason| !reason.is_empty()),
        })
    }

    /// Returns the outcome in a word: `Approved`, or `Cancelled` if there is no decision.
    #[must_use]
    pub fn word(&self) -> String {
        let word = match self.verdict {
            Some(Verdict::Retry) if self.is_of_failure => "run again",
            verdict => verdict.map_or_else(|| self.phase.name(), done),
        };
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
    }

    /// Returns the shape that stands beside the word.
    #[must_use]
    pub fn shape(&self) -> &'static str {
        match self.verdict {
            Some(Verdict::Approve) => "yes",
            Some(Verdict::Reject | Verdict::Abort) => "no",
            Some(Verdict::Modify | Verdict::Respond) => "changed",
            Some(Verdict::Defer | Verdict::Escalate | Verdict::Retry) => "again",
            Some(Verdict::Skip) | None => "none",
        }
    }

    /// Returns the words for an outcome without a named decider, or `None`.
    #[must_use]
    pub fn how(&self) -> Option<&'static str> {
        match (self.source, self.phase) {
            (_, ApprovalPhase::Cancelled) => Some("no decision: the run ended"),
            (_, ApprovalPhase::Superseded) => {
                Some("no decision: the votes could not be verified any more, so the gate asked again")
            }
            (Source::Human, _) => self.deciders.is_empty().then_some("people who are not named"),
            (Source::Timeout, _) => Some("no decision: the deadline passed"),
            (Source::Grant, _) => Some("a grant of an earlier approval"),
            (Source::Policy, _) => Some("the operator"),
        }
    }
}

impl Decider {
    /// Returns a decider of an outcome. Only a vote that was counted under the guard epoch in force has a channel.
    fn of(approval: &Approval, user: &str) -> Self {
        let status = approval.status.as_ref();
        let is_void = status.is_some_and(|status| status.phase == ApprovalPhase::Superseded);
        let votes = status.map(|status| status.votes.as_slice()).unwrap_or_default();
        let vote = votes.iter().find(|vote| vote.user == user && vote.epoch == approval.guard_epoch() && !is_void);
        let via = vote.and_then(|vote| vote.key.strip_prefix(user)?.strip_prefix(" via "));
        Self {
            name: one_line(user, WHOLE),
            via: via.map(|via| one_line(via, WHOLE)),
            channel: vote.and_then(|vote| vote.channel.as_ref()).map(|channel| one_line(channel, WHOLE)),
        }
    }
}

/// Sorts rows: the newest first, and rows without a time last.
pub fn sort(rows: &mut [HistoryRow]) {
    rows.sort_by(|a, b| b.at.cmp(&a.at).then_with(|| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name))));
}
