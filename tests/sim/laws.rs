//! The laws of every simulated history, whatever failed in it. They check only the stored objects and the effects.

mod asking;
pub mod calls;
mod servers;
pub mod witness;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use signoff_tests::sim::{Effect, Entry, KUBELET, Resource, Verb};

use crate::{
    ending::{digest, list, records},
    harness::{Harness, QUIET},
};

/// Checks every law, for a harness in which nothing happens any more.
pub fn hold(harness: &Harness, run: &str) -> Result<(), String> {
    each_request_is_created_once(harness)?;
    only_repeatable_effects_are_repeated(harness)?;
    every_effect_follows_its_commit(harness, run)?;
    finished_records_never_change(harness, run)?;
    an_ended_run_has_no_running_pod(harness, run)?;
    a_segment_is_stored_before_it_is_named(harness, run)?;
    open_records_are_in_the_workflow(harness, run)?;
    a_run_counts_the_bytes_of_its_values(harness, run)?;
    every_vote_that_counted_was_cast(harness)?;
    each_call_was_approved_by_the_policys_people(harness, run)?;
    calls::hold(harness, run)?;
    servers::hold(harness, run)?;
    nothing_happens_after_the_end(harness, run)
}

fn each_request_is_created_once(harness: &Harness) -> Result<(), String> {
    let mut asked = BTreeMap::<String, usize>::new();
    for entry in harness.server.writes().iter().filter(|e| e.verb == Verb::Create && e.resource.plural == "approvals") {
        let request = entry.json()["spec"]["request"].take();
        if entry.took_effect() {
            *asked.entry(format!("{} of {}", request["gate"]["path"], request["workflow"]["uid"])).or_default() += 1;
        }
    }
    asked
        .into_iter()
        .find(|(_, times)| *times > 1)
        .map_or(Ok(()), |(gate, times)| Err(format!("{gate} was asked {times} times")))
}

fn only_repeatable_effects_are_repeated(harness: &Harness) -> Result<(), String> {
    let effects = harness.world.effects();
    for (key, digests) in harness.world.repeated() {
        let idempotent =
            effects.iter().filter(|effect| effect.key == key).all(|effect| may_be_repeated(harness, effect));
        if !idempotent {
            return Err(format!("{key} must not be repeated and was"));
        }
        if digests.len() > 1 {
            return Err(format!("{key} was repeated with another input"));
        }
    }
    Ok(())
}

/// Returns whether an effect may be repeated, by the call itself or by the step of its container.
fn may_be_repeated(harness: &Harness, effect: &Effect) -> bool {
    if effect.actor != KUBELET {
        return effect.input["idempotent"] == true;
    }
    let mut places = effect.key.path.split('/');
    let workflow = harness.workflow(places.next().unwrap_or_default());
    let step = places.next_back().and_then(|step| step.split('#').next()).unwrap_or_default();
    is_idempotent(&workflow["spec"], step)
}

/// Returns whether a spec has a container of this name that may run twice.
fn is_idempotent(spec: &Value, step: &str) -> bool {
    match spec {
        Value::Object(fields) if fields.get("name").is_some_and(|name| name == step) && fields.contains_key("pod") => {
            spec["pod"]["idempotent"] == true
        }
        Value::Object(fields) => fields.values().any(|value| is_idempotent(value, step)),
        Value::Array(items) => items.iter().any(|item| is_idempotent(item, step)),
        _ => false,
    }
}

/// Returns whether an effect is a call of a tool that only reads. Such a call may begin before its turn is stored.
fn is_read(harness: &Harness, run: &str, effect: &Effect) -> bool {
    let spec = &harness.workflow(run)["spec"];
    let step = effect.key.path.rsplit('/').next().unwrap_or_default();
    // For a server, the author lists the tools that only read.
    if let Some((server, tool)) = step.split_once('.') {
        let mut servers = list(&spec["servers"]).filter(|listed| listed["name"] == server);
        let only_reads = |globs: &Value| list(globs).filter_map(Value::as_str).any(|glob| asking::matches(glob, tool));
        return servers.any(|server| only_reads(&server["read"]));
    }
    let mut tools = list(&spec["tools"]).filter(|tool| tool["step"] == step).peekable();
    let method = list(&spec["steps"]).find(|listed| listed["name"] == step).map(|step| &step["http"]["method"]);
    let only_reads = method.is_some_and(|method| method.is_null() || method == "GET" || method == "HEAD");
    only_reads && tools.peek().is_some() && tools.all(|tool| tool["effects"] == "read")
}

