//! The tools of servers: each server is asked once, with its key and a timeout *(I/O)*.

use signoff_api::{catalogue::Catalogue, server::Server, workflow::SecretEntry};
use signoff_cli::{sanitize::one_line, terminal};
use signoff_engine::transition::SentSecret;
use signoff_executor::{
    AddressSettings, HttpClient, Secrets as _, ServerAddress, ToolServer,
    http::{HeaderSecret, HttpSettings},
    secrets::SecretUse,
};
use signoff_local::LocalSecrets;
use signoff_mcp::McpClient;
use url::Url;

use super::{ToolTarget, Tools};
use crate::{exit::Exit, models::host_and_port};

/// The namespace under which this process caches what it learns about servers.
const NAMESPACE: &str = "local";

/// The tools that a server has listed.
pub(super) struct ListedServer {
    pub(super) server: Server,
    /// The negotiated version of the protocol.
    pub(super) protocol: &'static str,
    pub(super) catalogue: Catalogue,
}

/// Returns the tools of the servers. Prints an error for a server that cannot be asked, and leaves the server out.
pub(super) async fn list_servers(options: &Tools, target: &ToolTarget) -> anyhow::Result<Vec<ListedServer>> {
    let addresses = AddressSettings::default().with_loopback();
    let client = McpClient::new(HttpClient::new(HttpSettings { addresses, ..HttpSettings::default() })?);
    let secrets = options.secrets_dir.as_ref().map_or_else(LocalSecrets::default, LocalSecrets::in_folder);
    let mut listed = Vec::new();
    for server in &target.servers {
        let (tool_server, host) = resolve_server(server, &target.secrets, &secrets).await?;
        terminal::progress(&format!("asking {host} for its tools..."));
        match client.list(&tool_server, options.timeout).await {
            Ok((catalogue, protocol)) => {
                listed.push(ListedServer { server: server.clone(), protocol: protocol.version(), catalogue });
            }
            Err(error) => terminal::note(&format!("error: {}", one_line(&error.to_string(), 1000))),
        }
    }
    client.settled().await;
    Ok(listed)
}

/// Reads the key of a server. Returns the server and the key as the client needs them, and the host for messages.
async fn resolve_server(
    server: &Server,
    entries: &[SecretEntry],
    secrets: &LocalSecrets,
) -> anyhow::Result<(ToolServer, String)> {
    let (name, address) = (server.name.clone(), server.url.clone().unwrap_or_default());
    let invalid =
        |why: url::ParseError| Exit::Invalid.because(format!("server {name}: its url is not a valid URL: {why}"));
    let url: Url = address.parse().map_err(invalid)?;
    let entry = server.key.as_ref().and_then(|key| entries.iter().find(|entry| entry.name == *key));
    let key = match entry {
        Some(entry) => {
            let found = secrets.read(NAMESPACE, &entry.secret, &entry.key, SecretUse::Header(&url)).await;
            let value = found.map_err(|error| Exit::Usage.because(error.to_string()))?.value;
            let header = HeaderSecret::new(SentSecret::of_server(entry, server.header.as_deref()), value);
            Some(header.map_err(|error| Exit::Usage.because(error.to_string()))?)
        }
        None => None,
    };
    let host = host_and_port(&url);
    let address = ServerAddress::Url(address);
    Ok((ToolServer { namespace: NAMESPACE.to_owned(), name, address, key }, host))
}
