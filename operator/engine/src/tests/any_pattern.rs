//! Random Workflows of all patterns. In any order and grouping of events, and after any crash, a run has the same
//! journal and the same outputs, and no call that must not be repeated begins twice.
//!
//! Each transition starts from the JSON of the last commit, so every transition is also a restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use signoff_api::{
    Digest, Moment, Outcome, Seq, Verdict,
    approval::ApprovalPhase,
    journal::{StepKind, StepPhase, StepRecord},
};

use crate::{
    Control, End, Fact, Journal, Now, Plan, advance,
    tests::test_run::{gate, in_branch, of_pattern, plan_of},
    transition::{Blobs, Command, Failure, Reply},
};

/// Returns a step of a list. `before`: an earlier step that a gate can review, if there is one.
fn step(name: &str, kind: u8, before: Option<&str>) -> Value {
    let verdicts = if before.is_some() {
        json!(["Approve", "Modify", "Respond", "Retry", "Skip"])
    } else {
        json!(["Approve", "Respond", "Retry", "Skip"])
    };
    match kind % 5 {
        0 => {
            json!({"name": name, "agent": {"name": "a", "input": format!("do {name}")}, "retry": {"limit": 2, "backoff": {"base": "1ms", "jitter": 0}}})
        }
        1 => json!({"name": name, "hitl": gate(json!({"allowedVerdicts": verdicts, "onReject": "continue"}))}),
        2 => json!({"name": name, "http": {"method": "POST", "url": "http://x/"}, "onError": "continue"}),
        3 => json!({"name": name, "set": {"value": format!("{name} of {{{{ inputs.topic }}}}")}}),
        _ => json!({"name": name, "agent": {"name": "b", "input": format!("check {name}")}, "onError": "escalate",
            "outputSchema": {"type": "object", "required": ["ok"]}}),
    }
}

/// Returns a list of steps. `kinds` has a number for the kind of each step.
fn steps_of_kinds(kinds: &[u8]) -> Vec<Value> {
    let step_at = |(index, kind): (usize, &u8)| {
        let has_reviewed = kinds[..index].iter().any(|kind| kind % 5 != 1);
        step(&format!("s{index}"), *kind, has_reviewed.then_some("something"))
    };
    kinds.iter().enumerate().map(step_at).collect()
}

