//! The report of a run, for people or for programs: its result, the commands that answer its gates, artifacts, history.
//!
//! Commands are quoted for a shell.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use signoff_api::{
    Approval, ApprovalRequest, Verdict,
    gate::{Choice, GateType, Question, SubjectKind},
    journal::BlobRef,
    workflow::WorkflowPhase,
};
use signoff_cli::{
    sanitize::{self, fence, one_line, quoted},
    terminal,
};
use signoff_engine::{End, gate::parameters};
use signoff_executor::BlobStore as _;
use signoff_expr::text::display;
use signoff_local::{Sessions, Snapshot, barred, history, owner, write_outputs};
use signoff_review::{
    action, clock,
    edit::parameters_to_edit,
    edits,
    request::{heading, heading_of_sent, respond_rule},
};

use super::Format;
use crate::{
    answer::page::{approver_list, deadline_line, vote_progress},
    exit::Exit,
    texts::display_path,
};

/// The most characters of a request's text in the output of a paused run. Texts within a request are shorter.
const SHOWN: usize = 8192;

/// The report of a session after a run.
pub struct RunReport<'s> {
    pub snapshot: &'s Snapshot,
    /// The folder of sessions, if an option names one.
    pub sessions: Option<&'s Path>,
    /// The folder of Secrets, if an option names one.
    pub secrets: Option<&'s Path>,
    /// The user who decides by commands without `--as`.
    pub decider: &'s str,
    /// The files of the written artifacts.
    pub artifacts: &'s [PathBuf],
}

/// Returns the exit code of a run in this phase.
pub fn exit_code(phase: WorkflowPhase) -> Exit {
    match phase {
        WorkflowPhase::Succeeded => Exit::Ok,
        WorkflowPhase::Failed => Exit::Failed,
        WorkflowPhase::Rejected | WorkflowPhase::Aborted | WorkflowPhase::Cancelled => Exit::Stopped,
        _ => Exit::Paused,
    }
}

/// Returns the text for standard output, and prints notes beside it.
///
/// # Errors
/// A large value of the session cannot be read.
pub async fn render_result(sessions: &Sessions, report: &RunReport<'_>, format: Format) -> anyhow::Result<String> {
    let outputs = read_outputs(sessions, report.snapshot).await?;
    if format == Format::Json {
        return Ok(sanitize::json(&report_json(report, outputs.as_deref()))?);
    }
    let status = report.snapshot.workflow.status.clone().unwrap_or_default();
    Ok(match status.phase {
        WorkflowPhase::Succeeded => {
            report.artifacts.iter().for_each(|file| terminal::note(&format!("wrote {}", display_path(file))));
            // The message of a run that succeeded differs from the usual one if an artifact was left out.
            if let Some(message) = status.message.filter(|message| message != End::Succeeded(String::new()).message()) {
                terminal::note(&one_line(&message, 1024));
            }
            let text = outputs.unwrap_or_default();
            // A program gets the exact text. For a terminal, characters that move the cursor are escaped.
            let text = if terminal::is_stdout_terminal() { display(&text, usize::MAX) } else { text };
            if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
        }
        phase if phase.is_end() => {
            let why = status.message.unwrap_or_default();
            terminal::note(&format!("{}: {}", phase.name().to_lowercase(), one_line(&why, 1024)));
            String::new()
        }
        _ => render_paused(report),
    })
}

/// Returns the text of the run's result.
///
/// # Errors
/// The text is stored beside the session and cannot be read.
pub async fn read_outputs(sessions: &Sessions, session: &Snapshot) -> anyhow::Result<Option<String>> {
    let status = session.workflow.status.as_ref();
    match status.and_then(|status| status.outputs_ref.as_ref()) {
        Some(reference) => read_value(sessions, session, reference).await.map(Some),
        None => Ok(status.and_then(|status| status.outputs.clone())),
    }
}

async fn read_value(sessions: &Sessions, session: &Snapshot, reference: &BlobRef) -> anyhow::Result<String> {
    let blobs = sessions.blobs(&session.id).map_err(super::failure)?;
    let found = blobs.get(&owner(&session.workflow), reference.digest.as_str(), None).await;
    let bytes = found.map_err(|why| Exit::Session.because(why.to_string()))?;
    let text = bytes.and_then(|bytes| String::from_utf8(bytes.into()).ok());
    let gone = || Exit::Session.because(format!("session {}: the value {} is gone", session.id, reference.digest));
    text.ok_or_else(gone)
}

