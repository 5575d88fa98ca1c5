//! A decision of the page: parsed from the form, and sent through the stages of every decision
//! ([`signoff_review::flow`]).
//!
//! **Invariant:** no other module of the page sends a decision.

use std::collections::BTreeMap;

use http::StatusCode;
use kube::api::PatchParams;
use signoff_api::{Approval, Code, Decision, Verdict, gate::Form};
use signoff_cluster::{
    metrics::RequestMetrics,
    watch::{WatchEvent, follow_selected},
};
use signoff_review::{
    entry::{Entry, NOT_RECORDED, TAMPERED, TAMPERED_REMEDY},
    flow::{
        Confirmed, Meaning, NotRecorded, NotRehearsed, Proposed, Recorded, Refused, Rehearsed, Server, Shown, Unusable,
    },
    foreseen,
    record::record,
    seen::Seen,
    state::{DecisionState, Waited},
    text::one_line,
    whole::is_edit_cut,
};
use tokio::sync::mpsc;

use super::{
    model,
    read::{self, Read},
    typed::{self, Problems, Typed},
};
use crate::{error::PageError, session::Caller, settings::Auth, state::PageState};

/// The longest wait for the operator to count a decision.
const COUNT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
/// The channel of decisions of an impersonating page, which the API server verifies.
const CHANNEL: &str = "web";

/// The reason why a decision is not sent. The form is shown again as it was typed.
pub(crate) struct NotSent {
    pub(crate) problems: Problems,
    pub(crate) status: StatusCode,
}

impl NotSent {
    fn wrong(problems: Problems) -> Self {
        Self { problems, status: StatusCode::UNPROCESSABLE_ENTITY }
    }

    fn changed(why: impl Into<String>) -> Self {
        Self { problems: Problems::of_form(why), status: StatusCode::CONFLICT }
    }
}

/// Returns a verified request whose digest the form repeats.
pub(crate) fn verify_shown<'r>(read: &'r Read, typed: &Typed) -> Result<Shown<'r>, NotSent> {
    let verified = read.verified().map_err(|problem| NotSent::changed(problem.to_string()))?;
    let shown = verified.shown(typed.get("digest").unwrap_or_default());
    shown.map_err(|why| NotSent::changed(format!("{why} [{}]", why.code())))
}

/// Returns the typed decision on a verified request that was shown.
pub(crate) fn propose(state: &PageState, caller: &Caller, read: &Read, typed: &Typed) -> Result<Proposed, NotSent> {
    let shown = verify_shown(read, typed)?;
    let request = &read.seen.approval.spec.request;
    let reviewed = model::reviewed(read);
    let no_reason = typed::reason_problem(&read.seen, typed);
    let mut decision = typed::read_decision(typed, request, reviewed.as_deref()).map_err(|mut problems| {
        problems.add(no_reason.clone().unwrap_or_default());
        NotSent::wrong(problems)
    })?;
    // Without the whole text it is unknown which parts were changed.
    if decision.parameters.is_some() && reviewed.is_none() && is_edit_cut(request) {
        let why = "the whole of what you change cannot be read now: try again, or give another verdict";
        return Err(NotSent::wrong(Problems::of_form(why)));
    }
    if let Some(problems) = no_reason {
        return Err(NotSent::wrong(problems));
    }
    decision.channel = (state.settings.auth != Auth::PassThrough).then(|| CHANNEL.to_owned());
    let entry = Entry::new(decision, None, &read.seen.approval, &caller.me)
        .map_err(|error| NotSent::wrong(Problems::of_form(format!("this decision cannot be sent: {error}"))))?;
    let proposed = shown.propose(entry, &caller.me, read.at);
    proposed.map_err(|why| NotSent::wrong(Problems::of_form(format!("{why} [{}]", why.code()))))
}

/// Returns the problems of all answers of a form. Counting the decision itself would name only the first.
pub(crate) async fn answer_problems(state: &PageState, caller: &Caller, read: &Read, typed: &Typed) -> Problems {
    let mut all_problems = Problems::default();
    let approval = &read.seen.approval;
    let form = approval.spec.request.form.as_ref().filter(|_| typed.verdict() == Some(Verdict::Respond));
    for question in form.iter().flat_map(|form| &form.questions) {
        // A copy of the request with this question alone.
        let mut alone = approval.clone();
        alone.spec.request.form = Some(Form { questions: vec![question.clone()] });
        let Ok(digest) = alone.spec.request.digest_of_the_rest() else { continue };
        alone.spec.request.digest = digest;
        let mut decision = Decision::new(Verdict::Respond);
        let answer = typed::read_answer(typed, question).map(|answer| (question.id.clone(), answer));
        decision.answers = Some(answer.into_iter().collect::<BTreeMap<_, _>>());
        let Ok(entry) = Entry::new(decision, None, &alone, &caller.me) else { continue };
        let Ok(counted) = state.counter.count(&foreseen::with(&alone, &entry), read.at).await else { continue };
        let why = foreseen::unusable(&counted, &entry);
        let placed = why.map(|why| Problems::at_named_field(&why, &[typed::text_field(question)]));
        placed.into_iter().filter(Problems::are_of_fields).for_each(|problems| all_problems.add(problems));
    }
    all_problems
}

