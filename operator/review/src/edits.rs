//! The changes of people to the reviewed text of a request: the people, the gate, and the text before each change
//! *(I/O)*.
//!
//! **Invariant:** a text is shown as an original only if it has the digest that the request names.

use std::collections::BTreeSet;

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use signoff_api::{
    Approval, ApprovalRequest, Digest, Outcome, Verdict,
    approval::{Edit, Review},
    names,
};
use similar::TextDiff;

use crate::{
    seen::Seen,
    text::one_line,
    whole::{WholeTextError, edited_call, is_review_cut, value},
};

/// The heading of the changes.
pub const CHANGES: &str = "Changes by people, newest first";
/// The name of a text before a change in errors.
const ORIGINAL: &str = "the text before a change";
/// The most edits in a heading.
const IN_HEADING: usize = 2;
/// The most lines of a difference.
const MOST_LINES: usize = 200;

/// Returns the people who changed a reviewed text, as the end of its heading; empty if it was not changed.
pub fn heading(review: &Review) -> String {
    let mut named: Vec<_> = review.by.iter().take(IN_HEADING).map(person_and_gate).collect();
    // The same people can have changed it twice at the same gate.
    named.dedup();
    if named.is_empty() {
        return String::new();
    }
    let more = match review.by.len().saturating_sub(IN_HEADING) {
        0 => String::new(),
        more => format!(" and {more} more times before"),
    };
    format!(", changed by {}{more}", named.join(" and by "))
}

/// Returns each edit as a line of facts, newest first.
pub fn lines(review: &Review) -> Vec<String> {
    review.by.iter().map(line).collect()
}

/// Returns an edit as a line: the people, the gate, the verdict, the time, and the digest of the text before.
pub fn line(edit: &Edit) -> String {
    let path = if edit.path == edit.gate { String::new() } else { format!(" ({})", one_line(&edit.path, 512)) };
    let (at, original) = (edit.at.ceil_to_second(), &edit.original);
    format!("{}{path}, {}, {at}; before: {original}", person_and_gate(edit), edit.verdict)
}

/// A text that a decision replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced<'r> {
    /// The text, or its beginning.
    pub text: &'r str,
    /// The digest of the whole text.
    pub digest: Digest,
    /// Whether the request has only a part of the text.
    pub is_cut: bool,
}

/// Returns the text that a Modify replaced: at a gate about a failure the text that was sent, otherwise the reviewed
/// text.
pub fn replaced<'r>(outcome: &Outcome, request: &'r ApprovalRequest) -> Option<Replaced<'r>> {
    if outcome.verdict != Some(Verdict::Modify) {
        return None;
    }
    if let Some(sent) = edited_call(request) {
        return Some(Replaced { text: &sent.text, digest: sent.digest(), is_cut: sent.ref_.is_some() });
    }
    let review = request.reviews.as_ref()?;
    Some(Replaced { text: &review.response, digest: review.digest.clone(), is_cut: is_review_cut(request) })
}

/// Returns the people and the gate of an edit: `bob@example.com at gate sql`.
fn person_and_gate(edit: &Edit) -> String {
    let people = match edit.by.as_slice() {
        [] => "a deadline".to_owned(),
        people => people.iter().map(|name| one_line(name, 253)).collect::<Vec<_>>().join(", "),
    };
    format!("{people} at gate {}", one_line(&edit.gate, 95))
}

/// Fetches the text before each edit of a request, in the order of the edits. An error is the reason why a text cannot
/// be shown.
pub async fn originals(client: &Client, namespace: &str, approval: &Approval) -> Vec<Result<String, String>> {
    let request = &approval.spec.request;
    let edits: Vec<&Edit> = request.reviews.iter().flat_map(|review| &review.by).collect();
    if edits.is_empty() {
        return Vec::new();
    }
    let resource = kube::api::ApiResource::erase::<Approval>(&());
    let approvals = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let listed = match approvals.list(&ListParams::default().labels(&edit_selector(request, &edits))).await {
        Ok(listed) => listed.items,
        Err(error) => {
            let why = format!("{ORIGINAL} cannot be read: {}", one_line(&error.to_string(), 300));
            return edits.iter().map(|_| Err(why.clone())).collect();
        }
    };
    let requests: Vec<_> =
        listed.iter().filter_map(|object| Some(Seen::of(object).ok()?.approval.spec.request)).collect();
    let mut originals = Vec::new();
    for edit in edits {
        originals.push(fetch_original(client, namespace, request, &requests, edit).await);
    }
    originals
}

/// Returns the label selector for the Approvals of the gates at which people made the edits, or for all Approvals of
/// the run if a gate has no valid name.
fn edit_selector(request: &ApprovalRequest, edits: &[&Edit]) -> String {
    let of_run = format!("{}={}", names::LABEL_WORKFLOW_UID, request.workflow.uid);
    // The edit of gates that asked together has their names, separated by commas.
    let gates: BTreeSet<&str> = edits.iter().flat_map(|edit| edit.gate.split(", ")).collect();
    let is_name = |gate: &&str| gate.starts_with(|c: char| c.is_ascii_alphanumeric());
    if gates.iter().all(is_name) {
        let gates: Vec<_> = gates.into_iter().collect();
        return format!("{of_run},{} in ({})", names::LABEL_GATE, gates.join(","));
    }
    of_run
}

