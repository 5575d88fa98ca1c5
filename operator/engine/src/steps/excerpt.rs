//! Fields as a request shows them to people: whole if all of them are short, else the beginning of each, so that no
//! field hides another.
//!
//! **Invariant:** every omission is marked, with its size.

use serde::Serialize;
use serde_json::{Map, Value};
use signoff_api::{Digest, values::as_yaml};
use signoff_expr::text;

use crate::replay::run::RenderError;

/// The maximum length of a text in the request itself, in bytes. A longer text is stored as a blob.
pub(crate) const SHOWN: usize = 4096;
/// The maximum size of the sentence that ends a cut text, in bytes.
const MARK: usize = 104;
/// The minimum length of a cut text with its last sentence, in bytes.
const LEAST: usize = MARK + 24;
/// The maximum length of a name, in bytes.
const NAME: usize = LEAST;
/// The bytes reserved for the value of each name if most values are left out.
const BESIDE: usize = 24;
/// The first line of a cut document.
const CUT: &str =
    "# not all of it fits here: what ends with `… N more bytes, sha256:…` goes on; the digest is that of the whole";

/// The fields of what people approve, in the order shown.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    list: Map<String, Value>,
    /// The field that may take up to half of the shown bytes before the others share the rest.
    first: &'static str,
}

impl Fields {
    /// Returns the fields of `what`: first the fields named in `front`, in this order, then the others.
    pub(crate) fn of(what: &impl Serialize, front: &[&'static str], first: &'static str) -> Result<Self, RenderError> {
        let Ok(Value::Object(mut rest)) = serde_json::to_value(what) else {
            return Err(RenderError::Invalid("it has no fields that could be shown".to_owned()));
        };
        let front = front.iter().filter_map(|name| Some(((*name).to_owned(), rest.shift_remove(*name)?)));
        let mut list: Map<_, _> = front.collect();
        list.extend(rest);
        Ok(Self { list, first })
    }

    /// Moves the fields `last` behind all others, the longest to the very end.
    pub(crate) fn with_last(mut self, last: &[&str]) -> Self {
        let taken = last.iter().filter_map(|name| Some(((*name).to_owned(), self.list.shift_remove(*name)?)));
        let mut long: Vec<_> = taken.collect();
        long.sort_by_key(|(_, value)| size(value));
        self.list.extend(long);
        self
    }

    /// Renders all fields as YAML.
    pub(crate) fn to_yaml(&self) -> String {
        as_yaml(&self.list)
    }

    /// Renders the beginning of every field below `head`, as YAML of at most [`SHOWN`] bytes.
    pub(crate) fn excerpt(&self, head: &str) -> String {
        let mut budget = SHOWN.saturating_sub(head.len() + CUT.len() + 2);
        loop {
            let shown = format!("{head}\n{CUT}\n{}", as_yaml(&self.cut(budget)));
            if shown.len() <= SHOWN || budget == 0 {
                return text::first(&shown, SHOWN).to_owned();
            }
            // Quotes and indentation made the text longer than its budget.
            budget = budget * 7 / 8;
        }
    }

    fn cut(&self, budget: usize) -> Value {
        let (first, others): (Vec<_>, Vec<_>) = self.list.iter().partition(|(name, _)| *name == self.first);
        let cost = |(name, value): &(&String, &Value)| entry_size(name, value);
        let own = first.iter().map(cost).sum::<usize>();
        let kept = own.min((budget / 2).max(fair_share(first.iter().chain(&others).map(cost), budget)));
        if kept == 0 {
            return Value::Object(cut_fields(&self.list, budget));
        }
        let share = fair_share(others.iter().map(cost), budget.saturating_sub(kept));
        let fields = self.list.iter().map(|(name, value)| {
            let share = if *name == self.first { kept } else { share };
            (name.clone(), cut(value, share.saturating_sub(name.len() + 2)))
        });
        Value::Object(fields.collect())
    }
}

/// Returns the approximate size of a value in bytes.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| size(item) + 2).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| entry_size(name, value)).sum(),
        other => other.to_string().len(),
    }
}

fn entry_size(name: &str, value: &Value) -> usize {
    name.len() + 2 + size(value)
}

