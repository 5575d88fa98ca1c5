//! The fixed cast of every test and of the demo: names, groups and roles. Tokens are created for each control plane.

use std::io::Read;

use anyhow::{Context, Result, bail};

/// The role of a person in every namespace that tests create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A member of `system:masters` with all rights. Prepares the cluster and decides nothing.
    ClusterAdmin,
    /// Creates Workflows.
    Requester,
    /// Holds the verb `approve` on Approvals; each Approval lists its own approvers.
    Approver,
    /// Reads Workflows and Approvals.
    Viewer,
    /// Brings other people's decisions, as a Git controller does, with the verb `delegate`.
    Delegate,
    /// The built-in role `edit`: many rights in a namespace, none on decisions.
    Editor,
    /// The built-in role `admin`.
    NamespaceAdmin,
    /// No role.
    Outsider,
}

impl Role {
    /// Returns the ClusterRoles bound to the person in a namespace.
    #[must_use]
    pub fn cluster_roles(self) -> &'static [&'static str] {
        match self {
            Self::Requester => &["signoff-requester"],
            Self::Approver => &["signoff-approver"],
            Self::Viewer => &["signoff-viewer"],
            Self::Delegate => &["signoff-approver", "signoff-delegate"],
            Self::Editor => &["edit"],
            Self::NamespaceAdmin => &["admin"],
            Self::ClusterAdmin | Self::Outsider => &[],
        }
    }
}

/// A person of the cast.
#[derive(Clone, Copy, Debug)]
pub struct Person {
    /// The short name: the context in the kubeconfig.
    pub name: &'static str,
    /// The user name in the API server.
    pub user: &'static str,
    /// The groups; the API server adds `system:authenticated`.
    pub groups: &'static [&'static str],
    /// The role that the person has in every namespace of the tests.
    pub role: Role,
}

const fn person(name: &'static str, user: &'static str, groups: &'static [&'static str], role: Role) -> Person {
    Person { name, user, groups, role }
}

/// The whole cast. The last few have names that a careless JSON pointer, label or map key would break on.
pub const CAST: &[Person] = &[
    person("admin", "admin", &["system:masters"], Role::ClusterAdmin),
    person("dana", "dana@example.com", &["staff"], Role::Requester),
    person("alice", "alice@example.com", &["finance", "finance-leads"], Role::Approver),
    person("bob", "bob@example.com", &["finance"], Role::Approver),
    person("carol", "carol@example.com", &["finance", "sre"], Role::Approver),
    person("erin", "erin@example.com", &["sre"], Role::Approver),
    person("viktor", "viktor@example.com", &["staff"], Role::Viewer),
    person("nina", "nina@example.com", &["staff"], Role::Editor),
    person("adam", "adam@example.com", &["staff"], Role::NamespaceAdmin),
    person("mallory", "mallory@example.com", &["outsiders"], Role::Outsider),
    person(
        "flux",
        "system:serviceaccount:flux-system:kustomize-controller",
        &["system:serviceaccounts", "system:serviceaccounts:flux-system"],
        Role::Delegate,
    ),
    person("slash", "oidc:a/b~c@x", &["finance"], Role::Approver),
    person("tilde", "a~1b", &["finance"], Role::Approver),
    person("via", "eve via mallory", &["finance"], Role::Approver),
];

/// The kubelet of a control plane with a node, as a user. It is not of the cast, and no role is bound to it.
pub(crate) const NODE: Person = person("node", "system:node:node", &["system:nodes"], Role::Outsider);

/// The scheduler of a control plane with a node, under the user name of the built-in roles.
pub(crate) const SCHEDULER: Person = person("scheduler", "system:kube-scheduler", &[], Role::Outsider);

/// Returns the person with this short name.
///
/// # Errors
/// The cast has no person of this name; the error lists the cast.
pub fn named(name: &str) -> Result<&'static Person> {
    match CAST.iter().find(|person| person.name == name) {
        Some(person) => Ok(person),
        None => {
            let cast: Vec<_> = CAST.iter().map(|person| person.name).collect();
            bail!("nobody in the cast is called {name:?}; there are {}", cast.join(", "))
        }
    }
}

/// Returns a random bearer token. With a token that others know, another user of this machine could act as the
/// administrator of the test cluster.
pub(crate) fn fresh_token() -> Result<String> {
    let mut bytes = [0; 24];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).context("/dev/urandom")?;
    Ok(hex::encode(bytes))
}

/// Returns the API server's static token file: one line for each person, `token,user,uid,"group1,group2"`.
pub(crate) fn token_file(tokens: &[(&Person, String)]) -> String {
    tokens
        .iter()
        .map(|(person, token)| format!("{token},{},uid-{},\"{}\"\n", person.user, person.name, person.groups.join(",")))
        .collect()
}
