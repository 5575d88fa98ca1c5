//! The identity provider: discovery, the code flow with PKCE, and the verification of its tokens.
//!
//! **Invariant:** a token is valid only if the provider has signed it with an asymmetric key, for this page alone and
//! for this sign-in, and if it has not expired. Failures and unknown keys do not lead to more than a bounded number of
//! requests to the provider.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use anyhow::Context;
use openidconnect::{
    AuthType, AuthorizationCode, ClaimsVerificationError, ClientId, ClientSecret, CsrfToken, DiscoveryError,
    EndpointMaybeSet, EndpointNotSet, EndpointSet, IdTokenVerifier, IssuerUrl, Nonce, PkceCodeChallenge,
    PkceCodeVerifier, RedirectUrl, RequestTokenError, Scope, SignatureVerificationError, TokenResponse,
    core::{
        CoreAuthenticationFlow, CoreClient, CoreClientAuthMethod, CoreIdToken, CoreJwsSigningAlgorithm,
        CoreProviderMetadata,
    },
};
use secrecy::{ExposeSecret, SecretString};
use signoff_api::Moment;
use signoff_cluster::error::innermost;
use signoff_expr::text::display;
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::Instant,
};
use url::Url;

use super::{
    fetch::{Fetch, FetchError},
    flow::Flow,
    jwt::{self, Claims},
};
use crate::settings::Settings;

/// The tolerated difference of clocks.
pub const LEEWAY: Duration = Duration::from_secs(30);
/// The time after a failed discovery in which the provider gets no further request.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(3);
/// The least time between two reads of the keys because of an unknown key.
const BETWEEN_READS_OF_KEYS: Duration = Duration::from_secs(60);
/// The age at which the keys are read again in the background. A silent provider then delays no session whose key is
/// known.
const KEYS_ARE_OLD_AFTER: Duration = Duration::from_secs(3600);
/// The age from which keys do not count, so that a withdrawn key is not used for long while the provider cannot be
/// reached. Sessions are then refused until the provider answers.
const KEYS_EXPIRE_AFTER: Duration = Duration::from_secs(24 * 3600);
/// The accepted algorithms of signatures: asymmetric ones, and none with a shared secret.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// The reason why a token or a sign-in is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// The provider cannot be reached, so nothing can be verified.
    Away(String),
    /// The token or the sign-in is invalid; with the reason.
    Wrong(String),
}

/// A valid token.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The claims of the token.
    pub claims: Claims,
    /// The time at which the token expires.
    pub expires: Moment,
}

/// The identity provider.
pub struct Issuer {
    url: IssuerUrl,
    client: ClientId,
    secret: Option<ClientSecret>,
    scopes: Vec<Scope>,
    redirect: RedirectUrl,
    fetch: Fetch,
    /// The last successful discovery.
    cached: RwLock<Option<Arc<Provider>>>,
    /// The last attempts. Locked during a request to the provider, so that other requests wait for the same answer.
    attempts: Arc<Mutex<DiscoveryAttempts>>,
}

/// The result of a discovery.
struct Provider {
    metadata: CoreProviderMetadata,
    at: Instant,
}

#[derive(Default)]
struct DiscoveryAttempts {
    /// The time and the reason of the last attempt, if it failed.
    failed: Option<(Instant, String)>,
    /// The time at which the keys were last read again because of an unknown or old key.
    reread: Option<Instant>,
}

impl DiscoveryAttempts {
    fn was_reread_recently(&self) -> bool {
        self.reread.is_some_and(|at| at.elapsed() < BETWEEN_READS_OF_KEYS)
    }
}

type Client =
    CoreClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointMaybeSet, EndpointMaybeSet>;

impl Issuer {
    /// Returns the provider of the settings, or `None` if they name none. Sends no request.
    ///
    /// # Errors
    /// Files of the settings that cannot be read.
    pub fn of(settings: &Settings) -> anyhow::Result<Option<Self>> {
        let oidc = &settings.oidc;
        oidc.issuer.as_ref().map(|_| Self::new(settings, Fetch::new(oidc.ca_file.as_deref())?)).transpose()
    }

