//! Whole pages of runs: chains, branches, graphs, failures, retries and long runs, in several widths, with and without
//! colour.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use signoff_api::{Approval, Moment, Workflow};

use super::render;
use crate::style::Style;

const TERMINAL: Style = Style { width: 80, colour: false, signs: true, fold_above: Some(40) };

mod calls;

fn now() -> Moment {
    Moment::from("2026-11-22T10:00:00Z".parse::<jiff::Timestamp>().unwrap())
}

/// Returns the time this number of seconds before now.
fn ago(seconds: i64) -> String {
    (now().timestamp() - jiff::SignedDuration::from_secs(seconds)).to_string()
}

fn workflow(spec: &Value, status: &Value) -> Workflow {
    let mut spec = spec.clone();
    spec["requestedBy"] = json!("dana@example.com");
    let object = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "refund-4711", "namespace": "finance", "uid": "u", "creationTimestamp": ago(1900)},
        "spec": spec, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

/// Returns a record that began `began` seconds ago and took `took` seconds.
fn record(seq: i64, path: &str, kind: &str, phase: &str, began: i64, took: Option<i64>) -> Value {
    let mut record = json!({"path": path, "attempt": 1, "kind": kind, "phase": phase, "seq": seq, "at": ago(began)});
    if let Some(took) = took {
        record["finishedAt"] = json!(ago(began - took));
    }
    record
}

fn merge(mut record: Value, fields: &Value) -> Value {
    for (field, value) in fields.as_object().unwrap() {
        record[field] = value.clone();
    }
    record
}

fn approval(name: &str, path: &str, changes: &Value) -> Approval {
    let zeros = format!("sha256:{}", "0".repeat(64));
    let mut request = json!({
        "workflow": {"name": "refund-4711", "uid": "u"},
        "gate": {"name": "review", "type": "step", "path": path, "visit": 1},
        "specDigest": zeros, "guardEpoch": "e", "deadline": "2026-11-23T09:30:00Z",
        "prompt": "Send this letter to ACME?", "allowedVerdicts": ["Approve", "Reject"],
        "quorums": [{
            "source": "gate review", "threshold": 2, "excludeRequester": true,
            "approvers": [{"kind": "User", "name": "alice@example.com"}, {"kind": "Group", "name": "finance"}],
        }],
        "requestedBy": "dana@example.com", "timeout": {"after": "24h", "action": "Reject"}, "digest": zeros,
    });
    for (field, value) in changes["request"].as_object().into_iter().flatten() {
        request[field] = value.clone();
    }
    let object = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": name, "namespace": "finance"},
        "spec": {"request": request, "decisions": changes["decisions"].as_object().cloned().unwrap_or_default()},
        "status": changes["status"],
    });
    serde_json::from_value(object).unwrap()
}

fn chain_workflow() -> (Workflow, Vec<Approval>) {
    let spec = json!({"steps": [
        {"name": "draft", "agent": {"name": "writer", "input": "Write"}},
        {"name": "review", "hitl": {"prompt": "Send?", "approvers": [{"kind": "Group", "name": "finance"}]}},
        {"name": "send", "http": {"url": "http://letters/"}},
    ]});
    let usage = json!({"inputTokens": 1204, "outputTokens": 310});
    let status = json!({
        "phase": "Waiting", "startedAt": ago(1800), "usage": usage, "pending": ["refund-4711-review-0a1b2c3d4e"],
        "steps": [
            merge(record(1, "draft", "agent", "Succeeded", 1800, Some(12)), &json!({"usage": usage})),
            merge(record(3, "review", "hitl", "Waiting", 1788, None), &json!({"object": "refund-4711-review-0a1b2c3d4e"})),
        ],
    });
    let vote = json!({"key": "bob@example.com", "user": "bob@example.com", "verdict": "Approve", "attempt": 1, "at": ago(60), "epoch": "e"});
    let changes = json!({
        "decisions": {"bob@example.com": {"verdict": "Approve"}, "erin@example.com": {"verdict": "Approve"}},
        "status": {"tally": {"needed": 2, "have": 1}, "votes": [vote]},
    });
    (workflow(&spec, &status), vec![approval("refund-4711-review-0a1b2c3d4e", "review", &changes)])
}

