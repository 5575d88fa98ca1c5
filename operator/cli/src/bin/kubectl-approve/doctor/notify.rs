//! `doctor --notify`: a test notice, which the operator's own program sends in its Pod by `kubectl exec`.
//!
//! **Invariant:** no token and no address of the operator leaves its Pod: only the report of its program is printed.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use signoff_admission::policies::Identity;
use signoff_api::names;
use signoff_cli::sanitize::one_line;
use tokio::process::Command;

use super::DoctorReport;
use crate::{args::Doctor, cluster::client::Session, error::Failure};

/// The program in the operator's image.
const PROGRAM: &str = "/signoff-operator";
/// The container of the operator in its Pod.
const CONTAINER: &str = "operator";
/// The longest line of the report, in characters.
const LINE: usize = 1000;
/// The most lines of the report.
const MOST_LINES: usize = 40;

/// Runs the test in a Pod of the operator, and returns the report of the test.
pub async fn report(
    session: &Session,
    options: &Doctor,
    channel: &str,
    operator: &Identity,
    pods: &Result<Vec<Pod>, String>,
) -> DoctorReport {
    match run_test(session, options, channel, operator, pods).await {
        Ok(found) => found,
        Err(failure) => DoctorReport::new(String::new(), Some(failure)),
    }
}

async fn run_test(
    session: &Session,
    options: &Doctor,
    channel: &str,
    operator: &Identity,
    pods: &Result<Vec<Pod>, String>,
) -> Result<DoctorReport, Failure> {
    if !names::is_label(channel) {
        let why =
            format!("{} is not the name of a channel: write the name in the operator's file", one_line(channel, 63));
        return Err(Failure::Usage(why));
    }
    let pods = pods.as_ref().map_err(|why| Failure::Refused(format!("{why}; the test runs in one of them")))?;
    let pod = pods.iter().find(|pod| is_ready(pod)).ok_or_else(|| {
        let namespace = one_line(&operator.namespace, 63);
        Failure::NotFound(format!(
            "no Pod of the operator in {namespace} is ready: start the operator, then test the channel"
        ))
    })?;
    let arguments =
        kubectl_arguments(session.call.words(), &operator.namespace, pod, channel, options.notify_to.as_deref());
    let output = Command::new("kubectl").args(&arguments).output().await;
    let output =
        output.map_err(|error| Failure::Other(format!("kubectl cannot be started: {error}; put it on PATH")))?;
    let page = printable_lines(&output.stdout);
    if output.status.success() {
        return Ok(DoctorReport::new(page, None));
    }
    let failure = match page.is_empty() {
        // Standard error has a message of the operator's program, of the API server or of kubectl.
        true => {
            Failure::Other(format!("channel {channel} was not tested: {}", printable_lines(&output.stderr).trim_end()))
        }
        false => Failure::Other(format!("channel {channel} does not deliver: mend what FAILED, and test it again")),
    };
    Ok(DoctorReport::new(page, Some(failure)))
}

/// Returns the arguments with which kubectl runs the operator's program in a Pod.
fn kubectl_arguments(flags: &[String], namespace: &str, pod: &Pod, channel: &str, user: Option<&str>) -> Vec<String> {
    let name = pod.name_any();
    let mut arguments = vec!["exec", "-n", namespace, name.as_str()];
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    if containers.map(|container| container.name.as_str()).any(|name| name == CONTAINER) {
        arguments.extend(["-c", CONTAINER]);
    }
    arguments.extend(flags.iter().map(String::as_str));
    arguments.extend(["--", PROGRAM, "notify", "test", channel]);
    let user = user.map(|user| format!("--to={user}"));
    arguments.extend(user.as_deref());
    arguments.into_iter().map(str::to_owned).collect()
}

/// Whether a Pod is running and ready. A Pod that waits for the Lease is ready too, and tests the same file.
fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let is_running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
    let mut conditions = status.iter().flat_map(|status| &status.conditions).flatten();
    let is_being_deleted = pod.metadata.deletion_timestamp.is_some();
    is_running
        && !is_being_deleted
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns the lines of an output without control characters.
fn printable_lines(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().take(MOST_LINES).map(|line| one_line(line, LINE) + "\n").collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn pod(ready: &str, more: Value) -> Pod {
        let mut metadata = json!({"name": "signoff-operator-7"});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {"containers": [{"name": "proxy"}, {"name": "operator"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn the_operators_program_is_run_in_its_container_as_the_same_user() {
        let flags = ["--context".to_owned(), "prod".to_owned()];
        let arguments =
            |user| kubectl_arguments(&flags, "signoff-system", &pod("True", json!({})), "finance", user).join(" ");
        let base = "exec -n signoff-system signoff-operator-7 -c operator --context prod -- /signoff-operator notify test finance";
        assert_eq!(arguments(None), base);
        assert_eq!(arguments(Some("--help")), format!("{base} --to=--help"));
    }

    #[test]
    fn a_pod_that_is_not_ready_or_being_deleted_is_not_used() {
        assert!(is_ready(&pod("True", json!({}))));
        assert!(!is_ready(&pod("False", json!({}))));
        assert!(!is_ready(&pod("True", json!({"deletionTimestamp": "2026-11-22T10:00:00Z"}))));
    }

    #[test]
    fn the_report_shows_no_control_characters() {
        assert_eq!(printable_lines(b"ok      address: x\n\x1b[2JFAILED  notice: y\n").matches('\u{1b}').count(), 0);
        assert_eq!(printable_lines(b""), "");
    }
}
