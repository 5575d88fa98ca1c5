//! The world that effects reach: models, tools and services, as one ledger of what was really done, by whom and with
//! what input. It never decides whether an effect may be repeated; it only shows which were.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::clock::Clock;
use super::faults::EVERYONE;
use super::life::{Incarnation, never};

/// Which effect of a run: the journal's path, and the attempt from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectKey {
    /// The activity's path, for example `research/.turn-3/.call-1`. Tests with several runs put the run's name in
    /// front.
    pub path: String,
    /// The attempt, from 1.
    pub attempt: u32,
}

impl EffectKey {
    /// Names an effect.
    pub fn new(path: impl Into<String>, attempt: u32) -> Self {
        Self { path: path.into(), attempt }
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (attempt {})", self.path, self.attempt)
    }
}

/// An effect that reached the world.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Which effect.
    pub key: EffectKey,
    /// What it was given.
    pub input: Value,
    /// SHA-256 of the input's JSON, in hex.
    pub digest: String,
    /// The actor who did it.
    pub actor: String,
    /// Which of the actor's lives did it, for example `operator-a#2`.
    pub incarnation: String,
    /// When it reached the world.
    pub at: Timestamp,
    /// What it was answered, whether or not anybody lived to hear it.
    pub answer: Result<Value, Failure>,
    /// When its answer left; `None` while it runs, and for ever if nobody waited for the answer.
    pub answered: Option<Timestamp>,
}

/// Why an effect did not work: the error's class as the runtime names it, and the sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct Failure {
    /// For example `Timeout` or `RateLimited`.
    pub class: String,
    /// What a person reads.
    pub message: String,
}

/// What the world answers, and how long it takes.
#[derive(Clone, Debug)]
pub struct Answer {
    result: Result<Value, Failure>,
    after: Duration,
}

impl Answer {
    /// It works, at once.
    pub fn value(value: impl Into<Value>) -> Self {
        Self { result: Ok(value.into()), after: Duration::ZERO }
    }

    /// It fails, at once.
    pub fn failure(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { result: Err(Failure { class: class.into(), message: message.into() }), after: Duration::ZERO }
    }

    /// The same, this much later.
    pub fn after(mut self, span: Duration) -> Self {
        self.after = span;
        self
    }
}

/// How an actor dies at an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectCrash {
    /// Before it reached the world: nothing was done.
    NotDone,
    /// It was done; the answer never came.
    Done,
}

/// The world; clones are the same world.
#[derive(Clone)]
pub struct World {
    ledger: Arc<Mutex<Ledger>>,
    news: Arc<watch::Sender<u64>>,
    clock: Clock,
}

#[derive(Default)]
struct Ledger {
    effects: Vec<Effect>,
    answers: BTreeMap<(String, Option<u32>), Answer>,
    responder: Option<Responder>,
    crashes: Vec<CrashRule>,
}

/// Answers by what an effect is given.
type Responder = Box<dyn Fn(&EffectKey, &Value) -> Option<Answer> + Send>;

impl Ledger {
    fn answer_to(&self, key: &EffectKey, input: &Value) -> Answer {
        let named = |attempt| self.answers.get(&(key.path.clone(), attempt));
        let answer = named(Some(key.attempt)).or_else(|| named(None)).cloned();
        let answer = answer.or_else(|| self.responder.as_ref()?(key, input));
        answer.unwrap_or_else(|| Answer::value(json!(format!("answer of {}", key.path))))
    }
}

struct CrashRule {
    actor: String,
    left: u64,
    crash: EffectCrash,
}

impl World {
    /// An empty world that keeps the simulation's time.
    pub fn new(clock: Clock) -> Self {
        Self { ledger: Arc::default(), news: Arc::new(watch::Sender::new(0)), clock }
    }

    /// The place from which one incarnation acts on this world.
    pub fn seat(&self, life: &Incarnation) -> Seat {
        Seat { world: self.clone(), life: life.clone() }
    }

    /// What every attempt of a path gets, unless that attempt has an answer of its own.
    pub fn answers(&self, path: impl Into<String>, answer: Answer) {
        self.with(|ledger| ledger.answers.insert((path.into(), None), answer));
    }

    /// What one attempt gets. A repetition of the attempt gets it again: an answer depends on the key only, so lives
    /// can be compared.
    pub fn answers_attempt(&self, path: impl Into<String>, attempt: u32, answer: Answer) {
        self.with(|ledger| ledger.answers.insert((path.into(), Some(attempt)), answer));
    }

    /// What everything else gets. It depends on key and input only, so that a repetition gets the same again.
    pub fn responds(&self, responder: impl Fn(&EffectKey, &Value) -> Option<Answer> + Send + 'static) {
        self.with(|ledger| ledger.responder = Some(Box::new(responder)));
    }

    /// The actor (or [`super::EVERYONE`]) dies at its n-th effect from now: it was done, its answer never came.
    pub fn crash_after_effect(&self, n: u64, actor: &str) {
        self.crash_at_effect(n, actor, EffectCrash::Done);
    }

