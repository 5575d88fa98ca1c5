//! Valid YAML that kubectl's reader refuses: a `?` in a text without quotes, in a list or an object in flow style
//! (`[…]`, `{…}`).

use std::ops::Range;

use crate::{
    problem::Problems,
    source::{Node, Value},
};

const MESSAGE: &str = "kubectl cannot read a `?` in an unquoted text within {…} or […]: put the text in quotes";

/// Warns of every text that kubectl refuses.
pub(super) fn warn_of_refused_texts(text: &str, node: &Node, problems: &mut Problems<'_>) {
    check_node(text, node, false, "", problems);
}

/// Checks a node and all nodes in it. `in_flow`: whether the node is inside of a list or an object in flow style.
/// `field`: the path of the node.
fn check_node(text: &str, node: &Node, in_flow: bool, field: &str, problems: &mut Problems<'_>) {
    let is_flow = in_flow || node.is_flow_style(text);
    match &node.value {
        Value::Text(_) if in_flow && is_refused(text, &node.at) => {
            problems.warn("KubectlRefuses", field, node.at.clone(), MESSAGE);
        }
        Value::List(items) => {
            for (at, item) in items.iter().enumerate() {
                check_node(text, item, is_flow, &format!("{field}[{at}]"), problems);
            }
        }
        Value::Map(fields) => {
            for (key, value) in fields {
                let path = if field.is_empty() { key.name.clone() } else { format!("{field}.{}", key.name) };
                if is_flow && is_refused(text, &key.at) {
                    problems.warn("KubectlRefuses", &path, key.at.clone(), MESSAGE);
                }
                check_node(text, value, is_flow, &path, problems);
            }
        }
        _ => {}
    }
}

fn is_refused(text: &str, at: &Range<usize>) -> bool {
    let written = text.get(at.clone()).unwrap_or_default();
    !written.starts_with(['"', '\'']) && written.contains('?')
}