/// Checks that each effect comes after the commit that begins its record. For the first attempt of a call that only
/// reads, the commit of the turn is enough, unless people were asked about the call.
fn every_effect_follows_its_commit(harness: &Harness, run: &str) -> Result<(), String> {
    let journals = journals(harness, run);
    for effect in harness.world.effects() {
        let Some(path) = effect.key.path.strip_prefix(&format!("{run}/")) else { continue };
        let was_asked = |call: &str| {
            let asks = |record: &Value| {
                record["kind"] == "hitl" && record["path"].as_str().is_some_and(|path| path.starts_with(call))
            };
            journals.iter().any(|(entry, steps)| entry.at <= effect.at && list(steps).any(asks))
        };
        let is_unstored = |(turn, call): (&'_ str, &'_ str)| {
            let number = call.split('/').next().unwrap_or_default();
            let is_first = effect.key.attempt == 1 && is_read(harness, run, &effect);
            is_first && !was_asked(&format!("{turn}/.call-{number}/"))
        };
        let turn = path.rsplit_once("/.call-").filter(|call| is_unstored(*call)).map(|(turn, _)| turn);
        let begins_effect = |record: &Value| {
            if turn.is_some_and(|turn| record["path"] == turn || record["path"] == *turn.trim_end_matches("/.turn-1")) {
                return record["by"].is_string();
            }
            // A node begins the container, for the operator that created its Pod.
            let by = match effect.actor.as_str() {
                KUBELET => record["by"].is_string() && record["object"] == effect.input["pod"],
                _ => record["by"] == *effect.incarnation,
            };
            record["path"] == path && record["attempt"] == effect.key.attempt && by
        };
        let committed = journals.iter().any(|(entry, steps)| entry.at <= effect.at && list(steps).any(begins_effect));
        if !committed {
            return Err(format!("{} was done by {} without a commit that said so", effect.key, effect.incarnation));
        }
    }
    Ok(())
}

fn finished_records_never_change(harness: &Harness, run: &str) -> Result<(), String> {
    let mut finished = BTreeMap::<String, Value>::new();
    let mut seq = 0;
    for (entry, steps) in journals(harness, run) {
        let mut known = 0;
        for record in list(&steps) {
            let key = format!("{}, attempt {}", record["path"], record["attempt"]);
            if let Some(before) = finished.get(&key) {
                known += 1;
                if before != record {
                    return Err(format!("{key} was finished and then edited by {}", entry.line()));
                }
            } else if record["done"].is_i64() {
                known += 1;
                finished.insert(key, record.clone());
            }
        }
        if known != finished.len() {
            return Err(format!("a finished record was dropped by {}", entry.line()));
        }
        let drawn = status_in(&entry)["seq"].as_i64().unwrap_or_default();
        if drawn < seq {
            return Err(format!("the journal's counter went back from {seq} to {drawn} by {}", entry.line()));
        }
        seq = drawn;
    }
    Ok(())
}

/// Checks that an ended run has no running Pod, and no Pod at all if people or an administrator ended it.
fn an_ended_run_has_no_running_pod(harness: &Harness, run: &str) -> Result<(), String> {
    let workflow = harness.workflow(run);
    let none_stays = ["Rejected", "Aborted", "Cancelled"].iter().any(|phase| workflow["status"]["phase"] == **phase);
    let is_over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let left = harness.pods_of(&workflow["metadata"]["uid"]).into_iter().find(|pod| none_stays || !is_over(pod));
    left.map_or(Ok(()), |pod| {
        Err(format!("the Pod {} of the ended run {run} is left: {}", pod["metadata"]["name"], pod["status"]))
    })
}

fn a_segment_is_stored_before_it_is_named(harness: &Harness, run: &str) -> Result<(), String> {
    let mut stored = BTreeSet::new();
    for entry in harness.server.writes().iter().filter(|entry| entry.took_effect()) {
        if entry.resource.plural == "blobs" {
            stored.insert(digest(entry.json()["spec"]["data"].as_str().unwrap_or_default()));
        } else if is_status_of(entry, run)
            && let Some(named) =
                list(&status_in(entry)["segments"]).find(|s| !stored.contains(s["digest"].as_str().unwrap_or_default()))
        {
            return Err(format!("{named} was named and not stored by {}", entry.line()));
        }
    }
    Ok(())
}