/// Writes the artifacts of a run below the folder `out`, or prints a note that there are some. `place`: the folder of
/// sessions, if suggested commands must name it.
///
/// # Errors
/// An artifact cannot be read or written.
pub async fn write_artifacts(
    sessions: &Sessions,
    session: &Snapshot,
    place: Option<&Path>,
    out: Option<&Path>,
    force: bool,
) -> anyhow::Result<Vec<PathBuf>> {
    let status = session.workflow.status.clone().unwrap_or_default();
    let listed = status.artifacts.as_slice();
    let command = shell_command(place, &["sessions", "show", &session.id, "--out", "DIR"]);
    let Some(out) = out else {
        match listed.len() {
            0 => {}
            1 => terminal::note(&format!("one artifact is kept in the session: {command} writes it")),
            count => terminal::note(&format!("{count} artifacts are kept in the session: {command} writes them")),
        }
        return Ok(Vec::new());
    };
    if listed.is_empty() {
        let yet = if status.phase.is_end() { "" } else { " yet" };
        terminal::note(&format!("there are no artifacts{yet}: nothing was written below {}", display_path(out)));
    }
    let mut files = Vec::new();
    for artifact in listed {
        files.push((artifact.path.clone(), read_value(sessions, session, &artifact.content).await?));
    }
    write_outputs(out, &files, force).map_err(|why| {
        Exit::Output.because(format!("{}; the run is over and keeps them: {command}", one_line(&why.to_string(), 1000)))
    })
}

/// Writes all decisions of the session as JSON.
///
/// # Errors
/// The file cannot be written.
pub fn export_history(file: &Path, session: &Snapshot) -> anyhow::Result<()> {
    let text = sanitize::json(&history(session))?;
    fs::write(file, text).map_err(|why| Exit::Output.because(format!("cannot write {}: {why}", display_path(file))))
}

/// Returns the open gates of a session, in the order in which they were asked.
pub fn open_gates(session: &Snapshot) -> Vec<&Approval> {
    let names = session.workflow.status.as_ref().map_or(&[][..], |status| status.pending.as_slice());
    let is_open = |approval: &&Approval| approval.metadata.name.as_ref().is_some_and(|name| names.contains(name));
    session.approvals.iter().filter(is_open).collect()
}

/// The note below a text of which the request holds only the beginning.
const BEGINNING: &str =
    "  That is the beginning of it, or of each field. On a terminal, `signoff run --resume` shows all of it.\n";

/// Renders the text about a paused run: the gates for which it waits, and the commands that continue it.
pub fn render_paused(report: &RunReport<'_>) -> String {
    let pending = open_gates(report.snapshot);
    let id = &report.snapshot.id;
    if pending.is_empty() {
        return format!("Session {id} is paused. To go on:\n  {}\n", resume_command(report, &[]));
    }
    let mut text = format!("Session {id} waits for people.\n");
    for approval in &pending {
        let request = &approval.spec.request;
        text += &format!(
            "\n{}: {}\n  {}.\n",
            one_line(&request.gate.path, 512),
            one_line(&request.prompt, 300),
            deadline_line(approval, clock::now())
        );
        // The texts of the request come before the commands that approve them.
        text += &render_texts(request);
        text += &format!("  {}.\n", approver_line(report, approval));
        for command in answer_commands(report, approval, pending.len() > 1) {
            text += &format!("  {command}\n");
        }
    }
    text
}

