//! The driver of a run: the part of the loop around [`advance`](crate::advance()) that is the same on a cluster and in
//! a local session.
//!
//! collect facts *(I/O)* -> evaluate ([`TransitionLoop`], *pure*) -> fetch missing values *(I/O)* and evaluate again ->
//! claim calls ([`Transition::mark_started`], *pure*) -> commit *(I/O)* -> dispatch *(I/O)*. Calls in flight are in
//! [`CallsInFlight`], and their results are facts of the next transition.
//!
//! **Invariant:** a caller gets a transition only as [`Round::Commit`]. A call starts only after the commit of its
//! record, except the calls of [`Transition::unstored_reads`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use signoff_api::{
    Digest, FailureClass, Moment, RecordPath,
    journal::{StepKind, StepPhase, StepRecord},
};

use crate::{
    advance,
    evaluation::Part,
    journal::Journal,
    plan::{Plan, PlannedStep},
    replay::run::Control,
    transition::{Ask, Blobs, Call, CallContent, Command, Fact, Failure, Now, Transition},
};

/// The maximum number of rounds of one transition. More rounds mean that the engine asks for the same value repeatedly.
pub const MAX_ROUNDS: usize = 64;

/// The maximum number of rounds of one transition that use results of calls which began before their records were
/// stored. Further results count in the next transition.
const MOST_CHAINED: usize = MAX_ROUNDS / 2;

/// The path and attempt of a call's record.
pub type CallKey = (String, i32);

impl Call {
    /// Returns the path and attempt of the call's record.
    #[must_use]
    pub fn key(&self) -> CallKey {
        (self.path.clone(), self.attempt)
    }
}

impl Transition {
    /// Returns the calls that are in flight after the commit.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.commands.iter().filter_map(|command| match command {
            Command::Call(call) => Some(&**call),
            Command::Ask(_) => None,
        })
    }

    /// Returns the Approvals that are created after the commit.
    pub fn asks(&self) -> impl Iterator<Item = &Ask> {
        self.commands.iter().filter_map(|command| match command {
            Command::Ask(ask) => Some(&**ask),
            Command::Call(_) => None,
        })
    }

    /// Marks the record of a call as started by `process`, so that the commit contains it before the call starts.
    pub fn mark_started(&mut self, path: &str, attempt: i32, process: &str) {
        let Some(mut record) = self.journal.get(path, attempt).cloned() else { return };
        record.phase = StepPhase::Started;
        record.by = Some(process.to_owned());
        self.journal.put(record);
    }

    /// Marks the record of a call that began before the record was stored: as started by `process`, at the end of the
    /// turn that made the call.
    pub fn mark_begun(&mut self, path: &str, attempt: i32, process: &str) {
        self.mark_started(path, attempt, process);
        let Some(mut record) = self.journal.get(path, attempt).cloned() else { return };
        record.at = self.end_of_turn(path).map_or(record.at, |end| end.min(record.at));
        self.journal.put(record);
    }

    /// Returns the end of the turn that made the call of a record.
    fn end_of_turn(&self, path: &str) -> Option<Moment> {
        let turn = RecordPath::new(path).turn_above()?;
        let (agent, number) = turn.agent_of_turn()?;
        let turn = if number == 1 { agent } else { turn };
        let attempts = (1..).map_while(|attempt| self.journal.get(turn.as_str(), attempt));
        attempts.last()?.finished_at
    }

    /// Returns the number and the bytes of the added results if the transition adds only results of calls that can be
    /// repeated: idempotent calls of tools about which no gate asked. Such a transition can be lost without harm.
    /// Returns `None` if the transition adds anything else, or nothing.
    #[must_use]
    pub fn repeatable_ends(&self, stored: &Journal, plan: &Plan) -> Option<(usize, usize)> {
        let (before, now) = (stored.records(), self.journal.records());
        if self.end.is_some() || self.asks().next().is_some() || before.len() != now.len() {
            return None;
        }
        let mut changed =
            before.iter().zip(now).filter(|(before, now)| !before.phase.is_end() && before != now).peekable();
        changed.peek()?;
        changed.try_fold((0, 0), |(count, bytes), (before, now)| {
            let is_repeatable = before.phase == StepPhase::Started && is_repeatable_end(now, stored, plan);
            is_repeatable.then(|| (count + 1, bytes + bytes_of(now)))
        })
    }

    /// Returns the calls that may begin before the commit, and the bytes that the transition adds. The transition may
    /// add only ends of turns, results of calls that can be repeated, and read-only calls about which no gate can ask,
    /// so that its loss costs at most one turn. Returns `None` otherwise, or if no such call is open.
    #[must_use]
    pub fn unstored_reads(&self, stored: &Journal, plan: &Plan) -> Option<(BTreeSet<CallKey>, usize)> {
        if self.end.is_some() || self.asks().next().is_some() {
            return None;
        }
        let (mut open, mut bytes) = (BTreeSet::new(), 0);
        for now in self.journal.records() {
            let before = stored.get(&now.path, now.attempt);
            match before {
                Some(before) if before == now => continue,
                Some(before) => {
                    let is_turn = now.kind == StepKind::Agent && now.phase == StepPhase::Succeeded;
                    if before.phase != StepPhase::Started || !(is_turn || is_repeatable_end(now, stored, plan)) {
                        return None;
                    }
                }
                None if now.attempt != 1 || !plan.is_unasked_read(&now.path) || was_asked(&now.path, &self.journal) => {
                    return None;
                }
                None if !now.phase.is_end() => drop(open.insert((now.path.clone(), now.attempt))),
                None => {}
            }
            bytes += bytes_of(now);
        }
        (!open.is_empty()).then_some((open, bytes))
    }

    /// Returns the long values that later transitions may read: all values but logs of containers that are no answer.
    pub fn reusable_values(&self) -> impl Iterator<Item = (Digest, String)> {
        let records = self.journal.records();
        let logs = records.iter().filter_map(|record| record.log.as_ref()?.ref_.as_ref());
        let logs: BTreeSet<_> = logs.map(|log| &log.digest).collect();
        let answers: BTreeSet<_> = records
            .iter()
            .flat_map(|record| record.response_ref.iter().chain(&record.opaque_ref))
            .map(|answer| &answer.digest)
            .collect();
        self.blobs.iter().filter(move |(digest, _)| !logs.contains(digest) || answers.contains(digest)).cloned()
    }
}

