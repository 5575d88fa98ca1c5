//! One conformance table for the protocols of models: the clerk runs over each against aimock, streaming.
//!
//! aimock's journal has each request as one of chat completions, whatever its protocol was. The columns of the table
//! name what is lost in the conversion. Reasoning and signatures are always lost.

use std::collections::VecDeque;

use serde_json::{Value, json};
use signoff_api::journal::Usage;
use signoff_engine::End;
use signoff_tests::{
    aimock::Aimock,
    loopback::{self, Loopback, Received},
};

use crate::clerk::{self, Answer, Ended};

/// A row of the table.
struct Protocol {
    name: &'static str,
    /// The provider of the Workflow, by the address of aimock.
    provider: fn(&str) -> Value,
    /// The name of an answer in errors.
    answer: &'static str,
    /// Whether the journal has the ids of calls and results. aimock numbers Ollama's calls in each message again and
    /// drops the ids and the names of its results, so that only their order is known. It assigns Gemini's results by
    /// name.
    has_ids: bool,
    /// The finish reason of an answer with calls, where aimock's own one is wrong. For Gemini it writes
    /// `FUNCTION_CALL`, which the API does not have: such an answer ends with `STOP`.
    finish_of_calls: Option<&'static str>,
    /// The piece of a stream before which the first call is complete, and the answer is not. aimock sends Gemini's
    /// calls and the end in one piece, so that nothing of a cut answer arrives.
    cut: usize,
    /// Whether aimock reports the tokens of the fixture. For Ollama it always reports 0. It reports cached tokens and
    /// those of reasoning for no protocol.
    has_usage: bool,
}

const PROTOCOLS: [Protocol; 5] = [
    Protocol {
        name: "chat completions",
        provider: |url| json!({"openai": {"baseURL": format!("{url}/v1")}}),
        answer: "a chat completion",
        has_ids: true,
        finish_of_calls: None,
        cut: 4,
        has_usage: true,
    },
    Protocol {
        name: "responses",
        provider: |url| json!({"openai": {"baseURL": format!("{url}/v1"), "api": "responses"}}),
        answer: "a response of the Responses API",
        has_ids: true,
        finish_of_calls: None,
        cut: 9,
        has_usage: true,
    },
    Protocol {
        name: "Anthropic Messages",
        provider: |url| json!({"anthropic": {"baseURL": url}}),
        answer: "a message of the Messages API",
        has_ids: true,
        finish_of_calls: None,
        cut: 5,
        has_usage: true,
    },
    Protocol {
        name: "Gemini generateContent",
        provider: |url| json!({"gemini": {"baseURL": format!("{url}/v1beta")}}),
        answer: "an answer of generateContent",
        has_ids: true,
        finish_of_calls: Some("stop"),
        cut: 1,
        has_usage: true,
    },
    Protocol {
        name: "Ollama chat",
        provider: |url| json!({"ollama": {"baseURL": url}}),
        answer: "an answer of Ollama's chat",
        has_ids: false,
        finish_of_calls: None,
        cut: 2,
        has_usage: false,
    },
];

const LOOKUP: &str = r#"{"order":"12-345"}"#;
const REFUND: &str = r#"{"amount":420}"#;
const PAID: &str = r#"POST /refunds {"amount":420}"#;

/// An answer of the model, in every protocol.
#[derive(Clone, Copy)]
enum Says {
    Calls(&'static [(&'static str, &'static str, &'static str)]),
    Done,
    /// An error with this status, and a second to wait.
    Error(u64),
    /// An answer that aimock always breaks in this way.
    Chaos(&'static str),
    /// Two calls, whose stream always breaks after the first one.
    Cut,
}

const REFUND_CALL: Says = Says::Calls(&[("b", "refund", REFUND)]);

impl Protocol {
    /// Returns fixtures that give these answers, in this order.
    fn fixtures(&self, answers: &[Says]) -> Value {
        answers.iter().enumerate().map(|(number, says)| self.fixture(number, *says)).collect()
    }

    fn fixture(&self, number: usize, says: Says) -> Value {
        let once = json!({"model": "clerk", "sequenceIndex": number});
        let always = json!({"model": "clerk"});
        match says {
            Says::Calls(calls) => json!({"match": once, "response": self.calls(calls)}),
            Says::Done => json!({"match": once, "response": {"content": "done", "usage": usage_of(7, 5)}}),
            Says::Error(status) => {
                let error = json!({"message": "come back later", "type": "overloaded_error"});
                json!({"match": once, "response": {"error": error, "status": status, "retryAfter": 1}})
            }
            Says::Chaos(rate) => json!({"match": always, "response": {"content": "spoiled"}, "chaos": {rate: 1}}),
            Says::Cut => {
                let calls = self.calls(&[("c", "lookup", LOOKUP), ("d", "refund", REFUND)]);
                // With a pause between the pieces, so that those before the cut arrive.
                json!({"match": always, "response": calls, "truncateAfterChunks": self.cut, "latency": 20})
            }
        }
    }

