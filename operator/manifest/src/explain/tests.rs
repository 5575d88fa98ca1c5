//! Tests of the explanations, and that each word that people can meet has one.
#![allow(clippy::unwrap_used)]

use signoff_api::{
    FailureClass, Verdict, approval::ApprovalPhase, conditions, gate::TimeoutAction, workflow::WorkflowPhase,
};

use super::*;

fn has(sort: &str, word: &str) -> bool {
    all_terms().any(|term| term.sort == sort && term.word == word)
}

#[test]
fn a_field_is_explained_like_kubectl_does() {
    let page = explain("workflow.spec.steps[1].hitl.timeout").unwrap();
    assert!(page.starts_with("KIND:   Workflow\nFIELD:  spec.steps.hitl.timeout <object>\n"), "{page}");
    assert!(page.contains("The deadline and its consequence."), "{page}");
    assert!(page.contains("  action <string>\n"), "{page}");
    let page = explain("spec.steps.hitl.timeout.action").unwrap();
    assert!(page.contains("one of Reject, Approve, Retry, Escalate, Abort, Skip, Default, Expire"), "{page}");
    let page = explain("Workflow.spec.steps.hitl.approvers").unwrap();
    assert!(page.contains("<[]object>") && page.contains("at most 64 items") && page.contains("RULES"), "{page}");
}

#[test]
fn a_rule_is_explained_once() {
    for path in ["hitl", "hitl.approvers", "spec.steps"] {
        let page = explain(path).unwrap();
        let (_, rules) = page.split_once("\nRULES\n").unwrap();
        let rules = rules.split_once("\nFIELDS").map_or(rules, |(rules, _)| rules);
        let first: Vec<&str> = rules.split_whitespace().take(6).collect();
        let words: Vec<&str> = rules.split_whitespace().collect();
        assert_eq!(words.windows(first.len()).filter(|part| *part == first).count(), 1, "{path}: {page}");
    }
}

#[test]
fn a_field_is_found_by_the_end_of_its_path_too() {
    assert_eq!(explain("hitl.timeout").unwrap(), explain("workflow.spec.steps.hitl.timeout").unwrap());
    assert!(explain("dag").unwrap().contains("spec.pattern.dag <object>"));
    assert!(explain("clusterapprovalpolicy.spec.steps").unwrap().contains("KIND:   ClusterApprovalPolicy"));
}

#[test]
fn a_gate_is_explained_at_each_of_its_paths() {
    for path in ["spec.steps.hitl.approvers", "spec.gates.hitl.approvers"] {
        assert!(explain(path).unwrap().contains("The users, groups and service accounts that can decide."), "{path}");
    }
}

#[test]
fn a_word_is_explained_with_everything_it_means() {
    let text = explain("retry").unwrap();
    assert!(text.contains("Retry (verdict)") && text.contains("Retry (timeout action)"), "{text}");
    assert!(explain("quorums").unwrap().starts_with("quorum (rule of a gate)"));
    assert!(explain("RequesterIsMachine").unwrap().contains("spec.requestedFor"));
}

#[test]
fn every_gate_type_is_explained() {
    use signoff_api::gate::GateType as G;
    let of_steps = [G::Step, G::PlanApproval, G::FinalResponse, G::OutputValidation, G::ErrorEscalation, G::StepStart];
    let of_agents = [G::ToolExecution, G::SpecificTools, G::DestructiveActions, G::Custom, G::Question];
    for type_ in of_steps.into_iter().chain(of_agents) {
        let name = serde_json::to_value(type_).unwrap();
        assert!(has("gate type", name.as_str().unwrap()), "{name}");
    }
    assert!(explain("finalresponse").unwrap().starts_with("finalResponse (gate type)"));
    assert!(explain("steps").unwrap().contains("FIELD:  spec.steps"), "a field keeps its name");
}

