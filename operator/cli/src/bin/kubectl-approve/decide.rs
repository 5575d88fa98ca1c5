//! Deciding: read the request, ask the person, send one's own entry, see that exactly that was stored, and wait for its effect.
//!
//! It must not judge whether a decision is allowed: the API server does.

use std::{io::Read, pin::pin};

use futures::future::{Either, select};
use signoff_api::{Approval, ApprovalStatus, Moment};
use signoff_engine::approval::eligibility::closed;
use signoff_review::{
    action, decisions,
    entry::{self, Change, Entry},
    foreseen::{self, Counter},
    outcome::{self, done},
    refusal,
    seen::Seen,
    voter::Me,
};
use tokio::time::Instant;

use crate::{
    args::{DecisionArgs, DryRun, Payload, Wait},
    client::Session,
    clock,
    decision_report::{self, Report},
    dialog, edit,
    encoding::decoded,
    error::Failure,
    output, payload, refusals,
    sanitize::{fenced, one_line},
    show, suggest, terminal, wait,
};

/// A decision that was sent.
#[derive(Debug)]
pub enum Sent {
    /// There is nothing to wait for.
    Reported(Report),
    /// It is stored, and can have its effect.
    Stored {
        /// As it was typed.
        args: Box<DecisionArgs>,
        /// The Approval with the decision.
        approval: Box<Approval>,
        /// The decision.
        entry: Box<Entry>,
    },
}

impl Sent {
    fn stored(args: DecisionArgs, approval: Approval, entry: Entry) -> Self {
        Self::Stored { args: Box::new(args), approval: Box::new(approval), entry: Box::new(entry) }
    }

    /// Returns a line that says what is stored, or `None` where there is nothing to wait for.
    pub fn recorded(&self) -> Option<String> {
        match self {
            Self::Reported(_) => None,
            Self::Stored { args, entry, .. } => {
                let line = format!("{} recorded", entry.decision.verdict);
                Some(reported(args, Report { line, failure: None }).line)
            }
        }
    }

    /// Waits for the effect of the decision, and reports it.
    pub async fn report(self, session: &Session) -> Report {
        match self {
            Self::Reported(report) => report,
            Self::Stored { args, approval, entry } => {
                let report = effect(session, &args, *approval, &entry).await;
                reported(&args, report)
            }
        }
    }
}

/// Records a decision that was typed with its verdict. On a terminal it shows what is decided about and asks first.
///
/// # Errors
/// Refusals, and everything that keeps it from being recorded as it was typed.
pub async fn decide(session: &Session, args: &DecisionArgs) -> Result<Sent, Failure> {
    let (seen, me) = tokio::try_join!(session.approval(&args.name), session.me())?;
    trusted(&seen)?;
    let is_dry = args.common.dry_run.is_some_and(|dry_run| dry_run != DryRun::None);
    let asks = !args.common.yes && !is_dry && terminal::can_ask();
    if !args.common.yes && !is_dry && terminal::is_manned() && !asks {
        return Err(Failure::Refused(
            "standard error is not a terminal, so there is no confirmation: use --yes, or do not redirect it"
                .to_owned(),
        ));
    }
    if asks {
        terminal::note(&show::page_of(session, &seen, &me).await);
    } else {
        terminal::note(&summary(&seen.approval));
    }
    record(session, args, &seen, &me, asks).await
}

/// Shows the Approval, asks, and approves it. Where the gate does not take Approve it asks which verdict.
///
/// # Errors
/// As [`decide`]; and when there is nobody to be asked.
pub async fn show_and_approve(session: &Session, args: &DecisionArgs) -> Result<Sent, Failure> {
    let (seen, me) = tokio::try_join!(session.approval(&args.name), session.me())?;
    terminal::note(&show::page_of(session, &seen, &me).await);
    trusted(&seen)?;
    let asks = !args.common.yes;
    let approval = &seen.approval;
    let is_open = closed(approval, clock::now()).is_none();
    if let Some(why) = refusals::open_gate(approval, args.verdict, clock::now()).filter(|_| is_open) {
        let suggestions = session.call.decisions(approval);
        let why = format!("{why}\n{}", suggest::lines(&suggestions).trim_end());
        if !asks || !terminal::can_ask() {
            return Err(Failure::Refused(why));
        }
        terminal::note(&why);
        let verdict = dialog::verdict(&suggestions)?;
        return record(session, &DecisionArgs { verdict, ..args.clone() }, &seen, &me, asks).await;
    }
    if asks && !terminal::can_ask() {
        let approve = session.call.decisions(approval).into_iter().find(|one| one.verdict == args.verdict);
        let approve = approve.map(|one| format!(", or {}", one.command)).unwrap_or_default();
        let stream = if terminal::is_manned() { "standard error" } else { "standard input" };
        return Err(Failure::Refused(format!(
            "{stream} is not a terminal, so there is no confirmation: use --yes{approve}"
        )));
    }
    record(session, args, &seen, &me, asks).await
}

