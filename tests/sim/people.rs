//! People in a simulation: they wait until they are asked, take their time, and decide. They see objects only.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    ending::{is_late, visit},
    harness::{Harness, NAMESPACE, workflows},
};

/// All people.
#[derive(Clone)]
pub struct People {
    harness: Harness,
}

impl People {
    pub fn new(harness: Harness) -> Self {
        Self { harness }
    }

    /// Waits until the gate of this path asks, and returns the name of its Approval.
    pub async fn wait_for_gate(&self, path: &str) -> String {
        let open = |harness: &Harness| {
            let approvals = harness.approvals();
            // A gate that asked late may have ended in the same moment.
            let asks = |approval: &&Value| {
                approval["spec"]["request"]["gate"]["path"] == path
                    && (approval["status"]["outcome"].is_null() || was_asked_late(approval))
            };
            approvals.iter().find(asks).map(name)
        };
        self.harness.server.until_all(|_| open(&self.harness).is_some()).await;
        open(&self.harness).unwrap_or_default()
    }

    /// Waits until the gate of this path asks, and returns the name of its Approval; `None` if the run ends first.
    pub async fn wait_for_gate_or_end(&self, workflow: &str, path: &str) -> Option<String> {
        tokio::select! {
            biased;
            approval = self.wait_for_gate(path) => Some(approval),
            _ = self.harness.wait_for_end(workflow) => None,
        }
    }

    /// Decides a gate, this many seconds after it asked. A gate that asked late asks again, and is decided then.
    pub async fn decide(&self, user: &str, path: &str, seconds: u64, decision: Value) {
        let (gate, mut visit) = visit(path);
        let mut approval = self.wait_for_gate(path).await;
        self.pass(seconds).await;
        while self.harness.approvals().iter().any(|object| name(object) == approval && was_asked_late(object)) {
            visit += 1;
            approval = self.wait_for_gate(&format!("{gate}#{visit}")).await;
            self.pass(seconds).await;
        }
        self.vote(user, &approval, decision);
    }

    /// Writes a decision into an Approval, whatever its state.
    pub fn vote(&self, user: &str, approval: &str, decision: Value) {
        // An Approval that was deleted accepts no votes any more.
        let _ = self.harness.server.as_person(user).decides(NAMESPACE, approval, decision);
    }

    /// Edits the spec of a Workflow.
    pub fn set_field(&self, workflow: &str, field: &str, value: impl Into<Value>) {
        let value = value.into();
        let edited =
            self.harness.server.edit(&workflows(), NAMESPACE, workflow, |object| object["spec"][field] = value);
        assert!(edited.is_some(), "there is no Workflow {workflow}");
    }

    /// Lets this many seconds pass.
    pub async fn pass(&self, seconds: u64) {
        self.harness.server.clock().pass(Duration::from_secs(seconds)).await;
    }
}

/// Returns whether an Approval was ended because people were asked late.
pub fn was_asked_late(approval: &Value) -> bool {
    is_late(&approval["status"]["outcome"])
}

/// Returns a decision that is only a verdict.
pub fn verdict(verdict: &str) -> Value {
    json!({"verdict": verdict})
}

/// Returns the name of an object.
pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
