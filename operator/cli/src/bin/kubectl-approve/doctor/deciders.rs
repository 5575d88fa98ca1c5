//! The right of each approver of an Approval: whether a binding grants the verb `approve` in the namespace.
//!
//! Reads RBAC objects and creates SubjectAccessReviews as far as the caller is allowed to. The groups of a user remain
//! unknown.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::Subject as RbacSubject;
use signoff_api::{
    GROUP,
    gate::{Subject, SubjectKind},
};
use signoff_cli::sanitize::one_line;
use signoff_expr::nearest;

use super::rbac::{Grant, Rbac, allows, format_subject};
use crate::cluster::client::Session;

/// The group to which every authorizer allows everything, so that its bindings tell nothing about a gate.
const MASTERS: &str = "system:masters";
/// The most bindings that are listed.
const MOST: usize = 8;

/// The answer to whether an approver holds the verb `approve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// This binding grants the verb.
    Granted(String),
    /// The API server allows the verb, by a binding that the caller cannot read or by another authorizer.
    Allowed,
    /// No binding names the group, but this number of users is bound, who might be its members.
    Users(usize),
    /// No binding names the user, but these groups are bound, of which the user might be a member.
    Perhaps(Vec<String>),
    /// No binding names the group, but these other groups are bound, in which its members might be too.
    Groups(Vec<String>),
    /// No binding grants the verb to the approver. Holds the bound subject that was perhaps meant.
    Missing(Option<String>),
    /// The caller can neither read bindings nor ask the API server.
    Unknown(String),
}

/// The holders of the verb `approve` on one Approval, as far as the caller can learn them.
pub struct Deciders<'s> {
    session: &'s Session,
    /// The bindings that grant the verb, or why they cannot be listed.
    grants: Result<Vec<Grant>, String>,
    /// Whether the API server answers the caller's SubjectAccessReviews.
    can_review: bool,
}

impl<'s> Deciders<'s> {
    /// Finds the bindings that grant `approve` on this Approval.
    pub fn new(session: &'s Session, rbac: &Result<Rbac, String>, approval: &str) -> Self {
        let grants = match rbac {
            Ok(rbac) => Ok(find_holders(rbac, approval)),
            Err(why) => Err(why.clone()),
        };
        Self { session, grants, can_review: true }
    }

    /// Returns whether this approver holds `approve`: by the bindings, or else by the API server's answer. After a
    /// review without an answer, no further review is sent.
    pub async fn find_right(&mut self, approver: &Subject) -> Right {
        let by_bindings = match &self.grants {
            Ok(grants) => find_right_by_bindings(grants, approver),
            Err(why) => Right::Unknown(why.clone()),
        };
        if matches!(by_bindings, Right::Granted(_)) || !self.can_review {
            return by_bindings;
        }
        match self.review(approver).await {
            Some(true) => Right::Allowed,
            // The bindings are unknown: members of a group might be bound as users, and a user as a member of a group.
            Some(false) if matches!(by_bindings, Right::Unknown(_)) && approver.kind != SubjectKind::ServiceAccount => {
                by_bindings
            }
            Some(false) if matches!(by_bindings, Right::Unknown(_)) => Right::Missing(None),
            Some(false) => by_bindings,
            None => {
                self.can_review = false;
                by_bindings
            }
        }
    }

    /// Returns the subjects that are bound to `approve` as one text, or `None` if that is unknown.
    pub fn bound_subjects(&self) -> Option<String> {
        let grants = self.grants.as_ref().ok()?;
        let mut lines: Vec<_> = without_administrators(grants)
            .map(|grant| format!("{} ({})", format_subject(&grant.subject), grant.binding))
            .collect();
        lines.sort();
        lines.dedup();
        let more = lines.len().saturating_sub(MOST);
        lines.truncate(MOST);
        Some(match (lines.is_empty(), more) {
            (true, _) => "only cluster administrators".to_owned(),
            (false, 0) => lines.join(", "),
            (false, more) => format!("{} and {more} more", lines.join(", ")),
        })
    }

