//! The binary `signoff-operator`: arguments, wiring, shutdown.

mod arguments;
mod check;
mod cluster;
mod notices;
mod serve;

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Parser;
use signoff_cluster::ServerClock;
use signoff_controller::{
    Config, DefaultCaller, Evaluator, ExitReason, GuardMode, GuardSettings, LeaseSettings, Operator,
    ProtectedAddresses, metrics::SharedMetrics, secrets::ClusterSecrets,
};
use signoff_executor::{AddressSettings, HttpClient, Providers, ToolServers, http::HttpSettings};
use signoff_mcp::McpClient;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use arguments::{Arguments, Command, GuardCommand, LogFormat, NotifyCommand};
use cluster::Connection;

/// The allocator mimalloc. With the allocator of the C library the operator uses about a third more processor time
/// (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code if evaluations did not stop.
const LOST_THREADS: u8 = 3;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        anyhow::bail!("another TLS provider was installed before this one");
    }
    let arguments = Arguments::parse();
    match &arguments.command {
        Some(Command::Guard(GuardCommand::Check { service_account })) => {
            return check::check(&arguments, service_account).await;
        }
        Some(Command::Notify(NotifyCommand::Test { channel, to })) => {
            return notices::test(&arguments, channel, to.as_ref()).await;
        }
        None => {}
    }
    let started = signoff_cluster::logging::start(arguments.log_format == LogFormat::Json);
    started.map_err(|why| anyhow::anyhow!("the log cannot be opened: {why}"))?;
    if let Err(error) = signoff_listen::raise_open_files() {
        tracing::warn!(%error, "the limit on open files cannot be raised: with a low one, connections are refused");
    }
    let clock = ServerClock::new(Arc::new(jiff::Timestamp::now));
    let incarnation = arguments.incarnation(jiff::Timestamp::now());

    let metrics = SharedMetrics::default();
    let Connection { client, config: connection_config, namespace } =
        cluster::connect(&arguments, &metrics, &clock).await?;
    let protected = cluster::protected_set(&connection_config).await;
    let http = HttpClient::new(HttpSettings {
        addresses: AddressSettings {
            allow: arguments.allow_address.clone(),
            protected: protected.clone(),
            ..AddressSettings::default()
        },
        ..HttpSettings::default()
    });
    let http = http.context("preparing calls to models and addresses")?;
    let secrets = ClusterSecrets::new(client.clone());
    let call_clock = clock.clone();
    let call_clock = Arc::new(move || call_clock.now());
    let evaluator = Evaluator::start(arguments.evaluations());
    let evaluator = evaluator.context("starting the threads for evaluations (--state-dir)")?;
    // The client is the same as for all other calls, so addresses are checked in the same way.
    let servers = Arc::new(McpClient::new(http.clone()));
    let tool_servers: Arc<dyn ToolServers> = servers.clone();
    let outside =
        DefaultCaller::new(Arc::new(http.clone()), Arc::new(Providers::new(http)), Arc::new(secrets), call_clock)
            .with_evaluator(evaluator.clone())
            .with_tool_servers(tool_servers);

    let notices = notices::build_notices(&arguments, &client, &namespace, (&clock, &protected, &metrics));
    let mut config = Config::new(client, clock, Arc::new(outside), &incarnation);
    config.metrics = metrics;
    config.notices = notices;
    config.settings = arguments.settings();
    config.targets = Some(ProtectedAddresses { namespace: namespace.clone(), protected });
    config.call_limits = arguments.call_limits();
    config.memory = arguments.memory();
    config.values = arguments.values();
    config.pods = arguments.pods();
    config.guard = GuardMode::Checked(Box::new(GuardSettings {
        strict: arguments.strict_guard,
        each_server: (arguments.kubeconfig.is_none() && !arguments.one_server).then_some(connection_config),
    }));
    config.lease = (!arguments.no_lease).then(|| LeaseSettings::in_namespace(&namespace));
    config.evaluator = evaluator;
    let operator = Operator::new(config);

    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.with_context(|| format!("listening on {} (--listen)", arguments.listen))?;
    let address: SocketAddr = listener.local_addr()?;
    tracing::info!(%incarnation, %namespace, %address, version = env!("CARGO_PKG_VERSION"), "signoff-operator starts");
    let pages = tokio::spawn(serve::serve(listener, operator.probe()));

    let ended = operator.run(stop_signal()?).await;
    pages.abort();
    servers.settled().await;
    if let Err(lost @ ExitReason::LostThreads(_)) = &ended {
        tracing::error!("{lost}");
        return Ok(ExitCode::from(LOST_THREADS));
    }
    ended?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Returns a future that is ready when the process is asked to end by Kubernetes or from a terminal.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Send> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
