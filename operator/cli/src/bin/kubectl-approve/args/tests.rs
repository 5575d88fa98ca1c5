//! Command lines as users type them, and the arguments that they are parsed into.

#![allow(clippy::unwrap_used)]
use clap::CommandFactory;

use super::{value::parse_workflow, *};

fn parse(line: &str) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(std::iter::once("kubectl-approve").chain(line.split(' ')))
}

#[test]
fn the_command_line_is_valid_for_clap() {
    Arguments::command().debug_assert();
}

#[test]
fn a_bare_name_is_no_subcommand_and_flags_of_the_connection_go_anywhere() {
    let typed = parse("-n finance refund-1 --reason ok").unwrap();
    assert_eq!((typed.name.as_deref(), typed.common.reason.as_deref()), (Some("refund-1"), Some("ok")));
    assert!(typed.command.is_none());
    let typed = parse("--context prod list -A -n finance").unwrap();
    assert_eq!(typed.connection.namespace, ["finance"]);
    assert_eq!(typed.connection.context.as_deref(), Some("prod"));
    assert!(matches!(typed.command, Some(Command::List(List { all_namespaces: true, .. }))));
}

#[test]
fn names_are_taken_as_kubectl_prints_them() {
    assert_eq!(parse_name("approval.signoff.dev/x").unwrap(), "x");
    assert_eq!(parse_name("x").unwrap(), "x");
    assert_eq!(parse_name("refund-4711/all/0/review").unwrap(), "refund-4711/all/0/review");
    assert!(parse_name("approval/").unwrap_err().contains("WORKFLOW/GATE"));
}

#[test]
fn doctor_takes_a_workflow_an_approval_or_a_name() {
    assert_eq!(parse_named("wf/x").unwrap(), Named::Workflow("x".into()));
    assert_eq!(parse_named("approval/x").unwrap(), Named::Approval("x".into()));
    assert_eq!(parse_named("x").unwrap(), Named::Either("x".into()));
    assert_eq!(parse_named("refund/review").unwrap(), Named::Approval("refund/review".into()));
    assert!(parse_named("").is_err() && parse_named("wf/").is_err());
    let typed = parse("doctor -n finance refund --verbose").unwrap().command.unwrap();
    assert!(matches!(typed, Command::Doctor(Doctor { name: Some(_), verbose: true, .. })));
}

#[test]
fn runs_are_named_as_kubectl_prints_them_and_only_final_verbs_ask() {
    assert_eq!(parse_workflow("wf/x").unwrap(), "x");
    assert!(parse_workflow("approval/x").unwrap_err().contains("approval is not workflow"));
    let command = parse("cancel a workflow.signoff.dev/b").unwrap().command.unwrap();
    assert_eq!(command.run_verb(), Some((RunVerb::Cancel, &["a".to_owned(), "b".to_owned()][..], false)));
    assert!(parse("suspend a -y").is_err() && parse("rerun").is_err());
    for (line, despite_unknown) in [("rerun a", false), ("rerun a --despite-unknown", true)] {
        let command = parse(line).unwrap().command.unwrap();
        assert_eq!(command.run_verb(), Some((RunVerb::Rerun { despite_unknown }, &["a".to_owned()][..], true)));
    }
    assert!(parse("status a --watch --all -n x").unwrap().command.unwrap().decisions().is_empty());
}

#[test]
fn a_dry_run_without_a_value_is_checked_by_the_server() {
    for (line, expected) in [
        ("approve x --dry-run", DryRun::Server),
        ("approve --dry-run=none x", DryRun::None),
        ("approve --dry-run=client x", DryRun::Client),
    ] {
        assert_eq!(decisions(line)[0].common.dry_run, Some(expected), "{line}");
    }
    assert!(parse("approve --dry-run=cluster x").is_err());
}

fn decisions(line: &str) -> Vec<DecisionArgs> {
    parse(line).unwrap().command.unwrap().decisions()
}

#[test]
fn facts_are_printed_for_programs_and_pages_are_opened() {
    use crate::output::{
        FactsArgs,
        FactsFormat::{Json, Yaml},
    };
    assert_eq!(decisions("approve x -o json")[0].common.output, FactsArgs { facts: Some(Json) });
    assert_eq!(parse("x --output=yaml").unwrap().common.output, FactsArgs { facts: Some(Yaml) });
    for line in ["status a -o json", "doctor -o yaml", "version -o json"] {
        assert!(parse(line).is_ok(), "{line}");
    }
    assert!(parse("approve x -o wide").is_err() && parse("status a -o json --watch").is_err());
    for (line, expected) in [("show x --web", ""), ("show --web=https://a.example x", "https://a.example")] {
        let Some(Command::Show(show)) = parse(line).unwrap().command else { unreachable!() };
        assert_eq!((show.name.as_str(), show.web.web.as_deref()), ("x", Some(expected)), "{line}");
    }
}

