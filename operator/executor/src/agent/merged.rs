//! Fields of a server that arrive in pieces, merged like streams send them: texts and lists are continued, objects are
//! merged by field, and all other values are replaced.

use std::collections::BTreeMap;

use serde_json::{Error, Value, value::RawValue};

use super::{collected::MAX_OPAQUE, fields::Fields};

/// The maximum number of kept bytes. More could not be sent back.
const MOST_BYTES: usize = 2 * MAX_OPAQUE;
/// The memory of a field beside its name and its value, in bytes.
const FIELD_OVERHEAD: usize = 64;
/// The maximum depth of a merged object. Deeper objects are replaced.
const MAX_DEPTH: usize = 4;
/// The fields within objects that always arrive in pieces. Another field that arrives twice with the same value is kept
/// once.
const STREAMED: [&str; 2] = ["text", "summary"];
/// The fields that complete an item of a list, because no server sends them in pieces.
const SEALS: [&str; 2] = ["signature", "data"];
const EMPTY_TEXT: &str = "\"\"";

/// Fields by name. Of fields that are too long to be sent back only the length is kept.
#[derive(Default)]
pub(super) struct Merged {
    fields: BTreeMap<String, Piece>,
    /// The size of all fields in bytes, including fields that are not kept.
    bytes: usize,
}

enum Piece {
    /// A value that arrived once, unchanged.
    Whole(Box<RawValue>),
    Text(String),
    List(List),
    Object(Merged),
}

/// A list: the JSON of its items but for the last one, which may be continued.
#[derive(Default)]
struct List {
    items: String,
    last: Option<Box<Piece>>,
}

impl Merged {
    /// Returns the number of kept bytes.
    pub(super) fn kept(&self) -> usize {
        if self.is_too_long() { 0 } else { self.bytes }
    }

    /// Whether more was received than a turn can send back.
    fn is_too_long(&self) -> bool {
        self.bytes > MOST_BYTES
    }

    /// Adds fields, or further pieces of them.
    pub(super) fn add(&mut self, fields: Fields<'_>) -> Result<(), Error> {
        self.merge_fields(fields, 0)
    }

    /// Adds an object under a name, if it has fields.
    pub(super) fn add_object(&mut self, name: &str, fields: Fields<'_>) -> Result<(), Error> {
        if fields.is_empty() {
            return Ok(());
        }
        let json = RawValue::from_string(fields.json())?;
        self.add(Fields::from([(name.to_owned(), &*json)]))
    }

    /// Returns the fields as JSON, or their length if they are too long, or `None` without fields.
    pub(super) fn json(self) -> Option<Result<String, usize>> {
        if self.is_too_long() {
            return Some(Err(self.bytes));
        }
        (!self.fields.is_empty()).then(|| Ok(self.object()))
    }

    /// Returns the fields as JSON.
    fn object(self) -> String {
        let fields: BTreeMap<_, _> = self.fields.into_iter().map(|(name, piece)| (name, piece.json())).collect();
        serde_json::to_string(&fields).unwrap_or_default()
    }

