//! The commands of the guide to deciding, read from its pages and run as the people that they name. **Invariant:**
//! every command comes from a page, so that an error on the page fails here.

use std::fs;
use std::path::Path;

use futures::StreamExt;
use kube::api::PostParams;
use serde_json::json;
use signoff_api::approval::{ApprovalPhase, Outcome, Review};
use signoff_api::gate::{GateType, RequiredFrom, Subject};
use signoff_api::{ApprovalRequest, Digest};
use signoff_tests::control_plane::{Finished, named};
use signoff_tests::page::{self, Block, is_printed};

use crate::asked::{Place, plugin};

/// The pages about deciding as one text. The first page has the setup and the example's name and digest.
const GUIDE: &str = concat!(
    include_str!("../../docs/guides/deciding.md"),
    include_str!("../../docs/guides/deciding-verdicts.md"),
    include_str!("../../docs/guides/deciding-calls.md"),
    include_str!("../../docs/guides/deciding-many.md"),
    include_str!("../../docs/guides/deciding-outcome.md"),
    include_str!("../../docs/guides/deciding-from-scripts.md"),
    include_str!("../../docs/guides/deciding-refusals.md"),
    include_str!("../../docs/guides/gitops.md"),
);

/// The name and the digest of the Approval on the page. The test puts the name and the digest of its own Approval in
/// their place.
struct Example {
    name: &'static str,
    digest: &'static str,
}

fn read_example(setup: &Block<'static>) -> Example {
    let name = setup.lines.iter().find_map(|line| line.strip_prefix("$ APPROVAL=")).expect("the page sets APPROVAL");
    let start = GUIDE.find("sha256:").expect("the page shows a digest");
    let digest = &GUIDE[start..start + "sha256:".len() + 64];
    assert!(
        digest.bytes().skip(7).all(|digit| digit.is_ascii_hexdigit()) && name.ends_with(&digest[7..17]),
        "{name} {digest}"
    );
    Example { name, digest }
}

/// Changes a request to one about the call of a tool.
fn make_request_about_call(request: &mut ApprovalRequest) {
    let arguments = r#"{"amount":420,"customer":"ACME"}"#;
    let parameters = json!({"Modify": {"type": "object", "required": ["arguments"], "properties": {"arguments": {
        "type": "object", "required": ["amount", "customer"], "additionalProperties": false,
        "properties": {"amount": {"type": "integer"}, "customer": {"type": "string"}, "note": {"type": ["string", "null"]}},
    }}}});
    request.gate.path = "handle/.turn-1/.call-1/.gate".to_owned();
    (request.gate.name, request.gate.type_) = ("money".to_owned(), GateType::SpecificTools);
    request.action = serde_json::from_value(json!({
        "kind": "toolCall", "agent": "clerk", "tool": "refund", "effects": "irreversible",
        "target": "POST https://bank.example/refunds", "attempts": 1,
        "gates": [{"name": "money", "type": "specificTools", "because": "refund is listed"}],
    }))
    .unwrap();
    let digest = Digest::of_bytes(arguments.as_bytes());
    let path = "handle/.turn-1/.call-1".to_owned();
    request.reviews = Some(Review { path, response: arguments.to_owned(), ref_: None, digest, by: Vec::new() });
    (request.context, request.form) = (None, None);
    request.parameters = serde_json::from_value(parameters).unwrap();
}

/// Creates the Approval of this kind of gate, with the votes and the status that a block of the page needs. Returns the
/// name.
async fn ask(place: &Place, gate: &str) -> String {
    match gate {
        "plain" => place.ask(|request| request.quorums[0].approvers.push(Subject::user("bob@example.com"))).await,
        "two" => place.ask(|request| request.quorums[0].threshold = 2).await,
        "form" => {
            let form = json!({"questions": [
                {"id": "tone", "question": "Which tone?", "options": [{"id": "soft"}, {"id": "firm"}]},
                {"id": "iban", "question": "Which account?", "pattern": "[A-Z]{2}[0-9]+"},
            ]});
            place.ask(|request| request.form = serde_json::from_value(form).unwrap()).await
        }
        "call" => place.ask(make_request_about_call).await,
        "leads" => {
            place
                .ask(|request| {
                    request.quorums[0].required_from = vec![RequiredFrom { group: "finance-leads".into(), min: 1 }]
                })
                .await
        }
        "begun" => {
            let name = place.ask(|request| request.quorums[0].threshold = 2).await;
            place.record("carol", &name, json!({"verdict": "Approve"})).await;
            name
        }
        "invalid" => {
            let name = place.ask(|_| {}).await;
            place
                .record("alice", &name, json!({"verdict": "Modify", "parameters": {"respnse": "Dear ACME, sorry."}}))
                .await;
            place.wait_until_found_invalid(&name).await;
            name
        }
        "overdue" => {
            let name = place.ask(|_| {}).await;
            let mut found = place.stored(&name).await;
            found.status.get_or_insert_default().phase = ApprovalPhase::Overdue;
            place.approvals().replace_status(&name, &PostParams::default(), &found).await.unwrap();
            name
        }
        "decided" => {
            let name = place.ask(|_| {}).await;
            let mut found = place.stored(&name).await;
            let status = found.status.get_or_insert_default();
            status.phase = ApprovalPhase::Cancelled;
            status.outcome = Some(Outcome { phase: ApprovalPhase::Cancelled, ..Outcome::default() });
            place.approvals().replace_status(&name, &PostParams::default(), &found).await.unwrap();
            name
        }
        other => panic!("the page asks for a gate of an unknown kind: {other}"),
    }
}

