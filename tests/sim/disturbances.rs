//! Failures around a living operator: in its watches, its answers, and by other people's edits. A disturbance never
//! ends a life and never blocks a run forever.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use signoff_tests::sim::{ApiServer, EVERYONE, Fault, On, Refusal, Request, Verb};

/// A disturbance, with the name that a failing test shows; it is set before anything happens.
pub type Disturbance = (&'static str, fn(&ApiServer));

/// No failure.
pub const NONE: Disturbance = ("nothing else", |_| {});

/// All other disturbances.
pub const ALL: [Disturbance; 13] = [
    ("dropped watches", |server| server.close_watches_after(EVERYONE, 1)),
    ("forgotten history", |server| {
        server.fault(writes_of(|_| true).every(2), Fault::before(|server| server.expire_resource_versions()));
    }),
    ("every event twice", |server| server.duplicate_events(EVERYONE)),
    ("stale caches", |server| server.delay_events(EVERYONE, Duration::from_millis(700))),
    ("very stale caches, every event twice", |server| {
        server.delay_events(EVERYONE, Duration::from_secs(9));
        server.duplicate_events(EVERYONE);
    }),
    ("a conflict at every PUT", |server| server.fault(writes_of(|r| r.verb == Verb::Update), Fault::Conflict)),
    ("a conflict at every second write", |server| {
        server.fault(writes_of(|r| r.verb != Verb::Create).every(2), Fault::Conflict);
    }),
    ("a label edit before every write", |server| server.fault(writes_of(|r| r.verb != Verb::Create), Fault::LabelEdit)),
    ("answers lost", |server| server.fault(writes().only(now_and_then()), Fault::LoseResponse)),
    ("requests reset", |server| server.fault(writes().only(now_and_then()), Fault::Reset)),
    ("slow answers", |server| server.slow_responses(EVERYONE, Duration::from_millis(300))),
    ("an overloaded server", |server| {
        server.fault(On::requests_of(EVERYONE).only(now_and_then()), Fault::Refuse(Refusal::unavailable(1)))
    }),
    ("a clock that jumps by days", |server| {
        let jumps = AtomicU64::new(0);
        let jump = move |server: &ApiServer| {
            let at = usize::try_from(jumps.fetch_add(1, Ordering::Relaxed)).unwrap_or_default();
            server.set_machines_ahead(JUMPS[at % JUMPS.len()]);
        };
        server.fault(On::requests_of(EVERYONE), Fault::before(jump));
    }),
];

/// The seconds by which the clock of an operator's machine is wrong, one after the other.
const JUMPS: [i64; 5] = [25 * 3600, -600, 7 * 24 * 3600, 4, -365 * 24 * 3600];

/// Returns a predicate that is true for about every third request, without a rhythm: with a rhythm, an operation of as
/// many requests could never finish.
fn now_and_then() -> impl Fn(&Request) -> bool + Send + Sync + 'static {
    let seen = AtomicU64::new(0);
    move |request| {
        not_a_lease(request)
            && (seen.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).is_multiple_of(3)
    }
}

fn writes() -> On {
    On::writes_of(EVERYONE)
}

/// Returns the writes that match, without those of Leases: an operator that cannot keep its Lease does nothing.
fn writes_of(wanted: fn(&Request) -> bool) -> On {
    On::writes_of(EVERYONE).only(move |request| not_a_lease(request) && wanted(request))
}

fn not_a_lease(request: &Request) -> bool {
    request.resource.plural != "leases"
}
