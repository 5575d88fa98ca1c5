//! `POST …/change`: suspends, resumes, cancels or repeats a run, which is tried and shown first, and then sent.
//!
//! read (as the caller) -> proposed *(pure)* -> tried *(I/O)* -> confirmed by its name -> sent -> stored as sent
//!
//! **Invariant:** what is sent is what its name says, and the name is that of the page which was confirmed.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use http::StatusCode;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde::Deserialize;
use serde_json::{Value, json};
use signoff_api::{Digest, Workflow};
use signoff_review::{
    run::Repetition,
    run_change::{NotCopied, RunChange, copy, requesters},
    text::one_line,
    voter::Me,
};

use super::{address::Address, read};
use crate::{
    error::PageError,
    page::{self, Shell},
    rights::{Right, has},
    session::Caller,
    state::PageState,
};

/// The field manager of what the page writes.
const MANAGER: &str = "signoff-web";
/// The most inputs on the page of a confirmation, and the most characters of each.
const INPUTS: (usize, usize) = (64, 400);

/// A verb of the page for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageVerb {
    /// A field of the run is changed.
    Change(RunChange),
    /// A new run is created from the spec of this one.
    Rerun,
}

impl PageVerb {
    const ALL: [Self; 4] = [
        Self::Change(RunChange::Suspend),
        Self::Change(RunChange::Resume),
        Self::Change(RunChange::Cancel),
        Self::Rerun,
    ];

    /// Returns the word on the button, which the form sends too.
    pub fn word(self) -> &'static str {
        match self {
            Self::Change(RunChange::Suspend) => "Suspend",
            Self::Change(RunChange::Resume) => "Resume",
            Self::Change(RunChange::Cancel) => "Cancel",
            Self::Rerun => "Rerun",
        }
    }

    /// Returns the look of the button.
    pub fn class(self) -> &'static str {
        if self == Self::Change(RunChange::Cancel) { "danger" } else { "" }
    }
}

/// The verbs that a page offers to its reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// The verbs.
    pub verbs: Vec<PageVerb>,
    /// The reason why the run is not offered to be run again, although the reader may create runs.
    pub not_rerun: Option<String>,
}

/// The rights of a reader to change a run and to create one.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunRights {
    patch: bool,
    create: bool,
}

impl RunRights {
    /// Asks the API server what the caller may do with a run. Where the page changes no runs, nothing is asked.
    pub async fn ask(state: &PageState, client: &Client, address: &Address) -> Self {
        if !state.settings.changes_runs() {
            return Self::default();
        }
        let namespace = Some(address.namespace.as_str());
        let of = |verb, name| Right { verb, resource: "workflows", namespace, name };
        let (patch, create) =
            tokio::join!(has(client, of("patch", Some(address.name.as_str()))), has(client, of("create", None)));
        // A question without an answer offers nothing; the page is shown all the same.
        Self { patch: patch == Ok(true), create: create == Ok(true) }
    }

    /// Returns the verbs that have an effect on a run and that its reader may use.
    pub fn offers(self, workflow: &Workflow) -> Offers {
        let phase = workflow.status.as_ref().map(|status| status.phase).unwrap_or_default();
        let spec = &workflow.spec;
        let (is_restored, is_cancelled) = (spec.restored == Some(true), spec.cancel == Some(true));
        let mut offers = Offers::default();
        if self.patch && !phase.is_end() && !is_cancelled {
            if !is_restored {
                let change = if spec.suspend == Some(true) { RunChange::Resume } else { RunChange::Suspend };
                offers.verbs.push(PageVerb::Change(change));
            }
            offers.verbs.push(PageVerb::Change(RunChange::Cancel));
        }
        if self.create && (phase.is_end() || is_restored) {
            offers.not_rerun = repetition(workflow).refusal();
            offers.verbs.extend(offers.not_rerun.is_none().then_some(PageVerb::Rerun));
        }
        offers
    }
}

/// Returns the calls that a repetition would make again. Records that could not be read are still in `status.segments`.
fn repetition(workflow: &Workflow) -> Repetition {
    if workflow.spec.restored == Some(true) {
        Repetition::of_restored(None)
    } else if workflow.is_restored() {
        Repetition::of_restored(Some(workflow))
    } else {
        Repetition::of(workflow)
    }
}