/// Writes a kubeconfig for each person of the page, in the test's namespace.
async fn write_kubeconfigs(place: &Place, folder: &Path) {
    for person in ["alice", "bob", "carol", "erin", "flux"] {
        let kubeconfig = folder.join(person);
        fs::copy(place.cluster.kubeconfig_of(person).unwrap(), &kubeconfig).unwrap();
        let arguments = ["config", "set-context", "--current", "--namespace", &place.namespace.name];
        place.cluster.kubectl(arguments).kubeconfig(&kubeconfig).run().await.unwrap().ok().unwrap();
    }
}

/// Runs the block in a shell, as its person, in a folder of its own.
async fn run_block(place: &Place, kubeconfigs: &Path, folder: &Path, setup: &str, block: &Block<'_>) -> Finished {
    let kubeconfig = kubeconfigs.join(block.word("as").expect("every block says whose it is"));
    let script = format!("exec 2>&1\ncd '{}'\n{setup}{}", folder.display(), block.script());
    let kubectl = place.cluster.clients().kubectl.parent().unwrap();
    let shell = place.cluster.run(Path::new("sh"), ["-euc", &script]).kubeconfig(&kubeconfig);
    let shell = shell.env("SIGNOFF_DEFAULT_WAIT", "1m");
    shell.search(kubectl).search(plugin().parent().unwrap()).run().await.unwrap()
}

#[tokio::test]
async fn every_line_of_the_guide_does_what_the_guide_says() {
    let blocks = page::blocks(GUIDE);
    let setup = blocks.iter().find(|block| block.word("setup").is_some()).expect("the page has a setup");
    let example = read_example(setup);
    let place = Place::shared("guide").await;
    let _counting = place.start_counting();
    place.let_flux_decide_for("bob@example.com").await;
    let kubeconfigs = tempfile::tempdir().unwrap();
    write_kubeconfigs(&place, kubeconfigs.path()).await;
    let try_block = async |block: &Block<'static>| {
        let folder = tempfile::tempdir().unwrap();
        let id = block.word("after");
        let first = id.map(|id| blocks.iter().find(|other| other.word("id") == Some(id)).expect("the block before"));
        let gate = block.word("gate").or_else(|| first?.word("gate")).expect("every block says what is asked");
        let name = ask(&place, gate).await;
        let digest = place.stored(&name).await.spec.request.digest;
        let with_own_name = |text: &str| text.replace(example.name, &name).replace(example.digest, digest.as_str());
        for file in blocks.iter().filter(|block| block.word("file").is_some()) {
            let path = folder.path().join(file.word("file").unwrap());
            fs::write(path, with_own_name(&(file.text()))).unwrap();
        }
        let setup = with_own_name(&setup.script());
        if let Some(first) = first {
            run_block(&place, kubeconfigs.path(), folder.path(), &setup, first).await.ok().unwrap();
        }
        let finished = run_block(&place, kubeconfigs.path(), folder.path(), &setup, block).await;
        let problem = check_block(&place, &name, block, &finished, with_own_name).await.err()?;
        let lines = block.lines.join("\n");
        Some(format!("{lines}\n-- {problem}; it ended with {} and printed\n{}", finished.code, finished.stdout))
    };
    let commands = blocks.iter().filter(|block| block.language == "console" && block.word("setup").is_none());
    let results: Vec<_> = futures::stream::iter(commands).map(try_block).buffered(4).collect().await;
    let failures: Vec<_> = results.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Checks the exit code, the output and the stored verdict of a block. Returns the first difference from the page as an
/// error.
async fn check_block(
    place: &Place,
    name: &str,
    block: &Block<'_>,
    finished: &Finished,
    with_own_name: impl Fn(&str) -> String,
) -> Result<(), String> {
    if (finished.code == 0) == block.word("refused").is_some() {
        return Err("the wrong exit code".into());
    }
    let mut printed = finished.stdout.lines();
    for expected in block.printed() {
        let expected = with_own_name(expected);
        if !printed.any(|line| is_printed(&expected, line)) {
            return Err(format!("not printed: {expected}"));
        }
    }
    let user = named(block.word("as").unwrap_or_default()).map_err(|error| error.to_string())?.user;
    let decisions = place.stored(name).await.spec.decisions;
    let own = decisions
        .iter()
        .find(|(key, _)| *key == user || key.ends_with(&format!(" via {user}")))
        .map(|(_, decision)| decision.verdict.name());
    if own != block.word("stores") {
        return Err(format!("stored {own:?}"));
    }
    Ok(())
}

#[test]
fn every_page_whose_blocks_ask_a_gate_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.extension().is_none_or(|end| end != "md") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if page::blocks(&text).iter().any(|block| block.word("gate").is_some()) {
            count += 1;
            assert!(GUIDE.contains(&text), "GUIDE lacks {}", path.display());
        }
    }
    assert!(count > 5, "{count} pages: where are they?");
}

#[test]
fn the_guide_has_every_verdict_by_plugin_and_by_patch() {
    let blocks = page::blocks(GUIDE);
    let stored_by = |command: &str| -> Vec<_> {
        let with = blocks.iter().filter(|block| block.script().contains(command));
        let mut verdicts: Vec<_> = with.filter_map(|block| block.word("stores")).collect();
        verdicts.sort_unstable();
        verdicts.dedup();
        verdicts
    };
    let mut all = signoff_api::Verdict::ALL.map(signoff_api::Verdict::name);
    all.sort_unstable();
    assert_eq!(stored_by("kubectl approve "), all);
    assert_eq!(stored_by("--type=merge"), all);
    assert!(!stored_by("--type=json").is_empty() && !stored_by("apply --server-side").is_empty());
}
