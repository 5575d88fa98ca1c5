//! From the first stored format, frozen in `tests/contract/upgrade/`, to this one: by real helm, with runs in flight.
//! The test has a control plane of its own.

use std::path::Path;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::conditions::{self, reason};
use signoff_api::journal::{StepKind, StepPhase};
use signoff_api::rules::RULES;
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, ApprovalRequest, Workflow, names};
use signoff_tests::control_plane::{Cluster, OperatorOptions, OperatorProcess};

use crate::policies::harness::{Answer, assert_refused, to_answer};

/// The deadline of every wait: the operator tries forged requests before it trusts new rules.
const TIMEOUT: Duration = Duration::from_secs(90);
/// The largest number of times for which a gate asks: the first time, and once more because of the upgrade.
const VISITS: usize = 2;

fn frozen_path(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contract/upgrade").join(path)
}

struct Harness {
    cluster: Cluster,
    namespace: String,
    operator: Client,
}

impl Harness {
    /// Installs the frozen chart, without any runs.
    async fn open() -> Self {
        let cluster = Cluster::own().await.unwrap();
        cluster.install_chart(&frozen_path("chart"), &[]).await.unwrap();
        let namespace = cluster.namespace("upgrade").await.unwrap().name;
        let operator = cluster.operator_client().await.unwrap();
        Self { cluster, namespace, operator }
    }

