//! `POST …/decide`: first it is tried and shown again, then it is sent.
//!
//! **Invariant:** what is sent is the entry of the caller for the digest that was shown, and what is stored is compared with it.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use http::StatusCode;
use kube::api::{Patch, PatchParams};
use serde_json::Value;
use signoff_api::{Approval, Verdict};
use signoff_cluster::{
    metrics::RequestMetrics,
    watch::{WatchEvent, follow_selected},
};
use signoff_review::{
    entry::{self, Entry, TAMPERED, TAMPERED_REMEDY},
    foreseen::{self, Reached},
    refusal,
    seen::Seen,
    state::{DecisionState, level, state as state_of},
    text::one_line,
};
use similar::{ChangeTag, TextDiff};
use tokio::sync::mpsc;

use super::{
    model::{self, ApprovalPage},
    read::{self, Read},
    typed::{self, Problems, Typed},
};
use crate::{
    error::PageError,
    page::{self, Shell},
    session::Caller,
    state::PageState,
};

/// The time in which the operator usually counts a decision.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

#[derive(Template)]
#[template(path = "confirm.html")]
struct Confirm {
    shell: Shell,
    namespace: String,
    name: String,
    verdict: &'static str,
    target: String,
    workflow: String,
    digest: String,
    comes_to: String,
    changes: Vec<Change>,
    reason: Option<String>,
    said: Vec<(String, String)>,
    fields: Vec<(String, String)>,
}

/// The difference of one parameter, by lines.
struct Change {
    name: String,
    lines: Vec<(&'static str, &'static str, String)>,
}

