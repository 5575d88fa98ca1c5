//! Faults: which requests go wrong, and how. Each rule counts the requests that it matches from the moment it is set.
//! The server asks for a plan and carries it out.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::ApiServer;
use super::log::{Request, Verb};
use super::status::Refusal;

/// The name that stands for all actors.
pub const EVERYONE: &str = "*";

/// The ways in which an actor dies at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The write is applied, and its answer is lost.
    Applied,
    /// The write never reached the server.
    NotApplied,
    /// The write is still in flight: it is applied later, when the next incarnation may have been at work for long.
    AppliedAfter(Duration),
}

/// A fault of a request, or an action of the test before a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The actor's incarnation dies at this request.
    Crash(Crash),
    /// The request is applied, the client sees a broken connection, and the actor does not die.
    LoseResponse,
    /// The connection breaks before the request is applied.
    Reset,
    /// The server refuses the request.
    Refuse(Refusal),
    /// The request is refused as a conflict, although the object was not changed.
    Conflict,
    /// A label of the object is edited just before, which is a conflict for a writer with the earlier version.
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

/// The action of a test just before a request is applied; it may read and edit the server's objects.
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

/// The requests that match a rule: an actor's writes, or all its requests, narrowed by [`On::only`].
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
    /// Matches every write of an actor, or of [`EVERYONE`].
    pub fn writes_of(actor: &str) -> Self {
        Self { actor: actor.to_owned(), writes_only: true, predicate: None, when: When::Every(1) }
    }

    /// Matches every request of an actor, watches and reads included.
    pub fn requests_of(actor: &str) -> Self {
        Self { writes_only: false, ..Self::writes_of(actor) }
    }

    /// Limits the rule to requests for which `predicate` holds; the others are not counted either.
    pub fn only(mut self, predicate: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }

    /// Limits the rule to the n-th match, from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.when = When::Nth(n);
        self
    }

    /// Limits the rule to each k-th match.
    pub fn every(mut self, k: u64) -> Self {
        self.when = When::Every(k.max(1));
        self
    }

    /// Limits the rule to the next k matches.
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
    /// The number of requests that matched since the rule was set.
    seen: u64,
}

impl Rule {
    /// Counts the request if the rule matches, and returns whether the fault is due now.
    fn is_due(&mut self, request: &Request) -> bool {
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

/// The plan for one request.
#[derive(Default)]
pub(crate) struct Plan {
    /// The hooks to run first, outside of all locks.
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

/// The current rules.
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

    /// Counts the request in every rule and collects the faults that are due; of two refusals the older rule's is used.
    pub(crate) fn plan(&mut self, request: &Request) -> Plan {
        let mut plan = Plan::default();
        for rule in &mut self.rules {
            if !rule.is_due(request) {
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
