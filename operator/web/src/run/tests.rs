//! Tests of models and whole pages of runs: edges of every pattern, overlapping records, hostile names, long runs.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;

use askama::Template;
use html5ever::tokenizer::{BufferQueue, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use serde_json::{Value, json};
use signoff_api::{Approval, Moment, Workflow};

use super::{
    address::Address,
    change::RunRights,
    graph::{self, Graph},
    handler::RunPage,
    model::Run,
    outline::Item,
    picture::Picture,
};
use crate::page::Shell;

fn now() -> Moment {
    Moment::from("2026-11-22T10:00:00Z".parse::<jiff::Timestamp>().unwrap())
}

fn ago(seconds: i64) -> String {
    (now().timestamp() - jiff::SignedDuration::from_secs(seconds)).to_string()
}

fn address() -> Address {
    Address::of("finance", "refund-4711").unwrap()
}

fn workflow(spec: &Value, status: &Value) -> Workflow {
    let mut spec = spec.clone();
    if spec.get("requestedBy").is_none() {
        spec["requestedBy"] = json!("dana@example.com");
    }
    let object = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "refund-4711", "namespace": "finance", "uid": "u"}, "spec": spec, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn record(seq: i64, path: &str, kind: &str, phase: &str, began: i64, took: Option<i64>) -> Value {
    let mut record = json!({"path": path, "attempt": 1, "kind": kind, "phase": phase, "seq": seq, "at": ago(began)});
    if let Some(took) = took {
        record["finishedAt"] = json!(ago(began - took));
    }
    record
}

fn with(mut record: Value, fields: &Value) -> Value {
    fields.as_object().unwrap().iter().for_each(|(field, value)| record[field] = value.clone());
    record
}

fn approval(name: &str, decisions: &Value, status: &Value) -> Approval {
    let zeros = format!("sha256:{}", "0".repeat(64));
    let object = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": name, "namespace": "finance"},
        "spec": {"decisions": decisions, "request": {
            "workflow": {"name": "refund-4711", "uid": "u"},
            "gate": {"name": "review", "type": "step", "path": "review", "visit": 1},
            "specDigest": zeros, "guardEpoch": "e", "deadline": "2026-11-23T09:30:00Z",
            "prompt": "Send this letter to ACME?", "allowedVerdicts": ["Approve", "Reject"],
            "quorums": [{"source": "gate review", "threshold": 2, "approvers": [{"kind": "Group", "name": "finance"}]}],
            "requestedBy": "dana@example.com", "timeout": {"after": "24h", "action": "Reject"}, "digest": zeros,
        }},
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn agent(name: &str, more: &Value) -> Value {
    with(json!({"name": name, "agent": {"name": "writer", "input": "Write"}}), more)
}

fn gate(name: &str) -> Value {
    json!({"name": name, "hitl": {"prompt": "Send?", "approvers": [{"kind": "Group", "name": "finance"}]}})
}

/// Returns the edges of a spec as words: `a>b`, with the condition if there is one.
fn edges(spec: &Value, status: &Value) -> Vec<String> {
    let graph = Graph::of(&workflow(spec, status), &address());
    let name = |at: usize| match at {
        0 => "(",
        1 => ")",
        at => graph.nodes[at].id.as_str(),
    };
    let word = |edge: &graph::Edge| {
        let when = edge.when.as_ref().map(|when| format!("?{when}")).unwrap_or_default();
        format!("{}>{}{when}", name(edge.from), name(edge.to))
    };
    let mut words: Vec<_> = graph.edges.iter().map(word).collect();
    words.sort();
    words
}

#[test]
fn graph_has_the_edges_of_each_pattern() {
    let none = json!({});
    let chain = json!({"steps": [agent("a", &none), gate("b"), agent("c", &none)]});
    assert_eq!(edges(&chain, &json!({})), ["(>a", "a>b", "b>c", "c>)"]);
    let dag = json!({"pattern": {"dag": {}}, "steps": [
        agent("a", &none), agent("b", &json!({"dependsOn": ["a"]})), agent("c", &json!({"dependsOn": ["a"]})), agent("d", &json!({"dependsOn": ["b", "c"]})),
    ]});
    assert_eq!(edges(&dag, &json!({})), ["(>a", "a>b", "a>c", "b>d", "c>d", "d>)"]);
    let parallel = json!({"pattern": {"parallel": {"reduce": "join"}}, "steps": [
        agent("a", &json!({"branch": "x"})), agent("a", &json!({"branch": "y"})), agent("join", &none),
    ]});
    assert_eq!(edges(&parallel, &json!({})), ["(>x/a?branch x", "(>y/a?branch y", "join>)", "x/a>join", "y/a>join"]);
    let routing = json!({"pattern": {"routing": {"router": {"agent": "writer", "input": "Which?"}}}, "steps": [
        agent("a", &json!({"branch": "x"})), agent("a", &json!({"branch": "y"})),
    ]});
    let found = edges(&routing, &json!({}));
    assert_eq!(found, ["(>.router", ".router>x/a?route x", ".router>y/a?route y", "x/a>)", "y/a>)"]);
    let graph = json!({"pattern": {"graph": {"edges": [
        {"from": "a", "to": "b"}, {"from": "b", "choose": [{"when": "output == 'again'", "to": "a"}]},
    ]}}, "steps": [agent("a", &none), agent("b", &none)]});
    assert_eq!(edges(&graph, &json!({})), ["(>a", "a>b", "b>)?nothing else", "b>a?output == 'again'"]);
    let evaluator =
        json!({"pattern": {"evaluatorOptimizer": {"producer": "writer", "evaluator": {"agent": "critic"}}}});
    let found = edges(&evaluator, &json!({}));
    for edge in ["(>.producer", ".producer>.evaluator", ".evaluator>.reviser?score below 80", ".reviser>.evaluator"] {
        assert!(found.iter().any(|one| one == edge), "{edge}: {found:?}");
    }
    let workers = json!({"pattern": {"orchestratorWorkers": {"orchestrator": {"agent": "boss"}, "worker": {"agent": "writer"}, "reduce": "join"}}, "steps": [agent("join", &none)]});
    assert_eq!(edges(&workers, &json!({})), ["(>.orchestrator", ".orchestrator>.worker", ".worker>join", "join>)"]);
}

#[test]
fn graph_has_gates_of_policies_and_records_without_a_step() {
    let hitl = json!({"prompt": "May it?", "approvers": [{"kind": "Group", "name": "finance"}]});
    let added = json!([
        {"source": "ApprovalPolicy four-eyes", "step": {"name": "first", "at": "Start", "hitl": hitl}},
        {"source": "ApprovalPolicy four-eyes", "step": {"name": "last", "at": "End", "hitl": hitl}},
        {"source": "ApprovalPolicy egress", "step": {"name": "ask", "before": {"kinds": ["egress"]}, "hitl": hitl}},
    ]);
    let spec = json!({"steps": [{"name": "a", "set": {"value": "x"}}, agent("b", &json!({}))]});
    let status = json!({"phase": "Running", "addedSteps": added, "steps": [
        record(1, "b#2", "agent", "Succeeded", 9, Some(1)), record(2, "b/.odd", "hitl", "Waiting", 5, None),
    ]});
    assert_eq!(edges(&spec, &status), ["(>first", "a>ask-b", "ask-b>b", "b>b/.odd", "b>last", "first>a", "last>)"]);
    let graph = Graph::of(&workflow(&spec, &status), &address());
    let states: Vec<_> = graph.nodes.iter().skip(2).map(|node| node.state.unwrap().word()).collect();
    assert_eq!(states, ["Pending", "Succeeded", "Pending", "Pending", "Pending", "Waiting"]);
}

#[test]
fn workers_share_one_node_with_the_state_of_an_open_one() {
    let spec =
        json!({"pattern": {"orchestratorWorkers": {"orchestrator": {"agent": "boss"}, "worker": {"agent": "writer"}}}});
    let status = json!({"phase": "Running", "steps": [
        record(1, ".worker-1", "agent", "Succeeded", 9, Some(1)), record(2, ".worker-2", "agent", "Started", 9, None),
        record(3, ".worker-10", "agent", "Succeeded", 9, Some(2)),
    ]});
    let graph = Graph::of(&workflow(&spec, &status), &address());
    let worker = graph.nodes.iter().find(|node| node.id == ".worker").unwrap();
    assert_eq!(
        (worker.words().as_str(), worker.state.unwrap().word(), graph.nodes.len()),
        ("1 running, 2 done", "Running", 4)
    );
}

#[test]
fn turns_of_an_agent_share_a_node_and_gates_are_counted_by_state() {
    let outcome =
        json!({"decision": {"phase": "Approved", "verdict": "Approve", "source": "Human", "decidedBy": ["ann"]}});
    let calls = json!({"facts": {"calls": "1"}});
    let status = json!({"phase": "Waiting", "steps": [
        with(record(1, "handle", "agent", "Succeeded", 90, Some(1)), &calls),
        with(record(2, "handle/.turn-2", "agent", "Succeeded", 80, Some(1)), &calls),
        record(3, "handle/.turn-3", "agent", "Started", 70, None),
        with(record(4, "review", "hitl", "Succeeded", 60, Some(1)), &outcome),
        with(record(5, "review#2", "hitl", "Succeeded", 50, Some(1)), &outcome),
        record(6, "review#3", "hitl", "Waiting", 40, None),
    ]});
    let spec = json!({"steps": [agent("handle", &json!({})), gate("review")]});
    let graph = Graph::of(&workflow(&spec, &status), &address());
    let words = |id: &str| graph.nodes.iter().find(|node| node.id == id).unwrap().words();
    assert_eq!((words("handle").as_str(), words("review").as_str()), ("Running, 3 turns", "1 waits, 2 decided"));
    assert_eq!(graph.nodes.len(), 4, "beginning, end, agent and gate");
}

#[test]
fn attempts_at_a_turn_are_one_turn() {
    let second = json!({"attempt": 2});
    let status = json!({"phase": "Running", "steps": [
        record(1, "handle", "agent", "Failed", 90, Some(1)),
        with(record(2, "handle", "agent", "Succeeded", 80, Some(1)), &json!({"attempt": 2, "facts": {"calls": "1"}})),
        record(3, "handle/.turn-2", "agent", "Failed", 70, Some(1)),
        with(record(4, "handle/.turn-2", "agent", "Started", 60, None), &second),
    ]});
    let graph = Graph::of(&workflow(&json!({"steps": [agent("handle", &json!({}))]}), &status), &address());
    let handle = graph.nodes.iter().find(|node| node.id == "handle").unwrap();
    assert_eq!(handle.words(), "Running, 2 turns");
}

#[test]
fn long_words_of_a_step_are_broken_into_lines() {
    let outcome =
        json!({"decision": {"phase": "Approved", "verdict": "Approve", "source": "Human", "decidedBy": ["ann"]}});
    let status = json!({"phase": "Waiting", "steps": [
        with(record(1, "review", "hitl", "Succeeded", 60, Some(1)), &outcome),
        record(2, "review#2", "hitl", "Failed", 50, Some(1)),
        record(3, "review#3", "hitl", "Waiting", 40, None),
        record(4, "review#4", "hitl", "Waiting", 30, None),
    ]});
    let spec = json!({"steps": [agent("draft", &json!({})), gate("review")]});
    let picture = Picture::of(&Graph::of(&workflow(&spec, &status), &address())).unwrap();
    let said = |label: &str| {
        let found = picture.boxes.iter().find(|one| one.label == label).unwrap();
        found.words.iter().map(|(_, words)| words.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(said("review"), ["2 wait, 1 failed,", "1 decided"]);
    assert_eq!(said("draft"), ["Pending"]);
}

/// Returns the sentences of a step of the outline, each with its instant apart.
fn sentences(run: &Run, label: &str) -> Vec<(String, Option<String>)> {
    let line = |item: &Item| match item {
        Item::Line(line) if line.label == label => Some(line.details.clone()),
        Item::Line(_) | Item::Up => None,
    };
    let details = run.outline.items.iter().find_map(line).unwrap();
    details.into_iter().map(|one| (one.text, one.instant.map(|(at, _)| at.exact))).collect()
}

#[test]
fn outline_has_arguments_and_changes_and_keeps_instants_in_texts() {
    let said = "2026-11-22T10:00:00Z";
    let decided = |object: &str, by: &str, done: i64| {
        let outcome = json!({"phase": "Modified", "verdict": "Modify", "source": "Human", "decidedBy": [by]});
        json!({"object": object, "done": done, "decision": outcome})
    };
    let given = json!({"facts": {"given": format!("{{\"at\":\"{said}\"}}")}});
    let status = json!({"phase": "Waiting", "steps": [
        record(1, "draft", "set", "Succeeded", 90, Some(1)),
        with(record(2, "pay", "http", "Succeeded", 80, Some(1)), &given),
        with(record(4, "prod", "hitl", "Succeeded", 60, Some(1)), &decided("at-prod", "erin", 7)),
        with(record(3, "sql", "hitl", "Succeeded", 70, Some(1)), &decided("at-sql", "bob", 6)),
        with(record(8, "review", "hitl", "Waiting", 40, None), &json!({"object": "at-review"})),
    ]});
    let pending = json!({"phase": "Pending", "seq": 0});
    let mut approvals = ["at-prod", "at-sql", "at-review"].map(|name| approval(name, &json!({}), &pending));
    for one in &mut approvals {
        one.spec.request.prompt = format!("Is {said} right?");
        let digest = one.spec.request.digest.clone();
        let reviews = json!({"path": "draft", "response": "a draft", "digest": digest});
        one.spec.request.reviews = serde_json::from_value(reviews).unwrap();
    }
    let run = Run::of(&workflow(&json!({"steps": []}), &status), &approvals, &address(), now());
    let changed = "changed by bob at gate sql, then by erin at gate prod";
    assert_eq!(sentences(&run, "draft"), [(changed.to_owned(), None)]);
    assert_eq!(sentences(&run, "pay"), [(format!("arguments: {{\"at\":\"{said}\"}}"), None)]);
    let review = sentences(&run, "review");
    assert!(review.contains(&(format!("asks: Is {said} right?"), None)), "{review:?}");
    assert!(review.contains(&("until ".to_owned(), Some("2026-11-23T09:30:00Z".to_owned()))), "{review:?}");
}

#[test]
fn picture_has_a_place_for_each_node_and_is_bounded() {
    let chain =
        |steps: usize| json!({"steps": (0..steps).map(|at| agent(&format!("s{at}"), &json!({}))).collect::<Vec<_>>()});
    let draw = |steps: usize| Picture::of(&Graph::of(&workflow(&chain(steps), &json!({})), &address()));
    let picture = draw(12).unwrap();
    assert_eq!((picture.boxes.len(), picture.ways.len()), (14, 13));
    assert!(picture.height > picture.width, "a long chain goes down: {} by {}", picture.width, picture.height);
    for one in &picture.boxes {
        assert!(one.x >= 0 && one.y >= 0 && one.x < picture.width && one.y < picture.height, "{one:?}");
    }
    let mut places: Vec<_> = picture.boxes.iter().map(|one| (one.x, one.y)).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), picture.boxes.len(), "no two stand at one place");
    assert!(draw(graph::MOST.0).is_some() && draw(graph::MOST.0 + 1).is_none() && draw(0).is_none());
}

#[test]
fn overlapping_records_count_once_in_the_times() {
    let status = json!({"phase": "Waiting", "startedAt": ago(100), "steps": [
        record(1, "x/a", "agent", "Succeeded", 100, Some(40)), record(2, "y/a", "agent", "Succeeded", 80, Some(40)),
        record(3, "x/g", "hitl", "Waiting", 40, None), record(4, "y/g", "hitl", "Waiting", 20, None),
    ]});
    let run = Run::of(&workflow(&json!({"steps": []}), &status), &[], &address(), now());
    assert_eq!(
        (run.times.worked.as_str(), run.times.waited.as_deref()),
        ("60s", Some("40s at 2 gates, 60s if each wait is counted"))
    );
    let bars: Vec<_> =
        run.timeline.rows.iter().map(|bar| (bar.label.as_str(), bar.waits, bar.from, bar.length)).collect();
    assert_eq!(
        bars,
        [("x/a", false, 0, 400), ("y/a", false, 200, 400), ("x/g", true, 600, 400), ("y/g", true, 800, 200)]
    );
    assert_eq!(run.timeline.rows[2].finished, None);
}

#[test]
fn decision_names_its_channel_only_if_it_was_verified() {
    let vote = |key: &str, more: &Value| {
        with(json!({"key": key, "user": key, "verdict": "Approve", "attempt": 1, "at": ago(60), "epoch": "e"}), more)
    };
    let decisions = json!({"ann": {"verdict": "Approve"}, "bob": {"verdict": "Approve", "reason": "fine"}, "eve": {"verdict": "Reject"}});
    let status = json!({"phase": "Pending", "seq": 1, "votes": [vote("ann", &json!({"channel": "web"})), vote("bob", &json!({}))]});
    let object = json!({"object": "refund-4711-review"});
    let of_run =
        json!({"phase": "Waiting", "steps": [with(record(1, "review", "hitl", "Waiting", 90, None), &object)]});
    let approvals = [approval("refund-4711-review", &decisions, &status)];
    let run = Run::of(&workflow(&json!({"steps": [gate("review")]}), &of_run), &approvals, &address(), now());
    let said: Vec<_> = run.decisions.gates[0]
        .votes
        .iter()
        .map(|one| (one.who.as_str(), one.channel.as_deref(), one.state.as_deref()))
        .collect();
    assert_eq!(said, [("ann", Some("web"), None), ("bob", None, None), ("eve", None, Some("recorded"))]);
    assert_eq!(run.decisions.gates[0].href.as_deref(), Some("/n/finance/a/refund-4711-review"));
    let Item::Line(line) = &run.outline.items[0] else { unreachable!("the first item is a line") };
    assert_eq!((line.word, line.href.as_deref()), ("Waiting", Some("/n/finance/a/refund-4711-review")));
}

/// A tag with its attributes.
type Tag = (String, Vec<(String, String)>);

/// Tags with their attributes, and all text.
#[derive(Default)]
struct Seen {
    tags: RefCell<Vec<Tag>>,
    text: RefCell<String>,
    ends: RefCell<Vec<String>>,
}

impl TokenSink for Seen {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::TagToken(tag) if tag.kind == html5ever::tokenizer::TagKind::StartTag => {
                let attributes = tag.attrs.iter().map(|one| (one.name.local.to_string(), one.value.to_string()));
                self.tags.borrow_mut().push((tag.name.to_string(), attributes.collect()));
                if !tag.self_closing && !["meta", "link", "input", "br"].contains(&&*tag.name) {
                    self.ends.borrow_mut().push(tag.name.to_string());
                }
            }
            Token::TagToken(tag) => assert_eq!(self.ends.borrow_mut().pop().as_deref(), Some(&*tag.name)),
            Token::CharacterTokens(text) => self.text.borrow_mut().push_str(&text),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

fn page(workflow: &Workflow, approvals: &[Approval]) -> String {
    let run = Run::of(workflow, approvals, &address(), now());
    let picture = Picture::of(&Graph::of(workflow, &address()));
    assert!(picture.is_some());
    let shell = Shell::of_nobody("Run refund-4711");
    let live = "/n/finance/w/refund-4711/events?seen=0".to_owned();
    let offers = RunRights::default().offers(workflow);
    let (uid, change) = ("u".to_owned(), "/n/finance/w/refund-4711/change".to_owned());
    RunPage { shell, run, picture, most: graph::MOST.0, unlisted: None, live, offers, uid, change }.render().unwrap()
}

#[test]
fn no_text_of_a_run_becomes_markup() {
    let evil = "<script>alert(1)</script>\"' onload=x \u{202e}&lt;";
    let long = "n".repeat(300);
    let inputs = json!([{"name": evil, "value": evil}, {"name": "amount", "value": 420}]);
    let spec = json!({"requestedBy": evil, "requestedFor": evil, "inputs": inputs, "steps": [
        agent(evil, &json!({})), agent(&long, &json!({})), gate("review"),
    ], "pattern": {"graph": {"edges": [
        {"from": evil, "choose": [{"when": evil, "to": long}]}, {"from": long, "to": "review"},
    ]}}});
    let digest = format!("sha256:{}", "0".repeat(64));
    let outcome =
        json!({"phase": "Rejected", "verdict": "Reject", "source": "Human", "decidedBy": [evil], "reason": evil});
    let status = json!({
        "phase": "Failed", "message": evil, "outputs": evil, "startedAt": ago(90), "finishedAt": ago(1),
        "conditions": [{"type": evil, "status": "True", "reason": evil, "message": evil, "lastTransitionTime": ago(9)}],
        "artifacts": [{"path": evil, "content": {"digest": digest, "size": 9}}],
        "steps": [
            with(record(1, evil, "agent", "Failed", 90, Some(4)), &json!({
                "response": evil, "error": {"class": evil, "message": evil}, "log": {"tail": evil}, "responseRef": {"digest": digest, "size": 9},
            })),
            with(record(2, "review", "hitl", "Succeeded", 80, Some(9)), &json!({"object": evil, "decision": outcome})),
        ],
    });
    let decisions = json!({evil: {"verdict": "Reject", "reason": evil}});
    let vote = json!({"key": evil, "user": evil, "verdict": "Reject", "attempt": 1, "at": ago(60), "epoch": "e", "channel": evil});
    let approvals = [approval(evil, &decisions, &json!({"phase": "Rejected", "seq": 1, "votes": [vote]}))];
    let html = page(&workflow(&spec, &status), &approvals);
    assert!(!html.contains('\u{202e}') && !html.contains("<script>"), "{html}");
    assert!(html.contains("<dt>amount</dt><dd class=\"typed\">420</dd>"), "the inputs are told");
    assert!(html.contains(&format!(">{}…</text>", "n".repeat(19))), "a long name is shortened where it is drawn");
    let tokenizer = Tokenizer::new(Seen::default(), TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(html.as_str().into());
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    let Seen { tags, text, ends } = tokenizer.sink;
    assert!(ends.borrow().is_empty(), "every element ends: {ends:?}");
    assert!(text.borrow().contains("<script>alert(1)</script>\"' onload=x ⟨U+202E⟩&lt;"));
    let tags = tags.borrow();
    assert_eq!(tags.iter().filter(|(name, _)| name == "script").count(), 2, "only our own");
    for (name, attributes) in tags.iter() {
        for (attribute, value) in attributes {
            assert!(attribute != "style" && !attribute.starts_with("on"), "{name} has {attribute}={value}");
            let is_address = attribute == "href" || attribute == "src";
            assert!(!is_address || value.starts_with('/') || value.starts_with('#'), "{name} leads to {value}");
        }
    }
    assert!(tags.iter().any(|(name, _)| name == "svg") && tags.iter().any(|(name, _)| name == "desc"));
}