/// Renders the texts of a request: the call or the reviewed text, the context, the sent text, the changes of people,
/// the facts of a call, and the questions.
fn render_texts(request: &ApprovalRequest) -> String {
    let mut text = match (action::line(request), &request.reviews) {
        (Some(call), Some(review)) => {
            format!("  Call of {call}\n  Arguments {}\n", action::arguments_line(&review.response, SHOWN))
        }
        (None, Some(review)) if request.gate.type_ == GateType::StepStart => {
            // The first line is not a text of others: it tells the number of attempts.
            let (attempts, what) = review.response.split_once('\n').unwrap_or((&review.response, ""));
            format!("  What would run: {} of this:\n{}", one_line(attempts, 200), fence(what, SHOWN))
        }
        (None, Some(review)) => render_labelled(&heading(request, review), &review.response),
        (_, None) => String::new(),
    };
    if request.reviews.as_ref().is_some_and(|review| review.ref_.is_some()) {
        text += BEGINNING;
    }
    if let Some(context) = &request.context {
        text += &render_labelled("Context", context);
        if request.context_ref.is_some() {
            text += BEGINNING;
        }
    }
    if let Some(sent) = &request.sends {
        text += &render_labelled(heading_of_sent(request), &sent.text);
        if sent.ref_.is_some() {
            text += BEGINNING;
        }
    }
    for edit in request.reviews.iter().flat_map(|review| &review.by) {
        text += &format!("  Changed by {}\n", edits::line(edit));
    }
    for (label, lines) in action::facts_after(request) {
        lines.iter().for_each(|line| text += &format!("  {label}: {line}\n"));
    }
    text + &render_questions(request)
}

/// Renders a text of others with its label: one line beside the label, or several fenced lines below it.
fn render_labelled(label: &str, text: &str) -> String {
    match text.trim_end().contains('\n') {
        true => format!("  {label}:\n{}", fence(text, SHOWN)),
        false => format!("  {label}: {}\n", one_line(text, SHOWN)),
    }
}

/// Renders the questions of a form, with the IDs by which commands answer them.
fn render_questions(request: &ApprovalRequest) -> String {
    let render_question = |question: &Question| {
        let asked =
            question.question.as_ref().map(|asked| format!("  Question {}: {}\n", question.id, one_line(asked, 300)));
        let option = |option: &Choice| format!("    {}: {}\n", one_line(&option.id, 63), one_line(option.label(), 200));
        asked.into_iter().chain(question.options.iter().map(option)).collect::<String>()
    };
    let questions: String = request.form.iter().flat_map(|form| &form.questions).map(render_question).collect();
    questions + &respond_rule(request).map(|rule| format!("  The answer must be {rule}\n")).unwrap_or_default()
}

/// Returns the line with the next command for the session, such as `Next: signoff run --resume …`.
pub fn next_line(report: &RunReport<'_>) -> String {
    let session = report.snapshot;
    let status = session.workflow.status.clone().unwrap_or_default();
    let delete = shell_command(report.sessions, &["sessions", "delete", &session.id]);
    if !status.phase.is_end() {
        let decider = open_gates(session).into_iter().find_map(|approval| other_decider(report, approval));
        let decider: Vec<&str> = decider.iter().flat_map(|name| ["--as", name.as_str()]).collect();
        return format!("Next: {} goes on, and asks on a terminal\n", resume_command(report, &decider));
    }
    if status.artifacts.is_empty() {
        return format!("Next: the run is over; {delete} removes the session\n");
    }
    let write = shell_command(report.sessions, &["sessions", "show", &session.id, "--out", "DIR"]);
    format!("Next: the run is over; {write} writes its artifacts, {delete} removes the session\n")
}

