//! Simulated admission rules, for tests that store the policies. A rule refuses the creation of an Approval with
//! decisions, of a Blob without an owner, or of a Workflow for another person or with a step that has only a name. No
//! object is created in a namespace that is being deleted. The real rules are tested on a real API server.

use serde_json::Value;

use super::status::Refusal;
use super::store::{Key, Resource, Store};

/// Refuses the creation of an object in a namespace that is being deleted, in the API server's words.
pub(crate) fn check_namespace(store: &Store, resource: &Resource, name: &str, namespace: &str) -> Result<(), Refusal> {
    let key = Key { resource: Resource::new("", "namespaces"), namespace: String::new(), name: namespace.to_owned() };
    if !store.get(&key).is_some_and(|version| version.object["metadata"]["deletionTimestamp"].is_string()) {
        return Ok(());
    }
    let what = format!("{resource} \"{name}\"");
    Err(Refusal::new(
        403,
        "Forbidden",
        format!(
            "{what} is forbidden: unable to create new content in namespace {namespace} because it is being terminated"
        ),
    ))
}

/// Refuses an object as the real rule would, if its policy and binding exist and deny.
pub(crate) fn check(store: &Store, resource: &Resource, object: &Value) -> Result<(), Refusal> {
    let has_decisions = object["spec"]["decisions"].as_object().is_some_and(|decisions| !decisions.is_empty());
    let has_owner = object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    let steps = object["spec"]["steps"].as_array().into_iter().flatten();
    let has_empty_step = steps.filter_map(Value::as_object).any(|step| step.len() < 2);
    let (rule, why) = match resource.plural.as_str() {
        "approvals" if has_decisions => {
            ("signoff-approvals", "only the operator can create Approvals, without decisions")
        }
        "blobs" if !has_owner => ("signoff-blobs", "a Blob must have one owner, a Workflow"),
        "workflows" if object["spec"]["requestedFor"].is_string() => ("signoff-workflows", "nobody may delegate"),
        "workflows" if has_empty_step => ("signoff-workflows-shape", "a step does one thing"),
        _ => return Ok(()),
    };
    if !is_enforced(store, rule) {
        return Ok(());
    }
    let kind = &resource.plural;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(Refusal::new(
        403,
        "Forbidden",
        format!(
            "{kind}.signoff.dev \"{name}\" is forbidden: ValidatingAdmissionPolicy '{rule}' with binding '{rule}' denied request: {why}"
        ),
    ))
}

fn is_enforced(store: &Store, rule: &str) -> bool {
    let find = |plural: &str| {
        let resource = Resource::new("admissionregistration.k8s.io", plural);
        store.get(&Key { resource, namespace: String::new(), name: rule.to_owned() })
    };
    let binding = find("validatingadmissionpolicybindings");
    let denies = binding.is_some_and(|binding| {
        let actions = binding.object["spec"]["validationActions"].as_array();
        actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny"))
    });
    denies && find("validatingadmissionpolicies").is_some()
}
