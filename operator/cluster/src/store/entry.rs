//! One cached object: whole, compressed, or only a summary.

use std::sync::{Arc, Weak};

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec_with_limit};
use serde::Serialize;
use signoff_api::Moment;

use crate::kinds::{Decoded, DecodedKind, ReconciledKind};

/// The fastest level: the objects are text that repeats itself, and are compressed at every rest.
const LEVEL: u8 = 1;

/// A cached object, as far as it is kept.
pub(super) struct Entry<K> {
    pub(super) uid: Box<str>,
    pub(super) version: Box<str>,
    pub(super) body: Body<K>,
    /// The bytes of its JSON when they were last counted: when a version of others was seen, and when it came to rest.
    pub(super) bytes: usize,
    /// Whether they are those of this version.
    pub(super) counted: bool,
    /// The owner's uid, as long as the object stands in `owned`.
    pub(super) owner: Option<Box<str>>,
    pub(super) over: bool,
    pub(super) delete_at: Option<Moment>,
    pub(super) value_bytes: u64,
    /// Whether an own read or write returned this version, so that whoever asked knows it.
    pub(super) own: bool,
    /// Whether the body is what was sent: the API server named its version, and what is stored was not seen yet.
    pub(super) sent: bool,
    /// A write may have been stored whose answer was lost: only the server knows the newest version.
    pub(super) is_stale: bool,
}

/// The source of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// By a watch or a list.
    Watch,
    /// Whole, in the answer to an own read or write.
    Answer,
    /// As an own write sent it.
    Sent,
}

/// The kept part of an object.
pub(super) enum Body<K> {
    Full(Arc<K>),
    /// Compressed, and as long as somebody uses it, also whole.
    Packed(Arc<PackedObject>, Weak<K>),
    Summary,
}

impl<K: ReconciledKind> Entry<K> {
    /// Whether the same version of this object is not what is known of it.
    pub(super) fn differs_from(&self, object: &K) -> bool {
        match &self.body {
            Body::Full(known) => **known != *object,
            // The API server sorts the keys of free-form JSON: other bytes may be the same object.
            Body::Packed(packed, _) => packed.unpack::<K>().is_none_or(|known| known != *object),
            // Nothing else is kept of it.
            Body::Summary => (self.over, self.delete_at) != (object.is_finished(), object.delete_at()),
        }
    }
}

impl<K: ReconciledKind> Body<K> {
    /// Returns the object; `None` where it is not kept.
    pub(super) fn object(&self) -> Option<Arc<K>> {
        match self {
            Self::Full(object) => Some(Arc::clone(object)),
            Self::Packed(packed, whole) => whole.upgrade().or_else(|| packed.unpack().map(Arc::new)),
            Self::Summary => None,
        }
    }
}

/// A compressed object.
pub(super) struct PackedObject {
    bytes: Box<[u8]>,
    /// The bytes of its JSON.
    json: usize,
}

impl PackedObject {
    /// Compresses an object; `None` where it has no JSON.
    pub(super) fn new(object: &impl Serialize) -> Option<Self> {
        let json = serde_json::to_vec(object).ok()?;
        Some(Self { bytes: compress_to_vec(&json, LEVEL).into(), json: json.len() })
    }

    /// Returns the object; `None` where it cannot be read any more.
    pub(super) fn unpack<K: DecodedKind>(&self) -> Option<K> {
        let json = decompress_to_vec_with_limit(&self.bytes, self.json).ok()?;
        serde_json::from_slice::<Decoded<K>>(&json).ok().map(|Decoded(object)| object)
    }

    /// Returns how many bytes its JSON has.
    pub(super) fn json(&self) -> usize {
        self.json
    }

    /// Returns how many bytes it takes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}
