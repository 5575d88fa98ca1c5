//! The facts about the calls of a run from outside of the operator: effects in the world, people's decisions, and
//! requests to the provider. `calls.rs` judges them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signoff_api::{ClusterApprovalPolicy, RecordPath, digest::canonical, record_path::RecordPathBuf};
use signoff_tests::sim::{Effect, KUBELET, Resource};

use super::asking::{self, ToolCall};
use crate::{
    ending::{list, records},
    harness::Harness,
};

/// The number of calls of a turn after which the operator makes no further ones.
const MOST_CALLS: usize = 32;
/// The template that sends the arguments unchanged.
const WHOLE: &str = "{{ args }}";

/// The facts about a run from outside of the operator.
pub struct Witness {
    pub spec: Value,
    /// The gates that the policies add to runs, as the status of a run has them.
    pub added: Value,
    /// The policies as they are. They must not change during a run with tools.
    pub policies: Vec<Value>,
    /// The records of the journal.
    pub records: Value,
    /// All effects in the world, in order; paths without the name of the run.
    pub effects: Vec<Effect>,
    pub approvals: Vec<Value>,
}

/// A call of a tool that ran, with its arguments.
pub struct Ran<'w> {
    /// The path of the call.
    pub call: String,
    pub agent: &'w str,
    pub tool: &'w Value,
    pub arguments: Value,
    /// The arguments, byte for byte.
    pub text: String,
    pub at: jiff::Timestamp,
    /// The number of approvals that the call needs: one, and one more for each earlier attempt with the same arguments
    /// and an uncertain outcome.
    pub approvals: usize,
}

impl Ran<'_> {
    pub fn tool(&self) -> &str {
        text_of(self.tool, "name")
    }

    /// Returns the call with the step of its tool, as rules and gates see it.
    pub fn tool_call<'a>(&'a self, witness: &'a Witness) -> ToolCall<'a> {
        let step = list(&witness.spec["steps"]).find(|step| step["name"] == self.tool["step"]);
        ToolCall { agent: self.agent, tool: self.tool, step: step.unwrap_or(&Value::Null), arguments: &self.arguments }
    }
}

impl Witness {
    pub fn of(harness: &Harness, run: &str) -> Self {
        let workflow = harness.workflow(run);
        let prefix = format!("{run}/");
        let without_run = |mut effect: Effect| {
            effect.key.path = effect.key.path.strip_prefix(&prefix)?.to_owned();
            Some(effect)
        };
        let is_of_run =
            |approval: &Value| approval["spec"]["request"]["workflow"]["uid"] == workflow["metadata"]["uid"];
        let policies = harness.server.values(&Resource::of::<ClusterApprovalPolicy>(), None);
        Self {
            effects: harness.world.effects().into_iter().filter_map(without_run).collect(),
            approvals: harness.approvals().into_iter().filter(is_of_run).collect(),
            records: records(harness, &workflow["status"]),
            added: added_gates(&policies),
            policies,
            spec: workflow["spec"].clone(),
        }
    }

