//! The subjects that could impersonate the operator's service account, by the roles and bindings of the cluster.
//!
//! Reads RBAC objects and changes nothing. **Invariant:** a list that cannot be read is reported as unknown, never as
//! empty.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use signoff_admission::policies::Identity;

use super::rbac::{Grant, Rbac, allows, format_subject};
use crate::output::wrap::wrap;

/// Reads RBAC, and renders the paragraph about impersonation: every subject with its binding, or what cannot be listed.
pub async fn render_paragraph(client: &Client, operator: &Identity) -> String {
    match Rbac::read(client, &operator.namespace).await {
        Err(why) => format!(
            "Who could impersonate the operator is unknown: {why}. Run this as a user who may list roles and role bindings, in \
             the cluster and in the namespace {}.\n",
            operator.namespace
        ),
        Ok(rbac) => match list_impersonators(&rbac, operator).as_slice() {
            [] => "No binding lets anyone impersonate the operator.\n".to_owned(),
            some => {
                let head = "These subjects can impersonate the operator. The admission policies refuse what they write then, but \
                            not what they read: the values of every run.";
                some.iter().fold(wrap(0, head), |page, line| page + &wrap(2, line))
            }
        },
    }
}

/// Returns a line for each subject that can impersonate the operator, with its binding and role, sorted.
fn list_impersonators(rbac: &Rbac, operator: &Identity) -> Vec<String> {
    let grants = rbac.grants(|rule| lets_impersonate(rule, &operator.service_account));
    let line = |grant: Grant| format!("{}, by {} ({})", format_subject(&grant.subject), grant.binding, grant.role);
    let mut lines: Vec<_> = grants.into_iter().map(line).collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Whether a rule lets its subjects impersonate this service account, which takes a right on `serviceaccounts`. A right
/// on `users` does not suffice.
fn lets_impersonate(rule: &PolicyRule, account: &str) -> bool {
    let verbs = ["impersonate", "impersonate:serviceaccount"];
    allows(rule, &verbs, &["", "authentication.k8s.io"], &["serviceaccounts"], account)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn rule(verbs: &[&str], resources: &[&str], names: &[&str]) -> PolicyRule {
        let rule = json!({"apiGroups": [""], "verbs": verbs, "resources": resources, "resourceNames": names});
        serde_json::from_value(rule).unwrap()
    }

    #[test]
    fn a_rule_lets_impersonate_by_verb_resource_and_name() {
        for (verbs, resources, names, lets) in [
            (&["impersonate"][..], &["serviceaccounts"][..], &[][..], true),
            (&["*"], &["*"], &[], true),
            (&["get", "impersonate"], &["pods", "serviceaccounts"], &["signoff-operator"], true),
            (&["impersonate"], &["serviceaccounts"], &["another"], false),
            (&["get", "create"], &["serviceaccounts"], &[], false),
            (&["impersonate"], &["users", "groups"], &[], false),
        ] {
            assert_eq!(
                lets_impersonate(&rule(verbs, resources, names), "signoff-operator"),
                lets,
                "{verbs:?} {names:?}"
            );
        }
    }

    #[test]
    fn subjects_are_named_with_binding_and_role_wherever_they_are_bound() {
        fn objects<K: DeserializeOwned>(value: Value) -> Vec<K> {
            vec![serde_json::from_value(value).unwrap()]
        }
        let meta = |name: &str| json!({"name": name});
        let edit = json!({"apiGroups": [""], "verbs": ["impersonate"], "resources": ["serviceaccounts"]});
        let reference =
            |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let nina =
            json!([{"kind": "User", "name": "nina"}, {"kind": "ServiceAccount", "name": "ci", "namespace": "tools"}]);
        let rbac = Rbac {
            namespace: "signoff-system".into(),
            cluster_roles: objects(json!({"metadata": meta("edit"), "rules": [edit]})),
            cluster_bindings: objects(
                json!({"metadata": meta("all\u{1b}[2J\n"), "roleRef": reference("ClusterRole", "edit"),
                "subjects": [{"kind": "Group", "name": "ops\u{1b}[2J"}]}),
            ),
            roles: objects(
                json!({"metadata": meta("reader"), "rules": [{"apiGroups": [""], "verbs": ["get"], "resources": ["pods"]}]}),
            ),
            bindings: [
                objects(
                    json!({"metadata": meta("devs"), "roleRef": reference("ClusterRole", "edit"), "subjects": nina}),
                ),
                objects(json!({"metadata": meta("readers"), "roleRef": reference("Role", "reader"), "subjects": nina})),
            ]
            .concat(),
        };
        let lines = list_impersonators(&rbac, &Identity::default());
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], "Group ops[2J, by ClusterRoleBinding all[2J (ClusterRole edit)");
        assert_eq!(lines[1], "ServiceAccount tools/ci, by RoleBinding devs of signoff-system (ClusterRole edit)");
        assert_eq!(lines[2], "User nina, by RoleBinding devs of signoff-system (ClusterRole edit)");
        assert!(list_impersonators(&Rbac::default(), &Identity::default()).is_empty());
    }
}
