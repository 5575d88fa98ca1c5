//! The addresses of the pages about a run.
//!
//! **Invariant:** names are escaped, so that no character of a name is a part of the path.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use signoff_api::Digest;

use crate::error::PageError;

const SAFE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The longest name of an object, in characters.
const LONGEST: usize = 253;

/// A run, by its namespace and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The namespace of the run.
    pub namespace: String,
    /// The name of the Workflow.
    pub name: String,
}

impl Address {
    /// Returns the address of a run with the names of a request's path.
    ///
    /// # Errors
    /// Names that no object can have, because they would be another path of the API server.
    pub fn of(namespace: &str, name: &str) -> Result<Self, PageError> {
        if is_name(namespace) && is_name(name) {
            return Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() });
        }
        Err(PageError::NotFound("there is no such run: its name is no name of an object".to_owned()))
    }

    /// Returns the path of the run's page.
    pub fn run(&self) -> String {
        format!("/n/{}/w/{}", encode(&self.namespace), encode(&self.name))
    }

    /// Returns the path of an Approval of the run.
    pub fn approval(&self, name: &str) -> String {
        format!("/n/{}/a/{}", encode(&self.namespace), encode(name))
    }

    /// Returns the path of a long value of the run.
    pub fn value(&self, digest: &Digest) -> String {
        format!("{}/value/{}", self.run(), encode(digest.as_str()))
    }
}

fn encode(name: &str) -> String {
    utf8_percent_encode(name, SAFE).to_string()
}

/// Whether an object can have the name.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let part = |part: &str| !part.is_empty() && part.chars().all(fits);
    name.len() <= LONGEST && name.split('.').all(part)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_that_no_object_has_is_no_address() {
        for hostile in ["", "..", "a/b", "a?watch=true", "A", "a..b", "é", &"a".repeat(254)] {
            assert!(Address::of("finance", hostile).is_err() && Address::of(hostile, "a").is_err(), "{hostile}");
        }
        assert_eq!(Address::of("finance", "refund-4711").unwrap().run(), "/n/finance/w/refund-4711");
    }

    #[test]
    fn a_name_of_the_journal_cannot_leave_its_place_in_an_address() {
        let address = Address::of("finance", "refund").unwrap();
        assert_eq!(address.approval("../w/x\"?<"), "/n/finance/a/..%2Fw%2Fx%22%3F%3C");
    }
}
