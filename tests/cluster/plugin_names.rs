//! `kubectl approve` on a real API server: short names, several names and namespaces, kubectl's formats, editing,
//! completion, versions. No operator runs. `plugin.rs` tests stored decisions.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use signoff_api::Verdict;
use signoff_api::gate::Subject;

use crate::asked::{Place, plugin};
use crate::plugin::refusal;

#[tokio::test]
async fn a_short_name_shows_everywhere_and_decides_only_on_a_terminal() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let digest = place.stored(&name).await.spec.request.digest;
    let prefix = &name[..name.len() - 6];
    for short in ["refund-4711/review", "refund-4711", prefix] {
        let shown = place.approve("alice", &["show", short]).await;
        assert!(shown.stderr.starts_with(&format!("{short} is {name}, request digest {digest}\n")), "{shown:?}");
        assert!(shown.ok().unwrap().starts_with(&format!("Name:         {name}\n")));
        let unmanned = place.approve("alice", &["approve", short]).await;
        assert_eq!(unmanned.code, 2, "{unmanned:?}");
        let remedy =
            format!("error: {short} is {name}, request digest {digest}; without a terminal write the whole name\n");
        assert_eq!(unmanned.stderr, remedy);
    }
    let other = place.ask(|_| {}).await;
    let several = place.approve("alice", &["show", "refund-4711/review"]).await;
    assert_eq!(several.code, 2, "{several:?}");
    for name in [&name, &other] {
        assert!(several.stderr.contains(&format!("{name} (refund-4711/review)")), "{several:?}");
    }
    let misspelt = place.approve("alice", &["approve", &name.replace("review", "reveiw")]).await;
    assert_eq!(misspelt.code, 3, "{misspelt:?}");
    let nearest = format!("open in namespace {} are: {name} (refund-4711/review), ", place.namespace.name);
    assert!(misspelt.stderr.contains(&nearest), "{misspelt:?}");
    assert!(place.stored(&name).await.spec.decisions.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_a_short_name_decides_and_no_name_is_a_choice() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let at_terminal = |arguments: &[&str], lines: &[(&str, &str)]| {
        let mut command = std::process::Command::new(plugin());
        command.arg("--kubeconfig").arg(place.cluster.kubeconfig_of("alice").unwrap());
        command.args(arguments).args(["--namespace", &place.namespace.name]);
        let mut session = rexpect::session::spawn_command(command, Some(60_000)).unwrap();
        let mut said = String::new();
        for (wait, line) in lines {
            said += &session.exp_string(wait).unwrap();
            session.send_line(line).unwrap();
        }
        said + &session.exp_eof().unwrap()
    };
    let left = tokio::task::block_in_place(|| at_terminal(&[], &[("Which one? [1-1] ", "")]));
    assert!(left.contains("1   refund-4711/review   in ") && left.contains("nothing was decided"), "{left}");
    let chosen = tokio::task::block_in_place(|| at_terminal(&[], &[("Which one? [1-1] ", "1"), ("[y/N] ", "n")]));
    assert!(chosen.contains("Send this letter to ACME?") && chosen.contains("nothing was decided"), "{chosen}");
    assert!(place.stored(&name).await.spec.decisions.is_empty());
    let unseen = tokio::task::block_in_place(|| at_terminal(&["reject", "refund-4711/review", "--yes"], &[]));
    let remedy = "; write the whole name, or leave --yes out";
    assert!(unseen.contains(&format!("refund-4711/review is {name}, request digest sha256:")), "{unseen}");
    assert!(unseen.contains(remedy) && !unseen.contains("rejected"), "{unseen}");
    let bare = tokio::task::block_in_place(|| at_terminal(&["refund-4711", "--yes"], &[]));
    assert!(bare.contains(remedy), "{bare}");
    assert!(place.stored(&name).await.spec.decisions.is_empty());
    let question = format!("Reject {name} as alice@example.com? [y/N] ");
    let rejected =
        tokio::task::block_in_place(|| at_terminal(&["reject", "refund-4711/review"], &[(question.as_str(), "y")]));
    assert!(rejected.contains(&format!("refund-4711/review is {name}, request digest sha256:")), "{rejected}");
    assert!(rejected.contains("Send this letter to ACME?") && rejected.contains("Reject recorded"), "{rejected}");
    assert_eq!(place.stored(&name).await.spec.decisions["alice@example.com"].verdict, Verdict::Reject);
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_edited_until_they_fit_and_sent_after_a_question() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let folder = tempfile::tempdir().unwrap();
    // In the first round the field is misspelt. In the second round the file begins with the problem, and the editor
    // corrects the field.
    let editor = folder.path().join("editor");
    let script = "#!/bin/sh\nif grep -q 'respnse' \"$1\"; then cp \"$1\" \"$0.again\"; sed -i 's/respnse/response/; s/420/42/' \"$1\"; else sed -i 's/^response/respnse/' \"$1\"; fi\n";
    std::fs::write(&editor, script).unwrap();
    let edit = |editor: &str, answer: Option<&str>| {
        let mut command = std::process::Command::new(plugin());
        command.env("KUBE_EDITOR", editor);
        command.arg("--kubeconfig").arg(place.cluster.kubeconfig_of("alice").unwrap());
        command.args(["modify", &name, "--edit", "--namespace", &place.namespace.name]);
        let mut session = rexpect::session::spawn_command(command, Some(60_000)).unwrap();
        let mut said = String::new();
        if let Some(answer) = answer {
            said += &session.exp_string("Send Modify with this change as alice@example.com? [y/N] ").unwrap();
            session.send_line(answer).unwrap();
        }
        said + &session.exp_eof().unwrap()
    };
    let unchanged = tokio::task::block_in_place(|| edit("true", None));
    assert!(unchanged.contains("the parameters were not changed"), "{unchanged}");
    let program = format!("sh {}", editor.display());
    let declined = tokio::task::block_in_place(|| edit(&program, Some("n")));
    assert!(declined.contains("nothing was decided"), "{declined}");
    assert!(place.stored(&name).await.spec.decisions.is_empty());
    let kept = declined.lines().find_map(|line| line.strip_prefix("The edited parameters are kept in ")).unwrap();
    let kept = std::path::PathBuf::from(kept.trim());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&kept), mode(kept.parent().unwrap())), (0o600, 0o700));
    assert!(declined.contains(&format!("kubectl approve modify {name} --from-file {}", kept.display())), "{declined}");
    place.approve("alice", &["modify", &name, "--from-file", kept.to_str().unwrap(), "--dry-run"]).await.ok().unwrap();
    std::fs::remove_dir_all(kept.parent().unwrap()).unwrap();
    let sent = tokio::task::block_in_place(|| edit(&program, Some("y")));
    for words in ["-  we refund 420 EUR.", "+  we refund 42 EUR.", "Modify recorded"] {
        assert!(sent.contains(words), "{words} in {sent}");
    }
    assert!(!sent.contains("are kept in"), "{sent}");
    let again = std::fs::read_to_string(folder.path().join("editor.again")).unwrap();
    assert!(again.contains("# refused: ") && again.contains("\nrespnse: "), "{again}");
    let stored = place.stored(&name).await.spec.decisions["alice@example.com"].parameters.clone().unwrap();
    assert_eq!(Value::Object(stored.0), json!({"response": "Dear ACME,\nwe refund 42 EUR."}));
    let late = tokio::task::block_in_place(|| edit("touch", None));
    assert!(late.contains("you modified ") && !late.contains("are kept in"), "{late}");
    let unmanned = place.approve("alice", &["modify", &name, "--edit"]).await;
    assert_eq!((unmanned.code, unmanned.stderr.contains("--edit needs a terminal")), (2, true), "{unmanned:?}");
}