    /// Adds fields, or counts only their bytes once they are too long. `depth`: the number of objects and lists around
    /// the fields.
    fn merge_fields(&mut self, fields: Fields<'_>, depth: usize) -> Result<(), Error> {
        for (name, value) in fields {
            let received = value.get().len();
            if self.bytes.max(received) > MOST_BYTES {
                self.bytes = self.bytes.saturating_add(received);
                self.fields.clear();
                continue;
            }
            let keeps_one_of_equal = depth > 0 && !STREAMED.contains(&name.as_str());
            let piece = match self.fields.remove(&name) {
                None => {
                    self.bytes += name.len() + FIELD_OVERHEAD;
                    Piece::Whole(value.to_owned())
                }
                Some(known) => {
                    self.bytes = self.bytes.saturating_sub(known.bytes());
                    known.append(value, keeps_one_of_equal, depth)?
                }
            };
            self.bytes = self.bytes.saturating_add(piece.bytes());
            self.fields.insert(name, piece);
            if self.is_too_long() {
                self.fields.clear();
            }
        }
        Ok(())
    }
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Self::Whole(whole) => whole.get().len(),
            Self::Text(text) => text.len(),
            Self::List(List { items, last }) => items.len() + last.as_ref().map_or(0, |last| last.bytes()),
            Self::Object(object) => object.bytes,
        }
    }

    /// Appends a piece to a text, a list or an object, or replaces a value of another type. `null` changes nothing.
    /// `keeps_one_of_equal`: whether a value that arrives twice is kept once.
    fn append(self, more: &RawValue, keeps_one_of_equal: bool, depth: usize) -> Result<Self, Error> {
        let json = more.get();
        if json == "null" {
            return Ok(self);
        }
        if let Self::Whole(known) = &self {
            let is_empty_piece = json == EMPTY_TEXT && known.get().starts_with('"');
            let is_repeated = keeps_one_of_equal && known.get() == json && !json.starts_with('{');
            if is_empty_piece || is_repeated {
                return Ok(self);
            }
            // A server can begin a field with an empty text before it sends a value of any type.
            if known.get() == EMPTY_TEXT {
                return Ok(Self::Whole(more.to_owned()));
            }
        }
        match self.into_continuable(json, depth)? {
            Self::Text(text) if json.starts_with('"') => Ok(Self::Text(text + &serde_json::from_str::<String>(json)?)),
            Self::List(mut list) if json.starts_with('[') => {
                list.append(more, depth)?;
                Ok(Self::List(list))
            }
            Self::Object(mut object) if json.starts_with('{') => {
                object.merge_fields(Fields::of(json)?, depth + 1)?;
                Ok(Self::Object(object))
            }
            Self::Whole(_) | Self::Text(_) | Self::List(_) | Self::Object(_) => Ok(Self::Whole(more.to_owned())),
        }
    }

    /// Returns the value in the form that can be continued, if `more` has its kind.
    fn into_continuable(self, more: &str, depth: usize) -> Result<Self, Error> {
        let Self::Whole(whole) = self else { return Ok(self) };
        let first = whole.get().chars().next();
        if first != more.chars().next() {
            return Ok(Self::Whole(whole));
        }
        match first {
            Some('"') => Ok(Self::Text(serde_json::from_str(whole.get())?)),
            Some('[') => {
                let mut list = List::default();
                list.append(&whole, depth)?;
                Ok(Self::List(list))
            }
            Some('{') if depth < MAX_DEPTH => {
                let mut object = Merged::default();
                object.merge_fields(Fields::of(whole.get())?, depth + 1)?;
                Ok(Self::Object(object))
            }
            Some(_) | None => Ok(Self::Whole(whole)),
        }
    }

    /// Whether the next item of a list continues this item: both are objects of the same type and number,
    /// and this item is not complete.
    fn is_continued_by(&self, next: &RawValue) -> bool {
        let Ok(next) = Fields::of(next.get()) else { return false };
        let of_next = |name: &str| next.get(name).map(RawValue::get).filter(|json| *json != EMPTY_TEXT);
        let is_same = |name: &str| self.field(name).is_some_and(|json| of_next(name) == Some(json));
        let is_other = self.field("id").is_some() && of_next("id").is_some() && !is_same("id");
        is_same("type") && is_same("index") && !is_other && SEALS.iter().all(|name| self.field(name).is_none())
    }

    /// Returns a field of an object: its JSON if it came whole, a merged text without quotation marks, or `…` for a
    /// merged list or object. `None` if the field is absent, null or an empty text.
    fn field(&self, name: &str) -> Option<&str> {
        let json = match self {
            Self::Whole(whole) => Fields::of(whole.get()).ok()?.get(name)?.get(),
            Self::Object(object) => match object.fields.get(name)? {
                Self::Whole(whole) => whole.get(),
                Self::Text(text) => text.as_str(),
                Self::List(_) | Self::Object(_) => "…",
            },
            Self::Text(_) | Self::List(_) => return None,
        };
        (json != "null" && json != EMPTY_TEXT).then_some(json)
    }

    fn json(self) -> Box<RawValue> {
        let json = match self {
            Self::Whole(whole) => return whole,
            Self::Text(text) => Value::String(text).to_string(),
            Self::List(mut list) => {
                list.end_item();
                format!("[{}]", list.items)
            }
            Self::Object(object) => object.object(),
        };
        RawValue::from_string(json).unwrap_or_default()
    }
}

impl List {
    /// Appends the items of a list. The first item can continue the last known item.
    fn append(&mut self, list: &RawValue, depth: usize) -> Result<(), Error> {
        for item in serde_json::from_str::<Vec<&RawValue>>(list.get())? {
            let last = match self.last.take() {
                Some(last) if depth < MAX_DEPTH && last.is_continued_by(item) => (*last).append(item, false, depth)?,
                last => {
                    self.last = last;
                    self.end_item();
                    Piece::Whole(item.to_owned())
                }
            };
            self.last = Some(Box::new(last));
        }
        Ok(())
    }