#[test]
fn options_that_web_would_ignore_are_refused() {
    for line in [
        "list --web --all",
        "list -l a=b --web",
        "list --web -o json",
        "list --web --no-headers",
        "list -w --web",
        "show x --web --full",
        "show --web x -o yaml",
        "status a --web --watch",
        "status a --web --all",
        "status a --web -o json",
    ] {
        let refusal = parse(line).unwrap_err();
        assert_eq!(refusal.kind(), clap::error::ErrorKind::ArgumentConflict, "{line}: {refusal}");
        assert!(refusal.to_string().contains("--web"), "{line}: {refusal}");
    }
    for line in ["list -n finance --web", "list -A --web", "list --run a --web", "show x --web", "status a --web"] {
        assert!(parse(line).is_ok(), "{line}");
    }
}

#[test]
fn decisions_without_a_payload_take_several_names() {
    for verb in ["approve", "reject", "abort", "skip"] {
        let decisions = decisions(&format!("{verb} a approval/b --reason ok c"));
        let names: Vec<_> = decisions.iter().map(|args| args.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"], "{verb}");
        assert!(decisions.iter().all(|args| args.common.reason.as_deref() == Some("ok")), "{verb}");
        assert!(parse(verb).is_err(), "{verb}");
    }
    assert!(parse("modify a b --set x=y").is_err());
}

#[test]
fn a_decision_can_be_about_a_turn() {
    for line in
        ["approve a --turn", "reject a --turn", "defer a --turn --guidance x", "skip --turn a", "abort a --turn"]
    {
        assert!(decisions(line)[0].common.turn, "{line}");
    }
    assert!(parse("a --turn").unwrap().common.turn && !decisions("approve a")[0].common.turn);
    let help = parse("approve --help").unwrap_err().to_string();
    assert!(help.contains("Decide the other open calls of the same turn of the agent too"), "{help}");
}

#[test]
fn a_list_takes_namespaces_labels_and_formats() {
    let typed = parse("list -n a -n b -l x=y -o jsonpath={.items[*].metadata.name} --no-headers").unwrap();
    assert_eq!(typed.connection.namespace, ["a", "b"]);
    let Some(Command::List(list)) = typed.command else { unreachable!() };
    assert_eq!((list.selector.as_deref(), list.output.no_headers), (Some("x=y"), true));
    assert!(parse("list -o xml").unwrap_err().to_string().contains("write wide, name, json"));
}

#[test]
fn modify_takes_either_edit_or_set_and_retry_takes_no_edit() {
    assert_eq!(decisions("modify x --edit")[0].payload, Payload::Edited);
    assert!(parse("modify x --edit --set a=b").is_err());
    assert!(parse("retry x --edit").is_err());
}

#[test]
fn a_wait_has_a_length_or_ends_with_the_deadline() {
    let wait = |line: &str| parse(line).map(|typed| typed.command.unwrap().decisions().remove(0).common.wait);
    assert_eq!(wait("approve x").unwrap(), None);
    assert_eq!(wait("approve x --wait").unwrap(), Some(Wait::UntilDeadline));
    let seconds = |count| Some(Wait::AtMost(std::time::Duration::from_secs(count)));
    assert_eq!(wait("approve --wait=5m x").unwrap(), seconds(300));
    assert_eq!(wait("reject x --wait=0s").unwrap(), seconds(0));
    let spaced = parse("approve x --wait 5m").unwrap_err().to_string();
    assert!(spaced.contains("5m is a duration and not a name; write --wait=5m, with an equals sign"), "{spaced}");
    assert!(parse("show 1h-30m-review-0a1b2c3d4e").is_ok() && parse("show 24h-48h").is_ok(), "names of runs");
    assert!(wait("approve x --wait=1h-5m").unwrap_err().to_string().contains("is not a duration"));
    assert!(wait("approve x --wait=soon").unwrap_err().to_string().contains("is not a duration like 30s, 5m or 24h"));
}

#[test]
fn the_help_of_modify_says_what_each_kind_of_gate_takes() {
    let help = parse("modify --help").unwrap_err().to_string();
    for field in ["{response}", "{route}", "{subtasks}", "{draft}", "{workers}", "show"] {
        assert!(help.contains(field), "{help}");
    }
}

#[test]
fn respond_needs_an_answer_of_one_kind() {
    assert!(parse("respond x").is_err());
    assert!(parse("respond x --response a --answer b=c").is_err());
    assert!(parse("respond x --answer b=c --choose d=e").is_ok());
    assert!(parse("respond x --answer b").is_err());
    assert!(parse("defer x").is_err());
}

#[test]
fn the_default_of_a_wait_can_be_longer() {
    assert_eq!(default_wait(None).unwrap(), DEFAULT_WAIT);
    assert_eq!(default_wait(Some("1m")).unwrap(), std::time::Duration::from_secs(60));
    let invalid = default_wait(Some("soon")).unwrap_err();
    assert!(invalid.starts_with("SIGNOFF_DEFAULT_WAIT: `soon` is not a duration"), "{invalid}");
}

#[test]
fn suggested_commands_repeat_the_flags_of_the_connection() {
    let connection = Connection {
        kubeconfig: Some("a config".into()),
        context: Some("prod".into()),
        impersonate: Some("zoe".into()),
        impersonate_group: vec!["finance".into()],
        ..Connection::default()
    };
    assert_eq!(
        CallFlags::from(&connection).show(Some("finance"), "x"),
        "kubectl approve show x -n finance --kubeconfig 'a config' --context prod --as zoe --as-group finance"
    );
}