    fn calls(&self, calls: &[(&str, &str, &str)]) -> Value {
        let call = |(id, name, arguments): &(&str, &str, &str)| json!({"id": id, "name": name, "arguments": arguments});
        let mut answer = json!({"toolCalls": calls.iter().map(call).collect::<Vec<_>>(), "usage": usage_of(7, 5)});
        if let Some(finish) = self.finish_of_calls {
            answer["finishReason"] = finish.into();
        }
        answer
    }

    /// Plays the clerk. `handle`: changes of its step.
    async fn play(&self, answers: &[Says], handle: Value, people: Vec<Answer>) -> Played {
        let aimock = Aimock::start(&self.fixtures(answers)).await.unwrap();
        let answer = |_: usize, request: &Received| loopback::text(200, request.what.clone());
        let tools = Loopback::start(answer).await.unwrap();
        let mut workflow = clerk::workflow(&aimock.base_url(), &tools.url());
        let mut provider = (self.provider)(aimock.url());
        provider["name"] = "models".into();
        workflow["spec"]["providers"][0] = provider;
        json_patch::merge(&mut workflow["spec"]["steps"][0], &handle);
        let ended = clerk::run(&workflow, people).await;
        let requests = aimock.requests().await.unwrap();
        let log = tools.received().into_iter().map(|got| format!("{} {}", got.what, got.body).trim_end().to_owned());
        Played { protocol: self.name, has_ids: self.has_ids, ended, requests, log: log.collect() }
    }
}

/// Returns tokens as fixtures write them.
fn usage_of(input: i64, output: i64) -> Value {
    json!({"prompt_tokens": input, "completion_tokens": output})
}

/// A run over one protocol.
struct Played {
    protocol: &'static str,
    has_ids: bool,
    ended: Ended,
    /// The status and the body of each request to the provider.
    requests: Vec<(u64, Value)>,
    /// The requests that the tools got.
    log: Vec<String>,
}

/// A call in the model's next request, and its result.
#[derive(Debug, PartialEq)]
struct Told {
    id: Option<String>,
    tool: String,
    arguments: Value,
    result: String,
}

impl Played {
    fn statuses(&self) -> Vec<u64> {
        self.requests.iter().map(|(status, _)| *status).collect()
    }

    #[track_caller]
    fn assert_succeeded(&self) {
        let Self { protocol, ended, requests, .. } = self;
        let end = Some(End::Succeeded("done".to_owned()));
        assert_eq!(ended.end, end, "{protocol}: {:?} {requests:?}", ended.refused);
    }

    /// Returns why the run failed.
    #[track_caller]
    fn failure(&self) -> &str {
        let Some(End::Failed(why)) = &self.ended.end else { panic!("{}: {:?}", self.protocol, self.ended.end) };
        why
    }

    /// Returns the calls with their results that the last request tells the model.
    #[track_caller]
    fn results(&self) -> Vec<Told> {
        let (_, last) = self.requests.last().unwrap();
        let mut open: VecDeque<&Value> = VecDeque::new();
        let mut told = Vec::new();
        for message in last["messages"].as_array().unwrap() {
            open.extend(message["tool_calls"].as_array().into_iter().flatten());
            if message["role"] == "tool" {
                let call = open.pop_front().unwrap_or_else(|| panic!("{}: a result without a call", self.protocol));
                if self.has_ids {
                    assert_eq!(message["tool_call_id"], call["id"], "{}: {last}", self.protocol);
                }
                told.push(Told {
                    id: call["id"].as_str().filter(|_| self.has_ids).map(str::to_owned),
                    tool: call["function"]["name"].as_str().unwrap().to_owned(),
                    arguments: serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap(),
                    result: result(message["content"].as_str().unwrap()),
                });
            }
        }
        assert!(open.is_empty(), "{}: calls without a result: {open:?}", self.protocol);
        told
    }

    /// Returns a call of a conversation, with this result.
    fn call(&self, id: &str, tool: &str, arguments: Value, result: &str) -> Told {
        let id = self.has_ids.then(|| id.to_owned());
        Told { id, tool: tool.to_owned(), arguments, result: result.to_owned() }
    }
}

/// Returns the text of a result. For Gemini it is a field of an object.
fn result(content: &str) -> String {
    let object = serde_json::from_str::<Value>(content).ok();
    let text = object.as_ref().and_then(|object| object["result"].as_str());
    text.unwrap_or(content).to_owned()
}

fn alice() -> Vec<Answer> {
    vec![Answer::approves("420", "alice")]
}

/// Returns a step with two attempts and the shortest pause.
fn twice() -> Value {
    json!({"retry": {"limit": 1, "backoff": {"base": "1s", "max": "1s"}}})
}

