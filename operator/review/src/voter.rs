//! The user who reads Approvals, as the API server authenticated them.
//!
//! For display only: the API server authenticates every request again.

use signoff_engine::approval::eligibility::Voter;

/// The user that the API server authenticated.
#[derive(Clone, Debug)]
pub struct Me {
    /// The user name, as the API server returned it.
    pub user: String,
    /// The groups of the user, as the API server returned them.
    pub groups: Vec<String>,
}

impl Me {
    /// Returns this user as a voter who decides for themselves.
    pub fn voter(&self) -> Voter<'_> {
        Voter::new(&self.user, &self.groups)
    }

    /// Returns this user as a voter who decides on behalf of another person, or for themselves.
    pub fn voter_for<'a>(&'a self, on_behalf_of: Option<&'a str>) -> Voter<'a> {
        Voter { on_behalf_of, ..self.voter() }
    }
}
