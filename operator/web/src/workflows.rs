//! Lists of Workflows. Of each Workflow only a few facts are parsed: no journal, and no steps.

use futures::AsyncReadExt;
use kube::{
    Api, Client,
    api::ListParams,
    core::{ListMeta, Request},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;
use signoff_api::{Moment, Workflow, conditions::GUARDED, journal::Usage, workflow::WorkflowPhase};
use signoff_cluster::error::status_code;
use signoff_review::text::one_line;

use crate::error::PageError;

/// The most bytes of a list of several Workflows. Each Workflow can have more than a megabyte.
const LIST_BYTES: u64 = 2 * 1024 * 1024;

/// Every phase, in the order in which it can be chosen.
pub const PHASES: [WorkflowPhase; 9] = [
    WorkflowPhase::Pending,
    WorkflowPhase::Running,
    WorkflowPhase::Waiting,
    WorkflowPhase::Suspended,
    WorkflowPhase::Succeeded,
    WorkflowPhase::Failed,
    WorkflowPhase::Rejected,
    WorkflowPhase::Aborted,
    WorkflowPhase::Cancelled,
];

/// One response of the API server.
#[derive(Deserialize)]
pub struct ListPart {
    /// The metadata of the list, with its continuation.
    pub metadata: ListMeta,
    /// The Workflows.
    pub items: Vec<WorkflowPart>,
}

/// The part of a Workflow that a row needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WorkflowPart {
    /// The part of the metadata.
    pub metadata: MetadataPart,
    /// The part of the spec.
    pub spec: SpecPart,
    /// The part of the status, if an operator has written a status.
    pub status: Option<StatusPart>,
}

/// The part of the metadata that a row needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MetadataPart {
    /// The name of the Workflow.
    pub name: String,
    /// The namespace of the Workflow.
    pub namespace: String,
    /// The time at which the Workflow was created.
    pub creation_timestamp: Option<Moment>,
}

/// The part of the spec that a row needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SpecPart {
    /// The user who requested the run.
    pub requested_by: String,
    /// The person for whom the run was requested, if another than the requester.
    pub requested_for: Option<String>,
}

/// The part of the status that a row needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusPart {
    /// The phase; `None` for a phase that only a later version knows.
    #[serde(deserialize_with = "lenient")]
    pub phase: Option<WorkflowPhase>,
    /// The reason of the phase, in words of the operator.
    #[serde(deserialize_with = "lenient")]
    pub message: Option<String>,
    /// The names of the open Approvals of the run.
    #[serde(deserialize_with = "lenient")]
    pub pending: Option<Vec<String>>,
    /// The tokens that the models of the run used.
    #[serde(deserialize_with = "lenient")]
    pub usage: Option<Usage>,
    /// The conditions of the run.
    #[serde(deserialize_with = "lenient")]
    pub conditions: Option<Vec<ConditionPart>>,
}

/// The part of a condition that a row needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConditionPart {
    /// The type, such as `Guarded`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The sentence of the operator about the condition.
    pub message: String,
}

/// Deserializes a value, or returns `None` if it has another form, so that one run of a later version does not hide all
/// others.
fn lenient<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).ok())
}

impl WorkflowPart {
    /// Returns the reason why the admission policies are not in force, which the operator wrote on this run, or `None`.
    #[must_use]
    pub fn unguarded(&self) -> Option<String> {
        let conditions = self.status.as_ref()?.conditions.as_ref()?;
        let differs = conditions.iter().find(|one| one.type_ == GUARDED && one.status == "False")?;
        Some(one_line(&differs.message, 1024))
    }
}

/// Returns the field selector for the runs that have not ended.
#[must_use]
pub fn still_running() -> String {
    let ends = PHASES.into_iter().filter(|phase| phase.is_end());
    ends.map(|phase| format!("status.phase!={}", phase.name())).collect::<Vec<_>>().join(",")
}

/// Lists the parts of a few Workflows of a namespace, or of the whole cluster. `next`: the continuation of an earlier
/// list. Returns `None` if they have more than `LIST_BYTES` together; the caller then asks for fewer. A list of one
/// Workflow has no limit.
///
/// # Errors
/// As every request.
pub async fn list(
    client: &Client,
    namespace: Option<&str>,
    selector: &str,
    most: usize,
    next: Option<String>,
) -> Result<Option<ListPart>, PageError> {
    let api: Api<Workflow> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut params = ListParams::default().limit(u32::try_from(most).unwrap_or(1));
    if !selector.is_empty() {
        params = params.fields(selector);
    }
    params.continue_token = next;
    let request = Request::new(api.resource_url()).list(&params).map_err(kube::Error::BuildRequest)?;
    let answer = client.request_stream(request).await.map_err(list_error)?;
    let bytes = if most > 1 { LIST_BYTES } else { u64::MAX };
    let mut text = Vec::new();
    std::pin::pin!(answer.take(bytes)).read_to_end(&mut text).await.map_err(kube::Error::ReadEvents)?;
    if text.len() as u64 == bytes {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&text).map_err(kube::Error::SerdeError)?))
}

/// Returns the first Workflow of a list, if there is one.
///
/// # Errors
/// As every request.
pub async fn first(
    client: &Client,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Option<WorkflowPart>, PageError> {
    let part = list(client, namespace, selector, 1, None).await?;
    Ok(part.and_then(|part| part.items.into_iter().next()))
}

/// Returns the error of a list. A continuation that has expired after a few minutes is no refusal.
fn list_error(error: kube::Error) -> PageError {
    match status_code(&error) {
        Some(410) => PageError::Away("the API server cannot go on with its list of Workflows: try again".to_owned()),
        _ => error.into(),
    }
}
