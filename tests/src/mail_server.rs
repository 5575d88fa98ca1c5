//! A real mail server on loopback, aiosmtpd, with STARTTLS, AUTH and the failures that can follow.
//!
//! **Invariant:** no mail is passed on: received mails stay in a folder.

mod python;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use crate::control_plane::{Supervised, create_certificates, free_port};

/// The user name of the server's account.
pub const USER: &str = "signoff";
/// The password of the user.
pub const PASSWORD: &str = "SECRET-password";

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A mail that the server received.
#[derive(Clone, Debug, Deserialize)]
pub struct Mail {
    /// The sender of the envelope.
    pub from: String,
    /// The recipients of the envelope.
    pub to: Vec<String>,
    /// Whether the mail came over TLS.
    pub tls: bool,
    /// The user who signed in before the mail; `None` for a sender without a password.
    pub user: Option<String>,
    /// The headers and the body.
    pub text: String,
}

impl Mail {
    /// Returns the value of a header, or an empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> String {
        let head = self.text.replace("\r\n", "\n");
        let head = head.split("\n\n").next().unwrap_or_default().replace("\n ", " ");
        let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_default().to_owned()
    }

    /// Returns the body, with the soft line breaks of quoted-printable undone.
    #[must_use]
    pub fn body(&self) -> String {
        let text = self.text.replace("\r\n", "\n");
        let body = text.split_once("\n\n").map(|(_, body)| body).unwrap_or_default();
        body.replace("=\n", "").replace("=3D", "=")
    }
}

/// A running mail server. Dropping it ends it.
#[derive(Debug)]
pub struct MailServer {
    process: Supervised,
    port: u16,
    authority: PathBuf,
    mails: PathBuf,
    #[expect(dead_code, reason = "held for its drop")]
    folder: TempDir,
}

impl MailServer {
    /// Starts a server whose mails are removed when the server is dropped.
    ///
    /// # Errors
    /// Python or its packages are missing, or the server does not listen within a minute.
    pub async fn start() -> Result<Self> {
        let folder = TempDir::with_prefix("signoff-mail-")?;
        let mails = folder.path().join("mails");
        std::fs::create_dir(&mails)?;
        Self::start_with(folder, mails).await
    }

    /// Starts a server that keeps its mails in this folder.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_in(mails: &Path) -> Result<Self> {
        Self::start_with(TempDir::with_prefix("signoff-mail-")?, mails.to_owned()).await
    }

    async fn start_with(folder: TempDir, mails: PathBuf) -> Result<Self> {
        let python = tokio::task::spawn_blocking(python::find).await??;
        let (authority, certificate, key) = create_certificates(folder.path())?;
        let port = free_port()?;
        let settings = json!({
            "port": port, "folder": mails, "certificate": certificate, "key": key, "user": USER, "password": PASSWORD,
        });
        let environment = [("SIGNOFF_MAIL_SERVER", settings.to_string())];
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        let log = folder.path().join("server.log");
        let server = python::source().join("server.py");
        let process = Supervised::start("aiosmtpd", &python, [server], &environment, &log)?;
        let mut server = Self { process, port, authority, mails, folder };
        server.until_ready().await?;
        Ok(server)
    }

    async fn until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            if let Some(status) = self.process.exited()? {
                bail!("aiosmtpd ended ({status}); its log ends:\n{}", self.process.log_tail(40));
            }
            if Instant::now() > deadline {
                bail!("aiosmtpd does not listen after {TIMEOUT:?}; its log ends:\n{}", self.process.log_tail(40));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns the URL that the operator's configuration has for this server; the operator then uses STARTTLS.
    #[must_use]
    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }

    /// Returns the address at which it listens, as `allowedAddresses` names it.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the certificate of its authority.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// Returns the folder with one JSON file for each mail.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.mails
    }

    /// Returns all mails so far, in order.
    ///
    /// # Errors
    /// The folder of the mails cannot be read.
    pub fn mails(&self) -> Result<Vec<Mail>> {
        let folder = std::fs::read_dir(&self.mails)?;
        let mut files: Vec<PathBuf> = folder.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        let read = |file: &PathBuf| {
            let text = std::fs::read_to_string(file)?;
            serde_json::from_str(&text).with_context(|| format!("reading {}", file.display()))
        };
        files.iter().map(read).collect()
    }

    /// Returns the last 40 lines of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.log_tail(40)
    }
}
