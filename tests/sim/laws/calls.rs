//! The laws of agents' calls at every moment of a run, whatever models, people and machines did.
//!
//! The witnesses are outside of the operator: the effects in the world, the decisions in Approvals, and the requests to
//! the provider (`witness.rs`). `asking.rs` decides again which gates ask.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use signoff_tests::sim::{Effect, Verb};

use super::{
    asking::{self, AskingGate},
    status_in,
    witness::{Ran, Witness, action, call_of, decided_at, is_turn, kept, path, text, text_of, without_visit},
};
use crate::{
    ending::{digest, list},
    harness::Harness,
};

/// The most calls of a run that wait for people at once.
const MOST_ASKED: usize = 8;
/// The number of rejections of a tool after which its next call is an error.
const MOST_REJECTIONS: usize = 3;

/// Checks every law of calls, at every moment so far.
pub fn hold(harness: &Harness, run: &str) -> Result<(), String> {
    at_most_eight_calls_wait(harness)?;
    hold_now(harness, run)
}

/// Checks the laws of calls for this moment.
pub fn hold_now(harness: &Harness, run: &str) -> Result<(), String> {
    let witness = Witness::of(harness, run);
    if list(&witness.spec["tools"]).next().is_none() {
        return Ok(());
    }
    for turn in witness.effects.iter().filter(|effect| is_turn(effect)) {
        every_call_is_answered_once_and_in_order(turn)?;
        the_last_calls_are_those_of_the_model(&witness, turn)?;
    }
    let ran = witness.explain_calls()?;
    an_equal_call_is_repeated_only_by_a_decision(&witness, &ran)?;
    for call in &ran {
        every_gated_call_was_approved(&witness, call)?;
        no_forbidden_call_is_made(&witness, call)?;
        a_rejected_call_is_not_tried_again(&witness, &call.call, call.tool(), &call.text, "ran")?;
    }
    for approval in witness.approvals.iter().filter(|approval| action(approval)["kind"] == "toolCall") {
        // The question whether a rejected tool goes on is asked at `.error`.
        let Some((call, ".gate")) = call_of(without_visit(path(approval))) else { continue };
        let text = text(&approval["spec"]["request"]["reviews"]["response"]);
        let tool = text_of(action(approval), "tool");
        a_rejected_call_is_not_tried_again(&witness, call, tool, text, "was asked about")?;
    }
    witness.approvals.iter().try_for_each(every_quorum_of_a_decision_is_met)?;
    editors_of_a_call_do_not_approve_it(&witness)?;
    the_model_gets_the_result_of_a_decision(&witness)
}

/// **Law:** no gated call runs without a human outcome for exactly those bytes, at every gate that asks.
fn every_gated_call_was_approved(witness: &Witness, ran: &Ran<'_>) -> Result<(), String> {
    for gate in asking::gates(&witness.spec, &witness.added, &ran.tool_call(witness)) {
        let approves = |approval: &&Value| {
            let outcome = &approval["status"]["outcome"];
            let request = &approval["spec"]["request"];
            outcome["verdict"] == "Approve"
                && outcome["source"] == "Human"
                && request["reviews"]["digest"] == digest(&ran.text)
                && request["action"]["tool"] == ran.tool()
                && list(&request["action"]["gates"])
                    .any(|asking| asking["name"] == gate.name && asking["source"] == *gate.source)
                && decided_at(approval).is_some_and(|at| at <= ran.at)
                && are_enough(&gate, approval)
        };
        let approvals = witness.asked(&ran.call).filter(approves).count();
        if approvals < ran.approvals {
            let requests = witness.asked(&ran.call);
            let requests = requests.map(|request| format!("{}: {}", path(request), request["status"]["outcome"]));
            let effects =
                witness.effects.iter().filter(|e| call_of(&e.key.path).is_some_and(|(call, _)| call == ran.call));
            let effects = effects.map(|e| format!("{} at {}: {:?}", e.key, e.at, e.answer));
            return Err(format!(
                "{} called {} with {} at {}: gate {} asks, that takes {} approvals, and there are {approvals}\n{}",
                ran.call,
                ran.tool(),
                ran.text,
                ran.at,
                gate.name,
                ran.approvals,
                requests.chain(effects).collect::<Vec<_>>().join("\n")
            ));
        }
    }
    Ok(())
}

