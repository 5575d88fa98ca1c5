//! The connection to a mail server, with a limit on the bytes that are read. lettre buffers a line until the line ends,
//! and a hostile server may send a line without an end.
//!
//! **Invariant:** lettre gets the connection only after TLS has begun. It reads nothing that was received before TLS,
//! and a bounded number of bytes and lines.
#![expect(deprecated, reason = "lettre has no other way to begin with TLS over a stream that exists")]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::io::{AsyncRead as FuturesRead, AsyncWrite as FuturesWrite};
use lettre::transport::smtp;
use lettre::transport::smtp::client::{AsyncNetworkStream, AsyncSmtpConnection, AsyncTokioStream, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The most bytes that are read from one connection, including those of TLS. A whole delivery takes about 10 KiB.
const MAX_BYTES: usize = 256 * 1024;
/// The most lines of all answers in TLS. For each line of an answer, lettre parses the whole answer again. A whole
/// delivery takes about 30 lines.
const MAX_LINES: usize = 500;
/// The most bytes of one answer before TLS.
const MAX_BYTES_BEFORE_TLS: usize = 8 * 1024;
/// The greeting that lettre reads if the server sent its own before TLS.
const GREETING: &[u8] = b"220 TLS\r\n";

/// The reason why no connection with TLS was established.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The address did not answer, or the connection was closed before TLS.
    Unreachable,
    /// The server offers no TLS.
    NoStartTls,
    /// An unexpected answer before TLS, with its code if it has one. Any machine on the way may have sent the answer.
    BeforeTls(Option<u16>),
    /// TLS failed, or the server refused the connection within TLS.
    Smtp(smtp::Error),
}

/// Connects to an address, and begins TLS at once or after STARTTLS.
///
/// # Errors
/// No connection with TLS was established.
pub(super) async fn connect(
    address: SocketAddr,
    time_limit: Duration,
    (tls, is_tls_first): (TlsParameters, bool),
    hello: &ClientId,
) -> Result<AsyncSmtpConnection, ConnectError> {
    let Ok(Ok(stream)) = timeout(time_limit, TcpStream::connect(address)).await else {
        return Err(ConnectError::Unreachable);
    };
    let mut bounded = BoundedStream { stream, left: MAX_BYTES };
    let greeting: &'static [u8] = if is_tls_first {
        b""
    } else {
        start_tls(&mut bounded, hello).await?;
        GREETING
    };
    let mut stream = AsyncNetworkStream::use_existing_tokio1(Box::new(bounded));
    stream.upgrade_tls(tls).await.map_err(ConnectError::Smtp)?;
    let secured = SecuredStream { stream, greeting, lines_left: MAX_LINES };
    AsyncSmtpConnection::connect_with_transport(Box::new(secured), hello).await.map_err(ConnectError::Smtp)
}

/// Asks the server to begin TLS with STARTTLS. Bytes after the last answer are not read here. Plain text that an
/// attacker adds after that answer is read as part of TLS, so that TLS fails.
async fn start_tls(stream: &mut BoundedStream, hello: &ClientId) -> Result<(), ConnectError> {
    read_answer(stream, 220).await?;
    let offered = send_command(stream, &format!("EHLO {hello}\r\n"), 250).await?;
    if !offered.lines().any(|line| line.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS"))) {
        return Err(ConnectError::NoStartTls);
    }
    send_command(stream, "STARTTLS\r\n", 220).await.map(drop)
}

/// Sends a command, and returns the answer if it has this code.
async fn send_command(stream: &mut BoundedStream, command: &str, code: u16) -> Result<String, ConnectError> {
    stream.write_all(command.as_bytes()).await.map_err(|_| ConnectError::Unreachable)?;
    read_answer(stream, code).await
}

/// Reads an answer byte by byte up to its end, and returns the answer if it has this code.
async fn read_answer(stream: &mut BoundedStream, code: u16) -> Result<String, ConnectError> {
    let (mut answer, mut line) = (Vec::new(), Vec::new());
    loop {
        let byte = stream.read_u8().await.map_err(|_| ConnectError::Unreachable)?;
        line.push(byte);
        if answer.len() + line.len() > MAX_BYTES_BEFORE_TLS {
            return Err(ConnectError::BeforeTls(None));
        }
        if byte != b'\n' {
            continue;
        }
        let is_last = line.get(3) != Some(&b'-');
        let received = line.get(..3).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        answer.append(&mut line);
        match received {
            Some(received) if received == code && is_last => return Ok(String::from_utf8_lossy(&answer).into_owned()),
            Some(received) if received == code => {}
            other => return Err(ConnectError::BeforeTls(other)),
        }
    }
}

