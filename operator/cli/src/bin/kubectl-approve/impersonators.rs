//! Who could impersonate the operator's service account, by the roles and bindings of the cluster.
//!
//! Reads RBAC objects and changes nothing. Must not take what it cannot list for nothing.

use k8s_openapi::{
    NamespaceResourceScope,
    api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use signoff_admission::policies::Identity;
use signoff_expr::text;

/// The roles and bindings that can let a subject impersonate a service account of one namespace.
#[derive(Default)]
struct Rbac {
    cluster_roles: Vec<ClusterRole>,
    cluster_bindings: Vec<ClusterRoleBinding>,
    roles: Vec<Role>,
    bindings: Vec<RoleBinding>,
}

/// The paragraph of `doctor` about impersonation: every subject with its binding, or what cannot be listed.
pub async fn paragraph(client: &Client, operator: &Identity) -> String {
    match Rbac::read(client, &operator.namespace).await {
        Err(why) => format!(
            "Who could impersonate the operator is unknown: {why}. Run this as a user who may list roles and role bindings, in \
             the cluster and in the namespace {}.\n",
            operator.namespace
        ),
        Ok(rbac) => match rbac.impersonators(operator).as_slice() {
            [] => "No binding lets anyone impersonate the operator.\n".to_owned(),
            some => {
                let head = "These could impersonate the operator. Admission refuses their writes and sees no reads: they can \
                            read the values of every run.\n";
                some.iter().fold(head.to_owned(), |page, line| format!("{page}  {line}\n"))
            }
        },
    }
}

impl Rbac {
    async fn read(client: &Client, namespace: &str) -> Result<Self, String> {
        Ok(Self {
            cluster_roles: list(Api::all(client.clone()), "clusterroles").await?,
            cluster_bindings: list(Api::all(client.clone()), "clusterrolebindings").await?,
            roles: namespaced(client, namespace, "roles").await?,
            bindings: namespaced(client, namespace, "rolebindings").await?,
        })
    }

    /// Each subject with the binding and the role that let it, sorted.
    fn impersonators(&self, operator: &Identity) -> Vec<String> {
        let mut lines = Vec::new();
        for binding in &self.cluster_bindings {
            let name = format!("ClusterRoleBinding {}", binding.name_any());
            self.add(&mut lines, operator, &name, &binding.role_ref, binding.subjects.as_deref());
        }
        for binding in &self.bindings {
            let name = format!("RoleBinding {} of {}", binding.name_any(), operator.namespace);
            self.add(&mut lines, operator, &name, &binding.role_ref, binding.subjects.as_deref());
        }
        lines.sort();
        lines.dedup();
        lines
    }

    fn add(
        &self,
        lines: &mut Vec<String>,
        operator: &Identity,
        binding: &str,
        role: &RoleRef,
        subjects: Option<&[Subject]>,
    ) {
        let rules = match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.iter().find(|found| found.name_any() == role.name).map(|r| &r.rules),
            _ => self.roles.iter().find(|found| found.name_any() == role.name).map(|r| &r.rules),
        };
        let rules = rules.and_then(Option::as_deref).unwrap_or_default();
        if rules.iter().any(|rule| lets_impersonate(rule, &operator.service_account)) {
            let whom = subjects.unwrap_or_default().iter().map(shown);
            lines.extend(whom.map(|subject| format!("{subject}, by {binding} ({} {})", role.kind, role.name)));
        }
    }
}

/// Whether a rule lets its subjects impersonate this service account. To impersonate the user name of a service account
/// takes the right on `serviceaccounts`, not on `users`.
fn lets_impersonate(rule: &PolicyRule, account: &str) -> bool {
    let any = |list: Option<&Vec<String>>, wanted: &[&str]| {
        list.is_some_and(|list| list.iter().any(|entry| wanted.contains(&entry.as_str())))
    };
    let names = rule.resource_names.as_deref().unwrap_or_default();
    any(Some(&rule.verbs), &["*", "impersonate", "impersonate:serviceaccount"])
        && any(rule.api_groups.as_ref(), &["*", "", "authentication.k8s.io"])
        && any(rule.resources.as_ref(), &["*", "serviceaccounts"])
        && (names.is_empty() || names.iter().any(|name| name == account))
}

fn shown(subject: &Subject) -> String {
    let name = text::display(&subject.name, 256);
    match &subject.namespace {
        Some(namespace) => format!("{} {}/{name}", subject.kind, text::display(namespace, 64)),
        None => format!("{} {name}", subject.kind),
    }
}

async fn namespaced<K>(client: &Client, namespace: &str, what: &str) -> Result<Vec<K>, String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    list(Api::namespaced(client.clone(), namespace), what).await
}

async fn list<K: Clone + std::fmt::Debug + DeserializeOwned>(api: Api<K>, what: &str) -> Result<Vec<K>, String> {
    match api.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items),
        Err(kube::Error::Api(status)) if status.code == 403 => Err(format!("you cannot list {what}")),
        Err(error) => Err(format!("{what} cannot be listed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        fn of<K: DeserializeOwned>(value: Value) -> Vec<K> {
            vec![serde_json::from_value(value).unwrap()]
        }
        let meta = |name: &str| json!({"name": name});
        let edit = json!({"apiGroups": [""], "verbs": ["impersonate"], "resources": ["serviceaccounts"]});
        let reference =
            |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let nina =
            json!([{"kind": "User", "name": "nina"}, {"kind": "ServiceAccount", "name": "ci", "namespace": "tools"}]);
        let rbac = Rbac {
            cluster_roles: of(json!({"metadata": meta("edit"), "rules": [edit]})),
            cluster_bindings: of(json!({"metadata": meta("all"), "roleRef": reference("ClusterRole", "edit"),
                "subjects": [{"kind": "Group", "name": "ops\u{1b}[2J"}]})),
            roles: of(
                json!({"metadata": meta("reader"), "rules": [{"apiGroups": [""], "verbs": ["get"], "resources": ["pods"]}]}),
            ),
            bindings: [
                of(json!({"metadata": meta("devs"), "roleRef": reference("ClusterRole", "edit"), "subjects": nina})),
                of(json!({"metadata": meta("readers"), "roleRef": reference("Role", "reader"), "subjects": nina})),
            ]
            .concat(),
        };
        let lines = rbac.impersonators(&Identity::default());
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("Group ops") && !lines[0].contains('\u{1b}'), "{lines:?}");
        assert_eq!(lines[1], "ServiceAccount tools/ci, by RoleBinding devs of signoff-system (ClusterRole edit)");
        assert_eq!(lines[2], "User nina, by RoleBinding devs of signoff-system (ClusterRole edit)");
        assert!(Rbac::default().impersonators(&Identity::default()).is_empty());
    }
}
