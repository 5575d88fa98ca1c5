//! The log on standard error. `RUST_LOG` says how much of it there is.
//!
//! It must not log to standard output, which belongs to whoever pipes.

use std::io::IsTerminal;

use anyhow::anyhow;
use tracing_subscriber::EnvFilter;

use crate::arguments::LogFormat;

/// Starts the log.
pub fn start(format: LogFormat) -> anyhow::Result<()> {
    // The client warns about every list of a kind that is not there yet, and shows whole objects.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube=error"));
    // Colours are for people at a terminal: in a file or at a collector they are noise.
    let colours = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|why| anyhow!("the log cannot be opened: {why}"))
}
