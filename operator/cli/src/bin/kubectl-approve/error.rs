//! The failures of `kubectl approve`, in one sentence each: the words of the policy that refused, or the server and the
//! remedy.

pub mod exit;

use kube::{client::AuthError, core::Status};
use signoff_api::Code;
use signoff_cli::sanitize::one_line;
use signoff_cluster::error::innermost;
use signoff_review::answer::{self, missing_role, sentence};

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API server or the plugin refused the request.
    #[error("refused: {0}")]
    Refused(String),
    /// The API server or the plugin refused the request, for a reason with a code.
    #[error("refused: {why} [{code}]{commands}")]
    RefusedFor {
        /// The reason as a sentence, without a full stop.
        why: String,
        /// The code of the reason.
        code: Code,
        /// The commands that remedy the refusal, after a separator. Empty without a remedy.
        commands: String,
    },
    /// There is no such object.
    #[error("error: {0}")]
    NotFound(String),
    /// The command line is invalid.
    #[error("error: {0}")]
    Usage(String),
    /// The user was asked about a decision and did not say yes.
    #[error("nothing was decided")]
    Declined,
    /// The user was asked about a run and did not say yes.
    #[error("nothing was changed")]
    Unchanged,
    /// Some of several decisions failed. The reasons are printed already.
    #[error("error: {failed} of {of} could not be decided")]
    Several {
        /// The number of failed decisions.
        failed: usize,
        /// The number of all decisions.
        of: usize,
        /// The exit code of the first failure.
        code: u8,
    },
    /// `--wait` ended before the gate was decided.
    #[error("error: not decided when --wait ended")]
    NotDecided,
    /// The gate was not decided as the decision says, or the decision does not count.
    #[error("error: not decided as you voted")]
    DecidedOtherwise,
    /// The admission policies that verify decisions are not in force.
    #[error("error: nothing that is decided now is honoured")]
    Unguarded,
    /// Any other failure, such as of the connection or the kubeconfig, or an unexpected answer.
    #[error("error: {0}")]
    Other(String),
}

impl Failure {
    /// Returns a refusal with its code, if it has one.
    pub fn refused(why: String, code: Option<Code>) -> Self {
        match code {
            Some(code) => Self::RefusedFor { why, code, commands: String::new() },
            None => Self::Refused(why),
        }
    }

    /// Whether the API server or the plugin refused the request.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::RefusedFor { .. })
    }

    /// Returns the exit code: 1 refused and everything else, 2 usage, 3 not found, 4 not decided in time, 5 decided
    /// otherwise.
    pub fn code(&self) -> u8 {
        match self {
            Self::Refused(_)
            | Self::RefusedFor { .. }
            | Self::Declined
            | Self::Unchanged
            | Self::Unguarded
            | Self::Other(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Several { code, .. } => *code,
            Self::NotDecided => 4,
            Self::DecidedOtherwise => 5,
        }
    }
}

/// The API server, as error messages name it.
#[derive(Clone, Debug)]
pub struct Server {
    /// The API server's address.
    pub url: String,
    /// The context that `--context` names, if any.
    pub context: Option<String>,
    /// The hint of the kubeconfig for the installation of its login program.
    pub install_hint: Option<String>,
}

