//! The log on standard error. `RUST_LOG` says how much of it there is.
//!
//! It may not log to standard output, which belongs to whoever pipes.

use anyhow::anyhow;
use tracing_subscriber::EnvFilter;

use crate::arguments::LogFormat;

/// Begins to log.
pub fn start(format: LogFormat) -> anyhow::Result<()> {
    // The client warns about every list of a kind that is not there yet, and shows whole objects.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube=error"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|why| anyhow!("the log cannot be opened: {why}"))
}
