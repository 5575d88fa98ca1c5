//! The values of a condition during its evaluation: borrowed JSON of the scope, and computed values.
//!
//! Comparisons never convert: numbers are compared exactly across their two types, and other values only with their own
//! type.

use std::cmp::Ordering;
use std::rc::Rc;

use serde_json::Value as Json;

use super::Fault;
use super::evaluate::Work;
use crate::number::{self, inexact};
use crate::scope::{Records, Root};
use crate::text;

/// The result of evaluating a part of a condition.
pub(super) type Evaluated<'a> = Result<Value<'a>, Fault>;

#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Text<'a>),
    List(Rc<Vec<Value<'a>>>),
    /// The entries in the order of the text; keys are unique.
    Map(Rc<Vec<(Value<'a>, Value<'a>)>>),
    Array(&'a [Json]),
    Object(&'a serde_json::Map<String, Json>),
    Records(&'a Records),
}

#[derive(Debug, Clone)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Owned(Rc<str>),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Owned(text) => text,
        }
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(Text::Owned(text.into()))
    }
}

impl<'a> Value<'a> {
    pub(super) fn from_root(root: &'a Root, at: usize) -> Result<Self, Fault> {
        match root {
            Root::Json(json) => Self::from_json(json, at),
            Root::Records(records) => Ok(Value::Records(records)),
        }
    }

