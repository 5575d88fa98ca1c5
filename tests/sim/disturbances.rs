//! What goes wrong around an operator that lives: its watches, its answers, and other people's edits.
//! A disturbance never ends a life and never stops for good: each run can come to its end through it.

use std::time::Duration;

use signoff_tests::sim::{ApiServer, EVERYONE, Fault, On, Refusal, Verb};

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
    ("a conflict at every PUT", |server| server.fault(writes().only(|r| r.verb == Verb::Update && r.resource.plural != "leases"), Fault::Conflict)),
    ("a conflict at every second write", |server| {
        server.fault(writes().only(|r| r.verb != Verb::Create && r.resource.plural != "leases").every(2), Fault::Conflict);
    }),
    ("a label edit before every write", |server| server.edit_labels_before_every(1, EVERYONE)),
    ("every second answer lost", |server| server.fault(writes().every(2), Fault::LoseResponse)),
    ("every second request reset", |server| server.fault(writes().every(2), Fault::Reset)),
    ("slow answers", |server| server.slow_responses(EVERYONE, Duration::from_millis(300))),
    ("an overloaded server", |server| server.fault(On::requests_of(EVERYONE).every(3), Fault::Refuse(Refusal::unavailable(1)))),
];

fn writes() -> On {
    On::writes_of(EVERYONE)
}
