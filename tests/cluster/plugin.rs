//! `kubectl approve` by the real kubectl, as real users, against the enforced rules. No operator runs, so the stored
//! object is what was sent. `plugin_wait.rs` tests the result of a decision.

use std::process::Stdio;

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use signoff_api::approval::WorkflowRef;
use signoff_api::gate::{RequiredFrom, Subject};
use signoff_api::journal::BlobRef;
use signoff_api::{Blob, Digest, Verdict, Workflow, names};
use signoff_tests::control_plane::{Cluster, Finished};

use crate::asked::{Place, plugin};

pub(crate) fn refusal(finished: &Finished) -> String {
    assert_eq!(finished.code, 1, "{finished:?}");
    assert_eq!(finished.stdout, "", "{finished:?}");
    finished.stderr.lines().last().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_approver_lists_shows_and_approves_what_waits_for_them() {
    let place = Place::shared("plugin").await;
    let _counting = place.start_counting();
    let name = place.ask(|_| {}).await;
    let listed = place.approve("alice", &["list"]).await.ok().unwrap();
    assert!(
        listed.starts_with("NAME ") && listed.contains(&format!("\n{name}   refund-4711   review   Pending   0/1 ")),
        "{listed}"
    );
    let shown = place.approve("alice", &["show", &name]).await.ok().unwrap();
    let digest = place.stored(&name).await.spec.request.digest;
    assert!(shown.contains(&format!("\nDigest:       {digest}\n")), "{shown}");
    assert!(shown.contains("You:          alice@example.com, one of the approvers"), "{shown}");

    let decided = place.approve("alice", &["approve", &name, "--reason", "checked"]).await;
    assert!(decided.stderr.contains(digest.as_str()), "{decided:?}");
    assert_eq!(decided.ok().unwrap(), format!("approval.signoff.dev/{name} approved; the run goes on\n"));
    let decision = place.stored(&name).await.spec.decisions["alice@example.com"].clone();
    assert_eq!(decision.verdict, Verdict::Approve);
    assert_eq!(decision.reason.as_deref(), Some("checked"));
    assert_eq!(decision.request_digest.as_deref(), Some(digest.as_str()));
    let manager = place.stored(&name).await.metadata.managed_fields.unwrap_or_default();
    assert!(manager.iter().any(|entry| entry.manager.as_deref() == Some("kubectl-approve")));

    let again = place.approve("alice", &["approve", &name, "--reason", "checked"]).await.ok().unwrap();
    assert!(again.starts_with(&format!("approval.signoff.dev/{name} unchanged (you approved ")), "{again}");
    let nothing = place.approve("alice", &["list"]).await;
    assert_eq!((nothing.code, nothing.stdout.as_str()), (0, ""));
    assert!(nothing.stderr.starts_with("No approvals wait for alice@example.com in namespace plugin-"), "{nothing:?}");
    assert!(place.approve("alice", &["list", "--all", "-o", "name"]).await.ok().unwrap().contains(&name));
}

#[tokio::test]
async fn a_list_has_only_the_gates_that_its_reader_can_decide() {
    let place = Place::shared("plugin").await;
    let ours = place.ask(|_| {}).await;
    let theirs = place.ask(|request| request.quorums[0].approvers = vec![Subject::group("sre")]).await;
    let excluded = place
        .ask(|request| {
            request.requested_by = "bob@example.com".into();
            request.quorums[0].exclude_requester = Some(true);
        })
        .await;
    let names = async |person: &str| {
        let listed = place.approve(person, &["list", "-o", "name"]).await.ok().unwrap();
        let mut names: Vec<_> =
            listed.lines().map(|line| line.strip_prefix("approval.signoff.dev/").unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let sorted = |mut names: Vec<&String>| {
        names.sort();
        names.into_iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(names("bob").await, sorted(vec![&ours]));
    assert_eq!(names("alice").await, sorted(vec![&ours, &excluded]));
    assert_eq!(names("carol").await, sorted(vec![&ours, &theirs, &excluded]));
    assert_eq!(names("erin").await, sorted(vec![&theirs]));
    assert_eq!(names("viktor").await, [] as [String; 0]);
    let json: Value = serde_json::from_str(&place.approve("bob", &["list", "-o", "json"]).await.ok().unwrap()).unwrap();
    assert_eq!(json["items"][0]["metadata"]["name"], json!(ours));
    let yaml: Value =
        serde_saphyr::from_str(&place.approve("bob", &["list", "-o", "yaml"]).await.ok().unwrap()).unwrap();
    assert_eq!(yaml, json);
    let everywhere = place.plugin("admin", &["list", "-A", "--all", "-o", "wide"]).run().await.unwrap().ok().unwrap();
    assert!(everywhere.contains(&place.namespace.name) && everywhere.contains(&theirs), "{everywhere}");
}

#[tokio::test]
async fn a_refusal_is_printed_in_the_words_of_the_policy() {
    let place = Place::shared("plugin").await;
    let name = place
        .ask(|request| {
            request.requested_by = "alice@example.com".into();
            request.quorums[0].exclude_requester = Some(true);
            request.allowed_verdicts = vec![Verdict::Approve, Verdict::Reject];
        })
        .await;
    let said = async |person: &str, arguments: &[&str]| refusal(&place.approve(person, arguments).await);
    assert_eq!(
        said("alice", &["approve", &name]).await,
        "refused: the requester must not decide this gate (excludeRequester); group finance may decide it [SO0007]"
    );
    assert_eq!(
        said("erin", &["reject", &name]).await,
        "refused: erin@example.com is not an approver of this gate, by name or by group (spec.request.quorums); group finance may decide it [SO0002]"
    );
    let skip = place.approve("bob", &["skip", &name]).await;
    let flags = format!("{name} -n {}", place.namespace.name);
    let commands = format!("  kubectl approve approve {flags}\n  kubectl approve reject {flags}\n");
    let refused = format!("refused: this gate does not take Skip, only Approve, Reject [SO0013]:\n{commands}");
    assert!(skip.code == 1 && skip.stderr.ends_with(&refused), "{skip:?}");
    let dana = said("dana", &["approve", &name]).await;
    assert!(
        dana.starts_with("refused: ") && dana.contains("User \"dana@example.com\" cannot patch resource \"approvals\""),
        "{dana}"
    );
    let outsider = said("mallory", &["show", &name]).await;
    assert!(outsider.contains("User \"mallory@example.com\" cannot get resource \"approvals\""), "{outsider}");
    assert!(place.stored(&name).await.spec.decisions.is_empty());

    place.approve("bob", &["reject", &name]).await.ok().unwrap();
    let final_ = said("bob", &["approve", &name]).await;
    assert!(
        final_.starts_with("refused: you rejected ") && final_.ends_with(" ago; a decision is final [SO0009]"),
        "{final_}"
    );
}

#[tokio::test]
async fn every_verdict_is_stored_as_it_was_typed() {
    let place = Place::shared("plugin").await;
    let _counting = place.start_counting();
    let decide = async |arguments: &[&str], done: &str| {
        let guard = format!("{arguments:?}");
        let name = place.ask(|request| request.guard_epoch = guard.chars().take(80).collect()).await;
        let mut words = vec![arguments[0], &name];
        words.extend(&arguments[1..]);
        let said = place.approve("bob", &words).await.ok().unwrap();
        assert!(said.starts_with(&format!("approval.signoff.dev/{name} {done}")), "{said}");
        let mut entry = serde_json::to_value(&place.stored(&name).await.spec.decisions["bob@example.com"]).unwrap();
        entry.as_object_mut().unwrap().remove("requestDigest").unwrap();
        entry
    };
    assert_eq!(decide(&["approve"], "approved; the run goes on\n").await, json!({"verdict": "Approve"}));
    assert_eq!(
        decide(&["reject", "--reason", "too much"], "rejected; the run ends\n").await,
        json!({"verdict": "Reject", "reason": "too much"})
    );
    assert_eq!(decide(&["abort"], "aborted; the run ends\n").await, json!({"verdict": "Abort"}));
    assert_eq!(decide(&["skip"], "skipped; the run goes on\n").await, json!({"verdict": "Skip"}));
    assert_eq!(decide(&["retry"], "asked again; the run goes on\n").await, json!({"verdict": "Retry"}));
    assert_eq!(
        decide(
            &["defer", "--guidance", "be kinder"],
            "deferred; it is done again with the guidance, and then asked again\n"
        )
        .await,
        json!({"verdict": "Defer", "guidance": "be kinder"})
    );
    assert_eq!(
        decide(&["respond", "--response", "later"], "answered; the run goes on\n").await,
        json!({"verdict": "Respond", "response": "later"})
    );
    assert_eq!(
        decide(
            &["escalate", "--to", "sre"],
            "escalated; approvers now: alice@example.com, group finance, group sre, until "
        )
        .await,
        json!({"verdict": "Escalate", "escalateTo": [{"kind": "Group", "name": "sre"}]})
    );
    assert_eq!(
        decide(&["modify", "--set", "response=Dear ACME, sorry."], "modified; the run goes on\n").await,
        json!({"verdict": "Modify", "parameters": {"response": "Dear ACME, sorry."}})
    );
}

#[tokio::test]
async fn forms_are_answered_by_question_and_by_option() {
    let place = Place::shared("plugin").await;
    let name = place
        .ask(|request| {
            request.form = serde_json::from_value(json!({"questions": [
                {"id": "tone", "question": "Which tone?", "options": [{"id": "soft", "label": "Soft"}, {"id": "firm"}]},
                {"id": "iban", "pattern": "[A-Z]{2}[0-9]+", "errorMessage": "an IBAN begins with two letters"},
            ]}))
            .unwrap();
        })
        .await;
    let answer = async |arguments: &[&str]| place.approve("bob", &[&["respond", &name], arguments].concat()).await;
    let refused = refusal(&answer(&["--choose", "tone=soft", "--answer", "iban=12"]).await);
    assert_eq!(refused, "refused: the answer to iban: an IBAN begins with two letters [SO0019]");
    let shown = place.approve("bob", &["show", &name]).await.ok().unwrap();
    assert!(
        shown.contains("Answer tone:\n  | Which tone?\n  OPTION   LABEL   DESCRIPTION\n  soft     Soft\n"),
        "{shown}"
    );
    answer(&["--choose", "tone=soft", "--answer", "iban=DE12"]).await.ok().unwrap();
    let stored = serde_json::to_value(&place.stored(&name).await.spec.decisions["bob@example.com"].answers).unwrap();
    assert_eq!(stored, json!({"tone": {"options": ["soft"]}, "iban": {"text": "DE12"}}));
}

#[tokio::test]
async fn files_and_standard_input_hold_parameters_and_answers() {
    let place = Place::shared("plugin").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("better.yaml");
    std::fs::write(&file, "response: |\n  Dear ACME,\n  sorry.\n").unwrap();
    let name = place.ask(|request| request.prompt = "From a file?".into()).await;
    place.approve("bob", &["modify", &name, "--from-file", file.to_str().unwrap()]).await.ok().unwrap();
    let stored = place.stored(&name).await.spec.decisions["bob@example.com"].parameters.clone().unwrap();
    assert_eq!(Value::Object(stored.0), json!({"response": "Dear ACME,\nsorry.\n"}));

    let name = place.ask(|request| request.prompt = "From standard input?".into()).await;
    place.plugin("bob", &["respond", &name, "-f", "-"]).input("two\nlines\n").run().await.unwrap().ok().unwrap();
    assert_eq!(place.stored(&name).await.spec.decisions["bob@example.com"].response.as_deref(), Some("two\nlines"));
}

#[tokio::test]
async fn a_vote_prints_the_quorum_and_names_the_counted_groups() {
    let place = Place::shared("plugin").await;
    let _counting = place.start_counting();
    let name = place
        .ask(|request| {
            request.quorums[0].threshold = 2;
            request.quorums[0].required_from = vec![RequiredFrom { group: "finance-leads".into(), min: 1 }];
            request.quorums[0].approvers.push(Subject::group("finance-leads"));
        })
        .await;
    let first = place.approve("bob", &["approve", &name]).await.ok().unwrap();
    let asked = "still asked: alice@example.com, group finance, group finance-leads";
    assert_eq!(first, format!("approval.signoff.dev/{name} Approve counted (1 of 2; {asked})\n"));
    let second = place.approve("carol", &["approve", &name]).await.ok().unwrap();
    assert_eq!(
        second,
        format!(
            "approval.signoff.dev/{name} Approve counted (2 of 2; not yet met of: 1 of group finance-leads; {asked})\n"
        )
    );
    let third = place.approve("alice", &["approve", &name]).await.ok().unwrap();
    assert_eq!(third, format!("approval.signoff.dev/{name} approved; the run goes on\n"));
    let decisions = place.stored(&name).await.spec.decisions;
    assert_eq!(decisions["alice@example.com"].groups, ["finance-leads"]);
    assert!(decisions["bob@example.com"].groups.is_empty());
}

#[tokio::test]
async fn a_name_without_a_verb_needs_yes_without_a_terminal() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let unmanned = place.approve("alice", &[&name]).await;
    assert!(unmanned.stderr.contains("Send this letter to ACME?"), "{unmanned:?}");
    assert!(
        refusal(&unmanned)
            .starts_with("refused: standard input is not a terminal, so there is no confirmation: use --yes, or kubectl approve approve "),
        "{unmanned:?}"
    );
    assert!(place.stored(&name).await.spec.decisions.is_empty());
    let decided = place.approve("alice", &[&name, "--yes", "--wait=0s"]).await.ok().unwrap();
    let recorded = "Approve recorded; its effect was not waited for (--wait=0s)";
    assert_eq!(decided, format!("approval.signoff.dev/{name} {recorded}\n"));
}

/// Creates an Approval whose context and reviewed response are too long for the request, with their Blobs. Returns its
/// name.
pub(crate) async fn ask_about_long_texts(place: &Place, stored: [&str; 2]) -> String {
    let long = [format!("{}the end of the context", "c ".repeat(9000)), format!("{}the last field", "r ".repeat(9000))];
    let run = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"generateName": "refund-"},
        "spec": {"requestedBy": "dana@example.com", "suspend": true,
            "steps": [{"name": "only", "set": {"value": "1"}}]}});
    let dana = place.cluster.token_client("dana").await.unwrap();
    let runs: Api<Workflow> = Api::namespaced(dana, &place.namespace.name);
    let run = runs.create(&PostParams::default(), &serde_json::from_value(run).unwrap()).await.unwrap();
    let (name, uid) = (run.name_any(), run.uid().unwrap());
    let references = long
        .each_ref()
        .map(|text| BlobRef { digest: Digest::of_bytes(text.as_bytes()), size: i64::try_from(text.len()).unwrap() });
    for ((text, stored), reference) in long.iter().zip(stored).zip(&references) {
        let bytes = if stored.is_empty() { text } else { stored };
        let mut blob = Blob::of_run(&place.namespace.name, &name, &uid, bytes.as_bytes().to_vec());
        blob.metadata.name = Some(names::blob(&name, &uid, &reference.digest));
        place.blobs().create(&PostParams::default(), &blob).await.unwrap();
    }
    place
        .ask(|request| {
            request.workflow = WorkflowRef { name, uid };
            let [context, review] = references;
            request.context = Some(long[0][..4096].to_owned());
            request.context_ref = Some(context);
            let reviews = request.reviews.as_mut().unwrap();
            reviews.response = long[1][..4096].to_owned();
            reviews.digest = review.digest.clone();
            reviews.ref_ = Some(review);
        })
        .await
}

