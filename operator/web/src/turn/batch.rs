//! One verdict on several requests, such as the calls of a turn: an entry for each, which is tried and sent on its own.
//!
//! **Invariant:** an entry is sent only if it has the name that was confirmed.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use signoff_api::{Approval, ApprovalRequest, Verdict, names};
use signoff_expr::text::display;
use signoff_review::{
    action::{arguments_line, authors_words, call, turn_of},
    alike::RunFacts,
    brief,
    entry::Entry,
    flow::Rehearsed,
    outcome,
    seen::{RunNow, Seen},
    state::{DecisionState, is_as_voted},
    text::one_line,
};

use super::{
    bond::Bond,
    read::{Runs, few_at_once},
};
use crate::{
    approval::{
        model,
        read::{self, Read},
        send::{NotSent, Sender, propose},
        texts::subject,
        typed::{Problems, Typed},
    },
    error::PageError,
    long_reads::LONG_READS,
    session::Caller,
    state::PageState,
};

/// The longest line of a text, in characters. The page of the requests has the whole text.
const LONGEST_LINE: usize = 200;
/// The most lines of a text.
const MOST_LINES: usize = 4;

/// Several requests that get one verdict.
pub struct Batch<'a> {
    caller: &'a Caller,
    /// The namespace of all chosen requests.
    pub namespace: &'a str,
    /// The turn of the requests, or the equality of their gates. Only requests that belong to it are sent.
    pub bond: &'a Bond,
    /// The verdict of the pressed button, which each chosen request gets.
    pub verdict: Verdict,
    /// The chosen requests, in the order of the page.
    pub calls: Vec<Chosen>,
}

/// A chosen request.
pub struct Chosen {
    /// The name of the Approval.
    pub name: String,
    /// The digest that the form has of the request, as it was shown.
    pub digest: String,
    /// The number in the turn, or the run, with the subject of the decision. For an Approval that does not exist, its
    /// name.
    pub target: String,
    /// The subject of the decision.
    pub about: About,
    /// The decision, or the reason why it is not sent.
    pub planned: Result<Planned, String>,
}

/// The subject of a decision in a few lines, in which requests of equal gates differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The question of the gate in a line; `None` for calls of a turn.
    pub question: Option<String>,
    /// The arguments of a call in a line, cut if there are many.
    pub arguments: Option<String>,
    /// The first lines of the reviewed text, and a note about the rest; the note is empty if there is no rest.
    pub text: Option<(String, String)>,
    /// The values of the inputs of the run in a line; `None` for calls of a turn.
    pub inputs: Option<String>,
}

/// A decision that the API server accepted on trial.
pub struct Planned {
    read: Read,
    rehearsed: Rehearsed,
    /// The sentence about the effect of the decision.
    pub comes_to: String,
}

impl Planned {
    /// Returns the name of the entry, which the confirmation repeats.
    pub fn fingerprint(&self) -> String {
        self.rehearsed.name()
    }
}

/// The outcome of one request.
pub struct CallOutcome {
    /// Whether the decision was recorded.
    pub is_recorded: bool,
    /// The sentence about the outcome, with the reason if nothing was recorded.
    pub line: String,
}

/// The verdict of a form, and the names and digests of its chosen requests.
struct VerdictChoice<'t> {
    verdict: Verdict,
    requests: Vec<(&'t str, &'t str)>,
}

/// Returns the verdict and the chosen requests of a form; or the problem of the form, if the verdict is missing, or if
/// no request or more than [`Bond::MOST`] requests are chosen.
fn read_choice<'t>(typed: &'t Typed, bond: &Bond) -> Result<VerdictChoice<'t>, Problems> {
    let Some(verdict) = typed.verdict().filter(|verdict| bond.verdicts().contains(verdict)) else {
        return Err(Problems::of_form("no verdict was chosen: use one of the buttons"));
    };
    let requests = chosen_requests(typed);
    if requests.is_empty() {
        return Err(Problems::of_form(format!("no {} was chosen: choose at least one", bond.noun())));
    }
    if requests.len() > Bond::MOST {
        let why = format!("at most {} can be decided together: choose fewer", bond.counted(Bond::MOST));
        return Err(Problems::of_form(why));
    }
    Ok(VerdictChoice { verdict, requests })
}

