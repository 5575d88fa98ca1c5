//! `doctor`: checks the admission policies and the operator, and reports who could impersonate the operator, what an
//! upgrade would void, and what runs wait for.
//!
//! It reads objects only. `doctor --notify` also lets the operator send a test notice.

mod deciders;
mod impersonators;
mod notify;
mod rbac;
mod upgrade;
mod waiting;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use signoff_admission::policies::Identity;
use signoff_admission::{Inspection, READER_ROLE, inspect_as, installed_for, serves_mutating_policies};
use signoff_cli::sanitize::one_line;
use signoff_review::operator_lease::{GONE, OperatorState};

use crate::{
    args::Doctor,
    cluster::{client::Session, operator_status::fetch_operator_state},
    error::Failure,
    output::wrap::wrap,
};

/// The result of the check.
pub struct DoctorReport {
    /// The page for people.
    pub page: String,
    /// The failure that the command ends with, or `None` if it found no problem.
    pub problem: Option<Failure>,
    /// The facts about `operator` and `policies`, for programs.
    pub installation_facts: Value,
}

impl DoctorReport {
    /// Returns the result without facts about the operator and the policies.
    pub fn new(page: String, problem: Option<Failure>) -> Self {
        Self { page, problem, installation_facts: Value::Null }
    }

    /// Returns `{ok, problem, operator, policies, report}`; the report is the page by lines.
    pub fn facts(&self) -> Value {
        json!({
            "ok": self.problem.is_none(),
            "problem": self.problem.as_ref().map(ToString::to_string),
            "operator": self.installation_facts["operator"],
            "policies": self.installation_facts["policies"],
            "report": self.page.lines().collect::<Vec<_>>(),
        })
    }
}

/// Returns the facts about the operator and the policies, for programs.
fn installation_facts(state: &OperatorState, installation: &Result<Installation, Failure>) -> Value {
    let name = match state {
        OperatorState::Alive { .. } => "Alive",
        OperatorState::Stale { .. } => "Stale",
        OperatorState::Absent { .. } => "Absent",
        OperatorState::Unknown(_) => "Unknown",
    };
    let policies = match installation {
        Ok(found) => {
            let problems = found.inspection.problems();
            json!({"inForce": problems.is_empty(), "problems": problems})
        }
        Err(why) => json!({"inForce": null, "problems": [why.to_string()]}),
    };
    json!({"operator": {"state": name, "message": state.to_string()}, "policies": policies})
}

/// The installed policies, compared with the policies that this plugin would install for the operator.
struct Installation {
    operator: Identity,
    inspection: Inspection,
}

/// Checks the policies and the operator. With a name, or if `in_namespace` is set, also reports what the run or the
/// namespace waits for. `--upgrade` and `--notify` have reports of their own instead.
pub async fn doctor(session: &Session, options: &Doctor, in_namespace: bool) -> DoctorReport {
    let installation = Installation::read(session, options).await;
    if options.upgrade {
        return upgrade::report(session, installation.map(|found| found.inspection)).await;
    }
    if let Some(channel) = &options.notify {
        return match installation {
            Ok(Installation { operator, .. }) => {
                let pods = list_pods(session, &operator).await;
                notify::report(session, options, channel, &operator, &pods).await
            }
            Err(failure) => DoctorReport::new(String::new(), Some(failure)),
        };
    }
    let named = options.operator_namespace.as_deref();
    let namespace = installation.as_ref().map_or(named, |found| Some(&found.operator.namespace));
    let mut state = fetch_operator_state(session, namespace).await;
    let pods = match &installation {
        Ok(found) => list_pods(session, &found.operator).await,
        Err(_) => Ok(Vec::new()),
    };
    if let Ok(pods) = &pods {
        state = state.with_pod(pods);
    }
    let (mut page, mut problems) = (String::new(), Vec::new());
    let is_about_waiting = options.name.is_some() || in_namespace;
    let mut failure = None;
    if is_about_waiting {
        match waiting::report(session, options.name.as_ref(), &state).await {
            Ok(report) => {
                page.push_str(&format!("{}\n", report.page));
                problems.extend(report.problems);
            }
            Err(error @ Failure::NotFound(_)) => return DoctorReport::new(page, Some(error)),
            Err(error) => failure = Some(error),
        }
    }
    page.push_str(&operator_lines(&state));
    let installation_facts = installation_facts(&state, &installation);
    match installation {
        Ok(Installation { operator, inspection }) => {
            let is_well = inspection.problems().is_empty();
            // A report about a run shows only the problems of the installation.
            if is_about_waiting && is_well && !state.is_gone() && !options.verbose {
                page.push_str("In force: the API server verifies votes.\n");
            } else {
                page.push_str(&render_installation(session, &operator, &pods, &inspection, options.verbose).await);
            }
            if !is_well {
                failure = failure.or(Some(Failure::Unguarded));
            }
        }
        Err(Failure::Refused(_)) if is_about_waiting => page.push_str(&wrap(
            0,
            &format!(
                "Whether the admission policies are in force is unknown: you cannot read them (ClusterRole {READER_ROLE})."
            ),
        )),
        Err(why) if is_about_waiting => page.push_str(&wrap(0, &format!("The rules were not compared: {why}"))),
        Err(why) => failure = Some(why),
    }
    if state.is_gone() {
        problems.insert(0, format!("{state}: no run continues and no vote is counted; start the operator"));
    }
    if state.has_wrong_clock() {
        problems.push(state.to_string());
    }
    let problem = failure.or_else(|| (!problems.is_empty()).then(|| Failure::Other(problems.join("; "))));
    DoctorReport { page, problem, installation_facts }
}

