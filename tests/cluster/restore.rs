//! The procedure of the page *Backup and restore*, by its own commands: a namespace with a finished and a half-done run
//! is deleted and created again from the backup, as the account of a backup tool.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::extract::State;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Workflow, conditions};
use signoff_tests::control_plane::{Cluster, Finished, OperatorOptions, OperatorProcess, named};
use signoff_tests::page::{self, Block};

use crate::asked::{plugin, wait_until_allowed};
use crate::policies::harness::{assert_refused, workflow};
use crate::runs::Runs;

const GUIDE: &str = include_str!("../../docs/guides/backup-and-restore.md");
/// The run of the page, and its namespace.
const RUN: &str = "refund-4711";
const NAMESPACE: &str = "finance";

/// A bank that counts its requests. Its address is not that of the API server, which runs must not call.
struct Bank {
    url: String,
    asked: Arc<AtomicU32>,
}

impl Bank {
    async fn open() -> Self {
        let asked = Arc::new(AtomicU32::new(0));
        let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        async fn answer(State(asked): State<Arc<AtomicU32>>) -> &'static str {
            asked.fetch_add(1, Ordering::SeqCst);
            "paid"
        }
        let app = Router::new().fallback(answer).with_state(Arc::clone(&asked));
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { url, asked }
    }

    fn request_count(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    fn post(&self, name: &str) -> Value {
        json!({"name": name, "http": {"method": "POST", "url": self.url}})
    }
}

/// Returns the block of the page with this word.
fn block(word: &str) -> Block<'static> {
    let mut blocks = page::blocks(GUIDE).into_iter();
    blocks.find(|block| block.word("restore") == Some(word)).unwrap_or_else(|| panic!("the page has no block {word}"))
}

/// Runs a block as a person, in this folder, with the namespace of the test in place of the page's.
async fn run_block(runs: &Runs, folder: &Path, who: &str, word: &str) -> Finished {
    let script = block(word).script().replace(NAMESPACE, &runs.namespace.name);
    let script = format!("exec 2>&1\ncd '{}'\n{script}", folder.display());
    let kubectl = runs.cluster.clients().kubectl.parent().unwrap();
    let shell = runs.cluster.run(Path::new("sh"), ["-euc", &script]);
    let shell = shell.kubeconfig(&runs.cluster.kubeconfig_of(who).unwrap());
    shell.search(kubectl).search(plugin().parent().unwrap()).run().await.unwrap()
}

