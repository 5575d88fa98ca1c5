//! Activities: the only await points of a pattern.
//!
//! An activity whose result is in the journal is ready. One whose result is not begins, once, and stays pending;
//! what it wishes for is repeated in every turn. This module keeps the books of one turn and knows no step.

mod keep;

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    rc::Rc,
    task::Poll,
};

use signoff_api::{
    Digest, Json, Moment, Outcome,
    journal::{BlobRef, StepError, StepKind, StepPhase, StepRecord},
};
use signoff_expr::{LanguageError, Scope, text};

use crate::{
    complaint::Complaint,
    evaluation::{self, Part, within},
    journal::Journal,
    plan::{Plan, PlannedStep},
    scope::{self, Frame},
    turn::{Ask, Blobs, Call, Command, NOT_ALLOWED, Now, TOO_COSTLY, TOO_LARGE, What},
    values::{self, References, ValueLimits},
};

/// The switches of a running Workflow (cancel, suspend), and its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Start nothing new.
    pub suspend: bool,
    /// End the run.
    pub cancel: bool,
    /// The limits of its long values.
    pub values: ValueLimits,
}

/// The computation of one transition of a run.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) control: Control,
    pub(crate) blobs: &'a Blobs,
    pub(crate) now: &'a Now,
    pub(crate) books: RefCell<Books>,
    /// Whether anything but the author's text has come into the journal.
    is_answered: OnceCell<bool>,
    /// How often each path was started in this replay.
    visits: RefCell<BTreeMap<String, i32>>,
    /// The path and attempt of the answer that was settled last.
    pub(crate) settled: RefCell<(String, i32)>,
    /// The turns of agents that were replayed, by path and attempt.
    pub(crate) told: RefCell<BTreeMap<(String, i32), Rc<Work<'a>>>>,
}

/// The invocation of a step: enough to render its input again.
#[derive(Clone)]
pub(crate) struct Work<'a> {
    pub(crate) frame: Frame<'a>,
    pub(crate) step: &'a PlannedStep,
    /// The path of its first attempt: every later one is given what was known then.
    pub(crate) base: String,
    pub(crate) change: Change,
    /// The digest of what people approved, where they were asked: nothing else may run.
    pub(crate) approved: Option<Digest>,
    /// The number at which the first gate before the step asked: what it showed is what its templates see.
    pub(crate) first_asked: Option<i64>,
    /// The number at which the first gate before the present attempts asked: what an agent hears was decided before it.
    pub(crate) last_asked: Option<i64>,
}

impl<'a> Work<'a> {
    /// A step whose first attempt stands at `base`.
    pub(crate) fn new(frame: &Frame<'a>, step: &'a PlannedStep, base: &str) -> Self {
        Self {
            frame: frame.clone(),
            step,
            base: base.to_owned(),
            change: Change::default(),
            approved: None,
            first_asked: None,
            last_asked: None,
        }
    }

    /// The number before which everything is known that its templates see. `seq`: where nothing of it has begun.
    pub(crate) fn began(&self, run: &Run<'a>, seq: i64) -> i64 {
        let first = || run.books.borrow().journal.get(&self.base, 1).map_or(seq, |first| first.seq);
        self.first_asked.unwrap_or_else(first)
    }

    /// The number before which everything was decided that an attempt hears which begins at `seq`.
    pub(crate) fn heard(&self, seq: i64) -> i64 {
        self.last_asked.unwrap_or(seq)
    }

    /// Returns the values that the templates of an attempt started at `seq` can use.
    pub(crate) fn scope(&self, run: &Run<'a>, seq: i64) -> Result<Scope, Trouble> {
        scope::at(run, &self.frame, self.step, self.began(run, seq))
    }
}

/// Values that replace or extend what the author of a step wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    /// Fields that a person put in the place of the author's: `input`, `url`, `body`, `value`, `image`, `memory`.
    pub(crate) parameters: BTreeMap<String, String>,
}

