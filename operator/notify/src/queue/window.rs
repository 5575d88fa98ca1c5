//! The notices of one minute to one recipient about one namespace, of which those beyond the first are folded *(pure)*.

use std::{collections::BTreeMap, sync::Arc};

use signoff_api::Moment;

use crate::{
    channel::Recipient,
    notice::{Notice, NoticeEvent},
    routes::{Addressed, DeliveryKey, correlation, notice_id},
};

/// The number of notices of a window that are told one by one.
const FOLDED_FROM: usize = 20;

/// The recipients of floods, by namespace: what one namespace asks folds nothing of another.
pub(super) type Windows = BTreeMap<(Recipient, String), Window>;

/// The notices of one minute to one recipient about one namespace.
#[derive(Debug)]
pub(super) struct Window {
    /// The time at which it ends.
    pub(super) ends: Moment,
    /// The number of notices that were not folded.
    told: usize,
    folded: Vec<FoldedDelivery>,
    /// The notice that stands for them, without their number.
    summary: Option<Addressed>,
}

/// A delivery of which only its name is kept.
#[derive(Debug)]
struct FoldedDelivery {
    key: DeliveryKey,
    correlation: String,
}

impl FoldedDelivery {
    fn bytes(&self) -> usize {
        self.key.as_str().len() + self.correlation.len()
    }
}

impl Window {
    /// Returns a window that ends at a time.
    pub(super) fn new(ends: Moment) -> Self {
        Self { ends, told: 0, folded: Vec::new(), summary: None }
    }

    /// Folds a notice that asks. Returns the bytes that are kept of it; `None` where it is told by itself.
    pub(super) fn fold(&mut self, addressed: &Addressed) -> Option<usize> {
        if self.told < FOLDED_FROM {
            self.told += 1;
            return None;
        }
        let correlation = addressed.notice.correlation.clone();
        let folded = FoldedDelivery { key: addressed.key(), correlation };
        let bytes = folded.bytes();
        self.folded.push(folded);
        self.summary.get_or_insert_with(|| summary(addressed));
        Some(bytes)
    }

    /// Removes the last delivery that is folded. Returns it and its bytes.
    pub(super) fn pop(&mut self) -> Option<(DeliveryKey, usize)> {
        let folded = self.folded.pop()?;
        let bytes = folded.bytes();
        Some((folded.key, bytes))
    }

    /// Removes the deliveries with this correlation that are folded. Returns them and their bytes.
    pub(super) fn remove(&mut self, correlation: &str) -> (Vec<DeliveryKey>, usize) {
        keys_and_bytes(self.folded.extract_if(.., |folded| folded.correlation == correlation))
    }

    /// Returns the one notice for all that are folded, their keys and their bytes; `None` where none is.
    pub(super) fn close(self, inbox: Option<&str>) -> Option<(Addressed, Vec<DeliveryKey>, usize)> {
        let summary = self.summary.filter(|_| !self.folded.is_empty())?;
        let notice = Notice {
            kind: Some(format!("{} more wait", self.folded.len())),
            link: inbox.map(str::to_owned),
            ..Notice::clone(&summary.notice)
        };
        let (keys, bytes) = keys_and_bytes(self.folded.into_iter());
        Some((Addressed { notice: Arc::new(notice), ..summary }, keys, bytes))
    }
}

fn keys_and_bytes(folded: impl Iterator<Item = FoldedDelivery>) -> (Vec<DeliveryKey>, usize) {
    let mut bytes = 0;
    let keys = folded.inspect(|folded| bytes += folded.bytes()).map(|folded| folded.key).collect();
    (keys, bytes)
}

/// Returns the notice that stands for those that are folded with this first one.
fn summary(first: &Addressed) -> Addressed {
    let Addressed { channel, to, notice } = first;
    let notice = Notice {
        id: notice_id(&notice.id, "folded"),
        event: NoticeEvent::Asked,
        correlation: correlation(&notice.id, channel),
        namespace: notice.namespace.clone(),
        run: String::new(),
        approval: None,
        gate: None,
        kind: None,
        requester: String::new(),
        deadline: None,
        then: None,
        outcome: None,
        details: None,
        link: None,
        at: notice.at,
    };
    Addressed { channel: channel.clone(), to: to.clone(), notice: Arc::new(notice) }
}

/// Whether notices of an event are folded in a flood: those that ask.
pub(super) fn is_folded(event: NoticeEvent) -> bool {
    match event {
        NoticeEvent::Asked | NoticeEvent::Reminded => true,
        NoticeEvent::Escalated | NoticeEvent::Taken | NoticeEvent::VoteVoided | NoticeEvent::Ended => false,
    }
}
