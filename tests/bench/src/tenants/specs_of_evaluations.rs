//! Specs whose text takes seconds of processor time in one transition, each rendering, match or check within its own
//! limit. Together they take one to four seconds on the machine of the figures; the limit of a transition is five.

use serde_json::{Value, json};

/// Steps of each kind: enough that a transition is near its limit.
const TEMPLATES: usize = 10;
const PATTERNS: usize = 300;
const SCHEMAS: usize = 6;
const CONDITIONS: usize = 350;

/// A list with a text of 64 KiB, created without a long spec.
const TEXT: &str = "[range(1000) | join('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghij')]";

/// Returns templates that transform texts repeatedly: a rendering may create 64 MiB at most.
pub(super) fn templates() -> Value {
    let value = format!(
        "{{% for t in {TEXT} %}}{{% for n in range(300) %}}{{{{ t | title | length }}}}{{% endfor %}}{{% endfor %}}"
    );
    json!({"steps": steps(TEMPLATES, |_| json!({"set": {"value": value}}))})
}

/// Returns a pattern that keeps many threads of its automaton busy, over a long text.
pub(super) fn regex() -> Value {
    let pattern = "(?:a|b|ab)*[a-z]{1,50}[0-9]";
    let value = format!(
        "{{% for t in {TEXT} %}}{{% for n in range(40) %}}{{{{ (t | regex_search('{pattern}')) is none }}}}{{% endfor %}}{{% endfor %}}"
    );
    json!({"steps": steps(PATTERNS, |_| json!({"set": {"value": value}}))})
}

/// Returns a thousand checks of each of twenty thousand numbers.
pub(super) fn schemas() -> Value {
    let value = format!("[{{% for n in range(1000) %}}{}{{% endfor %}}7]", "7,".repeat(20));
    let schema = json!({
        "items": {"allOf": vec![json!({"$ref": "#/$defs/number"}); 50]},
        "$defs": {"number": {"allOf": vec![json!({"not": {"type": "string"}}); 20]}},
    });
    json!({"steps": steps(SCHEMAS, |_| json!({"set": {"value": value}, "outputSchema": schema}))})
}

/// Returns comprehensions over a thousand items, each of which creates texts and lists.
pub(super) fn conditions() -> Value {
    let condition = "inputs.items.all(i, inputs.text.lowerAscii().replace('a', 'bb').split('b').size() >= 0)";
    json!({
        "inputs": [
            {"name": "items", "type": "array", "value": (0..1000).collect::<Vec<_>>()},
            {"name": "text", "value": "abcdefghij".repeat(25)},
        ],
        "steps": steps(CONDITIONS, |_| json!({"set": {"value": "skipped"}, "skipIf": condition})),
    })
}

fn steps(count: usize, step: impl Fn(usize) -> Value) -> Vec<Value> {
    let named = |index: usize| {
        let mut step = step(index);
        step["name"] = json!(format!("s{index}"));
        step
    };
    (0..count).map(named).collect()
}
