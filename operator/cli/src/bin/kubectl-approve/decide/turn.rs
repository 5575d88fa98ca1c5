//! `--turn`: one verdict for the open calls of one turn of an agent, each with a decision of its own.
//!
//! list the calls of the turn *(I/O)* -> show all -> rehearse each *(I/O)* -> one question *(I/O)* -> record each
//! *(I/O)*
//!
//! **Invariant:** only calls that were shown are decided, and a refused decision does not stop the others.

use signoff_api::{Approval, Verdict, names::LABEL_TURN, turn::turn_of};
use signoff_cli::{sanitize::one_line, terminal};
use signoff_review::{
    action, clock,
    seen::{Seen, still_open},
    voter::Me,
};

use super::{
    decision::{self, Prepared, Reading, Sent},
    dialog,
};
use crate::{
    args::{DecisionArgs, DryRun},
    cluster::client::{Selection, Session},
    error::Failure,
    show,
};

/// The verdicts that mean the same for every call.
const VERDICTS: [Verdict; 5] = [Verdict::Approve, Verdict::Reject, Verdict::Defer, Verdict::Skip, Verdict::Abort];

/// The result of a decision about one call.
type Outcome = Result<Sent, Failure>;

/// Decides the named call and the other open calls of its turn, in the order of the model.
///
/// # Errors
/// The turn cannot be decided as a whole; then no decision is sent.
pub async fn decide(session: &Session, typed: &DecisionArgs) -> Result<Vec<Outcome>, Failure> {
    let (named, me) = tokio::try_join!(session.approval(&typed.name), session.me())?;
    let turn = read_turn(session, typed, &named.approval)?;
    let workflow = named.approval.spec.request.workflow.name.clone();
    let calls = list_open_calls(session, named, &turn).await?;
    let is_dry = typed.common.dry_run.is_some_and(|dry_run| dry_run != DryRun::None);
    if !is_dry && (typed.common.yes || !terminal::can_ask()) {
        return Err(refusal_without_terminal(session, typed, &calls));
    }
    let mut args = typed.clone();
    show_all(session, &calls, &me, is_dry);
    let needs_reason = |seen: &&Seen| seen.approval.spec.request.require_reason == Some(true);
    if let Some(seen) = calls.iter().find(needs_reason).filter(|_| !is_dry) {
        dialog::ask_missing(&mut args, &seen.approval.spec.request)?;
    }
    let run = session.run(&workflow).await;
    let mut prepared = Vec::new();
    for seen in &calls {
        let reading = Reading { seen: seen.clone(), run: run.clone(), me: me.clone() };
        prepared.push(prepare(session, &args, &reading, !is_dry).await);
    }
    let ready = calls
        .iter()
        .zip(&prepared)
        .filter(|(_, prepared)| matches!(prepared, Ok(Prepared::Ready(..))))
        .map(|(seen, _)| seen);
    let ready: Vec<_> = ready.map(|seen| &seen.approval).collect();
    if !is_dry && !ready.is_empty() {
        dialog::confirm_turn(&args, &ready, &me)?;
    }
    let mut outcomes = Vec::new();
    for (seen, prepared) in calls.iter().zip(prepared) {
        outcomes.push(match prepared {
            Ok(Prepared::Ready(args, rehearsed)) => {
                let stored = decision::store(session, *args, *rehearsed).await;
                stored.inspect_err(|failure| print_failure(&seen.approval, failure))
            }
            Ok(Prepared::Sent(sent)) => Ok(sent),
            Err(failure) => Err(failure),
        });
    }
    Ok(outcomes)
}

/// Returns the label of the turn of the named call.
///
/// # Errors
/// The verdict is about one call only, or the Approval is about no call of an agent.
fn read_turn(session: &Session, typed: &DecisionArgs, named: &Approval) -> Result<String, Failure> {
    let request = &named.spec.request;
    let list = session.call.kubectl(Some(&session.namespace), &["approve", "list", "--run", &request.workflow.name]);
    let verdict = typed.verdict.name().to_lowercase();
    if !VERDICTS.contains(&typed.verdict) {
        let remedy = format!("leave --turn out, and give it for each call ({list})");
        return Err(Failure::Usage(format!("--turn: {verdict} is a decision about one call; {remedy}")));
    }
    let name = one_line(&typed.name, 253);
    if action::is_question(request) {
        let show = session.call.kubectl(Some(&session.namespace), &["approve", "show", &typed.name]);
        return Err(Failure::Usage(format!("--turn: {name} is a question and no call; leave --turn out ({show})")));
    }
    let turn = request.turn().filter(|_| action::call(request).is_some());
    turn.ok_or_else(|| Failure::Usage(format!("--turn: {name} is about no call of an agent; leave --turn out")))
}

