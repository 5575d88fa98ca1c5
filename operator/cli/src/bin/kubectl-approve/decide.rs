//! The commands that decide: one Approval, several, or the calls of one turn of an agent.
//!
//! typed names -> whole names *(I/O)* -> a decision for each *(I/O)* -> their effects, waited for at the same time
//! *(I/O)* -> a line for each, and the exit code of the first name that failed

mod decision;
mod dialog;
mod edit;
mod payload;
mod refusals;
mod report;
mod successor;
mod turn;
mod wait;

use futures::{FutureExt, StreamExt, stream::FuturesOrdered};
use signoff_api::Verdict;
use signoff_cli::terminal;

use crate::{
    args::{CommonArgs, DecisionArgs, Payload},
    cluster::{
        client::Session,
        names::{self, Short},
    },
    error::Failure,
    list::picker,
};

use decision::Sent;
use report::Report;

/// Runs `kubectl approve [NAME]`: shows the named or chosen Approval, asks for confirmation, and approves it.
pub async fn choose_and_approve(mut session: Session, name: Option<String>, common: CommonArgs) -> anyhow::Result<()> {
    let name = match name {
        Some(name) => names::expand(&session, &name, Short::ToDecide { yes: common.yes }).await?,
        None => {
            let Some(chosen) = picker::pick(&session).await? else { return Ok(()) };
            let metadata = chosen.approval.metadata;
            session.namespace = metadata.namespace.unwrap_or_default();
            metadata.name.unwrap_or_default()
        }
    };
    let args = DecisionArgs { name, verdict: Verdict::Approve, payload: Payload::Nothing, common };
    if args.common.turn {
        return decide_turn(&session, args).await;
    }
    match decision::show_and_approve(&session, &args).await {
        Ok(sent) => finish(sent.report(&session).await),
        Err(failure) => Err(names::explain(&session, &args.name, failure).await.into()),
    }
}

/// Records the decisions one by one: a failure does not stop the others. With `--wait` all are recorded before the
/// first wait, and the waits run at the same time. With `--turn`, decides the turn of the only name instead.
pub async fn decide_all(session: &Session, decisions: Vec<DecisionArgs>) -> anyhow::Result<()> {
    let (total, mut failures) = (decisions.len(), Vec::new());
    let mut waits = FuturesOrdered::new();
    if let Some(args) = decisions.iter().find(|args| args.common.turn) {
        let [_] = decisions[..] else {
            return Err(Failure::Usage("--turn takes one NAME: it decides the calls of its turn".to_owned()).into());
        };
        return decide_turn(session, args.clone()).await;
    }
    for (index, args) in decisions.into_iter().enumerate() {
        let waits_for_outcome = args.common.wait.is_some();
        match decide_one(session, args).await {
            Ok(sent) if total == 1 => return finish(sent.report(session).await),
            Ok(sent) if waits_for_outcome => {
                // A user who interrupts the wait must know which decisions are recorded.
                if let Some(line) = sent.recorded_line() {
                    terminal::note(&line);
                }
                waits.push_back(sent.report(session).map(move |report| (index, report)));
            }
            Ok(sent) => failures.extend(print_report(sent.report(session).await)?.map(|failure| (index, failure))),
            Err(failure) if total == 1 => return Err(failure.into()),
            Err(failure) => {
                terminal::note(&failure.to_string());
                failures.push((index, failure));
            }
        }
    }
    conclude(waits, failures, total).await
}

/// Records the decisions about the calls of a turn, and waits for their effects at the same time.
async fn decide_turn(session: &Session, mut args: DecisionArgs) -> anyhow::Result<()> {
    args.name = names::expand(session, &args.name, Short::ToDecide { yes: args.common.yes }).await?;
    let outcomes = match turn::decide(session, &args).await {
        Ok(outcomes) => outcomes,
        Err(failure) => return Err(names::explain(session, &args.name, failure).await.into()),
    };
    let (total, mut failures) = (outcomes.len(), Vec::new());
    let mut waits = FuturesOrdered::new();
    for (index, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(sent) => {
                let line = sent.recorded_line().filter(|_| args.common.wait.is_some());
                line.iter().for_each(|line| terminal::note(line));
                waits.push_back(sent.report(session).map(move |report| (index, report)));
            }
            Err(failure) => failures.push((index, failure)),
        }
    }
    conclude(waits, failures, total).await
}

/// Prints the reports of the decisions in their order. Fails with the number of failed decisions, if any has failed.
async fn conclude(
    mut waits: FuturesOrdered<impl Future<Output = (usize, Report)>>,
    mut failures: Vec<(usize, Failure)>,
    total: usize,
) -> anyhow::Result<()> {
    while let Some((index, report)) = waits.next().await {
        failures.extend(print_report(report)?.map(|failure| (index, failure)));
    }
    // The order of the command line chooses the exit code, and not the order in which decisions failed.
    match failures.iter().min_by_key(|(index, _)| *index) {
        None => Ok(()),
        Some((_, first)) => Err(Failure::Several { failed: failures.len(), of: total, code: first.code() }.into()),
    }
}

async fn decide_one(session: &Session, mut args: DecisionArgs) -> Result<Sent, Failure> {
    args.name = names::expand(session, &args.name, Short::ToDecide { yes: args.common.yes }).await?;
    let sent = if args.payload == Payload::Edited {
        edit::edit_and_decide(session, args.clone()).await
    } else {
        decision::decide(session, &args).await
    };
    match sent {
        Err(failure) => Err(names::explain(session, &args.name, failure).await),
        sent => sent,
    }
}

/// Prints the line about one of several decisions, and its failure. Returns the failure.
fn print_report(report: Report) -> anyhow::Result<Option<Failure>> {
    terminal::print(&report.text())?;
    if let Some(failure) = &report.failure {
        terminal::note(&failure.to_string());
    }
    Ok(report.failure)
}

/// Prints the report of the only decision, and fails if `--wait` ended without its outcome.
fn finish(report: Report) -> anyhow::Result<()> {
    terminal::print(&report.text())?;
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}
