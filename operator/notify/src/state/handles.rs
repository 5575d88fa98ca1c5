//! The ids of sent messages, which later notices change or answer. Each stored object holds up to 500 ids *(pure)*.
//!
//! **Invariant:** a new id changes one object. At most 5,000 ids are remembered, and the oldest ones are forgotten
//! first.

use std::collections::{BTreeMap, BTreeSet};

use crate::{channel::MessageHandle, routes::DeliveryKey};

/// The largest number of ids in one object.
pub const SHARD: usize = 500;
/// The number of objects.
const SHARDS: usize = 10;
/// The largest number of ids.
pub const MAX_HANDLES: usize = SHARD * SHARDS;

/// The largest size of an id in bytes. Longer ids are not remembered.
const MAX_BYTES: usize = 512;

/// The ids of the messages of all channels.
#[derive(Debug)]
pub struct Handles {
    shards: Vec<BTreeMap<String, String>>,
    /// The number of the object to which ids are added.
    current: usize,
    changed: BTreeSet<usize>,
}

impl Default for Handles {
    fn default() -> Self {
        Self { shards: vec![BTreeMap::new(); SHARDS], current: 0, changed: BTreeSet::new() }
    }
}

impl Handles {
    /// Returns the ids that an earlier process stored. `stored`: the objects by their numbers.
    #[must_use]
    pub fn restore(stored: BTreeMap<usize, BTreeMap<String, String>>) -> Self {
        let mut handles = Self::default();
        for (number, messages) in stored {
            if let Some(shard) = handles.shards.get_mut(number) {
                *shard = messages;
            }
        }
        // New ids go into the first object with room. The earlier objects are full, and the later objects are empty or
        // have older ids.
        let with_room = handles.shards.iter().position(|shard| shard.len() < SHARD);
        handles.current = with_room.unwrap_or(0);
        handles
    }

    /// Adds the ids that an earlier process stored, if they were loaded only after this process began to send. Ids of
    /// this process replace older ids.
    pub fn adopt(&mut self, stored: BTreeMap<usize, BTreeMap<String, String>>) {
        let own = std::mem::replace(self, Self::restore(stored));
        for (key, handle) in own.shards.into_iter().flatten() {
            self.insert(key, handle);
        }
    }

    /// Returns the id of the message with this key in a channel.
    #[must_use]
    pub fn get(&self, channel: &str, key: &DeliveryKey) -> Option<MessageHandle> {
        let key = stored_key(channel, key);
        self.shards.iter().find_map(|shard| shard.get(&key)).map(|text| MessageHandle(text.clone()))
    }

    /// Remembers the id of a message.
    pub fn put(&mut self, channel: &str, key: &DeliveryKey, handle: MessageHandle) {
        if handle.0.len() <= MAX_BYTES {
            self.insert(stored_key(channel, key), handle.0);
        }
    }

    /// Stores the id of a message, and notes the changed object. If the current object is full, clears the next object,
    /// which has the oldest ids, and continues there.
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

    /// Returns a changed object with its number, and marks the object as stored.
    pub fn take_changed(&mut self) -> Option<(usize, BTreeMap<String, String>)> {
        let number = self.changed.pop_first()?;
        Some((number, self.shards.get(number).cloned().unwrap_or_default()))
    }

    /// Marks an object as changed again, after a write failed.
    pub fn mark_changed(&mut self, number: usize) {
        self.changed.insert(number);
    }
}

/// Returns the key of a message in its stored object.
fn stored_key(channel: &str, key: &DeliveryKey) -> String {
    format!("{channel}.{}", key.as_str())
}
