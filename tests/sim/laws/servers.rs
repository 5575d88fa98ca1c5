//! The laws of a run's requests to servers of tools: a recorded request is not sent again, and a call that may change
//! something was approved as it was sent. The witness is the world that got the requests.

use std::collections::BTreeSet;

use serde_json::Value;
use signoff_api::digest::canonical;
use signoff_tests::sim::Effect;

use super::{
    asking::matches,
    journals,
    witness::{Witness, action, call_of, decided_at, path, text, text_of, without_visit},
};
use crate::{
    ending::{digest, list},
    harness::Harness,
};

/// Checks every law of requests to servers.
pub fn hold(harness: &Harness, run: &str) -> Result<(), String> {
    let witness = Witness::of(harness, run);
    if list(&witness.spec["servers"]).next().is_none() {
        return Ok(());
    }
    a_recorded_request_is_not_sent_again(harness, run, &witness)?;
    let mut calls = witness.effects.iter().filter(|effect| effect.input["what"]["call"].is_object());
    calls.try_for_each(|effect| a_changing_call_was_approved_as_it_was_sent(&witness, effect))
}

/// **Law:** after the end of a request is in the journal, no operator sends it.
fn a_recorded_request_is_not_sent_again(harness: &Harness, run: &str, witness: &Witness) -> Result<(), String> {
    let requests = || witness.effects.iter().filter(|effect| effect.input["what"]["server"].is_string());
    for (entry, records) in journals(harness, run) {
        for effect in requests().filter(|effect| entry.at < effect.at) {
            let is_ended = |record: &Value| {
                record["path"] == *effect.key.path && record["attempt"] == effect.key.attempt && record["done"].is_i64()
            };
            if list(&records).any(is_ended) {
                return Err(format!("{} was sent by {} after {}", effect.key, effect.incarnation, entry.line()));
            }
        }
    }
    Ok(())
}

/// **Law:** a call that may change something, and whose definition is not pinned, was approved before: this server,
/// this tool, this definition and these arguments, once for each time that it was sent.
fn a_changing_call_was_approved_as_it_was_sent(witness: &Witness, effect: &Effect) -> Result<(), String> {
    let (what, sent) = (&effect.input["what"], &effect.input["what"]["call"]);
    let (name, tool) = (text_of(what, "server"), text_of(sent, "tool"));
    let Some(server) = list(&witness.spec["servers"]).find(|server| server["name"] == name) else {
        return Err(format!("{} was sent to {name}, which is no server of the run", effect.key));
    };
    if server["url"] != what["url"] {
        return Err(format!("{} was sent to {}", effect.key, what["url"]));
    }
    let reads = list(&server["read"]).filter_map(Value::as_str).any(|glob| matches(glob, tool));
    let is_pin = |pin: &Value| pin["tool"] == tool && pin["definition"] == sent["definition"];
    if reads || list(&server["pins"]).any(is_pin) {
        return Ok(());
    }
    if what["isCompared"] != true {
        return Err(format!("{} was sent without a comparison of its definition", effect.key));
    }
    let call = call_of(&effect.key.path).map(|(call, _)| call);
    let place = call.map_or_else(|| format!("{}/.start", effect.key.path), |call| format!("{call}/.gate"));
    let arguments = canonical(&sent["arguments"]).map_err(|why| why.to_string())?;
    let arguments = digest(&String::from_utf8_lossy(&arguments));
    let approves = |approval: &&Value| {
        let (reviews, outcome) = (&approval["spec"]["request"]["reviews"], &approval["status"]["outcome"]);
        let shows = match call {
            Some(_) => {
                reviews["digest"] == arguments
                    && action(approval)["tool"] == format!("{name}.{tool}")
                    && action(approval)["definition"] == sent["definition"]
            }
            None => text(&reviews["response"]).contains(text(&sent["definition"])),
        };
        shows
            && without_visit(path(approval)) == place
            && outcome["verdict"] == "Approve"
            && outcome["source"] == "Human"
            && decided_at(approval).is_some_and(|at| at <= effect.at)
    };
    let approvals = witness.approvals.iter().filter(approves).count();
    let is_same = |other: &&Effect| other.key.path == effect.key.path && other.input["what"]["call"] == *sent;
    let until_now = witness.effects.iter().filter(is_same).filter(|other| other.at <= effect.at);
    let attempts: BTreeSet<_> = until_now.map(|other| other.key.attempt).collect();
    if approvals < attempts.len() {
        return Err(format!(
            "{} was sent, {} times so far, with {approvals} approvals: {sent}",
            effect.key,
            attempts.len()
        ));
    }
    Ok(())
}
