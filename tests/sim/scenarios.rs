//! The simulated runs: a small workflow each, the acts of people, and the answers of the world. The tests add failures.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};
use signoff_tests::sim::{Answer, World};

use crate::people::{People, verdict};

/// The name of the Workflow of every scenario.
pub const RUN: &str = "refund";

/// A workflow with its world and its people.
pub struct Scenario {
    pub name: &'static str,
    pub spec: fn() -> Value,
    pub world: fn(&World),
    pub people: fn(People) -> BoxFuture<'static, ()>,
}

/// Returns the spec of a chain.
pub fn chain(steps: Value) -> Value {
    json!({
        "requestedBy": "dana",
        "providers": [{"name": "models", "scripted": {"replies": [{"text": "the world answers instead"}]}}],
        "agents": [{"name": "writer", "provider": "models"}],
        "steps": steps,
    })
}

/// Returns the spec with a model that is not scripted, so that its answers are not the author's text.
pub fn of_model(mut spec: Value) -> Value {
    spec["providers"] = json!([{"name": "models", "openai": {"baseURL": "http://models.test/v1"}}]);
    spec["agents"][0]["model"] = json!("small");
    spec
}

/// Returns a gate that alice or bob decides.
pub fn gate(name: &str, more: Value) -> Value {
    let mut hitl = json!({
        "prompt": "Go on?",
        "approvers": [{"kind": "User", "name": "alice"}, {"kind": "User", "name": "bob"}],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        hitl[field] = value.clone();
    }
    json!({"name": name, "hitl": hitl})
}

pub fn set(name: &str, value: &str) -> Value {
    json!({"name": name, "set": {"value": value}})
}

fn agent(name: &str, input: &str) -> Value {
    json!({"name": name, "agent": {"name": "writer", "input": input}})
}

pub fn post(name: &str, body: &str, on_error: &str) -> Value {
    json!({"name": name, "http": {"method": "POST", "url": "http://pay.test/", "body": body}, "onError": on_error})
}

/// Returns a step that is a container.
pub fn pod(name: &str, more: Value) -> Value {
    let mut pod = json!({"image": "tool@sha256:1", "command": ["tool"]});
    for (field, value) in more.as_object().into_iter().flatten() {
        pod[field] = value.clone();
    }
    json!({"name": name, "pod": pod})
}

fn nobody(_: People) -> BoxFuture<'static, ()> {
    std::future::ready(()).boxed()
}

fn alice_approves(people: People) -> BoxFuture<'static, ()> {
    async move { people.decide("alice", "review", 60, json!({"verdict": "Approve", "reason": "checked"})).await }
        .boxed()
}

/// set → gate → set: the smallest run with a person in it.
pub const ONE_GATE: Scenario = Scenario {
    name: "set, gate, set",
    spec: || {
        chain(json!([
            set("draft", "42 EUR"),
            gate("review", json!({})),
            set("send", "{{ steps.draft.response }}: {{ hitl_response }}")
        ]))
    },
    world: |_| {},
    people: alice_approves,
};

/// agent → gate → POST → set: a call that may be repeated, and one that must not be.
pub const PAYMENT: Scenario = Scenario {
    name: "agent, gate, POST, set",
    spec: || {
        chain(json!([
            agent("draft", "Refund 42 EUR."),
            gate("review", json!({"contextDisplay": "{{ steps.draft.response }}"})),
            post("pay", "{{ steps.draft.response }}", "fail"),
            set("note", "{{ steps.pay.response }}"),
        ]))
    },
    world: |world| {
        world.answers("refund/draft", Answer::value("Dear customer").after(Duration::from_secs(3)));
        world.answers("refund/pay", Answer::value("receipt 7").after(Duration::from_secs(2)));
    },
    people: alice_approves,
};

