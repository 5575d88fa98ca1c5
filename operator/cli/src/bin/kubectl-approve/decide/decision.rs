//! A decision about one Approval, by [`signoff_review::flow`]: read the request *(I/O)* -> rehearse the entry *(I/O)*
//! -> ask the user *(I/O)* -> record the entry *(I/O)* -> wait for its effect *(I/O)*.
//!
//! The API server judges whether a decision is allowed.

use std::{io::Read, pin::pin};

use futures::future::{Either, select};
use signoff_api::{Approval, ApprovalStatus, Code, Moment, Verdict};
use signoff_cli::{
    encoding::decode,
    sanitize::{fence, one_line},
    terminal,
};
use signoff_engine::approval::eligibility::closed;
use signoff_review::{
    action, clock, decisions,
    entry::{self, Change, Entry},
    flow::{Meaning, NotRecorded, NotRehearsed, Proposed, Recorded, Rehearsed, Server, Unusable},
    foreseen::{self, CountError, Counter},
    outcome::{self, done},
    problem::Problem,
    reading::{Texts, Verified, verify},
    refusal,
    seen::{RunNow, Seen},
    suggest,
    voter::Me,
};
use tokio::time::Instant;

use super::{
    dialog, edit, payload, refusals,
    report::{self, Report},
    wait,
};
use crate::{
    args::{DecisionArgs, DryRun, Payload, Wait},
    cluster::client::Session,
    error::Failure,
    show,
};

/// A request, read for a decision, with its run and its reader.
pub struct Reading {
    /// The Approval, as it was fetched.
    pub seen: Seen,
    /// The state of the run of the request. Empty if the run cannot be read.
    pub run: RunNow,
    /// The user of this session, as the API server names them.
    pub me: Me,
}

impl Reading {
    /// Fetches a request with its run and the current user.
    ///
    /// # Errors
    /// A request fails.
    pub async fn fetch(session: &Session, name: &str) -> Result<Self, Failure> {
        let (seen, me) = tokio::try_join!(session.approval(name), session.me())?;
        let run = session.run(&seen.approval.spec.request.workflow.name).await;
        Ok(Self { seen, run, me })
    }

    /// Returns the request if everything about it is verified. Long texts need not be whole: the reader is told that
    /// they are cut.
    ///
    /// # Errors
    /// The request has a problem.
    pub fn verified(&self) -> Result<Verified<'_>, Failure> {
        self.verify().map_err(as_failure)
    }

    /// Refuses a request that has a problem. A voter whose decision is recorded can still wait for its effect, even if
    /// the run has a problem now.
    ///
    /// # Errors
    /// The request has a problem.
    pub fn check(&self, args: &DecisionArgs) -> Result<(), Failure> {
        let key = self.me.voter_for(args.common.on_behalf_of.as_deref()).key();
        match self.verify() {
            Err(problem) if problem.is_of_request() || self.seen.stored(&key).is_none() => Err(as_failure(problem)),
            _ => Ok(()),
        }
    }

    fn verify(&self) -> Result<Verified<'_>, Problem> {
        verify(&self.seen, &self.run, Texts::OfRequest)
    }
}

fn as_failure(problem: Problem) -> Failure {
    Failure::Refused(problem.to_string())
}

/// The API server, for a decision about one Approval.
struct OneApproval<'s> {
    session: &'s Session,
    name: &'s str,
}

impl Server for OneApproval<'_> {
    type Error = Failure;

    async fn send(&self, seen: &Seen, entry: &Entry, dry_run: bool) -> Result<Seen, Failure> {
        self.session.record(seen, entry, dry_run).await
    }

    async fn read(&self) -> Result<Seen, Failure> {
        self.session.approval(self.name).await
    }

    fn meaning(failure: &Failure) -> Meaning {
        match failure {
            failure if failure.is_refusal() => Meaning::Refused,
            Failure::Other(_) => Meaning::Unanswered,
            _ => Meaning::NotStored,
        }
    }
}

