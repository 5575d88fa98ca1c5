//! The mutating webhooks and policies of others that match objects of Signoff. Each could change a vote after the
//! approver has sent it and before the validating policies check it.
//!
//! **Invariant:** ignores selectors and conditions: a webhook or policy matches if one of its rules matches.

use k8s_openapi::api::admissionregistration::v1::{MutatingAdmissionPolicy, MutatingWebhookConfiguration};
use signoff_api::GROUP;

use crate::inspect::{ByName, InForce};

/// The groups and resources of a rule of a webhook or a mutating policy.
struct ResourceRule<'a> {
    groups: &'a [String],
    resources: &'a [String],
}

impl ResourceRule<'_> {
    fn matches_signoff(&self) -> bool {
        let is_of_signoff = |resource: &String| {
            let name = resource.split('/').next().unwrap_or_default();
            // `*` stands for every resource, and `*/status` for every status.
            matches!(name, "*" | "approvals" | "blobs" | "workflows" | "approvalpolicies" | "clusterapprovalpolicies")
        };
        self.groups.iter().any(|group| group == "*" || group == GROUP) && self.resources.iter().any(is_of_signoff)
    }
}

/// Returns the kind and name of each external mutator. `ours`: the names of the mutating policies of Signoff.
pub(crate) fn mutators(found: &InForce, ours: &[String]) -> Vec<String> {
    let mut all = matching_webhooks(&found.webhooks);
    if let Some((policies, bindings)) = &found.mutating {
        let bound = |name: &str| {
            bindings
                .values()
                .any(|binding| binding.spec.as_ref().is_some_and(|spec| spec.policy_name.as_deref() == Some(name)))
        };
        let foreign = policies.iter().filter(|(name, _)| !ours.contains(name));
        let matching = foreign.filter(|(name, policy)| bound(name) && policy_matches(policy));
        all.extend(matching.map(|(name, _)| format!("MutatingAdmissionPolicy {name}")));
    }
    all
}

fn matching_webhooks(configurations: &ByName<MutatingWebhookConfiguration>) -> Vec<String> {
    let mut all = Vec::new();
    for (name, configuration) in configurations {
        for webhook in configuration.webhooks.iter().flatten() {
            let matches = webhook.rules.iter().flatten().any(|rule| {
                let groups = rule.api_groups.as_deref().unwrap_or_default();
                ResourceRule { groups, resources: rule.resources.as_deref().unwrap_or_default() }.matches_signoff()
            });
            if matches {
                all.push(format!("MutatingWebhookConfiguration {name} (webhook {})", webhook.name));
            }
        }
    }
    all
}

fn policy_matches(policy: &MutatingAdmissionPolicy) -> bool {
    let constraints = policy.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref());
    constraints.and_then(|constraints| constraints.resource_rules.as_ref()).into_iter().flatten().any(|rule| {
        let groups = rule.api_groups.as_deref().unwrap_or_default();
        ResourceRule { groups, resources: rule.resources.as_deref().unwrap_or_default() }.matches_signoff()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn matches(group: &str, resource: &str) -> bool {
        ResourceRule { groups: &[group.to_owned()], resources: &[resource.to_owned()] }.matches_signoff()
    }

    #[test]
    fn matches_signoff_is_true_only_for_objects_of_signoff_and_their_status() {
        for (group, resource) in [
            ("*", "*"),
            ("signoff.dev", "approvals"),
            ("signoff.dev", "*/*"),
            ("*", "workflows/status"),
            ("*", "*/status"),
        ] {
            assert!(matches(group, resource), "{group} {resource}");
        }
        for (group, resource) in [("", "*"), ("apps", "*"), ("signoff.dev", "pods"), ("*", "pods/status")] {
            assert!(!matches(group, resource), "{group} {resource}");
        }
    }
}
