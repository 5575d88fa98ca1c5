//! `list`: the Approvals that wait for the user, soonest deadline first.
//!
//! **Invariant:** it leaves out only Approvals that the user cannot decide, by `signoff_engine::approval::eligibility`.

pub mod picker;
pub mod watch;

use std::collections::BTreeMap;

use signoff_api::{Approval, ApprovalRequest, ApprovalStatus, Moment, Verdict, approval::ApprovalPhase};
use signoff_cli::{
    sanitize::one_line,
    style::Tone,
    table::{fit, paint},
    terminal,
};
use signoff_engine::approval::eligibility::{allowed_verdicts, ineligible};
use signoff_review::{
    action::{self, is_question, turn_of},
    clock, quorum, request,
    seen::{Seen, sort, still_open},
    voided,
    voter::Me,
};

use crate::{
    args::List,
    cluster::{
        client::{Selection, Session},
        names,
    },
    error::Failure,
    output::Format,
};

/// The columns that a narrow terminal does not show, in the order in which they are dropped.
const DROPPABLE: [&str; 6] = ["AGE", "WORKFLOW", "VOTES", "GATE", "PROMPT", "PHASE"];

/// The longest call before a prompt, in characters of a cell.
const LONGEST_CALL: usize = 40;

/// The most requests of a list whose void votes are fetched.
const MAX_VOIDED: usize = 20;

/// Fetches the list and returns it in the chosen format. Prints a note instead of an empty table.
///
/// # Errors
/// A request fails.
pub async fn list(session: &Session, options: &List) -> Result<String, Failure> {
    let page = fetch_page(session, options).await?;
    page.notices.iter().for_each(|notice| terminal::note(notice));
    page.note.iter().for_each(|note| terminal::note(note));
    Ok(page.text)
}

/// A list as it is printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The text for standard output.
    pub text: String,
    /// The sentence that is printed instead of an empty table.
    pub note: Option<String>,
    /// Notes for the reader: votes are not verified, or the reader's own vote is void.
    pub notices: Vec<String>,
}

/// Fetches the list and returns it. Prints only notes about objects that cannot be read.
///
/// # Errors
/// A request fails.
pub async fn fetch_page(session: &Session, options: &List) -> Result<ListPage, Failure> {
    let fields = if options.all { String::new() } else { still_open() };
    let selection = Selection { everywhere: options.all_namespaces, fields, labels: options.selector.as_deref() };
    let ((mut found, unreadable), me) = tokio::try_join!(session.select(&selection), session.me())?;
    for problem in unreadable {
        terminal::note(&problem);
    }
    let now = clock::now();
    if let Some(run) = &options.run {
        found.retain(|seen| seen.approval.spec.request.workflow.name == *run);
    } else if !options.all {
        found.retain(|seen| ineligible(&seen.approval, &me.voter(), now).is_none());
    }
    sort(&mut found);
    if options.run.is_some() {
        sort_by_turn(&mut found);
    }
    let output = &options.output;
    if found.is_empty() && matches!(output.output, None | Some(Format::Wide | Format::Name)) {
        let hint = match &options.run {
            Some(run) if session.is_missing(run).await => Some(names::nearest_run(session, run).await),
            _ => None,
        };
        return Ok(ListPage { note: Some(empty_sentence(session, options, &me, hint)), ..ListPage::default() });
    }
    if let Some(text) = output.render(list_document(&found))? {
        return Ok(ListPage { text, ..ListPage::default() });
    }
    let notices = fetch_notices(session, &found, &me).await;
    let has_namespace_column = options.all_namespaces || session.namespaces.len() > 1;
    let is_wide = output.output == Some(Format::Wide);
    let width = if is_wide { None } else { terminal::width() };
    let table = match options.run {
        Some(_) => render_calls(&found, has_namespace_column, &me, now, width),
        None => render_rows(&found, has_namespace_column, is_wide, now, width),
    };
    Ok(ListPage { text: output.table(paint(&table, terminal::style(), cell_tone)), note: None, notices })
}

/// Returns the colour of a cell, by its header.
fn cell_tone(header: &str, cell: &str) -> Option<Tone> {
    match header {
        "PHASE" => ApprovalPhase::ALL.into_iter().find(|phase| phase.name() == cell).map(phase_tone),
        "DEADLINE" if cell.ends_with(" ago") => Some(Tone::Bad),
        "YOURS" if cell == "yes" => Some(Tone::Attention),
        _ => None,
    }
}