/// A decision that was sent.
#[derive(Debug)]
pub enum Sent {
    /// A decision whose effect is not waited for.
    Reported(Report),
    /// A stored decision, whose effect can be waited for.
    Stored {
        /// The arguments of the decision.
        args: Box<DecisionArgs>,
        /// The Approval with the decision.
        approval: Box<Approval>,
        /// The entry of `spec.decisions` that was sent.
        entry: Box<Entry>,
    },
}

impl Sent {
    fn stored(args: DecisionArgs, approval: Approval, entry: Entry) -> Self {
        Self::Stored { args: Box::new(args), approval: Box::new(approval), entry: Box::new(entry) }
    }

    /// Returns the line that the decision is stored, or `None` if its effect is not waited for.
    pub fn recorded_line(&self) -> Option<String> {
        match self {
            Self::Reported(_) => None,
            Self::Stored { args, entry, .. } => {
                let line = format!("{} recorded", entry.decision.verdict);
                Some(with_name_and_facts(args, Report::new("Recorded", line)).line)
            }
        }
    }

    /// Waits for the effect of the decision, and reports it.
    pub async fn report(self, session: &Session) -> Report {
        match self {
            Self::Reported(report) => report,
            Self::Stored { args, approval, entry } => {
                let report = wait_for_effect(session, &args, *approval, &entry).await;
                with_name_and_facts(&args, report)
            }
        }
    }
}

/// Records a decision. On a terminal, first shows the Approval and asks for confirmation.
///
/// # Errors
/// The decision is refused, or it cannot be recorded exactly as it was typed.
pub async fn decide(session: &Session, args: &DecisionArgs) -> Result<Sent, Failure> {
    let reading = Reading::fetch(session, &args.name).await?;
    reading.check(args)?;
    let is_dry = args.common.dry_run.is_some_and(|dry_run| dry_run != DryRun::None);
    let asks_user = !args.common.yes && !is_dry && terminal::can_ask();
    if !args.common.yes && !is_dry && terminal::is_stdin_terminal() && !asks_user {
        return Err(Failure::Refused(
            "standard error is not a terminal, so there is no confirmation: use --yes, or do not redirect it"
                .to_owned(),
        ));
    }
    if asks_user {
        terminal::note(&show::fetch_page(session, &reading.seen, &reading.me).await);
    } else {
        terminal::note(&render_summary(&reading.seen.approval));
    }
    record(session, args, &reading, asks_user).await
}

/// Shows the Approval, asks for confirmation, and approves it. If the gate does not take Approve, asks for a verdict.
///
/// # Errors
/// As [`decide`]; or a question is needed, and there is no terminal.
pub async fn show_and_approve(session: &Session, args: &DecisionArgs) -> Result<Sent, Failure> {
    let reading = Reading::fetch(session, &args.name).await?;
    terminal::note(&show::fetch_page(session, &reading.seen, &reading.me).await);
    reading.check(args)?;
    let asks_user = !args.common.yes;
    let approval = &reading.seen.approval;
    let is_open = closed(approval, clock::now()).is_none();
    if let Some(why) = refusal::open_gate(approval, args.verdict, clock::now()).filter(|_| is_open) {
        let suggestions = session.call.decisions(approval);
        let commands = format!(":\n{}", suggest::lines(&suggestions).trim_end());
        if !asks_user || !terminal::can_ask() {
            return Err(Failure::RefusedFor { why, code: Code::VERDICT, commands });
        }
        terminal::note(&format!("{why}{commands}"));
        let verdict = dialog::ask_verdict(&suggestions)?;
        return record(session, &DecisionArgs { verdict, ..args.clone() }, &reading, asks_user).await;
    }
    if asks_user && !terminal::can_ask() {
        let approve_command =
            session.call.decisions(approval).into_iter().find(|suggestion| suggestion.verdict == args.verdict);
        let approve_command =
            approve_command.map(|suggestion| format!(", or {}", suggestion.command)).unwrap_or_default();
        let stream = if terminal::is_stdin_terminal() { "standard error" } else { "standard input" };
        return Err(Failure::Refused(format!(
            "{stream} is not a terminal, so there is no confirmation: use --yes{approve_command}"
        )));
    }
    record(session, args, &reading, asks_user).await
}

