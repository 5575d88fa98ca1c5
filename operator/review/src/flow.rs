//! The stages of a decision, for the plugin and the page: read *(I/O)* -> verified *(pure)* -> shown *(pure)* ->
//! proposed *(pure)* -> rehearsed *(I/O)* -> confirmed *(pure)* -> recorded *(I/O)* -> waited for
//! ([`crate::state::Waited`]).
//!
//! Each stage is a type that only the stage before it can make, and the entry that is sent is the one that was
//! rehearsed. **Invariant:** a decision is recorded only on a verified request, and only after it was rehearsed and
//! confirmed.

use signoff_api::{Approval, ApprovalStatus, Code, Digest, Moment, Verdict, approval::ARGUMENTS};
use signoff_engine::{approval::eligibility::closed, gate::parameters};

use crate::{
    action::call,
    entry::{self, Entry},
    foreseen::{self, Counter, Reached},
    reading::Verified,
    refusal::{self, Refusal},
    seen::{RunNow, Seen},
    voter::Me,
};

/// The API server, as one person uses it for one Approval.
pub trait Server: Sync {
    /// The error of a request.
    type Error: Send;

    /// Sends an entry, and returns the Approval with it. `dry_run`: the entry is only checked, and not stored.
    fn send(&self, seen: &Seen, entry: &Entry, dry_run: bool)
    -> impl Future<Output = Result<Seen, Self::Error>> + Send;

    /// Reads the Approval again.
    fn read(&self) -> impl Future<Output = Result<Seen, Self::Error>> + Send;

    /// Returns the meaning of an error for a decision.
    fn meaning(error: &Self::Error) -> Meaning;
}

/// The meaning of a failed request for the decision that it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The decision is refused.
    Refused,
    /// There was no answer, so the decision may be stored or not.
    Unanswered,
    /// The decision was not sent, or is not stored.
    NotStored,
}

/// A refusal by the API server.
#[derive(Debug)]
pub struct Refused<E> {
    /// The refusal in words about the gate, if they say more than the message of the policy.
    pub refusal: Option<Refusal>,
    /// The Approval as it was read after the refusal, otherwise as it was shown.
    pub seen: Box<Seen>,
    /// The answer of the API server.
    pub error: E,
}

/// The reason why a decision is not proposed.
#[derive(Debug, thiserror::Error)]
pub enum NotProposed {
    /// The decision was typed for a request with another digest.
    #[error("this request is not the one that you read: it has changed. Read it again")]
    OtherRequest,
    /// A Modify of a call changes nothing, and its voter could not approve the call afterwards.
    #[error("nothing was changed: these are the proposed arguments; to let the call go on with them, approve instead")]
    NothingChanged,
}

impl NotProposed {
    /// Returns the code, with which the documentation has the remedy.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::OtherRequest => Code::OTHER_REQUEST,
            Self::NothingChanged => Code::PAYLOAD,
        }
    }
}

/// The reason why a proposed decision is not recorded.
#[derive(Debug)]
pub enum NotRehearsed<E> {
    /// The API server would refuse the decision. The second value is the reason why the operator could not use it
    /// either, if there is one.
    Refused(Refused<E>, Option<Unusable>),
    /// The operator could not use the decision.
    Unusable(Unusable),
    /// Something else would be stored than what was sent; a sentence for each field.
    Tampered(Vec<String>),
    /// The decision could not be tried.
    Failed(E),
}

/// The reason why the operator could not use a decision. Such a decision would only cost one of the few attempts.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The payload does not fit.
    #[error("{0}")]
    Invalid(String),
    /// The decision cannot be counted.
    #[error(transparent)]
    Uncountable(foreseen::CountError),
}

impl Unusable {
    /// Returns the code of a payload that does not fit; `None` if the decision costs too much to be counted.
    #[must_use]
    pub fn code(&self, verdict: Verdict) -> Option<Code> {
        match self {
            Self::Invalid(_) => Some(Code::of_payload(verdict)),
            Self::Uncountable(_) => None,
        }
    }
}

/// The reason why a decision is not recorded as it was confirmed.
#[derive(Debug)]
pub enum NotRecorded<E> {
    /// The API server refused the decision.
    Refused(Refused<E>),
    /// There was no answer, and no stored decision was found afterwards.
    Unknown(E),
    /// Something else is stored than what was sent; a sentence for each field.
    Tampered(Vec<String>),
    /// The decision is not stored.
    Failed(E),
}