/// Whether a record is the end of an idempotent call of a tool about which no gate asked. Turns of a model are
/// excluded, because a repeated turn costs money.
fn is_repeatable_end(record: &StepRecord, stored: &Journal, plan: &Plan) -> bool {
    let is_end = matches!(record.phase, StepPhase::Succeeded | StepPhase::Failed);
    let is_call = matches!(record.kind, StepKind::Http | StepKind::Mcp | StepKind::Pod);
    let is_idempotent = || plan.step_of(&record.path).is_some_and(PlannedStep::is_idempotent);
    is_end && is_call && is_idempotent() && !was_asked(&record.path, stored)
}

/// Whether people were asked about the call of a tool to which a record belongs. True also for a record outside of
/// calls.
fn was_asked(path: &str, journal: &Journal) -> bool {
    let Some(call) = RecordPath::new(path).call_above() else { return true };
    journal.under(&format!("{call}/")).any(|record| record.kind == StepKind::Hitl)
}

fn bytes_of(record: &StepRecord) -> usize {
    let inline = record.response.as_ref().map_or(0, |response| response.0.as_str().map_or(0, str::len));
    let log = record.log.as_ref().and_then(|log| log.ref_.as_ref());
    let references = [record.response_ref.as_ref(), record.opaque_ref.as_ref(), log];
    inline + references.into_iter().flatten().map(|long| usize::try_from(long.size).unwrap_or(0)).sum::<usize>()
}

/// The calls of a run that are in flight, each with the handle of its task, and the results that are not committed yet.
///
/// **Invariant:** a result stays until it is committed, because a transition before the commit can be lost.
#[derive(Debug)]
pub struct CallsInFlight<T> {
    calls: BTreeMap<CallKey, T>,
    results: BTreeMap<CallKey, Fact>,
}

