//! One cached object: whole, compressed, or only a summary.

use std::{
    io,
    sync::{Arc, Weak},
};

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
    /// The size of its JSON when it was last counted: when a version of others was seen, and when it came to rest.
    pub(super) size: JsonSize,
    /// Whether it is that of this version.
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

/// The size of an object's JSON.
#[derive(Clone, Copy, Default)]
pub(super) struct JsonSize {
    /// Its bytes.
    pub(super) bytes: usize,
    /// The number of its values, or more: commas and brackets within texts count too.
    values: usize,
}

impl JsonSize {
    /// Returns the size of an object; none where it has no JSON.
    pub(super) fn of(object: &impl Serialize) -> Self {
        let mut size = Self::default();
        serde_json::to_writer(&mut size, object).map_or_else(|_| Self::default(), |()| size)
    }

    /// Returns how many bytes the object takes in memory at most, about: a value that has two bytes as JSON takes as
    /// much as any other.
    pub(super) fn memory(self) -> usize {
        self.bytes + self.values * size_of::<serde_json::Value>()
    }

    fn add(&mut self, json: &[u8]) {
        self.bytes += json.len();
        self.values += json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    }
}

impl io::Write for JsonSize {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        self.add(json);
        Ok(json.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A compressed object.
pub(super) struct PackedObject {
    bytes: Box<[u8]>,
    size: JsonSize,
}

impl PackedObject {
    /// Compresses an object; `None` where it has no JSON.
    pub(super) fn new(object: &impl Serialize) -> Option<Self> {
        let json = serde_json::to_vec(object).ok()?;
        let mut size = JsonSize::default();
        size.add(&json);
        Some(Self { bytes: compress_to_vec(&json, LEVEL).into(), size })
    }

    /// Returns the object; `None` where it cannot be read any more.
    pub(super) fn unpack<K: DecodedKind>(&self) -> Option<K> {
        let json = decompress_to_vec_with_limit(&self.bytes, self.size.bytes).ok()?;
        serde_json::from_slice::<Decoded<K>>(&json).ok().map(|Decoded(object)| object)
    }

    /// Returns the size of its JSON.
    pub(super) fn size(&self) -> JsonSize {
        self.size
    }

    /// Returns how many bytes it takes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}