    async fn api<K>(&self, who: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.token_client(who).await.unwrap(), &self.namespace)
    }

    fn as_operator<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.operator.clone(), &self.namespace)
    }

    async fn vote(&self, who: &str, approval: &str, decision: Value) -> Answer<Approval> {
        let patch = Patch::Merge(json!({"spec": {"decisions": {format!("{who}@example.com"): decision}}}));
        to_answer(self.api::<Approval>(who).await.patch(approval, &PatchParams::default(), &patch).await)
    }

    /// Stores a frozen run with its Approval, as the frozen version stored them. Only uids, and values that follow from
    /// uids, differ. Returns the Approval's name.
    async fn store(&self, workflow: &Value, approval: &Value) -> String {
        let mut asked = workflow.clone();
        asked["metadata"] = json!({"name": workflow["metadata"]["name"]});
        asked.as_object_mut().unwrap().remove("status");
        let run: Workflow = self
            .api("dana")
            .await
            .create(&PostParams::default(), &serde_json::from_value(asked).unwrap())
            .await
            .unwrap();

        let renamed = |value: &Value, pairs: &[(&str, &str)]| -> Value {
            let text = pairs.iter().fold(value.to_string(), |text, (old, new)| text.replace(old, new));
            serde_json::from_str(&text).unwrap()
        };
        let text = |value: &Value, pointer: &str| value.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        let uid = run.uid().unwrap();
        let uids = [(&*text(workflow, "/metadata/uid"), &*uid)];
        let approval = renamed(approval, &uids);
        let request: ApprovalRequest = serde_json::from_value(approval["spec"]["request"].clone()).unwrap();
        let digest = request.digest_of_the_rest().unwrap();
        let name = names::approval(&run.name_any(), "review", &digest);
        let (old_name, old_digest) = (text(&approval, "/metadata/name"), text(&approval, "/spec/request/digest"));
        let pairs = [(&*old_name, &*name), (&*old_digest, digest.as_str())];
        let approval = renamed(&approval, &pairs);
        let status = renamed(&renamed(&workflow["status"], &uids), &pairs);

        let mut bare = approval.clone();
        bare["spec"].as_object_mut().unwrap().remove("decisions");
        bare["metadata"].as_object_mut().unwrap().remove("uid");
        let bare: Approval = serde_json::from_value(bare).unwrap();
        self.as_operator().create(&PostParams::default(), &bare).await.unwrap();
        for (user, decision) in approval["spec"]["decisions"].as_object().into_iter().flatten() {
            self.vote(user.strip_suffix("@example.com").unwrap(), &name, decision.clone()).await.unwrap();
        }
        let written = Patch::Merge(json!({"status": approval["status"]}));
        self.as_operator::<Approval>().patch_status(&name, &PatchParams::default(), &written).await.unwrap();
        // A status that began before its object would be that of a copy from a backup.
        let mut status = status.clone();
        status["startedAt"] = json!(run.metadata.creation_timestamp);
        let written = Patch::Merge(json!({"status": status}));
        let stored: Workflow =
            self.as_operator().patch_status(&run.name_any(), &PatchParams::default(), &written).await.unwrap();
        assert_eq!(stored.status.unwrap().steps.len(), 2);
        name
    }

    /// Waits until a run reports that it was accepted under other rules.
    async fn wait_until_held(&self, run: &str) {
        let held = |workflow: Option<&Workflow>| {
            let status = workflow.and_then(|workflow| workflow.status.as_ref());
            let mut all = status.iter().flat_map(|status| &status.conditions);
            all.any(|condition| condition.type_ == conditions::HELD && condition.reason == reason::OLD_RULES)
        };
        let api = self.as_operator::<Workflow>();
        let waits = tokio::time::timeout(TIMEOUT, await_condition(api.clone(), run, held)).await;
        assert!(waits.is_ok(), "{run} is not held: {:#?}", api.get(run).await.unwrap().status);
    }

    /// Waits until a run has ended, or asks at a gate in another Approval than these.
    async fn wait_for_next_gate(&self, run: &str, seen: &[String]) -> Workflow {
        let moved = |workflow: Option<&Workflow>| {
            workflow.is_some_and(|workflow| {
                has_ended(workflow) || open_approval(workflow).is_some_and(|approval| !seen.contains(&approval))
            })
        };
        let api = self.as_operator::<Workflow>();
        match tokio::time::timeout(TIMEOUT, await_condition(api.clone(), run, moved)).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => panic!("{run} stands still: {:#?}", api.get(run).await.unwrap().status),
        }
    }

    /// Lets alice and bob decide at each gate of a run, until it has ended. Returns its Approvals.
    async fn decide_until_end(&self, run: &str) -> (Workflow, Vec<String>) {
        let mut asked = Vec::new();
        loop {
            let workflow = self.wait_for_next_gate(run, &asked).await;
            if has_ended(&workflow) {
                return (workflow, asked);
            }
            let approval = open_approval(&workflow).unwrap();
            let there =
                await_condition(self.as_operator::<Approval>(), &approval, |found: Option<&Approval>| found.is_some());
            tokio::time::timeout(TIMEOUT, there).await.unwrap().unwrap();
            for who in ["alice", "bob"] {
                // A voter who has voted, or is too late, is told so; an invalid first attempt is followed by a second.
                if let Err(why) = self.vote(who, &approval, json!({"verdict": "Approve"})).await {
                    assert!(why.contains("a decision is final") || why.contains("too late"), "{run}, {who}: {why}");
                }
            }
            asked.push(approval);
            assert!(asked.len() <= VISITS, "{run} asks again and again: {asked:?}");
        }
    }
}

fn has_ended(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.phase.is_end())
}

/// Returns the Approval that a run waits for.
fn open_approval(workflow: &Workflow) -> Option<String> {
    let steps = &workflow.status.as_ref()?.steps;
    steps.iter().find(|step| step.kind == StepKind::Hitl && step.phase == StepPhase::Waiting)?.object.clone()
}

