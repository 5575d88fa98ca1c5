//! `POST …/change`: suspends, resumes, cancels or repeats a run. A change is tried and shown, and sent after its
//! confirmation.
//!
//! read (as the caller) -> proposed *(pure)* -> tried *(I/O)* -> unaltered *(pure)* -> confirmed by its digest -> sent
//! *(I/O)*
//!
//! **Invariant:** the change that is sent has the digest that was confirmed. The confirmation also has the name of a
//! new run, so one confirmation creates one run.

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
use openidconnect::CsrfToken;
use serde::Deserialize;
use serde_json::{Value, json};
use signoff_api::{Digest, Workflow, workflow::WorkflowPhase};
use signoff_review::{
    run::Repetition,
    run_change::{NotCopied, RunChange, altered, copy, copy_name, is_copy_name, is_same_run, phase},
    text::one_line,
    voter::Me,
};

use super::{
    address::Address,
    confirm_change::{ConfirmChange, NewRun, Repeated},
    read,
};
use crate::{
    error::PageError,
    page::{self, Shell},
    rights::{Right, has},
    session::Caller,
    state::PageState,
};

/// The field manager of the changes of the page.
const MANAGER: &str = "signoff-web";

/// A verb of the page for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageVerb {
    /// A change of a field of the run.
    Change(RunChange),
    /// A new run from the spec of this one.
    Rerun,
}

impl PageVerb {
    const ALL: [Self; 4] = [
        Self::Change(RunChange::Suspend),
        Self::Change(RunChange::Resume),
        Self::Change(RunChange::Cancel),
        Self::Rerun,
    ];

    /// Returns the word on the button, which is also its value in the form.
    pub fn word(self) -> &'static str {
        match self {
            Self::Change(RunChange::Suspend) => "Suspend",
            Self::Change(RunChange::Resume) => "Resume",
            Self::Change(RunChange::Cancel) => "Cancel",
            Self::Rerun => "Rerun",
        }
    }

    /// Returns the effect of the verb.
    pub fn effect(self) -> &'static str {
        match self {
            Self::Change(change) => change.effect(),
            Self::Rerun => "a new run begins, with every step of this one; you are its requester",
        }
    }

    /// Returns the CSS class of the button.
    pub fn class(self) -> &'static str {
        if self == Self::Change(RunChange::Cancel) { "danger" } else { "" }
    }
}

/// The verbs that a page offers to its reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// The verbs, in the order of their buttons.
    pub verbs: Vec<PageVerb>,
    /// The reason why Rerun is not offered, although the reader may create runs.
    pub not_rerun: Option<String>,
}

/// The rights of a reader to change a run and to create one.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunRights {
    patch: bool,
    create: bool,
}

impl RunRights {
    /// Asks the API server for the rights of the caller on a run. Sends no request if the page changes no runs.
    pub async fn ask(state: &PageState, client: &Client, address: &Address) -> Self {
        if !state.settings.changes_runs() {
            return Self::default();
        }
        let namespace = Some(address.namespace.as_str());
        let right = |verb, name| Right { verb, resource: "workflows", namespace, name };
        let (patch, create) =
            tokio::join!(has(client, right("patch", Some(address.name.as_str()))), has(client, right("create", None)));
        // A right that could not be checked is not offered, and the page is shown all the same.
        Self { patch: patch == Ok(true), create: create == Ok(true) }
    }

    /// Returns the verbs that have an effect on a run and that the reader may use.
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

/// Returns the calls that a repetition would make again. Segments that could not be read are still in
/// `status.segments`.
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
    /// The name of the new run on the confirmation.
    #[serde(default)]
    name: String,
    #[serde(default)]
    confirmed: String,
}

/// The object that is sent.
#[derive(Clone, Debug)]
enum Sent {
    /// A merge patch, and the run after it.
    Patch(Value, Box<DynamicObject>),
    /// A new run.
    New(Box<DynamicObject>),
}

