//! People in a simulation: they wait until they are asked, take their time, and decide.
//! They must not know whether an operator lives: all they see are objects.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Harness, NAMESPACE, workflows};

/// Everybody who is no operator.
#[derive(Clone)]
pub struct People {
    harness: Harness,
}

impl People {
    pub fn new(harness: Harness) -> Self {
        Self { harness }
    }

    /// Waits until the gate of this path asks, and returns the name of its Approval.
    pub async fn asked(&self, path: &str) -> String {
        let open = |harness: &Harness| {
            let approvals = harness.approvals();
            let asks = |approval: &&Value| {
                approval["spec"]["request"]["gate"]["path"] == path && approval["status"]["outcome"].is_null()
            };
            approvals.iter().find(asks).map(name)
        };
        self.harness.server.until_all(|_| open(&self.harness).is_some()).await;
        open(&self.harness).unwrap_or_default()
    }

    /// Waits until the gate of this path asks; nothing where the run ends before it does.
    pub async fn asked_before_the_end(&self, workflow: &str, path: &str) -> Option<String> {
        tokio::select! {
            biased;
            approval = self.asked(path) => Some(approval),
            _ = self.harness.ended(workflow) => None,
        }
    }

    /// Somebody decides a gate, this many seconds after it asked.
    pub async fn decides(&self, user: &str, path: &str, seconds: u64, decision: Value) {
        let approval = self.asked(path).await;
        self.pass(seconds).await;
        self.votes(user, &approval, decision);
    }

    /// Somebody puts a decision into an Approval, whatever became of it meanwhile.
    pub fn votes(&self, user: &str, approval: &str, decision: Value) {
        // An Approval that was deleted takes no votes any more.
        let _ = self.harness.server.as_person(user).decides(NAMESPACE, approval, decision);
    }

    /// Somebody edits the spec of a Workflow.
    pub fn sets(&self, workflow: &str, field: &str, value: impl Into<Value>) {
        let value = value.into();
        let edited =
            self.harness.server.edit(&workflows(), NAMESPACE, workflow, |object| object["spec"][field] = value);
        assert!(edited.is_some(), "there is no Workflow {workflow}");
    }

    /// They do something else.
    pub async fn pass(&self, seconds: u64) {
        self.harness.server.clock().pass(Duration::from_secs(seconds)).await;
    }
}

/// A decision that is only a verdict.
pub fn verdict(verdict: &str) -> Value {
    json!({"verdict": verdict})
}

/// The name of an object.
pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