/// Rehearses a decision and records it. `asks_user`: whether the user confirms the decision before it is recorded.
///
/// # Errors
/// As [`decide`].
async fn record(session: &Session, typed: &DecisionArgs, reading: &Reading, asks_user: bool) -> Result<Sent, Failure> {
    match prepare(session, typed, reading, asks_user).await? {
        Prepared::Sent(sent) => Ok(sent),
        Prepared::Ready(args, rehearsed) => {
            if asks_user {
                let (seen, entry) = (rehearsed.seen(), rehearsed.entry());
                if let Some(difference) = edit::render_difference(session, seen, entry).await? {
                    terminal::note(&difference);
                }
                if let Some(warning) = outcome::after_edit(&seen.approval, entry) {
                    terminal::note(&format!("Note: {warning}"));
                }
                dialog::confirm(&args, &seen.approval, &reading.me)?;
            }
            store(session, *args, *rehearsed).await
        }
    }
}

/// A decision before the user has confirmed it.
pub enum Prepared {
    /// A decision for which no request is left to send.
    Sent(Sent),
    /// The completed arguments, and the decision that the API server has accepted in a dry run.
    Ready(Box<DecisionArgs>, Box<Rehearsed>),
}

/// Builds the entry of a decision and rehearses it, so that no user confirms a decision that would be refused. Skips
/// the rehearsal of a decision that is recorded already, or that a client dry run only prints. `asks_user`: whether the
/// user is asked for missing parts.
///
/// # Errors
/// As [`decide`].
pub async fn prepare(
    session: &Session,
    typed: &DecisionArgs,
    reading: &Reading,
    asks_user: bool,
) -> Result<Prepared, Failure> {
    let (seen, me) = (&reading.seen, &reading.me);
    let mut args = typed.clone();
    if asks_user && closed(&seen.approval, clock::now()).is_none() {
        dialog::ask_missing(&mut args, &seen.approval.spec.request)?;
    }
    let file = match &args.payload {
        Payload::ResponseFile(path) | Payload::Parameters { from_file: Some(path), .. } => Some(read_file(path)?),
        _ => None,
    };
    let entry = payload::build_entry(&args, file.as_deref(), &seen.approval, me)?;
    note_further_attempt(&seen.approval, &entry);
    let change = entry::change(&entry, seen.decisions()).map_err(|error| Failure::Usage(error.to_string()))?;
    if change == Change::Nothing {
        return Ok(Prepared::Sent(report_unchanged(args, seen, entry)));
    }
    let shown = reading.verified()?.shown(seen.approval.spec.request.digest.as_str());
    let proposed = shown.and_then(|shown| shown.propose(entry, me, clock::now()));
    let proposed = proposed.map_err(|why| Failure::refused(why.to_string(), Some(why.code())))?;
    if args.common.dry_run == Some(DryRun::Client) {
        check_usable(&seen.approval, proposed.entry(), clock::now())?;
        return Ok(Prepared::Sent(Sent::Reported(report_patch(&args, &change)?)));
    }
    let rehearsed = rehearse(session, &args, proposed).await?;
    let voter = me.voter_for(args.common.on_behalf_of.as_deref());
    decisions::already_counted(&seen.approval, &voter).iter().for_each(|already| terminal::note(already));
    Ok(Prepared::Ready(Box::new(args), Box::new(rehearsed)))
}

/// Prints a note if the entry is another attempt after a decision that could not be used.
fn note_further_attempt(approval: &Approval, entry: &Entry) {
    let Some(attempt) = entry.decision.attempt else { return };
    let invalid = approval.status.as_ref().and_then(|status| status.invalid.get(&entry.key));
    let why = invalid.map_or("", |invalid| invalid.why.as_str());
    terminal::note(&format!(
        "attempt {} could not be used ({}): this is attempt {attempt}",
        attempt - 1,
        one_line(why, 1024)
    ));
}

