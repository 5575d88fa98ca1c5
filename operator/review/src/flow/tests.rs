//! The stages of a decision: the requests to the API server, and the result of each answer.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::sync::Mutex;

use serde_json::json;
use signoff_api::{Decision, Outcome, approval::ApprovalPhase};

use super::*;
use crate::{
    reading::{Texts, verify},
    sample,
};

/// The answer of an API server to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    Refused,
    /// The entry is stored, and the answer is lost.
    Lost,
    /// The entry is not stored, and there is no answer.
    Away,
    /// Something else is stored.
    Changed,
}

#[derive(Debug, PartialEq, Eq)]
enum Error {
    Refused,
    Away,
}

/// An API server with fixed answers to a trial and to a record, which remembers the requests.
struct Fake {
    seen: Mutex<Seen>,
    rehearsal: Answer,
    record: Answer,
    requests: Mutex<Vec<&'static str>>,
}

impl Fake {
    fn new(seen: &Seen, rehearsal: Answer, record: Answer) -> Self {
        Self { seen: Mutex::new(seen.clone()), rehearsal, record, requests: Mutex::default() }
    }

    fn requests(&self) -> Vec<&'static str> {
        self.requests.lock().unwrap().clone()
    }
}

impl Server for Fake {
    type Error = Error;

    async fn send(&self, seen: &Seen, entry: &Entry, dry_run: bool) -> Result<Seen, Error> {
        self.requests.lock().unwrap().push(if dry_run { "rehearsal" } else { "record" });
        let answer = if dry_run { self.rehearsal } else { self.record };
        let mut approval = foreseen::with(&seen.approval, entry);
        if answer == Answer::Changed {
            approval.spec.decisions.get_mut(&entry.key).unwrap().verdict = Verdict::Abort;
        }
        let stored = seen_of(&approval);
        if !dry_run && !matches!(answer, Answer::Refused | Answer::Away) {
            *self.seen.lock().unwrap() = stored.clone();
        }
        match answer {
            Answer::Accepted | Answer::Changed => Ok(stored),
            Answer::Refused => Err(Error::Refused),
            Answer::Lost | Answer::Away => Err(Error::Away),
        }
    }

    async fn read(&self) -> Result<Seen, Error> {
        self.requests.lock().unwrap().push("read");
        Ok(self.seen.lock().unwrap().clone())
    }

    fn meaning(error: &Error) -> Meaning {
        match error {
            Error::Refused => Meaning::Refused,
            Error::Away => Meaning::Unanswered,
        }
    }
}

fn seen_of(approval: &Approval) -> Seen {
    Seen::of_value(serde_json::to_value(approval).unwrap()).unwrap()
}

fn proposed_by(seen: &Seen, decision: Decision) -> Result<Proposed, NotProposed> {
    let (me, run) = (sample::me("alice@example.com", &[]), sample::run());
    let entry = Entry::new(decision, None, &seen.approval, &me).unwrap();
    let verified = verify(seen, &run, Texts::OfRequest).unwrap();
    let digest = seen.approval.spec.request.digest.to_string();
    verified.shown(&digest).unwrap().propose(entry, &me, sample::now())
}

fn approve(seen: &Seen) -> Proposed {
    proposed_by(seen, Decision::new(Verdict::Approve)).unwrap()
}

/// Returns a Modify with parameters that no gate takes.
fn unusable(seen: &Seen) -> Proposed {
    let parameters = serde_json::from_value(json!({"respnse": "better"})).ok();
    proposed_by(seen, Decision { parameters, ..Decision::new(Verdict::Modify) }).unwrap()
}

async fn rehearse(fake: &Fake, proposed: Proposed) -> Result<Rehearsed, NotRehearsed<Error>> {
    proposed.rehearse(fake, &Counter::start(1).unwrap(), sample::now()).await
}

#[tokio::test]
async fn a_decision_is_rehearsed_before_it_is_confirmed_and_recorded_once() {
    let seen = seen_of(&sample::approval());
    let fake = Fake::new(&seen, Answer::Accepted, Answer::Accepted);
    let rehearsed = rehearse(&fake, approve(&seen)).await.unwrap();
    assert_eq!((rehearsed.reached(), fake.requests()), (&Reached::Decided, vec!["rehearsal"]), "nothing is stored");
    let recorded = rehearsed.confirm().record(&fake, sample::now()).await.unwrap();
    assert_eq!(fake.requests(), ["rehearsal", "record"]);
    assert_eq!(recorded.approval.spec.decisions["alice@example.com"], recorded.entry.decision);
}

#[tokio::test]
async fn a_refused_rehearsal_is_explained_by_the_current_gate() {
    let seen = seen_of(&sample::approval());
    let fake = Fake::new(&seen, Answer::Refused, Answer::Accepted);
    let Err(NotRehearsed::Refused(refused, None)) = rehearse(&fake, approve(&seen)).await else { panic!("refused") };
    assert_eq!((refused.refusal, refused.error), (None, Error::Refused), "the policy says it best");
    let mut closed = sample::approval();
    let outcome = Outcome { phase: ApprovalPhase::Cancelled, ..Outcome::default() };
    closed.status.get_or_insert_default().outcome = Some(outcome);
    *fake.seen.lock().unwrap() = seen_of(&closed);
    let Err(NotRehearsed::Refused(refused, None)) = rehearse(&fake, approve(&seen)).await else { panic!("refused") };
    assert_eq!(refused.refusal.unwrap().to_string(), "too late: this gate was cancelled");
    assert_eq!(fake.requests(), ["rehearsal", "read", "rehearsal", "read"], "nothing is recorded");
}