/// A verified request that the voter has read.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'r>(Verified<'r>);

/// An entry for a verified request.
#[derive(Clone, Debug)]
pub struct Proposed {
    seen: Seen,
    run: RunNow,
    me: Me,
    entry: Entry,
}

/// A decision that the API server has accepted on trial, and its foreseen effect.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    proposed: Proposed,
    reached: Reached,
}

/// A rehearsed decision that the voter has confirmed.
#[derive(Clone, Debug)]
pub struct Confirmed(Proposed);

/// A decision that is stored exactly as it was sent.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The Approval with the decision.
    pub approval: Approval,
    /// The decision.
    pub entry: Entry,
}

impl<'r> Verified<'r> {
    /// Returns the request as one that the voter has read. `digest`: the digest of the request that was shown.
    ///
    /// # Errors
    /// Another request was shown.
    pub fn shown(self, digest: &str) -> Result<Shown<'r>, NotProposed> {
        let is_same = digest == self.seen().approval.spec.request.digest.as_str();
        if is_same { Ok(Shown(self)) } else { Err(NotProposed::OtherRequest) }
    }
}

impl Shown<'_> {
    /// Returns an entry as the decision of a user on this request.
    ///
    /// # Errors
    /// The decision changes nothing.
    pub fn propose(self, entry: Entry, me: &Me, now: Moment) -> Result<Proposed, NotProposed> {
        let (seen, run) = (self.0.seen(), self.0.run());
        // At a closed gate the refusal of the API server says more.
        if closed(&seen.approval, now).is_none() && changes_nothing(&seen.approval, &entry) {
            return Err(NotProposed::NothingChanged);
        }
        Ok(Proposed { seen: seen.clone(), run: run.clone(), me: me.clone(), entry })
    }
}

/// Whether an entry is a Modify of a call that leaves its arguments as they are.
fn changes_nothing(approval: &Approval, entry: &Entry) -> bool {
    let request = &approval.spec.request;
    let Some(review) = request.reviews.as_ref().filter(|_| call(request).is_some()) else { return false };
    let parameters = entry.decision.parameters.as_ref().map(parameters::as_object);
    let arguments = parameters.as_ref().and_then(|parameters| parameters.0.get(ARGUMENTS));
    let is_same = arguments.and_then(|arguments| Digest::of(arguments).ok()).is_some_and(|own| own == review.digest);
    entry.decision.verdict == Verdict::Modify && is_same
}

impl Proposed {
    /// Returns the entry.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns the request.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Returns the state of the request's run.
    #[must_use]
    pub fn run(&self) -> &RunNow {
        &self.run
    }

    /// Returns the status that the operator would write if this decision were recorded.
    ///
    /// # Errors
    /// The operator could not use the decision.
    pub async fn count(&self, counter: &Counter, now: Moment) -> Result<ApprovalStatus, Unusable> {
        let with_entry = foreseen::with(&self.seen.approval, &self.entry);
        let counted = counter.count(&with_entry, now).await.map_err(Unusable::Uncountable)?;
        foreseen::unusable(&counted, &self.entry).map_or(Ok(counted), |why| Err(Unusable::Invalid(why)))
    }

    /// Sends the entry to the API server as a trial, which checks it and stores nothing.
    ///
    /// # Errors
    /// The decision would be refused, the operator could not use it, something else would be stored, or it could not be
    /// tried.
    pub async fn rehearse<S: Server>(
        self,
        server: &S,
        counter: &Counter,
        now: Moment,
    ) -> Result<Rehearsed, NotRehearsed<S::Error>> {
        let counted = self.count(counter, now).await;
        // A refusal of the API server takes precedence over the foreseen count.
        let stored = match server.send(&self.seen, &self.entry, true).await {
            Ok(stored) => stored,
            Err(error) if S::meaning(&error) == Meaning::Refused => {
                return Err(NotRehearsed::Refused(self.explain_refusal(server, error, now).await, counted.err()));
            }
            Err(error) => return Err(NotRehearsed::Failed(error)),
        };
        let differences = stored_differences(&self, &stored);
        if !differences.is_empty() {
            return Err(NotRehearsed::Tampered(differences));
        }
        let counted = counted.map_err(NotRehearsed::Unusable)?;
        let with_entry = foreseen::with(&self.seen.approval, &self.entry);
        let reached = foreseen::reached(&with_entry, Some(&counted), &self.entry);
        Ok(Rehearsed { proposed: self, reached })
    }

