//! A decision as it is sent: made of what was typed, tried at the API server, recorded, and compared with what is stored.
//!
//! **Invariant:** an entry is made only for the digest that was shown, and what is stored is compared with it.

use http::StatusCode;
use kube::api::PatchParams;
use signoff_api::Approval;
use signoff_cluster::{
    metrics::RequestMetrics,
    watch::{WatchEvent, follow_selected},
};
use signoff_review::{
    entry::{self, Entry, TAMPERED, TAMPERED_REMEDY},
    foreseen::{self, Reached},
    record::record,
    refusal,
    seen::Seen,
    state::{DecisionState, level, state as state_of},
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

/// The time in which the operator usually counts a decision.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
/// The channel that the API server vouches for where the page impersonates.
const CHANNEL: &str = "web";

/// The reason why nothing is sent, shown where what was typed still is.
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

/// Returns the entry that was typed.
pub(crate) fn entry(state: &PageState, caller: &Caller, read: &Read, typed: &Typed) -> Result<Entry, NotSent> {
    let request = &read.seen.approval.spec.request;
    if typed.get("digest") != Some(request.digest.to_string().as_str()) {
        return Err(NotSent::changed("this request is not the one that you read: it has changed. Read it again"));
    }
    read.verified().map_err(|problem| NotSent::changed(problem.to_string()))?;
    let reviewed = model::reviewed(read);
    let mut decision = typed::decision(typed, request, reviewed.as_deref()).map_err(NotSent::wrong)?;
    // Without the whole it is not known what was changed.
    if decision.parameters.is_some() && reviewed.is_none() && is_edit_cut(request) {
        let why = "the whole of what you change cannot be read now: try again, or give another verdict";
        return Err(NotSent::wrong(Problems::of_form(why)));
    }
    if let Some(problems) = typed::reason_problem(&read.seen, &decision) {
        return Err(NotSent::wrong(problems));
    }
    decision.channel = (state.settings.auth != Auth::PassThrough).then(|| CHANNEL.to_owned());
    Entry::new(decision, None, &read.seen.approval, &caller.me)
        .map_err(|error| NotSent::wrong(Problems::of_form(format!("this decision cannot be sent: {error}"))))
}

/// Sends the decision of a caller on one Approval.
pub(crate) struct Sender<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Sender<'_> {
    /// Tries an entry at the API server, and returns what it would come to.
    pub(crate) async fn attempt(
        &self,
        state: &PageState,
        read: &Read,
        entry: &Entry,
    ) -> Result<Result<Reached, NotSent>, PageError> {
        let request = &read.seen.approval.spec.request;
        let with = foreseen::with(&read.seen.approval, entry);
        let counted = state.counter.count(&with, read.at).await;
        let unusable = match &counted {
            Ok(status) => foreseen::unusable(status, entry),
            Err(why) => Some(why.to_string()),
        };
        let fields = typed::fields(request);
        let placed = unusable.map(|why| Problems::placed(&why, &fields));
        // The API server is asked first: where a policy has a sentence for it, that one is said.
        let problems = match self.send(entry, &read.seen, true).await {
            // Of a field that the form has, the same is said there.
            Err(PageError::Refused(why)) => Some(
                placed
                    .filter(Problems::are_of_fields)
                    .unwrap_or_else(|| Problems::placed(&self.refused(read, entry, why), &fields)),
            ),
            Err(other) => return Err(other),
            Ok(_) => placed,
        };
        let reached = || foreseen::reached(&with, counted.as_ref().ok(), entry);
        Ok(problems.map_or_else(|| Ok(reached()), |problems| Err(NotSent::wrong(problems))))
    }

    /// Sends a confirmed entry, compares what is stored, and waits for a moment until it is counted. Returns the Approval as it is then.
    pub(crate) async fn record(&self, read: &Read, entry: &Entry) -> Result<Result<Approval, NotSent>, PageError> {
        let stored = match self.send(entry, &read.seen, false).await {
            Err(PageError::Refused(why)) => {
                let why = self.refused(read, entry, why);
                return Ok(Err(NotSent::wrong(Problems::of_form(why))));
            }
            // It may have been stored all the same.
            Err(PageError::Away(why)) => self.stored_or_unknown(entry, &why).await?,
            other => other?,
        };
        let differences = entry::differences(entry, stored.stored(&entry.key), &self.caller.me);
        if !differences.is_empty() {
            let shown: Vec<_> = differences.iter().map(|one| one_line(one, 1000)).collect();
            return Err(PageError::Changed(format!("{TAMPERED}: {}. {TAMPERED_REMEDY}", shown.join("; "))));
        }
        Ok(Ok(self.counted_or_late(&read.seen.approval, stored.approval, entry).await))
    }

    /// After an answer that did not come: returns what is stored, if the entry is.
    async fn stored_or_unknown(&self, entry: &Entry, why: &str) -> Result<Seen, PageError> {
        match read::approval(&self.caller.client, self.namespace, self.name).await {
            Ok(seen) if seen.stored(&entry.key).is_some() => Ok(seen),
            _ => Err(PageError::Unknown(format!(
                "it is not known whether your decision was recorded ({why}): read the request again before you decide again"
            ))),
        }
    }

    /// A refusal in words about the gate, or the policy's own sentence.
    fn refused(&self, read: &Read, entry: &Entry, why: String) -> String {
        refusal::explain(&read.seen, &self.caller.me, &entry.decision, read.at)
            .map_or(why, |refusal| refusal.to_string())
    }

    async fn send(&self, entry: &Entry, seen: &Seen, dry_run: bool) -> Result<Seen, PageError> {
        let options = PatchParams { dry_run, field_manager: Some("signoff-web".to_owned()), ..PatchParams::default() };
        let api = read::approvals(&self.caller.client, self.namespace);
        let stored = record(&api, seen, entry, &options).await?;
        Seen::of(&stored).map_err(|why| PageError::Internal(why.to_string()))
    }

    /// Waits until the operator has counted the decision, for a moment: the page that follows then says what it came to.
    async fn counted_or_late(&self, before: &Approval, stored: Approval, entry: &Entry) -> Approval {
        let (sender, mut events) = mpsc::channel(8);
        let fields = Some(format!("metadata.name={}", self.name));
        let (client, place) = (self.caller.client.clone(), Some(self.namespace.to_owned()));
        let level_before = Some(level(before));
        let counted = async {
            while let Some(event) = events.recv().await {
                match event {
                    WatchEvent::Listed(approval) | WatchEvent::Applied(approval)
                        if state_of(&approval, entry, level_before) != DecisionState::Recorded =>
                    {
                        return Some(*approval);
                    }
                    WatchEvent::Deleted(_) | WatchEvent::Broken { .. } => return None,
                    _ => {}
                }
            }
            None
        };
        let found = tokio::select! {
            () = follow_selected::<Approval>(client, place, fields, sender, RequestMetrics::default()) => None,
            found = counted => found,
            () = tokio::time::sleep(PATIENCE) => None,
        };
        found.unwrap_or(stored)
    }
}
