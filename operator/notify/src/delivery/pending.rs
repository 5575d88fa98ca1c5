//! The events that wait until the state and the configuration are loaded *(pure)*.
//!
//! **Invariant:** bounded. When the events take too much memory, the oldest ones are dropped, and a warning has their
//! number.

use std::collections::BTreeMap;

use signoff_api::Moment;

use crate::{
    config::NamespaceLabels,
    notice::NoticeEvent,
    queue::GIVEN_UP,
    routes::{Occasion, notice_id},
};

/// The most bytes of waiting events, roughly.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The bytes of an event without its details and its audience, roughly.
const BYTES_BESIDES: usize = 1024;
/// The bytes of one subject in the audience, roughly.
const BYTES_OF_PERSON: usize = 64;

/// The waiting events without duplicates, in the order in which they happened.
#[derive(Debug, Default)]
pub(super) struct PendingEvents {
    by_time: BTreeMap<(Moment, NoticeEvent, String), (Occasion, NamespaceLabels)>,
    bytes: usize,
    dropped: usize,
}

impl PendingEvents {
    /// Whether the notices of an event from `at` are still sent when the state and the configuration are loaded at
    /// `now`.
    pub(super) fn is_sent_later(at: Moment, now: Moment) -> bool {
        at.after(GIVEN_UP) > now
    }

    /// Adds an event, unless it waits already. Drops the oldest events beyond [`MAX_BYTES`].
    pub(super) fn add(&mut self, occasion: &Occasion, labels: &NamespaceLabels) {
        let id = notice_id(&occasion.uid, &occasion.key);
        let event = (occasion.clone(), labels.clone());
        self.bytes += bytes_of(occasion);
        if let Some((replaced, _)) = self.by_time.insert((occasion.at, occasion.event, id), event) {
            self.bytes = self.bytes.saturating_sub(bytes_of(&replaced));
        }
        while self.bytes > MAX_BYTES
            && let Some((_, (oldest, _))) = self.by_time.pop_first()
        {
            self.bytes = self.bytes.saturating_sub(bytes_of(&oldest));
            self.dropped += 1;
        }
    }

    /// Whether an event of a run waits.
    pub(super) fn has_run(&self, namespace: &str, run: &str) -> bool {
        self.by_time.values().any(|(occasion, _)| occasion.namespace == namespace && occasion.run == run)
    }

    /// Removes all events, and returns the ones that are still sent. Logs the number of dropped events.
    pub(super) fn take(&mut self, now: Moment) -> Vec<(Occasion, NamespaceLabels)> {
        let Self { by_time, dropped, .. } = std::mem::take(self);
        if dropped > 0 {
            tracing::warn!(dropped, "too many events waited for the state of notices; the oldest ones are not told");
        }
        by_time.into_values().filter(|(occasion, _)| Self::is_sent_later(occasion.at, now)).collect()
    }
}

/// Returns the bytes of an event, roughly.
fn bytes_of(occasion: &Occasion) -> usize {
    let text = occasion.details.as_ref().map_or(0, String::len);
    BYTES_BESIDES + text + occasion.audience.len() * BYTES_OF_PERSON
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        let start: Moment = serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap();
        start.after(Duration::from_secs(seconds))
    }

    fn occasion(number: u64, event: NoticeEvent, details: Option<String>) -> Occasion {
        Occasion {
            event,
            uid: number.to_string(),
            key: format!("{event:?}"),
            namespace: "pay".to_owned(),
            run: "refund".to_owned(),
            approval: None,
            digest: None,
            gate: None,
            gate_type: None,
            requester: "dana".to_owned(),
            deadline: None,
            then: None,
            outcome: None,
            details,
            audience: Vec::new(),
            added: Vec::new(),
            at: at(number),
        }
    }

    #[test]
    fn each_event_waits_once_in_order_and_at_most_a_day() {
        let (mut pending, labels) = (PendingEvents::default(), NamespaceLabels::default());
        for number in [3, 1, 2, 3] {
            for event in [NoticeEvent::Taken, NoticeEvent::Asked] {
                pending.add(&occasion(number, event, None), &labels);
            }
        }
        let taken_events = pending.take(at(1).after(GIVEN_UP));
        let taken_events: Vec<_> = taken_events.iter().map(|(event, _)| (event.uid.as_str(), event.event)).collect();
        let (asked, taken) = (NoticeEvent::Asked, NoticeEvent::Taken);
        assert_eq!(taken_events, [("2", asked), ("2", taken), ("3", asked), ("3", taken)]);
        assert!(pending.take(at(3)).is_empty());
    }

    #[test]
    fn newest_events_wait_if_there_are_too_many() {
        let (mut pending, labels) = (PendingEvents::default(), NamespaceLabels::default());
        let details = Some("x".repeat(64 * 1024));
        for number in 0..1000 {
            pending.add(&occasion(number, NoticeEvent::Asked, details.clone()), &labels);
            pending.add(&occasion(number, NoticeEvent::Asked, details.clone()), &labels);
        }
        let taken_events = pending.take(at(1000));
        let bytes: usize = taken_events.iter().map(|(event, _)| bytes_of(event)).sum();
        assert!(bytes <= MAX_BYTES && taken_events.len() > 200, "{} of {bytes} bytes", taken_events.len());
        assert_eq!(taken_events.last().map(|(event, _)| event.at), Some(at(999)));
    }
}
