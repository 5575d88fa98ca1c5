//! The MCP servers that the tests take from npm: one over HTTP as a process, both as command lines.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::browser::Node;

/// The package that has a tool for every feature of the protocol.
pub const EVERYTHING: &str = "@modelcontextprotocol/server-everything";
/// The package that reads and writes files.
pub const FILESYSTEM: &str = "@modelcontextprotocol/server-filesystem";

/// A running `server-everything` over HTTP. Dropping it ends it; so does the end of this process.
#[derive(Debug)]
pub struct EverythingServer {
    address: SocketAddr,
    #[expect(dead_code, reason = "held for its drop")]
    process: Child,
}

impl EverythingServer {
    /// Starts a server on a free port of loopback.
    ///
    /// # Errors
    /// Node.js or its packages are missing, or the server ends before it listens.
    pub async fn start() -> Result<Self> {
        let node = find_node().await?;
        let mut command = Command::new(node.program());
        command.args(node.arguments("everything.mjs")?).current_dir(node.folder()).kill_on_drop(true);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("starting server-everything")?;
        let output = process.stdout.take().context("server-everything has no standard output")?;
        let line = BufReader::new(output).lines().next_line().await?;
        let line = line.context("server-everything ended before it listened; its error is above")?;
        let address = line.parse().with_context(|| format!("server-everything says where it listens: {line}"))?;
        Ok(Self { address, process })
    }

    /// Returns the address at which it listens; its path is `/mcp`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Returns the command line that starts the server of a package on its standard streams. The program comes first.
///
/// # Errors
/// Node.js or its packages are missing.
pub async fn command_line(package: &str, arguments: &[&str]) -> Result<Vec<String>> {
    let node = find_node().await?;
    let file = node.folder().join("node_modules").join(package).join("dist/index.js");
    ensure!(file.is_file(), "the package {package} has no file {}", file.display());
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the path of a program is no text");
    let program = [text(node.program())?, text(&file)?];
    Ok(program.into_iter().chain(arguments.iter().map(|&argument| argument.to_owned())).collect())
}

async fn find_node() -> Result<Node> {
    tokio::task::spawn_blocking(Node::find).await?
}