/// Checks the counted bytes of a run's values. A lost commit may leave a value that is not counted.
fn a_run_counts_the_bytes_of_its_values(harness: &Harness, run: &str) -> Result<(), String> {
    let workflow = harness.workflow(run);
    let blobs = harness.server.values(&Resource::new("signoff.dev", "blobs"), None);
    let is_own = |blob: &&Value| {
        list(&blob["metadata"]["ownerReferences"]).any(|owner| owner["uid"] == workflow["metadata"]["uid"])
    };
    let texts: BTreeSet<_> = blobs.iter().filter(is_own).filter_map(|blob| blob["spec"]["data"].as_str()).collect();
    let stored: usize = texts.iter().map(|text| text.len()).sum();
    let counted = workflow["status"]["valueBytes"].as_u64().unwrap_or(0);
    if counted > stored as u64 || (counted == 0 && workflow["status"]["segments"][0].is_object()) {
        return Err(format!("{run} counts {counted} bytes of values, and {stored} are stored"));
    }
    Ok(())
}

/// Checks that every open record is in the Workflow itself, where a patch or its `test` finds it, and that no record is
/// in two places.
fn open_records_are_in_the_workflow(harness: &Harness, run: &str) -> Result<(), String> {
    for (entry, records) in journals(harness, run) {
        let status = status_in(&entry);
        let (mut open, mut keys) = (0, BTreeSet::new());
        for record in list(&records) {
            open += usize::from(record["done"].is_null());
            if !keys.insert((record["path"].to_string(), record["attempt"].as_i64())) {
                return Err(format!("{} is in two places in {}", record["path"], entry.line()));
            }
        }
        let in_workflow = list(&status["steps"]).filter(|record| record["done"].is_null()).count();
        if in_workflow != open {
            return Err(format!("{open} records are open and {in_workflow} of them stand in {}", entry.line()));
        }
    }
    Ok(())
}

/// Checks that every counted vote was cast.
fn every_vote_that_counted_was_cast(harness: &Harness) -> Result<(), String> {
    for approval in harness.approvals() {
        for vote in list(&approval["status"]["votes"]) {
            let cast = &approval["spec"]["decisions"][vote["key"].as_str().unwrap_or_default()];
            if cast["verdict"] != vote["verdict"] {
                return Err(format!("{vote} of {} was never cast", approval["metadata"]["name"]));
            }
        }
    }
    Ok(())
}

/// Checks the gate `release` of a policy: each call has the digest that its people approved last, followed by nothing
/// but known failures of the same call. Only people that the policy names decided.
fn each_call_was_approved_by_the_policys_people(harness: &Harness, run: &str) -> Result<(), String> {
    let added = harness.workflow(run)["status"]["addedSteps"].clone();
    let is_release = |step: &&Value| step["step"]["name"] == "release" && step["step"]["before"].is_object();
    let Some(added) = list(&added).find(is_release).map(|added| &added["step"]) else { return Ok(()) };
    let people: BTreeSet<_> = list(&added["hitl"]["approvers"]).map(|subject| subject["name"].to_string()).collect();
    let Some((_, records)) = journals(harness, run).pop() else { return Ok(()) };
    let seq = |record: &Value| record["seq"].as_i64().unwrap_or_default();
    let path = |record: &Value| record["path"].as_str().unwrap_or_default().to_owned();
    let step = |record: &Value| step_of(&path(record)).to_owned();
    let covers = |kind: &str| {
        let mut kinds = list(&added["before"]["kinds"]);
        kinds.any(|listed| *listed == *kind || (*listed == "egress" && kind != "pod"))
    };
    let is_call = |record: &&Value| {
        let is_list = path(record).starts_with(".tools/");
        let kinds = ["agent", "http", "mcp", "pod"];
        !is_list && record["kind"].as_str().is_some_and(|kind| kinds.contains(&kind) && covers(kind))
    };
    let began = |record: &&Value| record["inputDigest"].is_string();
    for call in list(&records).filter(is_call).filter(began) {
        let gate = release_of(&step(call));
        let of_gate = |record: &&Value| record["kind"] == "hitl" && step(record) == gate;
        let decided = |record: &&Value| record["done"].as_i64().is_some_and(|done| done < seq(call));
        let newest = list(&records).filter(of_gate).filter(decided).max_by_key(|record| record["done"].as_i64());
        let attempt = format!("{}@{}", call["path"], call["attempt"]);
        let Some(approval) = newest else { return Err(format!("{attempt} ran, and {gate} was never decided")) };
        if approval["decision"]["verdict"] != "Approve" || approval["inputDigest"] != call["inputDigest"] {
            return Err(format!("{attempt} ran, which {} did not approve", approval["path"]));
        }
        if let Some(other) = list(&approval["decision"]["decidedBy"]).find(|user| !people.contains(&user.to_string())) {
            return Err(format!("{} is a gate of a policy, and {other} decided it", approval["path"]));
        }
        let since = |record: &&Value| seq(record) > seq(approval) && seq(record) < seq(call);
        let is_known_failure = |record: &Value| {
            let is_retryable = record["phase"] == "Failed" && record["error"]["retryable"] == true;
            is_retryable && (record["kind"] == "pod" || record["facts"]["statusCode"].is_string())
        };
        let mut later = list(&records).filter(since).filter(is_call).filter(|record| step(record) == step(call));
        if let Some(other) = later.find(|record| record["path"] != call["path"] || !is_known_failure(record)) {
            return Err(format!(
                "{} was used by {}@{} and by {attempt}",
                approval["path"], other["path"], other["attempt"]
            ));
        }
    }
    Ok(())
}