    /// Returns every call that ran, or the first effect below a call that the call of no model explains.
    pub fn explain_calls(&self) -> Result<Vec<Ran<'_>>, String> {
        let mut calls = self.explain_effects()?;
        calls.append(&mut self.explain_texts()?);
        Ok(calls)
    }

    /// Returns the calls whose steps had effects in the world, one for each attempt.
    fn explain_effects(&self) -> Result<Vec<Ran<'_>>, String> {
        let mut calls: Vec<Ran<'_>> = Vec::new();
        let (mut attempts, mut uncertain) = (BTreeSet::new(), Vec::new());
        for effect in &self.effects {
            let Some((call, step)) = call_of(&effect.key.path) else { continue };
            let step = step.split('#').next().unwrap_or_default();
            let ran = self.explain_call(call, step, effect.at).map_err(|why| format!("{} ran: {why}", effect.key))?;
            if let Some(other) = self.sent_otherwise(step, effect, &ran.text) {
                return Err(format!("{} sent {other}, and its arguments are {}", effect.key, ran.text));
            }
            // A repetition of an attempt whose answer was lost is the same attempt.
            if !attempts.insert(effect.key.clone()) {
                continue;
            }
            let is_same = |(path, text): &&(&str, String)| *path == effect.key.path && *text == ran.text;
            let approvals = uncertain.iter().filter(is_same).count() + 1;
            if !is_turn(effect) && !failed_for_certain(effect) {
                uncertain.push((&effect.key.path, ran.text.clone()));
            }
            calls.push(Ran { approvals, ..ran });
        }
        Ok(calls)
    }

    /// Returns the calls of `set` steps. Their texts are no effects in the world: only the model gets them.
    fn explain_texts(&self) -> Result<Vec<Ran<'_>>, String> {
        let mut calls = Vec::new();
        for results in self.collect_results() {
            for (call, result) in results.by_call() {
                let changed = result.strip_prefix("A human changed").and_then(|rest| rest.split_once('\n'));
                let text = changed.map_or(result, |(_, text)| text);
                for (step, arguments) in self.arguments_in_text(text) {
                    let ran = self.explain_call(&call, step, results.next.at);
                    let ran = ran.map_err(|why| format!("{call} made the text {text}: {why}"))?;
                    if ran.text != arguments {
                        return Err(format!("{call} made a text of {arguments}, and its arguments are {}", ran.text));
                    }
                    calls.push(ran);
                }
            }
        }
        Ok(calls)
    }

    /// Returns each `set` step whose value ends with its arguments and begins like `text`, and the arguments in `text`.
    fn arguments_in_text<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        list(&self.spec["steps"]).filter_map(move |step| {
            let before = step["set"]["value"].as_str()?.strip_suffix(WHOLE)?;
            let arguments = text.strip_prefix(before).filter(|rest| rest.starts_with('{'))?;
            Some((text_of(step, "name"), arguments))
        })
    }

    /// Returns the call as which a step ran at a time. It is an error if no model made the call, if its agent does not
    /// have the tool, or if the arguments cannot be read.
    fn explain_call(&self, call: &str, step: &str, at: jiff::Timestamp) -> Result<Ran<'_>, String> {
        let (place, number) = call.rsplit_once("/.call-").unwrap_or_default();
        let number: usize = number.parse().map_err(|_| format!("{call} is no call"))?;
        if number > MOST_CALLS {
            return Err("more calls of a turn were made than may be".to_owned());
        }
        let mut problem = "no model called it".to_owned();
        for turn in self.turns_at(place).filter(|turn| turn.at <= at) {
            let Some(wanted) = kept(turn).get(number - 1).copied() else { continue };
            let tool = self.tool_of_call(turn, wanted, step);
            let explained = tool.and_then(|tool| Ok((tool, self.arguments_at(call, wanted, at)?)));
            let ((agent, tool), arguments) = match explained {
                Ok(explained) => explained,
                Err(error) => {
                    problem = error;
                    continue;
                }
            };
            let text = canonical(&arguments).map_err(|why| why.to_string())?;
            let text = String::from_utf8(text).map_err(|why| why.to_string())?;
            return Ok(Ran { call: call.to_owned(), agent, tool, arguments, text, at, approvals: 1 });
        }
        Err(problem)
    }

    /// Returns the agent of a turn, and the tool of that agent which the turn calls and whose step is `step`.
    fn tool_of_call<'a>(&'a self, turn: &'a Effect, call: &Value, step: &str) -> Result<(&'a str, &'a Value), String> {
        let agent = turn.input["what"]["agent"].as_str().unwrap_or_default();
        let is_listed = |tool: &&Value| {
            let agents = list(&self.spec["agents"]).filter(|listed| listed["name"] == agent);
            let mut entries = agents.flat_map(|listed| list(&listed["tools"])).filter_map(Value::as_str);
            entries.any(|entry| asking::matches(entry, text_of(tool, "name")))
        };
        let tool = list(&self.spec["tools"]).filter(is_listed).find(|tool| tool["name"] == call["tool"]);
        let Some(tool) = tool.filter(|tool| tool["step"] == step) else {
            return Err(format!("agent {agent} called {}, and has no such tool", call["tool"]));
        };
        if turn.answer.as_ref().is_ok_and(|answer| answer["truncated"] == true) {
            return Err("its turn was cut".to_owned());
        }
        Ok((agent, tool))
    }

    /// Returns the arguments of a call at a time: the last ones that people gave by then, or else those of the model.
    fn arguments_at(&self, call: &str, wanted: &Value, at: jiff::Timestamp) -> Result<Value, String> {
        let edits = self.asked(call).filter(|approval| approval["status"]["outcome"]["verdict"] == "Modify");
        let edits = edits.filter(|approval| decided_at(approval).is_some_and(|decided| decided <= at));
        if let Some(approval) = edits.last() {
            return Ok(approval["status"]["outcome"]["parameters"]["arguments"].clone());
        }
        match wanted["arguments"].as_str() {
            Some(raw) if !is_malformed(raw) => serde_json::from_str(raw).map_err(|why| why.to_string()),
            raw => Err(format!("nobody gave it arguments that can be read: {raw:?}")),
        }
    }

    /// Returns what a step sent in place of its arguments, if its template sends them unchanged.
    fn sent_otherwise(&self, step: &str, effect: &Effect, arguments: &str) -> Option<String> {
        let step = list(&self.spec["steps"]).find(|listed| listed["name"] == step)?;
        let what = &effect.input["what"];
        let message = list(&what["messages"]).filter(|message| message["role"] == "User").last();
        let message =
            message.map_or("", |message| text_of(message, "text")).split("\n\n---").next().unwrap_or_default();
        let sent = [
            (&step["http"]["body"], text(&what["body"])),
            (&step["http"]["headers"]["X-Arguments"], text(&what["headers"]["X-Arguments"])),
            (&step["agent"]["input"], message),
            (&step["pod"]["env"][0]["value"], text(&what[0]["env"][0]["value"])),
        ];
        let other = sent.into_iter().find(|(template, sent)| **template == WHOLE && *sent != arguments);
        other.map(|(_, sent)| sent.to_owned())
    }

    /// Returns the Approvals about a call, in the order of their visits.
    pub fn asked(&self, call: &str) -> impl Iterator<Item = &Value> {
        let gate = format!("{call}/.gate");
        let approvals = self.approvals.iter().filter(|approval| without_visit(path(approval)) == gate);
        let mut approvals: Vec<&Value> = approvals.collect();
        approvals.sort_by_key(|approval| approval["spec"]["request"]["gate"]["visit"].as_i64().unwrap_or_default());
        approvals.into_iter()
    }

    /// Returns the turns whose calls are below a path such as `handle/.turn-2`.
    pub fn turns_at(&self, place: &str) -> impl Iterator<Item = &Effect> {
        let (base, number) = place.rsplit_once("/.turn-").unwrap_or_default();
        let path = if without_visit(number) == "1" { base } else { place }.to_owned();
        self.effects.iter().filter(move |effect| effect.key.path == path && is_turn(effect) && !kept(effect).is_empty())
    }

    /// Returns the results of the calls of every turn that has a next turn.
    pub fn collect_results(&self) -> Vec<TurnResults<'_>> {
        let mut turns = Vec::new();
        for next in self.effects.iter().filter(|effect| is_turn(effect)) {
            let path = RecordPath::new(&next.key.path);
            let Some((agent, number)) = path.agent_of_turn() else { continue };
            if path.last().visit() > 1 {
                continue;
            }
            let messages: Vec<_> = list(&next.input["what"]["messages"]).collect();
            let calls = messages.iter().rposition(|message| list(&message["calls"]).next().is_some());
            let results = messages.iter().skip(calls.map_or(usize::MAX, |position| position + 1));
            let texts = results.map(|message| text_of(message, "text")).collect();
            turns.push(TurnResults { turn: agent.turn(number - 1), next, texts });
        }
        turns
    }
}