impl<'a> Batch<'a> {
    /// Reads each chosen request, makes its entry, and tries the entry at the API server. The inner error has the
    /// problems of the form: also if a field that all requests share is invalid, or if no request can be sent.
    ///
    /// # Errors
    /// As every request, except for requests that are refused or do not exist.
    pub async fn prepare(
        state: &PageState,
        caller: &'a Caller,
        namespace: &'a str,
        bond: &'a Bond,
        typed: &Typed,
    ) -> Result<Result<Self, Problems>, PageError> {
        let VerdictChoice { verdict, requests } = match read_choice(typed, bond) {
            Ok(choice) => choice,
            Err(problems) => return Ok(Err(problems)),
        };
        let _place = LONG_READS.wait(&caller.token).await?;
        let reads: Vec<_> =
            requests.iter().map(|(name, _)| read::fetch_approval(&caller.client, namespace, name)).collect();
        let reads = few_at_once(reads).await;
        let readable = reads.iter().filter_map(|read| Some(&read.as_ref().ok()?.approval));
        let members: Vec<_> = readable.filter(|approval| bond.target(&approval.spec.request).is_some()).collect();
        let runs = Runs::read(&caller.client, namespace, &members).await;
        let strangers = match bond {
            // Each request names its own turn, so no comparison is needed.
            Bond::Turn(_) => BTreeSet::new(),
            Bond::Equal => runs.strangers(&members),
        };
        let trials = requests.into_iter().zip(reads).map(async |((name, digest), seen)| {
            let call = Call { state, caller, namespace, bond, name, digest };
            call.plan(seen, &runs, strangers.contains(name), typed).await
        });
        let trials: Vec<_> = trials.collect();
        let mut calls = Vec::new();
        let mut problems = Problems::default();
        for planned in few_at_once(trials).await {
            let (call, call_problems) = planned?;
            problems.0.extend(call_problems.0);
            calls.push(call);
        }
        if !problems.0.is_empty() {
            return Ok(Err(problems));
        }
        if calls.iter().all(|call| call.planned.is_err()) {
            let reason = |call: &Chosen| Some(format!("{}: {}", call.target, call.planned.as_ref().err()?));
            let reasons: Vec<_> = calls.iter().filter_map(reason).collect();
            return Ok(Err(Problems::of_form(reasons.join("\n"))));
        }
        Ok(Ok(Self { caller, namespace, bond, verdict, calls }))
    }

    /// Returns the address of the page with the chosen requests.
    pub fn page(&self) -> String {
        self.bond.page(self.namespace, self.calls.iter().map(|call| call.name.as_str()))
    }

    /// Sends the confirmed entries concurrently, and returns the outcome of each.
    pub async fn send(&self, typed: &Typed) -> Vec<CallOutcome> {
        let confirmed: BTreeMap<&str, &str> =
            typed.all("confirmed").filter_map(|confirmed| confirmed.split_once(' ')).collect();
        let sent = self.calls.iter().map(async |call| {
            let not_sent = |why: String| CallOutcome { is_recorded: false, line: format!("Not sent: {why}") };
            let planned = match &call.planned {
                Ok(planned) => planned,
                Err(why) => return not_sent(why.clone()),
            };
            let fingerprint = confirmed.get(call.name.as_str()).copied();
            let Ok(confirmed) = planned.rehearsed.clone().confirm_named(fingerprint) else {
                return not_sent(format!(
                    "the decision differs from the one that you confirmed; open the {} and decide again",
                    self.bond.noun()
                ));
            };
            let sender = Sender { caller: self.caller, namespace: self.namespace, name: &call.name };
            match sender.record(&planned.read, confirmed).await {
                Ok(Ok((entry, waited))) => {
                    let line = recorded_line(&waited.approval, &waited.state, &entry, &planned.read.run);
                    CallOutcome { is_recorded: true, line }
                }
                Ok(Err(why)) => not_sent(sentence(&why)),
                // The error says whether the outcome is unknown or another entry was recorded.
                Err(error @ (PageError::Unknown(_) | PageError::Changed(_))) => {
                    CallOutcome { is_recorded: false, line: error.to_string() }
                }
                Err(error) => not_sent(error.to_string()),
            }
        });
        join_all(sent).await
    }
}

/// Returns the line about a recorded decision. If the decision closed its gate, the line has the effect on the run. If
/// another outcome closed the gate, the line refers to the page of the run.
fn recorded_line(approval: &Approval, state: &DecisionState, entry: &Entry, run: &RunNow) -> String {
    let detail = match state {
        DecisionState::Closed { outcome, is_counted: true, .. } if is_as_voted(outcome, entry) => {
            outcome::suspended(&approval.spec.request, entry.decision.verdict, run).unwrap_or_default()
        }
        DecisionState::Closed { .. } => "see the run".to_owned(),
        _ => String::new(),
    };
    outcome::line(approval, state, entry, &detail)
}

/// Returns the names and digests of the chosen requests, each once.
pub fn chosen_requests(typed: &Typed) -> Vec<(&str, &str)> {
    let mut chosen: Vec<(&str, &str)> = Vec::new();
    for (name, digest) in typed.all("call").filter_map(|call| call.split_once(' ')) {
        if names::is_object(name) && chosen.iter().all(|(other, _)| *other != name) {
            chosen.push((name, digest));
        }
    }
    chosen
}

/// One chosen request.
struct Call<'a> {
    state: &'a PageState,
    caller: &'a Caller,
    namespace: &'a str,
    bond: &'a Bond,
    name: &'a str,
    digest: &'a str,
}

