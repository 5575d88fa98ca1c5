//! A relay on loopback before an HTTP server, which records every byte that passes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A running relay. Dropping it ends it, with every connection.
pub struct Wire {
    address: SocketAddr,
    connections: Connections,
    relay: JoinHandle<()>,
}

/// The bytes of each connection, in the order of the connections.
type Connections = Arc<Mutex<Vec<RelayedBytes>>>;

/// The bytes of a connection in both directions.
#[derive(Default)]
struct RelayedBytes {
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// A request, as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct WireRequest {
    /// The method of HTTP.
    pub method: String,
    /// The headers; their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body; null if it is not JSON.
    pub body: Value,
}

impl WireRequest {
    /// Returns the method of JSON-RPC, or the method of HTTP if the body has none.
    #[must_use]
    pub fn asks(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.method)
    }

    /// Returns a header, or an empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

impl Wire {
    /// Starts a relay to a server, on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("a port on loopback")?;
        let address = listener.local_addr()?;
        let connections = Connections::default();
        let recorded = Arc::clone(&connections);
        let relay = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let number = record_connection(&recorded);
                // An error of the connection is not reported here: the client notices it.
                open.spawn(relay_connection(client, server, Arc::clone(&recorded), number));
            }
        });
        Ok(Self { address, connections, relay })
    }

    /// Returns the address of a path of the server, through the relay.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests so far, those of the first connection first.
    #[must_use]
    pub fn sent(&self) -> Vec<WireRequest> {
        let Ok(connections) = self.connections.lock() else { return Vec::new() };
        connections.iter().flat_map(|connection| parse_requests(&connection.sent)).collect()
    }

    /// Returns all answers of the server so far.
    #[must_use]
    pub fn received(&self) -> String {
        let Ok(connections) = self.connections.lock() else { return String::new() };
        let text = |connection: &RelayedBytes| String::from_utf8_lossy(&connection.received).into_owned();
        connections.iter().map(text).collect()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

/// Records a new connection and returns its number.
fn record_connection(connections: &Connections) -> usize {
    let Ok(mut connections) = connections.lock() else { return 0 };
    connections.push(RelayedBytes::default());
    connections.len() - 1
}

/// Relays a connection until either side closes it.
async fn relay_connection(
    client: TcpStream,
    server: SocketAddr,
    connections: Connections,
    number: usize,
) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let record = |direction: fn(&mut RelayedBytes) -> &mut Vec<u8>| {
        let connections = Arc::clone(&connections);
        move |bytes: &[u8]| {
            if let Ok(mut connections) = connections.lock()
                && let Some(connection) = connections.get_mut(number)
            {
                direction(connection).extend_from_slice(bytes);
            }
        }
    };
    tokio::select! {
        ended = copy(from_client, to_server, record(|connection| &mut connection.sent)) => ended,
        ended = copy(from_server, to_client, record(|connection| &mut connection.received)) => ended,
    }
}

/// Copies and records all bytes of one direction until that side closes the connection.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    record: impl Fn(&[u8]),
) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = from.read(&mut buffer).await?;
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        // Bytes are recorded before they are passed on, so that a test that has an answer finds the request here.
        record(bytes);
        to.write_all(bytes).await?;
    }
}

/// Returns the whole requests among the bytes of a connection.
fn parse_requests(mut bytes: &[u8]) -> Vec<WireRequest> {
    const END: &[u8] = b"\r\n\r\n";
    let mut requests = Vec::new();
    while let Some(end) = bytes.windows(END.len()).position(|window| window == END) {
        let (head, rest) = bytes.split_at(end);
        let head = String::from_utf8_lossy(head).into_owned();
        let mut lines = head.lines();
        let method = lines.next().and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned();
        let pairs = lines.filter_map(|line| line.split_once(": "));
        let headers: BTreeMap<String, String> =
            pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
        let after = rest.get(END.len()..).unwrap_or_default();
        let Some((body, others)) = after.split_at_checked(length) else { break };
        requests.push(WireRequest { method, headers, body: serde_json::from_slice(body).unwrap_or_default() });
        bytes = others;
    }
    requests
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::loopback::{self, Loopback};

    #[tokio::test]
    async fn requests_and_answers_are_recorded_and_arrive() {
        let server = Loopback::start(|_, request| loopback::text(200, request.body.clone())).await.unwrap();
        let wire = Wire::start(server.address()).await.unwrap();
        let client = reqwest::Client::new();
        for method in ["initialize", "tools/list"] {
            let request = client.post(wire.url("/mcp")).header("Mcp-Session-Id", "7").json(&json!({"method": method}));
            assert_eq!(request.send().await.unwrap().json::<Value>().await.unwrap(), json!({"method": method}));
        }
        client.delete(wire.url("/mcp")).send().await.unwrap();
        let sent = wire.sent();
        assert_eq!(sent.iter().map(WireRequest::asks).collect::<Vec<_>>(), ["initialize", "tools/list", "DELETE"]);
        assert_eq!(sent.first().unwrap().header("mcp-session-id"), "7");
        assert!(wire.received().contains(r#"{"method":"tools/list"}"#));
    }
}