/// A payment whose failure does not end the run.
pub const PAYMENT_OR_NOT: Scenario = Scenario {
    name: "POST with onError: continue",
    spec: || {
        chain(json!([
            post("pay", "42 EUR", "continue"),
            set("note", "{{ steps.pay.response | default('no receipt') }}"),
            gate("review", json!({"contextDisplay": "{{ steps.note.response }}"})),
        ]))
    },
    world: |world| world.answers("refund/pay", Answer::value("receipt 7").after(Duration::from_secs(2))),
    people: alice_approves,
};

/// A gate that is deferred with guidance, then approved.
pub const DEFERRED: Scenario = Scenario {
    name: "Defer, then Approve",
    spec: || {
        chain(json!([
            agent("draft", "Write. {{ hitl.guidance | default('') }}"),
            gate("review", json!({"allowedVerdicts": ["Approve", "Reject", "Defer"]})),
            set("send", "{{ steps.draft.response }}"),
        ]))
    },
    world: |world| {
        world.answers("refund/draft", Answer::value("first").after(Duration::from_secs(1)));
        world.answers("refund/draft#2", Answer::value("second, politer").after(Duration::from_secs(1)));
    },
    people: |people| {
        async move {
            people.decide("alice", "review", 30, json!({"verdict": "Defer", "guidance": "politer"})).await;
            people.decide("bob", "review#2", 30, verdict("Approve")).await;
        }
        .boxed()
    },
};

/// A gate that asks again after a Retry.
pub const RETRIED: Scenario = Scenario {
    name: "Retry, then Respond",
    spec: || {
        let allowed = json!({"allowedVerdicts": ["Approve", "Reject", "Retry", "Respond"]});
        chain(json!([gate("review", allowed), set("send", "{{ hitl_response }}")]))
    },
    world: |_| {},
    people: |people| {
        async move {
            people.decide("alice", "review", 30, verdict("Retry")).await;
            people
                .decide("alice", "review#2", 30, json!({"verdict": "Respond", "response": "{{ not.a.template }}"}))
                .await;
        }
        .boxed()
    },
};

/// Two gates, the first with a quorum of two; the second is modified.
pub const TWO_GATES: Scenario = Scenario {
    name: "two gates, quorum and Modify",
    spec: || {
        chain(json!([
            set("amount", "42"),
            gate("first", json!({"threshold": 2})),
            gate("second", json!({})),
            set("send", "{{ steps.amount.response }} {{ steps.first.decision }} {{ steps.second.decision }}"),
        ]))
    },
    world: |_| {},
    people: |people| {
        async move {
            people.decide("bob", "first", 20, verdict("Approve")).await;
            people.decide("alice", "first", 20, verdict("Approve")).await;
            people.decide("alice", "second", 20, json!({"verdict": "Modify", "parameters": {"response": "40"}})).await;
        }
        .boxed()
    },
};

/// A call of which two attempts fail and the third succeeds.
pub const BACKOFF: Scenario = Scenario {
    name: "retry with backoff",
    spec: || {
        let fetch = json!({
            "name": "fetch", "http": {"url": "http://rates.test/"},
            "retry": {"limit": 3, "backoff": {"base": "10s", "factor": 2.0, "jitter": 0.5}},
        });
        chain(json!([fetch, set("send", "{{ steps.fetch.response }}")]))
    },
    world: |world| {
        for attempt in [1, 2] {
            world.answers_attempt(
                "refund/fetch",
                attempt,
                Answer::failure("Unreachable", "no route").after(Duration::from_secs(1)),
            );
        }
        world.answers_attempt("refund/fetch", 3, Answer::value("1.08").after(Duration::from_secs(1)));
    },
    people: nobody,
};