/// The fields of the form.
#[derive(Deserialize)]
pub struct ChangeForm {
    verb: String,
    uid: String,
    #[serde(default)]
    confirmed: String,
}

/// The object that is sent.
#[derive(Clone, Debug)]
enum Sent {
    /// A merge patch of the run.
    Patch(RunChange, Value),
    /// A new run.
    New(Box<DynamicObject>),
}

#[derive(Template)]
#[template(path = "run_change.html")]
struct ConfirmChange {
    shell: Shell,
    /// The path of the run's page.
    run: String,
    name: String,
    namespace: String,
    verb: PageVerb,
    effect: String,
    /// Further facts: a label, and a text.
    facts: Vec<(String, String)>,
    warning: Option<String>,
    uid: String,
    /// Names what is confirmed.
    confirmed: String,
    /// Whether something else was confirmed than what would be sent now.
    differs: bool,
}

/// Tries a change of a run and asks for confirmation, or sends a confirmed one.
///
/// # Errors
/// As every request; and a change that has no effect, or that this page does not make.
pub async fn change(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Form(form): Form<ChangeForm>,
) -> Result<Response, PageError> {
    let address = Address::of(&namespace, &name)?;
    if !state.settings.changes_runs() {
        let why = "this page does not change runs (web.impersonation.runs): use kubectl approve cancel, suspend, resume or rerun";
        return Err(PageError::Refused(why.to_owned()));
    }
    let Some(verb) = PageVerb::ALL.into_iter().find(|verb| verb.word() == form.verb) else {
        return Err(PageError::Bad("there is no such change of a run: see its page".to_owned()));
    };
    let api = runs(&caller.client, &address);
    let run = api.get(&address.name).await?;
    let uid = run.metadata.uid.clone().unwrap_or_default();
    if uid != form.uid {
        return Err(PageError::Changed("another run has this name now: read its page again".to_owned()));
    }
    let sent = propose(verb, &run, &caller.me)?;
    let warning = match verb {
        PageVerb::Rerun => repeatable(&caller.client, &address, &uid).await?,
        PageVerb::Change(_) => None,
    };
    sent.send(&api, &address.name, true).await?;
    let confirmed = sent.name(&caller.me, &uid)?;
    if form.confirmed != confirmed {
        let differs = !form.confirmed.is_empty();
        let status = if differs { StatusCode::CONFLICT } else { StatusCode::OK };
        let page = ConfirmChange {
            shell: Shell::of(&caller, &format!("{} run {name}", verb.word()), "runs"),
            run: address.run(),
            effect: effect(&sent),
            facts: facts(&sent, &run),
            name: address.name,
            namespace: address.namespace,
            verb,
            warning,
            uid,
            confirmed,
            differs,
        };
        return Ok((status, page::html(&page)).into_response());
    }
    let stored = sent.send(&api, &address.name, false).await.map_err(unanswered)?;
    let shown = match &sent {
        Sent::Patch(..) => address,
        Sent::New(_) => Address::of(&namespace, stored.metadata.name.as_deref().unwrap_or_default())?,
    };
    if !sent.is_stored(&stored) {
        let why = "the run was not stored as it was confirmed: something on the way changed it";
        return Err(PageError::Changed(format!(
            "{why}; see run {}, and tell the administrators of Signoff",
            shown.name
        )));
    }
    Ok(Redirect::to(&shown.run()).into_response())
}

fn runs(client: &Client, address: &Address) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &address.namespace, &ApiResource::erase::<Workflow>(&()))
}

