//! The connection to the API server: from a named kubeconfig file, else from the Pod.
//!
//! **Invariant:** never uses the default kubeconfig file, so that no cluster is served by accident.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use signoff_cluster::ServerClock;
use signoff_controller::metrics::SharedMetrics;
use signoff_executor::ProtectedSet;

use crate::arguments::Arguments;

/// The connection to the cluster.
pub struct Connection {
    pub client: Client,
    pub config: Config,
    /// The operator's own namespace.
    pub namespace: String,
}

/// Connects to the cluster. The client counts the reads in `metrics`, and sets `clock`.
pub async fn connect(
    arguments: &Arguments,
    metrics: &SharedMetrics,
    clock: &ServerClock,
) -> anyhow::Result<Connection> {
    let mut config = match &arguments.kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file).with_context(|| format!("reading {}", file.display()))?;
            let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.with_context(|| format!("parsing {}", file.display()))?
        }
        None => Config::incluster().context("no --kubeconfig is given, and this is not a Pod of a cluster")?,
    };
    // Watches stay open for minutes. Every other request has a shorter timeout of its own.
    config.read_timeout = Some(Duration::from_secs(310));
    let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let counts = metrics.requests();
    let client = signoff_cluster::connect_with_observer(config.clone(), clock, move |request| {
        counts.count_read(request.verb, request.resource);
    });
    let client = client.context("preparing the client of the API server")?;
    Ok(Connection { client, config, namespace })
}

/// Returns the protected addresses. At first these are only the addresses by which the operator reaches the API server.
pub async fn protected_set(config: &Config) -> ProtectedSet {
    let configured = config.cluster_url.host().map(str::to_owned);
    let of_service = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    let mut found = BTreeSet::new();
    for host in [configured, of_service].into_iter().flatten() {
        let host = host.trim_matches(['[', ']']).to_owned();
        match tokio::net::lookup_host((host.as_str(), 0)).await {
            Ok(addresses) => found.extend(addresses.map(|address| address.ip())),
            Err(error) => {
                tracing::warn!(%host, %error, "the API server's address cannot be found out, nor kept from runs");
            }
        }
    }
    let protected = ProtectedSet::default();
    protected.set_addresses("the API server, as the operator reaches it", found);
    protected
}
