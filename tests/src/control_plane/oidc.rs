//! A real OpenID Connect issuer on loopback for the cast, and control planes that accept its tokens. The issuer checks
//! no passwords.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::authority::Certificates;
use super::cluster::Cluster;
use super::people::{self, CAST};
use super::plane::{Options, private_folder, until_ready};
use super::supervised::Supervised;
use super::{kubeconfig, ports};
use crate::browser::Node;

/// The client whose tokens the API server accepts.
pub const CLIENT: &str = "signoff";
/// Another client of the same issuer, whose tokens are for another audience.
pub const OTHER_CLIENT: &str = "other";

/// The deadline for the issuer. The API server tries every ten seconds to reach it.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The callback address, on which no server listens. The issuer accepts any loopback address with this path.
const CALLBACK: &str = "http://127.0.0.1:1/sign-in/callback";
/// The longest chain of redirects from the sign-in to the callback.
const MAX_REDIRECTS: usize = 10;

/// The settings of an issuer.
#[derive(Clone, Debug)]
pub struct IssuerOptions {
    /// Whether the client [`CLIENT`] has no secret.
    pub public: bool,
    /// The lifetime of id_tokens. The field `Seconds` of the issuer's form sets it for one sign-in.
    pub lifetime: Duration,
}

impl Default for IssuerOptions {
    fn default() -> Self {
        Self { public: false, lifetime: Duration::from_secs(3600) }
    }
}

/// The data that clients need to use an issuer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Issuer {
    /// The issuer's address, as tokens name it.
    pub url: String,
    /// The certificate of the issuer's authority.
    pub authority: PathBuf,
    /// The secret with which clients identify themselves to the issuer.
    pub secret: String,
    /// A file with the secret, as programs read it.
    pub secret_file: PathBuf,
    /// Whether the client [`CLIENT`] has no secret.
    pub public: bool,
}

/// The tokens of a sign-in.
#[derive(Clone, Debug, Deserialize)]
pub struct Tokens {
    /// The token that names the user, which the API server accepts.
    pub id_token: String,
    /// The token that the issuer itself accepts.
    pub access_token: String,
    /// The refresh token, with the scope `offline_access` only.
    #[serde(default)]
    pub refresh_token: Option<String>,
}

/// A running issuer. Dropping it ends it.
#[derive(Debug)]
pub struct IssuerProcess {
    process: Supervised,
    issuer: Issuer,
    #[expect(dead_code, reason = "held for its drop")]
    folder: TempDir,
}

impl IssuerProcess {
    /// Starts an issuer for all of the cast who have an address.
    ///
    /// # Errors
    /// Node.js is missing, or the issuer does not answer within a minute and a half.
    pub async fn start(options: IssuerOptions) -> Result<Self> {
        super::install_tls();
        let node = tokio::task::spawn_blocking(Node::find).await??;
        let folder = private_folder("signoff-issuer-", &std::env::temp_dir())?;
        let certificates = Certificates::create(folder.path())?;
        let port = ports::free()?;
        let issuer = Issuer {
            url: format!("https://127.0.0.1:{port}"),
            authority: certificates.authority,
            secret: people::fresh_token()?,
            secret_file: folder.path().join("client-secret"),
            public: options.public,
        };
        kubeconfig::write_private(&issuer.secret_file, &issuer.secret)?;
        // Accounts of the cluster itself do not sign in.
        let people = CAST.iter().filter(|person| person.name != "admin" && !person.user.starts_with("system:"));
        let people: Vec<_> = people.map(|person| json!({ "email": person.user, "groups": person.groups })).collect();
        let settings = json!({
            "port": port, "key": certificates.key, "certificate": certificates.certificate,
            "secret": issuer.secret, "seconds": options.lifetime.as_secs(), "public": options.public, "people": people,
        });
        // The issuer starts in the folder of its packages; the supervising shell sets no folder.
        let mut arguments = vec!["-C".to_owned(), node.folder().display().to_string()];
        arguments.push(node.program().display().to_string());
        arguments.extend(node.arguments("issuer.mjs")?);
        let environment = [("SIGNOFF_ISSUER", settings.to_string())];
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        let log = folder.path().join("issuer.log");
        let process = Supervised::start("the issuer", Path::new("env"), arguments, &environment, &log)?;
        let mut process = Some(process);
        let client = issuer.client()?;
        until_ready(&mut process, async || {
            let url = format!("{}/.well-known/openid-configuration", issuer.url);
            client.get(url).send().await?.error_for_status()?;
            Ok(())
        })
        .await?;
        let process = process.context("nothing was started")?;
        Ok(Self { process, issuer, folder })
    }

    /// Returns the address, the certificate and the secret, which its clients need.
    #[must_use]
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Returns the last 40 lines of the issuer's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.log_tail(40)
    }
}