/// **Law:** between two decisions about exactly it, an equal call that must not be repeated is answered with success at
/// most once. In a later turn of one conversation this holds for tools that are declared irreversible.
fn an_equal_call_is_repeated_only_by_a_decision(witness: &Witness, ran: &[Ran<'_>]) -> Result<(), String> {
    let mut last_effects: BTreeMap<(&str, &str), &Effect> = BTreeMap::new();
    for effect in witness.effects.iter().filter(|effect| !is_turn(effect) && effect.answer.is_ok()) {
        let Some((call, step)) = call_of(&effect.key.path).filter(|_| effect.input["idempotent"] != true) else {
            continue;
        };
        let tool = ran.iter().find(|ran| ran.call == call).map_or(&Value::Null, |ran| ran.tool);
        let equal = (without_visit(step), effect.digest.as_str());
        let Some(before) = last_effects.insert(equal, effect) else { continue };
        // A call whose answer was lost still has one result.
        if tool["repeatable"] == true || before.key == effect.key {
            continue;
        }
        let (earlier, later) = (turn_number(&before.key.path), turn_number(&effect.key.path));
        let is_later_turn =
            earlier.zip(later).is_some_and(|((agent, number), (same, next))| agent == same && number < next);
        if is_later_turn && tool["effects"] != "irreversible" {
            continue;
        }
        let is_decision = |approval: &&Value| {
            let outcome = &approval["status"]["outcome"];
            let is_retry = || {
                outcome["verdict"] == "Retry"
                    && [".error", ".output"].iter().any(|name| without_visit(path(approval)).ends_with(name))
            };
            path(approval).starts_with(&format!("{call}/"))
                && (outcome["verdict"] == "Approve" || is_retry())
                && outcome["source"] == "Human"
                && decided_at(approval).is_some_and(|at| at >= before.at && at <= effect.at)
        };
        if !witness.approvals.iter().any(|approval| is_decision(&approval)) {
            return Err(format!(
                "{} at {} did again what {} did, and nobody decided so",
                effect.key, effect.at, before.key
            ));
        }
    }
    Ok(())
}

/// Returns the path of the agent and the number of the turn of a call, whatever the visit of the turn.
fn turn_number(path: &str) -> Option<(&str, usize)> {
    let (turn, _) = path.rsplit_once("/.call-")?;
    let (agent, number) = turn.rsplit_once("/.turn-")?;
    Some((agent, number.split('#').next()?.parse().ok()?))
}

/// **Law:** no agent makes a call that a policy forbids, even with approval.
fn no_forbidden_call_is_made(witness: &Witness, ran: &Ran<'_>) -> Result<(), String> {
    let forbidden = witness.policies.iter().flat_map(|policy| list(&policy["spec"]["tools"]["never"]));
    match forbidden.into_iter().find(|rule| asking::is_meant(rule, &ran.tool_call(witness))) {
        Some(rule) => Err(format!("{} called {} with {}, and a policy forbids {rule}", ran.call, ran.tool(), ran.text)),
        None => Ok(()),
    }
}

/// Returns whether the people who decided are enough for a gate, by its author's spec. An escalation adds people to the
/// gate that declares it, and to no other gate of that name.
fn are_enough(gate: &AskingGate<'_>, approval: &Value) -> bool {
    let (hitl, first) = (gate.hitl, &approval["spec"]["request"]["quorums"][0]["source"]);
    let source = match gate.source.as_str() {
        Some(policy) => format!("gate {} of {policy}", gate.name),
        None => format!("gate {}", gate.name),
    };
    let escalated = list(&approval["status"]["approvers"]).filter(|_| *first == source);
    let listed: BTreeSet<_> =
        list(&hitl["approvers"]).chain(escalated).map(|subject| &subject["name"]).map(text).collect();
    let deciders = list(&approval["status"]["outcome"]["decidedBy"]).map(text).collect::<BTreeSet<_>>();
    deciders.intersection(&listed).count() >= usize::try_from(hitl["threshold"].as_u64().unwrap_or(1)).unwrap_or(1)
}

/// **Law:** a decision that needs a quorum was made by every quorum of its request, those of policies included.
fn every_quorum_of_a_decision_is_met(approval: &Value) -> Result<(), String> {
    let (request, outcome) = (&approval["spec"]["request"], &approval["status"]["outcome"]);
    let with_quorum = ["Approve", "Modify", "Respond", "Skip", "Retry"];
    let needs_quorum = with_quorum.iter().any(|verdict| outcome["verdict"] == **verdict);
    if !needs_quorum || outcome["source"] != "Human" {
        return Ok(());
    }
    let deciders: BTreeSet<_> = list(&outcome["decidedBy"]).map(text).collect();
    for (position, quorum) in list(&request["quorums"]).enumerate() {
        let escalated = list(&approval["status"]["approvers"]).filter(|_| position == 0);
        let listed: BTreeSet<_> = list(&quorum["approvers"]).chain(escalated).map(|s| text_of(s, "name")).collect();
        let needed = usize::try_from(quorum["threshold"].as_u64().unwrap_or(1)).unwrap_or(1);
        if deciders.intersection(&listed).count() < needed {
            return Err(format!(
                "{} is {}, and {} is not met by {deciders:?}",
                path(approval),
                outcome["verdict"],
                quorum["source"]
            ));
        }
    }
    Ok(())
}

/// **Law:** a person who gave the arguments of a call is no approver of it.
fn editors_of_a_call_do_not_approve_it(witness: &Witness) -> Result<(), String> {
    let calls = witness.approvals.iter().filter_map(|approval| Some(call_of(path(approval))?.0));
    for call in calls.collect::<BTreeSet<_>>() {
        let mut editors = BTreeSet::new();
        for approval in witness.asked(call) {
            let outcome = &approval["status"]["outcome"];
            let deciders: BTreeSet<_> = list(&outcome["decidedBy"]).map(text).collect();
            if outcome["verdict"] == "Approve" && !deciders.is_disjoint(&editors) {
                return Err(format!("{} was approved by {deciders:?}, who edited it", path(approval)));
            }
            if outcome["verdict"] == "Modify" {
                editors.extend(deciders);
            }
        }
    }
    Ok(())
}

/// **Law:** an equal call is not asked about again, and does not run, after people rejected it. The same holds for a
/// further call of a tool after three rejections, unless people decided that the agent goes on.
fn a_rejected_call_is_not_tried_again(
    witness: &Witness,
    call: &str,
    tool: &str,
    arguments: &str,
    what: &str,
) -> Result<(), String> {
    let last_end = |matches: &dyn Fn(&Value) -> bool| {
        list(&witness.records).filter(|r| matches(r)).filter_map(|r| r["done"].as_i64()).max()
    };
    let (place, _) = call.rsplit_once("/.call-").unwrap_or_default();
    let turns: BTreeSet<_> = witness.turns_at(place).map(|turn| (turn.key.path.as_str(), turn.key.attempt)).collect();
    let is_turn = |r: &Value| turns.iter().any(|(path, attempt)| r["path"] == *path && r["attempt"] == *attempt);
    let Some(turn_ended) = last_end(&is_turn) else { return Ok(()) };
    let decided_as = |verdict: &'static str| {
        let of_tool = witness.approvals.iter().filter(move |approval| {
            action(approval)["tool"] == tool && approval["status"]["outcome"]["verdict"] == verdict
        });
        of_tool.filter_map(|approval| Some((last_end(&|r| r["path"] == path(approval))?, approval)))
    };
    let rejected: Vec<_> = decided_as("Reject").filter(|(done, _)| *done < turn_ended).collect();
    let is_same = |approval: &Value| approval["spec"]["request"]["reviews"]["digest"] == digest(arguments);
    if let Some((_, same)) = rejected.iter().find(|(_, approval)| is_same(approval)) {
        return Err(format!("{call}, {tool} with {arguments}, {what}, and {} rejected it before", path(same)));
    }
    let by_people = |(_, approval): &(i64, &Value)| approval["status"]["outcome"]["source"] == "Human";
    let retries: Vec<_> = decided_as("Retry").filter(by_people).collect();
    let of_this_call = format!("{call}/.error");
    if retries.iter().any(|(_, approval)| without_visit(path(approval)) == of_this_call) {
        return Ok(());
    }
    let last_retry = retries.iter().map(|(done, _)| *done).filter(|done| *done < turn_ended).max();
    match rejected.iter().filter(|(done, _)| Some(*done) > last_retry).count() {
        count @ MOST_REJECTIONS.. => Err(format!("{call}, {tool} with {arguments}, {what} after {count} rejections")),
        _ => Ok(()),
    }
}

