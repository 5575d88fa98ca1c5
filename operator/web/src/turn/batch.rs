//! One verdict on several calls of a turn: an entry for each, tried and sent one by one.
//!
//! **Invariant:** an entry is sent only if it has the name under which it was confirmed.

use std::collections::BTreeMap;

use futures::future::join_all;
use signoff_api::{Approval, Verdict, names};
use signoff_review::{
    action::{arguments_line, turn_of},
    entry::Entry,
    flow::Rehearsed,
    outcome,
    seen::RunNow,
    state::{DecisionState, is_as_voted},
};

use crate::{
    approval::{
        model,
        read::{self, Read},
        send::{NotSent, Sender, propose},
        typed::{Problems, Typed},
    },
    error::PageError,
    session::Caller,
    state::PageState,
};

/// The verdicts that can be given on several calls at once: those that need nothing of the call itself.
pub const VERDICTS: [Verdict; 5] = [Verdict::Approve, Verdict::Reject, Verdict::Defer, Verdict::Skip, Verdict::Abort];

/// The longest beginning of arguments, in characters. The page of the turn has the whole.
const LONGEST_ARGUMENTS: usize = 200;

/// The most calls of a turn.
const MOST: usize = 32;

/// Several calls of a turn and one verdict on them.
pub struct Batch<'a> {
    caller: &'a Caller,
    /// The namespace.
    pub namespace: &'a str,
    /// The value of the label of the turn.
    pub turn: &'a str,
    /// The verdict.
    pub verdict: Verdict,
    /// The chosen calls, in the order of the page.
    pub calls: Vec<Chosen>,
}

/// A chosen call.
pub struct Chosen {
    /// The name of its Approval.
    pub name: String,
    /// The digest of the request that was shown.
    pub digest: String,
    /// Its number in the turn, its tool and target; of an Approval that is not there its name.
    pub target: String,
    /// The beginning of the arguments.
    pub arguments: Option<String>,
    /// The decision, or the reason why it is not sent.
    pub planned: Result<Planned, String>,
}

/// A decision that the API server accepted on trial.
pub struct Planned {
    read: Read,
    rehearsed: Rehearsed,
    /// What it would come to.
    pub comes_to: String,
}

impl Planned {
    /// Returns the name of the entry: what is sent has the same name as what was confirmed.
    pub fn fingerprint(&self) -> String {
        self.rehearsed.name()
    }
}

/// The outcome of one call.
pub struct CallOutcome {
    /// Whether the decision was recorded.
    pub is_recorded: bool,
    /// What became of it.
    pub line: String,
}

impl<'a> Batch<'a> {
    /// Makes an entry for each chosen call and tries it at the API server. The inner error is what was typed wrong.
    ///
    /// # Errors
    /// As every request, except that one call is refused or is not there.
    pub async fn prepare(
        state: &PageState,
        caller: &'a Caller,
        namespace: &'a str,
        turn: &'a str,
        typed: &Typed,
    ) -> Result<Result<Self, Problems>, PageError> {
        let wrong = |why: &str| Ok(Err(Problems::of_form(why)));
        let Some(verdict) = typed.verdict().filter(|verdict| VERDICTS.contains(verdict)) else {
            return wrong("no verdict was chosen: use one of the buttons");
        };
        let mut chosen: Vec<(&str, &str)> = Vec::new();
        for (name, digest) in typed.all("call").filter_map(|call| call.split_once(' ')) {
            if names::is_object(name) && chosen.iter().all(|(other, _)| *other != name) {
                chosen.push((name, digest));
            }
        }
        if chosen.is_empty() {
            return wrong("no call was chosen: choose at least one");
        }
        if chosen.len() > MOST {
            return wrong("a turn has at most 32 calls: choose fewer");
        }
        let planned = chosen.into_iter().map(async |(name, digest)| {
            let call = Call { state, caller, namespace, turn, name, digest };
            call.planned(typed).await
        });
        let mut calls = Vec::new();
        let mut problems = Problems::default();
        for planned in join_all(planned).await {
            let (call, found) = planned?;
            problems.0.extend(found.0);
            calls.push(call);
        }
        if !problems.0.is_empty() {
            return Ok(Err(problems));
        }
        if calls.iter().all(|call| call.planned.is_err()) {
            let why = |call: &Chosen| Some(format!("{}: {}", call.target, call.planned.as_ref().err()?));
            return wrong(&calls.iter().filter_map(why).collect::<Vec<_>>().join("\n"));
        }
        Ok(Ok(Self { caller, namespace, turn, verdict, calls }))
    }