#[test]
fn a_misspelt_name_gets_the_nearest_one() {
    assert_eq!(explain("Superseeded").unwrap_err(), "unknown term Superseeded: did you mean Superseded?");
    let why = explain("workflow.spec.steps.hitl.timeot").unwrap_err();
    assert_eq!(why, "unknown field timeot in spec.steps.hitl: did you mean timeout?");
    assert!(explain("zzzz").unwrap_err().contains("there are"));
}

#[test]
fn every_verdict_phase_condition_and_timeout_action_is_explained() {
    for verdict in Verdict::ALL {
        assert!(has("verdict", verdict.name()), "{verdict}");
    }
    use TimeoutAction as T;
    for action in [T::Reject, T::Approve, T::Retry, T::Escalate, T::Abort, T::Skip, T::Default, T::Expire] {
        assert!(has("timeout action", &format!("{action:?}")), "{action:?}");
    }
    use WorkflowPhase as W;
    for phase in [
        W::Pending,
        W::Running,
        W::Waiting,
        W::Suspended,
        W::Succeeded,
        W::Failed,
        W::Rejected,
        W::Aborted,
        W::Cancelled,
    ] {
        assert!(has("phase of a Workflow", phase.name()), "{phase:?}");
    }
    use ApprovalPhase as A;
    for phase in [
        A::Pending,
        A::Overdue,
        A::Approved,
        A::Rejected,
        A::Modified,
        A::Responded,
        A::Deferred,
        A::Skipped,
        A::Aborted,
        A::Retried,
        A::Expired,
        A::Cancelled,
        A::Superseded,
    ] {
        assert!(has("phase of an Approval", &format!("{phase:?}")), "{phase:?}");
    }
    for condition in [
        conditions::ACCEPTED,
        conditions::GUARDED,
        conditions::FOREIGN_MUTATION,
        conditions::CLOCK_SKEWED,
        conditions::HELD,
        conditions::RESTORED,
        conditions::WAITING,
        conditions::PODS_PENDING,
        conditions::CALLS_PENDING,
        conditions::STALLED,
        conditions::QUARANTINED,
        conditions::VALUE_UNAVAILABLE,
        conditions::FINISHED,
        conditions::COMPLETE,
        conditions::FAILED,
        conditions::DECIDED,
        conditions::UNDECIDABLE,
        conditions::NOTIFIED,
    ] {
        assert!(has("condition", condition), "{condition}");
    }
}

#[test]
fn every_reason_of_a_condition_is_explained() {
    let source = include_str!("../../../api/src/conditions.rs");
    let documented =
        source.lines().filter(|line| line.starts_with("///")).flat_map(|line| line.split('`').skip(1).step_by(2));
    for word in documented.filter(|word| word.starts_with(char::is_uppercase) && !["True", "False"].contains(word)) {
        assert!(has("reason", word), "{word}");
    }
    let (_, reasons) = source.split_once("pub mod reason {").unwrap();
    let (reasons, _) = reasons.split_once("\n}").unwrap();
    let reasons: Vec<&str> =
        reasons.lines().filter(|line| line.contains("pub const")).filter_map(|line| line.split('"').nth(1)).collect();
    assert!(reasons.len() > 30, "{reasons:?}");
    for reason in reasons {
        assert!(has("reason", reason), "{reason}");
    }
}

#[test]
fn every_class_of_an_error_is_explained() {
    for class in FailureClass::ALL {
        assert!(has("class of an error", class.name()), "{class:?}");
    }
    assert!(explain("Condition").unwrap().starts_with("Condition (class of an error)"));
}

#[test]
fn every_problem_of_a_file_is_explained() {
    let sources = [
        include_str!("../check.rs"),
        include_str!("../schema.rs"),
        include_str!("../rules.rs"),
        include_str!("../../../strands/src/lib.rs"),
        include_str!("../../../strands/src/check.rs"),
    ];
    let mut count = 0;
    for source in sources {
        for call in ["error(", "warn("] {
            let reasons =
                source.split(call).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
            for reason in reasons {
                assert!(has("problem of a file", reason), "{reason}");
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count}");
}