#[tokio::test]
async fn long_texts_of_a_request_are_shown_from_blobs() {
    let place = Place::shared("plugin").await;
    let name = ask_about_long_texts(&place, ["", ""]).await;
    let cut = place.approve("alice", &["show", &name]).await.ok().unwrap();
    assert!(!cut.contains("the end of the context") && !cut.contains("the last field"), "{cut}");
    let command = format!("kubectl approve show --full {name} -n {}", place.namespace.name);
    assert_eq!(cut.matches(&command).count(), 2, "{cut}");
    for more in ["CUT HERE: 13926 more of 18022 bytes", "CUT HERE: 13918 more of 18014 bytes"] {
        assert!(cut.contains(more), "{cut}");
    }
    for who in ["alice", "viktor"] {
        let whole = place.approve(who, &["show", "--full", &name]).await.ok().unwrap();
        for words in ["the end of the context", "the last field", "18022 bytes, verified: sha256:"] {
            assert!(whole.contains(words), "{who}: {words} in {whole}");
        }
    }
    let unread = place.approve("nina", &["show", "--full", &name]).await;
    assert!(refusal(&unread).contains("signoff-approver and signoff-viewer let you get Blobs"), "{unread:?}");
}

#[tokio::test]
async fn a_text_with_another_digest_than_the_request_names_is_never_shown() {
    let place = Place::shared("plugin").await;
    let name = ask_about_long_texts(&place, ["we refund 420000 EUR", ""]).await;
    let shown = place.approve("alice", &["show", "--full", &name]).await;
    assert!(refusal(&shown).starts_with("error: DIGEST MISMATCH: the context cannot be shown, the Blob "), "{shown:?}");
    assert!(!shown.stderr.contains("420000"), "{shown:?}");
}