#[test]
fn the_cost_of_priced_agents_is_in_the_header_and_in_their_rows() {
    let (mut workflow, approvals) = chain_workflow();
    let cost = json!({"inputTokens": 1204, "cachedTokens": 1000, "outputTokens": 310, "reasoningTokens": 64, "cost": "0.0042"});
    let status = workflow.status.as_mut().unwrap();
    status.usage = serde_json::from_value(cost).unwrap();
    status.steps[0].usage = status.usage;
    let page = render(&workflow, &approvals, now(), TERMINAL);
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("1204 read (1000 cached), 310 written (64 of them reasoning), cost 0.0042"), "{page}");
    assert!(page.contains("1204+310 (0.0042)"), "{page}");
}

#[test]
fn a_chain_shows_done_steps_the_open_gate_and_pending_steps() {
    let (workflow, approvals) = chain_workflow();
    assert_eq!(
        render(&workflow, &approvals, now(), TERMINAL),
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Waiting
Requester:    dana@example.com
Started:      2026-11-22T09:30:00Z (30m ago)
Waiting for:  review (alice@example.com, group finance)
Tokens:       1204 read, 310 written

STEP       KIND    STATE       STARTED   TOOK   TOKENS
✔ draft    agent   Succeeded   30m ago   12s    1204+310
◷ review   gate    Waiting     29m ago
    refund-4711-review-0a1b2c3d4e
    asks: Send this letter to ACME?
    can decide: alice@example.com, group finance, not the requester; 1 of 2
      agree
    votes: bob@example.com Approve, erin@example.com Approve (not counted yet)
    until 2026-11-23T09:30:00Z (in 23h); then it counts as rejected
· send     http    Pending
"
    );
}

#[test]
fn a_run_that_is_being_deleted_shows_its_finalizers() {
    let (mut workflow, _) = chain_workflow();
    assert!(!render(&workflow, &[], now(), Style::PLAIN).contains("Deletion:"));
    let deleted = json!({"name": "refund-4711", "deletionTimestamp": ago(60), "finalizers": ["other.example/hold", "b/\u{1b}[31m"]});
    workflow.metadata = serde_json::from_value(deleted).unwrap();
    let page = render(&workflow, &[], now(), Style::PLAIN);
    let line = page.lines().nth(1).unwrap();
    assert_eq!(line, "Deletion:     being deleted, held by other.example/hold, b/[31m");
}

#[test]
fn a_page_without_a_terminal_is_ascii() {
    let (workflow, _) = chain_workflow();
    assert_eq!(
        render(&workflow, &[], now(), Style::PLAIN),
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Waiting
Requester:    dana@example.com
Started:      2026-11-22T09:30:00Z (30m ago)
Waiting for:  review
Tokens:       1204 read, 310 written

STEP     KIND    STATE       STARTED   TOOK   TOKENS
draft    agent   Succeeded   30m ago   12s    1204+310
review   gate    Waiting     29m ago
    refund-4711-review-0a1b2c3d4e
send     http    Pending
"
    );
}

#[test]
fn a_coloured_page_has_the_same_text() {
    let (workflow, approvals) = chain_workflow();
    let coloured = render(&workflow, &approvals, now(), Style { colour: true, ..TERMINAL });
    for painted in ["\u{1b}[32m✔ \u{1b}[0mdraft", "\u{1b}[32mSucceeded\u{1b}[0m", "\u{1b}[1m\u{1b}[33mWaiting\u{1b}[0m"]
    {
        assert!(coloured.contains(painted), "{painted:?} in {coloured:?}");
    }
    let bare: String = coloured
        .split('\u{1b}')
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once('m').unwrap().1 })
        .collect();
    assert_eq!(bare, render(&workflow, &approvals, now(), TERMINAL));
}