/// Reports the patch that a client dry run does not send.
///
/// # Errors
/// The patch cannot be serialized.
fn report_patch(args: &DecisionArgs, change: &Change) -> Result<Report, Failure> {
    let (type_, patch) = change.parts();
    let report = report::report_not_sent(args, &patch)?;
    if report.facts.is_none() {
        terminal::note(&format!(
            "approval.signoff.dev/{} not sent (client dry run); the patch of kubectl patch --type={type_}:",
            one_line(&args.name, 253)
        ));
    }
    Ok(report)
}

async fn rehearse(session: &Session, args: &DecisionArgs, proposed: Proposed) -> Result<Rehearsed, Failure> {
    let counter = Counter::start(1).map_err(|error| Failure::Other(error.to_string()))?;
    let server = OneApproval { session, name: &args.name };
    let key = proposed.entry().key.clone();
    match proposed.rehearse(&server, &counter, clock::now()).await {
        Ok(rehearsed) => Ok(rehearsed),
        Err(NotRehearsed::Refused(refused, _)) => Err(refusals::explain_refused(session, args, refused).await),
        Err(NotRehearsed::Unusable(why)) => Err(unusable_failure(args.verdict, why)),
        Err(NotRehearsed::Tampered(differences)) => {
            Err(Failure::Other(format!("{}\n{}", tampered_failure(&key, &differences), entry::NOT_RECORDED)))
        }
        Err(NotRehearsed::Failed(failure)) => Err(failure),
    }
}

/// Records a confirmed decision, and verifies that exactly this decision is stored. For a dry run, reports the
/// rehearsal.
///
/// # Errors
/// As [`decide`].
pub async fn store(session: &Session, args: DecisionArgs, rehearsed: Rehearsed) -> Result<Sent, Failure> {
    if args.common.dry_run == Some(DryRun::Server) {
        let line = format!("{} (server dry run)", rehearsed.reached().line(rehearsed.entry()));
        return Ok(Sent::Reported(with_name_and_facts(&args, Report::new("DryRun", line))));
    }
    let key = rehearsed.entry().key.clone();
    let server = OneApproval { session, name: &args.name };
    let recorded = match rehearsed.confirm().record(&server, clock::now()).await {
        Ok(recorded) => recorded,
        Err(NotRecorded::Refused(refused)) => return Err(refusals::explain_refused(session, &args, refused).await),
        Err(NotRecorded::Unknown(failure) | NotRecorded::Failed(failure)) => return Err(failure),
        Err(NotRecorded::Tampered(differences)) => return Err(tampered_failure(&key, &differences)),
    };
    let Recorded { approval, entry } = recorded;
    Ok(Sent::stored(args, approval, entry))
}

/// Reports a decision that is recorded already. With `--wait`, its effect is still waited for.
fn report_unchanged(args: DecisionArgs, seen: &Seen, entry: Entry) -> Sent {
    if args.common.wait.is_some() {
        return Sent::stored(args, seen.approval.clone(), entry);
    }
    let who = args.common.on_behalf_of.as_ref().map_or_else(|| "you".to_owned(), |person| one_line(person, 253));
    let when = refusal::when(seen, &entry.key, clock::now());
    let line = format!("unchanged ({who} {}{when})", done(entry.decision.verdict));
    Sent::Reported(with_name_and_facts(&args, Report::new("Unchanged", line)))
}

