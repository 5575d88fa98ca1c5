//! A flow as text for people: a paragraph for each step, in the order of running.
//!
//! **Invariant:** no text of a file moves a cursor, sets a color or hides other text.

use std::{collections::BTreeMap, fmt::Write as _};

use signoff_expr::text::display;

use super::{AgentTools, Asked, Flow, Gate, Step};

pub(super) fn render_text(flow: &Flow) -> String {
    let steps = match flow.steps.len() {
        1 => "1 step".to_owned(),
        many => format!("{many} steps"),
    };
    let mut text = format!("Workflow {}: {}, {steps}\n", shown(&flow.name), flow.pattern);
    if !flow.inputs.is_empty() {
        text += "\nInputs\n";
    }
    for input in &flow.inputs {
        let value = match (&input.value, input.wanted) {
            (Some(value), _) => format!(" = {}", shown(&value.to_string())),
            (None, true) => " is required".to_owned(),
            (None, false) => " may be given".to_owned(),
        };
        let _ = writeln!(text, "  {}{value}", shown(&input.name));
    }
    text += "\nSteps\n";
    for (index, step) in flow.steps.iter().enumerate() {
        write_step(&mut text, index + 1, step, flow);
    }
    text += &render_tools(flow);
    let _ = match &flow.result {
        Some(result) => writeln!(text, "\nResult: {}", shown(result)),
        None => writeln!(text, "\nResult: the last response"),
    };
    for artifact in &flow.artifacts {
        let _ = writeln!(text, "File: {}", shown(artifact));
    }
    if !flow.needs.is_empty() {
        let _ = writeln!(text, "  needs {}", names(&flow.needs));
    }
    text
}

pub(super) fn render_tools(flow: &Flow) -> String {
    let mut text = String::new();
    flow.agents.iter().for_each(|agent| write_tools(&mut text, agent));
    write_gates_of_tools(&mut text, flow);
    text
}

fn write_step(text: &mut String, number: usize, step: &Step, flow: &Flow) {
    let indent = "  ".repeat(step.depth + 1);
    let _ = writeln!(text, "{indent}{number}. {}: {}", shown(&step.id), shown(&step.does));
    let mut line = |line: String| {
        let _ = writeln!(text, "{indent}   {line}");
    };
    let after: Vec<String> = flow
        .edges
        .iter()
        .filter(|edge| edge.to == step.id && !edge.from.is_empty())
        .map(|edge| match &edge.when {
            Some(when) => format!("{} ({})", shown(&edge.from), shown(when)),
            None => shown(&edge.from),
        })
        .collect();
    if !after.is_empty() {
        line(format!("after {}", after.join(", ")));
    }
    if let Some(condition) = &step.skip_if {
        line(format!("skipped if {}", shown(condition)));
    }
    if let Some(condition) = &step.only_if {
        line(format!("only if {}", shown(condition)));
    }
    if !step.command.is_empty() {
        line(format!("runs {}", shown(&serde_json::json!(step.command).to_string())));
    }
    if let Some(gate) = &step.gate {
        gate_lines(gate).into_iter().for_each(&mut line);
    }
    if !step.needs.is_empty() {
        line(format!("needs {}", names(&step.needs)));
    }
    if !step.uses.is_empty() {
        line(format!("uses {} of the cluster (not checked here)", names(&step.uses)));
    }
}