#[tokio::test]
async fn several_names_are_decided_one_by_one() {
    let place = Place::shared("plugin").await;
    let (first, last) = (place.ask(|_| {}).await, place.ask(|_| {}).await);
    let theirs = place.ask(|request| request.quorums[0].approvers = vec![Subject::group("sre")]).await;
    let decided = place.approve("alice", &["approve", &first, &theirs, &last]).await;
    assert_eq!(decided.code, 1, "{decided:?}");
    let names_in_order = |output: &str| {
        let name = |line: &str| {
            line.strip_prefix("approval.signoff.dev/")?.split_once(" Approve recorded").map(|(name, _)| name.to_owned())
        };
        output.lines().filter_map(name).collect::<Vec<_>>()
    };
    assert_eq!(names_in_order(&decided.stdout), [first.as_str(), &last], "{decided:?}");
    assert!(decided.stderr.contains("alice@example.com is not an approver of this gate"), "{decided:?}");
    assert_eq!(decided.stderr.lines().last(), Some("error: 1 of 3 could not be decided"));
    assert!(place.stored(&theirs).await.spec.decisions.is_empty());
    assert_eq!(place.approve("alice", &["skip", &first, "no-such-approval-0000000000"]).await.code, 1);
    let (one, other) = (place.ask(|_| {}).await, place.ask(|_| {}).await);
    let waited = place.approve("alice", &["approve", &one, &other, "--wait=1s"]).await;
    assert_eq!(waited.code, 4, "{waited:?}");
    assert_eq!(names_in_order(&waited.stdout), [one.as_str(), &other], "{waited:?}");
    // Both votes are recorded before the first wait ends.
    let lines: Vec<_> = waited.stderr.lines().collect();
    let at = |line: &str| lines.iter().position(|other| *other == line).unwrap();
    let recorded = at(&format!("approval.signoff.dev/{other} Approve recorded"));
    assert!(recorded < at("error: not decided when --wait ended"), "{waited:?}");
}