#[test]
fn branches_are_trees_of_their_own() {
    let gate = json!({"prompt": "Send?", "approvers": [{"kind": "User", "name": "alice"}]});
    let spec = json!({"pattern": {"parallel": {"reduce": "merge"}}, "steps": [
        {"name": "ask", "branch": "legal", "hitl": gate}, {"name": "note", "branch": "legal", "set": {"value": "x"}},
        {"name": "ask", "branch": "budget", "hitl": gate}, {"name": "note", "branch": "budget", "set": {"value": "x"}},
        {"name": "build", "branch": "tool", "pod": {"image": "tool:1"}},
        {"name": "merge", "set": {"value": "x"}},
    ]});
    let approved = json!({"verdict": "Approve", "phase": "Approved", "decidedBy": ["bob@example.com"], "source": "Human", "reason": "as in May"});
    let status = json!({"phase": "Running", "startedAt": ago(300), "steps": [
        merge(record(1, "legal/ask", "hitl", "Waiting", 300, None), &json!({"object": "legal-ask-1"})),
        merge(record(2, "budget/ask", "hitl", "Succeeded", 300, Some(200)), &json!({"object": "budget-ask-1", "decision": approved})),
        merge(record(3, "tool/build", "pod", "Started", 300, None), &json!({"object": "signoff-step-refund-4711-00"})),
        record(5, "budget/note", "set", "Succeeded", 100, Some(0)),
    ]});
    let further = json!({"request": {
        "quorums": [
            {"source": "gate ask", "threshold": 1, "approvers": [{"kind": "User", "name": "alice"}], "requiredFrom": [{"group": "leads", "min": 1}]},
            {"source": "ClusterApprovalPolicy/money", "threshold": 1, "approvers": [{"kind": "Group", "name": "audit"}]},
        ],
        "timeout": {"after": "1h", "action": "Escalate", "escalation": [{"to": [{"kind": "Group", "name": "sre"}]}]},
    }});
    let page = render(&workflow(&spec, &status), &[approval("legal-ask-1", "legal/ask", &further)], now(), TERMINAL);
    assert_eq!(
        page,
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Running
Requester:    dana@example.com
Started:      2026-11-22T09:55:00Z (5m ago)
Waiting for:  legal/ask (alice)
Running:      tool/build

STEP        KIND     STATE       STARTED    TOOK
◷ legal     branch   Waiting     5m ago
├─◷ ask     gate     Waiting     5m ago
│     legal-ask-1
│     asks: Send this letter to ACME?
│     can decide: alice; 0 of 1 agree, 1 of group leads
│     and 0 of 1 agree of: group audit (required by
│       ClusterApprovalPolicy/money)
│     until 2026-11-23T09:30:00Z (in 23h); then group sre will be asked too
└─· note    set      Pending
✔ budget    branch   Succeeded   5m ago     3m20s
├─✔ ask     gate     Approved    5m ago     3m20s
│     by bob@example.com: as in May
└─✔ note    set      Succeeded   100s ago   0s
● tool      branch   Running     5m ago
└─● build   pod      Running     5m ago
      Pod signoff-step-refund-4711-00
· merge     set      Pending
"
    );
}

#[test]
fn a_graph_shows_its_visits_in_order_and_not_its_edges() {
    let gate = json!({"prompt": "Good?", "approvers": [{"kind": "User", "name": "alice"}]});
    let spec = json!({"pattern": {"graph": {}}, "steps": [
        {"name": "plan", "agent": {"name": "writer", "input": "x"}}, {"name": "review", "hitl": gate},
        {"name": "revise", "agent": {"name": "writer", "input": "x"}}, {"name": "execute", "set": {"value": "x"}},
    ]});
    let answered = json!({"verdict": "Respond", "phase": "Responded", "decidedBy": ["bob"], "source": "Human"});
    let status = json!({"phase": "Waiting", "startedAt": ago(600), "steps": [
        record(1, "plan", "agent", "Succeeded", 600, Some(5)),
        merge(record(3, "review", "hitl", "Succeeded", 590, Some(60)), &json!({"object": "a", "decision": answered})),
        record(5, "review/.next", "condition", "Succeeded", 530, Some(0)),
        record(7, "revise", "agent", "Succeeded", 530, Some(4)),
        merge(record(9, "review#2", "hitl", "Waiting", 520, None), &json!({"object": "b", "request": {
            "digest": format!("sha256:{}", "0".repeat(64)), "deadline": "2026-11-23T09:30:00Z", "guardEpoch": "e"}})),
    ]});
    assert_eq!(
        render(&workflow(&spec, &status), &[], now(), TERMINAL),
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Waiting
Requester:    dana@example.com
Started:      2026-11-22T09:50:00Z (10m ago)
Waiting for:  review#2

STEP         KIND    STATE       STARTED     TOOK
✔ plan       agent   Succeeded   10m ago     5s
✔ review     gate    Responded   9m50s ago   60s
    by bob
✔ revise     agent   Succeeded   8m50s ago   4s
◷ review#2   gate    Waiting     8m40s ago
    b
    until 2026-11-23T09:30:00Z (in 23h)
· execute    set     Pending
"
    );
}

