//! Sessions, which identify the users of the page. A session is a signed token in encrypted cookies; the page stores no
//! session.
//!
//! sign-in ([`crate::sign_in`]) -> cookie (`cookie`) -> verified at every request (`oidc`, `names`) -> [`Caller`].
//!
//! **Invariant:** the name of a user comes from the API server, which is asked at every request with the token of the
//! session, or as the user of its verified claims. A session ends with its token, and by default after 8 hours. The key
//! of the cookies is not enough to act as a user.

mod caller;
pub mod cookie;
#[cfg(test)]
pub(crate) mod fake;
mod fetch;
pub mod flow;
mod jwt;
mod limits;
mod names;
mod oidc;
mod overview;
pub mod places;
pub mod wanted;

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, api::PostParams};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use signoff_api::Moment;

use crate::{
    api_server::Identity,
    error::PageError,
    settings::{Auth, Settings},
};

pub use caller::Caller;
pub use limits::{Limits, Network};
use names::Names;
pub use oidc::{Issuer, Unverified};
pub use overview::{Overview, Overviews};
pub use places::Places;
pub use signoff_review::{clock::now, voter::Me};

/// The tolerated difference between the clocks of two replicas, which write the begin of a session.
const CLOCK_DIFFERENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A session, as its cookies hold it.
#[derive(Clone, Debug)]
pub struct Session {
    /// The token: an id_token of the issuer, or a pasted token.
    pub token: SecretString,
    /// The nonce that the id_token must have, or `None` for a pasted token.
    pub nonce: Option<String>,
    /// The time at which the session began.
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

/// The verification of sessions, with its settings.
pub struct Sessions {
    max: std::time::Duration,
    auth: Auth,
    takes_tokens: bool,
    issuer: Option<(Arc<Issuer>, Names)>,
    /// The limits of requests without a session.
    pub limits: Limits,
}

impl Sessions {
    /// Returns the verification for settings. The discovery of the identity provider runs in the background: without
    /// the provider the page starts, and the sign-in page shows an error.
    ///
    /// # Errors
    /// Files of the settings that cannot be read.
    pub async fn new(settings: &Settings) -> anyhow::Result<Self> {
        let sessions = Self::of(settings, Issuer::of(settings)?);
        if let Some(issuer) = sessions.issuer() {
            let issuer = Arc::clone(issuer);
            // The issuer keeps the result, and logs an error.
            tokio::spawn(async move { issuer.discover().await });
        }
        Ok(sessions)
    }

    pub(crate) fn of(settings: &Settings, issuer: Option<Issuer>) -> Self {
        let issuer = issuer.map(|issuer| {
            let names = Names::new(&settings.oidc, issuer.url());
            (Arc::new(issuer), names)
        });
        Self {
            max: settings.max_session.duration(),
            auth: settings.auth,
            takes_tokens: settings.takes_tokens(),
            issuer,
            limits: Limits::new(settings.proxies),
        }
    }

    /// Returns the identity provider, if there is one.
    #[must_use]
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        self.issuer.as_ref().map(|(issuer, _)| issuer)
    }

    /// Verifies a session, and returns its identity and its end.
    ///
    /// # Errors
    /// The session has ended, its token is invalid, a name in it is refused, or the keys of the identity provider
    /// cannot be read.
    pub async fn verify(&self, session: &Session, now: Moment) -> Result<(Identity, Moment), PageError> {
        let end = session.since.after(self.max);
        if now >= end || session.since > now.after(CLOCK_DIFFERENCE) {
            return Err(PageError::SignIn);
        }
        match (&self.issuer, &session.nonce) {
            (Some((issuer, names)), Some(nonce)) => {
                let verified = issuer.verify(&session.token, nonce, now).await.map_err(|error| match error {
                    Unverified::Away(why) => PageError::Away(why),
                    Unverified::Wrong(why) => {
                        tracing::debug!(%why, "a session has ended");
                        PageError::SignIn
                    }
                })?;
                let identity = match self.auth {
                    Auth::PassThrough => Identity::Bearer(session.token.clone()),
                    Auth::Impersonation | Auth::LegacyImpersonation => {
                        names.identity(&verified.claims).map_err(PageError::Refused)?
                    }
                };
                Ok((identity, end.min(verified.expires)))
            }
            // Only the API server can verify a pasted token. Its claim of an end only shortens the session. If the page
            // no longer takes tokens, sessions of earlier pasted ones have ended too.
            (_, None) if self.takes_tokens => {
                let expires = jwt::claims(session.token.expose_secret()).and_then(|all| jwt::instant(&all, "exp"));
                if expires.is_some_and(|expires| now >= expires.after(oidc::LEEWAY)) {
                    return Err(PageError::SignIn);
                }
                Ok((Identity::Bearer(session.token.clone()), expires.map_or(end, |expires| end.min(expires))))
            }
            _ => Err(PageError::SignIn),
        }
    }

    /// Returns the notice for a user whose identity provider left the groups out of the token, or `None`. Pasted tokens
    /// are read too.
    #[must_use]
    pub fn groups_left_out(&self, session: &Session) -> Option<String> {
        let (_, names) = self.issuer.as_ref()?;
        names.groups_notice(&jwt::claims(session.token.expose_secret())?, self.auth)
    }
}

/// Asks the API server for the user of a client.
///
/// # Errors
/// As every request.
pub async fn fetch_user(client: &Client) -> Result<Me, PageError> {
    let review: SelfSubjectReview =
        Api::all(client.clone()).create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
    match user.username {
        // An API server that allows anonymous requests names a user for any token.
        Some(name) if !name.is_empty() && name != "system:anonymous" => {
            Ok(Me { user: name, groups: user.groups.unwrap_or_default() })
        }
        _ => Err(PageError::SignIn),
    }
}

#[cfg(test)]
mod tests;
