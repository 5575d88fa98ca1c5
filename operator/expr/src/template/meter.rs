//! The cost of an operation on values, in bytes read: the sizes of all its operands.
//!
//! The size of a value is determined by a walk, which charges for each part before it continues. So the walk over a
//! value that contains other values many times never exceeds the remaining work.

use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

use super::budget::{MAX_TEXT, MAX_WORK, charge_budget, too_much};

/// The cost of an element of a list or map in addition to its text.
const PART: usize = 16;
/// The maximum nesting of a walked value.
const MAX_WALK: usize = 400;
/// The work after which the stop flag is read again.
const FLAG: usize = 64 << 10;
/// The names under which a rendering stores its remaining work and output.
const WORK_LEFT: &str = "work left";
const OUTPUT_LEFT: &str = "output left";
/// The name in the scope for the maximum number of written bytes. No template can refer to it.
pub(super) const OUTPUT_LIMIT: &str = "output limit";
/// The name in the scope for the flag that a number in it cannot be read. No template can refer to it.
pub(super) const HAS_INEXACT: &str = "has inexact";

/// Charges for the arguments of an operator, a filter or a test. The first is the value that it is applied to.
pub(super) type Charge = fn(&mut Meter, &[Value]) -> Result<(), Error>;

/// The remaining work of a rendering.
pub(super) struct Meter {
    left: usize,
    unchecked: usize,
    /// Whether the scope has a number that cannot be read.
    has_inexact: bool,
}

impl Meter {
    /// Runs `charge` with the remaining work of the rendering, and stores the work that remains after it.
    pub(super) fn run<T>(state: &mut State, charge: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let left = state.get_temp(WORK_LEFT).and_then(|left| left.as_usize()).unwrap_or(MAX_WORK);
        let has_inexact = state.lookup(HAS_INEXACT).is_some_and(|has| has.is_true());
        let mut meter = Self { left, unchecked: 0, has_inexact };
        let result = charge(&mut meter)?;
        charge_budget(meter.unchecked)?;
        state.set_temp(WORK_LEFT, Value::from(meter.left));
        Ok(result)
    }

    /// Charges for `bytes` bytes.
    pub(super) fn charge_bytes(&mut self, bytes: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            too_much(
                "operators and filters read or make more than 64 MiB in this rendering; loop over less or truncate first",
            )
        })?;
        self.unchecked = self.unchecked.saturating_add(bytes);
        if self.unchecked >= FLAG {
            charge_budget(std::mem::take(&mut self.unchecked))?;
        }
        Ok(())
    }

    /// Charges for the text or the number of elements of a value, without the content of the elements.
    pub(super) fn charge_shallow(&mut self, value: &Value) -> Result<(), Error> {
        self.charge_bytes(PART.saturating_add(size(value)))
    }

    /// Charges for a value with all its content.
    pub(super) fn charge_deep(&mut self, value: &Value) -> Result<(), Error> {
        self.charge_walk(value, MAX_WALK)
    }

    /// Checks that every number in a value can be read.
    pub(super) fn assert_exact(&mut self, value: &Value) -> Result<(), Error> {
        if self.has_inexact { self.charge_deep(value) } else { Ok(()) }
    }

    /// Checks that no attribute of the elements of a list is a number that cannot be read.
    pub(super) fn assert_exact_attributes(
        &self,
        list: &Value,
        attribute: impl Fn(&Value) -> Value,
    ) -> Result<(), Error> {
        if !self.has_inexact {
            return Ok(());
        }
        list.try_iter()?.checked().try_for_each(|item| assert_valid(&attribute(&item?)))
    }

    fn charge_walk(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        assert_valid(value)?;
        self.charge_bytes(PART + value.as_str().map_or(0, str::len))?;
        let Some(deeper) = depth.checked_sub(1) else {
            return Err(too_much("lists or maps are nested too deep here"));
        };
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                value.try_iter()?.checked().try_for_each(|item| self.charge_walk(&item?, deeper))
            }
            ValueKind::Map => value.try_iter()?.checked().try_for_each(|key| {
                let key = key?;
                self.charge_walk(&key, deeper)?;
                self.charge_walk(&value.get_item(&key)?, deeper)
            }),
            _ => Ok(()),
        }
    }

    /// Charges for comparing two values. A comparison ends at the first difference, and so at the end of the smaller
    /// value.
    pub(super) fn charge_comparison(&mut self, a: &Value, b: &Value) -> Result<(), Error> {
        if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
            return self.charge_bytes(PART + a.len().min(b.len()));
        }
        let is_large = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map);
        if !(is_large(a) && is_large(b)) {
            return self.charge_bytes(PART);
        }
        if self.has_inexact {
            return self.charge_deep(a).and_then(|()| self.charge_deep(b));
        }
        let length = |value: &Value| value.len().unwrap_or(usize::MAX);
        self.charge_deep(if length(a) <= length(b) { a } else { b })
    }

    /// Charges for a search for `item` in `container`.
    pub(super) fn charge_containment(&mut self, item: &Value, container: &Value) -> Result<(), Error> {
        match container.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                container.try_iter()?.checked().try_for_each(|element| self.charge_comparison(&element?, item))
            }
            // A key is hashed; another value is searched in its printed form.
            _ => self.charge_bytes(container.as_str().map_or(0, str::len)).and_then(|()| self.charge_deep(item)),
        }
    }

    /// Charges for ordering the elements of a list by `keys` in `passes` passes. If case is ignored, each comparison
    /// copies both texts.
    pub(super) fn charge_ordering(&mut self, keys: &[Value], passes: usize, folds_case: bool) -> Result<(), Error> {
        let mut longest = 0;
        for key in keys {
            let before = self.left;
            self.charge_deep(key)?;
            self.charge_bytes((before - self.left).saturating_mul(passes))?;
            longest = longest.max(key.as_str().map_or(0, str::len));
        }
        if !folds_case {
            return Ok(());
        }
        self.charge_bytes(longest.saturating_mul(keys.len()).saturating_mul(passes.max(1))).map_err(|_| {
            too_much("the texts that are ordered here are too long; truncate them, or say case_sensitive=true")
        })
    }
}