async fn create_run(runs: &Runs, who: &str, name: &str, steps: Value) -> Workflow {
    let api: Api<Workflow> = runs.api_as(who).await;
    let object = serde_json::from_value(workflow(name, json!({"steps": steps}))).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

/// Waits until the new run of this name has the condition `Restored`.
async fn wait_until_restored(runs: &Runs, name: &str) -> Workflow {
    let is = |run: Option<&Workflow>| {
        let status = run.and_then(|run| run.status.as_ref());
        status.is_some_and(|status| conditions::holds(&status.conditions, conditions::RESTORED))
    };
    runs.until(runs.api(), name, "is restored", is).await
}

#[tokio::test]
async fn a_namespace_is_restored_as_the_guide_says_and_nothing_is_sent_again() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let bank = Bank::open().await;
    let arguments = ["--no-lease", "--allow-address", "127.0.0.0/8"].map(str::to_owned).to_vec();
    let _operator =
        OperatorProcess::start(&cluster, OperatorOptions { arguments, ..OperatorOptions::default() }).await.unwrap();
    let runs = Runs::on(cluster, "restored").await;
    let folder = tempfile::tempdir().unwrap();
    let (alice, dana) = (named("alice").unwrap().user, named("dana").unwrap().user);
    let approvers = json!([{"kind": "User", "name": alice}, {"kind": "User", "name": dana}]);
    let gate = json!({"prompt": "Tell them?", "approvers": approvers, "excludeRequester": true,
        "timeout": {"after": "1h", "action": "Approve"}});

    // One run has paid and has ended, another run has paid and waits.
    create_run(&runs, "dana", "paid", json!([bank.post("pay")])).await;
    create_run(
        &runs,
        "dana",
        RUN,
        json!([bank.post("pay"), {"name": "review", "hitl": gate.clone()}, bank.post("tell")]),
    )
    .await;
    // One run belongs to the account that restores the namespace later.
    runs.namespace.bind("signoff-requester", named("viktor").unwrap().user).await.unwrap();
    create_run(&runs, "viktor", "own", json!([{"name": "review", "hitl": gate}, bank.post("tell")])).await;
    runs.wait_for_end("paid").await;
    runs.wait_for_gate(RUN).await;
    runs.wait_for_gate("own").await;
    assert_eq!(bank.request_count(), 2);
    run_block(&runs, folder.path(), "admin", "backup").await.ok().unwrap();
    run_block(&runs, folder.path(), "admin", "lost").await.ok().unwrap();

    // Without the verb nothing is created, and no run gets another requester.
    runs.namespace.bind("signoff-requester", named("bob").unwrap().user).await.unwrap();
    let answer = run_block(&runs, folder.path(), "bob", "create").await;
    assert!(answer.code != 0 && answer.stdout.contains("requested by its creator (bob@example.com)"), "{answer:?}");
    assert!(runs.api::<Workflow>().list(&ListParams::default()).await.unwrap().items.is_empty());

    // The account of the backup tool has the role `signoff-restorer` and no other.
    runs.namespace.bind("signoff-restorer", named("viktor").unwrap().user).await.unwrap();
    let question = json!({"metadata": {}, "spec": {"user": named("viktor").unwrap().user, "resourceAttributes": {
        "namespace": runs.namespace.name, "group": "signoff.dev", "resource": "workflows", "verb": "restore"}}});
    wait_until_allowed(&runs.cluster, &serde_json::from_value(question).unwrap()).await;
    run_block(&runs, folder.path(), "viktor", "create").await.ok().unwrap();
    for (name, requester) in [("paid", dana), (RUN, dana), ("own", named("viktor").unwrap().user)] {
        let run = wait_until_restored(&runs, name).await;
        assert_eq!((&*run.spec.requested_by, run.spec.restored), (requester, Some(true)));
        let status = run.status.unwrap();
        assert_eq!((status.phase, status.steps.len()), (WorkflowPhase::Pending, 0));
    }
    // A run that begins later has ended, and the restored ones have not begun.
    create_run(&runs, "bob", "later", json!([bank.post("pay")])).await;
    runs.wait_for_end("later").await;
    assert_eq!(bank.request_count(), 3);
    assert!(runs.api::<Approval>().list(&ListParams::default()).await.unwrap().items.is_empty());

    // Only an informed user can repeat it, and the first requester is excluded from its gate.
    let blind = runs.cluster.kubectl(["approve", "rerun", RUN, "-n", &runs.namespace.name]).person("bob");
    let blind = blind.search(plugin().parent().unwrap()).run().await.unwrap();
    assert!(blind.code == 1 && blind.stderr.contains("--backup FILE"), "{blind:?}");
    let again = run_block(&runs, folder.path(), "bob", "again").await;
    let text = again.ok().unwrap();
    let missing = page::missing(&block("again").printed(), &text);
    assert_eq!(missing, None, "{text}");
    let name = text.lines().find_map(|line| line.strip_prefix("workflow.signoff.dev/")?.strip_suffix(" created"));
    let asked = runs.wait_for_gate(name.unwrap()).await;
    assert_eq!((bank.request_count(), &*asked.spec.request.earlier_requesters), (4, &[dana.to_owned()][..]));
    for person in [alice, dana] {
        runs.namespace.bind("signoff-approver", person).await.unwrap();
    }
    let dana_client = runs.cluster.token_client("dana").await.unwrap();
    let approve = json!({"verdict": "Approve"});
    assert_refused(
        runs.decide(&dana_client, dana, &asked.name_any(), approve).await,
        "the requester must not decide this gate",
    );
    runs.alice_approves(&asked).await.unwrap();
    runs.wait_for_end(name.unwrap()).await;
    assert_eq!(bank.request_count(), 5);
}
