//! Mail: a plain-text mail to each person, sent over TLS only. The mails about one request form a thread.
//!
//! Pipeline: render the message *(pure)* -> resolve and check the server's addresses *(I/O)* -> connect *(I/O)* -> sign
//! in *(I/O)* -> send *(I/O)*.
//!
//! **Invariant:** connects only to checked addresses, sends neither credentials nor mail before TLS, and reads a
//! bounded number of bytes.

mod stream;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use lettre::message::header::{ContentType, HeaderName, HeaderValue, MIME_VERSION_1_0};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use signoff_executor::{AddressSettings, ExposeSecret, is_tls};
use tokio::time::timeout;
use url::Url;

use crate::channel::{Channel, MessageHandle, Recipient, SendError};
use crate::config::SmtpConfig;
use crate::notice::Notice;
use crate::secret_file::read_secret;
use crate::text::{DETAILS_LABEL, LINK_LABEL, Rendering, Wording};

use stream::ConnectError;

/// The most UTF-16 code units of details.
const DETAILS_UNITS: usize = 8_000;

/// The longest time of connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The longest time for one mail, from name resolution to the last answer of the server.
const TIMEOUT: Duration = Duration::from_secs(45);

/// The longest time for closing a connection.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The permanent reply codes with which a server refuses a client that has not signed in as required. They are not a
/// refusal of the mail itself.
const SIGN_IN_CODES: [u16; 4] = [530, 534, 535, 538];

/// The mark before every line of untrusted text.
const MARGIN: &str = "  | ";

/// The header that keeps out-of-office programs from answering the mails.
const AUTO_SUBMITTED: HeaderName = HeaderName::new_from_ascii_str("Auto-Submitted");

/// An invalid setting of a mail channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailConfigError {
    /// The URL does not name a mail server.
    #[error(
        "smtp.url: not a mail server; write smtps://host:465, or smtp://host:587 for STARTTLS, without user and path"
    )]
    Url,
    /// The sender is not a mail address.
    #[error("smtp.from: not a mail address; write one such as signoff@example.com")]
    From,
    /// TLS cannot be set up.
    #[error("smtp: TLS cannot be set up; install the system's CA certificates or name a file of them in SSL_CERT_FILE")]
    Tls,
}

/// The address of a mail server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MailServer {
    host: String,
    port: u16,
    /// Whether the connection begins with TLS. Otherwise STARTTLS is required.
    is_tls_first: bool,
}

impl MailServer {
    fn from_url(url: &Url) -> Option<Self> {
        let (is_tls_first, usual_port) = match url.scheme() {
            "smtps" => (true, 465),
            "smtp" => (false, 587),
            _ => return None,
        };
        let is_bare = url.username().is_empty()
            && url.password().is_none()
            && matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.fragment().is_none();
        let host = url.host_str().filter(|host| is_bare && !host.is_empty())?;
        // In a URL an IPv6 address is in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        Some(Self { host, port: url.port().unwrap_or(usual_port), is_tls_first })
    }
}

/// A channel that sends mails through one server.
pub struct MailChannel {
    server: MailServer,
    tls: TlsParameters,
    from: Mailbox,
    to: Option<String>,
    /// The files with the user name and the password.
    credentials: Option<(PathBuf, PathBuf)>,
    addresses: AddressSettings,
}

/// A step of a delivery, for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connect,
    SignIn,
    Send,
}

impl MailChannel {
    /// Returns a channel that connects to the addresses which `addresses` allows.
    ///
    /// # Errors
    /// A setting is invalid; with the remedy.
    pub fn new(settings: SmtpConfig, addresses: AddressSettings) -> Result<Self, MailConfigError> {
        let server = MailServer::from_url(&settings.url).ok_or(MailConfigError::Url)?;
        let from: Mailbox = settings.from.parse().map_err(|_| MailConfigError::From)?;
        let credentials = settings.user_file.zip(settings.password_file);
        let tls = TlsParameters::new(server.host.clone()).map_err(|_| MailConfigError::Tls)?;
        Ok(Self { server, tls, from, to: settings.to, credentials, addresses })
    }