/// Returns what is sent, or why it would have no effect.
fn propose(verb: PageVerb, run: &DynamicObject, me: &Me) -> Result<Sent, PageError> {
    let name = || format!("run {}", one_line(run.metadata.name.as_deref().unwrap_or_default(), 253));
    match verb {
        PageVerb::Change(change) => {
            if let Some(why) = change.refusal(run) {
                return Err(PageError::Changed(format!("{} {why}", name())));
            }
            if change.is_done(run) {
                return Err(PageError::Changed(format!("{} is {} already", name(), change.done())));
            }
            let mut patch = change.patch();
            // Another run that has the name by then is not changed.
            patch["metadata"] = json!({"uid": run.metadata.uid});
            Ok(Sent::Patch(change, patch))
        }
        PageVerb::Rerun => match copy(run, me) {
            Ok(new) => Ok(Sent::New(Box::new(new))),
            Err(why @ NotCopied::TooManyRequesters(_)) => Err(PageError::Refused(why.to_string())),
            Err(why @ (NotCopied::NoSpec(_) | NotCopied::Invalid { .. })) => {
                Err(PageError::Unreadable(why.to_string()))
            }
        },
    }
}

/// Returns a warning about calls that would be made again, or refuses where it is not known which calls had an effect.
async fn repeatable(client: &Client, address: &Address, uid: &str) -> Result<Option<String>, PageError> {
    let workflow = read::whole_journal(client, address).await?;
    if workflow.metadata.uid.as_deref() != Some(uid) {
        return Err(PageError::Changed("another run has this name now: read its page again".to_owned()));
    }
    let phase = workflow.status.as_ref().map(|status| status.phase).unwrap_or_default();
    if !phase.is_end() && workflow.spec.restored != Some(true) {
        return Err(PageError::Changed("the run has not ended: cancel it before you run it again".to_owned()));
    }
    let repetition = repetition(&workflow);
    match repetition.refusal() {
        Some(why) => Err(PageError::Changed(format!("{}: {why}", address.name))),
        None => Ok(repetition.warning()),
    }
}

/// Turns a request without an answer into an unknown outcome: it may be stored all the same.
fn unanswered(error: PageError) -> PageError {
    match error {
        PageError::Away(why) => PageError::Unknown(format!(
            "it is not known whether this was done ({why}): look at the list of runs before you do it again"
        )),
        other => other,
    }
}

fn effect(sent: &Sent) -> String {
    match sent {
        Sent::Patch(change, _) => change.effect().to_owned(),
        Sent::New(_) => "a new run begins, with every step of this one; you are its requester".to_owned(),
    }
}

/// Returns the facts of a new run: who wrote its steps and inputs, and what it repeats.
fn facts(sent: &Sent, run: &DynamicObject) -> Vec<(String, String)> {
    let Sent::New(new) = sent else { return Vec::new() };
    let name = one_line(run.metadata.name.as_deref().unwrap_or_default(), 253);
    let uid = one_line(run.metadata.uid.as_deref().unwrap_or_default(), 64);
    let authors = requesters(run).iter().map(|one| one_line(one, 253)).collect::<Vec<_>>().join(", ");
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let mut facts = vec![
        fact(
            "Steps and inputs",
            format!("those of run {name}, written by {authors}: read them before you run them in your name"),
        ),
        fact("Repeats (rerunOf)", format!("{name}, uid {uid}")),
        fact("Requesters", format!("you and {authors}: gates that exclude the requester exclude all of you")),
    ];
    let inputs = new.data.pointer("/spec/inputs").and_then(Value::as_array).into_iter().flatten();
    facts.extend(inputs.take(INPUTS.0).map(|input| {
        let part = |field: &str| match input.get(field) {
            Some(Value::String(text)) => one_line(text, INPUTS.1),
            Some(other) => one_line(&other.to_string(), INPUTS.1),
            None => "its default".to_owned(),
        };
        fact(&format!("Input {}", part("name")), part("value"))
    }));
    facts
}

impl Sent {
    /// Returns the name of what is sent: another user, run or content has another one.
    fn name(&self, me: &Me, uid: &str) -> Result<String, PageError> {
        let what = match self {
            Self::Patch(_, patch) => patch.clone(),
            Self::New(new) => new.data.clone(),
        };
        let all = json!({"user": me.user, "run": uid, "sent": what});
        let digest = Digest::of(&all).map_err(|error| PageError::Internal(error.to_string()))?;
        Ok(digest.to_string())
    }

