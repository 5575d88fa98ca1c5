//! The arguments that an author writes for a tool of a server: JSON in which each text is a template.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use signoff_expr::{LanguageError, Reference, Scope, Template};

/// JSON in which each text is a template.
#[derive(Clone, Debug)]
pub(crate) enum ArgumentTemplate {
    /// A number, a boolean or null.
    Fixed(Value),
    /// A text.
    Text(Template),
    /// A single value with the filter `tojson`, which keeps its type: `{{ args.amount | tojson }}`.
    Value(Template),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl ArgumentTemplate {
    /// Returns the template of a value. `parse` parses the text at a path, such as `.order.id`.
    pub(super) fn of(
        value: &Value,
        place: &str,
        parse: &mut impl FnMut(&str, &str) -> Option<Template>,
    ) -> Option<Self> {
        Some(match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Fixed(value.clone()),
            Value::String(text) if is_one_value(text) => Self::Value(parse(text, place)?),
            Value::String(text) => Self::Text(parse(text, place)?),
            Value::Array(items) => {
                let items = items.iter().enumerate().map(|(at, item)| Self::of(item, &format!("{place}[{at}]"), parse));
                Self::List(items.collect::<Option<_>>()?)
            }
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| {
                    Some((name.clone(), Self::of(value, &format!("{place}.{name}"), parse)?))
                };
                Self::Object(fields.iter().map(field).collect::<Option<_>>()?)
            }
        })
    }

    /// Returns the names that its templates read.
    pub(crate) fn references(&self) -> BTreeSet<Reference> {
        match self {
            Self::Fixed(_) => BTreeSet::new(),
            Self::Text(template) | Self::Value(template) => template.references().clone(),
            Self::List(items) => items.iter().flat_map(Self::references).collect(),
            Self::Object(fields) => fields.iter().flat_map(|(_, field)| field.references()).collect(),
        }
    }

    /// Renders the value.
    ///
    /// # Errors
    /// As [`Template::render`].
    pub(crate) fn render(&self, scope: &Scope) -> Result<Value, LanguageError> {
        Ok(match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(scope)?),
            Self::Value(template) => {
                let text = template.render(scope)?;
                // The filter writes JSON. Unreadable output stays a text.
                serde_json::from_str(&text).unwrap_or(Value::String(text))
            }
            Self::List(items) => Value::Array(items.iter().map(|item| item.render(scope)).collect::<Result<_, _>>()?),
            Self::Object(fields) => {
                let field = |(name, field): &(String, Self)| Ok((name.clone(), field.render(scope)?));
                Value::Object(fields.iter().map(field).collect::<Result<Map<_, _>, LanguageError>>()?)
            }
        })
    }
}

/// Whether a text is a single value with the filter `tojson` at its end.
fn is_one_value(text: &str) -> bool {
    let inside = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    let is_one = |inside: &str| !["{{", "}}", "{%", "{#"].iter().any(|mark| inside.contains(mark));
    let expression = inside.filter(|inside| is_one(inside)).and_then(|inside| inside.trim().strip_suffix("tojson"));
    expression.is_some_and(|expression| expression.trim_end().ends_with('|'))
}

#[cfg(test)]
#[path = "argument_template_tests.rs"]
mod tests;
