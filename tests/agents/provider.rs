//! An agent with tools against aimock, a provider of models that others wrote: answers with calls, and failures of
//! every kind.
//!
//! aimock gives the answers of the provider; the requests are read from its journal.

use serde_json::{Value, json};
use signoff_engine::End;
use signoff_tests::{
    aimock::Aimock,
    chat_completions::told,
    loopback::{self, Loopback, Received},
};

use crate::clerk::{self, Answer, Ended};

/// A run against aimock.
struct Played {
    ended: Ended,
    /// The status and the body of each request to the provider.
    requests: Vec<(u64, Value)>,
    /// The requests of the tools.
    log: Vec<String>,
}

impl Played {
    fn statuses(&self) -> Vec<u64> {
        self.requests.iter().map(|(status, _)| *status).collect()
    }

    /// Returns the results in the model's last request, turn by turn.
    fn results(&self) -> Vec<Vec<(String, String)>> {
        let (_, last) = self.requests.last().unwrap();
        let turns = told(last).unwrap().into_iter();
        turns.map(|turn| turn.into_iter().map(|told| (told.id, told.result)).collect()).collect()
    }

    fn failure(&self) -> &str {
        let Some(End::Failed(why)) = &self.ended.end else { panic!("{:?}", self.ended.end) };
        why
    }

    fn result(&self) -> &str {
        let Some(End::Succeeded(text)) = &self.ended.end else {
            panic!("{:?} {:?} {:?}", self.ended.end, self.ended.refused, self.requests)
        };
        text
    }
}

/// Plays the clerk. `handle`: changes of its step.
async fn play(fixtures: Value, handle: Value, people: Vec<Answer>) -> Played {
    let aimock = Aimock::start(&fixtures).await.unwrap();
    let answer = |_: usize, request: &Received| loopback::text(200, request.what.clone());
    let tools = Loopback::start(answer).await.unwrap();
    let mut workflow = clerk::workflow(&aimock.base_url(), &tools.url());
    json_patch::merge(&mut workflow["spec"]["steps"][0], &handle);
    let ended = clerk::run(&workflow, people).await;
    let requests = aimock.requests().await.unwrap();
    let log = tools.received().into_iter().map(|got| format!("{} {}", got.what, got.body).trim_end().to_owned());
    Played { ended, requests, log: log.collect() }
}

/// Returns a step with two attempts and the shortest pause.
fn twice() -> Value {
    json!({"retry": {"limit": 1, "backoff": {"base": "1s", "max": "1s"}}})
}

fn fixture(turn: usize, response: Value) -> Value {
    json!({"match": {"model": "clerk", "turnIndex": turn}, "response": response})
}

fn calls(list: &[(&str, &str, &str)]) -> Value {
    let call = |(id, name, arguments): &(&str, &str, &str)| json!({"id": id, "name": name, "arguments": arguments});
    json!({"toolCalls": list.iter().map(call).collect::<Vec<_>>()})
}

fn done() -> Value {
    json!({"content": "done"})
}

/// Returns a fixture that fails in this way each time.
fn fail_always(how: Value) -> Value {
    json!([{"match": {"model": "clerk"}, "response": done(), "chaos": how}])
}

/// Returns the first answer of a model, and another one for the second request.
fn answer_once(first: Value) -> Value {
    json!([
        {"match": {"model": "clerk", "sequenceIndex": 0}, "response": first},
        {"match": {"model": "clerk"}, "response": done()},
    ])
}