/// Sends a decision. `asks`: whether the user is asked first.
///
/// # Errors
/// As [`decide`].
pub async fn record(
    session: &Session,
    typed: &DecisionArgs,
    seen: &Seen,
    me: &Me,
    asks: bool,
) -> Result<Sent, Failure> {
    match prepare(session, typed, seen, me, asks).await? {
        Prepared::Sent(sent) => Ok(sent),
        Prepared::Ready(args, entry) => {
            let voter = me.voter_for(args.common.on_behalf_of.as_deref());
            decisions::already_counted(&seen.approval, &voter).iter().for_each(|already| terminal::note(already));
            if asks {
                if let Some(difference) = edit::difference_of(session, seen, &entry).await? {
                    terminal::note(&difference);
                }
                if let Some(warning) = outcome::after_edit(&seen.approval, &entry) {
                    terminal::note(&format!("Note: {warning}"));
                }
                dialog::confirm(&args, &seen.approval, me)?;
            }
            store(session, *args, seen, me, *entry).await
        }
    }
}

/// A decision before the user has confirmed it.
pub enum Prepared {
    /// Nothing is left to send.
    Sent(Sent),
    /// It is what was typed, completed, and its entry.
    Ready(Box<DecisionArgs>, Box<Entry>),
}

/// Makes the entry of a decision. `asks`: the user completes it, and the API server has checked it, so that no user confirms a decision
/// that would be refused.
///
/// # Errors
/// As [`decide`].
pub async fn prepare(
    session: &Session,
    typed: &DecisionArgs,
    seen: &Seen,
    me: &Me,
    asks: bool,
) -> Result<Prepared, Failure> {
    let mut args = typed.clone();
    if asks && closed(&seen.approval, clock::now()).is_none() {
        dialog::complete(&mut args, &seen.approval.spec.request)?;
    }
    let file = match &args.payload {
        Payload::ResponseFile(path) | Payload::Parameters { from_file: Some(path), .. } => Some(read(path)?),
        _ => None,
    };
    let entry = payload::entry(&args, file.as_deref(), &seen.approval, me)?;
    if closed(&seen.approval, clock::now()).is_none() {
        payload::changes(&seen.approval, &entry)?;
    }
    if let Some(attempt) = entry.decision.attempt {
        let why = seen
            .approval
            .status
            .as_ref()
            .and_then(|status| status.invalid.get(&entry.key))
            .map_or("", |invalid| invalid.why.as_str());
        terminal::note(&format!(
            "attempt {} could not be used ({}): this is attempt {attempt}",
            attempt - 1,
            one_line(why, 1024)
        ));
    }
    let change = entry::change(&entry, seen.decisions()).map_err(|error| Failure::Usage(error.to_string()))?;
    if change == Change::Nothing {
        return Ok(Prepared::Sent(unchanged(args, seen, entry)));
    }
    if args.common.dry_run == Some(DryRun::Client) {
        usable(&seen.approval, &entry, clock::now())?;
        let (type_, patch) = change.parts();
        terminal::note(&format!(
            "approval.signoff.dev/{} not sent (client dry run); the patch of kubectl patch --type={type_}:",
            one_line(&args.name, 253)
        ));
        let line = output::json(&patch)?.trim_end().to_owned();
        return Ok(Prepared::Sent(Sent::Reported(Report { line, failure: None })));
    }
    if let Err(failure) = usable(&seen.approval, &entry, clock::now()) {
        // Where a policy has a sentence for it, that one is said.
        send(session, &args, seen, me, &entry, true).await?;
        return Err(failure);
    }
    if asks {
        send(session, &args, seen, me, &entry, true).await?;
    }
    Ok(Prepared::Ready(Box::new(args), Box::new(entry)))
}

/// Sends the entry of a decision, and sees that exactly it was stored.
///
/// # Errors
/// As [`decide`].
pub async fn store(session: &Session, args: DecisionArgs, seen: &Seen, me: &Me, entry: Entry) -> Result<Sent, Failure> {
    let dry_run = args.common.dry_run == Some(DryRun::Server);
    let after = send(session, &args, seen, me, &entry, dry_run).await?;
    let differences = entry::differences(&entry, after.stored(&entry.key), me);
    if !differences.is_empty() {
        return Err(tampered(&entry, &differences));
    }
    if dry_run {
        let line = format!("{} (server dry run)", reached(&after.approval, &entry, clock::now()));
        return Ok(Sent::Reported(reported(&args, Report { line, failure: None })));
    }
    Ok(Sent::stored(args, after.approval, entry))
}

async fn send(
    session: &Session,
    args: &DecisionArgs,
    seen: &Seen,
    me: &Me,
    entry: &Entry,
    dry_run: bool,
) -> Result<Seen, Failure> {
    match session.record(seen, entry, dry_run).await {
        Ok(after) => Ok(after),
        Err(failure) => Err(refusals::explain(session, args, me, failure).await),
    }
}