/// Tries a change of a run and asks for confirmation, or sends a confirmed one.
///
/// # Errors
/// As every request; and a change without effect, or one that this page does not offer.
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
    let sent = propose(verb, &run, &caller.me, &form.name)?;
    let warning = match verb {
        PageVerb::Rerun => repetition_warning(&caller.client, &address, &uid).await?,
        PageVerb::Change(_) => None,
    };
    let tried = match sent.send(&api, &address.name, true).await {
        Ok(tried) => tried,
        Err(error) => return show_existing_run(&caller, &api, &address, &sent, error).await,
    };
    if let Some(fields) = altered(sent.object(), &tried) {
        let why = format!("a webhook or a mutating policy of this cluster would change {fields}");
        let then = "so it would not be the run of this page; tell the administrators of the cluster";
        return Err(PageError::Refused(format!("nothing was sent: {why}, {then}")));
    }
    let confirmed = sent.digest(&caller.me, &uid)?;
    if form.confirmed != confirmed {
        let differs = !form.confirmed.is_empty();
        let status = if differs { StatusCode::CONFLICT } else { StatusCode::OK };
        let new = match &sent {
            Sent::New(new) => Some(NewRun::of(new, &run)?),
            Sent::Patch(..) => None,
        };
        let page = ConfirmChange {
            shell: Shell::of(&caller, &format!("{} run {name}", verb.word()), "runs"),
            run: address.run(),
            new,
            name: address.name,
            namespace: address.namespace,
            verb,
            warning,
            uid,
            confirmed,
            differs,
        };
        return Ok(page::kept((status, page::html(&page)).into_response()));
    }
    let stored = match sent.send(&api, &address.name, false).await {
        Ok(stored) => stored,
        Err(error) => {
            return show_existing_run(&caller, &api, &address, &sent, error).await.map_err(as_unknown_outcome);
        }
    };
    let shown = match &sent {
        Sent::Patch(..) => address,
        Sent::New(_) => Address::of(&namespace, stored.metadata.name.as_deref().unwrap_or_default())?,
    };
    if let Some(fields) = altered(sent.object(), &stored) {
        let why = "the run is stored, and not as it was confirmed: something else changed";
        return Err(PageError::Changed(format!(
            "{why} {fields}; see run {}, and tell the administrators of the cluster",
            shown.name
        )));
    }
    Ok(Redirect::to(&shown.run()).into_response())
}

/// Returns the API of the Workflows in the namespace of a run. The objects keep fields that this version does not know.
fn runs(client: &Client, address: &Address) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &address.namespace, &ApiResource::erase::<Workflow>(&()))
}

/// Returns the object that a change sends, or the error of a change without effect. `confirmed_name`: the confirmed
/// name of the new run, or an empty text.
fn propose(verb: PageVerb, run: &DynamicObject, me: &Me, confirmed_name: &str) -> Result<Sent, PageError> {
    let name = || format!("run {}", one_line(run.metadata.name.as_deref().unwrap_or_default(), 253));
    match verb {
        PageVerb::Change(change) => {
            let phase = phase(run);
            if phase.is_end() {
                let why = "has ended meanwhile";
                return Err(PageError::Changed(format!("nothing was sent: {} {why} ({})", name(), phase.name())));
            }
            if let Some(why) = change.refusal(run) {
                return Err(PageError::Changed(format!("nothing was sent: {} {why}", name())));
            }
            if change.is_done(run) {
                return Err(PageError::Changed(format!("{} is {} already", name(), change.done())));
            }
            let mut patch = change.patch();
            // With its uid the patch cannot change another run of the same name.
            patch["metadata"] = json!({"uid": run.metadata.uid});
            Ok(Sent::Patch(patch, Box::new(change.changed(run))))
        }
        PageVerb::Rerun => {
            let mut new = copy(run, me).map_err(copy_error)?;
            let name = if confirmed_name.is_empty() {
                copy_name(&new, CsrfToken::new_random().secret())
            } else if is_copy_name(&new, confirmed_name) {
                confirmed_name.to_owned()
            } else {
                return Err(PageError::Bad("the new run cannot have this name: see the page of the run".to_owned()));
            };
            new.metadata.name = Some(name);
            Ok(Sent::New(Box::new(new)))
        }
    }
}