    /// Resolves the name of the server, and returns the allowed addresses. Fails if there is none.
    async fn resolve(&self) -> Result<Vec<SocketAddr>, SendError> {
        let MailServer { host, port, .. } = &self.server;
        self.addresses.protected.settled().await;
        let literal: Option<IpAddr> = host.parse().ok();
        let resolved: Vec<SocketAddr> = match literal {
            Some(address) => vec![SocketAddr::new(address, *port)],
            None => match tokio::net::lookup_host((host.as_str(), *port)).await {
                Ok(resolved) => resolved.collect(),
                Err(_) => return Err(later("the name of the server does not resolve")),
            },
        };
        let name = literal.is_none().then_some(host.as_str());
        let is_allowed = |address: &SocketAddr| self.addresses.check_address(address.ip(), Some(*port), name).is_ok();
        let allowed: Vec<SocketAddr> = resolved.into_iter().filter(is_allowed).collect();
        if allowed.is_empty() {
            return Err(later(
                "the address of the server is refused; add it to notifications.allowedAddresses if it is meant (no entry opens a metadata service)",
            ));
        }
        Ok(allowed)
    }

    /// Connects with TLS to the first address that answers.
    async fn connect(&self) -> Result<AsyncSmtpConnection, SendError> {
        let hello = ClientId::default();
        let mut failure = later("the name of the server has no address");
        for address in self.resolve().await? {
            let tls = (self.tls.clone(), self.server.is_tls_first);
            match stream::connect(address, CONNECT_TIMEOUT, tls, &hello).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = connect_failure(&error),
            }
        }
        Err(failure)
    }

    /// Connects, signs in if the channel has credentials, and sends a mail.
    async fn deliver(&self, message: &Message) -> Result<(), SendError> {
        let credentials = match &self.credentials {
            Some((user, password)) => {
                let (user, password) = (read_secret(user).await?, read_secret(password).await?);
                Some(Credentials::new(user.expose_secret().to_owned(), password.expose_secret().to_owned()))
            }
            None => None,
        };
        let mut connection = self.connect().await?;
        if let Some(credentials) = &credentials {
            let signed_in = connection.auth(DEFAULT_MECHANISMS, credentials).await;
            signed_in.map_err(|error| delivery_failure(Stage::SignIn, &error))?;
        }
        let sent = connection.send(message.envelope(), &message.formatted()).await;
        // The server has already accepted or refused the mail, so the result of closing does not matter.
        let _ = timeout(QUIT_TIMEOUT, connection.abort()).await;
        sent.map(|_| ()).map_err(|error| delivery_failure(Stage::Send, &error))
    }
}

#[async_trait]
impl Channel for MailChannel {
    async fn send(
        &self,
        notice: &Notice,
        to: &Recipient,
        earlier: Option<&MessageHandle>,
    ) -> Result<Option<MessageHandle>, SendError> {
        let to = match to {
            Recipient::Channel => {
                self.to.as_deref().ok_or_else(|| dead("the channel has no recipient of its own (to)"))?
            }
            Recipient::Person(person) => person.as_str(),
        };
        let thread = earlier.and_then(|handle| parse_message_id(&handle.0));
        let (message, id) = render_message(notice, &self.from, to, thread)?;
        match timeout(TIMEOUT, self.deliver(&message)).await {
            Ok(delivered) => delivered?,
            Err(_) => return Err(later("no complete answer in time")),
        }
        // All later mails of the thread answer its first mail.
        Ok(Some(MessageHandle(thread.map_or(id, str::to_owned))))
    }
}

/// Renders a mail to one person, and returns the mail with its Message-ID. The same notice always has the same
/// Message-ID. `thread`: the Message-ID of the mail that this mail answers.
fn render_message(
    notice: &Notice,
    from: &Mailbox,
    to: &str,
    thread: Option<&str>,
) -> Result<(Message, String), SendError> {
    let is_one_word = !to.contains(|character: char| character.is_control() || character.is_whitespace());
    let to = to.parse::<lettre::Address>().ok().filter(|_| is_one_word);
    let to = to.ok_or_else(|| dead("the address of the recipient is not valid"))?;
    let words = Wording::new(notice, Rendering::Plain, DETAILS_UNITS);
    let id = message_id(&notice.id, from.email.domain());
    let mut builder = Message::builder()
        .from(from.clone())
        .to(Mailbox::new(None, to))
        .subject(words.title.clone())
        .message_id(Some(id.clone()))
        .header(MIME_VERSION_1_0)
        .header(ContentType::TEXT_PLAIN)
        .raw_header(HeaderValue::new(AUTO_SUBMITTED, "auto-generated".to_owned()));
    if let Some(thread) = thread {
        builder = builder.in_reply_to(thread.to_owned()).references(thread.to_owned());
    }
    let message = builder.body(render_body(notice, &words)).map_err(|_| dead("the mail cannot be written"))?;
    Ok((message, id))
}