    pub(super) fn from_json(json: &'a Json, at: usize) -> Result<Self, Fault> {
        Ok(match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            Json::String(text) => Value::Text(Text::Borrowed(text)),
            Json::Array(items) => Value::Array(items),
            Json::Object(fields) => Value::Object(fields),
            Json::Number(number) => match (inexact(number), number.as_i64(), number.as_f64()) {
                // As a double the number would lose digits without an error, so two different ids would become equal.
                (Some(why), ..) => return Err(Fault::number(at, json, why)),
                (None, Some(int), _) => Value::Int(int),
                (None, None, Some(double)) => Value::Double(double),
                (None, None, None) => return Err(Fault::evaluation(at, "a number here has no value")),
            },
        })
    }

    /// Returns the name of the type with an article, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a bool",
            Value::Int(_) => "an int",
            Value::Double(_) => "a double",
            Value::Text(_) => "a text",
            Value::List(_) | Value::Array(_) => "a list",
            Value::Map(_) | Value::Object(_) => "a map",
            Value::Records(_) => "a list of records",
        }
    }

    /// Returns the elements, if this is a list.
    pub(super) fn elements(&self, at: usize) -> Result<Option<Vec<Value<'a>>>, Fault> {
        Ok(Some(match self {
            Value::List(items) => items.as_ref().clone(),
            Value::Array(items) => convert_items(items.iter(), at)?,
            Value::Records(records) => convert_items(records.values(), at)?,
            _ => return Ok(None),
        }))
    }

    /// Returns the keys, if this is a map.
    pub(super) fn keys(&self) -> Option<Vec<Value<'a>>> {
        match self {
            Value::Map(entries) => Some(entries.iter().map(|(key, _)| key.clone()).collect()),
            Value::Object(fields) => Some(fields.keys().map(|key| Value::Text(Text::Borrowed(key))).collect()),
            _ => None,
        }
    }

    /// Returns the number of elements, entries or characters, or `None` for another type.
    pub(super) fn size(&self) -> Option<usize> {
        match self {
            Value::Text(text) => Some(text.as_str().chars().count()),
            _ => self.length(),
        }
    }

    /// Returns the number of elements or entries, if this is a list or map.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Value::List(items) => Some(items.len()),
            Value::Array(items) => Some(items.len()),
            Value::Map(entries) => Some(entries.len()),
            Value::Object(fields) => Some(fields.len()),
            Value::Records(records) => Some(records.len()),
            _ => None,
        }
    }

    fn is_map(&self) -> bool {
        matches!(self, Value::Map(_) | Value::Object(_))
    }

    /// Returns the element with this key or at this position.
    pub(super) fn get(&self, key: &Value<'a>, work: &Work, at: usize) -> Result<Option<Value<'a>>, Fault> {
        let wrong = || Fault::evaluation(at, self.describe_wrong_key(key));
        if let Value::Text(name) = key {
            work.spend_text(name.as_str().len(), at)?;
        }
        match (self, key) {
            (Value::Map(entries), Value::Null | Value::Bool(_) | Value::Int(_) | Value::Double(_) | Value::Text(_)) => {
                for (existing, value) in entries.iter() {
                    if are_equal(existing, key, work, at)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
            (Value::Object(fields), Value::Text(name)) => {
                fields.get(name.as_str()).map(|json| Self::from_json(json, at)).transpose()
            }
            (Value::Records(records), Value::Text(name)) => {
                work.spend(records.len(), at)?;
                records.by_name(name.as_str()).map(|json| Self::from_json(json, at)).transpose()
            }
            (Value::List(_) | Value::Array(_) | Value::Records(_), Value::Int(position)) => {
                let Ok(index) = usize::try_from(*position) else {
                    return Err(Fault::evaluation(at, "a position counts from 0 and cannot be negative"));
                };
                match self {
                    Value::List(items) => Ok(items.get(index).cloned()),
                    Value::Array(items) => items.get(index).map(|json| Self::from_json(json, at)).transpose(),
                    Value::Records(records) => {
                        records.by_position(index).map(|json| Self::from_json(json, at)).transpose()
                    }
                    _ => Err(wrong()),
                }
            }
            _ => Err(wrong()),
        }
    }

    /// Returns the reason why this value has no member for a key of the type of `key`, with the type that can be used.
    fn describe_wrong_key(&self, key: &Value<'_>) -> String {
        let kind = self.kind();
        match self {
            Value::List(_) | Value::Array(_) => {
                format!("the items of {kind} are read by their position, an int from 0, and this is {}", key.kind())
            }
            Value::Records(_) => {
                format!("the items of {kind} are read by their name or their position, and this is {}", key.kind())
            }
            Value::Map(_) | Value::Object(_) => {
                format!("the members of {kind} are read by their name, and this is {}", key.kind())
            }
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Double(_) | Value::Text(_) => {
                format!("{kind} has no members: only maps and lists have")
            }
        }
    }

    /// Whether there is an element with this name. A JSON element is not converted.
    pub(super) fn has(&self, name: &'a str, work: &Work, at: usize) -> Result<bool, Fault> {
        match self {
            Value::Object(fields) => work.spend_text(name.len(), at).map(|()| fields.contains_key(name)),
            Value::Records(records) => {
                work.spend_text(name.len(), at)?;
                work.spend(records.len(), at)?;
                Ok(records.by_name(name).is_some())
            }
            _ => Ok(self.get(&Value::Text(Text::Borrowed(name)), work, at)?.is_some()),
        }
    }

    /// Renders the names of the existing members for messages about a missing one. Names of fields are not secret.
    pub(super) fn describe_members(&self) -> String {
        let names: Vec<String> = match self {
            Value::Object(fields) => fields.keys().take(10).map(|k| text::display(k, 40)).collect(),
            Value::Records(records) => records.names().take(10).map(|k| text::display(k, 40)).collect(),
            _ => Vec::new(),
        };
        match (names.is_empty(), self.length()) {
            (false, _) => format!("it has {}", names.join(", ")),
            (true, Some(size)) => format!("it has {size} element(s)"),
            (true, None) => format!("it is {}", self.kind()),
        }
    }

    /// Converts this value to JSON.
    pub(super) fn into_json(self, at: usize) -> Result<Json, Fault> {
        Ok(match self {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(b),
            Value::Int(int) => int.into(),
            Value::Double(double) => serde_json::Number::from_f64(double)
                .map(Json::Number)
                .ok_or_else(|| Fault::evaluation(at, "the result is not a finite number"))?,
            Value::Text(text) => Json::String(text.as_str().to_owned()),
            Value::Array(items) => {
                items.iter().try_for_each(|item| assert_exact(item, at))?;
                Json::Array(items.to_vec())
            }
            Value::Object(fields) => {
                fields.values().try_for_each(|field| assert_exact(field, at))?;
                Json::Object(fields.clone())
            }
            Value::Records(records) => {
                records.values().try_for_each(|record| assert_exact(record, at))?;
                Json::Array(records.values().cloned().collect())
            }
            Value::List(items) => {
                Json::Array(items.iter().map(|item| item.clone().into_json(at)).collect::<Result<_, _>>()?)
            }
            Value::Map(entries) => {
                let mut fields = serde_json::Map::new();
                for (key, value) in entries.iter() {
                    let Value::Text(name) = key else {
                        return Err(Fault::evaluation(at, "a map whose keys are not texts has no JSON form"));
                    };
                    fields.insert(name.as_str().to_owned(), value.clone().into_json(at)?);
                }
                Json::Object(fields)
            }
        })
    }
}

/// Checks that every number in a value can be read.
fn assert_exact(json: &Json, at: usize) -> Result<(), Fault> {
    let fault = |found: &Json| match found {
        Json::Number(number) => inexact(number).map(|why| Fault::number(at, found, why)),
        _ => None,
    };
    number::find(json, &mut Vec::new(), &fault).map_or(Ok(()), Err)
}

fn convert_items<'a>(items: impl Iterator<Item = &'a Json>, at: usize) -> Result<Vec<Value<'a>>, Fault> {
    items.map(|json| Value::from_json(json, at)).collect()
}