/// Returns the maximum size of each value so that all values together stay within `budget`. Long values share the bytes
/// that short values leave.
fn fair_share(sizes: impl Iterator<Item = usize>, budget: usize) -> usize {
    let mut sizes: Vec<_> = sizes.collect();
    sizes.sort_unstable();
    let mut left = budget;
    for (at, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - at);
        if *size > share {
            return share;
        }
        left -= size;
    }
    usize::MAX
}

/// Cuts a value to about `budget` bytes.
fn cut(value: &Value, budget: usize) -> Value {
    if size(value) <= budget {
        return value.clone();
    }
    match value {
        Value::String(text) => Value::String(beginning(text, budget)),
        Value::Array(items) if budget >= LEAST => Value::Array(cut_items(items, budget)),
        Value::Object(fields) if budget >= LEAST => Value::Object(cut_fields(fields, budget)),
        other => Value::String(omission(size(other), "bytes", other)),
    }
}

/// Returns the beginning of a text, with a note about the rest.
fn beginning(text: &str, budget: usize) -> String {
    let shown = text::first(text, budget.saturating_sub(MARK));
    format!("{shown}… {} more bytes, {}", text.len() - shown.len(), Digest::of_bytes(text.as_bytes()))
}

fn omission(count: usize, what: &str, whole: &Value) -> String {
    // A value without a digest was never bound to one.
    let digest = Digest::of(whole).map(|digest| format!(", {digest}")).unwrap_or_default();
    format!("… {count} more {what}{digest}")
}

/// Returns every item with its beginning, or the first and the last items if there are too many.
fn cut_items(items: &[Value], budget: usize) -> Vec<Value> {
    let cost = |item: &Value| size(item) + 2;
    let share = fair_share(items.iter().map(cost), budget);
    if share >= LEAST {
        return items.iter().map(|item| cut(item, share.saturating_sub(2))).collect();
    }
    let most = (budget.saturating_sub(MARK) / LEAST).clamp(1, items.len());
    let (from, until) = (most / 2, items.len() - most.div_ceil(2));
    let kept = |at: usize| at < from || at >= until;
    let sizes = items.iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, item)| cost(item));
    let share = fair_share(sizes, budget.saturating_sub(MARK));
    let mut shown = Vec::new();
    for (at, item) in items.iter().enumerate() {
        if kept(at) {
            shown.push(cut(item, share.saturating_sub(2)));
        } else if at == from {
            let whole = Value::Array(items.to_vec());
            shown.push(Value::String(omission(until - from, "of them", &whole)));
        }
    }
    shown
}

/// Returns every name with the beginning of its value. If the beginnings do not fit, only short values are kept, and
/// the last names are counted.
fn cut_fields(fields: &Map<String, Value>, budget: usize) -> Map<String, Value> {
    let short = |name: &str| if name.len() > NAME { beginning(name, NAME) } else { name.to_owned() };
    let cost = |(name, value): (&String, &Value)| name.len().min(NAME) + 2 + size(value);
    let share = fair_share(fields.iter().map(cost), budget);
    let has_room =
        |(name, value): (&String, &Value)| cost((name, value)) <= share || name.len().min(NAME) + LEAST <= share;
    if fields.iter().all(has_room) {
        let cut = |(name, value): (&String, &Value)| {
            let name = short(name);
            let room = share.saturating_sub(name.len() + 2);
            (name, cut(value, room))
        };
        return fields.iter().map(cut).collect();
    }
    let mut shown = Map::new();
    let mut left = budget.saturating_sub(MARK);
    for (name, value) in fields {
        let name = short(name);
        let Some(rest) = left.checked_sub(name.len() + BESIDE) else { break };
        left = rest;
        let is_short = size(value) <= BESIDE && !value.is_object() && !value.is_array();
        shown.insert(name, if is_short { value.clone() } else { Value::String(format!("… {} bytes", size(value))) });
    }
    let more = fields.len() - shown.len();
    shown.insert("…".to_owned(), Value::String(omission(more, "names", &Value::Object(fields.clone()))));
    shown
}

#[cfg(test)]
#[path = "excerpt_tests.rs"]
mod tests;
