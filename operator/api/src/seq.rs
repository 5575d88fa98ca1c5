//! The number of an event of a run, drawn from the one counter of its journal.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// The number of an event of a run. The start of a record and its end are two events.
///
/// **Invariant:** numbers are compared and drawn with [`Seq::next`]; nothing else is computed with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(i64);

impl Seq {
    /// The number of a journal without events, which is before every event.
    pub const NONE: Self = Self(0);
    /// The number that is after every event.
    pub const END: Self = Self(i64::MAX);

    /// Returns the number of the first event.
    #[must_use]
    pub fn first() -> Self {
        Self::NONE.next()
    }

    /// Returns the number that is drawn after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the number as it is stored.
    #[must_use]
    pub fn number(self) -> i64 {
        self.0
    }
}

impl From<i64> for Seq {
    fn from(number: i64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JsonSchema for Seq {
    fn schema_name() -> Cow<'static, str> {
        "Seq".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        i64::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use schemars::schema_for;

    use super::Seq;

    #[test]
    fn a_number_is_stored_as_a_bare_integer() {
        assert_eq!(serde_json::to_string(&Seq::from(7)).unwrap(), "7");
        assert_eq!(serde_json::from_str::<Seq>("7").unwrap(), Seq::from(7));
        assert!(serde_json::from_str::<Seq>("\"7\"").is_err());
        let (own, plain) = (schema_for!(Seq), schema_for!(i64));
        assert_eq!((own.get("type"), own.get("format")), (plain.get("type"), plain.get("format")));
    }

    #[test]
    fn numbers_are_drawn_one_after_the_other() {
        assert_eq!(Seq::first().number(), 1);
        assert!(Seq::NONE < Seq::first() && Seq::first() < Seq::first().next() && Seq::first().next() < Seq::END);
        assert_eq!(Seq::default(), Seq::NONE);
    }
}
