//! The columns of plain `kubectl get` for runs and Approvals, and how a refused file is run again.

use serde_json::json;
use signoff_tests::control_plane::{Cluster, Finished, Namespace, named};

/// A namespace in which dana creates runs, with the columns that kubectl shows.
struct TestNamespace {
    cluster: Cluster,
    namespace: Namespace,
}

impl TestNamespace {
    async fn on(prefix: &str) -> Self {
        let cluster = Cluster::operated().unwrap();
        let namespace = cluster.namespace(prefix).await.unwrap();
        Self { cluster, namespace }
    }

    async fn kubectl(&self, who: &str, words: &[&str], input: &str) -> Finished {
        let words = [words, &["--namespace", &self.namespace.name]].concat();
        self.cluster.kubectl(words).person(who).input(input.to_owned()).run().await.unwrap()
    }

    async fn run_kubectl(&self, who: &str, words: &[&str], input: &str) -> String {
        self.kubectl(who, words, input).await.ok().unwrap()
    }

    async fn wait_until(&self, what: &str, object: &str) {
        self.run_kubectl("dana", &["wait", &format!("--for={what}"), object, "--timeout=60s"], "").await;
    }

    async fn approve(&self, who: &str, approval: &str) {
        let decision = json!({"spec": {"decisions": {named(who).unwrap().user: {"verdict": "Approve"}}}}).to_string();
        self.run_kubectl(who, &["patch", "approval", approval, "--type=merge", "--patch", &decision], "").await;
    }

    /// Returns the words of an Approval's row, with all columns.
    async fn row(&self, approval: &str) -> Vec<String> {
        let table = self.run_kubectl("dana", &["get", "approval", approval, "-o", "wide"], "").await;
        let row = table.lines().nth(1).unwrap_or_default();
        row.split_whitespace().map(str::to_owned).collect()
    }
}

const TWO_GATES: &str = r#"
apiVersion: signoff.dev/v1alpha1
kind: Workflow
metadata: {name: two}
spec:
  pattern: {parallel: {}}
  steps:
  - name: ask
    branch: legal
    hitl: {prompt: "Legal?", threshold: 2, approvers: [{kind: User, name: alice@example.com}, {kind: User, name: bob@example.com}]}
  - name: ask
    branch: budget
    hitl: {prompt: "Affordable?", approvers: [{kind: User, name: alice@example.com}]}
"#;

#[tokio::test]
async fn columns_show_every_pending_gate_every_decider_and_a_count_of_zero() {
    let shown = TestNamespace::on("columns").await;
    shown.run_kubectl("dana", &["create", "-f", "-"], TWO_GATES).await;
    shown.wait_until("jsonpath={.status.phase}=Waiting", "workflow/two").await;
    let pending =
        shown.run_kubectl("dana", &["get", "workflow", "two", "-o", "jsonpath={.status.pending[*]}"], "").await;
    let names: Vec<&str> = pending.split_whitespace().collect();
    let table = shown.run_kubectl("dana", &["get", "workflows"], "").await;
    assert!(table.contains(&format!("waiting for {}, {}", names[0], names[1])), "{table}");

    for name in &names {
        shown.wait_until("create", &format!("approval/{name}")).await;
    }
    let path = "jsonpath={.items[?(@.spec.request.gate.path==\"legal/ask\")].metadata.name}";
    let legal = &shown.run_kubectl("dana", &["get", "approvals", "-o", path], "").await;
    assert_eq!(shown.row(legal).await[3..6], ["Pending", "0", "2"]);
    shown.approve("alice", legal).await;
    shown.wait_until("jsonpath={.status.have}=1", &format!("approval/{legal}")).await;
    assert_eq!(shown.row(legal).await[3..6], ["Pending", "1", "2"]);
    shown.approve("bob", legal).await;
    shown.wait_until("condition=Decided", &format!("approval/{legal}")).await;
    assert_eq!(shown.row(legal).await[3..8], ["Approved", "2", "2", "alice@example.com,", "bob@example.com"]);
}

const LONGEST: &str = r#"
apiVersion: signoff.dev/v1alpha1
kind: Workflow
metadata: {name: refunds-of-the-european-customers-of-acme-in-november-2026}
spec:
  steps:
  - name: who-approves-the-refunds-of-november
    hitl: {prompt: "May all of these refunds be sent today?", approvers: [{kind: Group, name: finance}]}
"#;

#[tokio::test]
async fn the_table_of_approvals_fits_120_columns_with_the_longest_names() {
    let shown = TestNamespace::on("wide").await;
    let name = "refunds-of-the-european-customers-of-acme-in-november-2026";
    shown.run_kubectl("dana", &["create", "-f", "-"], LONGEST).await;
    shown.wait_until("jsonpath={.status.phase}=Waiting", &format!("workflow/{name}")).await;
    let approval =
        shown.run_kubectl("dana", &["get", "workflow", name, "-o", "jsonpath={.status.pending[0]}"], "").await;
    shown.wait_until("create", &format!("approval/{approval}")).await;
    let fits = |table: &str| {
        let row = table.lines().find(|line| line.starts_with(&*approval)).unwrap();
        assert!(approval.len() > 60 && row.trim_end().len() <= 120, "{table}");
    };
    let table = shown.run_kubectl("dana", &["get", "approvals"], "").await;
    fits(&table);
    let headers: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(headers, ["NAME", "PHASE", "HAVE", "NEED", "DEADLINE", "AGE"]);
    shown.approve("alice", &approval).await;
    shown.wait_until("condition=Decided", &format!("approval/{approval}")).await;
    fits(&shown.run_kubectl("dana", &["get", "approvals"], "").await);
    let wide = shown.run_kubectl("dana", &["get", "approvals", "-o", "wide"], "").await;
    assert!(wide.contains("DECIDED BY") && wide.contains("alice@example.com"), "{wide}");
}

const REFUSED: &str = r#"
apiVersion: signoff.dev/v1alpha1
kind: Workflow
metadata: {name: again}
spec:
  steps:
  - {name: note, set: {value: "{{ inputs.nothing }}"}}
"#;

#[tokio::test]
async fn a_refused_file_says_how_to_run_it_again_and_that_works() {
    let shown = TestNamespace::on("again").await;
    shown.run_kubectl("dana", &["apply", "-f", "-"], REFUSED).await;
    shown.wait_until("condition=Finished", "workflow/again").await;
    let table = shown.run_kubectl("dana", &["get", "workflows"], "").await;
    for words in ["Failed", "unknown reference `inputs.nothing`", "kubectl replace --force -f FILE"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let corrected = REFUSED.replace("{{ inputs.nothing }}", "a note");
    let refused = shown.kubectl("dana", &["apply", "-f", "-"], &corrected).await.refused().unwrap();
    assert!(refused.contains("spec is immutable") && refused.contains("kubectl replace --force -f FILE"), "{refused}");
    shown.run_kubectl("dana", &["replace", "--force", "-f", "-"], &corrected).await;
    shown.wait_until("condition=Complete", "workflow/again").await;
}
