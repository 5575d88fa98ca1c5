//! The handler of a run on this machine: prepared answers come first, then the person at the terminal, if there is one.
//! Progress is reported on standard error.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use signoff_api::{
    Approval, Decision, EventReason,
    journal::{StepKind, StepPhase, StepRecord},
};
use signoff_cli::{sanitize::one_line, terminal};
use signoff_engine::approval::DEADLINE_PASSED;
use signoff_expr::nearest::did_you_mean;
use signoff_local::{Event, GateQuestion, Handler, barred};
use signoff_review::quorum;
use tokio::sync::Mutex as AsyncMutex;

use crate::answer::{
    Answers,
    person::{Editing, Person},
};

/// The remedy if the user of this process cannot decide.
const AS_ANOTHER: &str = "`--as NAME` decides as another person, also with --resume (a local run does not check names)";

/// The handler of a run's gates and events.
pub struct TerminalHandler {
    /// The user in whose name gates are decided.
    decider: String,
    state: Mutex<State>,
    person: Option<AsyncMutex<Person>>,
}

#[derive(Default)]
struct State {
    /// The answers given in advance, in the order in which they are searched.
    given: Vec<Answers>,
    /// The Approval for which an answer was taken last, and the file with that answer, if any.
    last: Option<(Option<String>, Option<String>)>,
    /// Whether an answer given in advance did not count.
    refused: bool,
    /// The names and the paths of the gates that asked.
    asked: BTreeSet<String>,
}

impl TerminalHandler {
    /// Returns a handler that decides in the name of `decider`, with these answers. `person`: the lock for the editor
    /// of the person at the terminal, if there is one.
    pub fn new(decider: &str, answers: Answers, person: Option<Editing>) -> Arc<Self> {
        let state = Mutex::new(State { given: vec![answers], ..State::default() });
        Arc::new(Self {
            decider: decider.to_owned(),
            state,
            person: person.map(|editing| AsyncMutex::new(Person::new(editing))),
        })
    }

    /// Adds answers, which are searched before all others.
    pub fn give(&self, answers: Answers) {
        self.state().given.insert(0, answers);
    }

    /// Whether an answer given in advance did not count, and there is no person to give another.
    pub fn was_refused(&self) -> bool {
        self.person.is_none() && self.state().refused
    }

    /// Returns a note for each gate whose answers were not used.
    pub fn list_unused(&self) -> Vec<String> {
        let state = self.state();
        let gates = state.given.iter().flat_map(|answers| answers.unused());
        let note = |gate: &str| {
            let hint = match state.asked.contains(gate) {
                true => String::new(),
                false => one_line(&did_you_mean(gate, state.asked.iter().map(String::as_str)), 600),
            };
            let gate = one_line(gate, 253);
            format!("an answer for {gate} was not used: no gate of this name or path asked for it{hint}")
        };
        gates.map(note).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an answer given in advance, and returns its decision. Prints why an answer does not count.
    fn take_given(&self, asked: &GateQuestion) -> Option<Decision> {
        let (given, file) = {
            let mut state = self.state();
            let take =
                |answers: &mut Answers| Some((answers.take(&asked.approval)?, answers.file().map(str::to_owned)));
            let (given, file) = state.given.iter_mut().find_map(take)?;
            state.last = Some((asked.approval.metadata.name.clone(), file.clone()));
            (given, file)
        };
        match given.decision(asked.request()) {
            Ok(decision) => Some(decision),
            Err(why) => {
                self.note_refused(&asked.approval, file.as_deref(), &why);
                None
            }
        }
    }

    /// Remembers that an answer given in advance does not count, and prints why.
    fn note_refused(&self, approval: &Approval, file: Option<&str>, why: &str) {
        self.state().refused = true;
        let file = file.map_or_else(String::new, |file| format!("{file}: "));
        let gate = one_line(&approval.spec.request.gate.path, 512);
        let remedy = barred(approval, &self.decider).map(|_| format!("; {AS_ANOTHER}")).unwrap_or_default();
        let why = one_line(why, 1000);
        terminal::note(&format!("{file}{gate}: the answer does not count, and the gate stays open: {why}{remedy}"));
    }
}

#[async_trait]
impl Handler for TerminalHandler {
    async fn answer(&self, mut asked: GateQuestion) -> Option<Decision> {
        let gate = asked.request().gate.clone();
        self.state().asked.extend([gate.name, gate.path]);
        let last = self.state().last.take().filter(|(name, _)| *name == asked.approval.metadata.name);
        if let Some((_, file)) = last
            && let Some(why) = asked.refused.take()
        {
            // The refused answer was given in advance, so the person at the terminal has not seen the gate yet.
            self.note_refused(&asked.approval, file.as_deref(), &why);
        } else if asked.refused.is_none()
            && let Some(decision) = self.take_given(&asked)
        {
            return Some(decision);
        }
        let mut person = self.person.as_ref()?.lock().await;
        if let Some(why) = barred(&asked.approval, &self.decider) {
            let gate = one_line(&asked.request().gate.path, 512);
            terminal::note(&format!("{gate}: {}; nothing is asked here; {AS_ANOTHER}", one_line(&why, 600)));
            return None;
        }
        match person.decide(&asked).await {
            Ok(decision) => decision,
            Err(error) => {
                terminal::note(&format!("the terminal cannot be read: {error}"));
                None
            }
        }
    }

