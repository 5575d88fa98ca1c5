//! The scope: the ordered values by name that templates and conditions read.
//!
//! A scope only holds JSON. Later values of a name replace earlier ones, so that precedence is the order of setting.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Serde};
use minijinja::{Error, ErrorKind};
use serde_json::Value;

use super::number::{self, Inexact, inexact};
use super::reference::{Member, Reference};

/// The values by name that an expression can read.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    roots: BTreeMap<String, Root>,
}

/// One named value of a scope.
#[derive(Debug, Clone)]
pub(super) enum Root {
    /// Plain JSON.
    Json(Value),
    /// Records that can be read by position and by name.
    Records(Records),
}

/// An ordered list whose entries also have names: `steps[0]`, `steps.draft`, `steps|length`.
#[derive(Debug, Clone)]
pub(super) struct Records {
    entries: Vec<(String, Value)>,
}

impl Scope {
    /// Returns an empty scope.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `name` to the JSON `value`, replacing an earlier value.
    pub fn set(&mut self, name: impl Into<String>, value: Value) -> &mut Self {
        self.roots.insert(name.into(), Root::Json(value));
        self
    }

    /// Sets `name` to a list whose entries can be read by position and by their own name.
    ///
    /// If two entries share a name, the name means the later one.
    pub fn set_records(&mut self, name: impl Into<String>, entries: Vec<(String, Value)>) -> &mut Self {
        self.roots.insert(name.into(), Root::Records(Records { entries }));
        self
    }

    /// Returns the names of this scope, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.roots.keys().map(String::as_str)
    }

    pub(super) fn root(&self, name: &str) -> Option<&Root> {
        self.roots.get(name)
    }

    /// Returns the place of a value that was borrowed from this scope, by its address.
    pub(super) fn place_of(&self, address: usize) -> Option<Place> {
        let has_address = |value: &Value| (std::ptr::from_ref(value).addr() == address).then_some(());
        self.roots.iter().find_map(|(name, root)| {
            let mut path = Vec::new();
            match root {
                Root::Json(value) => number::find(value, &mut path, &has_address)?,
                Root::Records(records) => records.entries.iter().find_map(|(name, value)| {
                    path = vec![name.clone()];
                    number::find(value, &mut path, &has_address)
                })?,
            }
            Some(Place { root: name.clone(), path })
        })
    }
}

/// The place of a number that cannot be read: the JSON pointer in its answer.
pub(super) struct Place {
    root: String,
    path: Vec<String>,
}

impl Place {
    /// Returns the error about a number that cannot be read, with the reason and the remedy.
    pub(super) fn problem(&self, why: Inexact) -> String {
        format!("{self} is {why}")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The pointer begins below the name of an answer. The names before it belong to the scope.
        let is_answer = |name: &String| matches!(name.as_str(), "response" | "original" | "parameters");
        let start = self.path.iter().position(is_answer).map_or(0, |index| index + 1);
        let (before, within) = self.path.split_at(start);
        let members = before.iter().map(|name| Member::Name(name.clone())).collect();
        let holder = Reference { root: self.root.clone(), members, optional: false };
        match within {
            [] => write!(f, "the number `{holder}`"),
            _ => write!(f, "the number at {} of `{holder}`", super::text::display(&number::pointer(within), 120)),
        }
    }
}

impl Records {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn by_position(&self, position: usize) -> Option<&Value> {
        self.entries.get(position).map(|(_, value)| value)
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&Value> {
        self.entries.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Value> {
        self.entries.iter().map(|(_, value)| value)
    }
}

impl Root {
    /// Returns the value for the template engine, and whether the value has a number that cannot be read.
    pub(super) fn to_jinja(&self, name: &str) -> (minijinja::Value, bool) {
        let mut place = Place { root: name.to_owned(), path: Vec::new() };
        match self {
            Root::Json(value) => place.convert_root(value),
            Root::Records(records) => {
                let mut has_inexact = false;
                let mut convert = |(name, value): &(String, Value)| {
                    place.path = vec![name.clone()];
                    let (value, is_inexact) = place.convert_root(value);
                    has_inexact |= is_inexact;
                    value
                };
                let values = records.entries.iter().map(&mut convert).collect();
                let names = records.names().map(str::to_owned).collect();
                (minijinja::Value::from_object(JinjaRecords { names, values }), has_inexact)
            }
        }
    }
}

impl Place {
    fn convert_root(&mut self, value: &Value) -> (minijinja::Value, bool) {
        match number::first_inexact(value) {
            None => (minijinja::Value::from(Serde(value)), false),
            Some(_) => (self.convert(value), true),
        }
    }

    /// Converts a value. Each number that cannot be read becomes an error, which the engine calls an invalid value.
    fn convert(&mut self, value: &Value) -> minijinja::Value {
        match value {
            Value::Number(number) => match inexact(number) {
                Some(why) => Error::new(ErrorKind::InvalidOperation, self.problem(why)).into(),
                None => Serde(value).into(),
            },
            Value::Array(items) => {
                let items = items.iter().enumerate().map(|(index, item)| self.convert_part(index.to_string(), item));
                items.collect::<Vec<_>>().into()
            }
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, inner)| (name.clone(), self.convert_part(name.clone(), inner)));
                minijinja::Value::from_pairs(fields)
            }
            Value::Null | Value::Bool(_) | Value::String(_) => Serde(value).into(),
        }
    }

    fn convert_part(&mut self, name: String, value: &Value) -> minijinja::Value {
        self.path.push(name);
        let converted = self.convert(value);
        self.path.pop();
        converted
    }
}

/// [`Records`] for templates: a sequence that can also be read by name.
#[derive(Debug)]
struct JinjaRecords {
    names: Vec<String>,
    values: Vec<minijinja::Value>,
}

impl Object for JinjaRecords {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        let position = match key.as_str() {
            Some(name) => self.names.iter().rposition(|n| n == name)?,
            None => key.as_usize()?,
        };
        self.values.get(position).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.values.len())
    }
}
