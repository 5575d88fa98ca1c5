//! Counts every request of the operator in the API server's audit log of that one user. Writing the log costs the API
//! server time, so no time is measured while it is on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;
use signoff_tests::control_plane::{OPERATOR_ACCOUNT, OPERATOR_NAMESPACE, Options};
use tempfile::TempDir;

/// The audit log of one control plane, which is removed with it.
pub(super) struct Audit {
    folder: TempDir,
}

/// Requests by `verb resource`, such as `update workflows/status`.
pub(super) type Tally = BTreeMap<String, usize>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    object_ref: Option<ObjectRef>,
    #[serde(rename = "requestURI")]
    uri: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    resource: Option<String>,
    subresource: Option<String>,
}

impl Audit {
    /// Writes the policy, by which the log has the operator's answered requests only.
    pub(super) fn prepare() -> Result<Self> {
        let folder = TempDir::with_prefix("signoff-bench-")?;
        let policy = format!(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules:\n\
             - {{level: Metadata, users: [\"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}\"]}}\n\
             - {{level: None}}\n"
        );
        let audit = Self { folder };
        std::fs::write(audit.policy(), policy)?;
        Ok(audit)
    }

    /// Returns the settings of a control plane that writes the log; an answered request is in it.
    pub(super) fn options(&self) -> Options {
        let apiserver = vec![
            format!("--audit-policy-file={}", self.policy().display()),
            format!("--audit-log-path={}", self.log().display()),
            "--audit-log-mode=blocking".to_owned(),
            // One file, however long.
            "--audit-log-maxsize=10000".to_owned(),
        ];
        Options { apiserver, ..Options::default() }
    }

    fn policy(&self) -> PathBuf {
        self.folder.path().join("policy.yaml")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }

    /// Returns the position of the end of the log, from which [`Audit::count_since`] can count.
    pub(super) fn end_of_log(&self) -> Result<u64> {
        Ok(std::fs::metadata(self.log()).context("the API server's audit log")?.len())
    }

    /// Counts the requests that were answered after this position of the log.
    pub(super) fn count_since(&self, place: u64) -> Result<Tally> {
        let mut file = File::open(self.log()).context("the API server's audit log")?;
        file.seek(SeekFrom::Start(place))?;
        let mut tally = Tally::new();
        for line in BufReader::new(file).lines() {
            let line = line?;
            let entry: Entry =
                serde_json::from_str(&line).with_context(|| format!("a line of the audit log: {line}"))?;
            *tally.entry(entry.name()).or_default() += 1;
        }
        Ok(tally)
    }
}

impl Entry {
    fn name(self) -> String {
        let named = self.object_ref.and_then(|object| {
            let resource = object.resource?;
            Some(object.subresource.map_or(resource.clone(), |sub| format!("{resource}/{sub}")))
        });
        // A request without a resource, such as discovery, is named by its path.
        format!("{} {}", self.verb, named.unwrap_or(self.uri))
    }
}

/// The sort of a request `verb resource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Changes state.
    State,
    /// Writes an Event.
    Event,
    /// Reads objects.
    Read,
    /// A watch, or the Lease, which an operator uses even when it waits.
    Upkeep,
}

/// Returns the sort of `verb resource`.
pub(super) fn sort(what: &str) -> Sort {
    let (verb, resource) = what.split_once(' ').unwrap_or((what, ""));
    match (verb, resource) {
        ("watch", _) | (_, "leases") => Sort::Upkeep,
        ("get" | "list", _) => Sort::Read,
        // A review is a create by its form, and stores nothing.
        (_, review) if review.ends_with("reviews") => Sort::Read,
        (_, "events") => Sort::Event,
        _ => Sort::State,
    }
}

/// Returns the number of requests of one sort.
pub(super) fn count(tally: &Tally, wanted: Sort) -> usize {
    tally.iter().filter(|(what, _)| sort(what) == wanted).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn requests_are_named_by_verb_and_resource_and_sorted() {
        let what = |text: &str| serde_json::from_str::<Entry>(text).unwrap().name();
        let status = what(
            r#"{"verb": "update", "requestURI": "/x", "objectRef": {"resource": "workflows", "subresource": "status"}}"#,
        );
        assert_eq!((status.as_str(), sort(&status)), ("update workflows/status", Sort::State));
        assert_eq!(sort(&what(r#"{"verb": "get", "requestURI": "/version"}"#)), Sort::Read);
        assert_eq!(sort("create events"), Sort::Event);
        assert_eq!(sort("create selfsubjectreviews"), Sort::Read);
        assert_eq!(sort("update leases"), Sort::Upkeep);
        assert_eq!(sort("watch approvals"), Sort::Upkeep);
    }
}
