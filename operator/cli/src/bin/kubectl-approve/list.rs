//! `list`: the Approvals that wait for whoever asks, soonest deadline first.
//!
//! **Invariant:** it leaves out only what `signoff_engine::approval::eligibility` says the user cannot decide.

use signoff_api::{Approval, Moment, Verdict, approval::ApprovalPhase};
use signoff_engine::approval::eligibility::ineligible;

use crate::{
    args::{Form, List},
    client::{Me, Seen, Session},
    clock,
    error::Failure,
    sanitize::{self, hides, one_line},
    table::fitted,
    terminal,
};

/// The ends, which a list of what can still be decided need not even fetch.
const ENDS: [ApprovalPhase; 11] = [
    ApprovalPhase::Approved,
    ApprovalPhase::Rejected,
    ApprovalPhase::Modified,
    ApprovalPhase::Responded,
    ApprovalPhase::Deferred,
    ApprovalPhase::Skipped,
    ApprovalPhase::Aborted,
    ApprovalPhase::Retried,
    ApprovalPhase::Expired,
    ApprovalPhase::Cancelled,
    ApprovalPhase::Superseded,
];

/// The columns that a narrow terminal lacks, in this order.
const DROPPABLE: [&str; 6] = ["AGE", "WORKFLOW", "VOTES", "GATE", "PROMPT", "PHASE"];

/// Fetches the list and returns it in the form that was asked for. An empty table is a note instead.
///
/// # Errors
/// As every request.
pub async fn list(session: &Session, options: &List) -> Result<String, Failure> {
    let page = page(session, options).await?;
    page.note.iter().for_each(|note| terminal::note(note));
    Ok(page.text)
}

/// A list as it is printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The result.
    pub text: String,
    /// The sentence that is printed instead of an empty table.
    pub note: Option<String>,
}

/// Fetches the list and returns it, printing nothing but what cannot be read.
///
/// # Errors
/// As every request.
pub async fn page(session: &Session, options: &List) -> Result<Page, Failure> {
    let fields = if options.all { String::new() } else { still_open() };
    let ((mut found, unreadable), me) = tokio::try_join!(session.list(options.all_namespaces, &fields), session.me())?;
    for problem in unreadable {
        terminal::note(&problem);
    }
    let now = clock::now();
    if !options.all {
        found.retain(|seen| ineligible(&seen.approval, &me.voter(), now).is_none());
    }
    found.sort_by_cached_key(|seen| {
        (seen.approval.deadline(), seen.approval.metadata.namespace.clone(), seen.approval.metadata.name.clone())
    });
    if found.is_empty() && !matches!(options.output, Some(Form::Json | Form::Yaml)) {
        return Ok(Page { note: Some(nothing(session, options, &me)), ..Page::default() });
    }
    let text = match options.output {
        None => rows(&found, options.all_namespaces, false, now, terminal::width()),
        Some(Form::Wide) => rows(&found, options.all_namespaces, true, now, None),
        Some(Form::Name) => {
            found.iter().map(|seen| format!("approval.signoff.dev/{}\n", name(&seen.approval))).collect()
        }
        Some(Form::Json) => json(&found)?,
        Some(Form::Yaml) => yaml(&found)?,
    };
    Ok(Page { text, note: None })
}

/// The field selector for what has not ended.
pub fn still_open() -> String {
    ENDS.map(|phase| format!("status.phase!={}", phase.name())).join(",")
}

fn nothing(session: &Session, options: &List, me: &Me) -> String {
    let place = if options.all_namespaces {
        "any namespace".to_owned()
    } else {
        format!("namespace {}", one_line(&session.namespace, 63))
    };
    if options.all {
        return format!("There are no approvals in {place}.");
    }
    format!(
        "No approvals wait for {} in {place} (--all lists those of others and those already decided).",
        one_line(&me.user, 253)
    )
}

/// Renders the table. `width`: the columns of the terminal, if it must fit one.
fn rows(found: &[Seen], namespaces: bool, wide: bool, now: Moment, width: Option<usize>) -> String {
    let mut headers = Vec::new();
    headers.extend(namespaces.then_some("NAMESPACE"));
    headers.extend(["NAME", "WORKFLOW", "GATE", "PHASE", "VOTES", "DEADLINE", "AGE"]);
    headers.extend(wide.then_some(["REQUESTER", "APPROVERS", "VERDICTS", "DIGEST"]).into_iter().flatten());
    headers.push("PROMPT");
    let rows = found.iter().map(|seen| row(&seen.approval, namespaces, wide, now)).collect();
    fitted(&headers, rows, width, &DROPPABLE)
}

