//! The choice of the next evaluation: CPU time is shared between namespaces over time, and costly evaluations leave one
//! thread to cheap ones.
//!
//! Reads no clock: the caller passes the time.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use lru::LruCache;

use super::Subject;

/// The divisor of the limit above which the next evaluation of an object is expected to be costly.
const CHEAP: u32 = 100;
/// The divisor of the limit at which an evaluation that was expected to be cheap stops for others. Its namespace then
/// leaves one thread to cheap evaluations.
pub(super) const SURPRISE: u32 = 10;
/// The time for which a namespace leaves one thread after its first unexpected cost, doubled after each further one.
const LEAVE_TIME: Duration = Duration::from_secs(60);
/// The maximum number of doublings.
const MOST_DOUBLED: u32 = 6;
/// The time after which half of the used time of a namespace is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(30);
/// The minimum charge, so that the number of evaluations by which a namespace is ahead is bounded too.
pub(super) const LEAST: Duration = Duration::from_micros(100);
/// The used time below which a namespace counts as unused. It is less than the minimum charge, so that short
/// evaluations count.
const NOTHING: Duration = Duration::from_micros(50);
/// The number of objects whose last cost is remembered.
const OBJECTS: NonZeroUsize = NonZeroUsize::new(16 * 1024).unwrap();

/// The use of CPU time by namespaces and objects.
pub(super) struct Shares {
    /// The limit of an evaluation.
    limit: Duration,
    namespaces: BTreeMap<String, Share>,
    /// The time at which unused namespaces were removed.
    swept_at: Instant,
    /// The cost of the last evaluation of each object, by uid.
    costs: LruCache<String, Duration>,
}

/// The use of one namespace.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// The used time at the time `at`. It halves with every [`HALF_LIFE`].
    used: Duration,
    at: Instant,
    /// The expected cost of an evaluation of an unknown object: the cost of the costliest evaluation so far, reduced
    /// after each cheaper evaluation.
    typical: Duration,
    /// The number of evaluations that were unexpectedly costly.
    surprises: u32,
    /// The time until which the namespace leaves one thread to cheap evaluations.
    left_until: Option<Instant>,
}

impl Share {
    fn used(&self, now: Instant) -> Duration {
        let halves = now.saturating_duration_since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.used.mul_f64(0.5_f64.powf(halves))
    }
}

/// The expected cost of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Expected {
    pub(super) is_costly: bool,
    pub(super) cost: Duration,
}

impl Shares {
    pub(super) fn new(limit: Duration) -> Self {
        let (namespaces, swept_at) = (BTreeMap::new(), Instant::now());
        Self { limit, namespaces, swept_at, costs: LruCache::new(OBJECTS) }
    }

    /// Returns the recently used time of a namespace.
    pub(super) fn used(&self, namespace: &str, now: Instant) -> Duration {
        self.namespaces.get(namespace).map_or(Duration::ZERO, |share| share.used(now))
    }

    /// Returns the expected cost of an evaluation: the last cost of its object, or else the typical cost of its
    /// namespace.
    pub(super) fn estimate_cost(&self, subject: &Subject, now: Instant) -> Expected {
        let share = self.namespaces.get(&subject.namespace);
        let cost = self.costs.peek(&subject.uid).copied();
        let cost = cost.or_else(|| share.map(|share| share.typical)).unwrap_or_default();
        let leaves_thread = share.and_then(|share| share.left_until).is_some_and(|until| now < until);
        Expected { is_costly: leaves_thread || cost > self.limit / CHEAP, cost }
    }

    /// Charges an evaluation to its object and namespace. After an unexpected cost, the namespace leaves one thread to
    /// cheap evaluations for a time. `expected` is the expected cost.
    pub(super) fn charge(&mut self, subject: &Subject, expected: Expected, cost: Duration, now: Instant) {
        self.costs.put(subject.uid.clone(), cost);
        let is_surprise = !expected.is_costly && cost > self.limit / SURPRISE;
        let share = self.charge_namespace(&subject.namespace, cost, now);
        share.typical = cost.max((share.typical * 3 + cost) / 4);
        if is_surprise {
            share.left_until = Some(now + LEAVE_TIME * 2_u32.pow(share.surprises.min(MOST_DOUBLED)));
            share.surprises += 1;
        }
    }