/// Returns the step of a record: without its visit, its further turns, and its repeated requests for an answer.
fn step_of(path: &str) -> &str {
    let path = path.rsplit_once("/.ask").map_or(path, |(step, _)| step);
    let path = path.rsplit_once("/.turn-").filter(|(_, turn)| !turn.contains('/')).map_or(path, |(step, _)| step);
    path.rsplit_once('#').filter(|(_, visit)| !visit.contains('/')).map_or(path, |(step, _)| step)
}

/// Returns the path of a policy's gate `release` before a step: below a call of a tool, or else beside the step. The
/// tools of a server have one gate, which is named after the server.
fn release_of(step: &str) -> String {
    match step.rsplit_once('/') {
        Some((list, name)) if list.contains("/.call-") => {
            let gate = name.split('.').next().unwrap_or_default();
            format!("{list}/{name}/release-{gate}")
        }
        Some((list, name)) => format!("{list}/release-{name}"),
        None => format!("release-{step}"),
    }
}

/// Checks that nothing happens after the end.
fn nothing_happens_after_the_end(harness: &Harness, run: &str) -> Result<(), String> {
    let now = harness.server.clock().now();
    // Half of the quiet time is for what was in flight: answers, repetitions of Events, a late write of a dead
    // operator.
    let quiet = now.checked_sub(QUIET / 2).map_err(|why| why.to_string())?;
    let late = harness.operators_writes().into_iter().find(|entry| entry.at > quiet);
    if let Some(entry) = late {
        return Err(format!("long after the end of {run}: {}", entry.line()));
    }
    let open = harness.approvals().into_iter().find(|approval| approval["status"]["outcome"].is_null());
    open.map_or(Ok(()), |approval| Err(format!("{} is still open", approval["metadata"]["name"])))
}

/// Returns every stored journal of a run, in order: all records of each, those in segments included.
pub fn journals(harness: &Harness, run: &str) -> Vec<(Entry, Value)> {
    let stored = harness.server.writes().into_iter().filter(|entry| is_status_of(entry, run) && entry.took_effect());
    let with_records = |entry: Entry| {
        let records = records(harness, &status_in(&entry));
        (entry, records)
    };
    stored.map(with_records).collect()
}

fn is_status_of(entry: &Entry, run: &str) -> bool {
    entry.resource.plural == "workflows"
        && entry.subresource.as_deref() == Some("status")
        && entry.name.as_deref() == Some(run)
}

/// Returns the status that a write of a whole object has, or the value of a patch's last operation.
fn status_in(entry: &Entry) -> Value {
    let mut body = entry.json();
    match body.as_array_mut().and_then(|operations| operations.pop()) {
        Some(mut operation) => operation["value"].take(),
        None => body["status"].take(),
    }
}