/// A gate without decisions, three times: ended by default, by the next level, by rejection.
pub const TIMEOUTS: Scenario = Scenario {
    name: "timeouts: Default, Escalate, Reject",
    spec: || {
        let carol = json!([{"after": "10m", "to": [{"kind": "User", "name": "carol"}]}]);
        chain(json!([
            gate("default", json!({"timeout": {"after": "5m", "action": "Default", "default": "the usual"}})),
            gate(
                "escalate",
                json!({"timeout": {"after": "5m", "action": "Escalate", "escalation": carol, "reminderInterval": "2m"}})
            ),
            gate("reject", json!({"onReject": "continue", "timeout": {"after": "5m", "action": "Reject"}})),
            set("send", "{{ steps.default.response }} {{ steps.escalate.decision }} {{ steps.reject.decision }}"),
        ]))
    },
    world: |_| {},
    people: |people| async move { people.decide("carol", "escalate", 400, verdict("Approve")).await }.boxed(),
};

/// Values that do not fit into the journal, from a model and from a person.
pub const LARGE: Scenario = Scenario {
    name: "large values",
    spec: || {
        chain(json!([
            agent("draft", "Write a lot."),
            gate("review", json!({"contextDisplay": "{{ steps.draft.response }}"})),
            set("send", "{{ steps.draft.response }}, {{ steps.draft.response | length }}"),
        ]))
    },
    world: |world| world.answers("refund/draft", Answer::value("ä".repeat(3000)).after(Duration::from_secs(1))),
    people: |people| {
        let parameters = json!({"response": "ö".repeat(2000)});
        async move { people.decide("alice", "review", 60, json!({"verdict": "Modify", "parameters": parameters})).await }.boxed()
    },
};

/// A run that is cancelled while it waits; the approval comes too late.
pub const CANCELLED: Scenario = Scenario {
    name: "cancel while waiting",
    spec: || chain(json!([set("draft", "x"), gate("review", json!({})), post("pay", "42 EUR", "fail")])),
    world: |_| {},
    people: |people| {
        async move {
            let approval = people.wait_for_gate("review").await;
            people.pass(60).await;
            people.set_field(RUN, "cancel", true);
            people.pass(30).await;
            people.vote("alice", &approval, verdict("Approve"));
        }
        .boxed()
    },
};

/// A run that is suspended while a gate waits, decided in that time, and resumed later.
pub const SUSPENDED: Scenario = Scenario {
    name: "suspend and resume",
    spec: || {
        chain(json!([
            gate("review", json!({})),
            post("pay", "42 EUR", "fail"),
            set("note", "{{ steps.pay.response }}")
        ]))
    },
    world: |_| {},
    people: |people| {
        async move {
            people.wait_for_gate("review").await;
            people.set_field(RUN, "suspend", true);
            people.decide("alice", "review", 60, verdict("Approve")).await;
            people.pass(300).await;
            people.set_field(RUN, "suspend", false);
        }
        .boxed()
    },
};

fn build_and_deploy(idempotent: bool) -> Value {
    let plan = json!({"env": [{"name": "PLAN", "value": "{{ steps.plan.response }}"}], "idempotent": idempotent});
    chain(json!([
        set("plan", "42"),
        pod("build", plan),
        gate("review", json!({"contextDisplay": "{{ steps.build.response }}"})),
        pod("deploy", json!({"outputFrom": "log", "idempotent": idempotent})),
        set("note", "{{ steps.build.response }}, {{ steps.deploy.response }}"),
    ]))
}

fn builds_and_deploys(world: &World) {
    world.answers("refund/build", Answer::value("42 files").after(Duration::from_secs(20)));
    let live = json!({"log": "uploading\nlive"});
    world.answers("refund/deploy", Answer::value(live).after(Duration::from_secs(5)));
}

/// set → container → gate → container → set: containers that must not run twice, around a person.
pub const PODS: Scenario = Scenario {
    name: "set, pod, gate, pod, set",
    spec: || build_and_deploy(false),
    world: builds_and_deploys,
    people: |people| {
        async move {
            // After an unknown end of its first container the run fails before the gate.
            if people.wait_for_gate_or_end(RUN, "review").await.is_some() {
                people.decide("alice", "review", 60, json!({"verdict": "Approve", "reason": "checked"})).await;
            }
        }
        .boxed()
    },
};