    /// Returns the provider of the settings with a client for its requests.
    ///
    /// # Errors
    /// As [`Issuer::of`].
    pub(crate) fn new(settings: &Settings, fetch: Fetch) -> anyhow::Result<Self> {
        let oidc = &settings.oidc;
        let missing = || anyhow::anyhow!("--oidc-issuer and --oidc-client-id belong together: give both");
        let redirect = settings.url.join("/sign-in/callback").context("the address of the page (--url)")?;
        Ok(Self {
            url: oidc.issuer.clone().ok_or_else(missing)?,
            client: ClientId::new(oidc.client_id.clone().ok_or_else(missing)?),
            secret: oidc.client_secret_file.as_deref().map(read_secret).transpose()?,
            scopes: oidc.scopes.iter().filter(|scope| *scope != "openid").cloned().map(Scope::new).collect(),
            redirect: RedirectUrl::from_url(redirect),
            fetch,
            cached: RwLock::default(),
            attempts: Arc::default(),
        })
    }

    /// Returns the address of the provider in the settings.
    #[must_use]
    pub fn url(&self) -> &IssuerUrl {
        &self.url
    }

    /// Reads the discovery document of the provider, unless it is cached.
    ///
    /// # Errors
    /// The provider cannot be reached, or its document cannot be used.
    pub async fn discover(&self) -> Result<(), Unverified> {
        self.find_provider().await.map(drop)
    }

    /// Begins a sign-in. Returns the address at the provider, and the flow that the browser keeps until it returns.
    ///
    /// # Errors
    /// As [`Issuer::discover`].
    pub async fn begin(&self, now: Moment) -> Result<(Url, Flow), Unverified> {
        let provider = self.find_provider().await?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let client = self.build_client(&provider);
        let (url, state, nonce) = client
            .authorize_url(CoreAuthenticationFlow::AuthorizationCode, CsrfToken::new_random, Nonce::new_random)
            .add_scopes(self.scopes.clone())
            .set_pkce_challenge(challenge)
            .url();
        let flow = Flow {
            state: state.into_secret(),
            nonce: nonce.secret().clone(),
            verifier: verifier.into_secret(),
            since: now,
        };
        Ok((url, flow))
    }

    /// Ends a sign-in: exchanges the code for a token, and verifies it.
    ///
    /// # Errors
    /// The provider refuses the code or cannot be reached, or its token is invalid.
    pub async fn finish(
        self: &Arc<Self>,
        code: String,
        flow: Flow,
        now: Moment,
    ) -> Result<(SecretString, Verified), Unverified> {
        let provider = self.find_provider().await?;
        let client = self.build_client(&provider);
        let request = client
            .exchange_code(AuthorizationCode::new(code))
            .map_err(|_| Unverified::Wrong("the identity provider has no token endpoint".to_owned()))?
            .set_pkce_verifier(PkceCodeVerifier::new(flow.verifier));
        let answer = request.request_async(&self.fetch).await.map_err(|error| match error {
            RequestTokenError::ServerResponse(response) => {
                Unverified::Wrong(format!("the identity provider refuses: {}", text_line(&response.to_string())))
            }
            RequestTokenError::Request(why) => self.away(&why.0),
            RequestTokenError::Parse(..) => {
                Unverified::Wrong("the identity provider's answer has no token that can be read".to_owned())
            }
            RequestTokenError::Other(why) => Unverified::Wrong(format!("the identity provider: {}", text_line(&why))),
        })?;
        let token = answer.id_token().ok_or_else(|| {
            Unverified::Wrong(
                "the identity provider's answer has no id_token: is the scope openid allowed for the client?"
                    .to_owned(),
            )
        })?;
        let token = SecretString::from(token.to_string());
        let verified = self.verify(&token, &flow.nonce, now).await?;
        Ok((token, verified))
    }

