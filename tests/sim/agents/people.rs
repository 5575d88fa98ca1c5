//! Random people: they decide open requests in any order, with every verdict, and sometimes with invalid values.
//!
//! They vote as admission allows: only approvers, and only on requests from which they are not excluded.

use serde_json::{Value, json};

use super::workflows::{OF_POLICIES, PEOPLE};
use crate::{
    dice::Dice,
    ending::list,
    harness::Harness,
    laws,
    people::{name, verdict},
    scenarios::RUN,
};

/// The number of votes after which people only end open requests.
const MOST_DECISIONS: usize = 60;
/// The number of votes after which the test fails.
const MOST_VOTES: usize = 2000;

/// Decides open requests until the run has ended.
pub async fn decide_at_random(harness: &Harness, dice: &mut Dice, seed: u64) {
    let waiting = |harness: &Harness| -> Vec<Value> {
        harness.approvals().into_iter().filter(|approval| approval["status"]["outcome"].is_null()).collect()
    };
    let ended = |harness: &Harness| harness.workflow(RUN)["status"]["finishedAt"].is_string();
    for votes in 0.. {
        assert!(votes < MOST_VOTES, "seed {seed}: people are asked for ever\n{}", harness.server.story());
        harness.server.until_all(|_| ended(harness) || !waiting(harness).is_empty()).await;
        if ended(harness) {
            return;
        }
        // Less than a minute, and sometimes so long that a deadline passes.
        harness.pass(if dice.one_in(8) { 900 } else { 5 + dice.below(40) as u64 }).await;
        let open = waiting(harness);
        if open.is_empty() {
            continue;
        }
        let approval = dice.pick(&open);
        let is_late = votes > MOST_DECISIONS;
        if let Some(user) = voter(approval, dice) {
            let mut decision = decision(approval, dice, is_late);
            if let Some(attempt) = approval["status"]["invalid"][user]["attempt"].as_i64() {
                decision["attempt"] = json!(attempt + 1);
            }
            harness.people().vote(user, &name(approval), decision);
        }
        harness.pass(if is_late { 600 } else { 2 }).await;
        laws::calls::hold_now(harness, RUN).unwrap_or_else(|law| panic!("{law}\n{}", harness.server.story()));
    }
}

/// Returns a person whose vote the API server would accept, or `None`.
fn voter(approval: &Value, dice: &mut Dice) -> Option<&'static str> {
    let (request, status) = (&approval["spec"]["request"], &approval["status"]);
    let quorums = list(&request["quorums"]).flat_map(|quorum| list(&quorum["approvers"]));
    let listed: Vec<&Value> = quorums.chain(list(&status["approvers"])).map(|subject| &subject["name"]).collect();
    let people = PEOPLE.iter().chain(&OF_POLICIES).chain(&["erin"]).copied();
    let may_vote = |user: &&str| {
        let has_voted = !approval["spec"]["decisions"][*user].is_null() && status["invalid"][*user].is_null();
        let is_excluded = list(&request["excluded"]).any(|name| *name == **user);
        listed.iter().any(|name| **name == **user) && !is_excluded && !has_voted
    };
    let voters: Vec<&str> = people.filter(may_vote).collect();
    (!voters.is_empty()).then(|| *dice.pick(&voters))
}

fn decision(approval: &Value, dice: &mut Dice, is_late: bool) -> Value {
    let request = &approval["spec"]["request"];
    let allowed: Vec<&str> = list(&request["allowedVerdicts"]).filter_map(Value::as_str).collect();
    let ends: Vec<&str> = ["Skip", "Reject", "Abort"].into_iter().filter(|verdict| allowed.contains(verdict)).collect();
    let word = match () {
        () if is_late && !ends.is_empty() => ends[0],
        () if dice.one_in(15) => *dice.pick(&["Approve", "Modify", "Retry", "Respond"]),
        // Most people approve, and few abort.
        () if allowed.contains(&"Approve") && dice.one_in(2) => "Approve",
        () => match *dice.pick(&allowed) {
            "Abort" if dice.below(6) > 0 => allowed[0],
            word => word,
        },
    };
    let mut decision = verdict(word);
    // Two people who modify alike agree.
    let amount = dice.below(3);
    match word {
        "Reject" if dice.one_in(2) => decision["reason"] = json!("not this customer"),
        "Defer" => decision["guidance"] = json!("ask first"),
        "Respond" => match list(&request["form"]["questions"]).next() {
            Some(question) => {
                decision["answers"] = json!({question["id"].as_str().unwrap_or("response"): {"text": "the old one"}})
            }
            None => decision["response"] = json!("the old one"),
        },
        "Modify" if dice.one_in(6) => decision["parameters"] = json!({"arguments": {"amount": "much"}}),
        "Modify" => decision["parameters"] = json!({"arguments": {"amount": amount}}),
        _ => {}
    }
    decision
}
