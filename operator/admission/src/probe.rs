//! Forged requests, sent as dry runs *(I/O)*. They show that an API server enforces the policies now, which the stored
//! objects cannot show.
//!
//! **Invariant:** stores nothing. Only a refusal by the expected policy counts as refused.

use http::header::DATE;
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client, Config, Resource,
    client::Body,
    core::{Request, Status},
};
use serde_json::{Value, json};
use signoff_api::{Approval, Blob, Digest, Workflow};

use crate::policies::Identity;

/// A name that the certificate of every API server contains.
const SERVER_NAME: &str = "kubernetes.default.svc";

/// The answer to the forged requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Refused by the policies. Contains the time of the API server's clock in whole seconds, if the answer has a
    /// `Date`.
    Refused(Option<Timestamp>),
    /// Not refused by the policies. The text describes the answer.
    Otherwise(String),
}

/// A request that one policy refuses from every user, and that violates no other policy.
struct Forged {
    /// The policy that must refuse it.
    rule: &'static str,
    /// The description of the request for messages.
    what: &'static str,
    path: String,
    object: Value,
}

/// Sends one forged request for each policy that can be probed, all in the operator's own namespace, until one is not
/// refused. A policy cannot be probed if RBAC already refuses the request, because RBAC is checked first.
///
/// # Errors
/// No answer.
pub async fn forged(client: &Client, operator: &Identity) -> Result<Answer, kube::Error> {
    let namespace = operator.namespace.as_str();
    let workflows = || Workflow::url_path(&(), Some(namespace));
    let requests = [
        Forged {
            rule: "signoff-approvals",
            what: "a forged decision",
            path: Approval::url_path(&(), Some(namespace)),
            object: approval(namespace),
        },
        Forged {
            rule: "signoff-blobs",
            what: "a Blob without a Workflow",
            path: Blob::url_path(&(), Some(namespace)),
            object: blob(namespace),
        },
        Forged {
            rule: "signoff-workflows",
            what: "a Workflow in the name of another person",
            path: workflows(),
            object: workflow(operator, json!({"requestedFor": "nobody"})),
        },
        Forged {
            rule: "signoff-workflows-shape",
            what: "a Workflow with a step that does nothing",
            path: workflows(),
            object: workflow(operator, json!({"steps": [{"name": "nothing"}]})),
        },
    ];
    let mut earliest = None;
    for forged in &requests {
        match send(client, forged).await? {
            Answer::Refused(time) => earliest = earliest.into_iter().chain(time).min(),
            otherwise => return Ok(otherwise),
        }
    }
    Ok(Answer::Refused(earliest))
}

/// Sends one forged request as a dry run. Only a refusal by the expected policy counts as refused.
async fn send(client: &Client, Forged { rule, what, path, object }: &Forged) -> Result<Answer, kube::Error> {
    let options = kube::api::PostParams { dry_run: true, field_manager: None };
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(path).create(&options, body).map_err(kube::Error::BuildRequest)?;
    let answer = client.send(request.map(Body::from)).await?;
    let (head, body) = answer.into_parts();
    let date = head.headers.get(DATE).and_then(|date| date.to_str().ok());
    let time = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|date| date.timestamp());
    if head.status.is_success() {
        return Ok(Answer::Otherwise(format!("it accepts {what}")));
    }
    let body = body.collect_bytes().await?;
    let message = serde_json::from_slice::<Status>(&body).map(|status| status.message).unwrap_or_default();
    let is_by_rule = message.contains(&format!("ValidatingAdmissionPolicy '{rule}'"));
    Ok(if is_by_rule {
        Answer::Refused(time)
    } else {
        Answer::Otherwise(format!("it refuses {what}, but not by {rule}: {} {message}", head.status.as_u16()))
    })
}

