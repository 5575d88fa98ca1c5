//! Requests that wait: runs of 40 gates that are open at once, each gate an Approval.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join;
use serde_json::{Value, json};
use signoff_api::names::LABEL_WORKFLOW;
use signoff_tests::control_plane::OperatorProcess;
use signoff_tests::say;
use tokio::sync::mpsc;

use super::reader::READER;
use crate::harness::{Harness, approver_user};
use crate::watch::Watch;
use crate::{crowd, gates, sample};

/// The number of gates of one run.
const GATES: usize = 40;
/// The field selector of decided Approvals, whose phase is no longer `Pending`.
const DECIDED: &str = "status.phase!%3DPending";

/// Open Approvals of one namespace.
pub(super) struct Opened {
    pub(super) namespace: String,
    /// The names of the Approvals by run.
    runs: BTreeMap<String, Vec<String>>,
    pub(super) count: usize,
}

impl Opened {
    /// Opens `count` gates, rounded up to whole runs.
    pub(super) async fn open(harness: &Harness, operator: &OperatorProcess, count: usize) -> Result<Self> {
        let runs = count.div_ceil(GATES);
        let count = runs * GATES;
        say::step(&format!("opening {count} gates of {runs} runs"));
        let namespace = harness.namespace().await?;
        let collection = sample::path(&namespace, "workflows");
        let bodies: Vec<_> = (0..runs)
            .map(|index| Ok(serde_json::to_vec(&workflow(&sample::name(index), &namespace)?)?))
            .collect::<Result<_>>()?;
        let watch = Watch::open(&harness.admin, &sample::path(&namespace, "approvals"), "").await?;
        let mut seen = BTreeMap::new();
        let watching = watch.until(|sight| {
            let metadata = sight.object.metadata;
            let run = metadata.labels.get(LABEL_WORKFLOW).cloned();
            let run = run.with_context(|| format!("Approval {} has no label {LABEL_WORKFLOW}", metadata.name))?;
            seen.insert(metadata.name, run);
            Ok(seen.len() == count)
        });
        let applying = crowd::each(4, runs, async |index| {
            crowd::post(&harness.requester, &collection, bodies[index].clone()).await.map(drop)
        });
        let limit = Duration::from_secs(120) + Duration::from_millis(200) * u32::try_from(count).unwrap_or(u32::MAX);
        gates::with_time_limit(
            limit,
            operator,
            &format!("not all of {count} gates were open"),
            try_join(watching, applying),
        )
        .await?;
        let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, run) in seen {
            runs.entry(run).or_default().push(name);
        }
        Ok(Self { namespace, runs, count })
    }

    /// Returns the first Approval of each run, then the second of each run, and so on.
    pub(super) fn names_in_turns(&self) -> impl Iterator<Item = &String> {
        (0..GATES).flat_map(|turn| self.runs.values().filter_map(move |names| names.get(turn)))
    }

    /// Watches as the administrator until `count` Approvals are decided. Sends the name of each Approval once, with the
    /// arrival of its watch event.
    pub(super) async fn watch_decisions(
        &self,
        harness: &Harness,
        count: usize,
        sender: mpsc::UnboundedSender<(String, Instant)>,
    ) -> Result<()> {
        let watch = Watch::open(&harness.admin, &sample::path(&self.namespace, "approvals"), DECIDED).await?;
        let mut known = BTreeSet::new();
        watch
            .until(|seen| {
                let name = seen.object.metadata.name;
                if known.insert(name.clone()) {
                    // The voting task has ended with an error of its own.
                    let _ = sender.send((name, seen.at));
                }
                Ok(known.len() == count)
            })
            .await
    }
}

/// Returns a Workflow of [`GATES`] gates, none of which waits for another. The readers can decide every gate too.
fn workflow(name: &str, namespace: &str) -> Result<Value> {
    let approver = approver_user()?;
    let gate = |index: usize| {
        json!({"name": format!("review-{index:02}"), "hitl": {
            "prompt": format!("Send letter {index} to {{{{ inputs.customer }}}}?"),
            "contextDisplay": "Refund {{ inputs.amount }} EUR to {{ inputs.customer }}.",
            "approvers": [
                {"kind": "User", "name": approver},
                {"kind": "ServiceAccount", "name": READER, "namespace": namespace},
            ],
            "timeout": {"after": "24h", "action": "Reject"},
        }})
    };
    Ok(json!({
        "apiVersion": "signoff.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {
            // Admission stamps the requester if the name is empty.
            "requestedBy": "",
            "inputs": [{"name": "customer", "value": "ACME"}, {"name": "amount", "type": "number", "value": 420}],
            "pattern": {"dag": {}},
            "steps": (0..GATES).map(gate).collect::<Vec<_>>(),
        },
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn votes_go_from_run_to_run() {
        let names = |run: &str| (run.to_owned(), vec![format!("{run}-1"), format!("{run}-2")]);
        let opened = Opened { namespace: "n".to_owned(), runs: BTreeMap::from([names("a"), names("b")]), count: 4 };
        assert_eq!(opened.names_in_turns().collect::<Vec<_>>(), ["a-1", "b-1", "a-2", "b-2"]);
    }

    #[test]
    fn the_measured_workflow_can_be_read_by_the_types() {
        let workflow: signoff_api::Workflow = serde_json::from_value(workflow("w", "n").unwrap()).unwrap();
        assert_eq!(workflow.spec.steps.iter().filter(|step| step.hitl.is_some()).count(), GATES);
    }
}