    /// Returns the API server's answer about an approver, or `None` if the caller gets no answer.
    async fn review(&self, approver: &Subject) -> Option<bool> {
        let authenticated = "system:authenticated".to_owned();
        let (user, groups) = match (approver.kind, &approver.namespace) {
            (SubjectKind::User, _) => (Some(approver.name.clone()), vec![authenticated]),
            (SubjectKind::Group, _) => (None, vec![approver.name.clone(), authenticated]),
            (SubjectKind::ServiceAccount, namespace) => {
                let namespace = namespace.as_deref().unwrap_or_default();
                let accounts = "system:serviceaccounts";
                let user = format!("system:serviceaccount:{namespace}:{}", approver.name);
                (Some(user), vec![accounts.to_owned(), format!("{accounts}:{namespace}"), authenticated])
            }
        };
        let attributes = ResourceAttributes {
            group: Some(GROUP.to_owned()),
            resource: Some("approvals".to_owned()),
            namespace: Some(self.session.namespace.clone()),
            verb: Some("approve".to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user,
            groups: Some(groups),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let answer = self.session.ask(SubjectAccessReview { spec, ..SubjectAccessReview::default() }).await.ok()?;
        Some(answer.status.is_some_and(|status| status.allowed))
    }
}

fn find_holders(rbac: &Rbac, approval: &str) -> Vec<Grant> {
    rbac.grants(|rule| allows(rule, &["approve"], &[GROUP], &["approvals"], approval))
}

/// Returns the grants to others than the cluster administrators.
fn without_administrators(grants: &[Grant]) -> impl Iterator<Item = &Grant> {
    grants.iter().filter(|grant| !(grant.subject.kind == "Group" && grant.subject.name == MASTERS))
}

/// Returns the right that bindings give an approver. Without one, names the bound subjects that could be meant, or that
/// could have the approver as a member.
fn find_right_by_bindings(grants: &[Grant], approver: &Subject) -> Right {
    if let Some(grant) = grants.iter().find(|grant| covers(&grant.subject, approver)) {
        return Right::Granted(format!("{} ({})", grant.binding, grant.role));
    }
    let same_name = without_administrators(grants)
        .find(|grant| grant.subject.name == approver.name && grant.subject.namespace.is_none());
    let kind = kind_name(approver);
    let names = without_administrators(grants)
        .filter(|grant| grant.subject.kind == kind)
        .map(|grant| grant.subject.name.as_str());
    let near = match same_name {
        Some(grant) => Some(format_subject(&grant.subject)),
        None => nearest(&approver.name, names).map(|name| format!("{kind} {}", one_line(name, 253))),
    };
    let groups: Vec<_> = without_administrators(grants).filter(|grant| grant.subject.kind == "Group").collect();
    if approver.kind == SubjectKind::User && near.is_none() && !groups.is_empty() {
        return Right::Perhaps(names_of(groups.iter().map(|grant| grant.subject.name.as_str())));
    }
    let mut users: Vec<_> = without_administrators(grants)
        .filter(|grant| grant.subject.kind == "User")
        .map(|grant| grant.subject.name.as_str())
        .collect();
    users.sort_unstable();
    users.dedup();
    if approver.kind == SubjectKind::Group && near.is_none() && !users.is_empty() {
        return Right::Users(users.len());
    }
    // Groups of the system, such as those of service accounts, have no people as members.
    let has_people = |name: &&str| !name.starts_with("system:");
    let groups: Vec<_> = groups.iter().map(|grant| grant.subject.name.as_str()).filter(has_people).collect();
    if approver.kind == SubjectKind::Group && near.is_none() && !groups.is_empty() {
        return Right::Groups(names_of(groups.into_iter()));
    }
    Right::Missing(near)
}

/// Returns at most [`MOST`] of the names, sorted and without duplicates, for a terminal.
fn names_of<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut names: Vec<_> = names.map(|name| one_line(name, 253)).collect();
    names.sort();
    names.dedup();
    names.truncate(MOST);
    names
}

fn kind_name(approver: &Subject) -> &'static str {
    match approver.kind {
        SubjectKind::User => "User",
        SubjectKind::Group => "Group",
        SubjectKind::ServiceAccount => "ServiceAccount",
    }
}

