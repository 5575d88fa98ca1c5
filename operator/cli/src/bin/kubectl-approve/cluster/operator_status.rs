//! The state of the operator by its Lease: namespace *(I/O)* -> Lease *(I/O)* -> state
//! ([`signoff_review::operator_lease`], *(pure)*).

use kube::Client;
use signoff_admission::{installed_for, policies::Identity};
use signoff_cli::sanitize::one_line;
use signoff_review::operator_lease::{OperatorState, lease_name, read};

use super::client::Session;
use crate::error::Failure;

/// Returns the state of the operator in this namespace. `None`: in the namespace that the installed policies trust, or
/// in `signoff-system` if the policies cannot be read. A Lease that looks stale is read a second time, after a
/// renewal period.
pub async fn fetch_operator_state(session: &Session, namespace: Option<&str>) -> OperatorState {
    let client = session.raw();
    let installed = match namespace {
        Some(namespace) => Some(namespace.to_owned()),
        None => installed_for(client).await.ok().flatten().map(|operator| operator.namespace),
    };
    let is_guess = installed.is_none();
    let namespace = installed.unwrap_or_else(|| Identity::default().namespace);
    match read_state(client, &namespace).await {
        Ok(Some(state)) => state,
        Ok(None) => OperatorState::Absent { namespace },
        Err(kube::Error::Api(status)) if status.code == 404 && !is_guess => OperatorState::Absent { namespace },
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => OperatorState::Unknown(format!(
            "{} the Lease {}; {}",
            if status.code == 404 { "there is not" } else { "you cannot read" },
            lease_name(&namespace),
            if is_guess {
                "if the operator runs in another namespace: kubectl approve doctor --operator-namespace NAME"
            } else {
                "the chart's value roles.readLease lets every user read it"
            }
        )),
        Err(error) => OperatorState::Unknown(match session.explain(error) {
            Failure::Other(why) => one_line(&why, 300),
            other => one_line(&other.to_string(), 300),
        }),
    }
}

/// Returns why no operator counts decisions, or `None` if that is not certain.
pub async fn fetch_operator_silence(session: &Session) -> Option<String> {
    let state = fetch_operator_state(session, None).await;
    state.is_gone().then(|| state.to_string())
}

/// Returns the state that the Lease shows, or `None` if no operator has taken it.
async fn read_state(client: &Client, namespace: &str) -> Result<Option<OperatorState>, kube::Error> {
    let Some(first) = read(client, namespace).await? else { return Ok(None) };
    let state = first.judge();
    if !state.is_gone() || first.is_released() {
        return Ok(Some(state));
    }
    // A watch would be faster, but users can only get this Lease.
    tokio::time::sleep(first.pause()).await;
    Ok(read(client, namespace).await?.map(|later| first.judge_again(&later)))
}