#[tokio::test]
async fn output_has_the_formats_of_kubectl() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let printed = async |arguments: &[&str]| place.approve("alice", arguments).await.ok().unwrap();
    let path = "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}";
    assert_eq!(printed(&["list", "-o", path]).await, format!("{name}\n"));
    assert_eq!(printed(&["show", &name, "-o", "jsonpath={.spec.request.gate.path}"]).await, "review");
    assert_eq!(printed(&["show", &name, "-o", "name"]).await, format!("approval.signoff.dev/{name}\n"));
    let columns = "custom-columns=NAME:.metadata.name,RUN:.spec.request.workflow.name,NOT:.spec.nothing";
    let expected = format!("{name}   refund-4711   <none>\n");
    assert_eq!(printed(&["list", "--no-headers", "-o", columns]).await, expected);
    assert_eq!(printed(&["list", "--no-headers"]).await.lines().count(), 1);
    assert_eq!(printed(&["list", "-o", columns]).await.lines().count(), 2);
    let object: Value = serde_json::from_str(&printed(&["show", &name, "-o", "json"]).await).unwrap();
    assert_eq!((&object["kind"], &object["metadata"]["managedFields"]), (&json!("Approval"), &Value::Null));
    let yaml: Value = serde_saphyr::from_str(&printed(&["show", &name, "-o", "yaml"]).await).unwrap();
    assert_eq!(yaml, object);
    let all = printed(&["show", &name, "-o", "json", "--show-managed-fields"]).await;
    assert!(all.contains("\"managedFields\": ["), "{all}");
    let me = printed(&["whoami", "-o", "jsonpath={.status.userInfo.username}"]).await;
    assert_eq!(me, "alice@example.com");
    let nothing: Value = serde_json::from_str(&printed(&["list", "-l", "a=b", "-o", "json"]).await).unwrap();
    assert_eq!(nothing["items"], json!([]));
    assert_eq!(printed(&["list", "-l", "!a", "-o", "name"]).await, format!("approval.signoff.dev/{name}\n"));
}

#[tokio::test]
async fn a_client_dry_run_prints_the_patch_and_sends_nothing() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let digest = place.stored(&name).await.spec.request.digest;
    let tried = place.approve("alice", &["reject", &name, "--reason", "no", "--dry-run=client"]).await.ok().unwrap();
    let patch: Value = serde_json::from_str(&tried).unwrap();
    let decision = json!({"verdict": "Reject", "reason": "no", "requestDigest": digest});
    assert_eq!(patch, json!({"spec": {"decisions": {"alice@example.com": decision}}}));
    assert!(place.stored(&name).await.spec.decisions.is_empty());
    let namespace = place.namespace.name.as_str();
    let patched = ["patch", "approval", &name, "--type=merge", "-n", namespace, "-p", &tried];
    place.cluster.kubectl(patched).person("alice").run().await.unwrap().ok().unwrap();
    assert_eq!(place.stored(&name).await.spec.decisions["alice@example.com"].verdict, Verdict::Reject);
}

#[tokio::test]
async fn a_list_reads_named_namespaces_where_all_namespaces_are_forbidden() {
    let (here, there) = (Place::shared("plugin").await, Place::shared("plugin").await);
    let (ours, theirs) = (here.ask(|_| {}).await, there.ask(|_| {}).await);
    let everywhere = here.approve("alice", &["list", "-A"]).await;
    assert!(
        refusal(&everywhere)
            .ends_with("; name the namespaces that you may list: kubectl approve list -n NAMESPACE -n NAMESPACE")
    );
    let both = here.approve("alice", &["list", "-n", &there.namespace.name]).await.ok().unwrap();
    for words in ["NAMESPACE ", &here.namespace.name, &there.namespace.name, &ours, &theirs] {
        assert!(both.contains(words), "{words} in {both}");
    }
}

#[tokio::test]
async fn kubectl_completes_names_namespaces_and_commands() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let folder = tempfile::tempdir().unwrap();
    for (program, to) in [
        (plugin(), "kubectl-approve"),
        (signoff_tests::cargo::root().join("operator/cli/kubectl_complete-approve"), "kubectl_complete-approve"),
    ] {
        std::os::unix::fs::symlink(program, folder.path().join(to)).unwrap();
    }
    let completed = async |words: &[&str]| {
        let words = [&["__complete", "approve"], words].concat();
        place.cluster.kubectl(words).search(folder.path()).person("alice").run().await.unwrap().ok().unwrap()
    };
    let namespace = place.namespace.name.as_str();
    let names = completed(&["show", "-n", namespace, "refund-"]).await;
    assert!(names.starts_with(&format!("{name}\trefund-4711/review: Send this letter to ACME?\n")), "{names}");
    assert!(completed(&["rej"]).await.starts_with("reject\t"));
    assert!(!completed(&["show", "-n", namespace, "other"]).await.contains(&name));
}

#[tokio::test]
async fn versions_are_named_as_far_as_the_user_may_read_them() {
    let place = Place::shared("plugin").await;
    let version = env!("CARGO_PKG_VERSION");
    let admin = place.plugin("admin", &["version"]).run().await.unwrap().ok().unwrap();
    assert!(admin.starts_with(&format!("Client:       {version}\nOperator:     ")), "{admin}");
    assert!(!admin.contains("not readable"), "{admin}");
    let alice = place.approve("alice", &["version"]).await.ok().unwrap();
    assert!(
        alice.contains("\nOperator:     not readable: you may not list deployments in namespace signoff-system\n")
            && alice.contains("\nKubernetes:   v1."),
        "{alice}"
    );
}