#[tokio::test]
async fn a_dry_run_is_judged_and_not_stored() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let tried = place.approve("alice", &["approve", &name, "--dry-run=server"]).await.ok().unwrap();
    assert_eq!(tried, format!("approval.signoff.dev/{name} approved (server dry run)\n"));
    assert!(refusal(&place.approve("erin", &["approve", &name, "--dry-run"]).await).contains("not an approver"));
    assert!(place.stored(&name).await.spec.decisions.is_empty());
}

#[tokio::test]
async fn refusals_usage_errors_and_missing_objects_have_different_exit_codes() {
    let place = Place::shared("plugin").await;
    let missing = place.approve("alice", &["approve", "no-such-approval"]).await;
    let none = format!("no approval is open in namespace {}; name another with -n", place.namespace.name);
    let expected = format!("error: approvals.signoff.dev \"no-such-approval\" not found; {none}");
    assert_eq!((missing.code, missing.stderr.trim()), (3, expected.as_str()));
    assert_eq!(place.approve("alice", &["show", "approval/no-such-approval"]).await.code, 3);
    let name = place.ask(|_| {}).await;
    for usage in [
        &["modify", &name][..],
        &["modify", &name, "--set", "response=9007199254740993"],
        &["respond", &name],
        &["show", "approval/"],
        &["list", "-o", "xml"],
        &["whoami", "-n", "another"],
        &[],
    ] {
        let finished = place.approve("alice", usage).await;
        assert_eq!(finished.code, 2, "{usage:?}: {finished:?}");
    }
}