/// The API server as the caller uses it for one Approval.
pub(crate) struct Sender<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Server for Sender<'_> {
    type Error = PageError;

    async fn send(&self, seen: &Seen, entry: &Entry, dry_run: bool) -> Result<Seen, PageError> {
        let options = PatchParams { dry_run, field_manager: Some("signoff-web".to_owned()), ..PatchParams::default() };
        let api = read::approvals(&self.caller.client, self.namespace);
        let stored = record(&api, seen, entry, &options).await?;
        Seen::of(&stored).map_err(|why| PageError::Internal(why.to_string()))
    }

    async fn read(&self) -> Result<Seen, PageError> {
        read::fetch_approval(&self.caller.client, self.namespace, self.name).await
    }

    fn meaning(error: &PageError) -> Meaning {
        match error {
            PageError::Refused(_) => Meaning::Refused,
            PageError::Away(_) => Meaning::Unanswered,
            _ => Meaning::NotStored,
        }
    }
}

impl Sender<'_> {
    /// Tries a decision at the API server, without storing it. A refusal is returned as the problems of the form.
    pub(crate) async fn rehearse(
        &self,
        state: &PageState,
        read: &Read,
        proposed: Proposed,
    ) -> Result<Result<Rehearsed, NotSent>, PageError> {
        let fields = typed::fields_with_problems(&read.seen.approval.spec.request);
        let verdict = proposed.entry().decision.verdict;
        let placed = |why: &str| Problems::at_named_field(why, &fields);
        // At its field a problem is understood without a code.
        let placed_or_coded = |why: &Unusable| {
            let problems = placed(&why.to_string());
            let has_field = problems.are_of_fields();
            if has_field { problems } else { placed(&format!("{why}{}", Code::bracketed(why.code(verdict)))) }
        };
        let problems = match proposed.rehearse(self, &state.counter, read.at).await {
            Ok(rehearsed) => return Ok(Ok(rehearsed)),
            Err(NotRehearsed::Failed(error)) => return Err(error),
            Err(NotRehearsed::Tampered(differences)) => {
                return Err(PageError::Changed(format!("{} {NOT_RECORDED}", tampering_sentence(&differences))));
            }
            Err(NotRehearsed::Unusable(why)) => placed_or_coded(&why),
            // A problem of a field of the form is shown at this field, and says more than the refusal.
            Err(NotRehearsed::Refused(refused, unusable)) => unusable
                .map(|why| placed_or_coded(&why))
                .filter(Problems::are_of_fields)
                .unwrap_or_else(|| placed(&refusal_sentence(refused))),
        };
        Ok(Err(NotSent::wrong(problems)))
    }

    /// Records a confirmed decision, waits at most [`COUNT_TIMEOUT`] until it is counted, and returns its state.
    pub(crate) async fn record(
        &self,
        read: &Read,
        confirmed: Confirmed,
    ) -> Result<Result<(Entry, Waited), NotSent>, PageError> {
        match confirmed.record(self, read.at).await {
            Ok(recorded) => Ok(Ok(self.counted_or_late(recorded).await)),
            Err(NotRecorded::Refused(refused)) => Ok(Err(NotSent::wrong(Problems::of_form(refusal_sentence(refused))))),
            Err(NotRecorded::Failed(error)) => Err(error),
            Err(NotRecorded::Unknown(why)) => Err(PageError::Unknown(format!(
                "it is not known whether your decision was recorded ({why}): read the request again before you decide again"
            ))),
            Err(NotRecorded::Tampered(differences)) => Err(PageError::Changed(tampering_sentence(&differences))),
        }
    }

    /// Waits until the operator has counted the decision, at most [`COUNT_TIMEOUT`], so that the next page can show its
    /// effect.
    async fn counted_or_late(&self, recorded: Recorded) -> (Entry, Waited) {
        let Recorded { approval, entry } = recorded;
        let (sender, mut events) = mpsc::channel(8);
        let fields = Some(format!("metadata.name={}", self.name));
        let (client, place) = (self.caller.client.clone(), Some(self.namespace.to_owned()));
        let mut waited = Waited::new(approval, &entry);
        let wait_for_count = async {
            while waited.state == DecisionState::Recorded {
                match events.recv().await {
                    Some(WatchEvent::Listed(approval) | WatchEvent::Applied(approval)) => {
                        waited.apply(Some(*approval), &entry);
                    }
                    None | Some(WatchEvent::Deleted(_) | WatchEvent::Broken { .. }) => return,
                    Some(_) => {}
                }
            }
        };
        tokio::select! {
            () = follow_selected::<Approval>(client, place, fields, sender, RequestMetrics::default()) => {}
            () = wait_for_count => {}
            () = tokio::time::sleep(COUNT_TIMEOUT) => {}
        }
        (entry, waited)
    }
}

/// Returns the sentence about a stored decision that differs from the sent one.
fn tampering_sentence(differences: &[String]) -> String {
    let shown: Vec<_> = differences.iter().map(|difference| one_line(difference, 1000)).collect();
    format!("{TAMPERED}: {}. {TAMPERED_REMEDY}", shown.join("; "))
}

/// Returns a refusal in words about the gate, otherwise the sentence of the admission policy, with its code.
fn refusal_sentence(refused: Refused<PageError>) -> String {
    refused.refusal.map_or_else(|| refused.error.to_string(), |refusal| format!("{refusal} [{}]", refusal.code()))
}