/// The state of a transition while it is computed.
pub(crate) struct Books {
    pub(crate) journal: Journal,
    pub(crate) commands: Vec<Command>,
    pub(crate) stored: Vec<(Digest, String)>,
    pub(crate) missing: BTreeSet<Digest>,
    pub(crate) wake_at: Option<Moment>,
    /// Gates whose Approval is not there.
    pub(crate) gone: BTreeSet<String>,
    /// The reasons why gates are held.
    pub(crate) held: Vec<Complaint>,
    /// Activities that must not be evaluated, and why.
    pub(crate) costly: BTreeMap<(String, i32), String>,
    wished: BTreeSet<(String, i32)>,
    inline: usize,
    values: References,
}

impl Books {
    pub(crate) fn new(journal: Journal, limits: ValueLimits) -> Self {
        let values = References::of(&journal, limits);
        let inline = journal.records().iter().filter_map(|r| r.response.as_ref()).map(length).sum();
        Self {
            journal,
            commands: Vec::new(),
            stored: Vec::new(),
            missing: BTreeSet::new(),
            wake_at: None,
            gone: BTreeSet::new(),
            held: Vec::new(),
            costly: BTreeMap::new(),
            wished: BTreeSet::new(),
            inline,
            values,
        }
    }

    fn wake(&mut self, at: Moment) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// The start of an activity.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "made and taken apart at once, never stored")]
pub(crate) enum Opening {
    /// It is over at once, with this response.
    Done(String),
    /// It is over at once, and has no response.
    Failed(StepError),
    /// It is left out.
    Skipped,
    /// It asks somebody outside, given this input.
    Call(Call),
    /// It asks people.
    Gate(Box<Ask>),
    /// It cannot begin for now.
    Held(Complaint),
}

/// The key of an activity in the journal.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) attempt: i32,
    pub(crate) kind: StepKind,
}

impl Place {
    fn is_call(&self) -> bool {
        is_call(self.kind)
    }

    fn part(&self) -> Part {
        Part::step(&self.path, self.attempt)
    }
}

fn is_call(kind: StepKind) -> bool {
    matches!(kind, StepKind::Agent | StepKind::Pod | StepKind::Http)
}

/// The reason why a template could not be rendered.
pub(crate) enum Trouble {
    /// A large value has to be fetched first.
    Missing,
    /// The template or condition has no value here.
    Language(LanguageError),
    /// The rendered value is invalid.
    Invalid(String),
}