/// Checks that a value is valid. The error says the reason, such as a number that cannot be read.
pub(super) fn assert_valid(value: &Value) -> Result<(), Error> {
    if value.kind() != ValueKind::Invalid {
        return Ok(());
    }
    // The engine reports the error of an invalid value only to an iteration over it.
    Value::from(vec![value.clone()]).try_iter()?.checked().try_for_each(|item| item.map(drop))
}

/// Returns the size of a text in bytes, or [`PART`] bytes for each element of another value.
fn size(value: &Value) -> usize {
    value.as_str().map_or_else(|| value.len().unwrap_or(0).saturating_mul(PART), str::len)
}

/// Charges for `bytes` bytes read or created.
pub(super) fn spend(state: &mut State, bytes: usize) -> Result<(), Error> {
    Meter::run(state, |meter| meter.charge_bytes(bytes))
}

/// Charges for reading a whole text, or each element of a list or map once.
pub(super) fn pay_for(state: &mut State, value: &Value) -> Result<(), Error> {
    Meter::run(state, |meter| meter.charge_shallow(value))
}

/// Charges for a text before it is created.
pub(super) fn charge_creation(state: &mut State, bytes: usize) -> Result<(), Error> {
    if bytes > MAX_TEXT {
        return Err(too_much("a text made here would be larger than 1 MiB; truncate first"));
    }
    spend(state, bytes)
}

/// Returns the bytes that the rendering may still write.
pub(super) fn output_left(state: &State) -> usize {
    let left = state.get_temp(OUTPUT_LEFT).or_else(|| state.lookup(OUTPUT_LIMIT));
    left.and_then(|left| left.as_usize()).unwrap_or(0)
}

/// Counts `bytes` before they are written. Returns an error if the output would become too large.
pub(super) fn count_output(state: &mut State, bytes: usize) -> Result<(), Error> {
    charge_budget(bytes)?;
    let left = output_left(state).checked_sub(bytes).ok_or_else(|| Error::from(minijinja::ErrorKind::WriteFailure))?;
    state.set_temp(OUTPUT_LEFT, Value::from(left));
    Ok(())
}