/// A connection with a limit on the bytes that are read.
#[derive(Debug)]
struct BoundedStream {
    stream: TcpStream,
    left: usize,
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len().saturating_sub(before);
        match self.left.checked_sub(read) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Err(too_long())),
        }
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncTokioStream for BoundedStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

/// A connection in which TLS has begun.
#[derive(Debug)]
struct SecuredStream {
    stream: AsyncNetworkStream,
    /// The rest of the text that is read before the bytes of the connection.
    greeting: &'static [u8],
    lines_left: usize,
}

impl AsyncRead for SecuredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.greeting.is_empty() {
            let greeting = self.greeting;
            let (now, later) = greeting.split_at(greeting.len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.greeting = later;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = ready!(FuturesRead::poll_read(Pin::new(&mut self.stream), context, buffer.initialize_unfilled()))?;
        buffer.advance(read);
        let lines = buffer.filled().iter().skip(before).filter(|byte| **byte == b'\n').count();
        match self.lines_left.checked_sub(lines) {
            Some(left) => {
                self.lines_left = left;
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Err(too_long())),
        }
    }
}

impl AsyncWrite for SecuredStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        FuturesWrite::poll_write(Pin::new(&mut self.stream), context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        FuturesWrite::poll_flush(Pin::new(&mut self.stream), context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        FuturesWrite::poll_close(Pin::new(&mut self.stream), context)
    }
}

impl AsyncTokioStream for SecuredStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