    /// Verifies a token: its signature, its issuer, its audience, its authorized party, its times, and its nonce.
    ///
    /// # Errors
    /// The token is invalid, or the keys of the provider cannot be read.
    pub async fn verify(
        self: &Arc<Self>,
        token: &SecretString,
        nonce: &str,
        now: Moment,
    ) -> Result<Verified, Unverified> {
        let provider = self.find_provider().await?;
        let text = token.expose_secret();
        let wrong = |why: &str| Unverified::Wrong(why.to_owned());
        let typed: CoreIdToken = text.parse().map_err(|_| wrong("it is no id_token"))?;
        if provider.at.elapsed() >= KEYS_ARE_OLD_AFTER {
            self.reread_in_background(&provider);
        }
        let mut checked = self.check(&provider, &typed, nonce, now);
        if has_unknown_key(&checked)
            && let Some(newer) = self.wait_for_newer(&provider).await
        {
            checked = self.check(&newer, &typed, nonce, now);
        }
        let expires = checked.map_err(|error| {
            Unverified::Wrong(text_line(&match &error {
                ClaimsVerificationError::SignatureVerification(why) => format!("its signature does not hold: {why}"),
                other => other.to_string(),
            }))
        })?;
        let claims = jwt::claims(text).ok_or_else(|| wrong("it is no id_token"))?;
        if claims.get("azp").is_some_and(|party| party.as_str() != Some(self.client.as_str())) {
            return Err(wrong("it was made for another client (azp)"));
        }
        if claims.contains_key("nbf") {
            let from = jwt::instant(&claims, "nbf").ok_or_else(|| wrong("its time nbf is no number of seconds"))?;
            if from > now.after(LEEWAY) {
                return Err(wrong("it does not hold yet (nbf): is the clock right?"));
            }
        }
        Ok(Verified { claims, expires })
    }

    /// Verifies the signature, the issuer, the audience, the times and the nonce of a token with the keys of a
    /// provider. Returns the time at which the token expires.
    fn check(
        &self,
        provider: &Provider,
        token: &CoreIdToken,
        nonce: &str,
        now: Moment,
    ) -> Result<Moment, ClaimsVerificationError> {
        let keys = provider.metadata.jwks().clone();
        let at = SystemTime::from(now.timestamp()) - LEEWAY;
        // A further audience is refused, and so is a signature with the client's secret.
        let verifier = IdTokenVerifier::new_public_client(self.client.clone(), self.url.clone(), keys)
            .set_allowed_algs(ALGORITHMS)
            .set_time_fn(move || at.into());
        let claims = token.claims(&verifier, &Nonce::new(nonce.to_owned()))?;
        let expires = jiff::Timestamp::try_from(SystemTime::from(claims.expiration()));
        expires.map(Moment::from).map_err(|error| ClaimsVerificationError::Other(error.to_string()))
    }

    /// Returns the client for the code flow. It sends the secret in the way that the provider supports, in a header if
    /// possible.
    fn build_client(&self, provider: &Provider) -> Client {
        let client =
            CoreClient::from_provider_metadata(provider.metadata.clone(), self.client.clone(), self.secret.clone())
                .set_redirect_uri(self.redirect.clone());
        let methods = provider.metadata.token_endpoint_auth_methods_supported();
        let supports = |method: CoreClientAuthMethod| methods.is_none_or(|methods| methods.contains(&method));
        let in_body =
            !supports(CoreClientAuthMethod::ClientSecretBasic) && supports(CoreClientAuthMethod::ClientSecretPost);
        client.set_auth_type(if in_body { AuthType::RequestBody } else { AuthType::BasicAuth })
    }

    /// Returns the provider of the last discovery, unless its keys have expired.
    fn cached_provider(&self) -> Option<Arc<Provider>> {
        let provider = self.cached.read().unwrap_or_else(PoisonError::into_inner).clone();
        provider.filter(|provider| provider.at.elapsed() < KEYS_EXPIRE_AFTER)
    }