    /// Sends the confirmed entries, all at once, and returns the outcome of each call.
    pub async fn send(&self, typed: &Typed) -> Vec<CallOutcome> {
        let confirmed: BTreeMap<&str, &str> =
            typed.all("confirmed").filter_map(|confirmed| confirmed.split_once(' ')).collect();
        let sent = self.calls.iter().map(async |call| {
            let not_sent = |why: String| CallOutcome { is_recorded: false, line: format!("Not sent: {why}") };
            let planned = match &call.planned {
                Ok(planned) => planned,
                Err(why) => return not_sent(why.clone()),
            };
            let named = confirmed.get(call.name.as_str()).copied();
            let Ok(confirmed) = planned.rehearsed.clone().confirm_named(named) else {
                return not_sent(
                    "the decision differs from the one that you confirmed; open the call and decide again".to_owned(),
                );
            };
            let sender = Sender { caller: self.caller, namespace: self.namespace, name: &call.name };
            match sender.record(&planned.read, confirmed).await {
                Ok(Ok((entry, waited))) => {
                    let line = recorded(&waited.approval, &waited.state, &entry, &planned.read.run);
                    CallOutcome { is_recorded: true, line }
                }
                Ok(Err(why)) => not_sent(sentence(&why)),
                // Whether it was recorded is not known, or something else was recorded: the error says which.
                Err(error @ (PageError::Unknown(_) | PageError::Changed(_))) => {
                    CallOutcome { is_recorded: false, line: error.to_string() }
                }
                Err(error) => not_sent(error.to_string()),
            }
        });
        join_all(sent).await
    }
}

/// Returns the line about a recorded decision. A decision that closed its gate says what follows, any other outcome is on the page of
/// the run.
fn recorded(approval: &Approval, state: &DecisionState, entry: &Entry, run: &RunNow) -> String {
    let detail = match state {
        DecisionState::Closed { outcome, is_counted: true, .. } if is_as_voted(outcome, entry) => {
            outcome::suspended(&approval.spec.request, entry.decision.verdict, run).unwrap_or_default()
        }
        DecisionState::Closed { .. } => "see the run".to_owned(),
        _ => String::new(),
    };
    outcome::line(approval, state, entry, &detail)
}

/// One chosen call, before its Approval was read.
struct Call<'a> {
    state: &'a PageState,
    caller: &'a Caller,
    namespace: &'a str,
    turn: &'a str,
    name: &'a str,
    digest: &'a str,
}

