//! A real Kubernetes control plane for tests, demo and benchmark: start it, install the chart, act as named people.
//! It must not touch a cluster that was not named explicitly, and the environment's `KUBECONFIG` is never looked at.
//!
//! [`Cluster`] is the way in: [`Cluster::shared`] in most tests, [`Cluster::own`] where cluster-wide policies are
//! touched, [`Cluster::existing`] for a cluster that somebody named on a command line.

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

/// Somebody an administrator acts as: `Impersonate-User`, `-Group` and `-Extra-` headers.
#[derive(Clone, Debug, Default)]
pub struct Disguise {
    /// The user name.
    pub user: String,
    /// The groups; the API server adds `system:authenticated`.
    pub groups: Vec<String>,
    /// Extra attributes of the user, such as the channel a decision came through.
    pub extra: Vec<(String, String)>,
}

/// Draws the certificate of a server on loopback into a folder: that of its authority, its own, and its key.
pub(crate) fn draw_certificates(folder: &Path) -> Result<(PathBuf, PathBuf, PathBuf)> {
    let drawn = authority::Certificates::draw(folder)?;
    Ok((drawn.authority, drawn.certificate, drawn.key))
}

/// A client for one context of a kubeconfig file, as that context's user or in disguise.
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

/// A client for one cluster with a bearer token of anybody.
async fn bearer(kubeconfig: &Path, token: &str) -> Result<Client> {
    install_tls();
    let mut file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    for login in &mut file.auth_infos {
        login.auth_info = Some(AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() });
    }
    Ok(Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

/// Chooses the TLS provider of the process; every test may do it first, so a second call is no error.
pub(crate) fn install_tls() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// Says on standard error what takes time, or where something was left.
#[expect(clippy::print_stderr, reason = "the one place where this library speaks; its callers are programs and tests")]
pub(crate) fn progress(message: &str) {
    eprintln!("control plane: {message}");
}