fn row(approval: &Approval, namespaces: bool, wide: bool, now: Moment) -> Vec<String> {
    let request = &approval.spec.request;
    let mut cells = Vec::new();
    if namespaces {
        cells.push(approval.metadata.namespace.clone().unwrap_or_default());
    }
    let tally = approval.status.as_ref().and_then(|status| status.tally).unwrap_or_default();
    let age = approval.metadata.creation_timestamp.as_ref().map(|at| clock::length(now.since(Moment::from(at.0))));
    let phase = approval.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let deadline = if phase.is_end() { "-".to_owned() } else { clock::distance(approval.deadline(), now) };
    cells.extend([
        name(approval),
        one_line(&request.workflow.name, 63),
        one_line(&request.gate.path, 80),
        phase.name().to_owned(),
        format!("{}/{}", tally.have, request.threshold()),
        deadline,
        age.unwrap_or_default(),
    ]);
    if wide {
        let approvers: Vec<_> = approval.approvers().iter().map(ToString::to_string).collect();
        let verdicts: Vec<_> = request.allowed_verdicts.iter().copied().map(Verdict::name).collect();
        cells.extend([
            one_line(&request.requested_by, 80),
            one_line(&approvers.join(","), 120),
            verdicts.join(","),
            format!("sha256:{}", request.digest.short(12)),
        ]);
    }
    cells.push(one_line(&request.prompt, if wide { 120 } else { 48 }));
    cells
}

fn name(approval: &Approval) -> String {
    approval.metadata.name.clone().unwrap_or_default()
}

fn document(found: &[Seen]) -> serde_json::Value {
    let items: Vec<_> = found.iter().map(|seen| &seen.raw).collect();
    serde_json::json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

fn json(found: &[Seen]) -> Result<String, Failure> {
    sanitize::json(&document(found)).map_err(|error| Failure::Other(error.to_string()))
}

fn yaml(found: &[Seen]) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(&document(found)).map_err(|error| Failure::Other(error.to_string()))?;
    // YAML's plain and block styles have no escapes. JSON is YAML too, and has.
    if hides(&text) { json(found) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample;

    fn seen(prompt: &str) -> Seen {
        let mut approval = sample::approval();
        approval.spec.request.prompt = prompt.to_owned();
        approval.metadata.name = Some("refund-4711-review-0a1b2c3d4e".into());
        Seen { raw: serde_json::to_value(&approval).unwrap(), approval }
    }

    #[test]
    fn the_table_looks_as_kubectls_does() {
        let shown = rows(&[seen("Send this letter to ACME?")], false, false, sample::now(), None);
        assert_eq!(
            shown,
            "NAME                            WORKFLOW      GATE     PHASE     VOTES   DEADLINE   AGE   PROMPT\n\
             refund-4711-review-0a1b2c3d4e   refund-4711   review   Pending   0/1     in 23h     30m   Send this letter to ACME?\n"
        );
    }

    #[test]
    fn the_table_fits_a_narrow_terminal_and_keeps_names_whole() {
        let shown = rows(&[seen("Send this letter to ACME?")], false, false, sample::now(), Some(80));
        assert_eq!(
            shown,
            "NAME                            GATE     PHASE     DEADLINE   PROMPT\n\
             refund-4711-review-0a1b2c3d4e   review   Pending   in 23h     Send this letter…\n"
        );
    }

    #[test]
    fn the_wide_table_says_who_and_what() {
        let shown = rows(&[seen("Send?")], true, true, sample::now(), None);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(lines[0][..2], ["NAMESPACE", "NAME"]);
        assert_eq!(
            lines[1][8..11],
            ["dana@example.com", "alice@example.com,group finance", "Approve,Reject,Modify,Abort"]
        );
    }

    #[test]
    fn a_hostile_prompt_makes_no_second_row_and_no_colour() {
        let shown = rows(&[seen("x\nfake-row   done\u{1b}[31m\u{202e}")], false, false, sample::now(), None);
        assert_eq!(shown.lines().count(), 2);
        assert!(shown.contains("x fake-row   done[31m⟨U+202E⟩") && !shown.contains('\u{1b}'));
    }

    #[test]
    fn machine_readable_forms_keep_the_object_and_hide_nothing() {
        let plain = [seen("Send?")];
        let back: serde_json::Value = serde_saphyr::from_str(&yaml(&plain).unwrap()).unwrap();
        assert_eq!(back, document(&plain));
        assert!(yaml(&plain).unwrap().starts_with("apiVersion: v1\nkind: List\n"));
        let hostile = [seen("a\u{202e}b\u{9b}c")];
        for text in [yaml(&hostile).unwrap(), json(&hostile).unwrap()] {
            assert!(!hides(&text), "{text}");
            assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&text).unwrap(), document(&hostile));
        }
    }

    #[test]
    fn every_end_is_left_out_by_the_selector() {
        assert!(ENDS.iter().all(|phase| phase.is_end()));
        assert!(still_open().starts_with("status.phase!=Approved,status.phase!=Rejected,"));
    }
}