async fn fetch_original(
    client: &Client,
    namespace: &str,
    request: &ApprovalRequest,
    requests: &[ApprovalRequest],
    edit: &Edit,
) -> Result<String, String> {
    let mut of_gate = requests.iter().filter(|request| request.gate.path == edit.path);
    match of_gate.find_map(|request| request.shown_text(&edit.original)) {
        Some(Some(text)) => Ok(text.to_owned()),
        Some(None) => {
            let bytes = value(client, namespace, &request.workflow, &edit.original, ORIGINAL).await;
            bytes
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(|error: WholeTextError| error.to_string())
        }
        None => Err(format!("{ORIGINAL} is not there: no request at gate {} shows it", one_line(&edit.gate, 95))),
    }
}

/// Returns the difference that each edit made, in the order of the edits. The newest edit led to the reviewed text,
/// each earlier one to the text before the next edit.
pub fn differences(
    request: &ApprovalRequest,
    reviewed: Option<&str>,
    originals: &[Result<String, String>],
) -> Vec<Result<String, String>> {
    let edits = request.reviews.iter().flat_map(|review| &review.by);
    let mut after = reviewed.map(str::to_owned).ok_or_else(|| "the whole of what is reviewed was not read".to_owned());
    let mut differences = Vec::new();
    for (edit, before) in edits.zip(originals) {
        let difference = match (before, &after) {
            (Ok(before), Ok(after)) => Ok(edit_difference(edit, before, after)),
            (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        };
        differences.push(difference);
        after.clone_from(before);
    }
    differences
}

/// Returns the difference of two texts by lines, cut after [`MOST_LINES`]. `before`, `after`: the texts around the
/// edit.
fn edit_difference(edit: &Edit, before: &str, after: &str) -> String {
    if edit.verdict == Verdict::Modify && before == after {
        return "nothing that is shown here was changed\n".to_owned();
    }
    let text =
        TextDiff::from_lines(before, after).unified_diff().context_radius(3).header("before", "after").to_string();
    let text = text.replace("\\ No newline at end of file\n", "");
    let lines: Vec<_> = text.lines().collect();
    let shown = lines.iter().take(MOST_LINES).map(|line| format!("{line}\n")).collect::<String>();
    match lines.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        Some(more) => format!("{shown}… {more} more lines\n"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample;

    fn edited() -> ApprovalRequest {
        let mut approval = sample::approval();
        approval.spec.request.reviews.as_mut().unwrap().by = sample::edits();
        approval.spec.request
    }

    #[test]
    fn a_heading_names_the_newest_editors_and_lines_name_all() {
        let mut request = edited();
        let review = request.reviews.as_mut().unwrap();
        assert_eq!(
            heading(review),
            ", changed by carol@example.com, dave@example.com at gate style and by bob@example.com at gate sql"
        );
        let before = Digest::of_bytes(sample::BEFORE[1].as_bytes());
        assert_eq!(
            lines(review)[1],
            format!("bob@example.com at gate sql (left/sql), Modify, 2026-11-22T09:00:00Z; before: {before}")
        );
        review.by.extend(sample::edits());
        assert!(heading(review).ends_with("at gate sql and 2 more times before"));
        review.by.truncate(1);
        review.by[0].by.clear();
        assert_eq!(heading(review), ", changed by a deadline at gate style");
        review.by.clear();
        assert_eq!(heading(review), "");
    }

    #[test]
    fn only_the_approvals_of_the_edited_gates_are_listed() {
        let request = edited();
        let mut edits = sample::edits();
        edits[0].gate = "money, guard".to_owned();
        let of_run = format!("signoff.dev/workflow-uid={}", request.workflow.uid);
        let selector_of = |edits: &[Edit]| edit_selector(&request, &edits.iter().collect::<Vec<_>>());
        assert_eq!(selector_of(&edits), format!("{of_run},signoff.dev/gate in (guard,money,sql)"));
        edits[1].gate = ".output".to_owned();
        assert_eq!(selector_of(&edits), of_run);
    }

    #[test]
    fn only_a_modify_has_a_text_before_it() {
        let request = sample::approval().spec.request;
        let replaced_by = |verdict| {
            let outcome = Outcome { verdict: Some(verdict), ..Outcome::default() };
            replaced(&outcome, &request).map(|replaced| replaced.text.to_owned())
        };
        assert_eq!(replaced_by(Verdict::Modify).as_deref(), Some("Dear ACME,\nwe refund 420 EUR."));
        assert_eq!((replaced_by(Verdict::Approve), replaced_by(Verdict::Respond)), (None, None));
    }

    #[test]
    fn each_edit_is_compared_with_what_the_next_one_changed() {
        let request = edited();
        let originals: Vec<_> = sample::BEFORE.iter().map(|text| Ok((*text).to_owned())).collect();
        let reviewed = request.reviews.as_ref().unwrap().response.clone();
        let found = differences(&request, Some(&reviewed), &originals);
        assert_eq!(
            found[0].as_deref().unwrap(),
            "--- before\n+++ after\n@@ -1,2 +1,2 @@\n Dear ACME,\n-we refund 42 EUR.\n+we refund 420 EUR.\n"
        );
        assert!(
            found[1].as_deref().unwrap().contains("-Hi ACME,\n")
                && found[1].as_deref().unwrap().contains("+Dear ACME,\n")
        );
        let gone = [Err("it is gone".to_owned()), originals[1].clone()];
        let found = differences(&request, Some(&reviewed), &gone);
        assert_eq!(
            (found[0].clone().unwrap_err(), found[1].clone().unwrap_err()),
            ("it is gone".into(), "it is gone".into())
        );
        assert!(differences(&request, None, &originals)[0].is_err());
    }

    #[test]
    fn a_long_difference_ends_with_the_number_of_dropped_lines() {
        let edit = &sample::edits()[0];
        let text = edit_difference(edit, &"a\n".repeat(500), &"b\n".repeat(500));
        assert!(text.ends_with("… 803 more lines\n") && text.lines().count() == 201, "{text}");
    }
}
