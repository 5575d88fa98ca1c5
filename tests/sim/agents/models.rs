//! Random models and servers: an answer follows from the seed, the path and the input.
//!
//! **Invariant:** an answer depends on nothing else, so a repeated request gets an equal answer.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Answer, EffectKey};

use crate::{dice::Dice, ending::list, laws::witness::MALFORMED};

/// Returns the answer to a request: of a model to a turn of an agent, and of a server to any other call.
pub fn answer(seed: u64, key: &EffectKey, input: &Value) -> Option<Answer> {
    let mut dice = Dice::at(seed, &key.to_string());
    let delay = Duration::from_secs(dice.below(4) as u64);
    let what = &input["what"];
    let answer = if what["messages"].is_array() { model(&mut dice, key, what) } else { server(&mut dice) };
    Some(answer.after(delay))
}

fn server(dice: &mut Dice) -> Answer {
    match dice.below(12) {
        0 => Answer::failure("Status503", "it is busy"),
        1 => Answer::failure("Status404", "there is no such thing"),
        2 => Answer::failure("Unreachable", "no route"),
        3 => Answer::failure("Timeout", "no answer in time"),
        n => Answer::value(format!("done {n}")),
    }
}

fn model(dice: &mut Dice, key: &EffectKey, what: &Value) -> Answer {
    let number = key
        .path
        .rsplit_once("/.turn-")
        .filter(|(_, turn)| !turn.contains('/'))
        .map_or(1, |(_, turn)| turn.split('#').next().and_then(|turn| turn.parse::<usize>().ok()).unwrap_or(1));
    if dice.one_in(20) {
        return Answer::failure(*dice.pick(&["Status503", "Unreachable", "Status400"]), "no model");
    }
    if number > 1 && dice.below(4) < number - 1 {
        return Answer::value(format!("all is done in turn {number}"));
    }
    let count = match dice.below(12) {
        0 => 12,
        1 => 36,
        n => 1 + n % 4,
    };
    let calls: Vec<Value> = (1..=count).map(|at| call(dice, at, what)).collect();
    let mut turn = json!({"text": "let me see", "calls": calls});
    if dice.one_in(20) {
        turn["truncated"] = json!(true);
    }
    Answer::value(turn)
}

fn call(dice: &mut Dice, at: usize, what: &Value) -> Value {
    let earlier: Vec<&Value> = list(&what["messages"]).flat_map(|message| list(&message["calls"])).collect();
    // A new id, sometimes an empty id, the same id twice, or the id of an earlier turn.
    let id = match dice.below(12) {
        0 => String::new(),
        1 => "c1".to_owned(),
        2 if !earlier.is_empty() => dice.pick(&earlier)["id"].as_str().unwrap_or_default().to_owned(),
        _ => format!("c{at}"),
    };
    // An earlier call again, whatever its outcome.
    if !earlier.is_empty() && dice.one_in(3) {
        let again = dice.pick(&earlier);
        return json!({"id": id, "tool": again["tool"], "arguments": again["arguments"]});
    }
    let offered: Vec<&str> = list(&what["tools"]).filter_map(|tool| tool["name"].as_str()).collect();
    let tool = match dice.below(12) {
        0 => *dice.pick(&["pay", "drop-database", "manage", "ask-human"]),
        _ if offered.is_empty() => "pay",
        _ => *dice.pick(&offered),
    };
    let arguments = match (tool, dice.below(10)) {
        (_, 0) => (*dice.pick(&MALFORMED)).to_owned(),
        (_, 1) => r#"{"amount": "much"}"#.to_owned(),
        ("ask-human", _) => json!({"questions": [{"question": format!("Which of {}?", dice.below(3))}]}).to_string(),
        ("fetch", n) if n < 9 => json!({"host": dice.pick(&["one.test", "two.test", "three.test"])}).to_string(),
        // Equal arguments in another order and another form.
        (_, 2) => format!(r#"{{ "to": "ACME", "amount": {}.0 }}"#, dice.below(5)),
        _ => format!(r#"{{"amount":{}}}"#, dice.below(5)),
    };
    json!({"id": id, "tool": tool, "arguments": arguments})
}