/// Returns a client for each API server, with its name. Each server enforces the policies that its own watch has
/// received. The servers write their addresses into an EndpointSlice. Without one, only the given client is returned.
///
/// # Errors
/// No answer, or an address for which no client can be made. The error names the address.
pub async fn servers(client: &Client, connection: Option<&Config>) -> Result<Vec<(String, Client)>, String> {
    let own = || vec![("the API server".to_owned(), client.clone())];
    let Some(connection) = connection else { return Ok(own()) };
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), "default");
    let slice = match slices.get_opt("kubernetes").await {
        Ok(slice) => slice,
        Err(error) => return Err(format!("the addresses of the API servers cannot be read: {error}")),
    };
    let Some(slice) = slice else { return Ok(own()) };
    let ports = slice.ports.as_ref().and_then(|ports| ports.iter().find_map(|port| port.port)).unwrap_or(443);
    let mut servers = Vec::new();
    for address in slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses) {
        let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
        let name = format!("the API server {host}:{ports}");
        let url = format!("https://{host}:{ports}").parse();
        let url = url.map_err(|why| format!("{name} has no usable address: {why}"))?;
        let mut config = connection.clone();
        config.cluster_url = url;
        config.tls_server_name = Some(SERVER_NAME.to_owned());
        config.proxy_url = None;
        let client = signoff_cluster::connect(config).map_err(|why| format!("{name} cannot be reached: {why}"))?;
        servers.push((name, client));
    }
    Ok(if servers.is_empty() { own() } else { servers })
}

/// Returns an Approval that is valid except for one field: it already has a decision when it is created.
fn approval(namespace: &str) -> Value {
    let digest = Digest::of_bytes(b"probe");
    json!({
        "apiVersion": "signoff.dev/v1alpha1",
        "kind": "Approval",
        "metadata": {"name": format!("probe-{}", digest.short(10)), "namespace": namespace},
        "spec": {
            "request": {
                "workflow": {"name": "probe", "uid": "00000000-0000-0000-0000-000000000000"},
                "gate": {"name": "probe", "path": "probe", "type": "step", "visit": 1},
                "prompt": "Is a forged decision refused?",
                "allowedVerdicts": ["Approve"],
                "quorums": [
                    {"source": "gate probe", "approvers": [{"kind": "User", "name": "nobody"}], "threshold": 1},
                ],
                "requestedBy": "nobody",
                "timeout": {},
                "deadline": "2100-01-01T00:00:00Z",
                "guardEpoch": "probe",
                "specDigest": digest,
                "digest": digest,
            },
            "decisions": {"nobody": {"verdict": "Approve"}},
        },
    })
}

/// Returns a Blob that is valid except that no Workflow owns it.
fn blob(namespace: &str) -> Value {
    json!({
        "apiVersion": "signoff.dev/v1alpha1",
        "kind": "Blob",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"data": "Is a Blob without a Workflow refused?"},
    })
}

/// Returns a Workflow that is valid except for these fields of its spec. `signoff-workflows` accepts a Workflow in the
/// operator's namespace only as a dry run of the operator, which stores nothing.
fn workflow(operator: &Identity, fields: Value) -> Value {
    let mut workflow = json!({
        "apiVersion": "signoff.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "probe", "namespace": operator.namespace},
        "spec": {
            "requestedBy": operator.user_name(),
            "steps": [{"name": "only", "set": {"value": "Is a broken Workflow refused?"}}],
        },
    });
    if let (Some(spec), Value::Object(fields)) = (workflow["spec"].as_object_mut(), fields) {
        spec.extend(fields);
    }
    workflow
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn forged_workflows_are_valid_except_for_the_forged_fields() {
        let whole: Workflow = serde_json::from_value(workflow(&Identity::default(), json!({}))).unwrap();
        assert_eq!(whole.spec.requested_by, "system:serviceaccount:signoff-system:signoff-operator");
        let empty = workflow(&Identity::default(), json!({"steps": [{"name": "nothing"}]}));
        let empty: Workflow = serde_json::from_value(empty).unwrap();
        assert!(empty.spec.steps.iter().all(|step| step.set.is_none()));
        assert_eq!(empty.spec.requested_by, whole.spec.requested_by);
    }

    #[test]
    fn the_forged_approval_is_valid_except_for_its_decision() {
        let forged: Approval = serde_json::from_value(approval("signoff-system")).unwrap();
        assert_eq!(forged.spec.decisions.len(), 1);
        assert!(forged.metadata.name.unwrap().ends_with(forged.spec.request.digest.short(10)));
    }

    #[test]
    fn the_forged_blob_is_valid_except_for_its_owner() {
        let forged: Blob = serde_json::from_value(blob("signoff-system")).unwrap();
        assert!(forged.metadata.owner_references.is_none() && !forged.spec.into_bytes().is_empty());
    }

    #[test]
    fn the_clock_of_the_api_server_is_read_from_its_answer() {
        let date = jiff::fmt::rfc2822::parse("Sun, 22 Nov 2026 03:36:36 GMT").unwrap();
        assert_eq!(date.timestamp().to_string(), "2026-11-22T03:36:36Z");
    }
}