    /// Ends the last item.
    fn end_item(&mut self) {
        let Some(last) = self.last.take() else { return };
        if !self.items.is_empty() {
            self.items.push(',');
        }
        self.items.push_str((*last).json().get());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn merge_all(pieces: &[Value]) -> Merged {
        let mut merged = Merged::default();
        for piece in pieces {
            merged.add(Fields::of(&piece.to_string()).unwrap()).unwrap();
        }
        merged
    }

    fn merged_json(pieces: &[Value]) -> Value {
        serde_json::from_str(&merge_all(pieces).json().unwrap().unwrap()).unwrap()
    }

    /// Returns a piece of reasoning, as OpenRouter sends it.
    fn reasoning(index: u64, text: &str, signature: Option<&str>) -> Value {
        json!({"reasoning_details": [{"type": "reasoning.text", "text": text, "signature": signature, "index": index,
            "format": "anthropic-claude-v1"}]})
    }

    #[test]
    fn items_of_a_list_are_continued_until_they_are_signed() {
        let pieces = [
            reasoning(0, "ha", None),
            reasoning(0, "ha", None),
            reasoning(0, "", Some("c2ln")),
            reasoning(0, "next", None),
            reasoning(1, "another", None),
        ];
        let item = |pieces: &Value| pieces["reasoning_details"][0].clone();
        let expected = [reasoning(0, "haha", Some("c2ln")), reasoning(0, "next", None), reasoning(1, "another", None)];
        assert_eq!(merged_json(&pieces), json!({"reasoning_details": expected.iter().map(item).collect::<Vec<_>>()}));
    }

    #[test]
    fn items_that_are_complete_or_indistinguishable_are_not_merged() {
        for items in [
            json!([{"type": "reasoning.encrypted", "data": "YQ", "index": 0}, {"type": "reasoning.encrypted", "data": "Yg", "index": 0}]),
            json!([{"type": "a", "id": "1", "index": 0, "text": "x"}, {"type": "a", "id": "2", "index": 0, "text": "x"}]),
            json!([{"type": "a", "text": "x"}, {"type": "a", "text": "x"}]),
            json!([1, null, "x", [2], {}, {}]),
        ] {
            let pieces: Vec<_> = items.as_array().unwrap().iter().map(|item| json!({"list": [item]})).collect();
            assert_eq!(merged_json(&pieces), json!({"list": items}));
            assert_eq!(merged_json(&[json!({"list": items})]), json!({"list": items}));
        }
    }

    #[test]
    fn an_object_that_arrives_again_is_merged_by_field() {
        let google = |field: &str, value: &str| json!({"extra": {"google": {field: value}}});
        let pieces =
            [google("signature", "c2ln"), google("signature", "c2ln"), google("text", "a"), google("text", "a")];
        assert_eq!(merged_json(&pieces), json!({"extra": {"google": {"signature": "c2ln", "text": "aa"}}}));
        let pieces = [json!({"a": "ha", "n": 1}), json!({"a": "ha", "n": 2}), json!({"a": ""})];
        assert_eq!(merged_json(&pieces), json!({"a": "haha", "n": 2}));
    }

    #[test]
    fn objects_nested_too_deeply_are_replaced() {
        let deep = |depth: usize, last: &str| {
            let json = format!("{}{last}{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
            serde_json::from_str::<Box<RawValue>>(&json).unwrap()
        };
        let mut merged = Merged::default();
        for last in ["1", "2"] {
            merged.add(Fields::from([("x".to_owned(), &*deep(10_000, last))])).unwrap();
        }
        assert_eq!(merged.json().unwrap().unwrap(), format!(r#"{{"x":{}}}"#, deep(10_000, "2").get()));
    }

    #[test]
    fn fields_that_are_too_long_are_dropped_and_counted() {
        let long = json!({"list": ["x".repeat(100_000)]});
        let merged = merge_all(&[long.clone(), long.clone(), long]);
        assert_eq!(merged.kept(), 0);
        assert!(merged.json().unwrap().is_err_and(|bytes| bytes > MOST_BYTES));
        let many = "1,".repeat(MOST_BYTES / 4) + "1";
        let many: Value = serde_json::from_str(&format!(r#"{{"list": [{many}]}}"#)).unwrap();
        let merged = merge_all(&[json!({"list": [1]}), many]);
        assert!(merged.kept() > 0 && merged.kept() < MOST_BYTES);
        // The names of the pieces alone would be too long.
        let pieces: Vec<_> = (0..5000).map(|_| reasoning(0, "ha", None)).collect();
        assert!(merge_all(&pieces).kept() < 20_000);
    }
}