    fn resumed(&self, approval: &Approval) {
        let Some(outcome) = approval.status.as_ref().and_then(|status| status.outcome.as_ref()) else { return };
        let reason = outcome.reason.as_deref().filter(|reason| *reason != DEADLINE_PASSED);
        let how = match (outcome.decided_by.is_empty(), reason) {
            (false, _) => format!(" by {}", one_line(&outcome.decided_by.join(", "), 300)),
            // Such as that no approver is left who could decide.
            (true, Some(reason)) => format!(": {}", one_line(reason, 500)),
            (true, None) => " by the deadline".to_owned(),
        };
        let gate = one_line(&approval.spec.request.gate.path, 512);
        terminal::note(&format!("{gate}: {}{how}", outcome.phase.name().to_lowercase()));
    }

    fn happened(&self, event: &Event<'_>) {
        match event {
            Event::Began(record) => terminal::note(&format!("{}: begins", step_name(record))),
            Event::StepEnded(record) if record.kind != StepKind::Hitl => terminal::note(&end_line(record)),
            Event::Asks(approval) => {
                let gate = one_line(&approval.spec.request.gate.path, 512);
                terminal::note(&format!("{gate}: asks {}", one_line(&approval.spec.request.prompt, 200)));
            }
            // The end of a gate is printed by `resumed`.
            Event::Said(approval, sentence) if !matches!(sentence.reason, EventReason::GateEnded(_)) => {
                let gate = one_line(&approval.spec.request.gate.path, 512);
                terminal::note(&format!("{gate}: {}", one_line(sentence.message, 500)));
            }
            Event::VoteCounted { approval, user } => {
                let gate = one_line(&approval.spec.request.gate.path, 512);
                let verdict = approval.spec.decisions.get(*user).map_or("a decision", |own| own.verdict.name());
                let agreement = quorum::agreement(approval);
                terminal::note(&format!("{gate}: {verdict} of {} is recorded; {agreement} agree", one_line(user, 253)));
            }
            Event::Finishing { calls } => {
                let what = if *calls == 1 { "one call that" } else { "calls that" };
                terminal::note(&format!(
                    "pausing; waiting for {what} must not be repeated (ctrl-C again: do not wait)"
                ));
            }
            _ => {}
        }
    }
}

fn step_name(record: &StepRecord) -> String {
    let attempt = if record.attempt > 1 { format!(" (attempt {})", record.attempt) } else { String::new() };
    format!("{}{attempt}", one_line(&record.path, 512))
}

fn end_line(record: &StepRecord) -> String {
    let took = record.finished_at.map(|at| at.since(record.at).as_secs_f64()).unwrap_or_default();
    let time = if took >= 0.1 { format!(" in {took:.1}s") } else { String::new() };
    match (&record.error, record.phase) {
        (Some(error), phase) => {
            format!("{}: {}: {}", step_name(record), phase.name().to_lowercase(), one_line(&error.message, 1000))
        }
        (None, StepPhase::Skipped) => format!("{}: skipped", step_name(record)),
        // A turn that calls tools does not end its step.
        (None, _) if record.calls_tools() => format!("{}: calls tools{time}", step_name(record)),
        (None, _) => format!("{}: done{time}", step_name(record)),
    }
}
