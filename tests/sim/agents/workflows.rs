//! Random Workflows of agents with tools: agents that call each other, gates of all types, and policies above them.

use serde_json::{Value, json};

use crate::dice::Dice;

/// The people of a Workflow, and those of policies.
pub const PEOPLE: [&str; 3] = ["alice", "bob", "carol"];
pub const OF_POLICIES: [&str; 2] = ["pam", "paul"];
/// The image of the tool that is a container.
const IMAGE: &str = "tool@sha256:1";

/// A Workflow, and the policies that apply to it.
pub struct GeneratedWorkflow {
    pub spec: Value,
    pub policies: Vec<Value>,
}

/// Returns a Workflow that is accepted.
pub fn generate(dice: &mut Dice) -> GeneratedWorkflow {
    let policies = policies(dice);
    let mut gates = gates(dice);
    // A gate of the author with the name and the people of a policy's gate, and with other deadlines.
    let is_added = json!(policies).to_string().contains(r#""name":"calls""#);
    if let Some(gate) = gates.iter_mut().find(|gate| is_added && gate["preset"].is_null()) {
        (gate["name"], gate["hitl"]["approvers"]) = (json!("calls"), json!(of_policies()));
    }
    if json!(policies).to_string().contains("requireGate") {
        gates.push(json!({"name": "every", "type": "toolExecution", "hitl": hitl(dice, &[json!([])])}));
    }
    let answers = [json!(["Respond", "Skip", "Abort"]), json!(["Respond", "Skip", "Reject", "Abort"])];
    gates.push(json!({"name": "questions", "type": "question", "hitl": hitl(dice, &answers)}));
    if dice.one_in(2) {
        let verdicts = [
            json!(["Retry", "Skip", "Reject"]),
            json!(["Retry", "Respond", "Reject"]),
            json!(["Skip", "Reject", "Abort"]),
        ];
        let attempts = 1 + dice.below(3);
        let hitl = hitl_once(dice, &verdicts);
        gates.push(json!({"name": "errors", "type": "errorEscalation", "afterAttempts": attempts, "hitl": hitl}));
    }
    if dice.one_in(4) {
        let verdicts = [json!(["Approve", "Reject"]), json!(["Approve", "Skip", "Retry", "Reject"])];
        let step = *dice.pick(&["pay", "tell", "scan"]);
        let hitl = hitl_once(dice, &verdicts);
        gates.push(json!({"name": "start", "type": "stepStart", "steps": [step], "hitl": hitl}));
    }
    let names = ["lookup", "fetch", "pay", "mail", "note", "scan"];
    let mut tools_and_limits = |extra: &[&str]| {
        let mut tools = match dice.below(4) {
            0 => vec!["*".to_owned()],
            1 => vec!["lookup".to_owned(), "p*".to_owned()],
            _ => dice.some(&names).into_iter().map(str::to_owned).collect(),
        };
        // A glob would include the tools of the agents above.
        tools.retain(|tool| tool != "*");
        tools.extend(extra.iter().map(|name| (*name).to_owned()));
        if tools.len() == extra.len() {
            tools.extend(["pay".to_owned(), "mail".to_owned()]);
        }
        if dice.one_in(3) {
            tools.push("ask-human".to_owned());
        }
        let mut limits = json!({"turns": 3 + dice.below(3)});
        if dice.one_in(4) {
            limits["calls"] = json!(4 + dice.below(8));
        }
        (tools, limits)
    };
    let clerk = tools_and_limits(&[]);
    let boss = tools_and_limits(&["delegate"]);
    let chief = tools_and_limits(&["manage", "delegate"]);
    let agent = |name: &str, (tools, limits): (Vec<String>, Value)| json!({"name": name, "provider": "models", "tools": tools, "limits": limits});
    let mut steps = flow(dice);
    let is_parallel = steps.iter().any(|step| step["branch"].is_string());
    steps.extend(steps_of_tools(dice));
    let mut spec = json!({
        "requestedBy": "dana",
        "providers": [{"name": "models", "scripted": {"replies": [{"text": "the world answers instead"}]}}],
        "agents": [agent("clerk", clerk), agent("boss", boss), agent("chief", chief)],
        "tools": tools(dice), "gates": gates, "steps": steps,
    });
    if is_parallel {
        spec["pattern"] = json!({"parallel": {}});
    }
    GeneratedWorkflow { spec, policies }
}

/// Returns the steps in which agents begin: one, two of the same agent, or two at once.
fn flow(dice: &mut Dice) -> Vec<Value> {
    let agents = ["clerk", "boss", "chief"];
    let step_of_agent = |name: &str, agent: &str, dice: &mut Dice| {
        let mut step = json!({"name": name, "agent": {"name": agent, "input": "Help the customer."}});
        step["retry"] = json!({"limit": 2, "backoff": {"base": "1s"}});
        if dice.one_in(4) {
            step["onError"] = json!("continue");
        }
        step
    };
    let first = *dice.pick(&agents);
    match dice.below(4) {
        0 => {
            let second = *dice.pick(&agents);
            let mut both = vec![step_of_agent("handle", first, dice), step_of_agent("check", second, dice)];
            for (step, branch) in both.iter_mut().zip(["left", "right"]) {
                step["branch"] = json!(branch);
            }
            both
        }
        1 => vec![step_of_agent("handle", first, dice), step_of_agent("check", first, dice)],
        _ => vec![step_of_agent("handle", first, dice)],
    }
}

/// Returns the steps of the tools. All of them send their arguments unchanged, which the laws compare.
fn steps_of_tools(dice: &mut Dice) -> Vec<Value> {
    let mut all = vec![
        json!({"name": "find", "http": {"url": "http://orders.test/", "headers": {"X-Arguments": "{{ args }}"}}}),
        json!({"name": "get", "http": {"url": "http://{{ args.host }}/", "headers": {"X-Arguments": "{{ args }}"}}}),
        json!({"name": "pay", "http": {"method": "POST", "url": "http://pay.test/", "body": "{{ args }}"}}),
        json!({"name": "tell", "http": {"method": "PUT", "url": "http://mail.test/", "body": "{{ args }}"}}),
        json!({"name": "jot", "set": {"value": "noted {{ args }}"}}),
        json!({"name": "scan", "pod": {"image": IMAGE, "command": ["tool"], "env": [{"name": "ARGUMENTS", "value": "{{ args }}"}]}}),
        json!({"name": "sub", "agent": {"name": "clerk", "input": "{{ args }}"}}),
        json!({"name": "team", "agent": {"name": "boss", "input": "{{ args }}"}}),
    ];
    for step in all.iter_mut().filter(|step| step["set"].is_null()) {
        if dice.one_in(2) {
            step["retry"] = json!({"limit": 1 + dice.below(2), "backoff": {"base": "1s"}});
        }
        for kind in ["http", "pod"] {
            if step[kind].is_object() && dice.one_in(3) {
                step[kind]["idempotent"] = json!(dice.one_in(2));
            }
        }
    }
    all
}

fn tools(dice: &mut Dice) -> Value {
    let amount = json!({"type": "object", "required": ["amount"], "additionalProperties": false,
        "properties": {"amount": {"type": "number"}, "to": {"type": "string"}}});
    let mut tool = |name: &str, step: &str, parameters: &Value, effects: &[&str]| {
        let mut tool = json!({"name": name, "step": step, "description": name, "parameters": parameters});
        let effects = *dice.pick(effects);
        if !effects.is_empty() {
            tool["effects"] = json!(effects);
        }
        tool
    };
    let any = json!({"type": "object"});
    json!([
        tool("lookup", "find", &any, &["read", "read", ""]),
        tool("fetch", "get", &any, &["read", ""]),
        tool("pay", "pay", &amount, &["irreversible", ""]),
        tool("mail", "tell", &any, &["write", "read"]),
        tool("note", "jot", &any, &["", "read"]),
        tool("scan", "scan", &any, &["write", "read", ""]),
        tool("delegate", "sub", &any, &["", "write"]),
        tool("manage", "team", &any, &["", "read"]),
    ])
}

fn gates(dice: &mut Dice) -> Vec<Value> {
    let mut all: Vec<Value> = (0..dice.below(4)).map(|at| gate(&format!("gate-{at}"), dice)).collect();
    // Two presets would both ask about the final response.
    let asks_at_the_end = |gate: &&mut Value| gate["preset"] == "strict" || gate["preset"] == "paranoid";
    for gate in all.iter_mut().filter(asks_at_the_end).skip(1) {
        gate["preset"] = json!("minimal");
    }
    all
}

/// Returns a gate in front of calls.
fn gate(name: &str, dice: &mut Dice) -> Value {
    let hitl = hitl(
        dice,
        &[
            json!([]),
            json!([]),
            json!(["Approve", "Reject"]),
            json!(["Approve", "Modify", "Reject"]),
            json!(["Approve", "Modify", "Skip", "Defer", "Reject"]),
            json!(["Skip", "Defer", "Abort"]),
            json!(["Approve", "Respond", "Defer", "Reject"]),
        ],
    );
    let lists = [json!(["*"]), json!(["*", "!pay"]), json!(["lookup", "note"]), json!(["l*", "m*"]), json!(["!mail"])];
    let mut gate = json!({"name": name, "hitl": hitl});
    if dice.one_in(6) {
        gate["preset"] = json!(dice.pick(&["minimal", "standard", "strict", "paranoid"]));
        // The run cannot go on after a Reject of the final response, which some presets ask about.
        gate["hitl"].as_object_mut().unwrap().remove("onReject");
    } else {
        let types = ["toolExecution", "specificTools", "destructiveActions", "custom"];
        let type_ = *dice.pick(&types);
        gate["type"] = json!(type_);
        if type_ == "specificTools" {
            gate["tools"] = dice.pick(&lists[..4]).clone();
        }
        let conditions =
            ["args.amount > 2", "args.missing > 2", "tool == 'pay'", "effects != 'read'", "agent == 'boss'", "false"];
        if type_ == "custom" || dice.one_in(5) {
            gate["condition"] = json!(dice.pick(&conditions));
        }
    }
    let takes_list =
        gate["type"] == "toolExecution" || gate["type"] == "destructiveActions" || gate["preset"].is_string();
    if takes_list && dice.one_in(2) {
        gate["allowedTools"] = dice.pick(&lists).clone();
    }
    gate
}

/// Returns the part of a gate that asks people. `verdicts`: lists of allowed verdicts; an empty list is the default.
fn hitl(dice: &mut Dice, verdicts: &[Value]) -> Value {
    let mut hitl = hitl_once(dice, verdicts);
    match dice.below(12) {
        0 => hitl["onReject"] = json!("stop"),
        1 | 2 => hitl["onReject"] = json!("continue"),
        _ => {}
    }
    hitl
}

fn hitl_once(dice: &mut Dice, verdicts: &[Value]) -> Value {
    let user = |name: &&str| json!({"kind": "User", "name": name});
    let mut people = PEOPLE.to_vec();
    people.rotate_left(dice.below(3));
    people.truncate(2 + dice.below(2));
    let allowed = dice.pick(verdicts).clone();
    let mut hitl = json!({"prompt": "Go on?", "approvers": people.iter().map(user).collect::<Vec<_>>()});
    let responds = allowed.to_string().contains("Respond");
    if !responds && dice.one_in(4) {
        hitl["threshold"] = json!(2);
    }
    if let Some(all) = allowed.as_array().filter(|all| !all.is_empty()) {
        hitl["allowedVerdicts"] = json!(all);
        if dice.one_in(4) {
            let last = PEOPLE.iter().find(|name| !people.contains(name)).unwrap_or(&"erin");
            hitl["allowedVerdicts"].as_array_mut().unwrap().push(json!("Escalate"));
            hitl["escalateTo"] = json!([user(last)]);
        }
    }
    // A person takes a minute or a quarter of an hour, and some deadlines pass before.
    let actions = ["Reject", "Skip", "Retry", "Abort"];
    hitl["timeout"] = match dice.below(6) {
        0 => json!({"after": "10m", "action": dice.pick(&actions)}),
        1 => {
            let erin = json!([{"after": "10m", "to": [{"kind": "User", "name": "erin"}]}]);
            json!({"after": "10m", "action": "Escalate", "escalation": erin})
        }
        _ => json!({"after": "1h"}),
    };
    hitl
}

fn of_policies() -> Vec<Value> {
    OF_POLICIES.iter().map(|name| json!({"kind": "User", "name": name})).collect()
}

/// Returns an administrator's policies: gates of their own people before steps or calls, their people at every gate, or
/// rules for tools.
fn policies(dice: &mut Dice) -> Vec<Value> {
    let people = of_policies();
    let hitl = |verdicts: Value| json!({"prompt": "Release?", "approvers": people, "allowedVerdicts": verdicts, "timeout": {"after": "1h"}});
    let kinds = *dice.pick(&["http", "http", "agent", "egress", "pod"]);
    let release = hitl(json!(["Approve", "Skip", "Reject", "Retry"]));
    let release = json!({"steps": [{"name": "release", "before": {"kinds": [kinds]}, "hitl": release}]});
    let meant = [
        Value::Null,
        json!({"changes": true}),
        json!({"methods": ["POST", "PUT"]}),
        json!({"hosts": ["mail.test", "one.test"]}),
        json!({"kinds": ["agent", "set"]}),
        json!({"images": ["*@sha256:1"]}),
    ];
    let mut before = json!({"kinds": ["tool"]});
    if let calls @ Value::Object(_) = dice.pick(&meant) {
        before["calls"] = calls.clone();
    }
    let calls = hitl(json!(["Approve", "Modify", "Skip", "Reject"]));
    let calls = json!({"steps": [{"name": "calls", "before": before, "hitl": calls}]});
    let deciders = json!({"gates": {"deciders": {"approvers": people}, "allowContinueAfterReject": true}});
    let careful = json!({"gates": {"excludeRequester": true}});
    let never = json!({"tools": {"never": [{"hosts": ["two.test"]}]}});
    let required = json!({"tools": {"requireGate": true}});
    match dice.below(10) {
        0 => vec![release],
        1 => vec![deciders],
        2 => vec![release, careful],
        3 => vec![calls],
        4 => vec![calls, never],
        5 => vec![calls, release],
        6 => vec![never, required],
        _ => Vec::new(),
    }
}
