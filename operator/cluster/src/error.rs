//! The errors of requests to the API server, and the meaning of its answers.

use std::sync::Arc;

use signoff_expr::text;

/// The error of a request for an object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another client has changed the object since it was read. Reconcile again at once.
    #[error("{0} was changed meanwhile: reconciling again")]
    Conflict(String),
    /// The API server did not do what was requested, and may do it later.
    #[error("{what}: {}", plain(source))]
    Transient {
        /// The operation, with the object.
        what: String,
        /// The answer, or the error that there was none. Several reconciles may share it.
        source: Arc<kube::Error>,
    },
    /// An object that this version cannot decode.
    #[error(
        "{object} cannot be read by this version of the operator ({why}): use a version of the operator that reads it, or delete the Workflow and apply it again"
    )]
    Unreadable {
        /// The kind and name of the object.
        object: String,
        /// The error of the decoder.
        why: String,
    },
    /// A status that the API server refuses, which is always a bug.
    #[error("{object}: the API server refuses its status: {why}; internal error; report this as a bug")]
    StatusRefused {
        /// The kind and name of the object.
        object: String,
        /// The answer.
        why: String,
    },
}

impl Error {
    /// Returns a function that makes a `Transient` error of the operation `what`.
    pub fn of<E: Into<Arc<kube::Error>>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        |error| Self::Transient { what, source: error.into() }
    }
}

/// Returns the HTTP status of the API server's answer, or `None` if it did not answer.
#[must_use]
pub fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Returns the innermost cause of an error.
#[must_use]
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Returns the message of the API server on one line, cut to 1,000 characters because it quotes what it refuses. If
/// RBAC refuses, the message also names the role that contains the right.
#[must_use]
pub fn plain(error: &kube::Error) -> String {
    let message = match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(cause) => cause.to_string(),
        other => other.to_string(),
    };
    let role = status_code(error).filter(|code| *code == 403).and_then(|_| role_with_right(&message));
    let remedy = role.map(|role| format!("; the operator lacks a right of the {role}: install the chart again"));
    text::display(&message, 1000).replace(['\n', '\t'], " ") + &remedy.unwrap_or_default()
}

/// The error of a request, displayed as the message of the API server.
#[derive(Debug, thiserror::Error)]
#[error("{}", plain(.0))]
pub struct Plain(pub kube::Error);

/// Returns the role of the chart that contains the missing right, or `None` if the message is not from RBAC.
fn role_with_right(message: &str) -> Option<&'static str> {
    let (_, rest) = message.split_once(" cannot ")?;
    let (_, rest) = rest.split_once(" resource \"")?;
    let (resource, place) = rest.split_once('"')?;
    Some(match resource {
        "leases" | "configmaps" => "Role signoff-operator in its namespace",
        "services" | "endpointslices" if place.contains("\"default\"") => {
            "Role signoff-operator in the namespace default"
        }
        "services" | "endpointslices" => "Role signoff-operator in its namespace",
        "secrets" => "ClusterRole signoff-operator-secrets, which is bound by namespace (secrets.namespaces)",
        "pods" | "pods/log" => "ClusterRole signoff-operator, or signoff-operator-pods (pods.namespaces)",
        _ => "ClusterRole signoff-operator",
    })
}

/// Whether a webhook or an admission policy refused a request. The API server says so only in its message. The code is
/// 422, as for an invalid object, or any code that the webhook chooses.
#[must_use]
pub fn is_denied(error: &kube::Error) -> bool {
    let denied = |message: &str| message.contains("denied request") || message.contains("denied the request");
    matches!(error, kube::Error::Api(status) if denied(&status.message))
}

/// Whether the server may have executed the request although no answer confirmed it.
#[must_use]
pub fn is_ambiguous(error: &kube::Error) -> bool {
    status_code(error).is_none_or(|code| code >= 500)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn plain_message(code: u16, message: &str) -> String {
        let status = json!({"status": "Failure", "reason": "Forbidden", "code": code, "message": message});
        plain(&kube::Error::Api(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn a_missing_right_names_the_role_that_contains_it() {
        let user = "User \"system:serviceaccount:signoff-system:signoff-operator\"";
        for (message, role) in [
            (
                "cannot update resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"signoff-system\"",
                "Role signoff-operator in its namespace",
            ),
            (
                "cannot list resource \"endpointslices\" in API group \"discovery.k8s.io\" in the namespace \"default\"",
                "Role signoff-operator in the namespace default",
            ),
            (
                "cannot list resource \"workflows\" in API group \"signoff.dev\" at the cluster scope",
                "ClusterRole signoff-operator",
            ),
        ] {
            let message = format!("x is forbidden: {user} {message}");
            let expected = format!("{message}; the operator lacks a right of the {role}: install the chart again");
            assert_eq!(plain_message(403, &message), expected);
            assert!(!plain_message(403, &message).contains("Status {"));
        }
    }

    #[test]
    fn a_refusal_that_is_not_about_rights_is_the_servers_own_sentence() {
        for message in ["pods \"x\" is forbidden: exceeded quota: pods", "the server cannot do that"] {
            assert_eq!(plain_message(403, message), message);
        }
        let message = "User \"u\" cannot get resource \"pods\"";
        assert_eq!(plain_message(500, message), message);
        let shown = plain_message(403, "denied:\nall is well");
        assert_eq!(shown, "denied: all is well", "it cannot look like a line of ours");
    }
}