fn failed_workflow() -> Workflow {
    let spec = json!({
        "gates": [{"name": "help", "type": "errorEscalation", "hitl": {"prompt": "?", "approvers": [{"kind": "User", "name": "alice"}]}}],
        "steps": [
            {"name": "build", "pod": {"image": "tool:1"}, "onError": "escalate", "retry": {"limit": 1}},
            {"name": "publish-the-documentation-of-every-release-of-this-year", "set": {"value": "x"}},
        ],
    });
    let error = |message: &str| json!({"class": "ExitCode", "message": message, "retryable": true});
    let rejected = json!({"verdict": "Reject", "phase": "Rejected", "decidedBy": ["alice"], "source": "Human", "reason": "too costly"});
    let status = json!({
        "phase": "Failed", "startedAt": ago(7200), "finishedAt": ago(3600),
        "message": "step build failed: the container ended with exit code 2, and alice rejected another attempt (too costly)",
        "conditions": [{"type": "Failed", "status": "True", "reason": "Failed", "message": "x", "lastTransitionTime": ago(3600)}],
        "steps": [
            merge(record(1, "build", "pod", "Failed", 7200, Some(65)), &json!({"error": error("the container ended with exit code 1")})),
            merge(record(3, "build", "pod", "Failed", 7100, Some(700)), &json!({
                "attempt": 2, "error": error("first line\nthe container ended with exit code 2\n"),
                "log": {"tail": "compiling\nerror: \u{1b}[31mno space left on device\n\n"},
            })),
            merge(record(5, "build/.error", "hitl", "Succeeded", 6400, Some(2800)), &json!({"object": "help-1", "decision": rejected})),
        ],
    });
    workflow(&spec, &status)
}