/// Waits for the effect of a recorded decision, and reports it. A long wait prints the state after the usual wait.
async fn wait_for_effect(session: &Session, args: &DecisionArgs, stored: Approval, entry: &Entry) -> Report {
    let length = args.common.wait;
    if length == Some(Wait::AtMost(std::time::Duration::ZERO)) {
        let line = format!("{} recorded; its effect was not waited for (--wait=0s)", entry.decision.verdict);
        return Report::new("Recorded", line);
    }
    let started = Instant::now();
    let waited = wait::wait(session, stored, entry, length.filter(|length| !length.is_long()), started).await;
    if length.is_some_and(Wait::is_long) && wait::is_open(&waited, entry.decision.verdict) {
        let longer = pin!(wait::wait(session, waited.approval.clone(), entry, length, started));
        let so_far = pin!(report::report(session, &waited, entry, None));
        // The report so far can take seconds of requests, which must not delay the outcome.
        let longer = match select(longer, so_far).await {
            Either::Left((longer, _)) => longer,
            Either::Right((so_far, longer)) => {
                terminal::note(&format!("{}; still waiting", with_name_and_facts(args, so_far).line));
                longer.await
            }
        };
        return report::report(session, &longer, entry, length).await;
    }
    report::report(session, &waited, entry, length).await
}

/// Returns the report with the name of the Approval before the line, and with the facts for programs.
fn with_name_and_facts(args: &DecisionArgs, report: Report) -> Report {
    let report = report.with_facts(args);
    Report { line: format!("approval.signoff.dev/{} {}", one_line(&args.name, 253), report.line), ..report }
}

fn tampered_failure(key: &str, differences: &[String]) -> Failure {
    let shown: String = differences.iter().map(|difference| fence(difference, 4000)).collect();
    Failure::Other(format!("{}, under {}:\n{shown}{}", entry::TAMPERED, one_line(key, 600), entry::TAMPERED_REMEDY))
}

/// Reads the text of a file, or of standard input if the name is `-`.
fn read_file(path: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read =
        if path == "-" { std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes) } else { std::fs::read(path) };
    read.map_err(|error| error.to_string())
        .and_then(decode)
        .map_err(|why| Failure::Usage(format!("--from-file {}: {why}", one_line(path, 512))))
}

/// Returns a few lines about the request: gate, run, requester, prompt and digest, and the tool and target of a call.
pub fn render_summary(approval: &Approval) -> String {
    let request = &approval.spec.request;
    let call = action::line(request).map(|call| format!("calls {}\n", one_line(&call, 300)));
    format!(
        "{} of workflow {}, requested by {}\n{}{}request digest {}",
        one_line(&request.gate.path, 80),
        one_line(&request.workflow.name, 63),
        one_line(&request.requested_by, 253),
        call.unwrap_or_default(),
        fence(&one_line(&request.prompt, 300), 400),
        request.digest
    )
}

/// Returns the status with the decisions of the Approval counted, by the function with which the operator counts.
///
/// # Errors
/// The count costs too much, or its thread cannot start.
fn count_votes(approval: &Approval, now: Moment) -> Result<ApprovalStatus, Failure> {
    let counted = Counter::start(1).and_then(|counter| counter.wait(approval, now));
    counted.map_err(|error| count_failure(&error))
}

/// Returns the failure of a count: a refusal if the decision itself costs too much.
fn count_failure(error: &CountError) -> Failure {
    match error {
        CountError::Thread(_) => Failure::Other(error.to_string()),
        CountError::Uncountable(_) => Failure::Refused(error.to_string()),
    }
}

/// Returns the failure for a decision that the operator could not use.
fn unusable_failure(verdict: Verdict, why: Unusable) -> Failure {
    let code = why.code(verdict);
    match why {
        Unusable::Invalid(why) => Failure::refused(why, code),
        Unusable::Uncountable(error) => count_failure(&error),
    }
}

/// Refuses a decision that the operator could not use: it would cost the voter one of a few attempts.
///
/// # Errors
/// The decision is unusable.
pub fn check_usable(approval: &Approval, entry: &Entry, now: Moment) -> Result<(), Failure> {
    let counted = count_votes(&foreseen::with(approval, entry), now)?;
    foreseen::unusable(&counted, entry)
        .map_or(Ok(()), |why| Err(Failure::refused(why, Some(Code::of_payload(entry.decision.verdict)))))
}

#[cfg(test)]
mod tests;
