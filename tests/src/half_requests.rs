//! Clients that connect and never send a whole request.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The beginnings of requests that are never completed.
const BEGINNINGS: [&str; 4] = [
    "",
    "GET",
    "GET /healthz HTTP/1.1\r\nHost: ",
    "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.1\r\nX-Long: ",
];

/// The number of connections that are opened at the same time.
const BATCH: usize = 50;

/// Open connections with half requests, in the order in which they were opened.
pub struct HalfRequests {
    address: SocketAddr,
    connections: Vec<TcpStream>,
}

impl HalfRequests {
    /// Returns a set without connections to the server at `http://ADDRESS`. Raises the soft limit on open files of this
    /// process to the hard limit, because each connection is a file.
    ///
    /// # Errors
    /// The URL has another form, or the limit cannot be raised.
    pub fn at(url: &str) -> Result<Self> {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
        let address = url.strip_prefix("http://").context("an address with http://")?.parse()?;
        Ok(Self { address, connections: Vec::new() })
    }

    /// Opens `number` more connections from 127.0.0.PEER.
    ///
    /// # Errors
    /// A connection cannot be opened.
    pub async fn open(&mut self, peer: u8, number: usize) -> Result<()> {
        let address = self.address;
        let open = async |n: usize| {
            let socket = TcpSocket::new_v4()?;
            socket.bind((Ipv4Addr::new(127, 0, 0, peer), 0).into())?;
            let mut stream = socket.connect(address).await?;
            // The server may have closed the connection already.
            let _ = stream.write_all(BEGINNINGS[n % BEGINNINGS.len()].as_bytes()).await;
            io::Result::Ok(stream)
        };
        let Some(last) = number.checked_sub(1) else { return Ok(()) };
        // The system drops connections when too many wait to be accepted, and opens them later.
        for first in (0..last).step_by(BATCH) {
            let batch = (first..last.min(first + BATCH)).map(open);
            self.connections.extend(try_join_all(batch).await?);
        }
        // Alone, because the connections of a batch can be accepted in any order, and the server ends the oldest.
        self.connections.push(open(last).await?);
        Ok(())
    }

    /// Waits until at most `most` connections are open. Returns the number that is open then.
    ///
    /// # Errors
    /// More are still open after `timeout`.
    pub async fn at_most(&self, most: usize, timeout: Duration) -> Result<usize> {
        let deadline = Instant::now() + timeout;
        loop {
            let open = self.count_open();
            if open <= most {
                return Ok(open);
            }
            ensure!(Instant::now() < deadline, "{open} connections are open, and not at most {most}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn count_open(&self) -> usize {
        self.connections.iter().filter(|stream| is_open(stream)).count()
    }

    /// Returns whether the server has not closed the last connection.
    #[must_use]
    pub fn is_last_open(&self) -> bool {
        self.connections.last().is_some_and(is_open)
    }

    /// Returns the server's answer on the last connection, once the server has closed that connection.
    ///
    /// # Errors
    /// The server does not close the connection within `timeout`.
    pub async fn last_answer(&mut self, timeout: Duration) -> Result<String> {
        let last = self.connections.last_mut().context("nobody has connected")?;
        let mut answer = Vec::new();
        tokio::time::timeout(timeout, last.read_to_end(&mut answer)).await.context("it is still open")??;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

fn is_open(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Writes a script in `folder` that starts a program with a soft limit of 200 open files, as on some machines, and
/// returns its path.
///
/// # Errors
/// The script cannot be written.
pub fn with_few_files(program: &Path, folder: &Path) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let name = program.file_name().context("a program has a name")?.to_string_lossy();
    let script = folder.join(format!("few-files-{name}"));
    let text = format!("#!/bin/sh\nulimit -S -n 200\nexec '{}' \"$@\"\n", program.display());
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(script)
}