/// **Law:** a conversation has exactly one result for each call, under its id and in the order of the calls, and no
/// duplicate id.
fn every_call_is_answered_once_and_in_order(turn: &Effect) -> Result<(), String> {
    let mut known = BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    for message in list(&turn.input["what"]["messages"]) {
        if let Some(id) = message["answers"].as_str() {
            if open.first() != Some(&id) {
                return Err(format!("{}: {id} is answered where {open:?} have to be", turn.key));
            }
            open.remove(0);
            continue;
        }
        if !open.is_empty() {
            return Err(format!("{}: {open:?} have no answer", turn.key));
        }
        open.extend(list(&message["calls"]).map(|call| text_of(call, "id")));
        if let Some(id) = open.iter().find(|id| id.is_empty() || !known.insert(**id)) {
            return Err(format!("{}: there are two calls {id:?}", turn.key));
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{}: {open:?} have no answer", turn.key)) }
}

/// **Law:** the last calls in a turn's conversation are those that the model made before, in its order.
fn the_last_calls_are_those_of_the_model(witness: &Witness, turn: &Effect) -> Result<(), String> {
    let Some((agent, number)) = turn.key.path.rsplit_once("/.turn-") else { return Ok(()) };
    let Ok(number) = number.parse::<usize>() else { return Ok(()) };
    let messages: Vec<_> = list(&turn.input["what"]["messages"]).collect();
    let last = messages.iter().rfind(|message| list(&message["calls"]).next().is_some());
    let last_calls: Vec<_> = last.into_iter().flat_map(|message| list(&message["calls"])).collect();
    let made_them = |earlier: &Effect| {
        let calls = kept(earlier);
        let is_same = |(call, shown): (&&Value, &&Value)| {
            let (id, shown_id) = (text_of(call, "id"), text_of(shown, "id"));
            let has_id = id.is_empty() || shown_id == id || shown_id.starts_with(&format!("{id}-"));
            call["tool"] == shown["tool"] && has_id
        };
        calls.len() == last_calls.len() && calls.iter().zip(&last_calls).all(is_same)
    };
    if witness.turns_at(&format!("{agent}/.turn-{}", number - 1)).any(made_them) {
        return Ok(());
    }
    Err(format!("{} is told of calls that the model did not make: {last_calls:?}", turn.key))
}

/// **Law:** a call that people stopped has the result that says so.
fn the_model_gets_the_result_of_a_decision(witness: &Witness) -> Result<(), String> {
    for results in witness.collect_results() {
        for (call, result) in results.by_call() {
            let Some(newest) = witness.asked(&call).last() else { continue };
            let outcome = &newest["status"]["outcome"];
            let expected = match (text_of(outcome, "verdict"), text_of(outcome, "source")) {
                ("Reject", "Human") => "Denied by a human: ".to_owned(),
                ("Reject", "Timeout") => "Denied: no human decided before the deadline".to_owned(),
                ("Skip", "Human") => "Skipped by a human".to_owned(),
                ("Skip", "Timeout") => "Skipped: no human decided before the deadline".to_owned(),
                ("Defer", _) => format!("Not now. Try another approach: {}", text_of(outcome, "guidance")),
                ("Respond", _) if action(newest)["kind"] == "toolCall" => text_of(outcome, "response").to_owned(),
                _ => continue,
            };
            if !result.starts_with(&expected) {
                return Err(format!("{call} was decided by {outcome}, and the model was told {result}"));
            }
        }
    }
    Ok(())
}

/// **Law:** at most eight calls of a run wait for people at once, and only one of equal calls of a turn.
fn at_most_eight_calls_wait(harness: &Harness) -> Result<(), String> {
    let mut open: BTreeMap<String, Value> = BTreeMap::new();
    for entry in harness.server.writes().iter().filter(|e| e.resource.plural == "approvals" && e.took_effect()) {
        let is_end = |entry| !status_in(entry)["outcome"].is_null();
        match (&entry.verb, entry.subresource.as_deref(), &entry.name) {
            (Verb::Delete, ..) => drop(entry.name.as_ref().and_then(|name| open.remove(name))),
            (_, Some("status"), Some(name)) if is_end(entry) => drop(open.remove(name)),
            (Verb::Create, None, _) => {
                let approval = entry.json();
                add_open_request(&mut open, text_of(&approval["metadata"], "name"), &approval["spec"]["request"])?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds a new request to the open ones. It is an error if an equal call or too many calls of its run wait already.
fn add_open_request(open: &mut BTreeMap<String, Value>, name: &str, request: &Value) -> Result<(), String> {
    let is_of_run = |other: &&Value| other["workflow"]["uid"] == request["workflow"]["uid"];
    if request["action"]["kind"] == "toolCall"
        && let Some(other) = open.values().filter(is_of_run).find(|other| asks_about_equal_call(other, request))
    {
        return Err(format!("{} waits, and so does an equal call: {}", request["gate"]["path"], other["gate"]["path"]));
    }
    if request["action"].is_object() {
        open.insert(name.to_owned(), request.clone());
        let waiting = open.values().filter(is_of_run).count();
        if waiting > MOST_ASKED {
            return Err(format!("{waiting} calls wait for people at {}", request["gate"]["path"]));
        }
    }
    Ok(())
}

/// Returns whether two requests are about equal calls of a turn. Edited arguments are people's own, and may be equal.
fn asks_about_equal_call(other: &Value, request: &Value) -> bool {
    let turn = |request: &Value| {
        let path = text(&request["gate"]["path"]).to_owned();
        path.rsplit_once("/.call-").map(|(turn, _)| turn.to_owned())
    };
    turn(other) == turn(request)
        && [other, request].iter().all(|request| request["gate"]["visit"] == 1)
        && other["action"]["tool"] == request["action"]["tool"]
        && other["reviews"]["digest"] == request["reviews"]["digest"]
}
