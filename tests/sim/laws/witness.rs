//! The facts about the calls of a run from outside of the operator: effects in the world, people's decisions, and
//! requests to the provider. `calls.rs` judges them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signoff_api::{ClusterApprovalPolicy, digest::canonical};
use signoff_tests::sim::{Effect, KUBELET, Resource};

use super::asking::{self, ToolCall};
use crate::{
    ending::{list, records},
    harness::Harness,
};

/// The most calls of a turn that are made.
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

    /// Returns the call, for the rules about it.
    pub fn of<'a>(&'a self, witness: &'a Witness) -> ToolCall<'a> {
        let step = list(&witness.spec["steps"]).find(|step| step["name"] == self.tool["step"]);
        ToolCall { agent: self.agent, tool: self.tool, step: step.unwrap_or(&Value::Null), arguments: &self.arguments }
    }
}

impl Witness {
    pub fn of(harness: &Harness, run: &str) -> Self {
        let workflow = harness.workflow(run);
        let prefix = format!("{run}/");
        let own = |mut effect: Effect| {
            effect.key.path = effect.key.path.strip_prefix(&prefix)?.to_owned();
            Some(effect)
        };
        let asks = |approval: &Value| approval["spec"]["request"]["workflow"]["uid"] == workflow["metadata"]["uid"];
        let policies = harness.server.values(&Resource::of::<ClusterApprovalPolicy>(), None);
        Self {
            effects: harness.world.effects().into_iter().filter_map(own).collect(),
            approvals: harness.approvals().into_iter().filter(asks).collect(),
            records: records(harness, &workflow["status"]),
            added: added(&policies),
            policies,
            spec: workflow["spec"].clone(),
        }
    }

