//! A server on loopback that sends exactly the bytes of its test, and remembers the bytes that it received.
//!
//! Without an HTTP library, so that a test can send broken answers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use signoff_executor::http::HttpSettings;
use signoff_executor::{AddressSettings, HttpClient, HttpRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The behavior of the server on each connection after it has read the request.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Writes the text and closes.
    Answer(String),
    /// Writes the text for the connection's number and closes; later connections get the last text.
    InTurn(Vec<String>),
    /// Writes bytes that are not text and closes.
    Bytes(&'static [u8]),
    /// Writes the first text, then the second text again and again without end.
    Endless(String, String),
    /// Writes the text, and keeps the connection open.
    Hang(String),
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, behaviour.clone(), Arc::clone(&log)));
            }
        });
        Self { address, received, task }
    }

    /// Starts a server that answers each request with a status line, headers and a body.
    pub(crate) async fn answering(status: &str, headers: &str, body: &str) -> Self {
        Self::start(Behaviour::Answer(answer(status, headers, body))).await
    }

    /// Returns the requests that were received so far.
    pub(crate) fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour, log: Arc<Mutex<Vec<String>>>) {
    let received = read_request(&mut stream).await;
    let number = {
        let mut log = log.lock().unwrap();
        log.push(received);
        log.len()
    };
    // If the client closes the connection, writing fails, and the connection ends.
    match behaviour {
        Behaviour::Answer(bytes) => {
            let _ = stream.write_all(bytes.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        Behaviour::InTurn(answers) => {
            let _ = stream.write_all(answers[number.min(answers.len()) - 1].as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        Behaviour::Bytes(bytes) => {
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
        }
        Behaviour::Endless(head, chunk) => {
            let _ = stream.write_all(head.as_bytes()).await;
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
        }
        Behaviour::Hang(head) => {
            let _ = stream.write_all(head.as_bytes()).await;
            // Waits until the client closes.
            let _ = stream.read(&mut [0; 1]).await;
        }
    }
}

/// The first byte of a TLS handshake, after which nothing is readable.
const HANDSHAKE: u8 = 0x16;

/// Reads one request, head and body.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return text,
            Ok(count) if buffer[0] == HANDSHAKE && bytes.is_empty() => {
                return String::from_utf8_lossy(&buffer[..count]).into_owned();
            }
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Returns a client that may reach loopback, with a small limit and a short connect timeout.
pub(crate) fn client() -> HttpClient {
    HttpClient::new(settings(AddressSettings::default().with_loopback())).unwrap()
}

pub(crate) fn settings(addresses: AddressSettings) -> HttpSettings {
    HttpSettings { addresses, max_response: 4096, connect_timeout: Duration::from_secs(2) }
}

pub(crate) fn get(url: impl Into<String>) -> HttpRequest {
    HttpRequest {
        method: "GET".into(),
        url: url.into(),
        headers: vec![],
        secret_headers: Vec::new(),
        body: None,
        expect_status: vec![],
        timeout: Duration::from_secs(5),
    }
}

pub(crate) fn post(url: impl Into<String>, body: &str) -> HttpRequest {
    HttpRequest { method: "POST".into(), body: Some(body.into()), ..get(url) }
}
