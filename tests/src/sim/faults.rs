//! Faults: which requests go wrong, and how; the rules count the requests they are about from the moment they are set.
//! It decides and never acts: the server that asks it applies, kills and waits.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::ApiServer;
use super::log::{Request, Verb};
use super::status::Refusal;

/// The actor's name that stands for every actor.
pub const EVERYONE: &str = "*";

/// How an actor dies at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The write is applied, its answer is lost.
    Applied,
    /// The write never reached the server.
    NotApplied,
    /// The write is still on its way: it is applied when the next incarnation may long be at work.
    AppliedAfter(Duration),
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The actor's incarnation dies at this request.
    Crash(Crash),
    /// The request is applied, the client sees a broken connection, the actor lives on.
    LoseResponse,
    /// The connection breaks before the request is applied.
    Reset,
    /// The server says no.
    Refuse(Refusal),
    /// The request is refused as a conflict, although nobody changed the object.
    Conflict,
    /// Somebody edits a label of the object just before: a conflict for whoever holds the version before.
    LabelEdit,
    /// Runs before the request is applied.
    Before(Hook),
    /// The answer comes this much later than its effect: the watch may be ahead of it.
    SlowResponse(Duration),
}

impl Fault {
    /// Runs `hook` just before the request is applied.
    pub fn before(hook: impl FnMut(&ApiServer) + Send + 'static) -> Self {
        Self::Before(Hook(Arc::new(Mutex::new(hook))))
    }
}

/// What a test does just before a request is applied; it may read and edit the server's objects freely.
#[derive(Clone)]
pub struct Hook(Arc<Mutex<Action>>);

type Action = dyn FnMut(&ApiServer) + Send;

impl Hook {
    pub(crate) fn run(&self, server: &ApiServer) {
        let mut hook = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hook(server);
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook(…)")
    }
}

type Predicate = Arc<dyn Fn(&Request) -> bool + Send + Sync>;

/// Which requests a rule is about: an actor's writes, or all its requests, narrowed by [`On::only`].
#[derive(Clone)]
pub struct On {
    actor: String,
    writes_only: bool,
    predicate: Option<Predicate>,
    when: When,
}

#[derive(Clone, Copy, Debug)]
enum When {
    Nth(u64),
    Every(u64),
    First(u64),
}

impl On {
    /// Every write of an actor, or of [`EVERYONE`].
    pub fn writes_of(actor: &str) -> Self {
        Self { actor: actor.to_owned(), writes_only: true, predicate: None, when: When::Every(1) }
    }

    /// Every request of an actor, watches and reads included.
    pub fn requests_of(actor: &str) -> Self {
        Self { writes_only: false, ..Self::writes_of(actor) }
    }

    /// Only those for which `predicate` holds; the others are not counted either.
    pub fn only(mut self, predicate: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }

    /// Only the n-th of them, from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.when = When::Nth(n);
        self
    }

    /// Only each k-th of them.
    pub fn every(mut self, k: u64) -> Self {
        self.when = When::Every(k.max(1));
        self
    }

    /// Only the next k of them.
    pub fn first(mut self, k: u64) -> Self {
        self.when = When::First(k);
        self
    }

    fn is_about(&self, request: &Request) -> bool {
        (self.actor == EVERYONE || *self.actor == *request.actor)
            && (request.verb.writes() || !self.writes_only)
            && self.predicate.as_ref().is_none_or(|holds| holds(request))
    }
}

struct Rule {
    on: On,
    fault: Fault,
    seen: u64,
}

impl Rule {
    fn strikes(&mut self, request: &Request) -> bool {
        if !self.on.is_about(request) {
            return false;
        }
        self.seen += 1;
        match self.on.when {
            When::Nth(n) => self.seen == n,
            When::Every(k) => self.seen.is_multiple_of(k),
            When::First(k) => self.seen <= k,
        }
    }
}

/// What is to happen to one request.
#[derive(Default)]
pub(crate) struct Plan {
    /// Hooks to run first, outside of all locks.
    pub(crate) before: Vec<Hook>,
    pub(crate) label_edit: bool,
    pub(crate) stop: Option<Stop>,
    pub(crate) crash: Option<Crash>,
    pub(crate) lose_response: bool,
    pub(crate) slow_response: Duration,
}

/// A request that is not to be applied.
pub(crate) enum Stop {
    Refuse(Refusal),
    Conflict,
    Reset,
}

/// The rules in force.
#[derive(Default)]
pub(crate) struct Faults {
    rules: Vec<Rule>,
}

impl Faults {
    pub(crate) fn add(&mut self, on: On, fault: Fault) {
        self.rules.push(Rule { on, fault, seen: 0 });
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Counts the request in every rule and collects what strikes it; of two refusals the older rule's stands.
    pub(crate) fn plan(&mut self, request: &Request) -> Plan {
        let mut plan = Plan::default();
        for rule in &mut self.rules {
            if !rule.strikes(request) {
                continue;
            }
            match &rule.fault {
                Fault::Crash(crash) => plan.crash = plan.crash.or(Some(*crash)),
                Fault::LoseResponse => plan.lose_response = true,
                Fault::Reset => plan.stop = plan.stop.or(Some(Stop::Reset)),
                Fault::Refuse(refusal) => plan.stop = plan.stop.or_else(|| Some(Stop::Refuse(refusal.clone()))),
                // A creation has no version that could be stale, and a deletion names none.
                Fault::Conflict if matches!(request.verb, Verb::Create | Verb::Delete) => {}
                Fault::Conflict => plan.stop = plan.stop.or(Some(Stop::Conflict)),
                Fault::LabelEdit => plan.label_edit = true,
                Fault::Before(hook) => plan.before.push(hook.clone()),
                Fault::SlowResponse(delay) => plan.slow_response = plan.slow_response.max(*delay),
            }
        }
        plan
    }
}