impl<T> Default for CallsInFlight<T> {
    fn default() -> Self {
        Self { calls: BTreeMap::new(), results: BTreeMap::new() }
    }
}

impl<T> CallsInFlight<T> {
    /// Whether a call is in flight or its result is not committed. Such a call must not be started again.
    #[must_use]
    pub fn contains(&self, key: &CallKey) -> bool {
        self.calls.contains_key(key) || self.results.contains_key(key)
    }

    /// Whether a call is in flight, without a result.
    #[must_use]
    pub fn is_in_flight(&self, key: &CallKey) -> bool {
        self.calls.contains_key(key)
    }

    /// Adds a call that starts now.
    pub fn start(&mut self, key: CallKey, handle: T) {
        self.calls.insert(key, handle);
    }

    /// Replaces a call by its result. Returns false and drops the result if the call is not in flight any more.
    pub fn finish(&mut self, key: CallKey, result: Fact) -> bool {
        let is_in_flight = self.calls.remove(&key).is_some();
        if is_in_flight {
            self.results.insert(key, result);
        }
        is_in_flight
    }

    /// Removes a call that did not begin.
    pub fn remove(&mut self, key: &CallKey) {
        self.calls.remove(key);
    }

    /// Returns the results that are facts of the next transition: results with an open record in the stored journal.
    /// Drops the results that the journal already contains.
    pub fn facts(&mut self, journal: &Journal) -> Vec<Fact> {
        self.drop_committed(journal);
        let has_record = |(path, attempt): &CallKey| journal.get(path, *attempt).is_some();
        self.results.iter().filter(|(key, _)| has_record(key)).map(|(_, fact)| fact.clone()).collect()
    }

    /// Returns the results of calls that began before their records were stored, and still have no record in the stored
    /// journal.
    #[must_use]
    pub fn unstored_facts(&self, journal: &Journal) -> Vec<Fact> {
        let is_unstored = |(path, attempt): &CallKey| journal.get(path, *attempt).is_none();
        self.results.iter().filter(|(key, _)| is_unstored(key)).map(|(_, fact)| fact.clone()).collect()
    }

    /// Removes the calls for which `is_kept` returns false, and their results. Returns the handles of the removed calls
    /// that were in flight.
    pub fn remove_where_not(&mut self, is_kept: impl Fn(&CallKey) -> bool) -> Vec<T> {
        self.results.retain(|key, _| is_kept(key));
        let removed: Vec<CallKey> = self.calls.keys().filter(|key| !is_kept(key)).cloned().collect();
        removed.iter().filter_map(|key| self.calls.remove(key)).collect()
    }

    /// Drops the results that a committed journal contains.
    pub fn drop_committed(&mut self, journal: &Journal) {
        self.results.retain(|(path, attempt), _| !journal.get(path, *attempt).is_some_and(|r| r.phase.is_end()));
    }

    /// Returns the handle of a call in flight.
    pub fn handle_mut(&mut self, key: &CallKey) -> Option<&mut T> {
        self.calls.get_mut(key)
    }

    /// Returns the handles of the calls in flight.
    pub fn handles(&self) -> impl Iterator<Item = &T> {
        self.calls.values()
    }

    /// Drops the calls in flight for which `keep` returns false. Their results do not become facts.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.calls.retain(|_, handle| keep(handle));
    }

    /// Returns the time of the oldest result that is not committed if further results will follow: a call is in flight,
    /// or has ended since a transition took `taken` results.
    #[must_use]
    pub fn oldest_result(&self, taken: usize) -> Option<Moment> {
        self.oldest().filter(|_| !self.calls.is_empty() || self.results.len() > taken)
    }

    /// Returns the time at which the first of the calls ended whose results are not committed.
    #[must_use]
    pub fn oldest(&self) -> Option<Moment> {
        let ends = self.results.values().filter_map(|fact| match fact {
            Fact::CallFinished { at, .. } => Some(*at),
            _ => None,
        });
        ends.min()
    }

    /// Whether a result is not committed.
    #[must_use]
    pub fn has_results(&self) -> bool {
        !self.results.is_empty()
    }

    /// Whether no call is in flight and every result is committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.results.is_empty()
    }
}

