//! A running aimock: a provider of models in a process of its own, which speaks every protocol and fails on demand.
//! Its journal has every request as one of chat completions.

use std::process::Stdio;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::browser::Node;
use crate::control_plane::install_tls;

/// A running aimock. Dropping it ends it; so does the end of this process.
#[derive(Debug)]
pub struct Aimock {
    url: String,
    #[expect(dead_code, reason = "held for its drop")]
    process: Child,
}

impl Aimock {
    /// Starts an aimock that answers as `fixtures` say, on a free port of loopback.
    ///
    /// # Errors
    /// Node.js or its packages are missing, or the process ends before it listens.
    pub async fn start(fixtures: &Value) -> Result<Self> {
        install_tls();
        let node = tokio::task::spawn_blocking(Node::find).await??;
        let mut command = Command::new(node.program());
        command.args(node.arguments("model.mjs")?).current_dir(node.folder());
        command.env("SIGNOFF_MODEL", fixtures.to_string()).kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("starting aimock")?;
        let output = process.stdout.take().context("aimock has no standard output")?;
        let line = BufReader::new(output).lines().next_line().await?;
        let url = line.context("aimock ended before it listened; its error is above")?;
        Ok(Self { url, process })
    }

    /// Returns the address before the path of every protocol.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address before `/chat/completions`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.url)
    }

    /// Returns the status and the body of each request, the oldest first.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn requests(&self) -> Result<Vec<(u64, Value)>> {
        let journal = reqwest::get(format!("{}/__aimock/journal", self.url)).await?.error_for_status()?;
        let entries: Vec<Value> = journal.json().await?;
        let status_and_body =
            |entry: Value| (entry["response"]["status"].as_u64().unwrap_or_default(), entry["body"].clone());
        Ok(entries.into_iter().map(status_and_body).collect())
    }
}