#[tokio::test]
async fn an_invalid_attempt_is_followed_by_the_next_one() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    place.record("alice", &name, json!({"verdict": "Modify", "parameters": {"respnse": "x", "deep": {"a": 1}}})).await;
    place.invalidate("alice", &name, "there is no `respnse`: write `response`").await;
    assert!(place.approve("alice", &["list", "-o", "name"]).await.ok().unwrap().contains(&name));
    let again = place.approve("alice", &["modify", &name, "--set", "response=y"]).await;
    assert!(
        again
            .stderr
            .contains("attempt 1 could not be used (there is no `respnse`: write `response`): this is attempt 2"),
        "{again:?}"
    );
    again.ok().unwrap();
    let decision = place.stored(&name).await.spec.decisions["alice@example.com"].clone();
    assert_eq!(decision.attempt, Some(2));
    assert_eq!(Value::Object(decision.parameters.unwrap().0), json!({"response": "y"}));
}

#[tokio::test]
async fn a_delegate_can_decide_on_behalf_of_another_person() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|request| request.quorums[0].approvers.push(Subject::user("carol@example.com"))).await;
    let refused = refusal(&place.approve("flux", &["approve", &name, "--on-behalf-of", "carol@example.com"]).await);
    assert!(refused.contains("lacks the RBAC verb delegate on people.signoff.dev"), "{refused}");
    place.let_flux_decide_for("carol@example.com").await;
    let said = place.approve("flux", &["approve", &name, "--on-behalf-of", "carol@example.com"]).await.ok().unwrap();
    let recorded = "Approve recorded on behalf of carol@example.com; not counted yet: ";
    assert!(said.starts_with(&format!("approval.signoff.dev/{name} {recorded}")), "{said}");
    let decisions = place.stored(&name).await.spec.decisions;
    let key = "carol@example.com via system:serviceaccount:flux-system:kustomize-controller";
    assert_eq!(decisions[key].on_behalf_of.as_deref(), Some("carol@example.com"));
    let carol = refusal(&place.approve("carol", &["reject", &name]).await);
    assert_eq!(carol, "refused: a decision on your behalf is already recorded [SO0009]");
    let who = place.approve("flux", &["whoami"]).await.ok().unwrap();
    let people = who.lines().find_map(|line| line.strip_prefix("On behalf of: ")).unwrap_or_default();
    assert!(people.split(", ").any(|person| person == "carol@example.com"), "{who}");
}