impl Call<'_> {
    /// Makes the entry of a request and tries the entry. Returns the request with the outcome of the trial, and the
    /// problems of the fields that all requests share. A request that does not exist, or that does not belong to the
    /// bond, is not tried.
    async fn plan(
        &self,
        seen: Result<Seen, PageError>,
        runs: &Runs,
        is_stranger: bool,
        typed: &Typed,
    ) -> Result<(Chosen, Problems), PageError> {
        let mut chosen = Chosen {
            name: self.name.to_owned(),
            digest: self.digest.to_owned(),
            target: self.name.to_owned(),
            about: About::default(),
            planned: Err(self.bond.stranger().to_owned()),
        };
        let seen = match seen {
            Err(PageError::NotFound(why)) => {
                chosen.planned = Err(why);
                return Ok((chosen, Problems::default()));
            }
            other => other?,
        };
        let request = &seen.approval.spec.request;
        let Some(target) = self.bond.target(request).filter(|_| !is_stranger) else {
            return Ok((chosen, Problems::default()));
        };
        chosen.target = target;
        let run = runs.of(&seen.approval);
        let read = Read::fetch_around(self.state, self.caller, self.namespace, seen).await;
        let read = Read { run: run.now.clone(), ..read };
        chosen.about = self.bond.describe(&read, &run);
        let (planned, problems) = match self.rehearse(read, typed).await? {
            Ok(planned) => (Ok(planned), Problems::default()),
            Err(why) => split_shared_problems(&why),
        };
        chosen.planned = planned;
        Ok((chosen, problems))
    }

    /// Tries the decision at the API server, with only those fields of the form that all requests share.
    async fn rehearse(&self, read: Read, typed: &Typed) -> Result<Result<Planned, NotSent>, PageError> {
        let mut own = Typed(vec![("digest".to_owned(), self.digest.to_owned())]);
        let shared_fields = ["verdict", "reason", "guidance"];
        own.0.extend(typed.0.iter().filter(|(field, _)| shared_fields.contains(&field.as_str())).cloned());
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

impl Bond {
    /// Returns the subject of a request of this bond in a line, or `None` for any other request.
    pub fn target(&self, request: &ApprovalRequest) -> Option<String> {
        let target = model::target(request);
        match self {
            Self::Turn(turn) => {
                let (_, number) = turn_of(&request.gate.path).filter(|_| request.turn().as_ref() == Some(turn))?;
                Some(format!("Call {number}: {target}"))
            }
            Self::Equal => Some(format!("{}: {target}", one_line(&request.workflow.name, 63))),
        }
    }

    /// Returns the subject of the decision on a request. Calls of a turn differ only in their arguments.
    fn describe(&self, read: &Read, run: &RunFacts) -> About {
        let request = &read.seen.approval.spec.request;
        let brief = || brief::arguments(request, LONGEST_LINE);
        match self {
            Self::Turn(_) => {
                let line = request.reviews.as_ref().map(|review| arguments_line(&review.response, usize::MAX));
                let arguments = line.filter(|line| line.chars().count() <= LONGEST_LINE).or_else(brief);
                About { arguments, ..About::default() }
            }
            Self::Equal => About {
                question: Some(one_line(authors_words(request), LONGEST_LINE)),
                arguments: brief(),
                text: call(request).is_none().then(|| first_lines(read)).flatten(),
                inputs: run.inputs_of(&request.spec_digest).map(str::to_owned),
            },
        }
    }
}

/// Returns the first lines of the reviewed text, and a note if it has more.
fn first_lines(read: &Read) -> Option<(String, String)> {
    let text = subject(&read.seen.approval.spec.request, &read.whole)?.first(MOST_LINES);
    let lines: Vec<_> = text.lines.iter().map(|line| display(line, LONGEST_LINE)).collect();
    let more = match (text.more, &text.cut) {
        (0, None) => String::new(),
        (0, Some(_)) => "and more".to_owned(),
        (1, None) => "and 1 more line".to_owned(),
        (more, None) => format!("and {more} more lines"),
        (more, Some(_)) => format!("and more than {more} more lines"),
    };
    Some((lines.join("\n"), more))
}

/// Returns the reason why a request is not sent, and the problems of fields that all requests share.
fn split_shared_problems(why: &NotSent) -> (Result<Planned, String>, Problems) {
    let shared = ["reason", "guidance"]
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), why.problems.at(field)?.clone())));
    (Err(sentence(why)), Problems(shared.collect()))
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
    fn recorded_line_has_the_effect_of_a_decision_that_closed_its_gate() {
        let approved = closed(ApprovalPhase::Approved, Some(Verdict::Approve), Source::Human);
        let run = RunNow::default();
        assert_eq!(
            recorded_line(&sample::call(), &approved, &approve(), &run),
            "approved; the call goes on with exactly these arguments"
        );
        let held = RunNow { is_suspended: true, ..RunNow::default() };
        assert_eq!(
            recorded_line(&sample::call(), &approved, &approve(), &held),
            "approved; the run is suspended, and goes on when it is resumed; then the call goes on with exactly these arguments"
        );
        let superseded = closed(ApprovalPhase::Superseded, None, Source::Policy);
        assert_eq!(
            recorded_line(&sample::call(), &superseded, &approve(), &run),
            "Approve recorded; it does not count, superseded: see the run"
        );
    }
}