fn write_tools(text: &mut String, agent: &AgentTools) {
    let limits = [(agent.turns, "turns"), (agent.calls, "calls")];
    let limits: Vec<_> = limits.iter().filter_map(|(most, unit)| most.map(|most| format!("{most} {unit}"))).collect();
    let limits = if limits.is_empty() { String::new() } else { format!(" (at most {})", limits.join(" and ")) };
    let _ = writeln!(text, "\nTools of agent {}{limits}", shown(&agent.agent));
    for tool in &agent.tools {
        let _ = writeln!(text, "  {}: {}", shown(&tool.name), shown(&tool.does));
        let _ = match tool.effects {
            Some("unknown") => writeln!(text, "    effects unknown, treated as irreversible"),
            Some(effects) if tool.counts_as_change => writeln!(
                text,
                "    effects {effects}, as declared; policies, retries and repetitions take its request for a change"
            ),
            Some(effects) => writeln!(text, "    effects {effects}"),
            None => Ok(()),
        };
        for gate in &tool.gates {
            let only = gate.only_if.as_ref().map(|only| format!(" if {}", shown(only))).unwrap_or_default();
            let _ = writeln!(text, "    gate {} ({}) asks{only}", shown(&gate.name), gate.sort);
        }
        // If the tools of a server are unknown, only gates that ask about all of them are listed.
        let unasked = if tool.gates.is_empty() { "" } else { " where no gate asks" };
        let _ = match (&tool.refused, tool.unasked) {
            (Some(remedy), _) => writeln!(text, "    refused{unasked}: {remedy}"),
            (None, Some(why)) if tool.gates.is_empty() => writeln!(text, "    runs unasked: {why}"),
            (None, _) if tool.gates.is_empty() => writeln!(text, "    no gate of this Workflow asks"),
            (None, _) => Ok(()),
        };
    }
}

/// Adds the approvers and the deadline of each gate before tools.
fn write_gates_of_tools(text: &mut String, flow: &Flow) {
    let tools = flow.agents.iter().flat_map(|agent| &agent.tools);
    let gates: BTreeMap<_, _> = tools.flat_map(|tool| &tool.gates).map(|gate| (&gate.name, &gate.gate)).collect();
    if !gates.is_empty() {
        *text += "\nGates of tools\n";
    }
    for (name, gate) in gates {
        let _ = writeln!(text, "  {}", shown(name));
        for line in gate_lines(gate) {
            let _ = writeln!(text, "    {line}");
        }
    }
}

/// Renders the approvers, the deadline, the questions and the verdicts of a gate, a line for each.
fn gate_lines(gate: &Gate) -> Vec<String> {
    let mut approvers = format!("{} of {}", gate.threshold, names(&gate.approvers));
    if !gate.required_from.is_empty() {
        approvers += &format!(", {}", names(&gate.required_from));
    }
    if !gate.excluded.is_empty() {
        approvers += &format!(", not {}", names(&gate.excluded));
    }
    let after = gate.after.as_deref().unwrap_or("the operator's default");
    let mut lines = vec![approvers, format!("after {after}: {}", gate.action)];
    for (index, level) in gate.escalation.iter().enumerate() {
        let time = level.after.as_ref().map(|after| format!(" for {}", shown(after))).unwrap_or_default();
        lines.push(format!("escalation {}: {} can decide too{time}", index + 1, names(&level.to)));
    }
    if !gate.escalate_to.is_empty() {
        lines.push(format!("Escalate can add {}", names(&gate.escalate_to)));
    }
    lines.extend(gate.questions.iter().map(question_line));
    if !gate.verdicts.is_empty() {
        lines.push(format!("may decide {}", gate.verdicts.join(", ")));
    }
    if let Some(reviews) = &gate.reviews {
        lines.push(format!("about {}", shown(reviews)));
    }
    lines
}

/// Renders a question of a form as one line: `asks channel: By which channel? (mail or post)`.
fn question_line(asked: &Asked) -> String {
    let text = asked.question.as_ref().map(|text| format!(": {}", shown(text))).unwrap_or_default();
    let options = match asked.options.as_slice() {
        [] => String::new(),
        some => format!(" ({})", some.iter().map(|id| shown(id)).collect::<Vec<_>>().join(" or ")),
    };
    let optional = if asked.required { "" } else { ", can be left out" };
    format!("asks {}{text}{options}{optional}", shown(&asked.id))
}

fn names(list: &[String]) -> String {
    list.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")
}

/// Renders a text as one line for a terminal.
pub(super) fn shown(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    display(&line, 160)
}