/// Whether a binding's subject is this approver, or a group of which this approver certainly is a member.
fn covers(bound: &RbacSubject, approver: &Subject) -> bool {
    let namespace = approver.namespace.as_deref().unwrap_or_default();
    if bound.kind == "Group" && bound.name == "system:authenticated" {
        return true;
    }
    match (bound.kind.as_str(), approver.kind) {
        ("User", SubjectKind::User) | ("Group", SubjectKind::Group) => bound.name == approver.name,
        ("ServiceAccount", SubjectKind::ServiceAccount) => {
            bound.name == approver.name && bound.namespace.as_deref() == Some(namespace)
        }
        ("User", SubjectKind::ServiceAccount) => {
            bound.name == format!("system:serviceaccount:{namespace}:{}", approver.name)
        }
        ("Group", SubjectKind::ServiceAccount) => {
            bound.name == "system:serviceaccounts" || bound.name == format!("system:serviceaccounts:{namespace}")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    /// Returns the grants in a namespace that binds these subjects to `signoff-approver`, with the cluster's
    /// administrators.
    fn grants(subjects: Value) -> Vec<Grant> {
        let object = |value: Value| vec![serde_json::from_value(value).unwrap()];
        let approver =
            json!([{"apiGroups": [GROUP], "resources": ["approvals"], "verbs": ["get", "patch", "approve"]}]);
        let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let rbac = Rbac {
            namespace: "demo".into(),
            cluster_roles: serde_json::from_value(json!([
                {"metadata": {"name": "signoff-approver"}, "rules": approver},
                {"metadata": {"name": "cluster-admin"}, "rules": everything},
                {"metadata": {"name": "view"}, "rules": [{"apiGroups": [GROUP], "resources": ["approvals"], "verbs": ["get"]}]},
            ]))
            .unwrap(),
            cluster_bindings: serde_json::from_value(
                json!([{"metadata": {"name": "cluster-admin"}, "roleRef": role("cluster-admin"),
                "subjects": [{"kind": "Group", "name": MASTERS}]}]),
            )
            .unwrap(),
            roles: Vec::new(),
            bindings: [
                object(json!({"metadata": {"name": "approvers"}, "roleRef": role("signoff-approver"), "subjects": subjects})),
                object(json!({"metadata": {"name": "readers"}, "roleRef": role("view"),
                    "subjects": [{"kind": "Group", "name": "finanec"}]})),
            ]
            .concat(),
        };
        find_holders(&rbac, "refund")
    }

    #[test]
    fn a_misspelt_group_is_missing_and_the_similar_group_is_suggested() {
        let grants = grants(json!([{"kind": "Group", "name": "finance"}]));
        let granted = Right::Granted("RoleBinding approvers of demo (ClusterRole signoff-approver)".into());
        assert_eq!(find_right_by_bindings(&grants, &Subject::group("finance")), granted);
        assert_eq!(
            find_right_by_bindings(&grants, &Subject::group("finanec")),
            Right::Missing(Some("Group finance".into()))
        );
        assert_eq!(find_right_by_bindings(&grants, &Subject::group("sre")), Right::Groups(vec!["finance".into()]));
        assert_eq!(
            find_right_by_bindings(&grants, &Subject::user("finance")),
            Right::Missing(Some("Group finance".into()))
        );
    }

    #[test]
    fn a_group_that_no_binding_names_may_consist_of_bound_users() {
        let users = grants(
            json!([{"kind": "User", "name": "alice"}, {"kind": "User", "name": "bob"}, {"kind": "User", "name": "alice"}]),
        );
        assert_eq!(find_right_by_bindings(&users, &Subject::group("leads")), Right::Users(2));
        // An approver whose name is similar to the name of a bound group still counts as misspelt.
        let mixed = grants(json!([{"kind": "User", "name": "alice"}, {"kind": "Group", "name": "finance"}]));
        assert_eq!(find_right_by_bindings(&mixed, &Subject::group("leads")), Right::Users(1));
        assert_eq!(
            find_right_by_bindings(&mixed, &Subject::group("finanec")),
            Right::Missing(Some("Group finance".into()))
        );
    }

    #[test]
    fn a_group_that_no_binding_names_may_consist_of_members_of_bound_groups() {
        let groups = grants(json!([{"kind": "Group", "name": "sre"}, {"kind": "Group", "name": "finance"}]));
        let both = Right::Groups(vec!["finance".into(), "sre".into()]);
        assert_eq!(find_right_by_bindings(&groups, &Subject::group("leads")), both);
        assert_eq!(
            find_right_by_bindings(&groups, &Subject::group("finanec")),
            Right::Missing(Some("Group finance".into()))
        );
        for nobody in [
            json!([]),
            json!([{"kind": "Group", "name": "system:serviceaccounts:ci"}]),
            json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}]),
        ] {
            assert_eq!(
                find_right_by_bindings(&grants(nobody.clone()), &Subject::group("leads")),
                Right::Missing(None),
                "{nobody}"
            );
        }
    }

    #[test]
    fn a_user_without_a_binding_may_be_a_member_of_a_bound_group() {
        let by_group = grants(json!([{"kind": "Group", "name": "finance"}]));
        assert_eq!(find_right_by_bindings(&by_group, &Subject::user("alice")), Right::Perhaps(vec!["finance".into()]));
        let by_name = grants(json!([{"kind": "User", "name": "bob"}]));
        assert_eq!(find_right_by_bindings(&by_name, &Subject::user("alice")), Right::Missing(None));
        assert!(matches!(find_right_by_bindings(&by_name, &Subject::user("bob")), Right::Granted(_)));
    }

    #[test]
    fn a_service_account_is_covered_by_its_name_and_by_its_groups() {
        let bot = Subject { kind: SubjectKind::ServiceAccount, name: "bot".into(), namespace: Some("ci".into()) };
        for (bound, is_covered) in [
            (json!({"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}), true),
            (json!({"kind": "ServiceAccount", "name": "bot", "namespace": "other"}), false),
            (json!({"kind": "User", "name": "system:serviceaccount:ci:bot"}), true),
            (json!({"kind": "Group", "name": "system:serviceaccounts:ci"}), true),
            (json!({"kind": "Group", "name": "system:authenticated"}), true),
        ] {
            assert_eq!(covers(&serde_json::from_value(bound.clone()).unwrap(), &bot), is_covered, "{bound}");
        }
    }
}
