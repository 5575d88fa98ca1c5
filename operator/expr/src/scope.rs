//! The scope: the ordered values by name that templates and conditions see.
//!
//! A scope holds JSON and nothing else; it must not compute, fetch or expire anything. Later values
//! of a name replace earlier ones, so precedence is the order of setting.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Serde};
use serde_json::Value;

/// The values an expression may see, by name.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    roots: BTreeMap<String, Root>,
}

/// One named value of a scope.
#[derive(Debug, Clone)]
pub(super) enum Root {
    /// Plain JSON.
    Json(Value),
    /// Records that answer to their position and to their name.
    Records(Records),
}

/// An ordered list whose entries also have names: `steps[0]`, `steps.draft`, `steps|length`.
#[derive(Debug, Clone)]
pub(super) struct Records {
    entries: Vec<(String, Value)>,
}

impl Scope {
    /// A scope without any name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives `name` the JSON `value`, replacing what it meant before.
    pub fn set(&mut self, name: impl Into<String>, value: Value) -> &mut Self {
        self.roots.insert(name.into(), Root::Json(value));
        self
    }

    /// Gives `name` a list whose entries answer to their position and to their own name.
    ///
    /// Where two entries share a name, the later one answers to it.
    pub fn set_records(&mut self, name: impl Into<String>, entries: Vec<(String, Value)>) -> &mut Self {
        self.roots.insert(name.into(), Root::Records(Records { entries }));
        self
    }

    /// The names of this scope, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.roots.keys().map(String::as_str)
    }

    pub(super) fn root(&self, name: &str) -> Option<&Root> {
        self.roots.get(name)
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
    /// This value as the template engine wants it.
    pub(super) fn to_jinja(&self) -> minijinja::Value {
        match self {
            Root::Json(value) => minijinja::Value::from(Serde(value)),
            Root::Records(records) => minijinja::Value::from_object(JinjaRecords {
                names: records.names().map(str::to_owned).collect(),
                values: records.values().map(|value| minijinja::Value::from(Serde(value))).collect(),
            }),
        }
    }
}

/// [`Records`] for templates: a sequence that can also be asked for a name.
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
