//! Sessions: who looks at the page. A session is a signed token in encrypted cookies; the page keeps nothing of it.
//!
//! sign-in (`sign_in`) -> cookie (`cookie`) -> at every request: verify -> [`Caller`].
//!
//! **Invariant:** the name of a person comes from the API server, asked with the token of the session at every request.

mod caller;
pub mod cookie;
pub mod sign_in;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, api::PostParams};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use signoff_api::Moment;

use crate::{connection::Identity, error::PageError, settings::Settings};

pub use caller::Caller;
pub use signoff_review::{clock::now, voter::Me};

/// A session, as its cookies hold it.
#[derive(Clone, Debug)]
pub struct Session {
    /// The token: an id_token of the issuer, or a token that somebody pasted.
    pub token: SecretString,
    /// The nonce that the id_token must have, or `None` for a pasted token.
    pub nonce: Option<String>,
    /// When it began.
    pub since: Moment,
}

/// The name of a token: its SHA-256 in hex digits. Two tokens of one user are two sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(String);

impl TokenId {
    /// Returns the name of a token.
    #[must_use]
    pub fn of(token: &SecretString) -> Self {
        Self(hex::encode(Sha256::digest(token.expose_secret().as_bytes())))
    }
}

/// The rules of sessions.
pub struct Sessions {
    max: std::time::Duration,
}

impl Sessions {
    /// Returns the rules that the settings ask for.
    ///
    /// # Errors
    /// Files of the settings that cannot be read.
    pub async fn new(settings: &Settings) -> anyhow::Result<Self> {
        Ok(Self { max: settings.max_session.duration() })
    }

    /// Verifies a session, and returns as whom it acts and when it ends.
    ///
    /// # Errors
    /// It has ended, or its token does not hold.
    pub fn verify(&self, session: &Session, now: Moment) -> Result<(Identity, Moment), PageError> {
        let end = session.since.after(self.max);
        if now >= end || session.since > now.after(std::time::Duration::from_secs(60)) {
            return Err(PageError::SignIn);
        }
        Ok((Identity::Bearer(session.token.clone()), end))
    }
}

/// Asks the API server who somebody is.
///
/// # Errors
/// As every request.
pub async fn who(client: &Client) -> Result<Me, PageError> {
    let review: SelfSubjectReview =
        Api::all(client.clone()).create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
    match user.username {
        // An API server that lets in anonymous requests answers for everybody.
        Some(name) if !name.is_empty() && name != "system:anonymous" => {
            Ok(Me { user: name, groups: user.groups.unwrap_or_default() })
        }
        _ => Err(PageError::SignIn),
    }
}