    /// Returns a refusal in words about the gate. The Approval is read again, because it may have changed.
    async fn explain_refusal<S: Server>(&self, server: &S, error: S::Error, now: Moment) -> Refused<S::Error> {
        let seen = Box::new(server.read().await.unwrap_or_else(|_| self.seen.clone()));
        Refused { refusal: refusal::explain(&seen, &self.me, &self.entry.decision, now), seen, error }
    }
}

impl Rehearsed {
    /// Returns the entry.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        &self.proposed.entry
    }

    /// Returns the request.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        &self.proposed.seen
    }

    /// Returns the state of the request's run.
    #[must_use]
    pub fn run(&self) -> &RunNow {
        &self.proposed.run
    }

    /// Returns the foreseen effect of the decision.
    #[must_use]
    pub fn reached(&self) -> &Reached {
        &self.reached
    }

    /// Returns the name of the decision, by which the voter confirms exactly this decision.
    #[must_use]
    pub fn name(&self) -> String {
        entry_name(&self.proposed.entry)
    }

    /// Returns the decision as confirmed. The caller has asked the voter about exactly this decision, or an option of
    /// the command confirms it.
    #[must_use]
    pub fn confirm(self) -> Confirmed {
        Confirmed(self.proposed)
    }

    /// Returns the decision as confirmed, if the voter confirmed the decision of this name ([`Rehearsed::name`]).
    ///
    /// # Errors
    /// Another decision was confirmed, or none.
    pub fn confirm_named(self, named: Option<&str>) -> Result<Confirmed, Box<Self>> {
        if named == Some(self.name().as_str()) { Ok(self.confirm()) } else { Err(Box::new(self)) }
    }
}

impl Confirmed {
    /// Records the decision, and compares the stored entry with the sent entry. Without an answer, the Approval is read
    /// again.
    ///
    /// # Errors
    /// The decision is refused, it may be stored or not, or something else is stored.
    pub async fn record<S: Server>(self, server: &S, now: Moment) -> Result<Recorded, NotRecorded<S::Error>> {
        let Self(proposed) = self;
        let stored = match server.send(&proposed.seen, &proposed.entry, false).await {
            Ok(stored) => stored,
            Err(error) => match S::meaning(&error) {
                Meaning::Refused => {
                    return Err(NotRecorded::Refused(proposed.explain_refusal(server, error, now).await));
                }
                Meaning::NotStored => return Err(NotRecorded::Failed(error)),
                Meaning::Unanswered => match server.read().await {
                    Ok(seen) if is_new(&seen, &proposed) => seen,
                    _ => return Err(NotRecorded::Unknown(error)),
                },
            },
        };
        let differences = stored_differences(&proposed, &stored);
        if !differences.is_empty() {
            return Err(NotRecorded::Tampered(differences));
        }
        Ok(Recorded { approval: stored.approval, entry: proposed.entry })
    }
}

/// Whether a decision of the voter was recorded after `proposed` was made. An earlier, invalid decision of the same
/// voter does not count.
fn is_new(seen: &Seen, proposed: &Proposed) -> bool {
    let key = &proposed.entry.key;
    seen.stored(key).is_some_and(|stored| Some(stored) != proposed.seen.stored(key))
}

fn stored_differences(proposed: &Proposed, stored: &Seen) -> Vec<String> {
    entry::differences(&proposed.entry, stored.stored(&proposed.entry.key), &proposed.me)
}

/// Returns the name of an entry: the digest of its key and its decision, or an empty text if it has no digest.
fn entry_name(entry: &Entry) -> String {
    let named = serde_json::json!({"key": entry.key, "decision": entry.decision});
    Digest::of(&named).map(|name| name.to_string()).unwrap_or_default()
}

#[cfg(test)]
#[path = "flow/tests.rs"]
mod tests;
