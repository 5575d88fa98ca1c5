//! The roles and bindings that apply in one namespace, and the subjects to which they grant a right.
//!
//! **Invariant:** objects that cannot be listed are an error, and never an empty list.

use k8s_openapi::{
    NamespaceResourceScope,
    api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use signoff_cli::sanitize::one_line;

/// The roles and bindings of the cluster, and the roles and bindings of one namespace.
#[derive(Default)]
pub struct Rbac {
    /// The namespace of `roles` and `bindings`.
    pub namespace: String,
    /// All ClusterRoles of the cluster.
    pub cluster_roles: Vec<ClusterRole>,
    /// All ClusterRoleBindings of the cluster.
    pub cluster_bindings: Vec<ClusterRoleBinding>,
    /// The roles of the namespace.
    pub roles: Vec<Role>,
    /// The bindings of the namespace.
    pub bindings: Vec<RoleBinding>,
}

/// A subject to which a binding grants a right.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The user, group or service account.
    pub subject: Subject,
    /// The kind and name of the binding, for a terminal.
    pub binding: String,
    /// The kind and name of the role, for a terminal.
    pub role: String,
}

impl Rbac {
    /// Lists the roles and bindings.
    ///
    /// # Errors
    /// The kind that cannot be listed, with the reason.
    pub async fn read(client: &Client, namespace: &str) -> Result<Self, String> {
        Ok(Self {
            namespace: namespace.to_owned(),
            cluster_roles: list(Api::all(client.clone()), "clusterroles").await?,
            cluster_bindings: list(Api::all(client.clone()), "clusterrolebindings").await?,
            roles: list_in_namespace(client, namespace, "roles").await?,
            bindings: list_in_namespace(client, namespace, "rolebindings").await?,
        })
    }

    /// Returns a grant for each subject that is bound to a role with a rule for which `allows` holds.
    pub fn grants(&self, allows: impl Fn(&PolicyRule) -> bool) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut add = |binding: String, role: &RoleRef, subjects: Option<&[Subject]>| {
            if self.rules_of(role).iter().any(&allows) {
                let role = format!("{} {}", one_line(&role.kind, 64), one_line(&role.name, 256));
                let subjects = subjects.unwrap_or_default().iter().cloned();
                grants.extend(subjects.map(|subject| Grant { subject, binding: binding.clone(), role: role.clone() }));
            }
        };
        for binding in &self.cluster_bindings {
            let name = format!("ClusterRoleBinding {}", one_line(&binding.name_any(), 256));
            add(name, &binding.role_ref, binding.subjects.as_deref());
        }
        for binding in &self.bindings {
            let name =
                format!("RoleBinding {} of {}", one_line(&binding.name_any(), 256), one_line(&self.namespace, 64));
            add(name, &binding.role_ref, binding.subjects.as_deref());
        }
        grants
    }

    fn rules_of(&self, role: &RoleRef) -> &[PolicyRule] {
        let rules = match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.iter().find(|found| found.name_any() == role.name).map(|r| &r.rules),
            _ => self.roles.iter().find(|found| found.name_any() == role.name).map(|r| &r.rules),
        };
        rules.and_then(Option::as_deref).unwrap_or_default()
    }
}

/// Whether a rule allows one of the verbs on one of the resources of one of the groups, for the object with this name.
/// `*` in the rule means all.
pub fn allows(rule: &PolicyRule, verbs: &[&str], groups: &[&str], resources: &[&str], name: &str) -> bool {
    let any = |list: Option<&Vec<String>>, wanted: &[&str]| {
        list.is_some_and(|list| list.iter().any(|entry| entry == "*" || wanted.contains(&entry.as_str())))
    };
    let names = rule.resource_names.as_deref().unwrap_or_default();
    any(Some(&rule.verbs), verbs)
        && any(rule.api_groups.as_ref(), groups)
        && any(rule.resources.as_ref(), resources)
        && (names.is_empty() || names.iter().any(|entry| entry == name))
}

/// Formats a subject as `User alice` or `ServiceAccount tools/ci`.
pub fn format_subject(subject: &Subject) -> String {
    let (kind, name) = (one_line(&subject.kind, 64), one_line(&subject.name, 256));
    match &subject.namespace {
        Some(namespace) => format!("{kind} {}/{name}", one_line(namespace, 64)),
        None => format!("{kind} {name}"),
    }
}

async fn list_in_namespace<K>(client: &Client, namespace: &str, what: &str) -> Result<Vec<K>, String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    list(Api::namespaced(client.clone(), namespace), what).await
}

async fn list<K: Clone + std::fmt::Debug + DeserializeOwned>(api: Api<K>, what: &str) -> Result<Vec<K>, String> {
    match api.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items),
        Err(kube::Error::Api(status)) if status.code == 403 => Err(format!("you cannot list {what}")),
        Err(error) => Err(format!("{what} cannot be listed: {}", one_line(&error.to_string(), 300))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn object<K: DeserializeOwned>(value: Value) -> Vec<K> {
        vec![serde_json::from_value(value).unwrap()]
    }

    #[test]
    fn names_of_rbac_objects_cannot_move_the_cursor_or_begin_a_line() {
        let odd = "x\u{1b}[2J\nOperator: alive";
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": odd});
        let subjects =
            json!([{"kind": "User", "name": odd}, {"kind": "ServiceAccount", "name": odd, "namespace": odd}]);
        let rbac = Rbac {
            namespace: "demo".into(),
            cluster_roles: object(json!({"metadata": {"name": odd}, "rules": [
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            ]})),
            cluster_bindings: object(json!({"metadata": {"name": odd}, "roleRef": role, "subjects": subjects})),
            roles: Vec::new(),
            bindings: object(json!({"metadata": {"name": odd}, "roleRef": role, "subjects": subjects})),
        };
        let grants = rbac.grants(|_| true);
        assert_eq!(grants.len(), 4);
        for grant in grants {
            for text in [format_subject(&grant.subject), grant.binding, grant.role] {
                assert!(text.contains("x[2J Operator: alive") && !text.contains(['\u{1b}', '\n']), "{text:?}");
            }
        }
    }
}
