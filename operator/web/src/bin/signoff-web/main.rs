//! The binary `signoff-web`: settings, wiring, shutdown.

mod health;

use std::{pin::pin, time::Duration};

use anyhow::Context;
use axum_extra::extract::cookie::Key;
use clap::Parser;
use signoff_listen::Limits;
use signoff_review::foreseen::Counter;
use signoff_web::{
    api_server::Connection,
    live::{Feeds, Streams},
    routes,
    session::{Overviews, Sessions},
    settings::{LogFormat, Settings},
    state::{PageState, Parts},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// The allocator of the operator too; see docs/benchmarks.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The threads that count decisions: several, so that a costly answer of one person does not stop the others.
const COUNTERS: usize = 2;

/// The time in which requests in flight must end after a signal to stop.
const GRACE: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        anyhow::bail!("another TLS provider was installed before this one");
    }
    let settings = Settings::parse();
    if let Some(problem) = settings.problem() {
        anyhow::bail!(problem);
    }
    let started = signoff_cluster::logging::start(settings.log_format == LogFormat::Json);
    started.map_err(|why| anyhow::anyhow!("the log cannot be opened: {why}"))?;
    if let Err(error) = signoff_listen::raise_open_files() {
        tracing::warn!(%error, "the limit on open files cannot be raised: with a low one, connections are refused");
    }
    let key = match &settings.cookie_key_file {
        Some(path) => {
            let bytes =
                std::fs::read(path).with_context(|| format!("reading {} (--cookie-key-file)", path.display()))?;
            Key::try_from(bytes.as_slice()).map_err(|error| {
                anyhow::anyhow!("{} (--cookie-key-file): {error}: write 64 random bytes into it", path.display())
            })?
        }
        None => Key::generate(),
    };
    let connection = Connection::open(&settings).await?;
    let sessions = Sessions::new(&settings).await?;
    let counter = Counter::start(COUNTERS)?;
    let feeds = Feeds::new(settings.max_live.into());
    let streams = Streams::new(settings.max_live.into());

    let listener = TcpListener::bind(settings.listen).await;
    let listener = listener.with_context(|| format!("listening on {} (--listen)", settings.listen))?;
    let address = listener.local_addr()?;
    tracing::info!(%address, url = %settings.url, auth = ?settings.auth, version = env!("CARGO_PKG_VERSION"), "signoff-web starts");
    let health = health::listen(settings.health_listen, connection.clone()).await?;
    let state = PageState::new(Parts {
        settings,
        connection,
        sessions,
        feeds,
        streams,
        overviews: Overviews::default(),
        counter,
        key,
    });
    let (end, ends) = oneshot::channel();
    let ends = async {
        let _ = ends.await;
    };
    let mut serving = pin!(signoff_listen::serve(listener, routes::router(state.clone()), Limits::default(), ends));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = &mut serving => anyhow::bail!("the page is not served any more"),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    // Forms that were sent still get an answer. Streams of events would never end by themselves.
    let _ = end.send(());
    state.feeds.end_all();
    state.streams.end_all();
    if tokio::time::timeout(GRACE, serving).await.is_err() {
        tracing::warn!("requests were cut off that took longer than {GRACE:?}");
    }
    health.abort();
    tracing::info!("stopped");
    Ok(())
}
