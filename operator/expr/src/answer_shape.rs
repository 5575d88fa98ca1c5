//! The shape of an answer, an input or an argument, as far as its schema or type determines it before the run.
//!
//! Parts without a definite schema are [`AnswerShape::Any`], about which no problem is reported.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The keywords of a JSON Schema that allow another shape than the other keywords describe.
const COMBINING_KEYWORDS: [&str; 11] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "patternProperties",
];

/// The shape of a value, or of a part of one.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerShape {
    /// The step has no schema: its answer is a text.
    Unchecked,
    /// A value of any shape.
    Any,
    /// A value of these kinds.
    Value {
        /// The kinds that the value can have.
        kinds: Vec<Kind>,
        /// The fields that the schema lists.
        fields: BTreeMap<String, AnswerShape>,
        /// Whether no other field is allowed.
        is_closed: bool,
        /// The shape of each item of a list.
        items: Box<AnswerShape>,
    },
}

/// The kind of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Null.
    Null,
    /// True or false.
    Bool,
    /// A number.
    Number,
    /// A text.
    Text,
    /// A list.
    List,
    /// An object.
    Object,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Null, Self::Bool, Self::Number, Self::Text, Self::List, Self::Object];

    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::Text,
            Value::Array(_) => Self::List,
            Value::Object(_) => Self::Object,
        }
    }

    fn from_schema_type(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "boolean" => Self::Bool,
            "number" | "integer" => Self::Number,
            "string" => Self::Text,
            "array" => Self::List,
            "object" => Self::Object,
            _ => return None,
        })
    }

    /// Returns the name with an article.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}

impl AnswerShape {
    /// Returns the shape of values of these kinds, without parts.
    #[must_use]
    pub fn scalar(kinds: &[Kind]) -> Self {
        let (fields, items) = (BTreeMap::new(), Box::new(Self::Any));
        Self::Value { kinds: kinds.to_vec(), fields, is_closed: false, items }
    }

    /// Whether the values of this shape have no parts.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        let has_parts = |kind: &Kind| matches!(kind, Kind::List | Kind::Object);
        matches!(self, Self::Value { kinds, .. } if !kinds.iter().any(has_parts))
    }

    /// Returns the shape of the values that match a schema.
    #[must_use]
    pub fn of_schema(schema: &Map<String, Value>) -> Self {
        if COMBINING_KEYWORDS.iter().any(|keyword| schema.contains_key(*keyword)) {
            return Self::Any;
        }
        let shape_of = |schema: &Value| schema.as_object().map_or(Self::Any, Self::of_schema);
        let properties = schema.get("properties").and_then(Value::as_object);
        Self::Value {
            kinds: allowed_kinds(schema),
            fields: properties.into_iter().flatten().map(|(name, schema)| (name.clone(), shape_of(schema))).collect(),
            is_closed: schema.get("additionalProperties") == Some(&Value::Bool(false)),
            items: Box::new(schema.get("items").map_or(Self::Any, shape_of)),
        }
    }
}

fn allowed_kinds(schema: &Map<String, Value>) -> Vec<Kind> {
    let mut kinds = match schema.get("type") {
        Some(Value::String(name)) => Vec::from_iter(Kind::from_schema_type(name)),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).filter_map(Kind::from_schema_type).collect()
        }
        _ => Kind::ALL.to_vec(),
    };
    if let Some(constant) = schema.get("const") {
        kinds.retain(|kind| *kind == Kind::of(constant));
    }
    if let Some(options) = schema.get("enum").and_then(Value::as_array) {
        kinds.retain(|kind| options.iter().any(|option| *kind == Kind::of(option)));
    }
    kinds
}