/// Reports a decision that is recorded already; `--wait` waits for its effect.
fn unchanged(args: DecisionArgs, seen: &Seen, entry: Entry) -> Sent {
    if args.common.wait.is_some() {
        return Sent::stored(args, seen.approval.clone(), entry);
    }
    let who = args.common.on_behalf_of.as_ref().map_or_else(|| "you".to_owned(), |person| one_line(person, 253));
    let when = refusal::when(seen, &entry.key, clock::now());
    let line = format!("unchanged ({who} {}{when})", done(entry.decision.verdict));
    Sent::Reported(reported(&args, Report { line, failure: None }))
}

/// Waits for the effect of a recorded decision.
async fn effect(session: &Session, args: &DecisionArgs, stored: Approval, entry: &Entry) -> Report {
    let length = args.common.wait;
    if length == Some(Wait::AtMost(std::time::Duration::ZERO)) {
        let line = format!("{} recorded; its effect was not waited for (--wait=0s)", entry.decision.verdict);
        return Report { line, failure: None };
    }
    let begun = Instant::now();
    let waited = wait::wait(session, stored, entry, length.filter(|length| !length.is_long()), begun).await;
    if length.is_some_and(Wait::is_long) && waited.is_open(entry.decision.verdict) {
        let longer = pin!(wait::wait(session, waited.approval.clone(), entry, length, begun));
        let so_far = pin!(decision_report::report(session, &waited, entry, None));
        // The reasons so far can take seconds to find out; the outcome does not wait for them.
        let longer = match select(longer, so_far).await {
            Either::Left((longer, _)) => longer,
            Either::Right((so_far, longer)) => {
                terminal::note(&format!("{}; still waiting", reported(args, so_far).line));
                longer.await
            }
        };
        return decision_report::report(session, &longer, entry, length).await;
    }
    decision_report::report(session, &waited, entry, length).await
}

fn reported(args: &DecisionArgs, report: Report) -> Report {
    Report { line: format!("approval.signoff.dev/{} {}", one_line(&args.name, 253), report.line), ..report }
}

/// A digest that is not that of the request would make the decision count for something else than what was shown.
///
/// # Errors
/// The digest of the request is another.
pub fn trusted(seen: &Seen) -> Result<(), Failure> {
    seen.digest_problem().map_or(Ok(()), |problem| Err(Failure::Refused(problem.to_string())))
}

fn tampered(entry: &Entry, differences: &[String]) -> Failure {
    let shown: String = differences.iter().map(|difference| fenced(difference, 4000)).collect();
    Failure::Other(format!(
        "{}, under {}:\n{shown}{}",
        entry::TAMPERED,
        one_line(&entry.key, 600),
        entry::TAMPERED_REMEDY
    ))
}

/// Reads the text of a file, or of standard input where the name is `-`.
fn read(path: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read =
        if path == "-" { std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes) } else { std::fs::read(path) };
    read.map_err(|error| error.to_string())
        .and_then(decoded)
        .map_err(|why| Failure::Usage(format!("--from-file {}: {why}", one_line(path, 512))))
}

/// Returns the subject of the decision in a few lines; of a call with its tool and target.
pub fn summary(approval: &Approval) -> String {
    let request = &approval.spec.request;
    let call = action::line(request).map(|call| format!("calls {}\n", one_line(&call, 300)));
    format!(
        "{} of workflow {}, requested by {}\n{}{}request digest {}",
        one_line(&request.gate.path, 80),
        one_line(&request.workflow.name, 63),
        one_line(&request.requested_by, 253),
        call.unwrap_or_default(),
        fenced(&one_line(&request.prompt, 300), 400),
        request.digest
    )
}

/// Returns the operator's count of these decisions, by the same function that the operator counts with.
///
/// # Errors
/// Counting them costs too much.
fn counted(approval: &Approval, now: Moment) -> Result<ApprovalStatus, Failure> {
    let counted = Counter::start(1).and_then(|counter| counter.wait(approval, now));
    counted.map_err(|error| match error {
        foreseen::Error::Thread(_) => Failure::Other(error.to_string()),
        foreseen::Error::Uncountable(_) => Failure::Refused(error.to_string()),
    })
}

/// Refuses what the operator would find unusable: it would only cost one of few attempts.
///
/// # Errors
/// The decision is unusable.
pub fn usable(approval: &Approval, entry: &Entry, now: Moment) -> Result<(), Failure> {
    let counted = counted(&foreseen::with(approval, entry), now)?;
    foreseen::unusable(&counted, entry).map_or(Ok(()), |why| Err(Failure::Refused(why)))
}

/// Returns how many approvals are recorded and needed after a decision, as the operator will count them.
fn reached(approval: &Approval, entry: &Entry, now: Moment) -> String {
    foreseen::reached(approval, counted(approval, now).ok().as_ref(), entry).line(entry)
}

#[cfg(test)]
#[path = "decide/tests.rs"]
mod tests;
