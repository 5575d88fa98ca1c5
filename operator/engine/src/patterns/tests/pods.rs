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

fn with(mut step: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        step[key] = value.clone();
    }
    step
}

fn with_gate(type_: &str, verdicts: &[&str], steps: Value) -> TestRun {
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
fn a_template_in_a_command_line_is_refused_in_every_disguise() {
    for (bad, place) in [
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
        let found = errors(chain_of(json!([pod("build", bad.clone())])));
        assert!(found.len() == 1 && found[0].contains(place), "{bad}: {found:?}");
    }
}

#[test]
fn a_container_that_is_given_more_than_a_pod_can_hold_fails_and_says_so() {
    let env: Vec<_> = (0..30).map(|n| json!({"name": format!("V{n}"), "value": "x".repeat(14_000)})).collect();
    let run = TestRun::new(json!([pod("build", json!({"env": env}))]));
    let error = run.record("build").error.clone().unwrap();
    assert!(error.class == "Input" && error.message.contains("the maximum is 393216"), "{error:?}");
}

#[test]
fn what_may_be_long_comes_last_in_what_people_are_shown() {
    let template = |note: &str| json!({"metadata": {"annotations": {"note": note}}, "spec": {"hostPID": true}});
    for (args, note, short) in
        [("x".repeat(8000), String::new(), "hostPID"), ("--now".to_owned(), "x".repeat(8000), "--now")]
    {
        let long = json!({"args": [args], "serviceAccountName": "deployer", "podTemplate": template(&note)});
        let run = with_gate("stepStart", &["Approve", "Reject"], json!([pod("build", long)]));
        let shown = &run.asked("build/.start").request.reviews.as_ref().unwrap().response;
        for part in ["tool@sha256:1", "deployer", short] {
            assert!(shown.contains(part), "{part} is pushed out of sight:\n{shown}");
        }
    }
}

#[test]
fn what_a_container_said_and_wrote_is_there_for_what_follows() {
    let shown = "{{ steps.build.response }} {{ steps.build.exitCode }} {{ steps.build.log }}";
    let mut run = TestRun::new(json!([
        pod("build", json!({})),
        hitl("review", json!({"contextDisplay": "the build is done"})),
        set("end", shown)
    ]));
    run.exited("build", 1, 0, "42 files", "compiling\ndone\n");
    let request = &run.asked("review").request;
    assert_eq!(request.reviews.as_ref().unwrap().response, "42 files");
    let context = request.context.clone().unwrap();
    assert!(context.starts_with("the build is done"), "{context}");
    assert!(context.contains("exitCode: 0") && context.contains("compiling\ndone"), "{context}");
    run.approve("review");
    assert_eq!(run.succeeded(), "42 files 0 compiling\ndone\n");
}

#[test]
fn a_long_log_keeps_its_end_in_the_journal_and_the_whole_by_reference() {
    let mut run = TestRun::new(json!([pod("build", json!({}))]));
    let log = format!("{}the end", "é\u{1b}[31m".repeat(2000));
    run.exited("build", 1, 0, "", &log);
    let kept = run.record("build").log.clone().unwrap();
    assert!(kept.tail.ends_with("the end") && kept.tail.len() <= 1024 && !kept.tail.contains('\u{1b}'));
    let whole = &run.blobs[&kept.ref_.unwrap().digest];
    assert!(whole.len() > 4000 && whole.ends_with("the end"));
}

#[test]
fn only_the_exit_codes_and_reasons_that_are_named_are_tried_again() {
    let retry = |more: Value| {
        with(pod("build", json!({})), json!({"retry": with(json!({"limit": 2, "backoff": {"base": "1s"}}), more)}))
    };
    let mut run = TestRun::new(json!([retry(json!({"onExitCodes": [75]}))]));
    run.exited("build", 1, 75, "", "");
    run.later(2);
    assert_eq!(run.calls(), ["build@2"]);
    assert_ne!(
        run.container("build").name,
        run.journal.get("build", 1).unwrap().object.clone().unwrap(),
        "another attempt is another Pod"
    );
    run.exited("build", 2, 1, "", "");
    assert!(run.failed().contains("exit code 1"));
    let mut run = TestRun::new(json!([retry(json!({"onReasons": ["ExitCode"]}))]));
    run.exited("build", 1, 1, "", "");
    run.later(2);
    assert_eq!(run.calls(), ["build@2"]);
    let http = json!({"name": "a", "http": {"url": "http://x"}, "retry": {"limit": 1, "onExitCodes": [1]}});
    assert!(errors(chain_of(json!([http])))[0].contains("retry.onExitCodes"));
}

mod before_it_begins {
    use super::*;

    fn asked(verdicts: &[&str]) -> TestRun {
        let run = with_gate(
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
    fn people_see_image_command_and_environment_and_approve_exactly_that() {
        let mut run = asked(&[]);
        let request = run.asked("build/.start").request.clone();
        let shown = &request.reviews.as_ref().unwrap().response;
        for part in ["tool@sha256:1", "command", "ACME"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert_eq!(request.allowed_verdicts, [Verdict::Approve, Verdict::Reject, Verdict::Abort]);
        run.approve("build/.start");
        assert_eq!(run.record("build").input_digest, run.record("build/.start").input_digest);
        run.exited("build", 1, 0, "", "");
        assert_eq!(run.succeeded(), "over");
    }

    #[test]
    fn what_is_long_can_be_read_to_its_end_whatever_the_gates_author_shows() {
        let args = vec![format!("{}the end", "x".repeat(5000))];
        let mut spec = chain_of(json!([pod("build", json!({"args": args}))]));
        let shown = json!({"contextDisplay": "nothing to see here"});
        spec["gates"] = json!([{"name": "human", "type": "stepStart", "steps": ["build"], "hitl": gate(shown)}]);
        let run = TestRun::of(spec);
        let request = &run.asked("build/.start").request;
        assert!(!request.reviews.as_ref().unwrap().response.contains("the end"));
        assert_eq!(request.context.as_deref(), Some("nothing to see here"));
        let whole = &run.blobs[&request.reviews.as_ref().unwrap().ref_.as_ref().unwrap().digest];
        assert!(whole.contains("the end"), "{whole}");
    }

    #[test]
    fn what_is_not_what_was_approved_does_not_run() {
        let mut run = asked(&[]);
        // A rendering that differs, like that of another version of the operator.
        let records = run.journal.records().iter().cloned().map(|mut record| {
            record.input_digest = Some(signoff_api::Digest::of_bytes(b"something else"));
            record
        });
        run.journal = crate::Journal::new(run.journal.seq(), records.collect());
        run.approve("build/.start");
        assert!(run.calls().is_empty());
        assert!(run.failed().contains("not what was approved"));
    }

    #[test]
    fn reject_ends_the_run_and_skip_leaves_the_step_out() {
        let mut run = asked(&[]);
        run.decide("build/.start", decided(Verdict::Reject));
        run.rejected();
        let mut run = asked(&["Approve", "Skip"]);
        run.decide("build/.start", decided(Verdict::Skip));
        assert_eq!(run.succeeded(), "over");
        assert_eq!(run.record("build").phase, StepPhase::Skipped);
    }

    #[test]
    fn modify_changes_what_runs_and_retry_asks_again_but_not_for_ever() {
        let mut run = asked(&["Approve", "Modify", "Retry"]);
        run.decide("build/.start", decided(Verdict::Retry));
        run.modify("build/.start#2", json!({"image": "tool@sha256:2", "memory": "1Gi"}));
        let spec = &run.container("build").spec;
        assert_eq!(
            (spec.image.as_str(), spec.resources.as_ref().unwrap().limits["memory"].as_str()),
            ("tool@sha256:2", "1Gi")
        );
        let mut run = asked(&["Approve", "Retry"]);
        for path in ["build/.start", "build/.start#2", "build/.start#3", "build/.start#4"] {
            run.decide(path, decided(Verdict::Retry));
        }
        run.rejected();
    }

    #[test]
    fn what_people_put_in_the_authors_place_stays_there_however_often_it_is_tried() {
        let mut spec = chain_of(json!([pod("build", json!({}))]));
        let verdicts = json!({"allowedVerdicts": ["Approve", "Modify", "Retry", "Reject"]});
        let after = json!({"allowedVerdicts": ["Modify", "Retry", "Reject"]});
        spec["gates"] = json!([
            {"name": "before", "type": "stepStart", "hitl": gate(verdicts)},
            {"name": "after", "type": "errorEscalation", "steps": ["build"], "hitl": gate(after)},
        ]);
        let mut run = TestRun::of(spec);
        run.modify("build/.start", json!({"image": "tool@sha256:2"}));
        run.exited("build", 1, 1, "", "");
        run.decide("build/.error", decided(Verdict::Retry));
        assert_eq!(run.container("build").spec.image, "tool@sha256:2", "not what people had replaced");
        run.exited("build", 2, 1, "", "");
        run.modify("build/.error#2", json!({"memory": "1Gi"}));
        run.approve("build/.start#2");
        run.exited("build", 3, 1, "", "");
        run.decide("build/.error#3", decided(Verdict::Retry));
        let spec = &run.container("build").spec;
        assert_eq!(spec.image, "tool@sha256:2");
        assert_eq!(spec.resources.as_ref().unwrap().limits["memory"], "1Gi");
        let last = run.journal.get("build", 4).unwrap();
        assert_eq!(last.input_digest, run.record("build/.start#2").input_digest, "exactly what was approved last");
    }

    #[test]
    fn a_step_that_is_left_out_asks_nobody() {
        let step = with(pod("build", json!({})), json!({"skipIf": "inputs.customer == 'ACME'"}));
        let run = with_gate("stepStart", &[], json!([step, set("end", "over")]));
        assert_eq!(run.succeeded(), "over");
    }

    #[test]
    fn a_request_can_be_shown_too_and_a_template_cannot() {
        let request =
            json!({"name": "build", "http": {"method": "POST", "url": "http://x/{{ inputs.customer }}", "body": "{}"}});
        let run = with_gate("stepStart", &[], json!([request]));
        assert!(run.asked("build/.start").request.reviews.as_ref().unwrap().response.contains("http://x/ACME"));
        let mut spec = chain_of(json!([set("build", "x")]));
        spec["gates"] = json!([{"name": "human", "type": "stepStart", "steps": ["build"], "hitl": gate(json!({}))}]);
        assert!(errors(spec)[0].contains("neither a pod, an http request nor a call of a server"));
    }

    #[test]
    fn an_image_that_is_not_named_by_digest_is_warned_of() {
        let step = json!({"name": "build", "pod": {"image": "tool:1"}});
        let run = with_gate("stepStart", &[], json!([step]));
        assert!(run.plan.warnings()[0].contains("pod.image"), "{:?}", run.plan.warnings());
    }
}

mod after_it_failed {
    use super::*;

    const VERDICTS: [&str; 5] = ["Retry", "Modify", "Skip", "Reject", "Abort"];

    fn failed() -> TestRun {
        let vars = json!({"vars": {"team": "pay"}});
        let mut run =
            with_gate("errorEscalation", &VERDICTS, json!([with(pod("build", json!({})), vars), set("end", "over")]));
        run.exited("build", 1, 137, "", "allocating\n");
        run
    }

    #[test]
    fn people_see_the_exit_code_and_the_end_of_the_log() {
        let mut run = failed();
        let context = run.asked("build/.error").request.context.clone().unwrap();
        assert!(context.contains("exitCode: 137") && context.contains("allocating"), "{context}");
        run.modify("build/.error", json!({"memory": "2Gi"}));
        assert_eq!(run.container("build").spec.resources.as_ref().unwrap().requests["memory"], "2Gi");
        run.exited("build", 2, 0, "", "");
        assert_eq!(run.succeeded(), "over");
    }

    #[test]
    fn whoever_may_choose_what_runs_is_said_and_not_taken_for_granted() {
        let mut run = with_gate("errorEscalation", &[], json!([pod("build", json!({}))]));
        run.exited("build", 1, 1, "", "");
        assert!(!run.asked("build/.error").request.allowed_verdicts.contains(&Verdict::Modify));
    }

    #[test]
    fn a_quantity_that_is_none_is_asked_about_again() {
        let mut run = failed();
        run.modify("build/.error", json!({"memory": "a lot"}));
        assert_eq!(run.record("build").error.as_ref().unwrap().class, "Input");
        run.modify("build/.error#2", json!({"memory": "1Gi"}));
        assert_eq!(run.calls(), ["build@3"]);
    }

    #[test]
    fn skip_goes_on_without_it_and_reject_gives_up() {
        let mut run = failed();
        run.decide("build/.error", decided(Verdict::Skip));
        assert_eq!(run.succeeded(), "over");
        let mut run = failed();
        run.decide("build/.error", decided(Verdict::Reject));
        run.failed();
    }

    #[test]
    fn what_was_changed_needs_a_new_approval_where_people_approved_the_old() {
        let steps = json!([pod("build", json!({}))]);
        let mut spec = chain_of(steps);
        spec["gates"] = json!([
            {"name": "before", "type": "stepStart", "hitl": gate(json!({}))},
            {"name": "after", "type": "errorEscalation", "steps": ["build"], "hitl": gate(json!({"allowedVerdicts": VERDICTS}))},
        ]);
        let mut run = TestRun::of(spec);
        run.approve("build/.start");
        run.exited("build", 1, 1, "", "");
        run.decide("build/.error", decided(Verdict::Retry));
        assert_eq!(run.calls(), ["build@2"], "the same once more was approved");
        run.exited("build", 2, 1, "", "");
        run.modify("build/.error#2", json!({"image": "tool@sha256:2"}));
        assert!(run.calls().is_empty());
        assert!(run.asked("build/.start#2").request.reviews.as_ref().unwrap().response.contains("tool@sha256:2"));
        run.approve("build/.start#2");
        assert_eq!(run.container("build").spec.image, "tool@sha256:2");
    }

    #[test]
    fn a_gate_may_say_the_steps_own_variables_and_the_facts_of_the_failure() {
        let mut spec = chain_of(json!([with(pod("build", json!({})), json!({"vars": {"team": "pay"}}))]));
        let prompt = "{{ team }}: {{ error.class }} {{ error.exitCode }} {{ error.log }}";
        spec["gates"] = json!([{"name": "human", "type": "errorEscalation", "steps": ["build"], "hitl": gate(json!({"prompt": prompt}))}]);
        let mut run = TestRun::of(spec);
        run.exited("build", 1, 3, "", "boom");
        assert_eq!(run.asked("build/.error").request.prompt, "pay: ExitCode 3 boom");
    }
}