impl Issuer {
    /// Returns the issuer of a cluster that was created by [`Cluster::with_issuer`].
    ///
    /// # Errors
    /// The cluster has no issuer.
    pub fn of(cluster: &Cluster) -> Result<Self> {
        let file = cluster.folder().join("issuer.json");
        let text = std::fs::read_to_string(&file).context("this cluster has no issuer")?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Returns arguments of kube-apiserver with which a token of this issuer gives a user the same name and groups as
    /// in the cast.
    #[must_use]
    pub fn apiserver_arguments(&self) -> Vec<String> {
        vec![
            format!("--oidc-issuer-url={}", self.url),
            format!("--oidc-client-id={CLIENT}"),
            format!("--oidc-ca-file={}", self.authority.display()),
            "--oidc-username-claim=email".to_owned(),
            "--oidc-username-prefix=-".to_owned(),
            "--oidc-groups-claim=groups".to_owned(),
        ]
    }

    /// Signs a user in to a client as a browser does, with PKCE, and without a browser.
    ///
    /// # Errors
    /// The issuer's refusal.
    pub async fn tokens(&self, client: &str, email: &str) -> Result<Tokens> {
        let http = self.client()?;
        let verifier = people::fresh_token()?;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let mut url = url::Url::parse(&format!("{}/auth", self.url))?;
        url.query_pairs_mut().extend_pairs([
            ("client_id", client),
            ("response_type", "code"),
            ("scope", "openid email groups"),
            ("redirect_uri", CALLBACK),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("login_hint", email),
        ]);
        let code = follow_to_code(&http, url).await?;
        let mut form: Vec<(&str, &str)> =
            vec![("grant_type", "authorization_code"), ("code", &code), ("code_verifier", &verifier)];
        form.push(("redirect_uri", CALLBACK));
        let without_secret = self.public && client == CLIENT;
        form.extend(without_secret.then_some(("client_id", client)));
        let body: String = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let mut request = http
            .post(format!("{}/token", self.url))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        if !without_secret {
            request = request.basic_auth(client, Some(&self.secret));
        }
        let answer = request.send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "the issuer gives {email} no token: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    fn client(&self) -> Result<reqwest::Client> {
        let authority = reqwest::Certificate::from_pem(&std::fs::read(&self.authority)?)?;
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]);
        Ok(client.redirect(reqwest::redirect::Policy::none()).build()?)
    }
}

impl Tokens {
    /// Returns the claims of the id_token without verifying it.
    ///
    /// # Errors
    /// The id_token is not a token.
    pub fn claims(&self) -> Result<Value> {
        let middle = self.id_token.split('.').nth(1).context("an id_token of one part")?;
        Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(middle)?)?)
    }
}

/// Follows redirects to the callback address and keeps cookies. Returns the code in that address.
async fn follow_to_code(http: &reqwest::Client, start: url::Url) -> Result<String> {
    let (mut url, mut cookies) = (start, BTreeMap::new());
    for _ in 0..MAX_REDIRECTS {
        if url.as_str().starts_with(CALLBACK) {
            let code = url.query_pairs().find(|(name, _)| name == "code").map(|(_, code)| code.into_owned());
            return code.with_context(|| format!("the issuer answers {url}"));
        }
        let sent: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let answer = http.get(url.clone()).header("cookie", sent.join("; ")).send().await?;
        for cookie in answer.headers().get_all("set-cookie") {
            let pair = cookie.to_str()?.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let next = answer.headers().get("location").map(|next| next.to_str().map(str::to_owned)).transpose()?;
        url = match next {
            Some(next) => url.join(&next)?,
            None => bail!("the issuer answers {} with {}", url.path(), answer.status()),
        };
    }
    bail!("the issuer redirects in circles")
}

impl Cluster {
    /// Starts a control plane that accepts the tokens of an issuer of its own, with the chart installed and no
    /// operator.
    ///
    /// # Errors
    /// As [`Cluster::own_with`], [`IssuerProcess::start`] and [`Cluster::install`].
    pub async fn with_issuer(mut options: Options, issuer: IssuerOptions) -> Result<(Self, IssuerProcess)> {
        let process = IssuerProcess::start(issuer).await?;
        let issuer = process.issuer();
        options.apiserver.extend(issuer.apiserver_arguments());
        let cluster = Self::own_with(options).await.context("a control plane with an issuer")?;
        kubeconfig::write_private(&cluster.folder().join("issuer.json"), &serde_json::to_string(issuer)?)?;
        cluster.install(&[]).await?;
        let token = issuer.tokens(CLIENT, people::named("alice")?.user).await?.id_token;
        let deadline = Instant::now() + TIMEOUT;
        while let Err(error) = cluster.who_is(&token).await {
            ensure!(Instant::now() < deadline, "the API server takes no token of its issuer: {error:#}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok((cluster, process))
    }

    /// Returns a client with any bearer token.
    ///
    /// # Errors
    /// The cluster's kubeconfig cannot be used.
    pub async fn bearer(&self, token: &str) -> Result<kube::Client> {
        super::connect_with_token(self.kubeconfig(), token).await
    }

    /// Returns the name and groups that the API server finds in this token.
    ///
    /// # Errors
    /// The API server does not accept the token.
    pub async fn who_is(&self, token: &str) -> Result<(String, Vec<String>)> {
        let reviews: Api<SelfSubjectReview> = Api::all(self.bearer(token).await?);
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
        let user = review.status.and_then(|status| status.user_info).context("a review without a user")?;
        Ok((user.username.unwrap_or_default(), user.groups.unwrap_or_default()))
    }
}