#[tokio::test]
async fn runs_of_the_first_version_are_held_after_an_upgrade() {
    let harness = Harness::open().await;
    let objects: Value = serde_json::from_str(&std::fs::read_to_string(frozen_path("objects.json")).unwrap()).unwrap();
    let mut names = std::collections::BTreeMap::new();
    for workflow in objects["workflows"].as_array().unwrap() {
        let run = workflow["metadata"]["name"].as_str().unwrap();
        let of_it = |approval: &&Value| approval["spec"]["request"]["workflow"]["name"] == run;
        let approval = objects["approvals"].as_array().unwrap().iter().find(of_it).unwrap();
        names.insert(run, harness.store(workflow, approval).await);
    }

    harness.cluster.install(&[]).await.unwrap();

    // Whatever was recorded, all other users and the operator can still write beside it.
    for (run, name) in &names {
        if *run == "untouched" {
            harness.vote("alice", name, json!({"verdict": "Approve", "requestDigest": "latest"})).await.unwrap_err();
        } else {
            let changed = json!({"verdict": "Reject", "parameters": null});
            assert_refused(harness.vote("alice", name, changed).await, "a decision is final");
        }
        if *run == "one-of-two" || *run == "unread" {
            harness.vote("bob", name, json!({"verdict": "Approve"})).await.unwrap();
        }
        let written = Patch::Merge(json!({"status": {"reminders": 1}}));
        let written = harness.as_operator::<Approval>().patch_status(name, &PatchParams::default(), &written).await;
        assert_eq!(written.unwrap().status.unwrap().reminders, Some(1), "{run}");
    }
    let invalid = json!({"verdict": "Modify", "attempt": 2, "parameters": {"response": "Refund 40"}});
    harness.vote("alice", &names["invalid"], invalid).await.unwrap();

    // They were accepted under other rules: each is held, and nothing of it is counted or ended.
    let options = || OperatorOptions { arguments: vec!["--no-lease".to_owned()], ..OperatorOptions::default() };
    let operator = OperatorProcess::start(&harness.cluster, options()).await.unwrap();
    for (run, name) in &names {
        harness.wait_until_held(run).await;
        let old: Approval = harness.as_operator().get(name).await.unwrap();
        let was_decided = *run == "decided";
        assert!(was_decided || old.status.is_none_or(|status| status.outcome.is_none()), "{run}");
    }
    operator.stop().await.unwrap();

    // Under the rules of this version the same runs end, with the stored votes.
    for run in names.keys() {
        let written = Patch::Merge(json!({"status": {"rules": RULES}}));
        let written = harness.as_operator::<Workflow>().patch_status(run, &PatchParams::default(), &written).await;
        assert_eq!(written.unwrap().status.unwrap().rules, Some(RULES));
    }
    let operator = OperatorProcess::start(&harness.cluster, options()).await.unwrap();
    for (run, name) in &names {
        let (workflow, asked) = harness.decide_until_end(run).await;
        let status = workflow.status.as_ref().unwrap();
        assert_eq!(status.phase, WorkflowPhase::Succeeded, "{run}: {:?}", status.message);
        let done = status.steps.iter().any(|step| step.path == "act" && step.phase == StepPhase::Succeeded);
        assert!(done, "{run}: {:#?}", status.steps);
        // The old Approval still exists, also where the gate asked again.
        let old: Approval = harness.as_operator().get(name).await.unwrap();
        assert!(old.spec.decisions.contains_key("alice@example.com"), "{run}: {asked:?}");
    }
    operator.stop().await.unwrap();
}

#[tokio::test]
async fn a_downgrade_keeps_recorded_votes_and_allows_new_ones() {
    let harness = Harness::open().await;
    harness.cluster.install(&[]).await.unwrap();
    let objects: Value = serde_json::from_str(&std::fs::read_to_string(frozen_path("objects.json")).unwrap()).unwrap();
    let of = |kind: &str| {
        let named = |object: &&Value| object.to_string().contains("\"one-of-two\"");
        objects[kind].as_array().unwrap().iter().find(named).unwrap().clone()
    };
    let name = harness.store(&of("workflows"), &of("approvals")).await;
    let before: Approval = harness.as_operator().get(&name).await.unwrap();

    harness.cluster.install_chart(&frozen_path("chart"), &[]).await.unwrap();

    let after: Approval = harness.as_operator().get(&name).await.unwrap();
    assert_eq!((after.uid(), after.spec, after.status), (before.uid(), before.spec, before.status));
    assert_refused(harness.vote("alice", &name, json!({"verdict": "Reject"})).await, "a decision is final");
    harness.vote("bob", &name, json!({"verdict": "Approve"})).await.unwrap();
}