impl From<LanguageError> for Trouble {
    fn from(why: LanguageError) -> Self {
        Self::Language(why)
    }
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Plan, control: Control, blobs: &'a Blobs, now: &'a Now, journal: Journal) -> Self {
        let books = RefCell::new(Books::new(journal, control.values));
        Self {
            plan,
            control,
            blobs,
            now,
            books,
            is_answered: OnceCell::new(),
            visits: RefCell::default(),
            settled: RefCell::default(),
            told: RefCell::default(),
        }
    }

    /// Values of the journal are read. Until a model, a tool or a person has answered, all of them are the author's.
    pub(crate) fn reads_values(&self) {
        let is_answer = |r: &StepRecord| r.done.is_some() && (is_call(r.kind) || r.kind == StepKind::Hitl);
        if *self.is_answered.get_or_init(|| self.books.borrow().journal.records().iter().any(is_answer)) {
            evaluation::reads_others();
        }
    }

    /// The path of the next visit: replaying a run counts as its first evaluation did.
    pub(crate) fn visit(&self, path: &str) -> (String, i32) {
        let mut visits = self.visits.borrow_mut();
        let visit = visits.entry(path.to_owned()).and_modify(|visit| *visit += 1).or_insert(1);
        (if *visit == 1 { path.to_owned() } else { format!("{path}#{visit}") }, *visit)
    }

    /// The path that the next visit will have.
    pub(crate) fn next_visit(&self, path: &str) -> String {
        match self.visits.borrow().get(path) {
            Some(visits) => format!("{path}#{}", visits + 1),
            None => path.to_owned(),
        }
    }

    /// What can be made of values that are there; waits where some have to be fetched first.
    pub(crate) async fn made<T>(&self, make: impl Fn() -> Result<T, Trouble>) -> Result<T, String> {
        poll_fn(|_| match make() {
            Ok(made) => Poll::Ready(Ok(made)),
            Err(Trouble::Missing) => Poll::Pending,
            Err(Trouble::Language(why)) => Poll::Ready(Err(why.to_string())),
            Err(Trouble::Invalid(why)) => Poll::Ready(Err(why)),
        })
        .await
    }

    /// The records that lie directly beneath a path and were known at `seq`, the oldest first.
    pub(crate) fn beneath(&self, path: &str, seq: i64) -> Vec<StepRecord> {
        let books = self.books.borrow();
        let known = |r: &&StepRecord| r.done.is_some_and(|done| done < seq);
        let mut found: Vec<_> = books.journal.under(&format!("{path}/")).filter(known).cloned().collect();
        found.sort_by_key(|record| record.done);
        found
    }

    /// Whether as many calls as may are in flight where this frame counts them. Those count too that the end of the run
    /// closed: a replay begins no more than the first evaluation did.
    fn is_full(&self, limit: Option<&(String, usize)>) -> bool {
        let Some((prefix, most)) = limit else { return false };
        let books = self.books.borrow();
        let in_flight = |r: &&StepRecord| (!r.phase.is_end() || is_called_off(r)) && is_call(r.kind);
        books.journal.under(prefix).filter(in_flight).count() >= *most
    }

    /// The record of an activity, once it has one that will not change any more.
    ///
    /// `open` renders what the activity is given, from the values known when it began; it is called when the
    /// activity begins, and again in each turn while a call or a lost gate has to be repeated.
    pub(crate) async fn activity(
        &self,
        frame: &Frame<'a>,
        place: Place,
        open: impl Fn(i64) -> Result<Opening, Trouble>,
    ) -> StepRecord {
        poll_fn(|_| {
            let known = self.books.borrow().journal.get(&place.path, place.attempt).cloned();
            match known {
                // It was called off when the run ended: nothing follows from it, however often the end is looked at.
                Some(record) if is_called_off(&record) => Poll::Pending,
                Some(record) if record.phase.is_end() => Poll::Ready(record),
                Some(record) => {
                    self.repeat(&record, &open);
                    self.finished(&place)
                }
                None if self.control.suspend => Poll::Pending,
                None if place.is_call() && self.is_full(frame.limit.as_ref()) => Poll::Pending,
                None => {
                    self.begin(&place, &open);
                    self.finished(&place)
                }
            }
        })
        .await
    }

    /// Ready once the time has come, or once what comes afterwards has begun already.
    pub(crate) async fn pause(&self, until: Moment, next: &Place) {
        poll_fn(|_| {
            let begun = self.books.borrow().journal.get(&next.path, next.attempt).is_some();
            if begun || self.now.at >= until {
                return Poll::Ready(());
            }
            self.books.borrow_mut().wake(until);
            Poll::Pending
        })
        .await;
    }

    fn finished(&self, place: &Place) -> Poll<StepRecord> {
        match self.books.borrow().journal.get(&place.path, place.attempt) {
            Some(record) if record.phase.is_end() => Poll::Ready(record.clone()),
            _ => Poll::Pending,
        }
    }

    fn begin(&self, place: &Place, open: &impl Fn(i64) -> Result<Opening, Trouble>) {
        let seq = self.books.borrow().journal.seq() + 1;
        let costly = self.books.borrow().costly.get(&(place.path.clone(), place.attempt)).cloned();
        let opening = match costly {
            Some(why) => Ok(Opening::Failed(error(TOO_COSTLY, &why))),
            None => within(|| place.part(), || open(seq)),
        };
        let mut books = self.books.borrow_mut();
        match opening {
            Err(Trouble::Missing) => return,
            Ok(Opening::Held(why)) => return books.held.push(why),
            _ => {}
        }
        let seq = books.journal.draw();
        let mut record = self.blank(place, seq);
        match opening {
            Ok(Opening::Call(call)) if let Some(why) = self.plan.refuses(&call) => {
                self.fail(&mut books, &mut record, NOT_ALLOWED, &why);
            }
            Ok(Opening::Done(response)) if let Err(why) = books.has_room_for(&response) => {
                self.fail(&mut books, &mut record, TOO_LARGE, &why);
            }
            Ok(Opening::Done(response)) => {
                (record.response, record.response_ref) = books.keep(&response);
                self.finish(&mut books, &mut record, StepPhase::Succeeded);
            }
            Ok(Opening::Failed(error)) => {
                record.error = Some(error);
                self.finish(&mut books, &mut record, StepPhase::Failed);
            }
            Ok(Opening::Skipped) => self.finish(&mut books, &mut record, StepPhase::Skipped),
            Ok(Opening::Call(call)) => match input_digest(&call) {
                Ok(digest) => {
                    record.input_digest = Some(digest);
                    if let What::Pod(pod) = &call.what {
                        record.object = Some(pod.name.clone());
                    }
                    books.wished.insert((record.path.clone(), record.attempt));
                    books.commands.push(Command::Call(Box::new(call)));
                }
                Err(why) => self.fail(&mut books, &mut record, "Input", &why),
            },
            Ok(Opening::Gate(ask)) => {
                let request = &ask.request;
                record.phase = StepPhase::Waiting;
                record.object = Some(ask.name.clone());
                record.input_digest.clone_from(&ask.binds);
                record.request = Some(signoff_api::journal::RequestFacts {
                    digest: request.digest.clone(),
                    deadline: request.deadline,
                    closes_at: request.closes_at,
                    guard_epoch: request.guard_epoch.clone(),
                    shows: values::shows(request),
                });
                books.commands.push(Command::Ask(ask));
            }
            Err(Trouble::Language(why)) => self.fail(&mut books, &mut record, "Template", &why.to_string()),
            Err(Trouble::Invalid(why)) => self.fail(&mut books, &mut record, "Input", &why),
            Err(Trouble::Missing) | Ok(Opening::Held(_)) => {}
        }
        books.journal.put(record);
    }

    /// Repeats the wish of an activity that has begun and is not over.
    fn repeat(&self, record: &StepRecord, open: &impl Fn(i64) -> Result<Opening, Trouble>) {
        let key = (record.path.clone(), record.attempt);
        let gate = record.kind == StepKind::Hitl;
        {
            let books = self.books.borrow();
            if books.wished.contains(&key) || (gate && !books.gone.contains(&record.path)) {
                return;
            }
        }
        let part = || Part::step(&record.path, record.attempt);
        let opening = within(part, || open(record.seq));
        let mut books = self.books.borrow_mut();
        if matches!(opening, Err(Trouble::Missing)) {
            return;
        }
        books.wished.insert(key);
        let mut record = record.clone();
        match opening {
            Ok(Opening::Call(call)) if input_digest(&call).ok() == record.input_digest => {
                books.commands.push(Command::Call(Box::new(call)));
            }
            Ok(Opening::Gate(ask)) if record.request.as_ref().is_some_and(|r| r.digest == ask.request.digest) => {
                books.commands.push(Command::Ask(ask));
            }
            _ if gate => {
                // Another version of the operator would ask something else: nobody may answer that unseen.
                let why = "the question that was asked cannot be asked again as it was";
                record.decision = Some(superseded(why, self.now.at));
                self.finish(&mut books, &mut record, StepPhase::Skipped);
                books.journal.put(record);
            }
            _ => {
                let why =
                    "what this step was given can no longer be rendered as it was: the journal and the spec differ";
                self.fail(&mut books, &mut record, "Journal", why);
                books.journal.put(record);
            }
        }
    }

    fn blank(&self, place: &Place, seq: i64) -> StepRecord {
        StepRecord {
            path: place.path.clone(),
            attempt: place.attempt,
            kind: place.kind,
            phase: StepPhase::Pending,
            seq,
            done: None,
            by: None,
            object: None,
            at: self.now.at,
            finished_at: None,
            input_digest: None,
            response: None,
            response_ref: None,
            facts: BTreeMap::new(),
            log: None,
            decision: None,
            decision_ref: None,
            request: None,
            usage: None,
            error: None,
        }
    }

    fn finish(&self, books: &mut Books, record: &mut StepRecord, phase: StepPhase) {
        record.phase = phase;
        record.done = Some(books.journal.draw());
        record.finished_at = Some(self.now.at);
    }

    fn fail(&self, books: &mut Books, record: &mut StepRecord, class: &str, why: &str) {
        record.error = Some(error(class, why));
        self.finish(books, record, StepPhase::Failed);
    }

    /// The text that was kept, from the journal or from the blob store.
    pub(crate) fn text_of(
        &self,
        inline: Option<&Json>,
        reference: Option<&BlobRef>,
    ) -> Result<Option<String>, Trouble> {
        self.reads_values();
        match (inline, reference) {
            (Some(value), _) => Ok(Some(plain(value))),
            (None, None) => Ok(None),
            (None, Some(reference)) => {
                let mut books = self.books.borrow_mut();
                let fresh = books.stored.iter().find(|(digest, _)| *digest == reference.digest).map(|(_, v)| v.clone());
                if let Some(value) = fresh.or_else(|| self.blobs.get(&reference.digest).cloned()) {
                    return Ok(Some(value));
                }
                books.missing.insert(reference.digest.clone());
                Err(Trouble::Missing)
            }
        }
    }
}

