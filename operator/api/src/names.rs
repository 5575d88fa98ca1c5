//! Names, labels and annotations of the objects of a run.
//!
//! A name is a pure function of the object's identity, so creating an object twice is a name conflict.

use crate::digest::Digest;

/// Label with the name of the Workflow, on every object that the operator creates for it.
pub const LABEL_WORKFLOW: &str = "signoff.dev/workflow";
/// Label with the Workflow's uid.
pub const LABEL_WORKFLOW_UID: &str = "signoff.dev/workflow-uid";
/// Label with the step's name, on Pods.
pub const LABEL_STEP: &str = "signoff.dev/step";
/// Label with the value `true`, on every CRD, policy and binding of this build. The guard lists them by the label.
pub const LABEL_GUARD: &str = "signoff.dev/guard";
/// Annotation of a Pod: the digest of the rendered input.
pub const ANNOTATION_INPUT_DIGEST: &str = "signoff.dev/input-digest";
/// Annotation of a Pod: the path of its step in the journal.
pub const ANNOTATION_PATH: &str = "signoff.dev/path";
/// Prefix of the annotations of a Pod that contain the files of its step, followed by a number.
pub const ANNOTATION_FILE: &str = "signoff.dev/file-";
/// Label with the gate's name, on Approvals.
pub const LABEL_GATE: &str = "signoff.dev/gate";
/// Label with the turn of an agent, on Approvals about its calls and questions: see [`turn`].
pub const LABEL_TURN: &str = "signoff.dev/turn";
/// Annotation of an Approval: the name of the superseded one that it asks again.
pub const ANNOTATION_ASKS_AGAIN: &str = "signoff.dev/asks-again";
/// Annotation of an Approval: the channels of notices that its gate adds, separated by commas.
pub const ANNOTATION_NOTIFY: &str = "signoff.dev/notify";
/// Annotation of a Workflow: the number of runs that started one another before this one. A program that starts a run
/// for a call of its tool writes the number of the call plus one.
pub const ANNOTATION_DEPTH: &str = "signoff.dev/depth";
/// Annotation of a Secret: the hosts to which its values may be sent, separated by commas.
pub const ANNOTATION_ALLOWED_HOSTS: &str = "signoff.dev/allowed-hosts";
/// The ClusterRole with which the operator reads Secrets, bound only in selected namespaces.
pub const ROLE_SECRETS: &str = "signoff-operator-secrets";
/// The longest name of a Workflow in characters: it is the value of a label, which Kubernetes bounds.
pub const MAX_WORKFLOW_NAME: usize = 63;

/// Returns the name of an Approval: `<workflow ≤ 32>-<step ≤ 19>-<first ten hex digits of the digest of the request>`.
#[must_use]
pub fn approval(workflow: &str, step: &str, request: &Digest) -> String {
    format!("{}-{}-{}", cut(workflow, 32), cut(step, 19), request.short(10))
}

/// Returns the name of the Pod of one attempt at a step: `signoff-step-<workflow ≤ 24>-<ten hex digits of uid, path and
/// attempt>`. The path includes the visit.
#[must_use]
pub fn pod(workflow: &str, uid: &str, path: &str, attempt: i32) -> String {
    let place = Digest::of_bytes(format!("{uid}/{path}/{attempt}").as_bytes());
    format!("signoff-step-{}-{}", cut(workflow, 24), place.short(10))
}

/// Returns the value of [`LABEL_TURN`] for one turn of one run: 20 hex digits of uid and path. All Approvals of a turn
/// have the same value, and Approvals of other turns and runs have other values.
#[must_use]
pub fn turn(uid: &str, path: &str) -> String {
    Digest::of_bytes(format!("{uid}/{path}").as_bytes()).short(20).to_owned()
}