/// [`PODS`] with containers that may run twice.
pub const IDEMPOTENT_PODS: Scenario =
    Scenario { name: "set, pod, gate, pod, set; idempotent", spec: || build_and_deploy(true), ..PODS };

/// An agent that calls three tools at once: one that reads, and two that people are asked about and that must not be
/// repeated.
pub const CALLS: Scenario = Scenario {
    name: "an agent with three parallel calls, two of them gated",
    spec: || {
        let mut spec = chain(json!([
            {"name": "handle", "agent": {"name": "writer", "input": "Refund 42 EUR."}},
            {"name": "find", "http": {"url": "http://orders.test/{{ args.id }}"}},
            {"name": "pay", "http": {"method": "POST", "url": "http://pay.test/", "body": "{{ args.amount }}"}},
            {"name": "tell", "http": {"method": "POST", "url": "http://mail.test/", "body": "{{ args.text }}"}},
        ]));
        let parameters = json!({"type": "object"});
        let tool = |name: &str, step: &str, effects: &str| json!({"name": name, "step": step, "description": name, "effects": effects, "parameters": parameters});
        spec["agents"][0]["tools"] = json!(["lookup", "refund", "mail"]);
        spec["tools"] = json!([
            tool("lookup", "find", "read"),
            tool("refund", "pay", "irreversible"),
            tool("mail", "tell", "write")
        ]);
        spec["gates"] = json!([gate("changes", json!({"timeout": {"after": "24h"}}))]);
        spec["gates"][0]["type"] = json!("destructiveActions");
        spec
    },
    world: |world| {
        let call = |id: &str, tool: &str, arguments: &str| json!({"id": id, "tool": tool, "arguments": arguments});
        let calls = json!([
            call("c1", "lookup", r#"{"id": 7}"#),
            call("c2", "refund", r#"{"amount": 42}"#),
            call("c3", "mail", r#"{"text": "paid"}"#),
        ]);
        world
            .answers("refund/handle", Answer::value(json!({"text": "", "calls": calls})).after(Duration::from_secs(1)));
        world.answers("refund/handle/.turn-1/.call-1/find", Answer::value("order 7").after(Duration::from_secs(1)));
        world.answers("refund/handle/.turn-1/.call-2/pay", Answer::value("receipt 7").after(Duration::from_secs(2)));
        world.answers("refund/handle/.turn-1/.call-3/tell", Answer::value("sent").after(Duration::from_secs(1)));
        world.answers("refund/handle/.turn-2", Answer::value("all is done").after(Duration::from_secs(1)));
    },
    people: |people| {
        async move {
            people.decide("alice", "handle/.turn-1/.call-3/.gate", 30, verdict("Approve")).await;
            people.decide("bob", "handle/.turn-1/.call-2/.gate", 60, verdict("Approve")).await;
        }
        .boxed()
    },
};

/// An agent that calls three tools at once without gates: two that can be repeated, and one that must not be.
pub const CALLS_AT_ONCE: Scenario = Scenario {
    name: "an agent with three parallel calls, none of them gated",
    spec: || {
        let mut spec = (CALLS.spec)();
        spec["gates"] = json!([]);
        spec["steps"][3]["http"]["method"] = json!("PUT");
        spec
    },
    world: |world| {
        (CALLS.world)(world);
        for (at, step, seconds) in [(1, "find", 1), (2, "pay", 4), (3, "tell", 7)] {
            let answer = Answer::value("done").after(Duration::from_secs(seconds));
            world.answers(format!("refund/handle/.turn-1/.call-{at}/{step}"), answer);
        }
    },
    people: nobody,
};

/// All scenarios that need no node.
pub const ALL: [&Scenario; 11] = [
    &ONE_GATE,
    &PAYMENT,
    &PAYMENT_OR_NOT,
    &DEFERRED,
    &RETRIED,
    &TWO_GATES,
    &BACKOFF,
    &TIMEOUTS,
    &LARGE,
    &CANCELLED,
    &SUSPENDED,
];
