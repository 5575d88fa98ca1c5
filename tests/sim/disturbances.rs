//! What goes wrong around an operator that lives: its watches, its answers, and other people's edits.
//! A disturbance never ends a life and never stops for good: each run can come to its end through it.

use std::time::Duration;

use signoff_tests::sim::{ApiServer, EVERYONE, Fault, On, Refusal, Request, Verb};

/// A disturbance, by the name that a failing test shows; set before anything happens.
pub type Disturbance = (&'static str, fn(&ApiServer));

/// Nothing goes wrong.
pub const NONE: Disturbance = ("nothing else", |_| {});

/// Everything else that can.
pub const ALL: [Disturbance; 12] = [
    ("dropped watches", |server| server.close_watches_after(EVERYONE, 1)),
    ("forgotten history", |server| {
        server.fault(writes().every(2), Fault::before(|server| server.expire_resource_versions()));
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
    ("every second answer lost", |server| server.fault(writes().every(2), Fault::LoseResponse)),
    ("every second request reset", |server| server.fault(writes().every(2), Fault::Reset)),
    ("slow answers", |server| server.slow_responses(EVERYONE, Duration::from_millis(300))),
    ("an overloaded server", |server| server.fault(On::requests_of(EVERYONE).only(not_a_lease).every(3), Fault::Refuse(Refusal::unavailable(1)))),
];

fn writes() -> On {
    writes_of(|_| true)
}

/// Leases are left in peace: an operator that cannot keep its Lease does nothing, which is not what these are about.
fn writes_of(wanted: fn(&Request) -> bool) -> On {
    On::writes_of(EVERYONE).only(move |request| not_a_lease(request) && wanted(request))
}

fn not_a_lease(request: &Request) -> bool {
    request.resource.plural != "leases"
}