/// The reason of records that were open when their run ended.
pub(crate) const RUN_ENDED: &str = "the run ended";
/// The class of the error of a call that was under way when a run ended.
pub(crate) const CANCELLED: &str = "Cancelled";

/// Whether a record was closed because the run ended.
fn is_called_off(record: &StepRecord) -> bool {
    // A person's decision has a verdict, whatever its reason says.
    let nobodys = record.decision.as_ref().filter(|decision| decision.verdict.is_none());
    let reason = nobodys.and_then(|decision| decision.reason.as_deref());
    record.error.as_ref().is_some_and(|error| error.class == CANCELLED) || reason == Some(RUN_ENDED)
}

/// The end of a gate that has to be asked again.
pub(crate) fn superseded(why: &str, at: Moment) -> Outcome {
    Outcome {
        phase: signoff_api::approval::ApprovalPhase::Superseded,
        reason: Some(why.to_owned()),
        decided_at: Some(at),
        source: signoff_api::approval::Source::Policy,
        ..Outcome::default()
    }
}

/// An error that no further attempt will mend.
pub(crate) fn error(class: &str, why: &str) -> StepError {
    StepError { class: class.to_owned(), message: text::display(why, 1000), retryable: false, not_before: None }
}

/// The digest of what a call is given.
pub(crate) fn input_digest(call: &Call) -> Result<Digest, String> {
    let digest = match &call.what {
        What::Agent(agent) => Digest::of(agent),
        What::Pod(pod) => Digest::of(&pod.spec),
        What::Http(http) => Digest::of(http),
    };
    digest.map_err(|why| why.to_string())
}

fn plain(value: &Json) -> String {
    value.0.as_str().map_or_else(|| value.0.to_string(), str::to_owned)
}

fn length(value: &Json) -> usize {
    value.0.as_str().map_or_else(|| value.0.to_string().len(), str::len)
}
