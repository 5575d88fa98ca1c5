//! `doctor`: whether the admission policies are in force, whether an operator is alive, and who could impersonate it.
//!
//! Reads only. It repairs nothing.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use signoff_admission::policies::Identity;
use signoff_admission::{READER_ROLE, inspect_as, installed_for, serves_mutating_policies};

use crate::{
    args::Doctor,
    client::Session,
    error::Failure,
    impersonators,
    operator_status::{OperatorState, lease_name, operator_state},
    sanitize::one_line,
};

/// The result of the check.
pub struct Found {
    /// The page for people.
    pub page: String,
    /// What is wrong.
    pub problem: Option<Failure>,
}

/// Checks the installation.
///
/// # Errors
/// As every request.
pub async fn doctor(session: &Session, options: &Doctor) -> Result<Found, Failure> {
    let client = session.raw();
    let explain = |error| match session.explain(error) {
        Failure::Refused(why) => {
            Failure::Refused(format!("{why}; the ClusterRole {READER_ROLE} lets you read the rules"))
        }
        other => other,
    };
    let mutating = serves_mutating_policies(client).await.map_err(explain)?;
    let installed = installed_for(client).await.map_err(explain)?.unwrap_or_default();
    let operator = Identity::new(
        options.operator_namespace.as_deref().unwrap_or(&installed.namespace),
        options.operator_service_account.as_deref().unwrap_or(&installed.service_account),
    );
    let found = inspect_as(client, operator.clone(), mutating).await.map_err(explain)?;
    let version = env!("CARGO_PKG_VERSION");
    let state = operator_state(session, Some(&operator.namespace)).await;
    let impersonators = impersonators::paragraph(client, &operator).await;
    let page = format!(
        "Compared with the rules of kubectl-approve {version}.\n{}\n{}{}\n{impersonators}",
        found.report(),
        operator_line(&state, &operator.namespace),
        pods(session, &operator).await,
    );
    let problem = match found.problems().is_empty() {
        false => Some(Failure::Unguarded),
        true => state.is_gone().then(|| gone(&state)),
    };
    Ok(Found { page, problem })
}

fn gone(state: &OperatorState) -> Failure {
    Failure::Other(format!("{state}: no run continues and no vote is counted; start the operator"))
}

/// The sentence about the operator.
fn operator_line(state: &OperatorState, namespace: &str) -> String {
    let lease = lease_name(namespace);
    match state {
        OperatorState::Alive { .. } => format!("Operator: alive: {state} (Lease {lease}).\n"),
        OperatorState::Unknown(why) => format!("Operator: unknown: {why}.\n"),
        OperatorState::Stale { .. } | OperatorState::Absent { .. } => format!(
            "Operator: GONE: {state} (Lease {lease}). No run continues and no vote is counted until an operator starts: \
             kubectl get deployments,pods -n {}\n",
            one_line(namespace, 63)
        ),
    }
}

/// A line for each Pod of the operator's service account.
async fn pods(session: &Session, operator: &Identity) -> String {
    let api = Api::<Pod>::namespaced(session.raw().clone(), &operator.namespace);
    let account = format!("spec.serviceAccountName={}", operator.service_account);
    match api.list(&ListParams::default().fields(&account)).await {
        Ok(found) if found.items.is_empty() => {
            format!("  no Pod has the service account {}\n", one_line(&operator.service_account, 253))
        }
        Ok(found) => found.items.iter().map(|pod| format!("  {}\n", pod_line(pod))).collect(),
        Err(error) => format!("  its Pods cannot be listed: {}\n", one_line(&session.explain(error).to_string(), 300)),
    }
}

/// Describes a Pod: its phase, its restarts, and why it does not run.
fn pod_line(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let mut line = format!("Pod {}: {}", pod.name_any(), status.phase.as_deref().unwrap_or("not scheduled"));
    let containers = status.container_statuses.unwrap_or_default();
    let restarts: i32 = containers.iter().map(|container| container.restart_count).sum();
    if restarts > 0 {
        line.push_str(&format!(", {restarts} restarts"));
    }
    let waiting = containers.iter().filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    let waiting = waiting.map(|waiting| (waiting.reason.clone(), waiting.message.clone()));
    let conditions = status.conditions.unwrap_or_default();
    let unscheduled = conditions.iter().filter(|said| said.type_ == "PodScheduled" && said.status == "False");
    let unscheduled = unscheduled.map(|said| (said.reason.clone(), said.message.clone()));
    if let Some((reason, message)) = waiting.chain(unscheduled).next() {
        let why: Vec<_> = [reason, message].into_iter().flatten().collect();
        line.push_str(&format!(", {}", why.join(": ")));
    }
    one_line(&line, 400)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::sample;

    #[test]
    fn an_operator_that_is_gone_is_said_with_its_consequence_and_the_command() {
        let age = Duration::from_secs(42);
        let state = OperatorState::Stale { holder: "operator-1".into(), renewed_at: sample::now(), age };
        assert_eq!(
            operator_line(&state, "signoff-system"),
            "Operator: GONE: no operator has renewed its Lease for 42 s (the last was operator-1) (Lease \
             signoff-system/signoff-operator). No run continues and no vote is counted until an operator starts: \
             kubectl get deployments,pods -n signoff-system\n"
        );
        assert_eq!(gone(&state).code(), 1);
    }

    #[test]
    fn a_pod_is_described_with_the_reason_why_it_does_not_run() {
        let line = |status: Value| {
            pod_line(&serde_json::from_value(json!({"metadata": {"name": "operator-1"}, "status": status})).unwrap())
        };
        assert_eq!(line(json!({"phase": "Running"})), "Pod operator-1: Running");
        let unscheduled = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"},
        ]});
        assert_eq!(line(unscheduled), "Pod operator-1: Pending, Unschedulable: 0/1 nodes are available");
        let crashing = json!({"phase": "Running", "containerStatuses": [{
            "name": "operator", "image": "i", "imageID": "", "ready": false, "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        }]});
        assert_eq!(line(crashing), "Pod operator-1: Running, 4 restarts, CrashLoopBackOff");
    }
}
