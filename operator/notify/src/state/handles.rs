//! The messages that later notices change or answer, in objects of 500 each *(pure)*.
//!
//! **Invariant:** a new message changes one object, and at most 5,000 are remembered: the oldest are forgotten.

use std::collections::{BTreeMap, BTreeSet};

use crate::{channel::MessageHandle, routes::DeliveryKey};

/// The number of messages in one object.
pub const SHARD: usize = 500;
/// The number of objects.
const SHARDS: usize = 10;
/// The largest number of messages.
pub const MAX_HANDLES: usize = SHARD * SHARDS;

/// The longest handle, in bytes. A longer one is not remembered.
const MAX_BYTES: usize = 512;

/// The messages of all channels.
#[derive(Debug)]
pub struct Handles {
    shards: Vec<BTreeMap<String, String>>,
    /// The object to which messages are added.
    current: usize,
    changed: BTreeSet<usize>,
}

impl Default for Handles {
    fn default() -> Self {
        Self { shards: vec![BTreeMap::new(); SHARDS], current: 0, changed: BTreeSet::new() }
    }
}

impl Handles {
    /// Returns the messages that an earlier process stored, by the numbers of their objects.
    #[must_use]
    pub fn restore(stored: BTreeMap<usize, BTreeMap<String, String>>) -> Self {
        let mut handles = Self::default();
        for (number, messages) in stored {
            if let Some(shard) = handles.shards.get_mut(number) {
                *shard = messages;
            }
        }
        // The first one with room: those before it are full, those behind it are empty or older.
        let with_room = handles.shards.iter().position(|shard| shard.len() < SHARD);
        handles.current = with_room.unwrap_or(0);
        handles
    }

    /// Puts the messages that an earlier process stored, and that were loaded late, before those of this process.
    pub fn adopt(&mut self, stored: BTreeMap<usize, BTreeMap<String, String>>) {
        let newer = std::mem::replace(self, Self::restore(stored));
        for (key, handle) in newer.shards.into_iter().flatten() {
            self.insert(key, handle);
        }
    }

    /// Returns the message of a channel that has this key.
    #[must_use]
    pub fn get(&self, channel: &str, key: &DeliveryKey) -> Option<MessageHandle> {
        let key = name(channel, key);
        self.shards.iter().find_map(|shard| shard.get(&key)).map(|text| MessageHandle(text.clone()))
    }

    /// Remembers a message.
    pub fn put(&mut self, channel: &str, key: &DeliveryKey, handle: MessageHandle) {
        if handle.0.len() <= MAX_BYTES {
            self.insert(name(channel, key), handle.0);
        }
    }

    fn insert(&mut self, key: String, handle: String) {
        let known = self.shards.iter().position(|shard| shard.contains_key(&key));
        let is_full = self.shards.get(self.current).is_none_or(|shard| shard.len() >= SHARD);
        if known.is_none() && is_full {
            self.current = (self.current + 1) % SHARDS;
            if let Some(oldest) = self.shards.get_mut(self.current) {
                oldest.clear();
            }
        }
        let number = known.unwrap_or(self.current);
        let Some(shard) = self.shards.get_mut(number) else { return };
        if shard.get(&key) != Some(&handle) {
            shard.insert(key, handle);
            self.changed.insert(number);
        }
    }

    /// Returns the next object that is to be stored.
    pub fn take_changed(&mut self) -> Option<(usize, BTreeMap<String, String>)> {
        let number = self.changed.pop_first()?;
        Some((number, self.shards.get(number).cloned().unwrap_or_default()))
    }

    /// Marks an object as not stored, because a write failed.
    pub fn mark_changed(&mut self, number: usize) {
        self.changed.insert(number);
    }
}

fn name(channel: &str, key: &DeliveryKey) -> String {
    format!("{channel}.{}", key.as_str())
}
