//! The answers of an API server as sentences for people.
//!
//! The callers add the remedy, which differs between the plugin and the page.

use crate::text::one_line;
use kube::core::Status;
use signoff_api::Code;

/// The longest message that is shown, in characters.
const LONGEST: usize = 4000;

/// Returns the role that would allow a request that RBAC refused, as the end of a sentence. Returns an empty text for
/// any other refusal, and for a request that is not about objects of Signoff in a namespace.
#[must_use]
pub fn missing_role(message: &str) -> String {
    let Some((_, refused)) = message.split_once(" cannot ") else { return String::new() };
    let is_ours = refused.contains("in API group \"signoff.dev\" in the namespace ");
    let verb = refused.split_whitespace().next().unwrap_or_default();
    let role = match (verb, refused.contains("resource \"workflows")) {
        ("get" | "list" | "watch", _) => "signoff-viewer",
        (_, true) => "signoff-requester",
        (_, false) => "signoff-approver",
    };
    if is_ours { format!("; the ClusterRole {role}, bound in that namespace, allows it") } else { String::new() }
}

/// Returns the refusal of an API server as a sentence: the sentence of an admission policy without the name of the
/// policy, the errors of the schema with their fields, otherwise the message.
#[must_use]
pub fn sentence(status: &Status) -> String {
    const DENIED: &str = "denied request: ";
    let message = &status.message;
    // Names of policies and bindings are DNS names, so the first `denied request: ` is the API server's own.
    let policy = message.find("ValidatingAdmissionPolicy '").and_then(|at| message[at..].split_once(DENIED));
    if let Some((_, sentence)) = policy {
        return one_line(sentence, LONGEST);
    }
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let errors: Vec<_> = causes
        // The field `<nil>` only says that rules were not checked, because the object is invalid.
        .filter(|cause| !cause.message.is_empty() && cause.field != "<nil>")
        .map(|cause| match (cause.field.as_str(), strip_kind(&cause.message)) {
            ("", message) => message.to_owned(),
            (field, message) => format!("{field}: {message}"),
        })
        .collect();
    let text = if status.code == 422 && !errors.is_empty() { errors.join("; ") } else { message.clone() };
    one_line(&text, LONGEST)
}

/// Returns the code of a refusal by an admission policy of Signoff, or `None` for any other answer.
#[must_use]
pub fn code(status: &Status) -> Option<Code> {
    let is_of_policy = status.message.contains("ValidatingAdmissionPolicy 'signoff-");
    Code::of_message(&sentence(status)).filter(|_| is_of_policy)
}

/// Returns an error of the schema without the kind of the value: `Modify needs parameters` of `Invalid value: "object":
/// Modify needs parameters`.
fn strip_kind(error: &str) -> &str {
    const KINDS: [&str; 3] = ["\"object\": ", "\"array\": ", "\"string\": "];
    let Some(rest) = error.strip_prefix("Invalid value: ") else { return error };
    KINDS.iter().find_map(|kind| rest.strip_prefix(kind)).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn sentence_of(status: Value) -> String {
        sentence(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_policys_refusal_is_its_own_sentence() {
        let message = "approvals.signoff.dev \"x\" is forbidden: ValidatingAdmissionPolicy 'signoff-approvals' with binding 'signoff-approvals' denied request: the requester must not decide this gate (excludeRequester)";
        let status = json!({"code": 403, "reason": "Forbidden", "message": message, "details": {"name": "x"}});
        assert_eq!(sentence_of(status), "the requester must not decide this gate (excludeRequester)");
    }

    #[test]
    fn only_the_refusal_of_a_policy_has_a_code() {
        let code = |message: &str| code(&serde_json::from_value(json!({"code": 403, "message": message})).unwrap());
        let policy = "x is forbidden: ValidatingAdmissionPolicy 'signoff-a' with binding 'signoff-a' denied request: too late: this gate was already decided";
        assert_eq!(code(policy), Some(Code::TOO_LATE));
        assert_eq!(code(&policy.replace("signoff-a", "other")), None);
        assert_eq!(code("admission webhook \"w\" denied the request: too late: this gate was already decided"), None);
    }

    #[test]
    fn an_answer_is_one_line_and_moves_no_cursor() {
        let message = "admission webhook \"w\" denied the request: no\napproved by bob\r\n\u{1b}[31mred\tend";
        let expected = "admission webhook \"w\" denied the request: no approved by bob [31mred end";
        assert_eq!(sentence_of(json!({"code": 403, "message": message})), expected);
        let policy = format!("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: {message}");
        assert_eq!(sentence_of(json!({"code": 403, "message": policy})), expected);
    }

    #[test]
    fn a_refusal_by_rbac_names_the_role_that_is_missing() {
        let refused = |verb: &str, resource: &str, place: &str| {
            missing_role(&format!(
                "{resource}.signoff.dev is forbidden: User \"dana\" cannot {verb} resource \"{resource}\" in API group \"signoff.dev\"{place}"
            ))
        };
        let here = " in the namespace \"finance\"";
        let role = |name: &str| format!("; the ClusterRole {name}, bound in that namespace, allows it");
        assert_eq!(refused("patch", "approvals", here), role("signoff-approver"));
        assert_eq!(refused("list", "approvals", here), role("signoff-viewer"));
        assert_eq!(refused("create", "workflows", here), role("signoff-requester"));
        assert_eq!(refused("list", "approvals", " at the cluster scope"), "");
    }

    #[test]
    fn words_within_a_refusal_cannot_cut_it_or_colour_it() {
        let message = "x is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: \u{1b}[32mValidatingAdmissionPolicy 'q' denied request: approved";
        let status = json!({"code": 422, "message": message});
        assert_eq!(sentence_of(status), "[32mValidatingAdmissionPolicy 'q' denied request: approved");
    }

    #[test]
    fn a_schemas_refusal_names_the_field_and_not_the_go_type() {
        let status = json!({"code": 422, "reason": "Invalid", "message": "Approval.signoff.dev \"x\" is invalid: …", "details": {"name": "x", "causes": [
            {"reason": "FieldValueInvalid", "field": "spec.decisions[alice]", "message": "Invalid value: \"object\": Modify needs parameters"},
            {"reason": "FieldValueNotSupported", "field": "spec.decisions[alice].verdict", "message": "Unsupported value: \"Maybe\": supported values: \"Approve\""},
            {"reason": "FieldValueInvalid", "field": "<nil>", "message": "Invalid value: null: some validation rules were not checked"},
        ]}});
        let errors = "spec.decisions[alice]: Modify needs parameters; spec.decisions[alice].verdict: Unsupported value: \"Maybe\": supported values: \"Approve\"";
        assert_eq!(sentence_of(status), errors);
    }
}
