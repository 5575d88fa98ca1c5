//! A flow as a picture: Mermaid and Graphviz.
//!
//! **Invariant:** text of a file is only used in labels, and cannot end one.

use std::fmt::Write as _;

use super::{Flow, tell::shown};

/// Returns the name of a step in the picture, such as `n3`. `otherwise`: the name if no step has the id, for the
/// beginning and the end.
fn node_name(flow: &Flow, id: &str, otherwise: &str) -> String {
    flow.steps.iter().position(|step| step.id == id).map_or_else(|| otherwise.to_owned(), |at| format!("n{at}"))
}

pub(super) fn render_mermaid(flow: &Flow) -> String {
    let mut text = "flowchart TD\n  begin([begin])\n  finish([end])\n".to_owned();
    for (at, step) in flow.steps.iter().enumerate() {
        let label = to_entities(&format!("{}: {}", step.id, step.does));
        // Gates are diamonds.
        let (open, close) = if step.gate.is_some() { ("{\"", "\"}") } else { ("[\"", "\"]") };
        let _ = writeln!(text, "  n{at}{open}{label}{close}");
    }
    for edge in &flow.edges {
        let (from, to) = (node_name(flow, &edge.from, "begin"), node_name(flow, &edge.to, "finish"));
        let _ = match &edge.when {
            Some(when) => writeln!(text, "  {from} -->|\"{}\"| {to}", to_entities(when)),
            None => writeln!(text, "  {from} --> {to}"),
        };
    }
    text
}

/// Replaces all characters that have a meaning in Mermaid or HTML by entities.
fn to_entities(text: &str) -> String {
    shown(text).chars().fold(String::new(), |mut out, c| {
        match c {
            '"' | '<' | '>' | '&' | '#' | '`' | '{' | '}' | '[' | ']' | '|' | ';' | '\\' => {
                let _ = write!(out, "#{};", u32::from(c));
            }
            c => out.push(c),
        }
        out
    })
}

pub(super) fn render_dot(flow: &Flow) -> String {
    let mut text = "digraph workflow {\n  rankdir=TB;\n  node [shape=box];\n".to_owned();
    text += "  begin [shape=oval, label=\"begin\"];\n  finish [shape=oval, label=\"end\"];\n";
    for (at, step) in flow.steps.iter().enumerate() {
        let shape = if step.gate.is_some() { "shape=diamond, " } else { "" };
        let _ = writeln!(text, "  n{at} [{shape}label=\"{}\"];", escape(&format!("{}: {}", step.id, step.does)));
    }
    for edge in &flow.edges {
        let (from, to) = (node_name(flow, &edge.from, "begin"), node_name(flow, &edge.to, "finish"));
        let label = edge.when.as_ref().map_or_else(String::new, |when| format!(" [label=\"{}\"]", escape(when)));
        let _ = writeln!(text, "  {from} -> {to}{label};");
    }
    text + "}\n"
}

fn escape(text: &str) -> String {
    shown(text).replace('\\', "\\\\").replace('"', "\\\"")
}
