//! The share of a queue that the deliveries of one namespace take *(pure)*.

use crate::{channel::Recipient, notice::Notice, routes::Addressed};

/// The bytes of a delivery without its texts, roughly.
const BYTES_BESIDES: usize = 512;

/// The number and the bytes of the deliveries of one namespace, including folded ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    pub(super) in_flight: usize,
}

/// Returns the bytes of a delivery. A notice that several recipients share counts for each of them.
pub(super) fn bytes_of(addressed: &Addressed) -> usize {
    let Addressed { channel, to, notice } = addressed;
    let Notice {
        id,
        event: _,
        correlation,
        namespace,
        run,
        approval,
        gate,
        kind,
        requester,
        deadline: _,
        then,
        outcome,
        details,
        link,
        at: _,
    } = &**notice;
    let person = match to {
        Recipient::Channel => 0,
        Recipient::Person(address) => address.len(),
    };
    let texts = [channel, id, correlation, namespace, run, requester].map(String::len);
    let optional = [approval, gate, kind, then, outcome, details, link];
    let optional = optional.map(|text| text.as_ref().map_or(0, String::len));
    BYTES_BESIDES + person + texts.iter().chain(&optional).sum::<usize>()
}
