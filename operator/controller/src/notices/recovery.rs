//! The events of the first lists, kept until every object was listed *(pure)*: only the run has the outcome of a gate,
//! and the labels of namespaces are missing before.
//!
//! **Invariant:** bounded for each namespace, whatever its objects contain.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use signoff_api::{Moment, approval::ApprovalPhase};
use signoff_cluster::kinds::Name;
use signoff_expr::text;
use signoff_notify::Occasion;

use super::{
    NoticeScope,
    occasion::{bytes_of, with_outcome},
};

/// The most events of a namespace.
const MAX_EVENTS: usize = 16_384;
/// The most bytes of the events of a namespace.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// The most outcomes of a namespace, of which many were announced before.
const MAX_TAKEN: usize = 4 * MAX_EVENTS;
/// The longest text of authors and models in an event, in bytes.
const MAX_DETAILS: usize = 4096;

/// The events of the first lists.
#[derive(Default)]
pub(super) struct Recovery {
    namespaces: BTreeMap<String, NamespaceEvents>,
}

#[derive(Default)]
struct NamespaceEvents {
    /// The events by the uid of their object and their transition, so that an object that is listed again replaces its
    /// events.
    events: BTreeMap<(String, String), DerivedEvent>,
    bytes: usize,
    /// The outcomes that runs have taken, by the names of the Approvals.
    taken: BTreeMap<Arc<str>, TakenOutcome>,
}

/// An event of a stored object that may not have been announced.
pub(super) struct DerivedEvent {
    pub(super) occasion: Occasion,
    pub(super) applies: EventCondition,
}

/// The condition under which a derived event is announced.
pub(super) enum EventCondition {
    /// Always, because the event has happened.
    Always,
    /// If the run with this uid is open, so that the gate still asks.
    RunIsOpen(String),
    /// If the run with this uid has taken an outcome, which is then announced.
    IsTaken {
        run: String,
        /// Whether an earlier process queued the notice, which is still open. If the outcome is in a part of the
        /// journal that is not read here, the notice omits it.
        was_queued: bool,
        /// Whether the Approval was cancelled, which is announced if its run is gone.
        is_cancelled: bool,
    },
}

/// An outcome that a run has taken, from its record.
pub(super) struct TakenOutcome {
    /// The uid of the run.
    pub(super) run: String,
    pub(super) phase: ApprovalPhase,
    pub(super) at: Moment,
}

impl DerivedEvent {
    /// Returns the notice of the event, or `None` if its condition does not hold. `taken`: the outcome that a run has
    /// taken from an Approval of this name.
    pub(super) fn resolve(self, scope: &NoticeScope<'_>, taken: Option<&TakenOutcome>) -> Option<Occasion> {
        let Self { occasion, applies } = self;
        let name = Name::new(&occasion.namespace, &occasion.run);
        match applies {
            EventCondition::Always => Some(occasion),
            EventCondition::RunIsOpen(run) => scope.is_run_open(&name, &run).then_some(occasion),
            EventCondition::IsTaken { run, was_queued, is_cancelled } => match taken.filter(|taken| taken.run == run) {
                Some(taken) => Some(with_outcome(occasion, taken.phase, taken.at)),
                None if is_cancelled && scope.is_run_gone(&name, &run) => {
                    let at = occasion.at;
                    Some(with_outcome(occasion, ApprovalPhase::Cancelled, at))
                }
                None => was_queued.then_some(occasion),
            },
        }
    }
}

impl Recovery {
    /// Keeps an event, or returns it if there is no room. `wants_details`: whether a channel shows the question.
    pub(super) fn add(&mut self, event: DerivedEvent, wants_details: bool) -> Option<Occasion> {
        let DerivedEvent { occasion, applies } = event;
        let details = occasion.details.as_deref().filter(|_| wants_details).map(shorten);
        let occasion = Occasion { details, ..occasion };
        let of_namespace = self.namespaces.entry(occasion.namespace.clone()).or_default();
        let bytes = bytes_of(&occasion);
        let has_room = of_namespace.events.len() < MAX_EVENTS && of_namespace.bytes + bytes <= MAX_BYTES;
        match of_namespace.events.entry((occasion.uid.clone(), occasion.key.clone())) {
            Entry::Vacant(_) if !has_room => return Some(occasion),
            Entry::Vacant(entry) => {
                entry.insert(DerivedEvent { occasion, applies });
            }
            Entry::Occupied(mut entry) => {
                let old = entry.insert(DerivedEvent { occasion, applies });
                of_namespace.bytes = of_namespace.bytes.saturating_sub(bytes_of(&old.occasion));
            }
        }
        of_namespace.bytes += bytes;
        None
    }

