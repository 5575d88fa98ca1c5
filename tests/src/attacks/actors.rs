//! The actors of the attacks: one of each kind of people, machines and stolen tokens.

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    /// alice: an approver of the plain gate who holds the verb `approve`.
    Approver,
    /// bob: an approver of the plain gate who holds the verb `approve`.
    SecondApprover,
    /// carol: holds the verb `approve`, and is no approver of the plain gate.
    Unlisted,
    /// flux: a controller that can vote for alice and bob.
    Delegate,
    /// dana: the requester of the run.
    Requester,
    /// viktor: holds read access only.
    Viewer,
    /// nina: holds the built-in role `edit`.
    Edit,
    /// adam: holds the built-in role `admin`.
    Admin,
    /// mallory: holds no right.
    Outsider,
    /// Holds every verb on `approvals/status` and `workflows/status`.
    StatusHolder,
    /// A member of `system:masters`.
    ClusterAdmin,
    /// Holds the built-in role `admin` in the operator's own namespace.
    OperatorsNeighbour,
    /// A service account of the namespace.
    ServiceAccount,
    /// The operator, with its own token from its own Pod.
    Operator,
    /// The operator's service account, with another kind of token.
    Stolen(Token),
    /// The garbage collector of the cluster.
    GarbageCollector,
    /// A user with this name, in the groups `finance` and `staff`.
    Named(&'static str),
    /// alice, through a channel of this name that vouches for itself.
    Through(&'static str),
}

/// One actor of each kind to which the chart or the cluster gives a role: people first, then the programs.
pub(super) const EVERYBODY: [Actor; 13] = [
    Actor::Approver,
    Actor::SecondApprover,
    Actor::Unlisted,
    Actor::Delegate,
    Actor::Requester,
    Actor::Viewer,
    Actor::Edit,
    Actor::Admin,
    Actor::Outsider,
    Actor::StatusHolder,
    Actor::ClusterAdmin,
    Actor::GarbageCollector,
    Actor::Operator,
];
/// All actors but the operator.
pub(super) const OTHERS: [Actor; 12] = first();
/// All actors but the operator and the garbage collector.
pub(super) const PEOPLE: [Actor; 11] = first();

/// Returns the first `N` of [`EVERYBODY`].
const fn first<const N: usize>() -> [Actor; N] {
    let mut actors = [Actor::Operator; N];
    let mut index = 0;
    while index < N {
        actors[index] = EVERYBODY[index];
        index += 1;
    }
    actors
}

/// The kinds of token of the operator's service account that an attacker might obtain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Token {
    /// `kubectl create token`: bound to nothing.
    Created,
    /// `kubectl create token --bound-object-kind Secret`.
    BoundToSecret,
    /// A Secret of the type `kubernetes.io/service-account-token`.
    Secret,
    /// No token at all: impersonation of the service account.
    Impersonated,
    /// A token projected into a Pod beside the operator's, of that namespace's default service account.
    Neighbour,
}

impl Token {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Created, Self::BoundToSecret, Self::Secret, Self::Impersonated, Self::Neighbour];
}

impl Actor {
    /// Returns the name of the actor on the page and in the names of attacks.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Approver => "an approver",
            Self::SecondApprover => "a second approver",
            Self::Unlisted => "an approver of other gates",
            Self::Delegate => "a delegate",
            Self::Requester => "the requester",
            Self::Viewer => "a viewer",
            Self::Edit => "namespace edit",
            Self::Admin => "namespace admin",
            Self::Outsider => "an outsider",
            Self::StatusHolder => "a holder of approvals/status",
            Self::ClusterAdmin => "the cluster's admin",
            Self::OperatorsNeighbour => "an admin of the operator's namespace",
            Self::ServiceAccount => "a service account",
            Self::Operator => "the operator",
            Self::Stolen(Token::Created) => "the operator's account by kubectl create token",
            Self::Stolen(Token::BoundToSecret) => "the operator's account by a token bound to a Secret",
            Self::Stolen(Token::Secret) => "the operator's account by a token Secret",
            Self::Stolen(Token::Impersonated) => "the operator's account by impersonation",
            Self::Stolen(Token::Neighbour) => "another account by a token projected beside the operator",
            Self::GarbageCollector => "the garbage collector",
            Self::Named(name) => return format!("somebody called {}", escape_name(name)),
            Self::Through(channel) => return format!("an approver through the channel {channel}"),
        }
        .to_owned()
    }

    /// Returns the short name in the cast, or `None` for an actor that is not in it.
    #[must_use]
    pub fn cast(self) -> Option<&'static str> {
        Some(match self {
            Self::Approver => "alice",
            Self::SecondApprover => "bob",
            Self::Unlisted => "carol",
            Self::Delegate => "flux",
            Self::Requester => "dana",
            Self::Viewer => "viktor",
            Self::Edit => "nina",
            Self::Admin => "adam",
            Self::Outsider => "mallory",
            Self::ClusterAdmin => "admin",
            _ => return None,
        })
    }
}

/// The characters of a name that are shown.
const MAX_SHOWN_CHARACTERS: usize = 40;

/// Returns a readable name: characters outside of plain ASCII are escaped, and a long name is cut.
fn escape_name(name: &str) -> String {
    let escape =
        |c: char| if c.is_ascii_graphic() || c == ' ' { c.to_string() } else { c.escape_unicode().to_string() };
    let short: String = name.chars().take(MAX_SHOWN_CHARACTERS).map(escape).collect();
    match name.chars().count() {
        count if count > MAX_SHOWN_CHARACTERS => format!("{short}… ({count} characters)"),
        _ => short,
    }
}
