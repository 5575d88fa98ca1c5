//! Fields of a server that come in pieces, merged as streams send them: texts and lists go on, everything else is replaced.

use std::collections::BTreeMap;

use serde_json::{Error, Value, value::RawValue};

use super::{collected::MAX_OPAQUE, fields::Fields};

/// Fields by name. Fields that are too long to be sent back are not kept, but for their length.
#[derive(Default)]
pub(super) struct Merged {
    fields: BTreeMap<String, Piece>,
    /// The bytes of all pieces.
    bytes: usize,
}

enum Piece {
    /// As it was sent, the only time.
    Whole(Box<RawValue>),
    Text(String),
    List(Vec<Box<RawValue>>),
}

impl Merged {
    /// Returns the bytes that are kept.
    pub(super) fn kept(&self) -> usize {
        if self.is_too_long() { 0 } else { self.bytes }
    }

    /// Whether more was received than a turn can send back.
    fn is_too_long(&self) -> bool {
        self.bytes > 2 * MAX_OPAQUE
    }

    /// Adds fields, or further pieces of them.
    pub(super) fn add(&mut self, fields: Fields<'_>) -> Result<(), Error> {
        for (name, value) in fields {
            let name_of_first = if self.fields.contains_key(&name) { 0 } else { name.len() };
            self.bytes = self.bytes.saturating_add(name_of_first + value.get().trim_matches('"').len());
            if self.is_too_long() {
                self.fields.clear();
                continue;
            }
            let next = match self.fields.remove(&name) {
                None => Piece::Whole(value.to_owned()),
                Some(known) => known.with(value)?,
            };
            self.fields.insert(name, next);
        }
        Ok(())
    }

    /// Adds an object under a name, if it has fields.
    pub(super) fn add_object(&mut self, name: &str, fields: Fields<'_>) -> Result<(), Error> {
        if fields.is_empty() {
            return Ok(());
        }
        let json = RawValue::from_string(fields.json())?;
        self.add(Fields::from([(name.to_owned(), &*json)]))
    }

    /// Returns it as JSON, or its length where it is too long; `None` where it has no fields.
    pub(super) fn json(self) -> Option<Result<String, usize>> {
        if self.is_too_long() {
            return Some(Err(self.bytes));
        }
        if self.fields.is_empty() {
            return None;
        }
        let fields: BTreeMap<_, _> = self.fields.into_iter().map(|(name, piece)| (name, piece.json())).collect();
        serde_json::to_string(&fields).ok().map(Ok)
    }
}

impl Piece {
    fn with(self, more: &RawValue) -> Result<Self, Error> {
        let is_text = more.get().starts_with('"');
        let is_list = more.get().starts_with('[');
        match self {
            Self::Text(text) if is_text => Ok(Self::Text(text + &serde_json::from_str::<String>(more.get())?)),
            Self::List(mut list) if is_list => {
                list.extend(serde_json::from_str::<Vec<Box<RawValue>>>(more.get())?);
                Ok(Self::List(list))
            }
            Self::Whole(whole) if is_text && whole.get().starts_with('"') => {
                Self::Text(serde_json::from_str(whole.get())?).with(more)
            }
            Self::Whole(whole) if is_list && whole.get().starts_with('[') => {
                Self::List(serde_json::from_str(whole.get())?).with(more)
            }
            Self::Whole(_) | Self::Text(_) | Self::List(_) => Ok(Self::Whole(more.to_owned())),
        }
    }

    fn json(self) -> Box<RawValue> {
        let json = match self {
            Self::Whole(whole) => return whole,
            Self::Text(text) => Value::String(text).to_string(),
            Self::List(list) => serde_json::to_string(&list).unwrap_or_default(),
        };
        RawValue::from_string(json).unwrap_or_default()
    }
}