fn too_long() -> io::Error {
    io::Error::other("the answers of the server are too long")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use signoff_executor::is_tls;
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::channel::SendError;
    use crate::mail::{Stage, connect_failure, delivery_failure};

    const TEST_TIMEOUT: Duration = Duration::from_secs(30);

    /// Starts a server that answers the connection with the first text and each command with the next one. The task
    /// returns all received commands.
    async fn start_server(answers: &'static [&'static str]) -> (SocketAddr, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut commands = Vec::new();
            for (index, answer) in answers.iter().enumerate() {
                let mut command = Vec::new();
                if index > 0 && stream.read_until(b'\n', &mut command).await.unwrap_or(0) > 0 {
                    commands.push(String::from_utf8_lossy(&command).into_owned());
                }
                let _ = stream.write_all(answer.as_bytes()).await;
            }
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            commands.push(String::from_utf8_lossy(&rest).into_owned());
            commands
        });
        (address, task)
    }

    async fn connect_in_time(address: SocketAddr) -> Result<AsyncSmtpConnection, ConnectError> {
        let tls = TlsParameters::new("mail.example.com".to_owned()).unwrap();
        let client = ClientId::default();
        timeout(TEST_TIMEOUT, connect(address, TEST_TIMEOUT, (tls, false), &client)).await.expect("it ends in time")
    }

    /// Connects without TLS, as if TLS had begun.
    async fn connect_as_if_secured(
        address: SocketAddr,
        greeting: &'static [u8],
    ) -> Result<AsyncSmtpConnection, smtp::Error> {
        let stream = TcpStream::connect(address).await.unwrap();
        let bounded = BoundedStream { stream, left: MAX_BYTES };
        let stream = AsyncNetworkStream::use_existing_tokio1(Box::new(bounded));
        let secured = SecuredStream { stream, greeting, lines_left: MAX_LINES };
        let client = ClientId::default();
        let connecting = AsyncSmtpConnection::connect_with_transport(Box::new(secured), &client);
        timeout(TEST_TIMEOUT, connecting).await.expect("it ends in time")
    }

    #[tokio::test]
    async fn line_without_an_end_ends_the_connection() {
        for is_before_tls in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let line = vec![b'2'; 64 * 1024];
                let mut sent = 0_usize;
                while stream.write_all(&line).await.is_ok() {
                    sent += line.len();
                }
                sent
            });
            let is_refused = match is_before_tls {
                true => matches!(connect_in_time(address).await, Err(ConnectError::BeforeTls(None))),
                false => connect_as_if_secured(address, b"").await.is_err(),
            };
            assert!(is_refused, "before TLS: {is_before_tls}");
            assert!(server.await.unwrap() < 64 * 1024 * 1024, "the connection was ended");
        }
    }

    #[tokio::test]
    async fn answer_of_too_many_lines_ends_the_connection() {
        let many: &'static str = Box::leak(format!("{}220 x\r\n", "220-\r\n".repeat(MAX_LINES)).into_boxed_str());
        let answers: &'static [&'static str] = Box::leak(Box::new([many]));
        let (address, _server) = start_server(answers).await;
        let error = connect_as_if_secured(address, b"").await.err().unwrap();
        assert!(format!("{error:?}").contains("too long"), "{error:?}");
    }

    #[tokio::test]
    async fn text_sent_before_tls_is_not_read_as_an_answer_in_tls() {
        let injected = "220 go on\r\n250-mail.example.com\r\n250 AUTH PLAIN\r\n235 2.7.0 welcome\r\n";
        let answers: &'static [&'static str] =
            Box::leak(Box::new(["220 hello\r\n", "250-mail.example.com\r\n250 STARTTLS\r\n", injected]));
        let (address, server) = start_server(answers).await;
        match connect_in_time(address).await {
            Err(ConnectError::Smtp(error)) => assert!(is_tls(&error), "{error:?}"),
            other => panic!("{:?}", other.err()),
        }
        let commands = server.await.unwrap();
        assert!(commands[0].starts_with("EHLO ") && commands[1] == "STARTTLS\r\n", "{commands:?}");
        assert!(!commands[2].contains("EHLO") && !commands[2].contains("AUTH"), "{commands:?}");
    }

    #[tokio::test]
    async fn connection_after_starttls_needs_no_second_greeting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut command = String::new();
            stream.read_line(&mut command).await.unwrap();
            stream.write_all(b"250-mail.example.com\r\n250 AUTH PLAIN\r\n").await.unwrap();
            command
        });
        let connection = connect_as_if_secured(address, GREETING).await.unwrap();
        assert_eq!(connection.server_info().name(), "mail.example.com");
        assert!(server.await.unwrap().starts_with("EHLO "));
    }

    #[tokio::test]
    async fn error_before_tls_has_only_the_code_of_the_answer() {
        let leaked =
            |answers: &[&'static str]| -> &'static [&'static str] { Box::leak(answers.to_vec().into_boxed_slice()) };
        for (answers, expected) in [
            (leaked(&["554 SECRET\r\n"]), "BeforeTls(Some(554))"),
            (leaked(&["550-SECRET\r\n550 SECRET\r\n"]), "BeforeTls(Some(550))"),
            (leaked(&["SECRET\r\n"]), "BeforeTls(None)"),
            (leaked(&["\r\n"]), "BeforeTls(None)"),
            (leaked(&["220 x\r\n", "250-x\r\n250 AUTH PLAIN\r\n"]), "NoStartTls"),
            (leaked(&["220 x\r\n", "502 SECRET\r\n"]), "BeforeTls(Some(502))"),
            (leaked(&["220 x\r\n", "250 x\r\n"]), "NoStartTls"),
            (leaked(&["220 x\r\n", "250-x\r\n250 starttls\r\n", "454 SECRET\r\n"]), "BeforeTls(Some(454))"),
        ] {
            let (address, _server) = start_server(answers).await;
            let error = connect_in_time(address).await.err().unwrap();
            assert_eq!(format!("{error:?}"), expected);
        }
    }

    #[tokio::test]
    async fn only_a_refusal_of_the_mail_is_final_without_text_of_the_server() {
        let answers_with = |answer: &str| -> &'static [&'static str] {
            let answer: &'static str = Box::leak(format!("{answer} SECRET\r\n").into_boxed_str());
            Box::leak(Box::new(["220 x\r\n", "250 x\r\n", answer]))
        };
        for (code, stage, is_final, reason) in [
            ("554", Stage::Connect, false, "554 when the connection began"),
            ("535", Stage::SignIn, false, "535: it refuses user and password; correct the files"),
            ("454", Stage::SignIn, false, "454: it refuses user and password"),
            ("530", Stage::Send, false, "530: it wants a user"),
            ("450", Stage::Send, false, "450: it refuses the recipient"),
            ("550", Stage::Send, true, "550: it refuses the recipient"),
            ("552", Stage::Send, true, "552: it refuses the recipient"),
        ] {
            let (address, _server) = start_server(answers_with(code)).await;
            let mut connection = connect_as_if_secured(address, b"").await.unwrap();
            let failure = delivery_failure(stage, &connection.command("NOOP\r\n").await.unwrap_err());
            let message = format!("{failure:?}");
            assert!(message.contains(reason) && !message.contains("SECRET"), "{message}");
            assert_eq!(matches!(failure, SendError::Dead { .. }), is_final, "{message}");
        }
        for error in [
            ConnectError::Unreachable,
            ConnectError::NoStartTls,
            ConnectError::BeforeTls(Some(550)),
            ConnectError::BeforeTls(None),
        ] {
            assert!(matches!(connect_failure(&error), SendError::Later { .. }), "{error:?}");
        }
    }

    #[tokio::test]
    async fn closed_address_is_unreachable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(matches!(connect_in_time(address).await, Err(ConnectError::Unreachable)));
    }
}