/// Generates a spec of one of the patterns.
pub(crate) fn spec() -> impl Strategy<Value = Value> {
    let kinds = || prop::collection::vec(any::<u8>(), 1..5);
    let many = prop::collection::vec(kinds(), 2..5);
    (0..7_u8, many, any::<u8>(), prop::option::of(1..3_i32)).prop_map(|(pattern, lists, bits, limit)| {
        let review = (bits & 1 == 1).then(|| gate(json!({"allowedVerdicts": ["Approve", "Retry"]})));
        let branches = || -> Vec<Value> {
            let of = |(at, kinds): (usize, &Vec<u8>)| {
                steps_of_kinds(kinds).into_iter().map(move |step| in_branch(&format!("b{at}"), step))
            };
            lists.iter().enumerate().flat_map(of).collect()
        };
        let mut fields = match pattern {
            0 => json!({"steps": steps_of_kinds(&lists.concat())}),
            1 => {
                let kinds = lists.concat();
                let mut tasks = steps_of_kinds(&kinds);
                for (at, task) in tasks.iter_mut().enumerate().skip(1) {
                    let deps: BTreeSet<usize> = [usize::from(kinds[at]) % at, usize::from(bits) % at].into();
                    task["dependsOn"] = json!(deps.iter().map(|dep| format!("s{dep}")).collect::<Vec<_>>());
                    // A gate of a dag reviews another task.
                    if task.get("hitl").is_some() {
                        task["hitl"]["allowedVerdicts"] = json!(["Approve", "Respond", "Retry", "Skip"]);
                    }
                }
                json!({"pattern": {"dag": {}}, "steps": tasks})
            }
            2 => json!({"pattern": {"routing": {"router": {"agent": "router", "input": "where?"}}}, "steps": branches()}),
            3 => {
                let steps = [branches(), vec![step("sum", bits, None)]].concat();
                json!({"pattern": {"parallel": {"reduce": "sum"}}, "steps": steps})
            }
            4 => json!({"pattern": {"evaluatorOptimizer": {"producer": "a", "input": "x", "evaluator": {"agent": "judge"},
                "onExhausted": "acceptBest"}}}),
            5 => json!({"pattern": {"orchestratorWorkers": {"orchestrator": {"agent": "boss", "input": "x"},
                "worker": {"agent": "a"}, "reduce": "sum"}}, "steps": [step("sum", bits, None)]}),
            _ => {
                let nodes = steps_of_kinds(&lists.concat());
                let edges: Vec<_> = (1..nodes.len()).map(|at| json!({"from": format!("s{}", at - 1), "choose": [
                    {"when": format!("size(steps.s0.visits) < 2 && {}", at == nodes.len() - 1), "to": "s0"},
                    {"when": "else", "to": format!("s{at}")}]})).collect();
                json!({"pattern": {"graph": {"edges": edges}}, "steps": nodes})
            }
        };
        let mut gates = Vec::new();
        for (place, field, name) in [
            ("/pattern/routing/router", "review", "review"),
            ("/pattern/evaluatorOptimizer", "reviewGate", "review"),
            ("/pattern/orchestratorWorkers", "decompositionReview", "decomposition"),
            ("/pattern/orchestratorWorkers", "reduceReview", "reduce-review"),
        ] {
            if let (Some(place), Some(review)) = (fields.pointer_mut(place), &review) {
                place[field] = json!(name);
                gates.push(json!({"name": name, "hitl": review}));
            }
        }
        for (place, field) in [
            ("/pattern/dag", "maxParallel"),
            ("/pattern/parallel", "maxParallel"),
            ("/pattern/orchestratorWorkers/orchestrator", "maxWorkers"),
        ] {
            if let (Some(place), Some(limit)) = (fields.pointer_mut(place), limit) {
                place[field] = json!(limit);
            }
        }
        let has = |word: &str| fields.to_string().contains(word);
        let (escalates, asks_agents) = (has(r#""onError":"escalate""#), has(r#""agent":"#));
        let mut spec = of_pattern(fields);
        if escalates {
            let escalation = gate(json!({"allowedVerdicts": ["Retry", "Skip"]}));
            gates.push(json!({"name": "help", "type": "errorEscalation", "afterAttempts": 2, "hitl": escalation}));
        }
        if bits & 2 == 2 {
            let all = if asks_agents { json!(["Approve", "Respond", "Retry"]) } else { json!(["Approve", "Respond"]) };
            let release = gate(json!({"allowedVerdicts": all}));
            gates.push(json!({"name": "fin", "type": "finalResponse", "hitl": release}));
        }
        spec["gates"] = json!(gates);
        spec
    })
}

/// Returns a number below `count` that is always the same for a path and attempt.
fn choose_by_path(path: &str, attempt: i32, count: usize) -> usize {
    let digest = Digest::of_bytes(format!("{path}@{attempt}").as_bytes());
    usize::from_str_radix(digest.short(6), 16).unwrap() % count
}

/// Returns the fact about an open record, which depends on its path and attempt only.
fn choose_fact(record: &StepRecord, allowed_verdicts: &BTreeMap<String, Vec<Verdict>>, at: Moment) -> Fact {
    let (path, attempt) = (record.path.clone(), record.attempt);
    if record.kind == StepKind::Hitl {
        let allowed_verdicts = &allowed_verdicts[&path];
        let verdict = allowed_verdicts[choose_by_path(&path, 1, allowed_verdicts.len())];
        let outcome = Outcome {
            verdict: Some(verdict),
            phase: ApprovalPhase::of(verdict),
            response: (verdict == Verdict::Respond).then(|| format!("said at {path}")),
            parameters: (verdict == Verdict::Modify)
                .then(|| serde_json::from_value(json!({"response": "better"})).unwrap()),
            ..Outcome::default()
        };
        return Fact::ApprovalDecided { path, outcome: Box::new(outcome) };
    }
    if choose_by_path(&path, attempt, 6) == 0 && !path.starts_with('.') {
        let failure = Failure {
            class: "Status".into(),
            message: "no".into(),
            retryable: choose_by_path(&path, attempt, 2) == 0,
            unknown: choose_by_path(&path, attempt, 4) == 0,
            not_before: None,
            facts: BTreeMap::new(),
            log: None,
        };
        return Fact::CallFinished { path, attempt, result: Err(failure), at };
    }
    let first_part = path.trim_start_matches('.').split(['#', '/', '-']).next().unwrap_or_default().to_owned();
    let text = match first_part.as_str() {
        "router" => r#"{"route": "b1"}"#.to_owned(),
        "evaluator" => format!("{{\"score\": {}}}", 60 + 10 * choose_by_path(&path, attempt, 4)),
        "orchestrator" => r#"[{"task": "one"}, {"task": "two"}, {"task": "three"}]"#.to_owned(),
        _ if path.contains("/.ask") || choose_by_path(&path, attempt, 3) > 0 => r#"{"ok": true}"#.to_owned(),
        _ => format!("reply of {path}"),
    };
    Fact::CallFinished { path, attempt, result: Ok(Reply { response: json!(text), ..Reply::default() }), at }
}

/// The end of a run and of its records, without the parts that depend on the order of concurrent events.
#[derive(Debug, PartialEq)]
struct FinalRunState {
    end: End,
    records: BTreeMap<(String, i32), FinalRecordState>,
}

/// The result of a record: its kind and phase, its response if it is short, the digest of its input.
type FinalRecordState = (StepKind, StepPhase, Option<Value>, Option<Digest>);

/// Drives a run to its end. `random_state` is the seed of the order of events, of their batches, and of the crashes.
fn drive_run(plan: &Plan, mut random_state: u64) -> FinalRunState {
    let mut draw = |limit: usize| {
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        usize::try_from(random_state % (limit.max(1) as u64)).unwrap()
    };
    let mut now = Now::new(Moment::from(jiff::Timestamp::from_second(1_800_000_000).unwrap()), "e");
    let (mut seq, mut records, mut blobs) = (Seq::NONE, Vec::<StepRecord>::new(), Blobs::new());
    let mut allowed: BTreeMap<String, Vec<Verdict>> = BTreeMap::new();
    for _ in 0..2000 {
        now.at = now.at.after(std::time::Duration::from_secs(600));
        let open: Vec<_> = records.iter().filter(|r| !r.phase.is_end()).collect();
        let mut facts: Vec<_> =
            open.iter().filter(|_| draw(2) == 0).map(|record| choose_fact(record, &allowed, now.at)).collect();
        if facts.is_empty() && !open.is_empty() {
            facts.push(choose_fact(open[draw(open.len())], &allowed, now.at));
        }
        if draw(5) == 0 && !facts.is_empty() {
            let repeated_fact = facts[draw(facts.len())].clone();
            facts.push(repeated_fact);
        }
        let transition = advance(plan, Control::default(), Journal::new(seq, records.clone()), facts, &blobs, &now);
        assert!(transition.missing.is_empty());
        for command in &transition.commands {
            if let Command::Ask(ask) = command {
                allowed.insert(ask.path.clone(), ask.request.allowed_verdicts.clone());
            }
        }
        // A crash between the transition and its commit: nothing is stored.
        if draw(6) == 0 {
            continue;
        }
        for old in records.iter().filter(|r| r.phase.is_end()) {
            assert_eq!(
                transition.journal.get(&old.path, old.attempt).map(|r| serde_json::to_value(r).unwrap()),
                Some(serde_json::to_value(old).unwrap())
            );
        }
        blobs.extend(transition.blobs.clone());
        seq = transition.journal.seq();
        records = serde_json::from_value(serde_json::to_value(transition.journal.records()).unwrap()).unwrap();
        let replay = advance(plan, Control::default(), Journal::new(seq, records.clone()), Vec::new(), &blobs, &now);
        assert_eq!(replay.journal.seq(), seq, "a replay adds nothing: {:#?}\n{:#?}", records, replay.journal.records());
        if let Some(end) = transition.end {
            assert!(
                replay.commands.is_empty() && replay.end == Some(end.clone()),
                "a finished journal issues no command"
            );
            let final_state = |r: &StepRecord| {
                let text = r.response.as_ref().map(|text| text.0.clone());
                ((r.path.clone(), r.attempt), (r.kind, r.phase, text, r.input_digest.clone()))
            };
            return FinalRunState { end, records: records.iter().map(final_state).collect() };
        }
    }
    panic!("the run does not end: {:#?}", records.iter().map(|r| (&r.path, r.attempt, r.phase)).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_result_does_not_depend_on_order_batches_and_crashes(spec in spec(), chances in prop::collection::vec(1_u64.., 2)) {
        println!("tried: 1 property cases");
        let plan = plan_of(spec);
        let first = drive_run(&plan, chances[0]);
        for ((path, attempt), (kind, ..)) in &first.records {
            let is_allowed = *kind != StepKind::Http || *attempt == 1 || first.records.contains_key(&(format!("{path}/.error"), 1));
            prop_assert!(is_allowed, "{path} was repeated, and nobody said so");
        }
        for chance in &chances[1..] {
            let other = drive_run(&plan, *chance);
            // A failure that ends the run also ends the other activities in flight, which have random states.
            if matches!(first.end, End::Succeeded(_)) {
                prop_assert_eq!(&first, &other);
            } else {
                prop_assert_eq!(first.end.phase(), other.end.phase());
            }
        }
    }
}