/// Returns the commands that answer a gate, one for each verdict that it allows.
fn answer_commands(report: &RunReport<'_>, approval: &Approval, several: bool) -> Vec<String> {
    let request = &approval.spec.request;
    let gate: &[&str] = if several { &["--gate", &request.gate.path] } else { &[] };
    let decider = other_decider(report, approval);
    let decider: Vec<&str> = decider.iter().flat_map(|name| ["--as", name.as_str()]).collect();
    let reason: &[&str] = if request.require_reason == Some(true) { &["--reason", "why"] } else { &[] };
    let arguments = request.reviews.as_ref().filter(|_| action::call(request).is_some());
    let arguments = arguments.map(|review| review.response.as_str());
    let draft = parameters::schema(request, Verdict::Modify).map(|schema| parameters_to_edit(&schema, arguments));
    let draft = Value::Object(draft.unwrap_or_default()).to_string();
    let command = |verdict: &Verdict| {
        let word = verdict.name().to_lowercase();
        let only = request.form.as_ref().and_then(|form| match form.questions.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        let mut parts: Vec<&str> = Vec::new();
        match (verdict, only) {
            (Verdict::Respond, Some(question)) => parts.extend(["--hitl-response", example_answer(question)]),
            (Verdict::Respond, None) => parts.extend(["--answers", "answers.yaml"]),
            (Verdict::Modify, _) => parts.extend(["--verdict", &word, "--parameters", &draft]),
            (Verdict::Defer, _) => parts.extend(["--verdict", &word, "--guidance", "what to do differently"]),
            _ => parts.extend(["--verdict", &word]),
        }
        resume_command(report, &[&parts[..], gate, reason, &decider].concat())
    };
    request.allowed_verdicts.iter().map(command).collect()
}

/// Returns the name for `--as`, or `None` if a decision of the command's own user would count. The name of an approver
/// who has not decided is preferred to the placeholder `NAME`.
fn other_decider(report: &RunReport<'_>, approval: &Approval) -> Option<String> {
    barred(approval, report.decider)?;
    let users =
        approval.approvers().iter().filter(|subject| subject.kind == SubjectKind::User).map(|user| user.name.clone());
    let name = users.into_iter().find(|name| barred(approval, name).is_none());
    Some(name.unwrap_or_else(|| "NAME".to_owned()))
}

/// Returns the approvers of a gate, how many agree so far, and why a decision of the command's own user would not
/// count.
fn approver_line(report: &RunReport<'_>, approval: &Approval) -> String {
    let progress = vote_progress(approval).map(|progress| format!("; {progress}")).unwrap_or_default();
    let mut text = format!("Asks {}{progress}", approver_list(approval));
    let decided: Vec<_> = approval.spec.decisions.keys().map(|key| one_line(key, 253)).collect();
    if !decided.is_empty() {
        text += &format!(" (decided: {})", decided.join(", "));
    }
    if let Some(why) = barred(approval, report.decider) {
        text += &format!(". {}: give --as", one_line(&why, 600));
    }
    text
}

fn example_answer(question: &Question) -> &str {
    question.options.first().map_or("your answer", |option| &option.id)
}

/// Returns the command `signoff run --resume ID …`, quoted.
fn resume_command(report: &RunReport<'_>, more: &[&str]) -> String {
    let secrets = report.secrets.map(|folder| folder.display().to_string());
    let secrets: Vec<&str> = secrets.iter().flat_map(|folder| ["--secrets-dir", folder.as_str()]).collect();
    let starts_commands = report.snapshot.workflow.spec.servers.iter().any(|server| !server.command.is_empty());
    let commands: &[&str] = if starts_commands { &["--allow-commands"] } else { &[] };
    shell_command(report.sessions, &[&["run", "--resume", &report.snapshot.id][..], more, &secrets, commands].concat())
}

/// Returns a command of this program, quoted for a shell. `place`: the folder of sessions, if the command must name it.
fn shell_command(place: Option<&Path>, words: &[&str]) -> String {
    let folder = place.map(|folder| folder.display().to_string());
    let place: Vec<&str> = folder.iter().flat_map(|folder| ["--sessions-dir", folder.as_str()]).collect();
    quoted(&[&["signoff"], words, &place].concat())
}

fn report_json(report: &RunReport<'_>, outputs: Option<&str>) -> Value {
    let session = report.snapshot;
    let status = session.workflow.status.clone().unwrap_or_default();
    let gates = open_gates(session);
    let pending: Vec<Value> = gates
        .iter()
        .map(|approval| {
            let request = &approval.spec.request;
            json!({
                "approval": approval.metadata.name, "gate": request.gate.name, "path": request.gate.path,
                "visit": request.gate.visit, "prompt": request.prompt, "context": request.context,
                "action": request.action, "reviews": request.reviews,
                "form": request.form, "allowedVerdicts": request.allowed_verdicts, "deadline": request.deadline,
                "answer": answer_commands(report, approval, gates.len() > 1),
            })
        })
        .collect();
    json!({
        "session": session.id, "workflow": session.workflow.metadata.name, "phase": status.phase,
        "message": status.message, "outputs": outputs, "artifacts": report.artifacts, "usage": status.usage,
        "pending": pending,
    })
}
