//! Where two objects differ, for people who have to find out why.
//!
//! It must not decide whether a difference matters: every one does.

use serde::Serialize;
use serde_json::Value;

/// The path of the first difference, such as `spec.validations[3].expression`; none where they are equal.
pub(crate) fn first(shipped: &impl Serialize, in_force: &impl Serialize) -> Option<String> {
    let (Ok(shipped), Ok(in_force)) = (serde_json::to_value(shipped), serde_json::to_value(in_force)) else {
        return Some("somewhere".to_owned());
    };
    compare("spec", &shipped, &in_force)
}

fn compare(path: &str, one: &Value, other: &Value) -> Option<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let here = |key: &str| format!("{path}.{key}");
            let extra = other.keys().find(|key| !one.contains_key(*key)).map(|key| here(key));
            let differs = one.iter().find_map(|(key, value)| match other.get(key) {
                None => Some(here(key)),
                Some(there) => compare(&here(key), value, there),
            });
            differs.or(extra)
        }
        (Value::Array(one), Value::Array(other)) => {
            let differs =
                one.iter().zip(other).enumerate().find_map(|(n, (a, b))| compare(&format!("{path}[{n}]"), a, b));
            differs.or_else(|| (one.len() != other.len()).then(|| format!("{path} (its length)")))
        }
        _ => (one != other).then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_named_by_its_path() {
        let shipped = json!({"rules": [{"a": 1}, {"b": [1, 2]}]});
        assert_eq!(first(&shipped, &shipped), None);
        assert_eq!(
            first(&shipped, &json!({"rules": [{"a": 1}, {"b": [1, 3]}]})).as_deref(),
            Some("spec.rules[1].b[1]")
        );
        assert_eq!(first(&shipped, &json!({"rules": [{"a": 1}]})).as_deref(), Some("spec.rules (its length)"));
        assert_eq!(
            first(&shipped, &json!({"rules": [{"a": 1}, {"b": [1, 2], "c": 0}]})).as_deref(),
            Some("spec.rules[1].c")
        );
    }
}
