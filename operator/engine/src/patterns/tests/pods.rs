//! Tests of the semantics of containers: their input, the gates about them, and the consequences of their ends.

use serde_json::{Value, json};
use signoff_api::{Verdict, journal::StepPhase};

use crate::tests::test_run::{TestRun, chain_of, decided, errors, gate, hitl, set};

fn pod(name: &str, more: Value) -> Value {
    let mut pod = json!({"image": "tool@sha256:1", "command": ["tool"]});
    for (key, value) in more.as_object().unwrap() {
        pod[key] = value.clone();
    }
    json!({"name": name, "pod": pod})
}

fn with_fields(mut step: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        step[key] = value.clone();
    }
    step
}

fn run_with_gate(type_: &str, verdicts: &[&str], steps: Value) -> TestRun {
    let mut spec = chain_of(steps);
    spec["gates"] = json!([{"name": "human", "type": type_, "steps": ["build"], "hitl": gate(json!({"allowedVerdicts": verdicts}))}]);
    TestRun::of(spec)
}

#[test]
fn rendered_values_reach_a_container_as_environment_and_files_only() {
    let step = pod(
        "build",
        json!({
            "args": ["--flag", "$(HOME)"], "env": [{"name": "WHO", "value": "{{ inputs.customer }}; rm -rf /"},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "files": [{"path": "/in/plan.txt", "content": "for {{ inputs.customer }}"}],
        }),
    );
    let run = TestRun::new(json!([step]));
    let spec = &run.container("build").spec;
    assert_eq!(spec.env[0].value.as_deref(), Some("ACME; rm -rf /"));
    assert!(spec.env[1].value_from.is_some());
    assert_eq!(spec.files[0].content, "for ACME");
    assert_eq!(spec.args, ["--flag", "$(HOME)"]);
    assert_eq!(run.record("build").object.as_deref(), Some(run.container("build").name.as_str()));
}

#[test]
fn a_template_in_an_image_or_command_is_refused() {
    for (fields, field_path) in [
        (json!({"image": "tool:{{ inputs.customer }}"}), "pod.image"),
        (json!({"command": ["sh", "-c", "echo {{ inputs.customer }}"]}), "pod.command[2]"),
        (json!({"args": ["{% if true %}x{% endif %}"]}), "pod.args[0]"),
        (json!({"args": ["echo $(WHO)"], "env": [{"name": "WHO", "value": "{{ inputs.customer }}"}]}), "pod.args[0]"),
        (json!({"files": [{"path": "/in/../etc/passwd", "content": "x"}]}), "pod.files[0].path"),
        (json!({"resources": {"limits": {"memory": "lots"}}}), "pod.resources.limits.memory"),
        (json!({"podTemplate": {"spec": {"restartPolicy": "Always"}}}), "pod.podTemplate.spec.restartPolicy"),
        (
            json!({"env": [{"name": "WHO", "value": "{{ inputs.customer }}"}], "podTemplate": {"spec": {"containers": [
                {"name": "step", "livenessProbe": {"exec": {"command": ["sh", "-c", "test $(WHO)"]}}}]}}}),
            "pod.podTemplate.spec.containers[0].livenessProbe.exec.command[2]",
        ),
    ] {
        let found_errors = errors(chain_of(json!([pod("build", fields.clone())])));
        assert!(found_errors.len() == 1 && found_errors[0].contains(field_path), "{fields}: {found_errors:?}");
    }
}

#[test]
fn a_container_whose_input_exceeds_the_size_of_a_pod_fails() {
    let env: Vec<_> = (0..30).map(|n| json!({"name": format!("V{n}"), "value": "x".repeat(14_000)})).collect();
    let run = TestRun::new(json!([pod("build", json!({"env": env}))]));
    let error = run.record("build").error.clone().unwrap();
    assert!(error.class == "Input" && error.message.contains("the maximum is 393216"), "{error:?}");
}

#[test]
fn long_fields_come_last_in_a_request_about_a_container() {
    let template = |note: &str| json!({"metadata": {"annotations": {"note": note}}, "spec": {"hostPID": true}});
    for (args, note, short_value) in
        [("x".repeat(8000), String::new(), "hostPID"), ("--now".to_owned(), "x".repeat(8000), "--now")]
    {
        let fields = json!({"args": [args], "serviceAccountName": "deployer", "podTemplate": template(&note)});
        let run = run_with_gate("stepStart", &["Approve", "Reject"], json!([pod("build", fields)]));
        let shown_text = &run.asked("build/.start").request.reviews.as_ref().unwrap().response;
        for part in ["tool@sha256:1", "deployer", short_value] {
            assert!(shown_text.contains(part), "{part} is pushed out of sight:\n{shown_text}");
        }
    }
}

#[test]
fn later_steps_read_the_message_exit_code_and_log_of_a_container() {
    let template = "{{ steps.build.response }} {{ steps.build.exitCode }} {{ steps.build.log }}";
    let mut run = TestRun::new(json!([
        pod("build", json!({})),
        hitl("review", json!({"contextDisplay": "the build is done"})),
        set("end", template)
    ]));
    run.finish_container("build", 1, 0, "42 files", "compiling\ndone\n");
    let request = &run.asked("review").request;
    assert_eq!(request.reviews.as_ref().unwrap().response, "42 files");
    let context = request.context.clone().unwrap();
    assert!(context.starts_with("the build is done"), "{context}");
    assert!(context.contains("exitCode: 0") && context.contains("compiling\ndone"), "{context}");
    run.approve("review");
    assert_eq!(run.expect_success(), "42 files 0 compiling\ndone\n");
}

#[test]
fn the_journal_has_the_end_of_a_long_log_and_refers_to_the_whole() {
    let mut run = TestRun::new(json!([pod("build", json!({}))]));
    let log = format!("{}the end", "é\u{1b}[31m".repeat(2000));
    run.finish_container("build", 1, 0, "", &log);
    let kept = run.record("build").log.clone().unwrap();
    assert!(kept.tail.ends_with("the end") && kept.tail.len() <= 1024 && !kept.tail.contains('\u{1b}'));
    let whole = &run.blobs[&kept.ref_.unwrap().digest];
    assert!(whole.len() > 4000 && whole.ends_with("the end"));
}

#[test]
fn only_listed_exit_codes_and_reasons_are_retried() {
    let step_with_retry = |more: Value| {
        with_fields(
            pod("build", json!({})),
            json!({"retry": with_fields(json!({"limit": 2, "backoff": {"base": "1s"}}), more)}),
        )
    };
    let mut run = TestRun::new(json!([step_with_retry(json!({"onExitCodes": [75]}))]));
    run.finish_container("build", 1, 75, "", "");
    run.wait(2);
    assert_eq!(run.calls(), ["build@2"]);
    assert_ne!(
        run.container("build").name,
        run.journal.get("build", 1).unwrap().object.clone().unwrap(),
        "another attempt is another Pod"
    );
    run.finish_container("build", 2, 1, "", "");
    assert!(run.expect_failure().contains("exit code 1"));
    let mut run = TestRun::new(json!([step_with_retry(json!({"onReasons": ["ExitCode"]}))]));
    run.finish_container("build", 1, 1, "", "");
    run.wait(2);
    assert_eq!(run.calls(), ["build@2"]);
    let http = json!({"name": "a", "http": {"url": "http://x"}, "retry": {"limit": 1, "onExitCodes": [1]}});
    assert!(errors(chain_of(json!([http])))[0].contains("retry.onExitCodes"));
}

mod before_it_begins {
    use super::*;

    fn run_at_start_gate(verdicts: &[&str]) -> TestRun {
        let run = run_with_gate(
            "stepStart",
            verdicts,
            json!([
                pod("build", json!({"env": [{"name": "WHO", "value": "{{ inputs.customer }}"}]})),
                set("end", "over")
            ]),
        );
        assert!(run.calls().is_empty(), "nothing runs before people said so");
        run
    }

    #[test]
    fn an_approval_covers_the_image_command_and_environment() {
        let mut run = run_at_start_gate(&[]);
        let request = run.asked("build/.start").request.clone();
        let shown_text = &request.reviews.as_ref().unwrap().response;
        for part in ["tool@sha256:1", "command", "ACME"] {
            assert!(shown_text.contains(part), "{part} in {shown_text}");
        }
        assert_eq!(request.allowed_verdicts, [Verdict::Approve, Verdict::Reject, Verdict::Abort]);
        run.approve("build/.start");
        assert_eq!(run.record("build").input_digest, run.record("build/.start").input_digest);
        run.finish_container("build", 1, 0, "", "");
        assert_eq!(run.expect_success(), "over");
    }

    #[test]
    fn a_long_input_can_be_read_whole_at_a_gate_with_its_own_context() {
        let args = vec![format!("{}the end", "x".repeat(5000))];
        let mut spec = chain_of(json!([pod("build", json!({"args": args}))]));
        let hitl_fields = json!({"contextDisplay": "nothing to see here"});
        spec["gates"] = json!([{"name": "human", "type": "stepStart", "steps": ["build"], "hitl": gate(hitl_fields)}]);
        let run = TestRun::of(spec);
        let request = &run.asked("build/.start").request;
        assert!(!request.reviews.as_ref().unwrap().response.contains("the end"));
        assert_eq!(request.context.as_deref(), Some("nothing to see here"));
        let whole_text = &run.blobs[&request.reviews.as_ref().unwrap().ref_.as_ref().unwrap().digest];
        assert!(whole_text.contains("the end"), "{whole_text}");
    }

    #[test]
    fn a_container_that_differs_from_the_approved_one_does_not_run() {
        let mut run = run_at_start_gate(&[]);
        // A rendering that differs, like that of another version of the operator.
        let records = run.journal.records().iter().cloned().map(|mut record| {
            record.input_digest = Some(signoff_api::Digest::of_bytes(b"something else"));
            record
        });
        run.journal = crate::Journal::new(run.journal.seq(), records.collect());
        run.approve("build/.start");
        assert!(run.calls().is_empty());
        assert!(run.expect_failure().contains("not what was approved"));
    }

    #[test]
    fn reject_ends_the_run_and_skip_skips_the_step() {
        let mut run = run_at_start_gate(&[]);
        run.decide("build/.start", decided(Verdict::Reject));
        run.expect_rejection();
        let mut run = run_at_start_gate(&["Approve", "Skip"]);
        run.decide("build/.start", decided(Verdict::Skip));
        assert_eq!(run.expect_success(), "over");
        assert_eq!(run.record("build").phase, StepPhase::Skipped);
    }

    #[test]
    fn modify_changes_the_container_and_retry_asks_at_most_three_times() {
        let mut run = run_at_start_gate(&["Approve", "Modify", "Retry"]);
        run.decide("build/.start", decided(Verdict::Retry));
        run.modify("build/.start#2", json!({"image": "tool@sha256:2", "memory": "1Gi"}));
        let spec = &run.container("build").spec;
        assert_eq!(
            (spec.image.as_str(), spec.resources.as_ref().unwrap().limits["memory"].as_str()),
            ("tool@sha256:2", "1Gi")
        );
        let mut run = run_at_start_gate(&["Approve", "Retry"]);
        for path in ["build/.start", "build/.start#2", "build/.start#3", "build/.start#4"] {
            run.decide(path, decided(Verdict::Retry));
        }
        run.expect_rejection();
    }

    #[test]
    fn edits_of_people_apply_to_all_later_attempts() {
        let mut spec = chain_of(json!([pod("build", json!({}))]));
        let start_hitl = json!({"allowedVerdicts": ["Approve", "Modify", "Retry", "Reject"]});
        let error_hitl = json!({"allowedVerdicts": ["Modify", "Retry", "Reject"]});
        spec["gates"] = json!([
            {"name": "before", "type": "stepStart", "hitl": gate(start_hitl)},
            {"name": "after", "type": "errorEscalation", "steps": ["build"], "hitl": gate(error_hitl)},
        ]);
        let mut run = TestRun::of(spec);
        run.modify("build/.start", json!({"image": "tool@sha256:2"}));
        run.finish_container("build", 1, 1, "", "");
        run.decide("build/.error", decided(Verdict::Retry));
        assert_eq!(run.container("build").spec.image, "tool@sha256:2", "not what people had replaced");
        run.finish_container("build", 2, 1, "", "");
        run.modify("build/.error#2", json!({"memory": "1Gi"}));
        run.approve("build/.start#2");
        run.finish_container("build", 3, 1, "", "");
        run.decide("build/.error#3", decided(Verdict::Retry));
        let spec = &run.container("build").spec;
        assert_eq!(spec.image, "tool@sha256:2");
        assert_eq!(spec.resources.as_ref().unwrap().limits["memory"], "1Gi");
        let last = run.journal.get("build", 4).unwrap();
        assert_eq!(last.input_digest, run.record("build/.start#2").input_digest, "exactly what was approved last");
    }

    #[test]
    fn a_skipped_step_asks_no_gate() {
        let step = with_fields(pod("build", json!({})), json!({"skipIf": "inputs.customer == 'ACME'"}));
        let run = run_with_gate("stepStart", &[], json!([step, set("end", "over")]));
        assert_eq!(run.expect_success(), "over");
    }

    #[test]
    fn a_gate_before_a_step_allows_http_steps_and_refuses_set_steps() {
        let request =
            json!({"name": "build", "http": {"method": "POST", "url": "http://x/{{ inputs.customer }}", "body": "{}"}});
        let run = run_with_gate("stepStart", &[], json!([request]));
        assert!(run.asked("build/.start").request.reviews.as_ref().unwrap().response.contains("http://x/ACME"));
        let mut spec = chain_of(json!([set("build", "x")]));
        spec["gates"] = json!([{"name": "human", "type": "stepStart", "steps": ["build"], "hitl": gate(json!({}))}]);
        assert!(errors(spec)[0].contains("neither a pod, an http request nor a call of a server"));
    }

    #[test]
    fn an_image_without_a_digest_is_a_warning() {
        let step = json!({"name": "build", "pod": {"image": "tool:1"}});
        let run = run_with_gate("stepStart", &[], json!([step]));
        assert!(run.plan.warnings()[0].contains("pod.image"), "{:?}", run.plan.warnings());
    }
}

mod after_it_failed {
    use super::*;

    const VERDICTS: [&str; 5] = ["Retry", "Modify", "Skip", "Reject", "Abort"];

    fn run_with_failed_container() -> TestRun {
        let vars = json!({"vars": {"team": "pay"}});
        let mut run = run_with_gate(
            "errorEscalation",
            &VERDICTS,
            json!([with_fields(pod("build", json!({})), vars), set("end", "over")]),
        );
        run.finish_container("build", 1, 137, "", "allocating\n");
        run
    }

    #[test]
    fn people_see_the_exit_code_and_the_end_of_the_log() {
        let mut run = run_with_failed_container();
        let context = run.asked("build/.error").request.context.clone().unwrap();
        assert!(context.contains("exitCode: 137") && context.contains("allocating"), "{context}");
        run.modify("build/.error", json!({"memory": "2Gi"}));
        assert_eq!(run.container("build").spec.resources.as_ref().unwrap().requests["memory"], "2Gi");
        run.finish_container("build", 2, 0, "", "");
        assert_eq!(run.expect_success(), "over");
    }

    #[test]
    fn modify_of_a_failed_container_is_not_allowed_by_default() {
        let mut run = run_with_gate("errorEscalation", &[], json!([pod("build", json!({}))]));
        run.finish_container("build", 1, 1, "", "");
        assert!(!run.asked("build/.error").request.allowed_verdicts.contains(&Verdict::Modify));
    }

    #[test]
    fn an_invalid_quantity_is_asked_about_again() {
        let mut run = run_with_failed_container();
        run.modify("build/.error", json!({"memory": "a lot"}));
        assert_eq!(run.record("build").error.as_ref().unwrap().class, "Input");
        run.modify("build/.error#2", json!({"memory": "1Gi"}));
        assert_eq!(run.calls(), ["build@3"]);
    }

    #[test]
    fn skip_continues_the_run_and_reject_fails_it() {
        let mut run = run_with_failed_container();
        run.decide("build/.error", decided(Verdict::Skip));
        assert_eq!(run.expect_success(), "over");
        let mut run = run_with_failed_container();
        run.decide("build/.error", decided(Verdict::Reject));
        run.expect_failure();
    }

    #[test]
    fn an_edited_container_needs_a_new_approval() {
        let steps = json!([pod("build", json!({}))]);
        let mut spec = chain_of(steps);
        spec["gates"] = json!([
            {"name": "before", "type": "stepStart", "hitl": gate(json!({}))},
            {"name": "after", "type": "errorEscalation", "steps": ["build"], "hitl": gate(json!({"allowedVerdicts": VERDICTS}))},
        ]);
        let mut run = TestRun::of(spec);
        run.approve("build/.start");
        run.finish_container("build", 1, 1, "", "");
        run.decide("build/.error", decided(Verdict::Retry));
        assert_eq!(run.calls(), ["build@2"], "the same once more was approved");
        run.finish_container("build", 2, 1, "", "");
        run.modify("build/.error#2", json!({"image": "tool@sha256:2"}));
        assert!(run.calls().is_empty());
        assert!(run.asked("build/.start#2").request.reviews.as_ref().unwrap().response.contains("tool@sha256:2"));
        run.approve("build/.start#2");
        assert_eq!(run.container("build").spec.image, "tool@sha256:2");
    }

    #[test]
    fn a_prompt_can_read_the_variables_of_the_step_and_the_failure() {
        let mut spec = chain_of(json!([with_fields(pod("build", json!({})), json!({"vars": {"team": "pay"}}))]));
        let prompt = "{{ team }}: {{ error.class }} {{ error.exitCode }} {{ error.log }}";
        spec["gates"] = json!([{"name": "human", "type": "errorEscalation", "steps": ["build"], "hitl": gate(json!({"prompt": prompt}))}]);
        let mut run = TestRun::of(spec);
        run.finish_container("build", 1, 3, "", "boom");
        assert_eq!(run.asked("build/.error").request.prompt, "pay: ExitCode 3 boom");
    }
}