#[tokio::test]
async fn whoami_says_user_groups_and_what_one_may_decide() {
    let place = Place::shared("plugin").await;
    place.ask(|_| {}).await;
    let alice = place.approve("alice", &["whoami"]).await.ok().unwrap();
    assert!(
        alice.starts_with(
            "User:         alice@example.com\nGroups:       finance, finance-leads, system:authenticated\n"
        ),
        "{alice}"
    );
    assert!(alice.contains("\nMay decide:   gates that list you, by name or by group\n"), "{alice}");
    let list = format!("kubectl approve list -n {}", place.namespace.name);
    assert!(alice.ends_with(&format!("\nWaiting:      1 approval for you ({list})\n")), "{alice}");
    let viewer = place.approve("viktor", &["whoami"]).await.ok().unwrap();
    assert!(viewer.contains("\nMay decide:   nothing: you lack the RBAC verb approve"), "{viewer}");
    let disguised = place.approve("admin", &["whoami", "--as", "zoe", "--as-group", "finance"]).await.ok().unwrap();
    assert!(disguised.starts_with("User:         zoe\nGroups:       finance, system:authenticated\n"), "{disguised}");
}

#[tokio::test]
async fn users_with_special_characters_in_their_names_can_decide() {
    let place = Place::shared("plugin").await;
    for (person, user) in [("slash", "oidc:a/b~c@x"), ("tilde", "a~1b")] {
        let name = place.ask(|request| request.prompt = format!("{person}?")).await;
        place.approve(person, &["approve", &name]).await.ok().unwrap();
        assert_eq!(place.stored(&name).await.spec.decisions[user].verdict, Verdict::Approve);
    }
}