#[tokio::test]
async fn an_unusable_decision_is_not_recorded_and_a_refusal_takes_precedence() {
    let seen = seen_of(&sample::approval());
    let fake = Fake::new(&seen, Answer::Accepted, Answer::Accepted);
    let Err(NotRehearsed::Unusable(why)) = rehearse(&fake, unusable(&seen)).await else { panic!("unusable") };
    assert!(why.to_string().contains("response"), "{why}");
    assert_eq!(why.code(Verdict::Modify).map(|code| code.to_string()).as_deref(), Some("SO0018"));
    assert_eq!(why.code(Verdict::Respond).map(|code| code.to_string()).as_deref(), Some("SO0019"));
    let fake = Fake::new(&seen, Answer::Refused, Answer::Accepted);
    let Err(NotRehearsed::Refused(_, unusable)) = rehearse(&fake, unusable(&seen)).await else { panic!("refused") };
    assert!(unusable.unwrap().to_string().contains("response"));
}

#[tokio::test]
async fn only_the_decision_that_was_confirmed_is_recorded() {
    let seen = seen_of(&sample::approval());
    let fake = Fake::new(&seen, Answer::Accepted, Answer::Accepted);
    let rehearse_with = async |reason: Option<&str>| {
        let decision = Decision { reason: reason.map(str::to_owned), ..Decision::new(Verdict::Approve) };
        rehearse(&fake, proposed_by(&seen, decision).unwrap()).await.unwrap()
    };
    let (shown, other) = (rehearse_with(None).await, rehearse_with(Some("late")).await);
    let name = shown.name();
    assert!(!name.is_empty() && name == rehearse_with(None).await.name() && name != other.name());
    let other = other.confirm_named(Some(&name)).unwrap_err();
    assert!(other.confirm_named(None).is_err());
    assert!(shown.confirm_named(Some(&name)).is_ok());
}

#[tokio::test]
async fn a_decision_without_an_answer_is_read_again_or_unknown() {
    let seen = seen_of(&sample::approval());
    for (record, is_known) in [(Answer::Lost, true), (Answer::Away, false)] {
        let fake = Fake::new(&seen, Answer::Accepted, record);
        let confirmed = rehearse(&fake, approve(&seen)).await.unwrap().confirm();
        let recorded = confirmed.record(&fake, sample::now()).await;
        assert_eq!(recorded.is_ok(), is_known, "{record:?}");
        assert!(is_known || matches!(recorded, Err(NotRecorded::Unknown(Error::Away))));
        assert_eq!(fake.requests(), ["rehearsal", "record", "read"], "it is not sent again");
    }
}

#[tokio::test]
async fn after_an_invalid_decision_a_lost_answer_is_not_taken_for_another_decision() {
    let mut approval = sample::approval();
    let before = Decision { reason: Some("first".to_owned()), ..Decision::new(Verdict::Approve) };
    approval.spec.decisions.insert("alice@example.com".to_owned(), before);
    let invalid = serde_json::from_value(json!({"attempt": 1, "why": "it does not fit"})).unwrap();
    approval.status.get_or_insert_default().invalid.insert("alice@example.com".to_owned(), invalid);
    let seen = seen_of(&approval);
    for (record, is_known) in [(Answer::Lost, true), (Answer::Away, false)] {
        let fake = Fake::new(&seen, Answer::Accepted, record);
        let confirmed = rehearse(&fake, approve(&seen)).await.unwrap().confirm();
        let recorded = confirmed.record(&fake, sample::now()).await;
        assert!(
            if is_known { recorded.is_ok() } else { matches!(recorded, Err(NotRecorded::Unknown(_))) },
            "{record:?}"
        );
    }
}

#[tokio::test]
async fn a_refused_or_changed_record_is_an_error() {
    let seen = seen_of(&sample::approval());
    let recorded = async |record| {
        let fake = Fake::new(&seen, Answer::Accepted, record);
        rehearse(&fake, approve(&seen)).await.unwrap().confirm().record(&fake, sample::now()).await
    };
    assert!(matches!(recorded(Answer::Refused).await, Err(NotRecorded::Refused(_))));
    let Err(NotRecorded::Tampered(differences)) = recorded(Answer::Changed).await else { panic!("tampered") };
    assert_eq!(differences, ["verdict: sent \"Approve\", stored \"Abort\""]);
    let fake = Fake::new(&seen, Answer::Changed, Answer::Accepted);
    let Err(NotRehearsed::Tampered(rehearsed)) = rehearse(&fake, approve(&seen)).await else { panic!("tampered") };
    assert_eq!((rehearsed, fake.requests()), (differences, vec!["rehearsal"]), "nothing is recorded");
}

#[test]
fn a_request_that_was_not_shown_is_not_decided() {
    let (seen, run) = (seen_of(&sample::approval()), sample::run());
    let verified = verify(&seen, &run, Texts::OfRequest).unwrap();
    let other = verified.shown(sample::call().spec.request.digest.as_str()).unwrap_err();
    assert_eq!(other.code().to_string(), "SO0015");
    assert!(verified.shown("").is_err());
    assert!(verified.shown(seen.approval.spec.request.digest.as_str()).is_ok());
}

#[test]
fn a_modify_of_a_call_that_changes_nothing_is_no_decision() {
    let seen = seen_of(&sample::call());
    let modify = |arguments: serde_json::Value| {
        let parameters = serde_json::from_value(json!({"arguments": arguments})).ok();
        proposed_by(&seen, Decision { parameters, ..Decision::new(Verdict::Modify) })
    };
    let same: serde_json::Value = serde_json::from_str(sample::ARGUMENTS).unwrap();
    let unchanged = modify(same).unwrap_err();
    assert!(matches!(unchanged, NotProposed::NothingChanged));
    assert_eq!(unchanged.code().to_string(), "SO0018");
    assert!(modify(json!({"amount": 42, "customer": "ACME"})).is_ok());
}
