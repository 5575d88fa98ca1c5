//! Hostile transcripts: what a model can write so that a forbidden call runs, a person is deceived, or the run stalls.
//!
//! Each file of `hostile/` is a transcript with its expectations. Further checks are the same for all transcripts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{http::StatusCode, response::IntoResponse};
use serde_json::Value;
use signoff_api::{Approval, Verdict, approval::ActionKind};
use signoff_engine::End;
use signoff_tests::{
    chat_completions::{Told, told},
    loopback::{Loopback, Received, text},
    tried,
};

use crate::{
    clerk::{self, Ended},
    transcript::{Asked, Expected, ToldCall, Transcript, Turn, expanded, is_like},
};

/// The most bytes of a result in the model's request, with the note that it was cut.
const MOST_OF_A_RESULT: usize = 33 * 1024;
/// The most bytes of all results of a turn, with those notes.
const MOST_OF_A_TURN: usize = 132 * 1024;
/// The most bytes of a request: the conversation, and what JSON adds.
const MOST_OF_A_REQUEST: usize = 640 * 1024;
/// The most requests to the models in a run.
const MOST_REQUESTS: usize = 50;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents/hostile");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hostile_transcript_ends_as_its_file_says_and_runs_nothing_else() {
    let files = files();
    assert!(files.len() >= 60, "{} transcripts", files.len());
    let transcripts: Vec<_> = files.iter().map(|file| read(file)).collect();
    let mut problems = Vec::new();
    for (name, transcript) in transcripts {
        problems.extend(play(&transcript).await.into_iter().map(|problem| format!("{name}: {problem}")));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    tried(files.len(), "hostile transcripts");
}

fn read(file: &Path) -> (String, Transcript) {
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with("# "), "{name} begins with a comment on what is hostile");
    let transcript = serde_saphyr::from_str(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
    (name, transcript)
}