/// Renders the operator's Pods and the policies. Fetches and adds who could impersonate the operator.
async fn render_installation(
    session: &Session,
    operator: &Identity,
    pods: &Result<Vec<Pod>, String>,
    inspection: &Inspection,
    is_verbose: bool,
) -> String {
    let other_version = match inspection.problems().is_empty() {
        true => String::new(),
        false => wrap(
            2,
            "If the operator has another version than this plugin (kubectl approve version): it compares with the rules of its own. \
             Install the plugin of that version.",
        ),
    };
    format!(
        "{}\nCompared with the rules of kubectl-approve {}.\n{}{other_version}\n{}",
        pod_lines(operator, pods),
        env!("CARGO_PKG_VERSION"),
        inspection.report(is_verbose),
        impersonators::render_paragraph(session.raw(), operator).await
    )
}

impl Installation {
    async fn read(session: &Session, options: &Doctor) -> Result<Self, Failure> {
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
        let inspection = inspect_as(client, operator.clone(), mutating).await.map_err(explain)?;
        Ok(Self { operator, inspection })
    }
}

/// Describes the state of the operator, with the remedy if it is gone.
fn operator_lines(state: &OperatorState) -> String {
    match state {
        OperatorState::Alive { .. } => wrap(0, &format!("Operator: alive: {state}.")),
        OperatorState::Unknown(why) => wrap(0, &format!("Operator: unknown: {why}.")),
        OperatorState::Stale { .. } | OperatorState::Absent { .. } => {
            wrap(0, &format!("Operator: GONE: {state}. {GONE}"))
        }
    }
}

/// Lists the Pods of the operator's service account.
async fn list_pods(session: &Session, operator: &Identity) -> Result<Vec<Pod>, String> {
    let api = Api::<Pod>::namespaced(session.raw().clone(), &operator.namespace);
    let account = format!("spec.serviceAccountName={}", operator.service_account);
    match api.list(&ListParams::default().fields(&account)).await {
        Ok(found) => Ok(found.items),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Err(format!("you cannot list the Pods of {}", one_line(&operator.namespace, 63)))
        }
        Err(error) => Err(format!("its Pods cannot be listed: {}", session.explain(error))),
    }
}

/// Returns a line for each Pod of the operator, or why there is none.
fn pod_lines(operator: &Identity, pods: &Result<Vec<Pod>, String>) -> String {
    match pods {
        Ok(pods) if pods.is_empty() => {
            format!("  no Pod has the service account {}\n", one_line(&operator.service_account, 253))
        }
        Ok(pods) => pods.iter().map(|pod| wrap(2, &pod_line(pod))).collect(),
        Err(why) => wrap(2, why),
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
    let unscheduled =
        conditions.iter().filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let unscheduled = unscheduled.map(|condition| (condition.reason.clone(), condition.message.clone()));
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

    use super::*;

    #[test]
    fn an_operator_that_is_gone_is_reported_with_the_consequence() {
        let age = Duration::from_secs(42);
        let state = OperatorState::Stale { holder: "operator-1".into(), age };
        assert_eq!(
            operator_lines(&state),
            "Operator: GONE: no operator has renewed its Lease for 42 s (the last was\n  operator-1). No run continues \
             and no vote is counted until it starts again.\n"
        );
    }

    #[test]
    fn the_facts_have_stable_names() {
        let state = OperatorState::Absent { namespace: "signoff-system".into() };
        let installation_facts = installation_facts(&state, &Err(Failure::Other("no answer".into())));
        let report = DoctorReport { page: "one\ntwo\n".into(), problem: Some(Failure::Unguarded), installation_facts };
        let facts = report.facts();
        assert_eq!((&facts["ok"], &facts["operator"]["state"]), (&json!(false), &json!("Absent")));
        assert_eq!(facts["policies"], json!({"inForce": null, "problems": ["error: no answer"]}));
        assert_eq!(facts["report"], json!(["one", "two"]));
        assert_eq!(DoctorReport::new(String::new(), None).facts()["operator"], Value::Null);
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