/// Returns the usual name of the Blob of a long value: `<workflow ≤ 32>-<20 hex digits>`. The digits are computed from
/// the uid of the owner and the digest of the value, so a recreated Workflow never uses the Blobs of its predecessor.
#[must_use]
pub fn blob(workflow: &str, uid: &str, value: &Digest) -> String {
    let place = Digest::of_bytes(format!("{uid}/{value}").as_bytes());
    format!("{}-{}", cut(workflow, 32), place.short(20))
}

/// Returns the name of a Blob whose usual name, [`blob`], is taken by an object of another user:
/// `<usual name>-<eight hex digits>`.
#[must_use]
pub fn other_blob(usual: &str, random: u32) -> String {
    format!("{usual}-{random:08x}")
}

/// Whether a name is the usual name of a value or a result of [`other_blob`] for it.
#[must_use]
pub fn is_blob(usual: &str, name: &str) -> bool {
    let rest = name.strip_prefix(usual);
    let digits =
        |rest: &str| rest.strip_prefix('-').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    rest.is_some_and(|rest| rest.is_empty() || digits(rest))
}

/// Returns the first `most` characters of a name, without trailing `-` and `.`.
#[must_use]
pub fn cut(name: &str, most: usize) -> &str {
    name.get(..most).unwrap_or(name).trim_end_matches(['-', '.'])
}

/// Whether a text is a DNS label, like the names of namespaces and steps.
#[must_use]
pub fn is_label(name: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte != b'-');
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 63 && name.bytes().all(inner) && ends(name.bytes().next()) && ends(name.bytes().next_back())
}

/// Whether a text can be the name of an object: DNS labels with dots between them. Another text could be a different
/// path of the API server.
#[must_use]
pub fn is_object(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(fits) && !part.starts_with('-') && !part.ends_with('-');
    name.len() <= 253 && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approval_names_contain_the_digest_and_are_label_values() {
        let digest = Digest::of_bytes(b"request");
        let name = approval(&"long-".repeat(12), &"step-".repeat(12), &digest);
        assert!(name.ends_with(&format!("-{}", digest.short(10))));
        assert!(name.len() <= MAX_WORKFLOW_NAME, "{name}");
        assert!(!name.contains("--") && !name.contains(".-"), "{name}");
    }

    #[test]
    fn turns_differ_by_run_and_path_and_are_label_values() {
        let one = turn("uid-1", "handle/.turn-2");
        assert_eq!(one, turn("uid-1", "handle/.turn-2"));
        assert!(one.len() == 20 && one.bytes().all(|b| b.is_ascii_hexdigit()), "{one}");
        assert_ne!(one, turn("uid-2", "handle/.turn-2"));
        assert_ne!(one, turn("uid-1", "handle/.turn-2#2"));
    }

    #[test]
    fn blob_names_differ_for_a_recreated_workflow() {
        let value = Digest::of_bytes(b"value");
        assert_ne!(blob("w", "uid-1", &value), blob("w", "uid-2", &value));
    }

    #[test]
    fn is_blob_accepts_only_names_of_the_value() {
        let usual = blob(&"long-".repeat(12), "uid", &Digest::of_bytes(b"value"));
        let other = other_blob(&usual, 0xbeef);
        assert!(other.ends_with("-0000beef") && other.len() <= MAX_WORKFLOW_NAME, "{other}");
        assert!(is_blob(&usual, &usual) && is_blob(&usual, &other));
        for name in ["", "x", &usual[1..], &format!("{usual}-../x"), &format!("{usual}/x"), &format!("{usual}x")] {
            assert!(!is_blob(&usual, name), "{name:?}");
        }
    }

    #[test]
    fn is_label_accepts_the_names_of_namespaces() {
        assert!(is_label("finance") && is_label("7") && is_label("a-b") && is_label(&"x".repeat(63)));
        for name in ["", "-a", "a-", "a.b", "A", "../x", "a b", "é", &"x".repeat(64)] {
            assert!(!is_label(name), "{name:?}");
        }
    }
}