/// The next action of a caller that computes a transition.
#[derive(Debug)]
pub enum Round {
    /// Fetch the values with these digests, pass each to [`TransitionLoop::add_value`], and evaluate again.
    Fetch(BTreeSet<Digest>),
    /// Evaluate again, because there are more facts.
    Evaluate,
    /// Commit this transition, then execute its commands.
    Commit(Box<Transition>),
}

/// The next action of a caller whose evaluation was stopped at its limit.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterStop {
    /// Evaluate again: the stopped evaluation has cached validated answers, so the next one does less.
    Evaluate,
    /// Evaluate again with this fact, by which the costly step fails.
    Failed(Box<Fact>),
    /// Stop: no step caused the stop, or the step was already excluded from the evaluation.
    GiveUp,
}

/// The evaluation of one transition in rounds. Each round has more values and more facts than the round before.
pub struct TransitionLoop {
    plan: Arc<Plan>,
    control: Control,
    /// The stored journal.
    stored: Journal,
    facts: Vec<Fact>,
    /// The results of calls that began before their records were stored.
    unstored: Vec<Fact>,
    /// The long values of earlier rounds that the journal refers to.
    blobs: Vec<(Digest, String)>,
    values: Arc<Blobs>,
    now: Now,
    rounds: usize,
    /// The number of validated answers of the plan when the last evaluation was stopped.
    validated: usize,
}

impl TransitionLoop {
    /// Begins a transition. `values` are the cached long values.
    #[must_use]
    pub fn new(
        plan: Arc<Plan>,
        control: Control,
        stored: Journal,
        facts: Vec<Fact>,
        values: Arc<Blobs>,
        now: Now,
    ) -> Self {
        let validated = plan.validated_answers();
        let (unstored, blobs) = (Vec::new(), Vec::new());
        Self { plan, control, stored, facts, unstored, blobs, values, now, rounds: 0, validated }
    }

    /// Adds the results of calls that began before their records were stored. A result counts after a round has created
    /// its record again.
    #[must_use]
    pub fn with_unstored(self, unstored: Vec<Fact>) -> Self {
        Self { unstored, ..self }
    }

    /// Returns the evaluation of this round, to be run within the caller's limit of CPU time.
    pub fn evaluation(&self) -> impl Fn() -> Transition + Send + Sync + use<> {
        let (plan, control, now) = (Arc::clone(&self.plan), self.control, self.now.clone());
        let (stored, facts, values) = (self.stored.clone(), self.facts.clone(), Arc::clone(&self.values));
        move || advance(&plan, control, stored.clone(), facts.clone(), &values, &now)
    }

    /// Handles a stopped evaluation. `is_limit` says whether the limit of CPU time stopped the evaluation. `part` is
    /// the part that was evaluated at the stop.
    pub fn on_stopped(&mut self, is_limit: bool, part: Option<&Part>, why: &str) -> AfterStop {
        let has_progress = is_limit && self.plan.validated_answers() > self.validated;
        self.validated = self.plan.validated_answers();
        if has_progress {
            return AfterStop::Evaluate;
        }
        let Some(Part::Step { path, attempt, .. }) = part else { return AfterStop::GiveUp };
        let is_known = |fact: &Fact| matches!(fact, Fact::TooCostly { .. }) && fact.key() == (path, *attempt);
        if self.facts.iter().any(is_known) {
            return AfterStop::GiveUp;
        }
        let fact = Fact::TooCostly { path: path.clone(), attempt: *attempt, why: why.to_owned() };
        self.facts.push(fact.clone());
        AfterStop::Failed(Box::new(fact))
    }