    /// Sends it to the API server, or only tries it.
    async fn send(&self, api: &Api<DynamicObject>, run: &str, dry_run: bool) -> Result<DynamicObject, PageError> {
        let manager = Some(MANAGER.to_owned());
        match self {
            Self::Patch(_, patch) => {
                let options = PatchParams { dry_run, field_manager: manager, ..PatchParams::default() };
                Ok(api.patch(run, &options, &Patch::Merge(patch)).await?)
            }
            Self::New(new) => {
                let options = PostParams { dry_run, field_manager: manager };
                Ok(api.create(&options, new).await?)
            }
        }
    }

    /// Whether the API server stored what was sent.
    fn is_stored(&self, stored: &DynamicObject) -> bool {
        match self {
            Self::Patch(change, _) => change.is_done(stored),
            Self::New(new) => new.data.get("spec") == stored.data.get("spec"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_review::sample;

    use super::*;

    fn run(spec: &Value, phase: &str) -> DynamicObject {
        let object = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "refund", "namespace": "finance", "uid": "u"}, "spec": spec, "status": {"phase": phase}});
        serde_json::from_value(object).unwrap()
    }

    fn words(offers: &Offers) -> Vec<&'static str> {
        offers.verbs.iter().map(|verb| verb.word()).collect()
    }

    #[test]
    fn a_verb_is_offered_where_it_has_an_effect_and_its_reader_may() {
        let of = |rights: RunRights, spec: Value, phase: &str| {
            let mut spec = spec;
            spec["requestedBy"] = json!("dana");
            let workflow: Workflow = serde_json::from_value(serde_json::to_value(run(&spec, phase)).unwrap()).unwrap();
            words(&rights.offers(&workflow))
        };
        let all = RunRights { patch: true, create: true };
        assert_eq!(of(all, json!({}), "Waiting"), ["Suspend", "Cancel"]);
        assert_eq!(of(all, json!({"suspend": true}), "Suspended"), ["Resume", "Cancel"]);
        assert_eq!(of(all, json!({"cancel": true}), "Waiting"), [""; 0]);
        assert_eq!(of(all, json!({}), "Failed"), ["Rerun"]);
        assert_eq!(of(RunRights { patch: true, create: false }, json!({}), "Failed"), [""; 0]);
        assert_eq!(of(RunRights::default(), json!({}), "Waiting"), [""; 0]);
    }

    #[test]
    fn a_patch_names_the_run_and_a_change_without_effect_is_refused() {
        let me = sample::me("dana", &[]);
        let cancel = PageVerb::Change(RunChange::Cancel);
        let sent = propose(cancel, &run(&json!({}), "Waiting"), &me).unwrap();
        let Sent::Patch(_, patch) = &sent else { unreachable!("a cancellation is a patch") };
        assert_eq!(*patch, json!({"metadata": {"uid": "u"}, "spec": {"cancel": true}}));
        assert!(propose(cancel, &run(&json!({}), "Failed"), &me).is_err());
        assert!(propose(cancel, &run(&json!({"cancel": true}), "Waiting"), &me).is_err());
        let other = sent.name(&sample::me("eve", &[]), "u").unwrap();
        assert_ne!(sent.name(&me, "u").unwrap(), other, "a confirmation is of one user");
    }

    #[test]
    fn a_repetition_says_who_wrote_it_and_names_what_it_repeats() {
        let old = run(
            &json!({"requestedBy": "dana", "rerunOf": {"name": "r", "uid": "v", "requesters": ["erin"]},
                "inputs": [{"name": "words", "value": "<b>\u{202e}"}]}),
            "Failed",
        );
        let sent = propose(PageVerb::Rerun, &old, &sample::me("bob", &[])).unwrap();
        let facts: Vec<_> = facts(&sent, &old).into_iter().map(|(label, text)| format!("{label}: {text}")).collect();
        assert!(facts.iter().any(|one| one.contains("written by erin, dana")), "{facts:?}");
        assert!(facts.contains(&"Repeats (rerunOf): refund, uid u".to_owned()), "{facts:?}");
        assert!(facts.contains(&"Input words: <b>⟨U+202E⟩".to_owned()), "{facts:?}");
    }
}
