//! The full texts of a request, with failures in the user's words.
//!
//! **Invariant:** a text is returned only if it has the digest that the request names.

use signoff_api::Approval;
use signoff_review::whole::{Whole, WholeTextError, absent, fetch, forbidden};

use super::client::Session;
use crate::error::Failure;

impl Session {
    /// Fetches and verifies the whole texts of which a request of the namespace holds only a part.
    ///
    /// # Errors
    /// A request fails, a Blob is missing, or its content does not have the digest that the request names.
    pub async fn fetch_whole_texts(&self, approval: &Approval) -> Result<Whole, Failure> {
        fetch(self.raw(), &self.namespace, approval).await.map_err(|error| match error {
            WholeTextError::Unreadable { what, error } => explain_blob(self.explain(error), what),
            other => Failure::Other(other.to_string()),
        })
    }
}

fn explain_blob(failure: Failure, what: &str) -> Failure {
    match failure {
        Failure::NotFound(why) => Failure::NotFound(absent(what, &why)),
        Failure::Refused(why) => Failure::Refused(forbidden(what, &why)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_roles_that_read_blobs() {
        let failure = explain_blob(Failure::Refused("no".to_owned()), "the context");
        assert!(failure.to_string().contains("signoff-viewer"), "{failure}");
        let failure = explain_blob(Failure::NotFound("blobs \"x\" not found".to_owned()), "the context");
        assert_eq!((failure.code(), failure.to_string().contains("the whole of the context")), (3, true));
    }
}
