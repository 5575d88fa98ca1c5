//! The connections to the API server. They are shared by all users; identities are not.
//!
//! **Invariant:** a request carries either the token of one session alone, or the page's own token with the names of
//! one session. No header of a browser's request reaches the API server.

use anyhow::Context;
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use secrecy::{ExposeSecret, SecretString};

use crate::settings::{Auth, Settings};

/// The extra attribute with the channel of a decision, which the admission policies compare with the decision; see
/// `signoff.dev/channel` there.
const CHANNEL: &str = "impersonate-extra-signoff.dev%2fchannel";

/// The time in which the API server must answer a probe.
const PROBE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// The identity with which a request is sent.
#[derive(Clone, Debug)]
pub enum Identity {
    /// The holder of a token.
    Bearer(SecretString),
    /// A user, by impersonation.
    Impersonated {
        /// The user name, with its prefix.
        user: String,
        /// The groups, with their prefixes.
        groups: Vec<String>,
    },
}

/// The connections to the API server.
#[derive(Clone)]
pub struct Connection {
    shared: Client,
    auth: Auth,
}

impl Connection {
    /// Returns the connections to the API server of the settings. No request is sent yet.
    ///
    /// # Errors
    /// A kubeconfig that cannot be used, or a process outside of a cluster without one.
    pub async fn open(settings: &Settings) -> anyhow::Result<Self> {
        let mut config = match &settings.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
                let options = KubeConfigOptions { context: settings.context.clone(), ..KubeConfigOptions::default() };
                Config::from_custom_kubeconfig(file, &options).await.context("reading the kubeconfig (--kubeconfig)")?
            }
            None => in_cluster(settings.auth)?,
        };
        if settings.auth == Auth::PassThrough {
            // The rights of this process never serve the request of a user.
            config.auth_info = AuthInfo::default();
        }
        // Only sessions choose the user that the page impersonates.
        (config.auth_info.impersonate, config.auth_info.impersonate_groups) = (None, None);
        config.headers.clear();
        let shared = signoff_cluster::connect(config).context("preparing connections to the API server")?;
        Ok(Self { shared, auth: settings.auth })
    }

    /// Returns connections that use another client.
    #[cfg(test)]
    pub(crate) fn over(shared: Client, auth: Auth) -> Self {
        Self { shared, auth }
    }

    /// Returns a client with an identity.
    ///
    /// # Errors
    /// An identity of another mode than this page's, or one that cannot be sent in headers.
    pub fn as_identity(&self, identity: &Identity) -> anyhow::Result<Client> {
        let mut headers = HeaderMap::new();
        match (self.auth, identity) {
            (Auth::PassThrough, Identity::Bearer(token)) => {
                // With an empty token the request would be anonymous.
                anyhow::ensure!(!token.expose_secret().is_empty(), "the token is empty: paste one");
                let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()))?;
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
            (Auth::Impersonation | Auth::LegacyImpersonation, Identity::Impersonated { user, groups }) => {
                headers.insert(HeaderName::from_static("impersonate-user"), HeaderValue::try_from(user)?);
                for group in groups {
                    headers.append(HeaderName::from_static("impersonate-group"), HeaderValue::try_from(group)?);
                }
                headers.insert(HeaderName::from_static(CHANNEL), HeaderValue::from_static("web"));
            }
            _ => anyhow::bail!("this identity does not belong to the mode of the page (--auth)"),
        }
        Ok(signoff_cluster::connect_as(&self.shared, headers))
    }

    /// Checks that the API server answers. The request is anonymous, or the page's own if the page impersonates; any
    /// answer counts.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn is_reachable(&self) -> Result<(), String> {
        let request = http::Request::get("/livez").body(Vec::new()).map_err(|error| error.to_string())?;
        match tokio::time::timeout(PROBE_TIMEOUT, self.shared.request_text(request)).await {
            Ok(Ok(_) | Err(kube::Error::Api(_))) => Ok(()),
            Ok(Err(error)) => Err(signoff_cluster::error::plain(&error)),
            Err(_) => Err(format!("no answer within {PROBE_TIMEOUT:?}")),
        }
    }
}

/// Returns the configuration for the cluster of the Pod. With pass-through the Pod has only the CA, and no token.
fn in_cluster(auth: Auth) -> anyhow::Result<Config> {
    if auth != Auth::PassThrough {
        return Config::incluster()
            .context("finding the API server: outside of a cluster, name a file with --kubeconfig");
    }
    let at = |name: &str| {
        std::env::var(name)
            .with_context(|| format!("{name} is not set: outside of a cluster, name a file with --kubeconfig"))
    };
    let (host, port) = (at("KUBERNETES_SERVICE_HOST")?, at("KUBERNETES_SERVICE_PORT")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let mut config = Config::new(
        format!("https://{host}:{port}")
            .parse()
            .context("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are no address")?,
    );
    let file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
    let pem = std::fs::read(file).with_context(|| format!("reading the CA of the API server, {file}"))?;
    config.root_cert = Some(certificates(&pem).with_context(|| format!("the CA of the API server, {file}"))?);
    Ok(config)
}

/// Returns the certificates of a PEM file in DER.
fn certificates(pem: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let all: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(pem)
        .map(|found| found.map(|der| der.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|error| anyhow::anyhow!("it is no PEM file: {error}"))?;
    anyhow::ensure!(!all.is_empty(), "it has no certificate");
    Ok(all)
}