#[tokio::test]
async fn parallel_calls_and_calls_of_a_second_turn_get_results() {
    let answers = [
        Says::Calls(&[("a", "lookup", LOOKUP), ("b", "refund", REFUND)]),
        Says::Calls(&[("c", "lookup", r#"{"order":"2"}"#)]),
        Says::Done,
    ];
    for protocol in &PROTOCOLS {
        let name = protocol.name;
        let played = protocol.play(&answers, json!({}), alice()).await;
        played.assert_succeeded();
        assert_eq!(played.statuses(), [200, 200, 200], "{name}");
        assert_eq!(played.log, ["GET /orders/12-345", PAID, "GET /orders/2"], "{name}");
        assert_eq!(played.ended.approvals.len(), 1, "{name}");
        let expected = [
            played.call("a", "lookup", json!({"order": "12-345"}), "GET /orders/12-345"),
            played.call("b", "refund", json!({"amount": 420}), "POST /refunds"),
            played.call("c", "lookup", json!({"order": "2"}), "GET /orders/2"),
        ];
        assert_eq!(played.results(), expected, "{name}");
        let usage = match protocol.has_usage {
            true => Usage { input_tokens: 21, output_tokens: 15, ..Usage::default() },
            false => Usage::default(),
        };
        assert_eq!(played.ended.usage.unwrap_or_default(), usage, "{name}");
        for (_, request) in &played.requests {
            assert_eq!(request["stream"], true, "{name}");
            let tools = request["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].clone());
            let offered = ["lookup", "refund", "letter", "delegate", "ask-human"];
            assert_eq!(tools.collect::<Vec<_>>(), offered, "{name}");
            let system = request["messages"][0]["content"].as_str().unwrap();
            assert!(system.contains("You answer customers."), "{name}: {system}");
        }
    }
}

#[tokio::test]
async fn an_edited_refund_runs_and_the_model_gets_its_arguments() {
    for protocol in &PROTOCOLS {
        let name = protocol.name;
        let edit = json!({"verdict": "Modify", "about": "420", "parameters": {"arguments": {"amount": 42}}});
        let people = vec![serde_json::from_value(edit).unwrap(), Answer::approves("42", "bob")];
        let played = protocol.play(&[REFUND_CALL, Says::Done], json!({}), people).await;
        played.assert_succeeded();
        assert_eq!(played.log, [r#"POST /refunds {"amount":42}"#], "{name}");
        assert_eq!(played.ended.approvals.len(), 2, "{name}: an edit is no approval");
        // The conversation has the call as the model made it.
        let told = "A human changed the arguments. This ran: {\"amount\":42}\nPOST /refunds";
        assert_eq!(played.results(), [played.call("b", "refund", json!({"amount": 420}), told)], "{name}");
    }
}

#[tokio::test]
async fn a_turn_that_fails_after_the_refund_is_repeated_and_pays_once() {
    for protocol in &PROTOCOLS {
        let name = protocol.name;
        let played = protocol.play(&[REFUND_CALL, Says::Error(500), Says::Done], json!({"retry": null}), alice()).await;
        played.assert_succeeded();
        assert_eq!((played.statuses(), &played.log[..]), (vec![200, 500, 200], &[PAID.to_owned()][..]), "{name}");
        assert_eq!(played.ended.approvals.len(), 1, "{name}");
        let (failed, repeated) = (&played.requests[1].1["messages"], &played.requests[2].1["messages"]);
        assert_eq!(failed, repeated, "{name}: the same turn is asked for again");
    }
}

#[tokio::test]
async fn a_rate_limit_is_retried_or_fails_with_its_reason() {
    for protocol in &PROTOCOLS {
        let name = protocol.name;
        let played = protocol.play(&[REFUND_CALL, Says::Error(429), Says::Done], twice(), alice()).await;
        played.assert_succeeded();
        assert_eq!((played.statuses(), &played.log[..]), (vec![200, 429, 200], &[PAID.to_owned()][..]), "{name}");
        let played = protocol.play(&[Says::Error(429)], json!({}), vec![]).await;
        assert_eq!(played.statuses(), [429], "{name}");
        let why = played.failure();
        assert!(why.contains("429 Too Many Requests: come back later"), "{name}: {why}");
    }
}

#[tokio::test]
async fn malformed_answers_fail_the_turn_and_are_not_shown() {
    for protocol in &PROTOCOLS {
        let malformed = format!("answered something other than {}", protocol.answer);
        for (says, expected) in [
            (Says::Chaos("malformedRate"), malformed.as_str()),
            (Says::Chaos("disconnectRate"), "the connection broke before"),
            (Says::Cut, "the connection broke before"),
        ] {
            let name = protocol.name;
            let played = protocol.play(&[REFUND_CALL, says], json!({}), alice()).await;
            let why = played.failure();
            assert!(why.contains(expected), "{name}: {why}");
            assert!(why.ends_with("before that, its agent called refund"), "{name}: {why}");
            assert!(
                !["malformed", "chaos", "spoiled", "12-345"].iter().any(|shown| why.contains(shown)),
                "{name}: {why}"
            );
            // No call of an incomplete answer is made or asked about.
            assert_eq!((&played.log[..], played.ended.approvals.len()), (&[PAID.to_owned()][..], 1), "{name}");
            assert_eq!(played.requests.len(), 2, "{name}: {why}");
        }
    }
}