/// Returns the colour of a phase.
pub fn phase_tone(phase: ApprovalPhase) -> Tone {
    match phase {
        ApprovalPhase::Pending | ApprovalPhase::Overdue => Tone::Attention,
        ApprovalPhase::Approved | ApprovalPhase::Modified | ApprovalPhase::Responded => Tone::Good,
        ApprovalPhase::Rejected | ApprovalPhase::Aborted | ApprovalPhase::Expired => Tone::Bad,
        ApprovalPhase::Deferred
        | ApprovalPhase::Skipped
        | ApprovalPhase::Retried
        | ApprovalPhase::Cancelled
        | ApprovalPhase::Superseded => Tone::Quiet,
    }
}

/// Fetches the warnings about the listed requests: that no decision counts at the moment, and which of the reader's
/// votes are void.
async fn fetch_notices(session: &Session, found: &[Seen], me: &Me) -> Vec<String> {
    let mut notices = Vec::new();
    let namespace_of = |seen: &Seen| seen.approval.metadata.namespace.clone().unwrap_or_default();
    let is_open = |seen: &&Seen| !seen.approval.status.as_ref().is_some_and(|status| status.phase.is_end());
    // Whether the policies are in force is the same for every run, so one run suffices.
    if let Some(seen) = found.iter().find(is_open) {
        let run = session.run_in(&namespace_of(seen), &seen.approval.spec.request.workflow.name).await;
        let status = ApprovalStatus { conditions: run.conditions, ..ApprovalStatus::default() };
        notices.extend(request::warnings(&status).into_iter().map(|(label, text)| format!("{label}: {text}")));
    }
    for seen in found.iter().filter(is_open).filter(|seen| seen.approval.asks_again().is_some()).take(MAX_VOIDED) {
        let earlier = voided::earlier(session.raw(), &namespace_of(seen), &seen.approval).await;
        let lost = voided::lost(&earlier, &seen.approval, me);
        notices.extend(lost.map(|lost| format!("{}: {lost}", name(&seen.approval))));
    }
    notices
}

/// Groups the calls of each turn in the order of the model. A turn gets the position of its first request.
fn sort_by_turn(found: &mut [Seen]) {
    // By UID, because several namespaces can have a run of this name, and one namespace can have several in succession.
    let group = |seen: &Seen| {
        let request = &seen.approval.spec.request;
        turn_of(&request.gate.path).map(|(turn, _)| (request.workflow.uid.clone(), turn.to_owned()))
    };
    let mut first_positions: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (index, turn) in found.iter().map(group).enumerate() {
        if let Some(turn) = turn {
            first_positions.entry(turn).or_insert(index);
        }
    }
    let identity = |seen: &Seen| (seen.approval.metadata.namespace.clone(), seen.approval.metadata.name.clone());
    let position = |(index, seen): (usize, &Seen)| {
        let first = group(seen).and_then(|turn| first_positions.get(&turn).copied()).unwrap_or(index);
        (identity(seen), first)
    };
    let positions: BTreeMap<_, usize> = found.iter().enumerate().map(position).collect();
    found.sort_by_key(|seen| {
        let call = turn_of(&seen.approval.spec.request.gate.path).map(|(_, call)| call);
        (positions.get(&identity(seen)).copied(), call)
    });
}

