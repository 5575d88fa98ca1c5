//! The one rule that the simulated server goes by, where it is in force: nobody creates an Approval with decisions.
//! It decides nothing else: what admission really does is tested on a real API server.

use serde_json::Value;

use super::status::Refusal;
use super::store::{Key, Resource, Store};

const RULE: &str = "signoff-approvals";

/// Refuses the object as the real rule would, if policy and binding are there and deny.
pub(crate) fn check(store: &Store, resource: &Resource, object: &Value) -> Result<(), Refusal> {
    let decided = object["spec"]["decisions"].as_object().is_some_and(|decisions| !decisions.is_empty());
    if resource.plural != "approvals" || !decided || !in_force(store) {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(Refusal::new(
        403,
        "Forbidden",
        format!(
            "approvals.signoff.dev \"{name}\" is forbidden: ValidatingAdmissionPolicy '{RULE}' with binding '{RULE}' denied request: only the operator creates Approvals, and without decisions"
        ),
    ))
}

fn in_force(store: &Store) -> bool {
    let find = |plural: &str| {
        let resource = Resource::new("admissionregistration.k8s.io", plural);
        store.get(&Key { resource, namespace: String::new(), name: RULE.to_owned() })
    };
    let binding = find("validatingadmissionpolicybindings");
    let denies = binding.is_some_and(|binding| {
        let actions = binding.object["spec"]["validationActions"].as_array();
        actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny"))
    });
    denies && find("validatingadmissionpolicies").is_some()
}