#[tokio::test]
async fn each_call_of_a_tool_gets_a_result_under_its_id() {
    let fixtures = json!([
        fixture(
            0,
            calls(&[
                ("a", "lookup", r#"{"order":"1"}"#),
                ("b", "refund", r#"{"amount":420}"#),
                ("c", "lookup", "no JSON")
            ]),
        ),
        fixture(1, calls(&[("d", "lookup", r#"{"order":"2"}"#)])),
        fixture(2, done()),
    ]);
    let played = play(fixtures, json!({}), vec![Answer::approves("420", "alice")]).await;
    assert_eq!(played.result(), "done");
    assert_eq!(played.statuses(), [200, 200, 200]);
    let told = played.results();
    assert_eq!(told[0][0], ("a".to_owned(), "GET /orders/1".to_owned()));
    assert_eq!(told[0][1], ("b".to_owned(), "POST /refunds".to_owned()));
    assert!(told[0][2].0 == "c" && told[0][2].1.starts_with("Error: "), "{told:?}");
    assert_eq!(told[1], [("d".to_owned(), "GET /orders/2".to_owned())]);
    assert_eq!(played.log, ["GET /orders/1", r#"POST /refunds {"amount":420}"#, "GET /orders/2"]);
    // The offered tools have the format of the protocol.
    let offered = &played.requests[0].1["tools"];
    let names: Vec<_> = offered.as_array().unwrap().iter().map(|tool| tool["function"]["name"].clone()).collect();
    assert_eq!(names, ["lookup", "refund", "letter", "delegate", "ask-human"]);
}

#[tokio::test]
async fn a_turn_is_repeated_after_a_rate_limit() {
    let slow_down =
        json!({"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429, "retryAfter": 1});
    let played = play(answer_once(slow_down.clone()), twice(), vec![]).await;
    assert_eq!((played.result(), played.statuses()), ("done", vec![429, 200]));
    let always = json!([{"match": {"model": "clerk"}, "response": slow_down}]);
    let played = play(always, json!({}), vec![]).await;
    assert!(played.failure().contains("429 Too Many Requests: slow down"), "{}", played.failure());
    assert_eq!(played.statuses(), [429]);
}

#[tokio::test]
async fn a_failing_provider_gets_as_many_requests_as_the_step_allows() {
    let down = json!({"error": {"message": "overloaded", "type": "server_error"}, "status": 500});
    let played = play(answer_once(down.clone()), twice(), vec![]).await;
    assert_eq!((played.result(), played.statuses()), ("done", vec![500, 200]));
    let always = json!([{"match": {"model": "clerk"}, "response": down}]);
    let played = play(always, twice(), vec![]).await;
    assert!(played.failure().contains("500 Internal Server Error: overloaded"), "{}", played.failure());
    assert_eq!(played.statuses(), [500, 500]);
}

#[tokio::test]
async fn a_failure_between_two_turns_repeats_no_call() {
    let fixtures = json!([
        fixture(0, calls(&[("a", "refund", r#"{"amount":420}"#)])),
        {"match": {"model": "clerk", "turnIndex": 1, "sequenceIndex": 0},
         "response": {"error": {"message": "overloaded"}, "status": 500}},
        fixture(1, done()),
    ]);
    let played = play(fixtures, twice(), vec![Answer::approves("420", "alice")]).await;
    assert_eq!((played.result(), played.statuses()), ("done", vec![200, 500, 200]));
    assert_eq!(played.log, [r#"POST /refunds {"amount":420}"#]);
}

#[tokio::test]
async fn a_slow_provider_is_a_timeout() {
    let played = play(fail_always(json!({"latencyMs": 30000})), json!({"timeout": "1s"}), vec![]).await;
    assert!(played.failure().contains("no complete answer within 1s"), "{}", played.failure());
}

#[tokio::test]
async fn a_connection_that_breaks_fails_the_turn() {
    let played = play(fail_always(json!({"disconnectRate": 1})), twice(), vec![]).await;
    assert!(played.failure().contains("the connection broke before an answer"), "{}", played.failure());
    assert_eq!(played.requests.len(), 2, "a turn has no effects and is asked for again");
}

#[tokio::test]
async fn a_malformed_answer_fails_the_turn_and_is_not_shown() {
    let played = play(fail_always(json!({"malformedRate": 1})), json!({}), vec![]).await;
    assert!(played.failure().contains("something other than a chat completion"), "{}", played.failure());
    assert!(!played.failure().contains("malformed"), "{}", played.failure());
}

#[tokio::test]
async fn a_truncated_call_is_an_error_result_and_nothing_runs() {
    let mut cut = calls(&[("a", "refund", r#"{"amount":42"#), ("b", "lookup", r#"{"order":"1"}"#)]);
    cut["finishReason"] = json!("length");
    let played = play(json!([fixture(0, cut), fixture(1, done())]), json!({}), vec![]).await;
    assert_eq!(played.result(), "done");
    let told = played.results();
    assert!(told[0].iter().all(|(_, result)| result.starts_with("Error: your message was cut")), "{told:?}");
    assert!(played.log.is_empty() && played.ended.approvals.is_empty(), "{:?}", played.log);
}

#[tokio::test]
async fn a_question_goes_to_people_and_its_answer_back_to_the_provider() {
    let ask = r#"{"questions":[{"question":"Refund?","options":["Yes","No"]}]}"#;
    let answered = json!({"model": "clerk", "turnIndex": 1, "toolCallId": "a", "toolResultContains": "No"});
    let fixtures = json!([
        fixture(0, calls(&[("a", "ask-human", ask)])),
        {"match": answered, "response": done()},
    ]);
    let no = json!({"verdict": "Respond", "answers": {"q1": {"options": ["o2"]}}});
    let played = play(fixtures, json!({}), vec![serde_json::from_value(no).unwrap()]).await;
    assert_eq!((played.result(), played.statuses()), ("done", vec![200, 200]));
    assert_eq!(played.results(), [[("a".to_owned(), "No".to_owned())]]);
}