impl Server {
    /// Returns the failure that explains a client's error to the user.
    pub fn explain(&self, error: kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) => self.explain_answer(&status),
            kube::Error::Auth(error) => {
                let remedy = self.install_hint.as_ref().filter(|_| matches!(error, AuthError::AuthExecStart(_)));
                let remedy = remedy.map_or_else(
                    || "try kubectl auth whoami".to_owned(),
                    |hint| format!("the kubeconfig says how to install the program: {}", one_line(hint, 1000)),
                );
                Failure::Other(format!("cannot log in to {self}: {}; {remedy}", one_line(&error.to_string(), 1000)))
            }
            kube::Error::SerdeError(error) => {
                let why = one_line(&error.to_string(), 1000);
                Failure::Other(format!("{self} answered something else than expected ({why}): is it an API server?"))
            }
            error => Failure::Other(format!(
                "cannot reach {self}: {}; is it up, and is this the right context? (kubectl cluster-info)",
                innermost(&error)
            )),
        }
    }

    fn explain_answer(&self, status: &Status) -> Failure {
        let sentence = sentence(status);
        match status.code {
            401 => Failure::Other(format!(
                "{self} does not know you: log in again, or see kubectl config view ({sentence})"
            )),
            // An answer without the name of an object means that the resource itself is unknown.
            404 if status.details.as_ref().is_none_or(|details| details.name.is_empty()) => Failure::Other(format!(
                "{self} has no approvals.signoff.dev: is Signoff installed there? (kubectl api-resources --api-group signoff.dev)"
            )),
            404 => Failure::NotFound(sentence),
            403 => Failure::refused(format!("{sentence}{}", missing_role(&status.message)), answer::code(status)),
            400 | 409 | 413 | 422 => Failure::refused(sentence, answer::code(status)),
            429 | 500..=599 => Failure::Other(format!("{self} cannot answer now, try again: {sentence}")),
            _ => Failure::Other(sentence),
        }
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&one_line(self.url.trim_end_matches('/'), 1024))?;
        let context = self.context.as_ref().map(|context| one_line(context, 253));
        context.map_or(Ok(()), |context| write!(f, " (context {context})"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn failure(status: serde_json::Value) -> (u8, String) {
        let server = server(None);
        let status: Status = serde_json::from_value(status).unwrap();
        let failure = server.explain(kube::Error::Api(Box::new(status)));
        (failure.code(), failure.to_string())
    }

    fn server(install_hint: Option<&str>) -> Server {
        let install_hint = install_hint.map(str::to_owned);
        Server { url: "https://127.0.0.1:6443/".into(), context: Some("prod".into()), install_hint }
    }

    #[test]
    fn a_missing_login_program_is_reported_with_the_hint_of_the_kubeconfig() {
        let missing = || {
            let not_found = std::io::Error::new(std::io::ErrorKind::NotFound, "No such file or directory");
            kube::Error::Auth(AuthError::AuthExecStart(not_found))
        };
        let explain = |hint: Option<&str>, error| server(hint).explain(error).to_string();
        let begin = "error: cannot log in to https://127.0.0.1:6443 (context prod): ";
        assert_eq!(
            explain(Some("Install gke-gcloud-auth-plugin:\ngcloud components install"), missing()),
            format!(
                "{begin}unable to run auth exec: No such file or directory; the kubeconfig says how to install the program: \
                 Install gke-gcloud-auth-plugin: gcloud components install"
            )
        );
        assert!(explain(None, missing()).ends_with("; try kubectl auth whoami"));
        let other = kube::Error::Auth(AuthError::AuthExec("it says no".to_owned()));
        assert!(explain(Some("hint"), other).ends_with("; try kubectl auth whoami"), "the program is there");
    }

    #[test]
    fn a_refusal_has_the_sentence_of_the_policy_or_the_missing_role() {
        let message = "approvals.signoff.dev \"x\" is forbidden: ValidatingAdmissionPolicy 'signoff-p' with binding 'signoff-p' denied request: the requester must not decide this gate (excludeRequester)";
        let status = json!({"code": 403, "reason": "Forbidden", "message": message, "details": {"name": "x"}});
        assert_eq!(
            failure(status),
            (1, "refused: the requester must not decide this gate (excludeRequester) [SO0007]".into())
        );
        let message = "approvals.signoff.dev \"x\" is forbidden: User \"dana\" cannot patch resource \"approvals\" in API group \"signoff.dev\" in the namespace \"finance\"";
        let (code, text) = failure(json!({"code": 403, "reason": "Forbidden", "message": message}));
        assert_eq!(code, 1);
        assert!(text.ends_with("; the ClusterRole signoff-approver, bound in that namespace, allows it"), "{text}");
    }

    #[test]
    fn a_missing_object_has_its_own_exit_code() {
        let status = json!({"code": 404, "reason": "NotFound", "message": "approvals.signoff.dev \"x\" not found", "details": {"name": "x", "kind": "approvals"}});
        assert_eq!(failure(status), (3, "error: approvals.signoff.dev \"x\" not found".into()));
        let (code, text) = failure(json!({"code": 404, "message": "404 page not found"}));
        assert_eq!(code, 1);
        assert!(text.contains("https://127.0.0.1:6443 (context prod) has no approvals.signoff.dev"), "{text}");
    }

    #[test]
    fn a_hostile_context_is_named_in_one_line() {
        let server = Server { context: Some("prod\u{1b}[2J\nfake".into()), ..server(None) };
        assert_eq!(server.to_string(), "https://127.0.0.1:6443 (context prod[2J fake)");
    }

    #[test]
    fn a_user_who_is_not_logged_in_sees_the_name_of_the_server() {
        let (code, text) = failure(json!({"code": 401, "reason": "Unauthorized", "message": "Unauthorized"}));
        assert_eq!(code, 1);
        assert!(text.starts_with("error: https://127.0.0.1:6443 (context prod) does not know you"), "{text}");
    }
}
