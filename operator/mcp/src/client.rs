//! The client of servers over HTTP. It detects the version of a server, and lists or calls tools, within one deadline.
//!
//! The version is detected by a request that changes nothing, never by the call itself: a server of the older version
//! could perform the call and refuse it, and the fallback would perform it again.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use signoff_api::catalogue::Catalogue;
use signoff_executor::{
    CallError, ErrorClass, HttpClient, ListedTools, ToolEnding, ToolReply, ToolRequest, ToolServer, ToolServers,
    excerpt,
};
use tokio::time::Instant;

use crate::{
    connection::{Connection as _, HttpConnection, PostAnswer, Question},
    conversation::{as_unsent, call, check, list, list_question},
    deadline::deadline_after,
    known_servers::KnownServers,
    protocol::{Protocol, initialize_params, spoken_version},
    session::Endings,
};

/// The headers that a key must not use, because they belong to the request.
const OWN_HEADERS: [&str; 3] = ["accept", "content-type", "last-event-id"];

/// The client of servers of tools over HTTP.
#[derive(Debug)]
pub struct McpClient {
    http: HttpClient,
    known: KnownServers,
    endings: Endings,
}

impl McpClient {
    /// Returns a client that makes all calls through `http`, with its checks of addresses.
    #[must_use]
    pub fn new(http: HttpClient) -> Self {
        Self { http, known: KnownServers::default(), endings: Endings::default() }
    }

    /// Returns the tools that a server offers, and the version of the protocol.
    ///
    /// # Errors
    /// As [`ToolServers::catalogue`].
    pub async fn list(&self, server: &ToolServer, timeout: Duration) -> Result<(Catalogue, Protocol), CallError> {
        let (catalogue, connection) = self.connect_and_list(server, None, deadline_after(timeout)?).await?;
        Ok((catalogue, connection.protocol()))
    }

    /// Waits until servers were notified of the end of every session, or cannot be notified. A program calls this
    /// before it ends.
    pub async fn settled(&self) {
        self.endings.wait_until_settled().await;
    }

    /// Connects to a server and lists its tools. `tool`: the only requested tool; `None` means all.
    async fn connect_and_list<'a>(
        &'a self,
        server: &'a ToolServer,
        tool: Option<&str>,
        deadline: Instant,
    ) -> Result<(Catalogue, HttpConnection<'a>), CallError> {
        let (mut connection, first) = self.connect(server, deadline, list_question(None)).await?;
        Ok((list(&mut connection, first, tool).await?, connection))
    }

    /// Connects to a server in the version that it speaks, and remembers a detected version. Returns the connection,
    /// and the answer to `probe` if `probe` was sent in the version of the server. A server of known version is not
    /// probed with `server/discover`.
    async fn connect<'a>(
        &'a self,
        server: &'a ToolServer,
        deadline: Instant,
        probe: Question,
    ) -> Result<(HttpConnection<'a>, Option<String>), CallError> {
        check_key(server)?;
        let open = move |protocol| HttpConnection::new(&self.http, server, &self.endings, protocol, deadline);
        let mut connection = open(Protocol::Stateless)?;
        match self.known.protocol_of(server) {
            Some(Protocol::Stateless) if probe.method == "server/discover" => return Ok((connection, None)),
            Some(Protocol::Session) => {}
            Some(Protocol::Stateless) | None => {
                let PostAnswer { status, answered, .. } = connection.exchange(&probe).await.map_err(as_unsent)?;
                match spoken_version(status, answered.as_ref().ok()) {
                    Some(Protocol::Stateless) => {
                        self.known.learn(server, Protocol::Stateless);
                        let result = answered.and_then(|answered| answered.result(connection.target()));
                        return Ok((connection, Some(result.map_err(as_unsent)?)));
                    }
                    Some(Protocol::Session) => {}
                    None => {
                        let result = answered.and_then(|answered| answered.result(connection.target()));
                        return Err(as_unsent(result.err().unwrap_or_else(|| unknown_version(connection.target()))));
                    }
                }
            }
        }
        let mut connection = open(Protocol::Session)?;
        match begin_session(&mut connection).await {
            Ok(()) => {
                self.known.learn(server, Protocol::Session);
                Ok((connection, None))
            }
            Err(error) => {
                self.known.forget(server);
                Err(as_unsent(error))
            }
        }
    }
}

#[async_trait]
impl ToolServers for McpClient {
    async fn catalogue(&self, server: &ToolServer, timeout: Duration) -> Result<ListedTools, CallError> {
        let (catalogue, protocol) = self.list(server, timeout).await?;
        Ok(ListedTools { protocol: protocol.version(), catalogue })
    }

    async fn call(&self, server: &ToolServer, request: ToolRequest, timeout: Duration) -> Result<ToolReply, CallError> {
        check(&request)?;
        let deadline = deadline_after(timeout)?;
        let reply = if request.definition.is_some() {
            let (catalogue, mut connection) = self.connect_and_list(server, Some(&request.tool), deadline).await?;
            call(&mut connection, request, Some(&catalogue)).await?
        } else {
            let (mut connection, _) = self.connect(server, deadline, Question::new("server/discover")).await?;
            call(&mut connection, request, None).await?
        };
        // The error may mean that the server speaks another version now. The next request detects the version again.
        if matches!(reply.ending, ToolEnding::Error { .. }) {
            self.known.forget(server);
        }
        Ok(reply)
    }
}

/// Begins a session of the older version. Fails if the server names another version.
async fn begin_session(connection: &mut HttpConnection<'_>) -> Result<(), CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialized {
        protocol_version: String,
    }
    let question = Question { params: initialize_params(), ..Question::new("initialize") };
    let PostAnswer { answered, session, .. } = connection.exchange(&question).await?;
    let result = answered?.result(connection.target())?;
    let version = serde_json::from_str::<Initialized>(&result).map(|answer| answer.protocol_version);
    match version {
        Ok(version) if version == Protocol::Session.version() => connection.begin(session).await,
        Ok(version) => Err(CallError::refused(format!(
            "{} speaks the protocol {}, and this client {} and {}",
            connection.target(),
            excerpt(&version, []),
            Protocol::Stateless.version(),
            Protocol::Session.version()
        ))),
        Err(_) => Err(unknown_version(connection.target())),
    }
}

fn unknown_version(target: &str) -> CallError {
    CallError::new(ErrorClass::Protocol, true, format!("{target} does not say which version of the protocol it speaks"))
}

/// Checks that the header of the key is not one that the client sets itself.
fn check_key(server: &ToolServer) -> Result<(), CallError> {
    let Some(key) = &server.key else { return Ok(()) };
    let name = key.name().to_ascii_lowercase();
    if name.starts_with("mcp-") || OWN_HEADERS.contains(&name.as_str()) {
        let why =
            format!("server {}: the header {name} is set by the client: send the key in another one", server.name);
        return Err(CallError::invalid(why));
    }
    Ok(())
}