/// Renders the requests of one run: a line each, with the turn, the gates, the tool, the target and the arguments.
fn render_calls(found: &[Seen], has_namespace_column: bool, me: &Me, now: Moment, width: Option<usize>) -> String {
    let columns =
        ["NAME", "TURN", "CALL", "GATE", "PHASE", "VOTES", "DEADLINE", "YOURS", "TOOL", "TARGET", "ARGUMENTS"];
    let headers: Vec<_> = has_namespace_column.then_some("NAMESPACE").into_iter().chain(columns).collect();
    let row = |seen: &Seen| {
        let request = &seen.approval.spec.request;
        let path = &request.gate.path;
        let (turn, call) = match turn_of(path).filter(|_| request.action.is_some()) {
            Some((turn, call)) => (one_line(turn, 120), call.to_string()),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let action = request.action.as_ref();
        let cell = |text: Option<&String>, most| text.map_or_else(|| "-".to_owned(), |text| one_line(text, most));
        let is_mine = ineligible(&seen.approval, &me.voter(), now).is_none();
        let namespace = has_namespace_column.then(|| namespace(&seen.approval));
        let cells = vec![
            name(&seen.approval),
            turn,
            call,
            gates_cell(request),
            seen.approval.status.as_ref().map(|status| status.phase).unwrap_or_default().name().to_owned(),
            votes_cell(&seen.approval),
            clock::distance(seen.approval.deadline(), now),
            if is_mine { "yes" } else { "no" }.to_owned(),
            cell(action.map(|action| &action.tool), 64),
            cell(action.and_then(|action| action.target.as_ref()), 60),
            subject_cell(request),
        ];
        namespace.into_iter().chain(cells).collect()
    };
    let droppable = ["VOTES", "PHASE", "TARGET", "CALL", "TURN", "DEADLINE", "GATE"];
    fit(&headers, found.iter().map(row).collect(), width, &droppable)
}

/// Returns the gates of a request that ask, as a cell.
fn gates_cell(request: &ApprovalRequest) -> String {
    let asking: Vec<_> =
        request.action.iter().flat_map(|action| &action.gates).map(|gate| gate.name.as_str()).collect();
    one_line(&if asking.is_empty() { request.gate.name.clone() } else { asking.join(",") }, 60)
}

/// Returns the gates of a call, or the path of any other gate, as a cell.
fn gate_cell(request: &ApprovalRequest) -> String {
    if action::call(request).is_some() { gates_cell(request) } else { one_line(&request.gate.path, 80) }
}

/// Returns the request in a cell: a call with its arguments and prompt, the question of an agent, or the prompt.
pub fn prompt_cell(request: &ApprovalRequest, most: usize) -> String {
    if let Some(call) = action::brief(request, LONGEST_CALL) {
        return one_line(&format!("{call}: {}", request.prompt), most + LONGEST_CALL);
    }
    let question =
        request.form.iter().flat_map(|form| &form.questions).find_map(|question| question.question.as_deref());
    one_line(question.filter(|_| is_question(request)).unwrap_or(&request.prompt), most)
}

/// Returns the beginning of the subject of a request: the arguments of a call, the first question of an agent, or the
/// prompt.
fn subject_cell(request: &ApprovalRequest) -> String {
    let asked = request.form.iter().flat_map(|form| &form.questions).find_map(|question| question.question.as_deref());
    let arguments =
        request.reviews.as_ref().filter(|_| request.action.is_some()).map(|review| review.response.as_str());
    match (is_question(request), asked, arguments) {
        (true, Some(asked), _) => one_line(&format!("asks: {asked}"), 60),
        (false, _, Some(arguments)) => action::arguments_line(arguments, 60),
        _ => one_line(&request.prompt, 60),
    }
}

/// Returns the sentence about an empty list. `hint`: the suggestion for a named run that does not exist.
fn empty_sentence(session: &Session, options: &List, me: &Me, hint: Option<String>) -> String {
    if let Some((run, hint)) = options.run.as_ref().zip(hint) {
        let end = if hint.is_empty() { "." } else { &hint };
        return format!("There is no workflow {} in {}{end}", one_line(run, 63), namespaces_text(session, false));
    }
    if let Some(run) = &options.run {
        return format!(
            "No approvals of workflow {} are pending in {}.",
            one_line(run, 63),
            namespaces_text(session, false)
        );
    }
    if options.all {
        return format!("There are no approvals in {}.", namespaces_text(session, options.all_namespaces));
    }
    nothing_waits(session, options.all_namespaces, me)
}

/// Returns the sentence that nothing waits for the user.
pub fn nothing_waits(session: &Session, everywhere: bool, me: &Me) -> String {
    format!(
        "No approvals wait for {} in {} (--all lists those of others and those already decided).",
        one_line(&me.user, 253),
        namespaces_text(session, everywhere)
    )
}

fn namespaces_text(session: &Session, everywhere: bool) -> String {
    if everywhere {
        return "any namespace".to_owned();
    }
    let names: Vec<_> = session.namespaces.iter().map(|name| one_line(name, 63)).collect();
    format!("namespace {}", names.join(" or "))
}

/// Renders the table. `width`: the columns of the terminal that the table must fit, or `None`.
pub fn render_rows(
    found: &[Seen],
    has_namespace_column: bool,
    is_wide: bool,
    now: Moment,
    width: Option<usize>,
) -> String {
    let mut headers = Vec::new();
    headers.extend(has_namespace_column.then_some("NAMESPACE"));
    headers.extend(["NAME", "WORKFLOW", "GATE", "PHASE", "VOTES", "DEADLINE", "AGE"]);
    headers.extend(is_wide.then_some(["REQUESTER", "APPROVERS", "VERDICTS", "DIGEST"]).into_iter().flatten());
    headers.push("PROMPT");
    let rows = found.iter().map(|seen| cells_of(&seen.approval, has_namespace_column, is_wide, now)).collect();
    fit(&headers, rows, width, &DROPPABLE)
}

fn cells_of(approval: &Approval, has_namespace_column: bool, is_wide: bool, now: Moment) -> Vec<String> {
    let request = &approval.spec.request;
    let mut cells = Vec::new();
    if has_namespace_column {
        cells.push(namespace(approval));
    }
    let age = approval.metadata.creation_timestamp.as_ref().map(|at| clock::length(now.since(Moment::from(at.0))));
    let phase = approval.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let deadline = if phase.is_end() { "-".to_owned() } else { clock::distance(approval.deadline(), now) };
    cells.extend([
        name(approval),
        one_line(&request.workflow.name, 63),
        gate_cell(request),
        phase.name().to_owned(),
        votes_cell(approval),
        deadline,
        age.unwrap_or_default(),
    ]);
    if is_wide {
        let approvers: Vec<_> = approval.approvers().iter().map(ToString::to_string).collect();
        let status = approval.status.clone().unwrap_or_default();
        let verdicts: Vec<_> = allowed_verdicts(request, &status).iter().copied().map(Verdict::name).collect();
        cells.extend([
            one_line(&request.requested_by, 80),
            one_line(&approvers.join(","), 120),
            verdicts.join(","),
            format!("sha256:{}", request.digest.short(12)),
        ]);
    }
    cells.push(prompt_cell(request, if is_wide { 120 } else { 48 }));
    cells
}

/// Returns the votes so far, and whether the gate asks again, as a cell.
fn votes_cell(approval: &Approval) -> String {
    let again = if approval.asks_again().is_some() { " (asked again)" } else { "" };
    format!("{}{again}", quorum::cell(approval))
}

/// Returns the name for a terminal.
fn name(approval: &Approval) -> String {
    one_line(approval.metadata.name.as_deref().unwrap_or_default(), 253)
}

/// Returns the namespace for a terminal.
fn namespace(approval: &Approval) -> String {
    one_line(approval.metadata.namespace.as_deref().unwrap_or_default(), 63)
}

fn list_document(found: &[Seen]) -> serde_json::Value {
    let items: Vec<_> = found.iter().map(|seen| &seen.raw).collect();
    serde_json::json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_review::sample;

    use super::*;
    fn seen(prompt: &str) -> Seen {
        let mut approval = sample::approval();
        approval.spec.request.prompt = prompt.to_owned();
        approval.metadata.name = Some("refund-4711-review-0a1b2c3d4e".into());
        Seen { raw: serde_json::to_value(&approval).unwrap(), approval }
    }

    #[test]
    fn the_table_has_the_layout_of_kubectl() {
        let shown = render_rows(&[seen("Send this letter to ACME?")], false, false, sample::now(), None);
        assert_eq!(
            shown,
            "NAME                            WORKFLOW      GATE     PHASE     VOTES   DEADLINE   AGE   PROMPT\n\
             refund-4711-review-0a1b2c3d4e   refund-4711   review   Pending   0/1     in 23h     30m   Send this letter to ACME?\n"
        );
    }

    #[test]
    fn a_request_that_asks_again_is_marked() {
        let mut again = seen("Send?");
        let annotation =
            (signoff_api::names::ANNOTATION_ASKS_AGAIN.to_owned(), "refund-4711-review-1111111111".to_owned());
        again.approval.metadata.annotations = Some([annotation].into());
        let shown = render_rows(&[again, seen("Send?")], false, false, sample::now(), None);
        let marked: Vec<_> = shown.lines().map(|line| line.contains("0/1 (asked again)")).collect();
        assert_eq!(marked, [false, true, false], "{shown}");
    }

    #[test]
    fn the_table_fits_a_narrow_terminal_and_keeps_names_whole() {
        let shown = render_rows(&[seen("Send this letter to ACME?")], false, false, sample::now(), Some(80));
        assert_eq!(
            shown,
            "NAME                            GATE     PHASE     DEADLINE   PROMPT\n\
             refund-4711-review-0a1b2c3d4e   review   Pending   in 23h     Send this letter…\n"
        );
    }

    #[test]
    fn a_call_is_listed_with_gates_tool_and_arguments_and_a_question_with_its_text() {
        let seen_of = |approval: Approval| Seen { raw: serde_json::to_value(&approval).unwrap(), approval };
        let shown =
            render_rows(&[seen_of(sample::call()), seen_of(sample::question())], false, false, sample::now(), None);
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[1].contains("   money,guard   "), "{shown}");
        assert!(lines[1].ends_with("   refund amount=420 customer=ACME note=\"a…: May the refund be sent?"), "{shown}");
        assert!(lines[2].ends_with("Which account?"), "{shown}");
    }

    #[test]
    fn the_wide_table_has_requester_approvers_and_verdicts() {
        let shown = render_rows(&[seen("Send?")], true, true, sample::now(), None);
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
    fn the_calls_of_a_run_are_sorted_by_turn() {
        let seen_of = |approval: Approval| Seen { raw: serde_json::to_value(&approval).unwrap(), approval };
        let (mut call, mut question, mut gate) = (sample::call(), sample::question(), sample::approval());
        call.metadata.name = Some("r-handle-2".into());
        question.metadata.name = Some("r-handle-1".into());
        gate.metadata.name = Some("r-review-3".into());
        let mut found = vec![seen_of(gate), seen_of(call.clone()), seen_of(question)];
        call.metadata.name = Some("r-handle-4".into());
        call.spec.request.gate.path = "handle/.turn-2/.call-1/.gate".into();
        call.spec.request.reviews.as_mut().unwrap().response = "{\"note\":\"x\\nr-handle-5   done\\u001b[31m\"}".into();
        found.push(seen_of(call));
        sort_by_turn(&mut found);
        let shown = render_calls(&found, false, &sample::me("alice@example.com", &[]), sample::now(), None);
        let expected = r#"NAME         TURN             CALL   GATE          PHASE     VOTES   DEADLINE   YOURS   TOOL        TARGET                              ARGUMENTS
r-review-3   -                -      review        Pending   0/1     in 23h     yes     -           -                                   Send this letter to ACME?
r-handle-4   handle/.turn-2   1      money,guard   Pending   0/1     in 23h     yes     refund      POST https://bank.example/refunds   {"note":"x\nr-handle-5   done\u001b[31m"}
r-handle-2   handle/.turn-2   2      money,guard   Pending   0/1     in 23h     yes     refund      POST https://bank.example/refunds   {"amount":420,"customer":"ACME","note":"as agreed\\nby phon…
r-handle-1   handle/.turn-1   1      questions     Pending   0/1     in 23h     yes     ask-human   -                                   asks: Which account?
"#;
        assert_eq!(shown, expected);
    }

    #[test]
    fn calls_of_runs_with_one_name_are_separate_turns_even_if_the_approvals_have_one_name() {
        let seen_of = |namespace: &str, uid: &str, call: i32| {
            let mut approval = sample::call();
            approval.metadata.name = Some(format!("call-{call}"));
            approval.metadata.namespace = Some(namespace.to_owned());
            approval.spec.request.workflow.uid = uid.repeat(36);
            approval.spec.request.gate.path = format!("handle/.turn-1/.call-{call}/.gate");
            Seen { raw: serde_json::to_value(&approval).unwrap(), approval }
        };
        let mut found = vec![seen_of("dev", "1", 2), seen_of("prod", "2", 1), seen_of("dev", "1", 1)];
        sort_by_turn(&mut found);
        let shown = render_calls(&found, true, &sample::me("alice@example.com", &[]), sample::now(), None);
        let cells: Vec<Vec<_>> = shown.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
        assert_eq!(cells, [["NAMESPACE", "NAME"], ["dev", "call-1"], ["dev", "call-2"], ["prod", "call-1"]]);
    }

    #[test]
    fn a_hostile_name_makes_no_second_row_and_no_colour() {
        let mut hostile = seen("Send?");
        hostile.approval.metadata.name = Some("x\u{1b}[2J\nfake".into());
        hostile.approval.metadata.namespace = Some("prod\u{1b}[31m\u{202e}".into());
        let me = sample::me("alice@example.com", &[]);
        let found = [hostile];
        for shown in [
            render_rows(&found, true, false, sample::now(), None),
            render_calls(&found, true, &me, sample::now(), None),
        ] {
            assert_eq!(shown.lines().count(), 2, "{shown}");
            assert!(shown.contains("prod[31m⟨U+202E⟩   x[2J fake   ") && !shown.contains('\u{1b}'), "{shown}");
        }
    }

    #[test]
    fn a_hostile_prompt_makes_no_second_row_and_no_colour() {
        let shown = render_rows(&[seen("x\nfake-row   done\u{1b}[31m\u{202e}")], false, false, sample::now(), None);
        assert_eq!(shown.lines().count(), 2);
        assert!(shown.contains("x fake-row   done[31m⟨U+202E⟩") && !shown.contains('\u{1b}'));
    }
}