    /// Keeps an outcome that a run has taken from an Approval.
    pub(super) fn add_taken(&mut self, approval: &Name, taken: TakenOutcome) {
        let of_namespace = self.namespaces.entry(approval.namespace.to_string()).or_default();
        if of_namespace.taken.len() < MAX_TAKEN || of_namespace.taken.contains_key(&approval.name) {
            of_namespace.taken.insert(Arc::clone(&approval.name), taken);
        }
    }

    /// Returns the notices to be queued, in the order of their times.
    pub(super) fn into_occasions(self, scope: &NoticeScope<'_>) -> Vec<Occasion> {
        let mut occasions = Vec::new();
        for NamespaceEvents { events, taken, .. } in self.namespaces.into_values() {
            for event in events.into_values() {
                let outcome = event.occasion.approval.as_deref().and_then(|name| taken.get(name));
                occasions.extend(event.resolve(scope, outcome));
            }
        }
        occasions.sort_by_key(|occasion| occasion.at);
        occasions
    }
}

fn shorten(details: &str) -> String {
    match details.len() <= MAX_DETAILS {
        true => details.to_owned(),
        false => format!("{}…", text::first(details, MAX_DETAILS - '…'.len_utf8())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::notices::{occasion, tests};

    fn event(number: usize, details: Option<&str>) -> DerivedEvent {
        let approval = tests::approval(serde_json::json!({}));
        let end = occasion::notice_of_end(&approval, tests::at("2030-01-01T01:00:00Z")).unwrap();
        let occasion = Occasion { uid: format!("uid-{number}"), details: details.map(str::to_owned), ..end };
        DerivedEvent { occasion, applies: EventCondition::Always }
    }

    #[test]
    fn the_events_of_a_namespace_are_bounded() {
        let mut recovery = Recovery::default();
        let template = event(0, None).occasion;
        let mut add = |number: usize, namespace: &str| {
            let occasion =
                Occasion { uid: format!("uid-{number}"), namespace: namespace.to_owned(), ..template.clone() };
            let dropped = recovery.add(DerivedEvent { occasion, applies: EventCondition::Always }, true);
            (dropped.map(|occasion| occasion.uid), recovery.namespaces.get(namespace).unwrap().bytes)
        };
        assert!((0..MAX_EVENTS).all(|number| add(number, "pay").0.is_none()));
        let (dropped, bytes) = add(MAX_EVENTS, "pay");
        assert_eq!(dropped, Some(format!("uid-{MAX_EVENTS}")), "it is given back, to be counted");
        assert_eq!(add(7, "pay"), (None, bytes));
        assert_eq!(add(0, "lab").0, None, "another namespace has its own room");
    }

    #[test]
    fn details_are_kept_only_for_a_channel_that_shows_them_and_are_cut() {
        let kept_details = |details: &str, wants_details| {
            let mut recovery = Recovery::default();
            assert!(recovery.add(event(0, Some(details)), wants_details).is_none());
            let of_namespace = recovery.namespaces.into_values().next().unwrap();
            of_namespace.events.into_values().next().unwrap().occasion.details
        };
        assert_eq!(kept_details("Refund it?", false), None);
        assert_eq!(kept_details("Refund it?", true).as_deref(), Some("Refund it?"));
        let cut = kept_details(&"ä".repeat(3000), true).unwrap();
        assert!(cut.len() <= MAX_DETAILS && cut.len() > MAX_DETAILS - 4 && cut.ends_with('…'), "{}", cut.len());
    }
}