/// Returns the error of the page for a run that cannot be copied.
fn copy_error(why: NotCopied) -> PageError {
    match &why {
        NotCopied::TooManyRequesters(name) => PageError::Refused(format!(
            "nothing was sent: run {name} and those that it repeats have too many requesters; a new run could not name them all"
        )),
        NotCopied::NoSpec(_) | NotCopied::Invalid { .. } => PageError::Unreadable(why.to_string()),
    }
}

/// Returns the page for a confirmation that was sent twice, if the error says that the new run exists already.
/// Otherwise returns the error.
async fn show_existing_run(
    caller: &Caller,
    api: &Api<DynamicObject>,
    address: &Address,
    sent: &Sent,
    error: kube::Error,
) -> Result<Response, PageError> {
    let Sent::New(new) = sent else { return Err(error.into()) };
    if !matches!(&error, kube::Error::Api(status) if status.code == 409) {
        return Err(error.into());
    }
    let name = new.metadata.name.clone().unwrap_or_default();
    let stored = api.get(&name).await?;
    if !is_same_run(new, &stored) {
        return Err(PageError::Changed(format!(
            "nothing was created: another run has the name {name} by now; go back to the run, and choose Rerun again"
        )));
    }
    let address = Address::of(&address.namespace, &name)?;
    let shell = Shell::of(caller, &format!("Run {name}"), "runs");
    Ok(page::kept(page::html(&Repeated { shell, run: address.run(), name })))
}

/// Returns a warning about calls that a repetition would make again, or an error if the run cannot be repeated.
async fn repetition_warning(client: &Client, address: &Address, uid: &str) -> Result<Option<String>, PageError> {
    let workflow = read::fetch_with_journal(client, address).await?;
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
        None => Ok(warning(phase, repetition.warning())),
    }
}

/// Returns the warning above a repetition, if the run has succeeded or calls are made again. `again`: the sentence
/// about the repeated calls.
fn warning(phase: WorkflowPhase, again: Option<String>) -> Option<String> {
    let succeeded = (phase == WorkflowPhase::Succeeded).then(|| "this run has succeeded already".to_owned());
    let sentences: Vec<_> = succeeded.into_iter().chain(again).collect();
    (!sentences.is_empty()).then(|| sentences.join("; "))
}

/// Returns the error of a sent change. If the API server did not answer, the error says that the outcome is unknown,
/// because the change may be stored.
fn as_unknown_outcome(error: PageError) -> PageError {
    match error {
        PageError::Away(why) => PageError::Unknown(format!(
            "it is not known whether this was done ({why}): go back and confirm it again, which does nothing a second time"
        )),
        other => other,
    }
}

impl Sent {
    /// Returns the run as it is stored unless a webhook or a policy changes it.
    fn object(&self) -> &DynamicObject {
        match self {
            Self::Patch(_, changed) => changed,
            Self::New(new) => new,
        }
    }

    /// Returns the digest of the change: of the user, the run, the name of a new run, and the content.
    fn digest(&self, me: &Me, uid: &str) -> Result<String, PageError> {
        let content = match self {
            Self::Patch(patch, _) => patch.clone(),
            Self::New(new) => json!({"name": new.metadata.name, "run": new.data}),
        };
        let confirmed = json!({"user": me.user, "run": uid, "sent": content});
        let digest = Digest::of(&confirmed).map_err(|error| PageError::Internal(error.to_string()))?;
        Ok(digest.to_string())
    }

    /// Sends the change to the API server. `dry_run`: the change is only tried.
    async fn send(&self, api: &Api<DynamicObject>, run: &str, dry_run: bool) -> Result<DynamicObject, kube::Error> {
        let manager = Some(MANAGER.to_owned());
        match self {
            Self::Patch(patch, _) => {
                let options = PatchParams { dry_run, field_manager: manager, ..PatchParams::default() };
                api.patch(run, &options, &Patch::Merge(patch)).await
            }
            Self::New(new) => {
                let options = PostParams { dry_run, field_manager: manager };
                api.create(&options, new).await
            }
        }
    }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