    /// The actor dies at its n-th effect from now, in the way that `crash` says.
    pub fn crash_at_effect(&self, n: u64, actor: &str, crash: EffectCrash) {
        self.with(|ledger| ledger.crashes.push(CrashRule { actor: actor.to_owned(), left: n, crash }));
    }

    /// Everything that was done, in order.
    pub fn effects(&self) -> Vec<Effect> {
        self.with(|ledger| ledger.effects.clone())
    }

    /// How often a path was done, in all its attempts.
    pub fn times(&self, path: &str) -> usize {
        self.with(|ledger| ledger.effects.iter().filter(|effect| effect.key.path == path).count())
    }

    /// The effects that were done more than once, with the digests of the inputs they were given: one digest means
    /// identical input.
    pub fn repeated(&self) -> BTreeMap<EffectKey, BTreeSet<String>> {
        let mut done: BTreeMap<EffectKey, (usize, BTreeSet<String>)> = BTreeMap::new();
        for effect in self.effects() {
            let (times, digests) = done.entry(effect.key).or_default();
            *times += 1;
            digests.insert(effect.digest);
        }
        done.into_iter().filter(|(_, (times, _))| *times > 1).map(|(key, (_, digests))| (key, digests)).collect()
    }

    /// Waits until `done` holds. Woken by effects and their answers, never by time.
    pub async fn until(&self, done: impl Fn(&Self) -> bool) {
        let mut news = self.news.subscribe();
        loop {
            news.borrow_and_update();
            if done(self) {
                return;
            }
            // The sender lives in `self`: this cannot fail.
            let _ = news.changed().await;
        }
    }

    /// What the world answers, and how long that takes.
    pub(crate) fn answer_to(&self, key: &EffectKey) -> (Result<Value, Failure>, Duration) {
        let Answer { result, after } = self.with(|ledger| ledger.answer_to(key, &Value::Null));
        (result, after)
    }

    /// Somebody who has no life that could end did something.
    pub(crate) fn witness(&self, actor: &str, key: &EffectKey, input: &Value) {
        self.record(actor, actor.to_owned(), key, input);
    }

    async fn call(&self, life: &Incarnation, key: &EffectKey, input: &Value) -> Result<Value, Failure> {
        if !life.is_alive() {
            return never().await;
        }
        let crash = self.crash_now(life.actor());
        if crash == Some(EffectCrash::NotDone) {
            life.kill();
            return never().await;
        }
        let (number, answer) = self.begin(life, key, input);
        if crash == Some(EffectCrash::Done) {
            life.kill();
            return never().await;
        }
        if !answer.after.is_zero() {
            tokio::time::sleep(answer.after).await;
        }
        if !life.is_alive() {
            return never().await;
        }
        let now = self.clock.now();
        self.change(|ledger| {
            if let Some(effect) = ledger.effects.get_mut(number) {
                effect.answered = Some(now);
            }
        });
        answer.result
    }

    /// Counts an effect in every rule about the actor; the oldest rule that is due says how it dies.
    fn crash_now(&self, actor: &str) -> Option<EffectCrash> {
        self.with(|ledger| {
            let mut due = None;
            for rule in ledger.crashes.iter_mut().filter(|rule| rule.actor == actor || rule.actor == EVERYONE) {
                if rule.left == 1 {
                    due = due.or(Some(rule.crash));
                }
                rule.left = rule.left.saturating_sub(1);
            }
            due
        })
    }

    fn begin(&self, life: &Incarnation, key: &EffectKey, input: &Value) -> (usize, Answer) {
        self.record(life.actor(), life.to_string(), key, input)
    }

    fn record(&self, actor: &str, incarnation: String, key: &EffectKey, input: &Value) -> (usize, Answer) {
        self.change(|ledger| {
            let answer = ledger.answer_to(key, input);
            ledger.effects.push(Effect {
                key: key.clone(),
                input: input.clone(),
                digest: hex::encode(Sha256::digest(input.to_string())),
                actor: actor.to_owned(),
                incarnation,
                at: self.clock.now(),
                answer: answer.result.clone(),
                answered: None,
            });
            (ledger.effects.len() - 1, answer)
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        act(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Acts, and wakes whoever waits for something to happen.
    fn change<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        let value = self.with(act);
        self.news.send_modify(|number| *number += 1);
        value
    }
}

/// One incarnation's hand in the world.
#[derive(Clone)]
pub struct Seat {
    world: World,
    life: Incarnation,
}

impl Seat {
    /// Does an effect and waits for its answer. The dead do nothing and wait for ever.
    ///
    /// # Errors
    /// What the test programmed for this key.
    pub async fn call(&self, key: &EffectKey, input: &Value) -> Result<Value, Failure> {
        self.world.call(&self.life, key, input).await
    }

    /// Who acts here.
    pub fn incarnation(&self) -> &Incarnation {
        &self.life
    }

    /// The world this is a seat in.
    pub fn world(&self) -> &World {
        &self.world
    }
}
