//! A real Kubernetes control plane for tests, demo and benchmark, with which callers install the chart and act as named
//! people.
//!
//! **Invariant:** no cluster is used that the caller did not name; the environment's `KUBECONFIG` is never read.
//!
//! [`Cluster`] is the entry point: [`Cluster::shared`] in most tests, [`Cluster::own`] where cluster-wide policies are
//! changed, [`Cluster::existing`] for a cluster that was named on a command line.

mod authority;
mod binary;
mod cluster;
mod command;
mod going;
mod install;
mod keys;
pub(crate) mod kubeconfig;
mod namespace;
mod network;
mod oidc;
mod operator;
mod people;
mod plane;
mod ports;
mod supervised;
mod web;
mod witness;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub(crate) use binary::on_path;
pub use binary::{Clients, Programs, binary, cache, clients};
pub use cluster::{Cluster, LIFTABLE, OPERATED, SHARED, WEB};
pub use command::{Finished, Invocation};
pub use install::{OPERATOR_ACCOUNT, OPERATOR_NAMESPACE, OperatorIdentity};
pub use namespace::Namespace;
pub use network::Network;
pub use oidc::{CLIENT, Issuer, IssuerOptions, IssuerProcess, OTHER_CLIENT, Tokens};
pub use operator::{BINARIES, OperatorOptions, OperatorProcess, program};
pub(crate) use people::NODE;
pub use people::{CAST, Person, Role, named};
pub use plane::{ControlPlane, Options};
pub(crate) use plane::{private_folder, until_ready};
pub use ports::free as free_port;
pub use supervised::{Signal, Supervised};
pub use web::{Front, WebOptions, WebProcess};
pub use witness::{Seen, Witness};

/// The user that an administrator impersonates, by the headers `Impersonate-User`, `-Group` and `-Extra-`.
#[derive(Clone, Debug, Default)]
pub struct Disguise {
    /// The user name.
    pub user: String,
    /// The groups; the API server adds `system:authenticated`.
    pub groups: Vec<String>,
    /// Extra attributes of the user, such as the channel of a decision.
    pub extra: Vec<(String, String)>,
}

/// Creates the certificate of a server on loopback in a folder. Returns the files of the authority's certificate, the
/// server's certificate and its key.
pub(crate) fn create_certificates(folder: &Path) -> Result<(PathBuf, PathBuf, PathBuf)> {
    let files = authority::Certificates::create(folder)?;
    Ok((files.authority, files.certificate, files.key))
}

/// Returns a client for one context of a kubeconfig file, as that context's user or as an impersonated one.
async fn connect(kubeconfig: &Path, context: &str, disguise: Option<Disguise>) -> Result<Client> {
    install_tls();
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    let mut config = Config::from_custom_kubeconfig(file, &options).await?;
    if let Some(disguise) = disguise {
        config.auth_info.impersonate = Some(disguise.user);
        config.auth_info.impersonate_groups = Some(disguise.groups);
        let mut extra = std::collections::HashMap::<_, Vec<_>>::new();
        for (name, value) in disguise.extra {
            extra.entry(name).or_default().push(value);
        }
        config.auth_info.impersonate_user_extra = Some(extra);
    }
    Ok(Client::try_from(config)?)
}

/// Returns a client for one cluster with this bearer token.
async fn connect_with_token(kubeconfig: &Path, token: &str) -> Result<Client> {
    install_tls();
    let mut file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    for login in &mut file.auth_infos {
        login.auth_info = Some(AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() });
    }
    Ok(Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

/// Sets the TLS provider of the process; a second call is no error, because any test may be the first caller.
pub(crate) fn install_tls() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// Prints a message to standard error: about a slow operation, or the place of files that were kept.
#[expect(clippy::print_stderr, reason = "the one place where this library speaks; its callers are programs and tests")]
pub(crate) fn progress(message: &str) {
    eprintln!("control plane: {message}");
}