/// Lists the named call and the other open calls of its turn, in the order of the model. Prints a note about each
/// question of the turn. The label only finds candidates: the request itself says to which turn it belongs.
async fn list_open_calls(session: &Session, named: Seen, turn: &str) -> Result<Vec<Seen>, Failure> {
    let labels = format!("{LABEL_TURN}={turn}");
    let selection = Selection { fields: still_open(), labels: Some(&labels), ..Selection::default() };
    let (found, unreadable) = session.select(&selection).await?;
    unreadable.iter().for_each(|problem| terminal::note(problem));
    let named_name = named.approval.metadata.name.clone();
    let (mut calls, mut questions) = (vec![named], Vec::new());
    for seen in found {
        let request = &seen.approval.spec.request;
        if seen.approval.metadata.name == named_name || request.turn().as_deref() != Some(turn) {
            continue;
        }
        if action::is_question(request) {
            questions.push(seen);
        } else {
            calls.push(seen);
        }
    }
    for question in &questions {
        terminal::note(&format!(
            "{} is a question of the same turn; it is answered on its own",
            resource(&question.approval)
        ));
    }
    calls.sort_by_key(|seen| turn_of(&seen.approval.spec.request.gate.path).map(|(_, call)| call));
    Ok(calls)
}

/// Returns the refusal of `--turn` without a terminal or with `--yes`, with a command for each call: no user would see
/// the calls.
fn refusal_without_terminal(session: &Session, typed: &DecisionArgs, calls: &[Seen]) -> Failure {
    let names = calls.iter().filter_map(|seen| seen.approval.metadata.name.as_deref());
    let command = |name: &str| {
        let mut words = vec!["approve".to_owned(), typed.verdict.name().to_lowercase(), name.to_owned()];
        if typed.verdict == Verdict::Defer {
            words.extend(["--guidance", "…"].map(str::to_owned));
        }
        format!("\n  {}", session.call.kubectl(Some(&session.namespace), &words))
    };
    let commands: String = names.map(command).collect();
    Failure::Usage(format!(
        "--turn needs a terminal and no --yes: all calls are shown before one question; or name each call:{commands}"
    ))
}

fn show_all(session: &Session, calls: &[Seen], me: &Me, is_dry: bool) {
    for (index, seen) in calls.iter().enumerate() {
        let text = if is_dry {
            decision::render_summary(&seen.approval)
        } else {
            show::render_page(seen, me, clock::now(), (None, &[]), &session.call)
        };
        terminal::note(&format!("Call {} of {}\n{text}", index + 1, calls.len()));
    }
}

/// Prepares the decision about one call. Prints a failure at once, before the user is asked about the other calls.
async fn prepare(
    session: &Session,
    args: &DecisionArgs,
    reading: &Reading,
    asks_user: bool,
) -> Result<Prepared, Failure> {
    let name = reading.seen.approval.metadata.name.clone().unwrap_or_default();
    let call_args = DecisionArgs { name, ..args.clone() };
    let prepared = match reading.check(&call_args) {
        Ok(()) => decision::prepare(session, &call_args, reading, asks_user).await,
        Err(failure) => Err(failure),
    };
    prepared.inspect_err(|failure| print_failure(&reading.seen.approval, failure))
}

/// Prints a failure with the name of its call.
fn print_failure(approval: &Approval, failure: &Failure) {
    let text = failure.to_string();
    match text.split_once(": ") {
        Some((prefix, why)) => terminal::note(&format!("{prefix}: {}: {why}", resource(approval))),
        None => terminal::note(&format!("{}: {text}", resource(approval))),
    }
}

fn resource(approval: &Approval) -> String {
    format!("approval.signoff.dev/{}", one_line(approval.metadata.name.as_deref().unwrap_or_default(), 253))
}