    /// Charges a cost to a namespace, and returns its share. Sometimes removes the shares of unused namespaces first.
    pub(super) fn charge_namespace(&mut self, namespace: &str, cost: Duration, now: Instant) -> &mut Share {
        if now.saturating_duration_since(self.swept_at) >= HALF_LIFE {
            self.swept_at = now;
            self.namespaces.retain(|_, share| share.is_remembered(now));
        }
        let new = Share { used: Duration::ZERO, at: now, typical: Duration::ZERO, surprises: 0, left_until: None };
        let share = self.namespaces.entry(namespace.to_owned()).or_insert(new);
        if !share.is_remembered(now) {
            *share = new;
        }
        share.used = share.used(now) + cost.max(LEAST);
        share.at = now;
        share
    }
}

impl Share {
    /// Whether the share still matters. An unexpected cost has its effect for a time, and is forgotten after the
    /// same time again.
    fn is_remembered(&self, now: Instant) -> bool {
        let forgotten = self.left_until.map(|until| until + LEAVE_TIME * 2_u32.pow(self.surprises.min(MOST_DOUBLED)));
        self.used(now) > NOTHING || forgotten.is_some_and(|at| now < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(namespace: &str, uid: &str) -> Subject {
        let (namespace, uid) = (namespace.to_owned(), uid.to_owned());
        Subject { kind: "Workflow".to_owned(), namespace, name: uid.clone(), uid, generation: 1 }
    }

    fn charge(shares: &mut Shares, subject: &Subject, milliseconds: u64, now: Instant) -> Expected {
        let expected = shares.estimate_cost(subject, now);
        shares.charge(subject, expected, Duration::from_millis(milliseconds), now);
        expected
    }

    #[test]
    fn the_used_time_of_a_namespace_halves_and_is_then_removed() {
        let (mut shares, begin) = (Shares::new(Duration::from_secs(5)), Instant::now());
        charge(&mut shares, &subject("a", "1"), 8000, begin);
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(shares.used("a", begin), Duration::from_secs(8));
        assert_eq!(shares.used("a", after(60)), Duration::from_secs(2));
        assert_eq!(shares.used("b", begin), Duration::ZERO);
        charge(&mut shares, &subject("b", "2"), 1, after(4000));
        assert!(!shares.namespaces.contains_key("a"), "nothing is kept of what does not matter any more");
    }

    #[test]
    fn the_expected_cost_is_the_last_one_of_the_object_or_namespace() {
        let (mut shares, now) = (Shares::new(Duration::from_secs(5)), Instant::now());
        assert!(!charge(&mut shares, &subject("a", "new"), 400, now).is_costly, "nothing is known");
        assert!(charge(&mut shares, &subject("a", "other"), 1, now).is_costly, "as its namespace");
        assert!(shares.estimate_cost(&subject("a", "new"), now).is_costly);
        assert!(!shares.estimate_cost(&subject("a", "other"), now).is_costly, "it was cheap");
        assert!(!shares.estimate_cost(&subject("b", "third"), now).is_costly);
        for n in 0..20 {
            charge(&mut shares, &subject("a", &format!("cheap-{n}")), 1, now);
        }
        assert!(!shares.estimate_cost(&subject("a", "fresh"), now).is_costly, "its namespace was cheap for long");
    }

    #[test]
    fn an_unexpectedly_costly_namespace_yields_longer_each_time() {
        let (mut shares, mut now) = (Shares::new(Duration::from_secs(5)), Instant::now());
        let minutes = |count: u64| Duration::from_secs(60 * count);
        for left in [1, 2, 4, 8] {
            assert!(!charge(&mut shares, &subject("a", &format!("fresh-{left}")), 4900, now).is_costly);
            let cheap = subject("a", "cheap");
            for n in 0..30 {
                charge(&mut shares, &subject("a", &format!("cheap-{left}-{n}")), 1, now);
            }
            charge(&mut shares, &cheap, 1, now);
            assert!(shares.estimate_cost(&cheap, now + minutes(left) - NOTHING).is_costly);
            assert!(!shares.estimate_cost(&cheap, now + minutes(left)).is_costly);
            now += minutes(left);
        }
        // A known costly evaluation is expected to be costly.
        let known = subject("b", "known");
        charge(&mut shares, &known, 400, now);
        charge(&mut shares, &known, 4900, now);
        charge(&mut shares, &subject("b", "cheap"), 1, now);
        assert!(!shares.estimate_cost(&subject("b", "cheap"), now).is_costly);
    }
}