    fn remember(&self, provider: Provider) -> Arc<Provider> {
        let provider = Arc::new(provider);
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&provider));
        provider
    }

    /// Returns the cached provider, or discovers it. Concurrent calls wait for one discovery. Shortly after a failed
    /// discovery, returns the same error without a request.
    async fn find_provider(&self) -> Result<Arc<Provider>, Unverified> {
        if let Some(known) = self.cached_provider() {
            return Ok(known);
        }
        let mut attempts = self.attempts.lock().await;
        if let Some(known) = self.cached_provider() {
            return Ok(known);
        }
        if let Some((at, why)) = &attempts.failed
            && at.elapsed() < PAUSE_AFTER_FAILURE
        {
            return Err(self.away(why));
        }
        match self.fetch_provider().await {
            Ok(provider) => {
                attempts.failed = None;
                Ok(self.remember(provider))
            }
            Err(why) => {
                tracing::warn!(issuer = self.url.as_str(), %why, "the identity provider cannot be used: the next sign-in asks it again");
                let away = self.away(&why);
                attempts.failed = Some((Instant::now(), why));
                Err(away)
            }
        }
    }

    /// Reads the keys again in the background, unless they are read already.
    fn reread_in_background(self: &Arc<Self>, old: &Arc<Provider>) {
        let Ok(attempts) = Arc::clone(&self.attempts).try_lock_owned() else { return };
        if attempts.was_reread_recently() {
            return;
        }
        let (issuer, old) = (Arc::clone(self), Arc::clone(old));
        tokio::spawn(async move { issuer.reread_provider(attempts, &old).await });
    }

    /// Reads newer keys and waits for them, unless they were read less than [`BETWEEN_READS_OF_KEYS`] ago.
    async fn wait_for_newer(&self, old: &Arc<Provider>) -> Option<Arc<Provider>> {
        let attempts = Arc::clone(&self.attempts).lock_owned().await;
        self.reread_provider(attempts, old).await
    }

    /// Discovers the provider again, unless another call has done so since `old`, or a call did so less than
    /// [`BETWEEN_READS_OF_KEYS`] ago. Returns the newer provider, or `None`.
    async fn reread_provider(
        &self,
        mut attempts: OwnedMutexGuard<DiscoveryAttempts>,
        old: &Arc<Provider>,
    ) -> Option<Arc<Provider>> {
        if let Some(known) = self.cached_provider()
            && !Arc::ptr_eq(&known, old)
        {
            return Some(known);
        }
        if attempts.was_reread_recently() {
            return None;
        }
        attempts.reread = Some(Instant::now());
        match self.fetch_provider().await {
            Ok(provider) => Some(self.remember(provider)),
            Err(why) => {
                tracing::warn!(issuer = self.url.as_str(), %why, "the keys of the identity provider cannot be read again");
                None
            }
        }
    }

    /// Reads the discovery document and the keys of the provider. All endpoints must have https.
    async fn fetch_provider(&self) -> Result<Provider, String> {
        let metadata = CoreProviderMetadata::discover_async(self.url.clone(), &self.fetch)
            .await
            .map_err(|error| discovery_problem(&error))?;
        let endpoints = [Some(metadata.authorization_endpoint().url()), metadata.token_endpoint().map(|url| url.url())];
        if let Some(insecure) = endpoints.into_iter().flatten().find(|url| url.scheme() != "https") {
            return Err(format!("its address {insecure} is not https"));
        }
        Ok(Provider { metadata, at: Instant::now() })
    }

    /// Returns the error for a provider that cannot be used now.
    fn away(&self, why: &str) -> Unverified {
        Unverified::Away(format!(
            "the identity provider {} cannot be used now: {}; try again in a moment",
            self.url.url().host_str().unwrap_or_default(),
            text_line(why)
        ))
    }
}

fn discovery_problem(error: &DiscoveryError<FetchError>) -> String {
    match error {
        DiscoveryError::Response(_, _, why) | DiscoveryError::Validation(why) | DiscoveryError::Other(why) => {
            why.clone()
        }
        DiscoveryError::Parse(_) => format!("its discovery document or its keys cannot be read: {}", innermost(error)),
        other => innermost(other),
    }
}

/// Whether a check failed because the provider has no key of the signature.
fn has_unknown_key<T>(checked: &Result<T, ClaimsVerificationError>) -> bool {
    use SignatureVerificationError::NoMatchingKey;
    matches!(checked, Err(ClaimsVerificationError::SignatureVerification(NoMatchingKey)))
}

/// Reads the secret of the client from a file. An empty file is an error.
fn read_secret(path: &Path) -> anyhow::Result<ClientSecret> {
    let named = || format!("{} (--oidc-client-secret-file)", path.display());
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", named()))?;
    anyhow::ensure!(!text.trim().is_empty(), "{} is empty: write the secret of the client into it", named());
    Ok(ClientSecret::new(text.trim().to_owned()))
}

/// Returns a text of the provider as a line of at most 300 characters.
fn text_line(text: &str) -> String {
    display(text, 300).replace('\n', " ")
}
