//! An object at rest: its JSON, compressed.

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec_with_limit};
use serde::Serialize;

use crate::kinds::{Decoded, DecodedKind};

/// The fastest level: the objects are text that repeats itself, and are compressed at every rest.
const LEVEL: u8 = 1;

/// A compressed object.
pub(crate) struct PackedObject {
    bytes: Box<[u8]>,
    /// The bytes of its JSON.
    json: usize,
}

impl PackedObject {
    /// Compresses an object; `None` where it has no JSON.
    pub(crate) fn new(object: &impl Serialize) -> Option<Self> {
        let json = serde_json::to_vec(object).ok()?;
        Some(Self { bytes: compress_to_vec(&json, LEVEL).into(), json: json.len() })
    }

    /// Returns the object; `None` where it cannot be read any more.
    pub(crate) fn unpack<K: DecodedKind>(&self) -> Option<K> {
        let json = decompress_to_vec_with_limit(&self.bytes, self.json).ok()?;
        serde_json::from_slice::<Decoded<K>>(&json).ok().map(|Decoded(object)| object)
    }

    /// Returns how many bytes its JSON has.
    pub(crate) fn json(&self) -> usize {
        self.json
    }

    /// Returns how many bytes it takes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}