    /// Returns every call that ran, with its explanation: no other effect may have reached the world below a call.
    pub fn ran(&self) -> Result<Vec<Ran<'_>>, String> {
        let mut all: Vec<Ran<'_>> = Vec::new();
        let (mut seen, mut uncertain) = (BTreeSet::new(), Vec::new());
        let beneath = self.effects.iter().filter_map(|effect| Some((effect, call_of(&effect.key.path)?)));
        for (effect, (call, step)) in beneath {
            let step = step.split('#').next().unwrap_or_default();
            let ran = self.explained(call, step, effect.at).map_err(|why| format!("{} ran: {why}", effect.key))?;
            if let Some(other) = self.sent_otherwise(step, effect, &ran.text) {
                return Err(format!("{} sent {other}, and its arguments are {}", effect.key, ran.text));
            }
            // A repetition of an attempt whose answer was lost is the same attempt.
            if seen.insert(effect.key.clone()) {
                let is_same = |(path, text): &&(&str, String)| *path == effect.key.path && *text == ran.text;
                let approvals = uncertain.iter().filter(is_same).count() + 1;
                if !is_turn(effect) && !failed_for_certain(effect) {
                    uncertain.push((&effect.key.path, ran.text.clone()));
                }
                all.push(Ran { approvals, ..ran });
            }
        }
        // The text of a `set` step reaches only the model.
        for (place, next, results) in self.results() {
            for (at, result) in results.iter().enumerate() {
                let call = format!("{place}/.call-{}", at + 1);
                let shown = result.strip_prefix("A human changed").and_then(|rest| rest.split_once('\n'));
                let result = shown.map_or(*result, |(_, result)| result);
                for step in list(&self.spec["steps"]) {
                    let Some(before) = step["set"]["value"].as_str().and_then(|value| value.strip_suffix(WHOLE)) else {
                        continue;
                    };
                    if let Some(arguments) = result.strip_prefix(before).filter(|rest| rest.starts_with('{')) {
                        let ran = self.explained(&call, text_of(step, "name"), next.at);
                        let ran = ran.map_err(|why| format!("{call} made the text {result}: {why}"))?;
                        if ran.text != arguments {
                            return Err(format!(
                                "{call} made a text of {arguments}, and its arguments are {}",
                                ran.text
                            ));
                        }
                        all.push(ran);
                    }
                }
            }
        }
        Ok(all)
    }

    /// Returns the reason why a step may have run as a call: a model called the tool, its agent has it, and the
    /// arguments are those of the model or the last ones that people gave.
    fn explained(&self, call: &str, step: &str, at: jiff::Timestamp) -> Result<Ran<'_>, String> {
        let (place, number) = call.rsplit_once("/.call-").unwrap_or_default();
        let number: usize = number.parse().map_err(|_| format!("{call} is no call"))?;
        if number > MOST_CALLS {
            return Err("more calls of a turn were made than may be".to_owned());
        }
        let mut why = "no model called it".to_owned();
        for turn in self.turns_at(place).filter(|turn| turn.at <= at) {
            let Some(wanted) = kept(turn).get(number - 1).copied() else { continue };
            let agent = turn.input["what"]["agent"].as_str().unwrap_or_default();
            let listed = |tool: &&Value| {
                let agents = list(&self.spec["agents"]).filter(|one| one["name"] == agent);
                let entries = agents.flat_map(|one| list(&one["tools"])).filter_map(Value::as_str);
                entries.into_iter().any(|entry| asking::matches(entry, text_of(tool, "name")))
            };
            let tool = list(&self.spec["tools"]).filter(listed).find(|tool| tool["name"] == wanted["tool"]);
            let Some(tool) = tool.filter(|tool| tool["step"] == step) else {
                why = format!("agent {agent} called {}, and has no such tool", wanted["tool"]);
                continue;
            };
            if turn.answer.as_ref().is_ok_and(|answer| answer["truncated"] == true) {
                why = "its turn was cut".to_owned();
                continue;
            }
            let edited = self.asked(call).filter(|approval| approval["status"]["outcome"]["verdict"] == "Modify");
            let edited = edited.filter(|approval| decided_at(approval).is_some_and(|decided| decided <= at));
            let edited = edited.map(|approval| approval["status"]["outcome"]["parameters"]["arguments"].clone()).last();
            let own = || match wanted["arguments"].as_str() {
                Some(raw) if !is_malformed(raw) => serde_json::from_str(raw).map_err(|why| why.to_string()),
                raw => Err(format!("nobody gave it arguments that can be read: {raw:?}")),
            };
            let arguments = match edited.map_or_else(own, Ok) {
                Ok(arguments) => arguments,
                Err(problem) => {
                    why = problem;
                    continue;
                }
            };
            let text = canonical(&arguments).map_err(|why| why.to_string())?;
            let text = String::from_utf8(text).map_err(|why| why.to_string())?;
            return Ok(Ran { call: call.to_owned(), agent, tool, arguments, text, at, approvals: 1 });
        }
        Err(why)
    }

    /// Returns what a step sent in place of its arguments, if its template sends them unchanged.
    fn sent_otherwise(&self, step: &str, effect: &Effect, arguments: &str) -> Option<String> {
        let step = list(&self.spec["steps"]).find(|one| one["name"] == step)?;
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
        let mut all: Vec<(i64, &Value)> = Vec::new();
        for approval in &self.approvals {
            if without_visit(path(approval)) == gate {
                all.push((approval["spec"]["request"]["gate"]["visit"].as_i64().unwrap_or_default(), approval));
            }
        }
        all.sort_by_key(|(visit, _)| *visit);
        all.into_iter().map(|(_, approval)| approval)
    }

    /// Returns the turns whose calls are below a path such as `handle/.turn-2`.
    pub fn turns_at(&self, place: &str) -> impl Iterator<Item = &Effect> {
        let (base, number) = place.rsplit_once("/.turn-").unwrap_or_default();
        let at = if without_visit(number) == "1" { base } else { place }.to_owned();
        self.effects.iter().filter(move |effect| effect.key.path == at && is_turn(effect) && !kept(effect).is_empty())
    }

    /// Returns the results of each turn in the request of the next one, and that next one.
    pub fn results(&self) -> Vec<(String, &Effect, Vec<&str>)> {
        let mut all = Vec::new();
        for next in self.effects.iter().filter(|effect| is_turn(effect)) {
            let Some((base, number)) = next.key.path.rsplit_once("/.turn-") else { continue };
            let (Ok(number), false) = (number.parse::<usize>(), base.ends_with('/')) else { continue };
            let place = format!("{base}/.turn-{}", number - 1);
            let messages: Vec<_> = list(&next.input["what"]["messages"]).collect();
            let calls = messages.iter().rposition(|message| list(&message["calls"]).next().is_some());
            let results = messages.iter().skip(calls.map_or(usize::MAX, |at| at + 1));
            all.push((place, next, results.map(|message| text_of(message, "text")).collect()));
        }
        all
    }
}

/// Returns the gates that policies add to runs. The operator's own list of them is no witness.
fn added(policies: &[Value]) -> Value {
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