#[test]
fn an_unapproved_request_is_a_problem() {
    let mut problems = Problems::default();
    problems.check_approved(&[], &["GET /orders/1".to_owned(), r#"POST /refunds {"amount":1}"#.to_owned()]);
    assert_eq!(problems.0, [r#"nobody approved POST /refunds {"amount":1}"#]);
}

/// Plays one transcript, and returns the deviations from the expectations.
async fn play(transcript: &Transcript) -> Vec<String> {
    let model = model(transcript).await;
    let tools = tools(transcript).await;
    let mut workflow = clerk::workflow(&format!("{}/v1", model.url()), &tools.url());
    json_patch::merge(&mut workflow["spec"], &Value::Object(transcript.spec.clone()));
    let ended = clerk::run(&workflow, transcript.people.clone()).await;
    let requests = model.received();
    let log: Vec<_> = tools.received().into_iter().map(line).collect();
    let mut problems = Problems::default();
    problems.check_end(transcript, &ended);
    problems.check_conversations(transcript, &requests);
    problems.check_log(transcript, &log);
    problems.check_approvals(transcript, &ended.approvals);
    problems.check_approved(&ended.approvals, &log);
    problems.0
}

/// Starts a model for both agents, which it distinguishes by the name of their model.
async fn model(transcript: &Transcript) -> Loopback {
    let (clerk, cashier) = (transcript.turns.clone(), transcript.cashier.clone());
    let (asked_clerk, asked_cashier) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let endless = transcript.endless;
    let answer = move |_: usize, request: &Received| {
        let body: Value = serde_json::from_str(&request.body).unwrap();
        let (turns, asked) =
            if body["model"] == "cashier" { (&cashier, &asked_cashier) } else { (&clerk, &asked_clerk) };
        let index = asked.fetch_add(1, Ordering::SeqCst);
        let turn: Option<&Turn> = turns.get(index).or_else(|| turns.last().filter(|_| endless));
        let (status, body) =
            turn.map_or_else(|| (500, "the transcript has no further answer".to_owned()), |t| t.answer(index + 1));
        text(status, body)
    };
    Loopback::start(answer).await.unwrap()
}

async fn tools(transcript: &Transcript) -> Loopback {
    let others = transcript.tools.clone();
    let answer = move |_: usize, request: &Received| {
        if let Some(other) = others.iter().find(|other| other.to == request.what) {
            let status = StatusCode::from_u16(other.status.unwrap_or(200)).unwrap();
            return (status, other.body()).into_response();
        }
        match request.what.split_once(' ').unwrap_or_default() {
            ("GET", path) if path.starts_with("/orders/") => text(200, format!("order {}: delivered", &path[8..])),
            ("POST", "/refunds") => text(200, format!("refunded {}", request.body)),
            ("POST", "/letters") => text(200, "sent"),
            _ => text(404, "there is no such tool"),
        }
    };
    Loopback::start(answer).await.unwrap()
}

fn line(request: Received) -> String {
    format!("{} {}", request.what, request.body).trim_end().to_owned()
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn check(&mut self, holds: bool, why: impl FnOnce() -> String) {
        if !holds {
            self.0.push(why());
        }
    }

    fn check_end(&mut self, transcript: &Transcript, ended: &Ended) {
        let end = match &ended.end {
            None => "Waiting".to_owned(),
            Some(End::Succeeded(text)) => format!("Succeeded: {text}"),
            Some(End::Failed(text)) => format!("Failed: {text}"),
            Some(End::Rejected(text)) => format!("Rejected: {text}"),
            Some(End::Aborted(text)) => format!("Aborted: {text}"),
            Some(End::Cancelled) => "Cancelled".to_owned(),
        };
        self.check(is_like(&transcript.ends, &end), || format!("ends as {end:?}"));
        let alike = transcript.refused.len() == ended.refused.len()
            && transcript.refused.iter().zip(&ended.refused).all(|(expected, found)| is_like(expected, found));
        self.check(alike, || format!("refused {:?}", ended.refused));
    }

    /// Checks that each call has exactly one result in the model's order, and that all requests to the models are
    /// bounded.
    fn check_conversations(&mut self, transcript: &Transcript, requests: &[Received]) {
        self.check(requests.len() <= MOST_REQUESTS, || format!("{} requests to the models", requests.len()));
        let mut last: BTreeMap<bool, Vec<Vec<Told>>> = BTreeMap::new();
        for request in requests {
            self.check(request.body.len() <= MOST_OF_A_REQUEST, || format!("{} bytes to a model", request.body.len()));
            let body: Value = serde_json::from_str(&request.body).unwrap();
            match told(&body) {
                Ok(turns) => {
                    self.check_sizes(&turns);
                    last.insert(body["model"] == "cashier", turns);
                }
                Err(why) => self.0.push(format!("{why:#}")),
            }
        }
        for (is_cashier, expected) in [(false, &transcript.told), (true, &transcript.told_cashier)] {
            let found = last.remove(&is_cashier).unwrap_or_default();
            let expected: Vec<Vec<Expected>> =
                expected.iter().map(|turn| turn.iter().flat_map(ToldCall::all).collect()).collect();
            let alike = expected.len() == found.len() && expected.iter().zip(&found).all(|(a, b)| are_expected(a, b));
            self.check(alike, || format!("told {}", shown(&format!("{found:#?}"))));
        }
    }

    fn check_sizes(&mut self, turns: &[Vec<Told>]) {
        for turn in turns {
            let total: usize = turn.iter().map(|call| call.result.len()).sum();
            self.check(total <= MOST_OF_A_TURN, || format!("{total} bytes of results in a turn"));
            let longest = turn.iter().map(|call| call.result.len()).max().unwrap_or_default();
            self.check(longest <= MOST_OF_A_RESULT, || format!("a result of {longest} bytes"));
            let names_fit = turn.iter().all(|call| is_wire_name(&call.tool));
            self.check(names_fit, || format!("a provider would refuse a name: {turn:?}"));
        }
    }

    /// Checks that the tools got exactly the requests of the file.
    fn check_log(&mut self, transcript: &Transcript, log: &[String]) {
        let mut expected: Vec<_> = transcript.ran.iter().flat_map(|ran| ran.all()).collect();
        let mut found = log.to_vec();
        expected.sort();
        found.sort();
        self.check(expected == found, || format!("ran {}", shown(&format!("{found:#?}"))));
    }

    fn check_approvals(&mut self, transcript: &Transcript, approvals: &[Approval]) {
        let alike = transcript.asked.len() == approvals.len()
            && transcript.asked.iter().zip(approvals).all(|(expected, found)| is_expected_approval(expected, found));
        self.check(alike, || {
            let line = |approval: &Approval| {
                let request = &approval.spec.request;
                format!("{:?} {:?} {:?} {:?}", request.gate, request.reviews, request.says, request.form)
            };
            format!("asked {}", shown(&approvals.iter().map(line).collect::<Vec<_>>().join("\n")))
        });
        // No text of a model chooses the approvers of a gate, or allows another verdict.
        for approval in approvals {
            let request = &approval.spec.request;
            let group = match request.gate.name.as_str() {
                "money" => "finance",
                "changes" => "office",
                _ => "support",
            };
            let names: Vec<_> = request
                .quorums
                .iter()
                .flat_map(|quorum| &quorum.approvers)
                .map(|subject| subject.name.as_str())
                .collect();
            self.check(names == [group], || format!("gate {} asks {names:?}", request.gate.name));
            let is_question = request.action.as_ref().is_some_and(|action| action.kind == ActionKind::Question);
            let can_approve = request.allowed_verdicts.contains(&Verdict::Approve);
            self.check(is_question != can_approve, || "an answer to a question would approve something".to_owned());
        }
    }

    /// Checks that each request of a tool that changes something was approved with exactly these bytes. Each approval
    /// counts once.
    fn check_approved(&mut self, approvals: &[Approval], log: &[String]) {
        let mut approved: Vec<String> = Vec::new();
        for approval in approvals {
            let outcome = approval.status.as_ref().and_then(|status| status.outcome.as_ref());
            let is_approved = outcome.is_some_and(|outcome| outcome.verdict == Some(Verdict::Approve));
            let request = &approval.spec.request;
            if let (true, Some(review), Some(action)) = (is_approved, &request.reviews, &request.action) {
                let arguments: Value = serde_json::from_str(&review.response).unwrap_or_default();
                approved.push(match action.tool.as_str() {
                    "refund" => format!("POST /refunds {arguments}"),
                    _ => format!("POST /letters {}", arguments["text"].as_str().unwrap_or_default())
                        .trim_end()
                        .to_owned(),
                });
            }
        }
        for request in log.iter().filter(|request| !request.starts_with("GET ")) {
            let comparable = match request.split_once("POST /refunds ") {
                Some((_, body)) => format!("POST /refunds {}", serde_json::from_str::<Value>(body).unwrap_or_default()),
                None => request.clone(),
            };
            match approved.iter().position(|approved| *approved == comparable) {
                Some(at) => drop(approved.remove(at)),
                None => self.0.push(format!("nobody approved {}", shown(request))),
            }
        }
    }
}

fn is_expected_approval(expected: &Asked, found: &Approval) -> bool {
    let request = &found.spec.request;
    let arguments = request.reviews.as_ref().map(|review| review.response.as_str());
    let questions: Vec<_> = request.form.iter().flat_map(|form| &form.questions).collect();
    let text = |expected: &Option<String>, found: Option<&str>| match (expected, found) {
        (None, None) => true,
        (Some(expected), Some(found)) => is_like(&expanded(expected), found),
        _ => false,
    };
    request.gate.name == expected.gate
        && text(&expected.arguments, arguments)
        && text(&expected.says, request.says.as_deref())
        && expected.excluded == request.excluded
        && expected.questions.len() == questions.len()
        && expected.questions.iter().zip(questions).all(|(a, b)| is_like(a, b.question.as_deref().unwrap_or_default()))
}

fn are_expected(expected: &[Expected], found: &[Told]) -> bool {
    let is_expected = |(expected, found): (&Expected, &Told)| {
        expected.id == found.id
            && expected.tool.as_ref().is_none_or(|tool| *tool == found.tool)
            && is_like(&expected.result, &found.result)
    };
    expected.len() == found.len() && expected.iter().zip(found).all(is_expected)
}

/// Returns whether providers accept a text as the name of a tool.
fn is_wire_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

fn shown(text: &str) -> String {
    text.chars().take(3000).collect()
}