#[test]
fn a_failed_step_shows_its_attempts_its_errors_and_its_gate() {
    assert_eq!(
        render(&failed_workflow(), &[], now(), TERMINAL),
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Failed
Reason:       step build failed: the container ended with exit code 2, and
              alice rejected another attempt (too costly)
Requester:    dana@example.com
Started:      2026-11-22T08:00:00Z (120m ago)
Finished:     2026-11-22T09:00:00Z (60m ago, after 60m)

STEP                                           KIND   STATE      STARTED    TOOK
✖ build (attempt 2)                            pod    Failed     118m ago   11m
│   ExitCode: the container ended with exit code 2
│   last line of its log: error: [31mno space left on device
├─✖ attempt 1                                  pod    Failed     120m ago   65s
│     ExitCode: the container ended with exit code 1
└─✖ .error                                     gate   Rejected   106m ago   46m
      by alice: too costly
· publish-the-documentation-of-every-releas…   set    Not run
"
    );
}

#[test]
fn a_wide_page_shortens_less() {
    assert_eq!(
        render(&failed_workflow(), &[], now(), Style { width: 120, ..TERMINAL }),
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Failed
Reason:       step build failed: the container ended with exit code 2, and alice rejected another attempt (too costly)
Requester:    dana@example.com
Started:      2026-11-22T08:00:00Z (120m ago)
Finished:     2026-11-22T09:00:00Z (60m ago, after 60m)

STEP                                                        KIND   STATE      STARTED    TOOK
✖ build (attempt 2)                                         pod    Failed     118m ago   11m
│   ExitCode: the container ended with exit code 2
│   last line of its log: error: [31mno space left on device
├─✖ attempt 1                                               pod    Failed     120m ago   65s
│     ExitCode: the container ended with exit code 1
└─✖ .error                                                  gate   Rejected   106m ago   46m
      by alice: too costly
· publish-the-documentation-of-every-release-of-this-year   set    Not run
"
    );
}

#[test]
fn a_long_run_is_folded_except_open_failed_and_next_steps() {
    let names: Vec<String> = (0..60).map(|n| format!("step-{n}")).collect();
    let steps: Vec<Value> = names.iter().map(|name| json!({"name": name, "set": {"value": "x"}})).collect();
    let records: Vec<Value> = (0..40)
        .map(|n| {
            let phase = if n == 9 {
                "Failed"
            } else if n == 39 {
                "Started"
            } else {
                "Succeeded"
            };
            let took = (n != 39).then_some(1);
            record(n, &names[usize::try_from(n).unwrap()], "set", phase, 400 - n * 10, took)
        })
        .collect();
    let run = workflow(&json!({"steps": steps}), &json!({"phase": "Running", "startedAt": ago(400), "steps": records}));
    assert_eq!(
        render(&run, &[], now(), TERMINAL),
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Running
Requester:    dana@example.com
Started:      2026-11-22T09:53:20Z (6m40s ago)
Running:      step-39

STEP           KIND   STATE       STARTED     TOOK
… 8 done
✔ step-8       set    Succeeded   5m20s ago   1s
✖ step-9       set    Failed      5m10s ago   1s
… 28 done
✔ step-38      set    Succeeded   20s ago     1s
● step-39      set    Running     10s ago
· step-40      set    Pending
… 19 pending
"
    );
    let all = render(&run, &[], now(), Style { fold_above: None, ..TERMINAL });
    assert!(names.iter().all(|name| all.contains(&format!(" {name} "))), "{all}");
}

#[test]
fn retries_of_a_long_run_are_folded_too() {
    let steps: Vec<Value> = (0..30).map(|n| json!({"name": format!("step-{n}"), "set": {"value": "x"}})).collect();
    let error = json!({"class": "Status", "message": "503 Service Unavailable", "retryable": true});
    let records: Vec<Value> = (1..=20)
        .map(|n| {
            merge(record(n, "step-0", "http", "Failed", 400 - n * 10, Some(1)), &json!({"attempt": n, "error": error}))
        })
        .collect();
    let run = workflow(&json!({"steps": steps}), &json!({"phase": "Running", "startedAt": ago(400), "steps": records}));
    assert_eq!(
        render(&run, &[], now(), TERMINAL),
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Running
Requester:    dana@example.com
Started:      2026-11-22T09:53:20Z (6m40s ago)

STEP                     KIND   STATE     STARTED     TOOK
✖ step-0 (attempt 20)    http   Failed    3m20s ago   1s
│   Status: 503 Service Unavailable
├─… 18 attempts failed
└─✖ attempt 19           http   Failed    3m30s ago   1s
      Status: 503 Service Unavailable
· step-1                 set    Pending
… 28 pending
"
    );
}

#[test]
fn a_run_that_no_operator_has_read_is_pending() {
    let spec = json!({"steps": [{"name": "one", "set": {"value": "x"}}]});
    assert_eq!(
        render(&workflow(&spec, &Value::Null), &[], now(), TERMINAL),
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Pending: no operator has read it yet, created 31m ago
Requester:    dana@example.com

STEP    KIND   STATE
· one   set    Pending
"
    );
}

#[test]
fn the_header_shows_blocking_conditions_and_missing_records() {
    let spec = json!({"requestedFor": "erin@example.com", "steps": [{"name": "one", "set": {"value": "x"}}]});
    let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(60)});
    let status = json!({
        "phase": "Pending", "startedAt": ago(60),
        "segments": [{"digest": format!("sha256:{}", "0".repeat(64)), "size": 9, "records": 58, "through": 90}],
        "conditions": [
            condition("Accepted", "True", "Accepted", "accepted"),
            condition("Guarded", "False", "PoliciesDiffer", "the policy signoff-approvals is missing"),
            condition("PodsPending", "True", "Unschedulable", "0/3 nodes are available: 3 Insufficient memory. preemption: not helpful"),
            condition("Waiting", "False", "NothingPending", "no gate is open"),
        ],
    });
    assert_eq!(
        render(&workflow(&spec, &status), &[], now(), TERMINAL),
        "\
Workflow:     refund-4711 in namespace finance
Phase:        Pending
Guarded:      PoliciesDiffer [SO0301]: the policy signoff-approvals is missing
PodsPending:  Unschedulable [SO0210]: 0/3 nodes are available: 3 Insufficient
              memory. preemption: not helpful
Requester:    dana@example.com for erin@example.com
Started:      2026-11-22T09:59:00Z (60s ago)
Not shown:    58 earlier records, which could not be read

STEP    KIND   STATE
· one   set    Pending
"
    );
}

