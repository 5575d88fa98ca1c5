//! Objects and lists of JSON from a server, read field by field in bounded memory.
//!
//! **Invariant:** only requested fields are copied, and memory does not grow with the number of fields or items: an
//! answer of many small values must not take many times its size.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Error, value::RawValue};

use super::dialect::LeftOut;

/// The maximum number that is read. Real counts of tokens and items are lower, and sums cannot overflow.
const MOST_COUNTED: i64 = 1_000_000_000;
/// The maximum number of fields of one object.
const MOST_FIELDS: usize = 64;

/// The fields of an object as JSON, in order. Names are unique.
#[derive(Clone, Default)]
pub(super) struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// The text is not a JSON object, has more than 64 fields, or has a field twice.
    pub(super) fn of(json: &'a str) -> Result<Self, Error> {
        serde_json::from_str(json)
    }

    /// Returns a field, or `None` if it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(field, _)| field == name).map(|(_, value)| *value);
        found.filter(|value| value.get() != "null")
    }

    /// Reads a field, or returns `None` if it is absent or null.
    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        self.get(name).map(|value| serde_json::from_str(value.get())).transpose()
    }

    /// Reads a text, or returns `None` if it is absent or null.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Error> {
        self.read(name)
    }

    /// Reads the arguments of a call as text: as the model wrote them, or the JSON of an object. Empty if they are
    /// absent or null.
    pub(super) fn arguments(&self, name: &str) -> Result<String, Error> {
        match self.get(name).map(RawValue::get) {
            Some(json) if json.starts_with('{') => Ok(json.to_owned()),
            Some(json) => serde_json::from_str(json),
            None => Ok(String::new()),
        }
    }

    /// Reads a count of at most [`MOST_COUNTED`], or returns zero if it is absent, null, negative or not a number.
    pub(super) fn count(&self, name: &str) -> i64 {
        let number = self.get(name).and_then(|value| serde_json::from_str::<f64>(value.get()).ok());
        #[expect(clippy::cast_possible_truncation, reason = "it saturates")]
        number.map_or(0, |number| (number.max(0.0) as i64).min(MOST_COUNTED))
    }

    /// Whether a field is true.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.get() == "true")
    }

    /// Reads an object, or returns an empty one if it is absent or null.
    pub(super) fn object(&self, name: &str) -> Result<Self, Error> {
        self.get(name).map_or_else(|| Ok(Self::default()), |value| Self::of(value.get()))
    }

    /// Reads a list of objects, or returns an empty one if it is absent or null. A null in it is an empty object.
    pub(super) fn list<const N: usize>(&self, name: &str) -> Result<AtMost<Fields<'a>, N>, Error> {
        self.get(name).map_or_else(|| Ok(AtMost::default()), |value| serde_json::from_str(value.get()))
    }

    /// Returns the fields with other names that are not null.
    pub(super) fn others(&self, known: &[&str]) -> Self {
        let others = self.0.iter().filter(|(name, value)| !known.contains(&name.as_str()) && value.get() != "null");
        Self(others.cloned().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of the fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the object as JSON.
    pub(super) fn json(&self) -> String {
        // The texts were read as JSON, so writing them does not fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the object without the fields of these names.
    pub(super) fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|(name, _)| !names.contains(&name.as_str()));
        self
    }

    /// Returns the object without the fields that a server does not accept.
    pub(super) fn without_unsupported(mut self, names: &LeftOut) -> Self {
        self.0.retain(|(name, _)| !names.contains(name));
        self
    }
}

impl<'a, const N: usize> From<[(String, &'a RawValue); N]> for Fields<'a> {
    fn from(fields: [(String, &'a RawValue); N]) -> Self {
        Self(fields.into())
    }
}

impl<'a> IntoIterator for Fields<'a> {
    type Item = (String, &'a RawValue);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Object<'a> {
            type Value = Fields<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
                Ok(Fields::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields: Vec<(String, &'a RawValue)> = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if fields.len() == MOST_FIELDS || fields.iter().any(|(field, _)| *field == name) {
                        return Err(A::Error::custom("too many fields, or one of them twice"));
                    }
                    fields.push((name, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_any(Object(PhantomData))
    }
}

/// The first `N` values of a list, and the number of dropped values after the first `N`.
pub(super) struct AtMost<T, const N: usize> {
    pub(super) kept: Vec<T>,
    pub(super) dropped: usize,
}

impl<T, const N: usize> Default for AtMost<T, N> {
    fn default() -> Self {
        Self { kept: Vec::new(), dropped: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for AtMost<T, N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List<T, const N: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for List<T, N> {
            type Value = AtMost<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut read = AtMost::default();
                while read.kept.len() < N {
                    match list.next_element()? {
                        Some(value) => read.kept.push(value),
                        None => return Ok(read),
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    read.dropped += 1;
                }
                Ok(read)
            }
        }

        from.deserialize_seq(List::<T, N>(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fields_are_read_by_name_and_null_is_absent() {
        let fields =
            Fields::of(r#"{"a": "x", "b": null, "n": 3, "o": {"c": [1, 2]}, "list": [{}, null, {"d": 1}]}"#).unwrap();
        assert_eq!(fields.text("a").unwrap().as_deref(), Some("x"));
        assert!(fields.get("b").is_none() && fields.text("z").unwrap().is_none() && fields.text("n").is_err());
        assert_eq!((fields.count("n"), fields.count("a"), fields.count("z")), (3, 0, 0));
        assert_eq!(fields.object("o").unwrap().get("c").unwrap().get(), "[1, 2]");
        let list = fields.list::<2>("list").unwrap();
        assert_eq!((list.kept.len(), list.dropped), (2, 1));
        assert_eq!(fields.others(&["a", "n", "list"]).json(), r#"{"o":{"c": [1, 2]}}"#);
        assert!(fields.list::<1>("o").is_err() && fields.object("a").is_err());
    }

    #[test]
    fn a_number_that_is_too_large_or_negative_is_bounded() {
        let fields = Fields::of(r#"{"a": 1e300, "b": -5, "c": 1e400}"#).unwrap();
        assert_eq!((fields.count("a"), fields.count("b"), fields.count("c")), (MOST_COUNTED, 0, 0));
    }

    #[test]
    fn an_object_with_a_duplicate_field_or_too_many_is_an_error() {
        assert!(Fields::of(r#"{"a": 1, "a": 2}"#).is_err());
        let many =
            |count: usize| format!("{{{}}}", (0..count).map(|n| format!("\"{n}\": {n}")).collect::<Vec<_>>().join(","));
        assert!(Fields::of(&many(MOST_FIELDS)).is_ok() && Fields::of(&many(MOST_FIELDS + 1)).is_err());
        for text in ["", "[]", "\"a\"", "{", "{} x", "1"] {
            assert!(Fields::of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_that_is_invalid_after_its_limit_is_an_error() {
        assert!(Fields::of(r#"{"list": [{}, {]}"#).is_err());
        assert!(serde_json::from_str::<AtMost<Fields<'_>, 1>>("[{}, 1, \"x\"]").is_ok_and(|list| list.dropped == 2));
        assert!(serde_json::from_str::<AtMost<Fields<'_>, 2>>("[{}, 1]").is_err());
    }
}
