//! Tests of the semantics of parallel branches.

use serde_json::{Value, json};
use signoff_api::Verdict;

use crate::{
    Fact,
    tests::test_run::{TestRun, agent, decided, errors, gate, hitl, in_branch, of_pattern, set},
};

fn parallel_spec(steps: Value, reduce: Option<Value>) -> Value {
    let mut spec = of_pattern(json!({"pattern": {"parallel": {}}, "steps": steps}));
    if let Some(reduce) = reduce {
        spec["pattern"]["parallel"]["reduce"] = reduce["name"].clone();
        spec["steps"].as_array_mut().unwrap().push(reduce);
    }
    spec
}

fn two_branches() -> Value {
    json!([in_branch("web", agent("search", "a", "web")), in_branch("news", agent("search", "a", "news"))])
}

#[test]
fn branches_run_at_the_same_time_and_cannot_read_each_other() {
    let mut run = TestRun::of(parallel_spec(two_branches(), None));
    assert_eq!(run.calls(), ["web/search@1", "news/search@1"]);
    run.reply("web/search", 1, "w");
    run.reply("news/search", 1, "n");
    assert_eq!(run.expect_success(), "Branch web:\nw\n\n---\n\nBranch news:\nn");
    let found_errors = errors(parallel_spec(
        json!([in_branch("x", set("one", "1")), in_branch("y", set("two", "{{ steps.one.response }}"))]),
        None,
    ));
    assert!(found_errors[0].contains("spec.steps[1].set.value"), "{found_errors:?}");
}

#[test]
fn gates_of_branches_ask_together_and_are_decided_in_any_order() {
    let branch = |name| [in_branch(name, hitl("ask", json!({}))), in_branch(name, set("say", "{{ hitl_response }}"))];
    let mut run = TestRun::of(parallel_spec(json!([branch("x"), branch("y"), branch("z")].concat()), None));
    assert_eq!(run.open(), ["x/ask", "y/ask", "z/ask"]);
    assert_eq!(run.transition.pending.len(), 3);
    run.respond("z/ask", "Z");
    assert_eq!(run.response("z/say"), "Z", "one answer never satisfies two gates");
    assert_eq!(run.open(), ["x/ask", "y/ask"]);
    run.respond("x/ask", "X");
    run.respond("y/ask", "Y");
    assert_eq!(run.expect_success(), "Branch x:\nX\n\n---\n\nBranch y:\nY\n\n---\n\nBranch z:\nZ");
}

#[test]
fn max_parallel_bounds_the_calls_in_flight() {
    let mut spec = parallel_spec(two_branches(), None);
    spec["pattern"]["parallel"]["maxParallel"] = json!(1);
    let mut run = TestRun::of(spec);
    assert_eq!(run.calls(), ["web/search@1"]);
    run.reply("web/search", 1, "w");
    assert_eq!(run.calls(), ["news/search@1"]);
}

#[test]
fn a_reduce_step_reads_the_branches_in_the_declared_order() {
    let reduce = set(
        "sum",
        "{% for name, branch in branches.items() %}{{ name }}={{ branch.response[:1] }}/{{ branch.status }}/{{ branch.steps.search.response }};{% endfor %}",
    );
    let mut run = TestRun::of(parallel_spec(two_branches(), Some(reduce)));
    run.reply("news/search", 1, "new");
    run.reply("web/search", 1, "wide");
    assert_eq!(run.expect_success(), "web=w/succeeded/wide;news=n/succeeded/new;");
}

#[test]
fn a_reduce_step_begins_when_all_branches_are_done() {
    let mut run = TestRun::of(parallel_spec(two_branches(), Some(agent("sum", "b", "sum up {{ last_response }}"))));
    run.reply("web/search", 1, "w");
    assert_eq!(run.calls(), ["news/search@1"]);
    run.reply("news/search", 1, "n");
    assert!(run.prompt_at("sum").contains("Branch web:\nw"));
    run.reply("sum", 1, "all");
    assert_eq!(run.expect_success(), "all");
}

#[test]
fn interleaved_steps_of_branches_run_in_the_order_of_the_list() {
    let steps = json!([
        in_branch("x", set("one", "1")),
        in_branch("y", set("one", "a")),
        in_branch("x", set("two", "{{ steps.one.response }}{{ steps[0].response }}2")),
        in_branch("y", set("two", "{{ steps.one.response }}b")),
    ]);
    let run = TestRun::of(parallel_spec(steps, None));
    assert_eq!(run.expect_success(), "Branch x:\n112\n\n---\n\nBranch y:\nab");
    for path in ["x/one", "x/two", "y/one", "y/two"] {
        assert!(run.record(path).phase.is_end(), "{path}");
    }
}

#[test]
fn outputs_read_the_reduce_step_by_name() {
    let mut spec = parallel_spec(two_branches(), Some(set("sum", "{{ last_response | length }}")));
    spec["outputs"] = json!({"from": "{{ steps.sum.response }} of {{ steps.sum.type }}"});
    let mut run = TestRun::of(spec.clone());
    run.reply("web/search", 1, "w");
    run.reply("news/search", 1, "n");
    assert_eq!(run.expect_success(), "34 of set");
    spec["outputs"]["from"] = json!("{{ steps.search.response }}");
    assert!(errors(spec)[0].contains("unknown reference `steps.search"));
}