/// The results of the calls of a turn, which are in the request of the next turn.
pub struct TurnResults<'w> {
    turn: RecordPathBuf,
    pub next: &'w Effect,
    /// One text for each call, in the order of the calls.
    texts: Vec<&'w str>,
}

impl<'w> TurnResults<'w> {
    /// Returns the path of each call, and its result.
    pub fn by_call(&self) -> impl Iterator<Item = (String, &'w str)> {
        let results = self.texts.iter().enumerate();
        results.map(|(position, text)| (self.turn.path().call_at(position).into_string(), *text))
    }
}

/// Returns the gates that policies add to runs, without the operator's own list of them.
fn added_gates(policies: &[Value]) -> Value {
    let of_policy = |policy: &Value| {
        let source = format!("ClusterApprovalPolicy {}", text_of(&policy["metadata"], "name"));
        let steps = list(&policy["spec"]["steps"]).map(|step| json!({"source": source, "step": step}));
        steps.collect::<Vec<_>>()
    };
    policies.iter().flat_map(of_policy).collect()
}

/// Arguments that no tool may run with, because they are ambiguous or invalid.
pub const MALFORMED: [&str; 6] =
    ["{", "[1]", "\"text\"", r#"{"amount":1,"amount":2}"#, r#"{"amount":9007199254740993}"#, r#"{"amount":"\ud800"}"#];

fn is_malformed(arguments: &str) -> bool {
    MALFORMED.contains(&arguments)
}

/// Returns the calls of a turn: each has a number and an answer, whatever its id.
pub fn kept(turn: &Effect) -> Vec<&Value> {
    turn.answer.as_ref().map(|answer| list(&answer["calls"])).into_iter().flatten().collect()
}

pub fn is_turn(effect: &Effect) -> bool {
    effect.input["what"]["messages"].is_array()
}

/// Returns whether the server itself reported that it did nothing, or a container ended with a failure.
pub fn failed_for_certain(effect: &Effect) -> bool {
    let is_certain = |class: &str| class.starts_with("Status") && class != "Status504";
    effect.answer.as_ref().is_err_and(|failure| effect.actor == KUBELET || is_certain(&failure.class))
}

/// Returns the call directly above a path, and the last part of the path: its gate, or the step of its tool.
pub fn call_of(path: &str) -> Option<(&str, &str)> {
    let (call, name) = path.rsplit_once('/')?;
    call.rsplit('/').next()?.starts_with(".call-").then_some((call, name))
}

pub fn without_visit(path: &str) -> &str {
    match path.rsplit_once('#') {
        Some((place, visit)) if !visit.contains('/') => place,
        _ => path,
    }
}

pub fn action(approval: &Value) -> &Value {
    &approval["spec"]["request"]["action"]
}

pub fn path(approval: &Value) -> &str {
    text(&approval["spec"]["request"]["gate"]["path"])
}

pub fn decided_at(approval: &Value) -> Option<jiff::Timestamp> {
    text(&approval["status"]["outcome"]["decidedAt"]).parse().ok()
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn text_of<'v>(value: &'v Value, field: &str) -> &'v str {
    text(&value[field])
}