/// Whether two values are equal. Values of different types are unequal; numbers are compared by value.
pub(super) fn are_equal(a: &Value<'_>, b: &Value<'_>, work: &Work, at: usize) -> Result<bool, Fault> {
    work.spend(1, at)?;
    match (a, b) {
        (Value::Null, Value::Null) => return Ok(true),
        (Value::Bool(a), Value::Bool(b)) => return Ok(a == b),
        (Value::Text(a), Value::Text(b)) => {
            let (a, b) = (a.as_str(), b.as_str());
            work.spend_text(a.len().min(b.len()), at)?;
            return Ok(a == b);
        }
        (Value::Int(_) | Value::Double(_), Value::Int(_) | Value::Double(_)) => {
            return Ok(order_numbers(a, b) == Some(Ordering::Equal));
        }
        _ => {}
    }
    let (Some(length), true) = (a.length(), a.length() == b.length() && a.is_map() == b.is_map()) else {
        return Ok(false);
    };
    work.spend(length, at)?;
    if let (Some(a), Some(b)) = (a.elements(at)?, b.elements(at)?) {
        for (a, b) in a.iter().zip(&b) {
            if !are_equal(a, b, work, at)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    for key in a.keys().unwrap_or_default() {
        // A key whose type `b` cannot have makes the values unequal, and is not an error.
        let other_value = match (b, &key) {
            (Value::Object(_), Value::Text(_)) | (Value::Map(_), _) => b.get(&key, work, at)?,
            _ => None,
        };
        match (a.get(&key, work, at)?, other_value) {
            (Some(value), Some(other_value)) if are_equal(&value, &other_value, work, at)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Returns the order of two values, or `None` if one of them is "not a number". Values of types without an order are a
/// fault.
pub(super) fn compare_values(a: &Value<'_>, b: &Value<'_>, work: &Work, at: usize) -> Result<Option<Ordering>, Fault> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(Some(a.cmp(b))),
        (Value::Text(a), Value::Text(b)) => {
            let (a, b) = (a.as_str(), b.as_str());
            work.spend_text(a.len().min(b.len()), at)?;
            Ok(Some(a.cmp(b)))
        }
        (Value::Int(_) | Value::Double(_), Value::Int(_) | Value::Double(_)) => Ok(order_numbers(a, b)),
        _ => Err(Fault::evaluation(at, format!("{} cannot be compared with {}", a.kind(), b.kind()))),
    }
}

fn order_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Double(b)) => order_int_with_double(*a, *b),
        (Value::Double(a), Value::Int(b)) => order_int_with_double(*b, *a).map(Ordering::reverse),
        _ => None,
    }
}

/// Returns the exact order of two numbers. A conversion to double would make neighboring large integers equal.
fn order_int_with_double(int: i64, double: f64) -> Option<Ordering> {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0; // 2^63, exactly
    if double.is_nan() {
        return None;
    }
    if double >= BEYOND {
        return Some(Ordering::Less);
    }
    if double < -BEYOND {
        return Some(Ordering::Greater);
    }
    let whole = double.trunc();
    // In range, hence exact.
    let order = int.cmp(&(whole as i64));
    Some(order.then_with(|| 0.0_f64.total_cmp(&(double - whole + 0.0))))
}
