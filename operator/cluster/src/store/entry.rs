//! One cached object: whole, compressed, or only a summary.

use std::{
    io,
    sync::{Arc, Weak},
};

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec_with_limit};
use serde::Serialize;
use signoff_api::Moment;

use crate::kinds::{Decoded, DecodedKind, ReconciledKind};

/// The fastest level, because objects are compressed after every use and their text is repetitive.
const LEVEL: u8 = 1;

/// A cached object.
pub(super) struct Entry<K> {
    pub(super) uid: Box<str>,
    pub(super) version: Box<str>,
    pub(super) body: Body<K>,
    /// The size of its JSON at the last count: when a version of another client arrived, or when it was released.
    pub(super) size: JsonSize,
    /// Whether `size` is the size of this version.
    pub(super) counted: bool,
    /// The owner's uid, as long as the object is in `owned`.
    pub(super) owner: Option<Box<str>>,
    pub(super) over: bool,
    pub(super) delete_at: Option<Moment>,
    pub(super) value_bytes: u64,
    /// Whether a read or write of this process returned this version, so that its reconcile has handled it.
    pub(super) own: bool,
    /// Whether the body is the sent object. The API server has answered with its version, but the stored object was not
    /// received yet.
    pub(super) sent: bool,
    /// Whether the answer to a write was lost. Then only the API server knows the newest version.
    pub(super) is_stale: bool,
}

/// The source of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A watch or a list.
    Watch,
    /// The answer to a read or write of this process, with the whole object.
    Answer,
    /// A write of this process, as it was sent.
    Sent,
}

/// The kept part of an object.
pub(super) enum Body<K> {
    Full(Arc<K>),
    /// Compressed, and also whole as long as it is in use.
    Packed(Arc<PackedObject>, Weak<K>),
    Summary,
}

impl<K: ReconciledKind> Entry<K> {
    /// Whether the cached object of the same version differs from this one.
    pub(super) fn differs_from(&self, object: &K) -> bool {
        match &self.body {
            Body::Full(known) => **known != *object,
            // The API server sorts the keys of free-form JSON, so the bytes may differ although the object is the same.
            Body::Packed(packed, _) => packed.unpack::<K>().is_none_or(|known| known != *object),
            // A summary keeps only these two values.
            Body::Summary => (self.over, self.delete_at) != (object.is_finished(), object.delete_at()),
        }
    }
}

impl<K: ReconciledKind> Body<K> {
    /// Returns the object, or `None` if only its summary is kept.
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
    /// The bytes of the JSON.
    pub(super) bytes: usize,
    /// An upper bound of the number of values in the JSON: commas and brackets within strings count too.
    values: usize,
}

impl JsonSize {
    /// Returns the size of an object, or 0 if it cannot be serialized.
    pub(super) fn of(object: &impl Serialize) -> Self {
        let mut size = Self::default();
        serde_json::to_writer(&mut size, object).map_or_else(|_| Self::default(), |()| size)
    }

    /// Returns roughly the most bytes that the object takes in memory. A value of two bytes of JSON takes as much as
    /// any other.
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
    /// Compresses an object. `None` if it cannot be serialized.
    pub(super) fn new(object: &impl Serialize) -> Option<Self> {
        let json = serde_json::to_vec(object).ok()?;
        let mut size = JsonSize::default();
        size.add(&json);
        Some(Self { bytes: compress_to_vec(&json, LEVEL).into(), size })
    }

    /// Returns the object, or `None` if it cannot be decoded.
    pub(super) fn unpack<K: DecodedKind>(&self) -> Option<K> {
        let json = decompress_to_vec_with_limit(&self.bytes, self.size.bytes).ok()?;
        serde_json::from_slice::<Decoded<K>>(&json).ok().map(|Decoded(object)| object)
    }

    /// Returns the size of its JSON.
    pub(super) fn size(&self) -> JsonSize {
        self.size
    }

    /// Returns the number of compressed bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}