#[tokio::test]
async fn hostile_text_stays_data() {
    let place = Place::shared("plugin").await;
    let hostile = "\u{1b}[2J\u{1b}[32mok\u{202e}\u{200b}\u{9b}31m\rPhase:        Approved\n";
    let padding = " ".repeat(4000);
    let name = place
        .ask(|request| {
            request.prompt = format!("{hostile}{padding}{hostile}");
            request.context = Some(hostile.repeat(20));
            request.workflow.name = "refund-4711".into();
        })
        .await;
    place.approve("bob", &["reject", &name, "--reason", &hostile.replace('\0', "")]).await.ok().unwrap();
    for arguments in [
        &["show", &name][..],
        &["list"],
        &["list", "-o", "wide", "--all"],
        &["list", "-o", "json", "--all"],
        &["list", "-o", "yaml", "--all"],
    ] {
        let shown = place.approve("alice", arguments).await.ok().unwrap();
        assert!(shown.contains("ok"), "{shown}");
        assert!(!shown.contains(|c: char| c != '\n' && c.is_control()), "{shown:?}");
        assert!(!shown.contains(['\u{202e}', '\u{200b}']), "{shown:?}");
        assert_eq!(shown.lines().filter(|line| line.starts_with("Phase:        Approved")).count(), 0, "{shown}");
    }
}