impl Call<'_> {
    /// Reads the Approval, makes the entry, and tries it. The problems are those of the fields that all calls share.
    async fn planned(&self, typed: &Typed) -> Result<(Chosen, Problems), PageError> {
        let mut chosen = Chosen {
            name: self.name.to_owned(),
            digest: self.digest.to_owned(),
            target: self.name.to_owned(),
            arguments: None,
            planned: Err("it is not a call of this turn".to_owned()),
        };
        let seen = match read::approval(&self.caller.client, self.namespace, self.name).await {
            Err(PageError::NotFound(why)) => {
                chosen.planned = Err(why);
                return Ok((chosen, Problems::default()));
            }
            other => other?,
        };
        let request = &seen.approval.spec.request;
        let Some((_, number)) = turn_of(&request.gate.path).filter(|_| request.turn().as_deref() == Some(self.turn))
        else {
            return Ok((chosen, Problems::default()));
        };
        chosen.target = format!("Call {number}: {}", model::target(request));
        chosen.arguments = request.reviews.as_ref().map(|review| arguments_line(&review.response, LONGEST_ARGUMENTS));
        let workflow = request.workflow.name.clone();
        let (run, read) = tokio::join!(
            read::run(&self.caller.client, self.namespace, &workflow),
            Read::of(self.state, self.caller, self.namespace, seen)
        );
        let read = Read { run, ..read };
        let (planned, problems) = match self.attempt(read, typed).await? {
            Ok(planned) => (Ok(planned), Problems::default()),
            Err(why) => shared(&why),
        };
        chosen.planned = planned;
        Ok((chosen, problems))
    }

    async fn attempt(&self, read: Read, typed: &Typed) -> Result<Result<Planned, NotSent>, PageError> {
        let mut own = Typed(vec![("digest".to_owned(), self.digest.to_owned())]);
        let shared = ["verdict", "reason", "guidance"];
        own.0.extend(typed.0.iter().filter(|(field, _)| shared.contains(&field.as_str())).cloned());
        let proposed = match propose(self.state, self.caller, &read, &own) {
            Ok(proposed) => proposed,
            Err(why) => return Ok(Err(why)),
        };
        let sender = Sender { caller: self.caller, namespace: self.namespace, name: self.name };
        Ok(sender.rehearse(self.state, &read, proposed).await?.map(|rehearsed| {
            let request = &rehearsed.seen().approval.spec.request;
            let verdict = rehearsed.entry().decision.verdict;
            let comes_to = model::comes_to(request, verdict, rehearsed.reached(), rehearsed.run());
            Planned { read, rehearsed, comes_to }
        }))
    }
}

/// Splits problems into those of shared fields and the reason why this call is not sent.
fn shared(why: &NotSent) -> (Result<Planned, String>, Problems) {
    let at = ["reason", "guidance"]
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), why.problems.at(field)?.clone())));
    (Err(sentence(why)), Problems(at.collect()))
}

fn sentence(why: &NotSent) -> String {
    why.problems.0.values().cloned().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use signoff_api::{
        Decision, Outcome,
        approval::{ApprovalPhase, Source},
    };
    use signoff_review::sample;

    use super::*;

    fn closed(phase: ApprovalPhase, verdict: Option<Verdict>, source: Source) -> DecisionState {
        let decided_by = verdict.iter().map(|_| "alice@example.com".to_owned()).collect();
        let outcome = Box::new(Outcome { phase, verdict, decided_by, source, ..Outcome::default() });
        DecisionState::Closed { outcome, is_counted: true, invalid: None }
    }

    fn approve() -> Entry {
        Entry { key: "alice@example.com".to_owned(), decision: Decision::new(Verdict::Approve) }
    }

    #[test]
    fn a_decision_that_closed_its_gate_says_what_follows_and_another_outcome_names_the_run() {
        let approved = closed(ApprovalPhase::Approved, Some(Verdict::Approve), Source::Human);
        let run = RunNow::default();
        assert_eq!(
            recorded(&sample::call(), &approved, &approve(), &run),
            "approved; the call goes on with exactly these arguments"
        );
        let held = RunNow { is_suspended: true, ..RunNow::default() };
        assert_eq!(
            recorded(&sample::call(), &approved, &approve(), &held),
            "approved; the run is suspended, and goes on when it is resumed; then the call goes on with exactly these arguments"
        );
        let superseded = closed(ApprovalPhase::Superseded, None, Source::Policy);
        assert_eq!(
            recorded(&sample::call(), &superseded, &approve(), &run),
            "Approve recorded; it does not count, superseded: see the run"
        );
    }
}
