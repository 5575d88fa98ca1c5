//! Names of the objects that belong to a run, and its labels.
//!
//! A name is a pure function of what it stands for, so that whoever makes an object twice meets itself.

use crate::digest::Digest;

/// Label with the Workflow's name, on everything the operator makes for it.
pub const LABEL_WORKFLOW: &str = "signoff.dev/workflow";
/// Label with the Workflow's uid.
pub const LABEL_WORKFLOW_UID: &str = "signoff.dev/workflow-uid";
/// Label with the step's name, on Pods.
pub const LABEL_STEP: &str = "signoff.dev/step";
/// Label with the value `true`, on every CRD, policy and binding of this build: the guard lists them by it.
pub const LABEL_GUARD: &str = "signoff.dev/guard";
/// Annotation of a Pod: the digest of what it was made from.
pub const ANNOTATION_INPUT_DIGEST: &str = "signoff.dev/input-digest";
/// Annotation of a Pod: the path of its step in the journal.
pub const ANNOTATION_PATH: &str = "signoff.dev/path";
/// Annotations of a Pod with the files of its step, by their number.
pub const ANNOTATION_FILE: &str = "signoff.dev/file-";
/// Label with the gate's name, on Approvals.
pub const LABEL_GATE: &str = "signoff.dev/gate";
/// Annotation of a Secret: the hosts that its values may be sent to, separated by commas.
pub const ANNOTATION_ALLOWED_HOSTS: &str = "signoff.dev/allowed-hosts";
/// The ClusterRole that lets the operator read Secrets, bound only in namespaces that ask for it.
pub const ROLE_SECRETS: &str = "signoff-operator-secrets";
/// A Workflow's name is the value of a label, which Kubernetes bounds.
pub const MAX_WORKFLOW_NAME: usize = 63;

/// `<workflow ≤ 32>-<step ≤ 19>-<first ten hex digits of the request's digest>`.
#[must_use]
pub fn approval(workflow: &str, step: &str, request: &Digest) -> String {
    format!("{}-{}-{}", cut(workflow, 32), cut(step, 19), request.short(10))
}

/// `signoff-step-<workflow ≤ 24>-<ten hex digits of uid, path and attempt>`: the Pod of one attempt at a step. A path
/// holds the visit.
#[must_use]
pub fn pod(workflow: &str, uid: &str, path: &str, attempt: i32) -> String {
    let place = Digest::of_bytes(format!("{uid}/{path}/{attempt}").as_bytes());
    format!("signoff-step-{}-{}", cut(workflow, 24), place.short(10))
}

/// `<workflow ≤ 32>-<first 20 hex digits>`: the Blob that holds a long value of a run. The digits
/// are of the owner's uid and the value's digest: a recreated Workflow never meets its predecessor's.
#[must_use]
pub fn blob(workflow: &str, uid: &str, value: &Digest) -> String {
    let place = Digest::of_bytes(format!("{uid}/{value}").as_bytes());
    format!("{}-{}", cut(workflow, 32), place.short(20))
}

/// `<the usual name>-<eight hex digits>`: the Blob of a long value whose usual name, [`blob`], another user's
/// object has.
#[must_use]
pub fn other_blob(usual: &str, random: u32) -> String {
    format!("{usual}-{random:08x}")
}

/// Whether a name is the usual one of a value or one that [`other_blob`] made of it.
#[must_use]
pub fn is_blob(usual: &str, name: &str) -> bool {
    let rest = name.strip_prefix(usual);
    let digits =
        |rest: &str| rest.strip_prefix('-').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    rest.is_some_and(|rest| rest.is_empty() || digits(rest))
}

/// The first characters of a name, such that the result still starts and ends with a letter or digit.
#[must_use]
pub fn cut(name: &str, most: usize) -> &str {
    name.get(..most).unwrap_or(name).trim_end_matches(['-', '.'])
}

/// Whether a text is a DNS label, as names of namespaces and of steps are.
#[must_use]
pub fn is_label(name: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte != b'-');
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 63 && name.bytes().all(inner) && ends(name.bytes().next()) && ends(name.bytes().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_approval_carries_its_digest_and_stays_a_label_value() {
        let digest = Digest::of_bytes(b"request");
        let name = approval(&"long-".repeat(12), &"step-".repeat(12), &digest);
        assert!(name.ends_with(&format!("-{}", digest.short(10))));
        assert!(name.len() <= MAX_WORKFLOW_NAME, "{name}");
        assert!(!name.contains("--") && !name.contains(".-"), "{name}");
    }

    #[test]
    fn a_recreated_workflow_never_meets_its_predecessors_values() {
        let value = Digest::of_bytes(b"value");
        assert_ne!(blob("w", "uid-1", &value), blob("w", "uid-2", &value));
    }

    #[test]
    fn another_name_of_a_value_is_told_from_any_other_text() {
        let usual = blob(&"long-".repeat(12), "uid", &Digest::of_bytes(b"value"));
        let other = other_blob(&usual, 0xbeef);
        assert!(other.ends_with("-0000beef") && other.len() <= MAX_WORKFLOW_NAME, "{other}");
        assert!(is_blob(&usual, &usual) && is_blob(&usual, &other));
        for name in ["", "x", &usual[1..], &format!("{usual}-../x"), &format!("{usual}/x"), &format!("{usual}x")] {
            assert!(!is_blob(&usual, name), "{name:?}");
        }
    }

    #[test]
    fn a_label_is_what_a_namespace_can_be_named() {
        assert!(is_label("finance") && is_label("7") && is_label("a-b") && is_label(&"x".repeat(63)));
        for name in ["", "-a", "a-", "a.b", "A", "../x", "a b", "é", &"x".repeat(64)] {
            assert!(!is_label(name), "{name:?}");
        }
    }
}