#[tokio::test]
async fn a_decision_that_a_policy_changed_is_reported() {
    // A mutating policy is cluster-wide, so this test has a control plane of its own.
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let place = Place::on(cluster, "plugin").await;
    let name = place.ask(|_| {}).await;
    place.cluster.kubectl(["apply", "-f", "-"]).input(FORGER).run().await.unwrap().ok().unwrap();
    wait_until_forged(&place).await;
    let finished = place.approve("alice", &["reject", &name, "--reason", "no"]).await;
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""), "{finished:?}");
    assert!(finished.stderr.contains("WHAT WAS STORED IS NOT WHAT YOU SENT, under alice@example.com:\n  | verdict: sent \"Reject\", stored \"Approve\"\n"), "{finished:?}");
    assert!(finished.stderr.contains("your decision is not recorded"), "{finished:?}");
    let get = ["get", "approval", &name, "-n", &place.namespace.name, "-o", "jsonpath={.spec}"];
    let stored = place.cluster.kubectl(get).run().await.unwrap().ok().unwrap();
    assert!(stored.contains("quorums") && !stored.contains("\"verdict\""), "the trial showed it: {stored}");
}

/// A policy that an administrator, or an attacker with those rights, could create.
const FORGER: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: forger}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [signoff.dev], apiVersions: ["*"], operations: [UPDATE], resources: [approvals]}
  matchConditions:
  - {name: vote, expression: "has(object.spec.decisions) && 'alice@example.com' in object.spec.decisions"}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: "[JSONPatch{op: 'replace', path: '/spec/decisions/alice@example.com/verdict', value: 'Approve'}]"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: forger}
spec: {policyName: forger}
"#;

/// Waits until the policy changes votes. No event tells when, so it sends votes as dry runs.
async fn wait_until_forged(place: &Place) {
    let name = place.ask(|request| request.prompt = "Forged yet?".into()).await;
    let alice = place.cluster.token_client("alice").await.unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("signoff.dev", "v1alpha1", "Approval"));
    let approvals = Api::<DynamicObject>::namespaced_with(alice, &place.namespace.name, &resource);
    let try_out = PatchParams { dry_run: true, ..PatchParams::default() };
    let vote = json!({"spec": {"decisions": {"alice@example.com": {"verdict": "Reject"}}}});
    for _ in 0..600 {
        let tried = approvals.patch(&name, &try_out, &Patch::Merge(&vote)).await.unwrap();
        if tried.data.pointer("/spec/decisions/alice@example.com/verdict") == Some(&json!("Approve")) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the forger's policy is not in force after 30 seconds");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named_with_the_remedy() {
    let place = Place::shared("plugin").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig.yaml");
    let port = signoff_tests::control_plane::free_port().unwrap();
    let nowhere = json!({"apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://127.0.0.1:{port}")}}],
        "contexts": [{"name": "nowhere", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {"token": "t"}}]});
    std::fs::write(&file, nowhere.to_string()).unwrap();
    let finished = place.plugin("alice", &["list", "--kubeconfig", file.to_str().unwrap()]).run().await.unwrap();
    assert_eq!(finished.code, 1);
    assert!(finished.stderr.starts_with(&format!("error: cannot reach https://127.0.0.1:{port}")), "{finished:?}");
    assert!(finished.stderr.contains("Connection refused") && !finished.stderr.contains("backtrace"), "{finished:?}");
    let finished = place.plugin("alice", &["list", "--context", "no-such"]).run().await.unwrap();
    assert_eq!(finished.code, 1);
    assert!(
        finished.stderr.contains("no-such") && finished.stderr.contains("kubectl config get-contexts"),
        "{finished:?}"
    );
}

#[tokio::test]
async fn a_closed_pipe_is_not_an_error() {
    let place = Place::shared("plugin").await;
    place.ask(|_| {}).await;
    let mut child = tokio::process::Command::new(plugin())
        .args(["list", "--namespace", &place.namespace.name, "-o", "json"])
        .env("KUBECONFIG", place.cluster.kubeconfig_of("alice").unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}
