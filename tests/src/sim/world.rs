//! The world that effects reach: models, tools and services. It is one ledger of all effects, with their actors and
//! inputs. Whether an effect may be repeated is for the tests to judge.

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

/// The key of an effect in a run: the journal's path, and the attempt from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectKey {
    /// The activity's path, for example `research/.turn-3/.call-1`. Tests with several runs put the run's name first.
    pub path: String,
    /// The attempt, from 1.
    pub attempt: u32,
}

impl EffectKey {
    /// Returns the key of an attempt, from 1, at a path.
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
    /// The path and the attempt.
    pub key: EffectKey,
    /// The input, as the actor sent it.
    pub input: Value,
    /// SHA-256 of the input's JSON, in hex.
    pub digest: String,
    /// The actor who caused the effect.
    pub actor: String,
    /// The actor's life that caused the effect, for example `operator-a#2`.
    pub incarnation: String,
    /// The time at which the effect reached the world.
    pub at: Timestamp,
    /// The answer, whether or not the actor lived to receive it.
    pub answer: Result<Value, Failure>,
    /// The time at which the answer was sent; `None` before that time, and when the actor died before the answer.
    pub answered: Option<Timestamp>,
}

/// The failure of an effect: the error's class as the runtime names it, and the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct Failure {
    /// The class, for example `Timeout` or `RateLimited`.
    pub class: String,
    /// The message for people.
    pub message: String,
}

/// An answer of the world, with its delay.
#[derive(Clone, Debug)]
pub struct Answer {
    result: Result<Value, Failure>,
    after: Duration,
}

impl Answer {
    /// Returns an answer of success, without delay.
    pub fn value(value: impl Into<Value>) -> Self {
        Self { result: Ok(value.into()), after: Duration::ZERO }
    }

    /// Returns an answer of failure, without delay.
    pub fn failure(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { result: Err(Failure { class: class.into(), message: message.into() }), after: Duration::ZERO }
    }

    /// Delays the answer.
    pub fn after(mut self, span: Duration) -> Self {
        self.after = span;
        self
    }
}

/// The ways in which an actor dies at an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectCrash {
    /// Before the effect reached the world: nothing was done.
    NotDone,
    /// After the effect: the answer never came.
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

/// A function that answers effects by their inputs.
type Responder = Box<dyn Fn(&EffectKey, &Value) -> Option<Answer> + Send>;

impl Ledger {
    fn answer_to(&self, key: &EffectKey, input: &Value) -> Answer {
        let find = |attempt| self.answers.get(&(key.path.clone(), attempt));
        let answer = find(Some(key.attempt)).or_else(|| find(None)).cloned();
        let answer = answer.or_else(|| self.responder.as_ref()?(key, input));
        answer.unwrap_or_else(|| Answer::value(json!(format!("answer of {}", key.path))))
    }
}

struct CrashRule {
    actor: String,
    /// The number of effects until the crash; 1 is the next effect.
    left: u64,
    crash: EffectCrash,
}

impl World {
    /// Returns an empty world with the simulation's clock.
    pub fn new(clock: Clock) -> Self {
        Self { ledger: Arc::default(), news: Arc::new(watch::Sender::new(0)), clock }
    }

    /// Returns the seat from which one incarnation acts on this world.
    pub fn seat(&self, life: &Incarnation) -> Seat {
        Seat { world: self.clone(), life: life.clone() }
    }

    /// Sets the answer to every attempt of a path, unless that attempt has an answer of its own.
    pub fn answers(&self, path: impl Into<String>, answer: Answer) {
        self.with(|ledger| ledger.answers.insert((path.into(), None), answer));
    }

    /// Sets the answer to one attempt. A repetition of the attempt gets the same answer: answers depend on the key
    /// only, so that lives can be compared.
    pub fn answers_attempt(&self, path: impl Into<String>, attempt: u32, answer: Answer) {
        self.with(|ledger| ledger.answers.insert((path.into(), Some(attempt)), answer));
    }