/// Returns the text of a mail. Each line of untrusted text begins with [`MARGIN`].
fn render_body(notice: &Notice, words: &Wording) -> String {
    let mut body = format!("{}\n\n{}\n", words.title, words.lines());
    if let Some(link) = &notice.link {
        body.push_str(&format!("\n{LINK_LABEL}: {link}\n"));
    }
    if let Some(details) = &words.details {
        body.push_str(&format!("\n{DETAILS_LABEL}\n"));
        for line in details.lines() {
            body.push_str(&format!("{MARGIN}{line}\n"));
        }
    }
    body
}

/// Returns the Message-ID of a notice.
fn message_id(id: &str, domain: &str) -> String {
    let part = |character: char| if is_id_character(character) { character } else { '-' };
    format!("<{}@{domain}>", id.chars().take(128).map(part).collect::<String>())
}

/// Returns `text` if it is a Message-ID in the form that this channel writes.
fn parse_message_id(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('<')?.strip_suffix('>')?;
    let (left, domain) = inner.split_once('@')?;
    let is_id = |part: &str| !part.is_empty() && part.chars().all(is_id_character);
    (text.len() <= 512 && is_id(left) && is_id(domain)).then_some(text)
}

fn is_id_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_')
}

fn later(why: &str) -> SendError {
    SendError::Later { why: format!("mail: {why}"), after: None }
}

fn dead(why: &str) -> SendError {
    SendError::Dead { why: format!("mail: {why}") }
}

/// Returns the failure of a connection. The server has not seen the mail, so the failure is never final.
fn connect_failure(error: &ConnectError) -> SendError {
    match error {
        ConnectError::Unreachable => later("no connection to the server"),
        ConnectError::NoStartTls => later("the server offers no STARTTLS; use smtps:// where it has a port for that"),
        ConnectError::BeforeTls(Some(code)) => later(&format!("the server answered {code} before TLS (STARTTLS)")),
        ConnectError::BeforeTls(None) => later("the answer before TLS (STARTTLS) is not one of a mail server"),
        ConnectError::Smtp(error) => delivery_failure(Stage::Connect, error),
    }
}

/// Returns the failure of a delivery. Only a refusal of the mail itself is final, because an administrator can correct
/// any other cause. The server's text is dropped, because servers repeat mail addresses in it.
fn delivery_failure(stage: Stage, error: &smtp::Error) -> SendError {
    if let Some(code) = error.status() {
        let requires_sign_in = SIGN_IN_CODES.contains(&u16::from(code));
        return match stage {
            Stage::Connect => later(&format!("the server answered {code} when the connection began")),
            Stage::SignIn => later(&format!(
                "the server answered {code}: it refuses user and password; correct the files of the channel"
            )),
            Stage::Send if requires_sign_in => {
                later(&format!("the server answered {code}: it wants a user; set userFile and passwordFile"))
            }
            Stage::Send => {
                let why = format!("the server answered {code}: it refuses the recipient, the sender or the mail");
                if error.is_permanent() { dead(&why) } else { later(&why) }
            }
        };
    }
    if is_tls(error) {
        return later("TLS failed; the certificate of the server must be of a trusted issuer and for its name");
    }
    match stage {
        Stage::Connect => later("the connection broke when it began"),
        Stage::SignIn if error.is_client() => later("the server offers neither PLAIN nor LOGIN to sign in"),
        Stage::Send if error.is_client() => dead("the server takes no addresses that are not ASCII"),
        Stage::SignIn | Stage::Send => later("the connection broke before the server's answer"),
    }
}

#[cfg(test)]
mod tests;