    /// Handles the transition of this round. `process` is the name of this process in records. `is_in_flight` says
    /// whether a call is in flight in this process. Only one process at a time drives a run, so a call that another
    /// process started is lost.
    ///
    /// # Errors
    /// More than [`MAX_ROUNDS`] rounds, which is a bug of the engine.
    pub fn on_evaluated(
        &mut self,
        transition: Transition,
        process: &str,
        is_in_flight: impl Fn(&CallKey) -> bool,
    ) -> Result<Round, String> {
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return Err(format!("a transition took more than {MAX_ROUNDS} rounds"));
        }
        if !transition.missing.is_empty() {
            return Ok(Round::Fetch(transition.missing));
        }
        let calls = || transition.calls();
        let mut failed: Vec<Fact> = calls().filter_map(|call| self.lost_call(call, process)).collect();
        let lost: BTreeSet<CallKey> = failed.iter().map(|fact| (fact.key().0.to_owned(), fact.key().1)).collect();
        let starts = |call: &&Call| !lost.contains(&call.key()) && !is_in_flight(&call.key());
        failed.extend(calls().filter(starts).filter_map(|call| self.refused_call(call, self.now.at)));
        if failed.is_empty() {
            Arc::make_mut(&mut self.values).extend(transition.reusable_values());
            return Ok(self.commit_or_continue(transition, process));
        }
        // A lost or refused call never has a result of its own.
        self.facts.extend(failed);
        Ok(Round::Evaluate)
    }

    /// Returns the transition, or begins the next round with its journal if results of its calls have already arrived.
    /// A transition that asks people is committed first, because only its commands create the requests.
    fn commit_or_continue(&mut self, mut transition: Transition, process: &str) -> Round {
        let mut known: BTreeSet<Digest> = self.blobs.iter().map(|(digest, _)| digest.clone()).collect();
        self.blobs.extend(transition.blobs.drain(..).filter(|(digest, _)| known.insert(digest.clone())));
        let can_continue = transition.end.is_none() && transition.asks().next().is_none() && self.rounds < MOST_CHAINED;
        let is_open = |fact: &Fact| {
            let (path, attempt) = fact.key();
            can_continue && transition.journal.get(path, attempt).is_some_and(|record| !record.phase.is_end())
        };
        let (results, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unstored).into_iter().partition(is_open);
        self.unstored = later;
        if results.is_empty() {
            transition.blobs = std::mem::take(&mut self.blobs);
            return Round::Commit(Box::new(transition));
        }
        for result in &results {
            let (path, attempt) = result.key();
            transition.mark_begun(path, attempt, process);
        }
        self.stored = transition.journal;
        // All other facts are now in the journal.
        self.facts.retain(|fact| matches!(fact, Fact::TooCostly { .. }));
        self.facts.extend(results);
        Round::Evaluate
    }

    /// Adds a value that an evaluation needs.
    pub fn add_value(&mut self, digest: Digest, text: String) {
        Arc::make_mut(&mut self.values).insert(digest, text);
    }

    /// Returns all fetched long values, to be cached for the next transition.
    #[must_use]
    pub fn into_values(self) -> Arc<Blobs> {
        self.values
    }

    /// Returns the fact that a call is lost, if an earlier process started it and it must not be repeated.
    fn lost_call(&self, call: &Call, process: &str) -> Option<Fact> {
        // A Pod is found again by its name.
        if call.idempotent || matches!(call.content, CallContent::Pod(_)) {
            return None;
        }
        let record = self.stored.get(&call.path, call.attempt)?;
        let is_lost = record.phase == StepPhase::Started && record.by.as_deref() != Some(process);
        is_lost.then(|| Fact::CallLost { path: call.path.clone(), attempt: call.attempt })
    }

    /// Returns the failure of a call that would start now or again and that policies no longer allow.
    fn refused_call(&self, call: &Call, now: Moment) -> Option<Fact> {
        // A call that begins in this transition has already been checked.
        let record = self.stored.get(&call.path, call.attempt)?;
        // A started container is found again and not created again, so its result is still needed.
        if matches!(call.content, CallContent::Pod(_)) && record.phase == StepPhase::Started {
            return None;
        }
        let failure = Failure {
            class: FailureClass::NotAllowed.name().to_owned(),
            message: self.plan.refuses(call)?,
            retryable: false,
            unknown: false,
            not_before: None,
            facts: BTreeMap::new(),
            log: None,
        };
        Some(Fact::CallFinished { path: call.path.clone(), attempt: call.attempt, result: Err(failure), at: now })
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