    /// Sets the function that answers all other effects. The function depends on key and input only, so that a
    /// repetition gets the same answer.
    pub fn responds(&self, responder: impl Fn(&EffectKey, &Value) -> Option<Answer> + Send + 'static) {
        self.with(|ledger| ledger.responder = Some(Box::new(responder)));
    }

    /// Kills the actor (or [`super::EVERYONE`]) at its n-th effect from now: the effect is done, and its answer never
    /// comes.
    pub fn crash_after_effect(&self, n: u64, actor: &str) {
        self.crash_at_effect(n, actor, EffectCrash::Done);
    }

    /// Kills the actor at its n-th effect from now, in the way of `crash`.
    pub fn crash_at_effect(&self, n: u64, actor: &str, crash: EffectCrash) {
        self.with(|ledger| ledger.crashes.push(CrashRule { actor: actor.to_owned(), left: n, crash }));
    }

    /// Returns all effects, in order.
    pub fn effects(&self) -> Vec<Effect> {
        self.with(|ledger| ledger.effects.clone())
    }

    /// Returns the number of effects with this path, in all attempts.
    pub fn times(&self, path: &str) -> usize {
        self.with(|ledger| ledger.effects.iter().filter(|effect| effect.key.path == path).count())
    }

    /// Returns the effects that were done more than once, with the digests of their inputs: one digest means that the
    /// inputs were identical.
    pub fn repeated(&self) -> BTreeMap<EffectKey, BTreeSet<String>> {
        let mut counts: BTreeMap<EffectKey, (usize, BTreeSet<String>)> = BTreeMap::new();
        for effect in self.effects() {
            let (times, digests) = counts.entry(effect.key).or_default();
            *times += 1;
            digests.insert(effect.digest);
        }
        counts.into_iter().filter(|(_, (times, _))| *times > 1).map(|(key, (_, digests))| (key, digests)).collect()
    }

    /// Waits until `done` is true. Checks after each effect and each answer, and never because time passes.
    pub async fn until(&self, done: impl Fn(&Self) -> bool) {
        let mut news = self.news.subscribe();
        loop {
            news.borrow_and_update();
            if done(self) {
                return;
            }
            // The sender is in `self`, so this cannot fail.
            let _ = news.changed().await;
        }
    }

    /// Returns the world's answer and its delay.
    pub(crate) fn answer_to(&self, key: &EffectKey) -> (Result<Value, Failure>, Duration) {
        let Answer { result, after } = self.with(|ledger| ledger.answer_to(key, &Value::Null));
        (result, after)
    }

    /// Records an effect of an actor that has no lives.
    pub(crate) fn witness(&self, actor: &str, key: &EffectKey, input: &Value) {
        self.record(actor, actor.to_owned(), key, input);
    }

    async fn call(&self, life: &Incarnation, key: &EffectKey, input: &Value) -> Result<Value, Failure> {
        if !life.is_alive() {
            return never().await;
        }
        let crash = self.count_and_find_crash(life.actor());
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

    /// Counts an effect in every rule for the actor, and returns the crash of the oldest rule that is due, or `None`.
    fn count_and_find_crash(&self, actor: &str) -> Option<EffectCrash> {
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

    /// Changes the ledger, and wakes all tasks that wait for a change.
    fn change<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        let value = self.with(act);
        self.news.send_modify(|number| *number += 1);
        value
    }
}

/// The connection of one incarnation to the world.
#[derive(Clone)]
pub struct Seat {
    world: World,
    life: Incarnation,
}

impl Seat {
    /// Does an effect and waits for its answer. A dead incarnation does nothing and waits forever.
    ///
    /// # Errors
    /// The failure that the test set for this key.
    pub async fn call(&self, key: &EffectKey, input: &Value) -> Result<Value, Failure> {
        self.world.call(&self.life, key, input).await
    }

    /// Returns the incarnation that acts here.
    pub fn incarnation(&self) -> &Incarnation {
        &self.life
    }

    /// Returns the world of this seat.
    pub fn world(&self) -> &World {
        &self.world
    }
}
