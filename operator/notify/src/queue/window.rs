//! Windows of one minute. The first 20 notices about one namespace to one recipient are sent one by one, and further
//! ones are folded into one notice *(pure)*.

use std::{collections::BTreeMap, sync::Arc};

use signoff_api::Moment;

use crate::{
    channel::Recipient,
    notice::{Notice, NoticeEvent},
    routes::{Addressed, DeliveryKey, correlation, notice_id},
};

/// The number of notices in a window that are sent one by one.
const FOLDED_FROM: usize = 20;

/// The open windows by recipient and namespace. Notices about different namespaces are never folded together.
pub(super) type Windows = BTreeMap<(Recipient, String), Window>;

/// The notices of one minute about one namespace to one recipient.
#[derive(Debug)]
pub(super) struct Window {
    /// The end of the window.
    pub(super) ends: Moment,
    /// The number of notices that were not folded.
    unfolded: usize,
    folded: Vec<FoldedDelivery>,
    /// The notice that replaces the folded ones, without their number.
    summary: Option<Addressed>,
}

/// A folded delivery, of which only the key and the correlation are kept.
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
    /// Returns an empty window.
    pub(super) fn new(ends: Moment) -> Self {
        Self { ends, unfolded: 0, folded: Vec::new(), summary: None }
    }

    /// Folds a notice that asks for a decision, and returns the bytes that it still takes; or `None` if the notice is
    /// one of the first in the window, which are sent one by one.
    pub(super) fn fold(&mut self, addressed: &Addressed) -> Option<usize> {
        if self.unfolded < FOLDED_FROM {
            self.unfolded += 1;
            return None;
        }
        let correlation = addressed.notice.correlation.clone();
        let folded = FoldedDelivery { key: addressed.key(), correlation };
        let bytes = folded.bytes();
        self.folded.push(folded);
        self.summary.get_or_insert_with(|| new_summary(addressed));
        Some(bytes)
    }

    /// Removes the last folded delivery, and returns its key and bytes.
    pub(super) fn pop(&mut self) -> Option<(DeliveryKey, usize)> {
        let folded = self.folded.pop()?;
        let bytes = folded.bytes();
        Some((folded.key, bytes))
    }

    /// Removes the folded deliveries with this correlation, and returns their keys and bytes.
    pub(super) fn remove(&mut self, correlation: &str) -> (Vec<DeliveryKey>, usize) {
        keys_and_bytes(self.folded.extract_if(.., |folded| folded.correlation == correlation))
    }

    /// Returns the notice that replaces the folded ones, with their keys and bytes; or `None` if no notice was folded.
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

/// Returns the notice that replaces folded notices, still without their number. `first`: the first folded notice.
fn new_summary(first: &Addressed) -> Addressed {
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

/// Whether notices of an event can be folded. Only notices that ask for a decision can.
pub(super) fn is_folded(event: NoticeEvent) -> bool {
    match event {
        NoticeEvent::Asked | NoticeEvent::Reminded => true,
        NoticeEvent::Escalated | NoticeEvent::Taken | NoticeEvent::VoteVoided | NoticeEvent::Ended => false,
    }
}