/// Tries a decision and asks for confirmation, or sends a confirmed one.
///
/// # Errors
/// As every request. A refusal, and what was typed wrong, is shown on the page of the request.
pub async fn decide(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, PageError> {
    let typed = Typed(fields);
    let read = Read::fetch(&state, &caller, &namespace, &name).await?;
    let again = |problems: Problems, status: StatusCode| {
        let mut response = page::html(&ApprovalPage::of(&caller, &read, &typed, &problems));
        *response.status_mut() = status;
        response
    };
    let request = &read.seen.approval.spec.request;
    if typed.get("digest") != Some(request.digest.to_string().as_str()) {
        let why =
            "this request is not the one that you read: it has changed. Read it again; what you typed is still here";
        return Ok(again(Problems::of_form(why), StatusCode::CONFLICT));
    }
    if let Some(why) = read.seen.digest_problem().or_else(|| model::mismatch(&read.whole)) {
        return Ok(again(Problems::of_form(why), StatusCode::CONFLICT));
    }
    let reviewed = model::reviewed(&read);
    let decision = match typed::decision(&typed, request, reviewed.as_deref()) {
        Ok(decision) => decision,
        Err(problems) => return Ok(again(problems, StatusCode::UNPROCESSABLE_ENTITY)),
    };
    if let Some(problems) = typed::reason_problem(&read.seen, &decision) {
        return Ok(again(problems, StatusCode::UNPROCESSABLE_ENTITY));
    }
    let entry = Entry::new(decision, None, &read.seen.approval, &caller.me);
    let entry = entry.map_err(|error| PageError::Bad(format!("this decision cannot be sent: {error}")))?;
    let counted = state.counter.count(&foreseen::with(&read.seen.approval, &entry), read.at).await;
    let unusable = match &counted {
        Ok(status) => foreseen::unusable(status, &entry),
        Err(why) => Some(why.to_string()),
    };
    // The API server is asked first: where a policy has a sentence for it, that one is said.
    let sent = send(&caller, &namespace, &name, &entry, &read.seen, true).await;
    let fields = typed::fields(request);
    let placed = unusable.as_ref().map(|why| Problems::placed(why, &fields));
    let tried = match sent {
        // Of a field that the form has, the same is said there.
        Err(PageError::Refused(why)) => Err(placed
            .filter(Problems::are_of_fields)
            .unwrap_or_else(|| Problems::placed(&refused(&read, &caller, &entry, why), &fields))),
        Err(other) => return Err(other),
        Ok(_) => placed.map_or(Ok(()), Err),
    };
    if let Err(problems) = tried {
        return Ok(again(problems, StatusCode::UNPROCESSABLE_ENTITY));
    }
    if typed.get("confirmed") != Some("yes") {
        let reached = foreseen::reached(request, counted.as_ref().ok(), &entry);
        return Ok(page::html(&confirm(&caller, &read, &entry, &reached, &typed)));
    }
    let stored = match send(&caller, &namespace, &name, &entry, &read.seen, false).await {
        Err(PageError::Refused(why)) => {
            let why = refused(&read, &caller, &entry, why);
            return Ok(again(Problems::of_form(why), StatusCode::UNPROCESSABLE_ENTITY));
        }
        other => other?,
    };
    let differences = entry::differences(&entry, stored.stored(&entry.key), &caller.me);
    if !differences.is_empty() {
        let shown: Vec<_> = differences.iter().map(|one| one_line(one, 1000)).collect();
        return Err(PageError::Changed(format!("{TAMPERED}: {}. {TAMPERED_REMEDY}", shown.join("; "))));
    }
    counted_or_late(&caller, &namespace, &name, &read.seen.approval, &entry).await;
    Ok(Redirect::to(&model::path(&namespace, &name)).into_response())
}

/// A refusal in words about the gate, or the policy's own sentence.
fn refused(read: &Read, caller: &Caller, entry: &Entry, why: String) -> String {
    refusal::explain(&read.seen, &caller.me, &entry.decision, read.at).map_or(why, |refusal| refusal.to_string())
}

async fn send(
    caller: &Caller,
    namespace: &str,
    name: &str,
    entry: &Entry,
    seen: &Seen,
    dry_run: bool,
) -> Result<Seen, PageError> {
    let patch = entry::patch(entry, seen.stored(&entry.key)).map_err(|error| PageError::Bad(error.to_string()))?;
    let options = PatchParams { dry_run, field_manager: Some("signoff-web".to_owned()), ..PatchParams::default() };
    let stored = read::approvals(&caller.client, namespace).patch(name, &options, &Patch::Merge(&patch)).await?;
    Seen::of(&stored).map_err(|why| PageError::Internal(why.to_string()))
}

/// Waits until the operator has counted the decision, for a moment: the page that follows then says what it came to.
async fn counted_or_late(caller: &Caller, namespace: &str, name: &str, before: &Approval, entry: &Entry) {
    let (sender, mut events) = mpsc::channel(8);
    let fields = Some(format!("metadata.name={name}"));
    let (client, place) = (caller.client.clone(), Some(namespace.to_owned()));
    let level_before = Some(level(before));
    let counted = async {
        while let Some(event) = events.recv().await {
            match event {
                WatchEvent::Listed(approval) | WatchEvent::Applied(approval)
                    if state_of(&approval, entry, level_before) != DecisionState::Recorded =>
                {
                    return;
                }
                WatchEvent::Deleted(_) | WatchEvent::Broken { .. } => return,
                _ => {}
            }
        }
    };
    tokio::select! {
        () = follow_selected::<Approval>(client, place, fields, sender, RequestMetrics::default()) => {}
        () = counted => {}
        () = tokio::time::sleep(PATIENCE) => {}
    }
}

fn confirm(caller: &Caller, read: &Read, entry: &Entry, reached: &Reached, typed: &Typed) -> Confirm {
    let request = &read.seen.approval.spec.request;
    let metadata = &read.seen.approval.metadata;
    let verdict = entry.decision.verdict;
    let (namespace, name) = (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
    let mut said = Vec::new();
    said.extend(entry.decision.guidance.clone().map(|text| ("Guidance".to_owned(), text)));
    for (id, answer) in entry.decision.answers.iter().flatten() {
        let text = answer.options.iter().cloned().chain(answer.text.clone()).collect::<Vec<_>>().join("\n");
        said.push((format!("Answer {id}"), text));
    }
    if !entry.decision.escalate_to.is_empty() {
        said.push(("To".to_owned(), signoff_review::quorum::subjects(&entry.decision.escalate_to)));
    }
    Confirm {
        shell: Shell::of(caller, &format!("Confirm {verdict}"), "inbox"),
        target: model::target(request),
        workflow: request.workflow.name.clone(),
        digest: request.digest.to_string(),
        verdict: verdict.name(),
        comes_to: model::comes_to(request, verdict, reached),
        changes: changes(request, entry, model::reviewed(read).as_deref()),
        reason: entry.decision.reason.clone(),
        said,
        fields: typed.0.iter().filter(|(name, _)| name != "confirmed").cloned().collect(),
        namespace,
        name,
    }
}

fn changes(request: &signoff_api::ApprovalRequest, entry: &Entry, reviewed: Option<&str>) -> Vec<Change> {
    let Some(parameters) = &entry.decision.parameters else { return Vec::new() };
    let shown = typed::parameters_of(request, entry.decision.verdict, reviewed);
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    };
    let one = |(name, after): (&String, &Value)| {
        let is_retry = entry.decision.verdict == Verdict::Retry;
        let before =
            shown.iter().find(|one| one.name == *name && !is_retry).map(typed::Parameter::text).unwrap_or_default();
        Change { name: name.clone(), lines: difference(&before, &text(after)) }
    };
    parameters.0.iter().map(one).collect()
}

/// The lines of a difference: a class, a sign, and the line. Long parts without a change are left out.
fn difference(before: &str, after: &str) -> Vec<(&'static str, &'static str, String)> {
    let shown = |line: &str| signoff_expr::text::display(line.trim_end_matches('\n'), 4096);
    let difference = TextDiff::from_lines(before, after);
    let mut lines = Vec::new();
    for (at, group) in difference.grouped_ops(3).iter().enumerate() {
        if at > 0 {
            lines.push(("gap", "", "⋯".to_owned()));
        }
        for change in group.iter().flat_map(|op| difference.iter_changes(op)) {
            let (class, sign) = match change.tag() {
                ChangeTag::Equal => ("same", " "),
                ChangeTag::Delete => ("gone", "−"),
                ChangeTag::Insert => ("new", "+"),
            };
            lines.push((class, sign, shown(change.value())));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_goes_and_what_comes() {
        let lines = difference("a\nb\nc\n", "a\nx\nc\n");
        let shown: Vec<_> = lines.iter().map(|(class, _, line)| (*class, line.as_str())).collect();
        assert_eq!(shown, [("same", "a"), ("gone", "b"), ("new", "x"), ("same", "c")]);
    }

    #[test]
    fn a_difference_shows_characters_that_hide() {
        let lines = difference("a\n", "a\u{202e}\n");
        assert!(lines.iter().any(|(_, _, line)| line.contains("U+202E")), "{lines:?}");
    }
}
