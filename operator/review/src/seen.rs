//! The objects that were read from the cluster: an Approval, and the state of its run.
//!
//! **Invariant:** fields that only a later version has are kept, because the digest of a request covers all its fields.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use signoff_api::{Approval, Digest, Workflow, approval::ApprovalPhase, workflow::WorkflowPhase};

use crate::{
    answer::{missing_role, sentence},
    problem::Problem,
    text::one_line,
};

/// An Approval as it was read: all its JSON, and the type of this version.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The whole object as JSON.
    pub raw: Value,
    /// The object as the type of this version.
    pub approval: Approval,
}

/// The error of an object that this version cannot read as an Approval.
#[derive(Debug, thiserror::Error)]
#[error("approval {} cannot be read by this version ({})", one_line(.name, 253), one_line(&.why.to_string(), 1000))]
pub struct Unreadable {
    /// The name of the object.
    pub name: String,
    /// The reason why it cannot be read.
    pub why: serde_json::Error,
}

/// The state of a run, as far as it could be read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RunNow {
    /// The phase of the run, if it could be read.
    pub phase: Option<WorkflowPhase>,
    /// The names of the Approvals for which the run waits.
    pub pending: Vec<String>,
    /// The conditions in the status of the run.
    pub conditions: Vec<Condition>,
    /// Whether the spec suspends the run.
    #[serde(skip)]
    pub is_suspended: bool,
    /// The answer of the API server to the read of the run.
    #[serde(skip)]
    pub found: RunFound,
    /// The whole run, if this version can read it.
    #[serde(skip)]
    pub workflow: Option<Arc<Workflow>>,
}

/// The answer to a read of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunFound {
    /// The run was read.
    There {
        /// The uid of the run. It differs from the uid in a request if the run was created again.
        uid: String,
    },
    /// No run has this name.
    Missing,
    /// The name of the run is not the name of an object, so no request was sent.
    NoName,
    /// The run was not read; with the reason.
    Unread(String),
}

impl Default for RunFound {
    fn default() -> Self {
        Self::Unread("it was not asked for".to_owned())
    }
}

/// Sorts Approvals by deadline, the soonest first, and Approvals with equal deadlines by namespace and name.
pub fn sort(found: &mut [Seen]) {
    found.sort_by_cached_key(|seen| {
        (seen.approval.deadline(), seen.approval.metadata.namespace.clone(), seen.approval.metadata.name.clone())
    });
}

/// Returns the field selector of Approvals that have not ended.
pub fn still_open() -> String {
    let ends = ApprovalPhase::ALL.into_iter().filter(|phase| phase.is_end());
    ends.map(|phase| format!("status.phase!={}", phase.name())).collect::<Vec<_>>().join(",")
}

impl Seen {
    /// Parses an object of the cluster.
    ///
    /// # Errors
    /// This version cannot read the object as an Approval.
    pub fn of(object: &DynamicObject) -> Result<Self, Unreadable> {
        let name = object.metadata.name.as_deref().unwrap_or("(nameless)");
        let raw = serde_json::to_value(object).map_err(|why| Unreadable { name: name.to_owned(), why })?;
        Self::of_value(raw)
    }

    /// Parses the JSON of an object.
    ///
    /// # Errors
    /// As [`Seen::of`].
    pub fn of_value(raw: Value) -> Result<Self, Unreadable> {
        let name = raw.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("(nameless)");
        match serde_json::from_value(raw.clone()) {
            Ok(approval) => Ok(Self { raw, approval }),
            Err(why) => Err(Unreadable { name: name.to_owned(), why }),
        }
    }

    /// Whether the request has the digest that it names. Fields that only a later version has count too.
    pub fn digest_holds(&self) -> bool {
        let mut request = self.raw.pointer("/spec/request").cloned().unwrap_or_default();
        if let Some(fields) = request.as_object_mut() {
            fields.remove("digest");
        }
        Digest::of(&request).is_ok_and(|digest| digest == self.approval.spec.request.digest)
    }

    /// Returns the problem of a request with a wrong digest, or `None`. A decision on such a request would count for
    /// something else than what is shown.
    pub fn digest_problem(&self) -> Option<Problem> {
        (!self.digest_holds()).then(|| Problem::Digest(self.approval.spec.request.digest.clone()))
    }

    /// Returns a decision as it is stored, or `None`.
    pub fn stored(&self, key: &str) -> Option<&Value> {
        self.decisions()?.get(key)
    }

    /// Returns the decisions as they are stored, or `None`.
    pub fn decisions(&self) -> Option<&Value> {
        self.raw.get("spec")?.get("decisions")
    }
}

impl RunNow {
    /// Returns the state of a Workflow. A status that cannot be parsed counts as empty, because no decision depends on
    /// it.
    pub fn of(mut object: DynamicObject) -> Self {
        let is_suspended = object.data.pointer("/spec/suspend").and_then(Value::as_bool);
        let workflow = object.clone().try_parse::<Workflow>().ok().map(Arc::new);
        let status = object.data.get_mut("status").and_then(|status| serde_json::from_value(status.take()).ok());
        let found = RunFound::There { uid: object.metadata.uid.unwrap_or_default() };
        Self { is_suspended: is_suspended == Some(true), found, workflow, ..status.unwrap_or_default() }
    }

    /// Returns the state of a run by the answer to a read of its Workflow.
    pub fn answered(answer: kube::Result<DynamicObject>) -> Self {
        let found = match answer {
            Ok(object) => return Self::of(object),
            // Without a name the answer is not about an object: the API server does not know the kind.
            Err(kube::Error::Api(status))
                if status.code == 404 && status.details.as_ref().is_some_and(|details| !details.name.is_empty()) =>
            {
                RunFound::Missing
            }
            Err(kube::Error::Api(status)) => {
                RunFound::Unread(format!("{}{}", sentence(&status), missing_role(&status.message)))
            }
            Err(error) => RunFound::Unread(one_line(&error.to_string(), 1024)),
        };
        Self { found, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample;

    #[test]
    fn a_field_that_only_a_later_version_knows_is_part_of_the_digest() {
        let mut raw = serde_json::to_value(sample::approval()).unwrap();
        assert!(Seen::of_value(raw.clone()).unwrap().digest_holds());
        raw["spec"]["request"]["novelty"] = "x".into();
        let seen = Seen::of_value(raw).unwrap();
        assert!(!seen.digest_holds());
        assert!(seen.digest_problem().unwrap().to_string().contains("do not decide it"));
    }

    #[test]
    fn an_object_that_is_no_approval_is_named() {
        let why = Seen::of_value(serde_json::json!({"metadata": {"name": "x"}, "spec": 1})).unwrap_err();
        assert!(why.to_string().starts_with("approval x cannot be read by this version"), "{why}");
        let hostile = serde_json::json!({"metadata": {"name": "x\u{1b}[2J\nfake"}, "spec": "\u{1b}[31m"});
        let why = Seen::of_value(hostile).unwrap_err().to_string();
        assert!(why.starts_with("approval x[2J fake cannot") && !why.contains(['\u{1b}', '\n']), "{why}");
    }

    #[test]
    fn every_end_is_left_out_by_the_selector() {
        let selector = still_open();
        let terms: Vec<_> = selector.split(',').collect();
        for phase in ApprovalPhase::ALL {
            let term = format!("status.phase!={}", phase.name());
            assert_eq!(terms.contains(&term.as_str()), phase.is_end(), "{term}");
        }
        assert!(still_open().starts_with("status.phase!=Approved,status.phase!=Rejected,"));
    }
}