#[test]
fn a_reduce_gate_approves_or_replaces_the_joined_text() {
    let joined = "Branch x:\n1\n\n---\n\nBranch y:\n2";
    let run_at_reduce_gate = || {
        let steps = json!([in_branch("x", set("s", "1")), in_branch("y", set("s", "2"))]);
        TestRun::of(parallel_spec(steps, Some(hitl("sum", json!({})))))
    };
    let mut run = run_at_reduce_gate();
    assert_eq!(run.asked("sum").request.reviews.as_ref().unwrap().response, joined);
    run.approve("sum");
    assert_eq!(run.expect_success(), joined);
    let mut run = run_at_reduce_gate();
    run.respond("sum", "mine");
    assert_eq!(run.expect_success(), "mine");
    let mut run = run_at_reduce_gate();
    run.modify("sum", json!({"response": "edited"}));
    assert_eq!(run.expect_success(), "edited");
    let mut run = run_at_reduce_gate();
    run.decide("sum", decided(Verdict::Reject));
    run.expect_rejection();
}

#[test]
fn a_decision_in_a_branch_does_not_decide_the_reduce_gate() {
    let steps = json!([in_branch("x", hitl("ask", json!({}))), in_branch("y", hitl("ask", json!({})))]);
    let mut run = TestRun::of(parallel_spec(steps, Some(hitl("sum", json!({})))));
    run.approve("x/ask");
    run.approve("y/ask");
    assert_eq!(run.open(), ["sum"]);
    assert_eq!(run.transition.end, None);
}

#[test]
fn a_failed_branch_cancels_or_awaits_the_other_branches() {
    let mut run = TestRun::of(parallel_spec(two_branches(), None));
    run.fail("web/search", 1, false, false);
    assert!(run.expect_failure().contains("503"));
    assert!(run.record("news/search").phase.is_end(), "its sibling is called off");
    let mut spec = parallel_spec(two_branches(), None);
    spec["pattern"]["parallel"]["failFast"] = json!(false);
    let mut run = TestRun::of(spec);
    run.fail("web/search", 1, false, false);
    assert_eq!(run.calls(), ["news/search@1"]);
    run.reply("news/search", 1, "n");
    assert!(run.expect_failure().contains("503"));
    assert_eq!(run.response("news/search"), "n", "what it came to is kept");
}

#[test]
fn an_abort_in_a_branch_ends_the_run_and_keeps_finished_steps() {
    let steps = json!([
        in_branch("x", hitl("ask", json!({}))),
        in_branch("y", set("s", "2")),
        in_branch("y", hitl("ask", json!({}))),
    ]);
    let mut run = TestRun::of(parallel_spec(steps, None));
    run.decide("x/ask", decided(Verdict::Abort));
    assert!(matches!(run.transition.end, Some(crate::End::Aborted(_))));
    assert_eq!(run.response("y/s"), "2");
    assert!(run.open().is_empty());
}

#[test]
fn an_agent_remembers_only_its_own_branch() {
    let steps = json!([
        in_branch("x", agent("one", "a", "x1")),
        in_branch("x", agent("two", "a", "x2")),
        in_branch("y", agent("one", "a", "y1")),
    ]);
    let mut run = TestRun::of(parallel_spec(steps, None));
    run.reply("y/one", 1, "from y");
    run.reply("x/one", 1, "from x");
    assert_eq!(run.conversation("x/two"), ["x1", "from x", "x2"]);
}

#[test]
fn a_single_branch_and_a_reduce_named_like_a_branch_are_refused() {
    let found_errors = errors(parallel_spec(json!([in_branch("x", set("s", "1"))]), Some(set("x", "1"))));
    assert!(found_errors.iter().any(|c| c.contains("at least two branches")), "{found_errors:?}");
    assert!(found_errors.iter().any(|c| c.contains("steps[1].name")), "{found_errors:?}");
}

#[test]
fn a_gate_can_be_the_first_or_last_step_of_a_branch() {
    let steps = json!([
        in_branch("first", hitl("ask", json!({}))),
        in_branch("first", set("s", "1")),
        in_branch("last", set("s", "1")),
        in_branch("last", hitl("ask", gate(json!({})))),
    ]);
    let mut run = TestRun::of(parallel_spec(steps, None));
    assert_eq!(run.open(), ["first/ask", "last/ask"]);
    run.modify("last/ask", json!({"response": "edited"}));
    run.approve("first/ask");
    assert_eq!(run.expect_success(), "Branch first:\n1\n\n---\n\nBranch last:\nmodified");
}

#[test]
fn a_replay_of_a_failed_run_begins_no_waiting_calls() {
    let steps = json!([
        in_branch("a", hitl("ask", json!({}))),
        in_branch("a", agent("work", "a", "x")),
        in_branch("b", hitl("ask", json!({}))),
        in_branch("b", agent("work", "a", "x")),
        in_branch("c", agent("fail", "b", "x")),
    ]);
    let mut run = TestRun::of(of_pattern(json!({"pattern": {"parallel": {"maxParallel": 1}}, "steps": steps})));
    let approval_at =
        |path: &str| Fact::ApprovalDecided { path: path.into(), outcome: Box::new(decided(Verdict::Approve)) };
    let at = run.clock;
    let failure = crate::transition::Failure {
        class: "Status".into(),
        message: "no".into(),
        retryable: false,
        unknown: false,
        not_before: None,
        facts: std::collections::BTreeMap::new(),
        log: None,
    };
    let failed_call = Fact::CallFinished { path: "c/fail".into(), attempt: 1, result: Err(failure), at };
    run.take(vec![approval_at("a/ask"), approval_at("b/ask"), failed_call]);
    run.expect_failure();
    let records = run.journal.records().iter().count();
    run.take(Vec::new());
    assert_eq!(run.journal.records().iter().count(), records, "a replay adds nothing");
}