#[test]
fn patterns_show_the_steps_that_are_known() {
    let labels = |spec: Value, records: Vec<Value>| {
        let status = json!({"phase": "Running", "startedAt": ago(60), "steps": records});
        let page = render(&workflow(&spec, &status), &[], now(), Style::PLAIN);
        let (_, tree) = page.split_once("STEP").unwrap();
        let tree: Vec<String> = tree.lines().skip(1).map(|line| line.split("  ").next().unwrap().to_owned()).collect();
        tree
    };
    let routing = json!({"pattern": {"routing": {"router": {"agent": "a", "input": "x"}}}, "steps": [
        {"name": "note", "branch": "billing", "set": {"value": "x"}}, {"name": "note", "branch": "support", "set": {"value": "x"}},
    ]});
    assert_eq!(labels(routing.clone(), vec![]), [".router", "billing", "`-note", "support", "`-note"]);
    let chosen = vec![
        record(1, ".router", "agent", "Succeeded", 50, Some(1)),
        record(3, "support/note", "set", "Started", 40, None),
    ];
    assert_eq!(labels(routing, chosen), [".router", "support", "`-note"]);
    let spec = json!({"pattern": {"evaluatorOptimizer": {"producer": "a", "evaluator": {"agent": "b"}}}, "gates": [
        {"name": "last", "type": "finalResponse", "hitl": {"prompt": "?", "approvers": [{"kind": "User", "name": "a"}]}},
    ]});
    assert_eq!(labels(spec, vec![]), [".producer", ".evaluator", ".final"]);
    let spec = json!({"pattern": {"orchestratorWorkers": {"orchestrator": {"agent": "a"}, "worker": {"agent": "b"}, "writeup": "story"}},
        "steps": [{"name": "story", "set": {"value": "x"}}]});
    let workers = vec![
        record(1, ".orchestrator", "agent", "Succeeded", 50, Some(1)),
        record(2, ".worker-0", "agent", "Started", 40, None),
        record(3, ".worker-1", "agent", "Pending", 40, None),
    ];
    assert_eq!(labels(spec, workers), [".orchestrator", ".worker-0", ".worker-1", "story"]);
}

#[test]
fn text_of_others_cannot_add_rows_or_colours() {
    let (mut workflow, mut approvals) = chain_workflow();
    let evil = format!("x\u{1b}[2J\n✔ send  http  Succeeded{}✔ send   http", " ".repeat(80));
    approvals[0].spec.request.prompt = evil.clone();
    workflow.status.as_mut().unwrap().steps[0].error =
        serde_json::from_value(json!({"class": "X", "message": evil})).unwrap();
    for width in [40, 80, 120] {
        let page = render(&workflow, &approvals, now(), Style { width, ..TERMINAL });
        assert!(!page.contains('\u{1b}'), "{page:?}");
        assert!(page.lines().all(|line| unicode_width::UnicodeWidthStr::width(line) <= width), "{page}");
        assert_eq!(page.lines().filter(|line| line.starts_with('✔')).count(), 1, "{page}");
    }
}
