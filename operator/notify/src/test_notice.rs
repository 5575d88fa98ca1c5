//! A test of a configured channel: sends one notice, and reports the result of each stage.
//!
//! Pipeline: read the configuration *(I/O)* -> find the recipient *(pure)* -> read the channel's files *(I/O)* ->
//! resolve and check the address *(I/O)* -> connect *(I/O)* -> send the notice *(I/O)*.
//!
//! **Invariant:** the report contains no token, no URL of a webhook and no address of a person. At most one test a
//! minute runs.

use std::{
    fmt,
    fs::{File, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use signoff_api::{Moment, gate::Subject};
use signoff_executor::{Clock, ExposeSecret, ProtectedSet};
use tokio::{net::TcpStream, time::timeout};
use url::Url;

use crate::{
    build_channel::{build_channel, reachable_addresses},
    channel::{Channel, MessageHandle, Recipient, SendError},
    config::{ChannelConfig, ChannelKind, Config, ConfigError, ConfigFile, FileState, LoadedConfig, WebhookFormat},
    notice::{Notice, NoticeEvent},
    pagerduty,
    people::{Medium, People},
    routes::{correlation, notice_id},
    secret_file::read_secret,
    slack,
};

/// The shortest time between two tests.
const BETWEEN_TESTS: Duration = Duration::from_secs(60);
/// The longest time of one connection, and of resolving a name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time of sending one notice.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The title of a test notice, before ` in <namespace>`.
const TITLE: &str = "Test notice, no decision is needed,";

/// A test of one channel.
pub struct ChannelTest {
    /// The path of the administrator's configuration file.
    pub file: PathBuf,
    /// The name of the channel in that file.
    pub channel: String,
    /// The user who gets the notice. `None`: the channel as a whole gets it.
    pub user: Option<String>,
    /// The operator's namespace, which the notice names.
    pub namespace: String,
    /// The addresses that no channel may reach.
    pub protected: ProtectedSet,
    /// The clock that dates the notice.
    pub clock: Arc<dyn Clock>,
}

/// The results of the stages of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestReport {
    stages: Vec<(&'static str, Result<String, String>)>,
}

impl TestReport {
    /// Whether the notice was delivered.
    #[must_use]
    pub fn is_delivered(&self) -> bool {
        self.stages.iter().all(|(_, result)| result.is_ok())
    }

    /// Adds the result of a stage with its text for the report, and returns the value for the next stage.
    fn note<T>(&mut self, stage: &'static str, result: Result<(T, String), String>) -> Option<T> {
        let (value, text) = match result {
            Ok((value, text)) => (Some(value), Ok(text)),
            Err(why) => (None, Err(why)),
        };
        self.stages.push((stage, text));
        value
    }
}

impl fmt::Display for TestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (stage, result) in &self.stages {
            match result {
                Ok(text) => writeln!(f, "ok      {stage}: {text}")?,
                Err(why) => writeln!(f, "FAILED  {stage}: {why}")?,
            }
        }
        Ok(())
    }
}

/// The channel under test, with its configuration.
struct TestedChannel {
    loaded: Arc<LoadedConfig>,
    config: ChannelConfig,
    channel: Arc<dyn Channel>,
}

/// The host and the port to which a channel connects.
#[derive(Debug, PartialEq, Eq)]
struct Destination {
    host: String,
    port: u16,
}

impl ChannelTest {
    /// Sends one test notice, and reports the stages up to the first that fails.
    pub async fn run(&self) -> TestReport {
        let mut report = TestReport::default();
        let Some(tested) = report.note("configuration", self.load_channel()) else { return report };
        let recipient = self.recipient(&tested);
        let Some(recipient) = report.note("recipient", recipient) else { return report };
        let destination = find_destination(&tested.config).await.map(|found| (found, "can be read".to_owned()));
        let Some(destination) = report.note("secrets", destination) else { return report };
        let addresses = self.resolve(&tested.loaded.config, &destination).await;
        let Some(addresses) = report.note("address", addresses) else { return report };
        if report.note("connection", connect(&addresses).await).is_some() {
            let sent = self.send(&tested, &recipient).await;
            report.note("notice", sent.map(|text| ((), text)));
        }
        report
    }

    /// Reads the configuration, and builds the channel under test.
    fn load_channel(&self) -> Result<(TestedChannel, String), String> {
        let now = Moment::from(self.clock.now());
        let mut file = ConfigFile::new(self.file.clone());
        let refreshed = file.refresh(now, |loaded| self.build(&loaded.config));
        let Some((loaded, (config, channel))) = refreshed else {
            return Err(match file.state(now) {
                FileState::Kept { why, .. } | FileState::Stopped { why } => why,
                FileState::Current => "internal error; report this as a bug".to_owned(),
            });
        };
        let description = describe(&loaded.config, &config);
        Ok((TestedChannel { loaded, config, channel }, description))
    }

    /// Builds the channel under test. Fails if the configuration has no such channel.
    fn build(&self, config: &Config) -> Result<(ChannelConfig, Arc<dyn Channel>), ConfigError> {
        let known = config.channels.iter().enumerate().find(|(_, channel)| channel.name == self.channel);
        let (at, channel) = known.ok_or_else(|| {
            let names: Vec<_> = config.channels.iter().map(|channel| channel.name.as_str()).collect();
            let there_are = match names.is_empty() {
                true => "there is none".to_owned(),
                false => format!("there are: {}", names.join(", ")),
            };
            ConfigError::new("channels", format!("no channel {:?}; {there_are}", self.channel))
        })?;
        let built = build_channel(channel, config, &self.protected, &self.clock);
        let built = built.map_err(|why| ConfigError::new(format!("channels[{at}]"), why))?;
        Ok((channel.clone(), built))
    }

    /// Returns the recipient with a text for the report. The text does not name a person, because the name of a user
    /// may be an address.
    fn recipient(&self, tested: &TestedChannel) -> Result<(Recipient, String), String> {
        let people = &tested.loaded.people;
        match (&tested.config.kind, &self.user) {
            (ChannelKind::Smtp(smtp), None) if smtp.to.is_none() => {
                Err("the channel has no address of its own; set smtp.to, or name a user with --to".to_owned())
            }
            (_, None) => Ok((Recipient::Channel, "the channel itself".to_owned())),
            (ChannelKind::Smtp(_), Some(user)) => recipient_of_user(people, user, Medium::Mail),
            (ChannelKind::Slack(slack), Some(user)) if slack.direct_messages => {
                recipient_of_user(people, user, Medium::Slack)
            }
            (ChannelKind::Slack(_), Some(_)) => {
                Err("the channel sends no direct messages; set slack.directMessages, or leave --to out".to_owned())
            }
            (ChannelKind::Webhook(_) | ChannelKind::PagerDuty(_), Some(_)) => {
                Err("the channel has no persons; leave --to out".to_owned())
            }
        }
    }

    /// Resolves the host as the channel does. Returns the allowed addresses, and a text for the report.
    async fn resolve(&self, config: &Config, destination: &Destination) -> Result<(Vec<SocketAddr>, String), String> {
        let Destination { host, port } = destination;
        let addresses = reachable_addresses(config, &self.protected);
        self.protected.settled().await;
        let literal: Option<IpAddr> = host.parse().ok();
        let resolved: Vec<SocketAddr> = match literal {
            Some(address) => vec![SocketAddr::new(address, *port)],
            None => match timeout(CONNECT_TIMEOUT, tokio::net::lookup_host((host.as_str(), *port))).await {
                Ok(Ok(resolved)) => resolved.collect(),
                Ok(Err(_)) => {
                    return Err(
                        "the name of the server does not resolve; correct it, or look at the cluster's DNS".to_owned()
                    );
                }
                Err(_) => {
                    return Err("the name of the server does not resolve in time; look at the cluster's DNS".to_owned());
                }
            },
        };
        let name = literal.is_none().then_some(host.as_str());
        let is_allowed = |address: &SocketAddr| addresses.check_address(address.ip(), Some(*port), name).is_ok();
        let number = resolved.len();
        let allowed: Vec<SocketAddr> = resolved.into_iter().filter(is_allowed).collect();
        if allowed.is_empty() {
            return Err("it is refused; add it to notifications.allowedAddresses if it is meant (no entry opens a metadata service)".to_owned());
        }
        let summary = format!("{} of {number} may be reached", allowed.len());
        Ok((allowed, summary))
    }

    /// Sends the test notice. In PagerDuty, also resolves the incident that the notice opens.
    async fn send(&self, tested: &TestedChannel, to: &Recipient) -> Result<String, String> {
        let at = Moment::from(self.clock.now());
        let asked = self.notice(&tested.loaded.config, NoticeEvent::Asked, at);
        let earlier = deliver(&*tested.channel, &asked, to, None).await?;
        let ChannelKind::PagerDuty(_) = &tested.config.kind else {
            return Ok("delivered; TLS, credentials and the recipient are accepted".to_owned());
        };
        let resolved = self.notice(&tested.loaded.config, NoticeEvent::Taken, at);
        deliver(&*tested.channel, &resolved, to, earlier.as_ref()).await?;
        Ok("delivered, and its incident is resolved".to_owned())
    }

    /// Returns a notice without a run. Every channel shows only the title of such a notice.
    fn notice(&self, config: &Config, event: NoticeEvent, at: Moment) -> Notice {
        let uid = format!("test/{}/{at}", self.channel);
        Notice {
            id: notice_id(&uid, &format!("{event:?}")),
            event,
            correlation: correlation(&uid, &self.channel),
            namespace: self.namespace.clone(),
            run: String::new(),
            approval: None,
            gate: None,
            kind: Some(TITLE.to_owned()),
            requester: String::new(),
            deadline: None,
            then: None,
            outcome: None,
            details: None,
            link: config.inbox.as_ref().map(|inbox| inbox.to_string()),
            at,
        }
    }
}

/// Describes a channel for the report: its kind, its routes, and whether authors can add it.
fn describe(config: &Config, channel: &ChannelConfig) -> String {
    let kind = match &channel.kind {
        ChannelKind::Slack(_) => "Slack",
        ChannelKind::Smtp(_) => "mail",
        ChannelKind::Webhook(hook) if hook.format == WebhookFormat::Teams => "Teams",
        ChannelKind::Webhook(_) => "a webhook",
        ChannelKind::PagerDuty(_) => "PagerDuty",
    };
    let routes = config.routes.iter().filter(|route| route.to.contains(&channel.name)).count();
    let authors = if channel.authors { "authors can add it" } else { "authors cannot add it" };
    let is_unused = routes == 0 && !channel.authors;
    let used = if is_unused { "; no notice reaches it: name it in a route, or set authors" } else { "" };
    format!("channel {} is {kind}, routes: {routes}, {authors}{used}", channel.name)
}

/// Returns the recipient for a user, with a text for the report. Fails if the user has no address.
fn recipient_of_user(people: &People, user: &str, medium: Medium) -> Result<(Recipient, String), String> {
    let address = people.addresses(&[Subject::user(user)], medium).pop_first();
    let address =
        address.ok_or_else(|| "the user of --to has no address for this channel; add it to people.file".to_owned())?;
    Ok((Recipient::Person(address), "the user of --to".to_owned()))
}

/// Reads the secrets of a channel, and returns the server to which the channel connects.
async fn find_destination(channel: &ChannelConfig) -> Result<Destination, String> {
    let (url, usual_port) = match &channel.kind {
        ChannelKind::Slack(slack) => {
            read_file(&slack.token_file).await?;
            (slack.api.clone().unwrap_or_else(|| slack::API.to_owned()), 443)
        }
        ChannelKind::PagerDuty(pagerduty) => {
            read_file(&pagerduty.routing_key_file).await?;
            (pagerduty.api.clone().unwrap_or_else(|| pagerduty::API.to_owned()), 443)
        }
        ChannelKind::Webhook(hook) => {
            if let Some(file) = &hook.secret_file {
                read_file(file).await?;
            }
            (read_file(&hook.url_file).await?, 443)
        }
        ChannelKind::Smtp(smtp) => {
            for file in smtp.user_file.iter().chain(&smtp.password_file) {
                read_file(file).await?;
            }
            (smtp.url.to_string(), if smtp.url.scheme() == "smtps" { 465 } else { 587 })
        }
    };
    let url: Option<Url> = url.parse().ok();
    let destination =
        url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default().unwrap_or(usual_port))));
    let (host, port) =
        destination.ok_or_else(|| "the file of the URL has no URL with a host; correct its Secret".to_owned())?;
    // In a URL an IPv6 address is in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    Ok(Destination { host, port })
}

/// Reads a file of the channel. Returns its text, or the reason why it cannot be read.
async fn read_file(file: &Path) -> Result<String, String> {
    read_secret(file).await.map(|secret| secret.expose_secret().to_owned()).map_err(|error| reason(error).0)
}

/// Connects to the first address that answers, and closes the connection.
async fn connect(addresses: &[SocketAddr]) -> Result<((), String), String> {
    for address in addresses {
        if let Ok(Ok(_)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            return Ok(((), "the server answers".to_owned()));
        }
    }
    Err("the server does not answer; look at the NetworkPolicy (networkPolicy.egress), firewalls and the port"
        .to_owned())
}

/// Sends a notice within [`SEND_TIMEOUT`]. An error says whether a real notice would be tried again.
async fn deliver(
    channel: &dyn Channel,
    notice: &Notice,
    to: &Recipient,
    earlier: Option<&MessageHandle>,
) -> Result<Option<MessageHandle>, String> {
    let sent = timeout(SEND_TIMEOUT, channel.send(notice, to, earlier)).await;
    let sent = sent.map_err(|_| format!("no answer within {SEND_TIMEOUT:?}; a notice would be tried again"))?;
    sent.map_err(|error| match reason(error) {
        (why, true) => format!("{why} (a notice would be tried again)"),
        (why, false) => format!("{why} (a notice would be given up)"),
    })
}

/// Returns the reason of a failure, and whether the delivery of a notice would be tried again.
fn reason(error: SendError) -> (String, bool) {
    match error {
        SendError::Later { why, .. } => (why, true),
        SendError::Dead { why } => (why, false),
    }
}

/// Records that a test begins now. `file`: the file with the time of the last test, which outlives the process.
///
/// # Errors
/// Another test began less than a minute ago, or the file cannot be written.
pub fn claim_test(file: &Path, now: Moment) -> Result<(), String> {
    let unwritable = |error: std::io::Error| {
        format!(
            "the time of the test cannot be noted in {}: {}; let the operator write there (STATE_DIR)",
            file.display(),
            error.kind()
        )
    };
    let mut note =
        File::options().read(true).write(true).create(true).truncate(false).open(file).map_err(unwritable)?;
    match note.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err("another test runs now; try again in a minute".to_owned()),
        Err(TryLockError::Error(error)) => return Err(unwritable(error)),
    }
    let mut text = String::new();
    note.read_to_string(&mut text).map_err(unwritable)?;
    let last = text.trim().parse::<jiff::Timestamp>().ok().map(Moment::from);
    // A time in the future is ignored: the clock was wrong.
    let left = last.filter(|last| *last <= now).map(|last| BETWEEN_TESTS.saturating_sub(now.since(last)));
    if let Some(left) = left.filter(|left| !left.is_zero()) {
        return Err(format!("one test a minute is made; try again in {} s", left.as_secs().max(1)));
    }
    note.rewind().and_then(|()| note.set_len(0)).map_err(unwritable)?;
    note.write_all(format!("{now}\n").as_bytes()).map_err(unwritable)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(seconds: u64) -> Moment {
        let start: Moment = serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap();
        start.after(Duration::from_secs(seconds))
    }

    #[test]
    fn test_can_be_claimed_once_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("note");
        assert_eq!(claim_test(&note, at(100)), Ok(()));
        assert_eq!(claim_test(&note, at(130)), Err("one test a minute is made; try again in 30 s".to_owned()));
        assert_eq!(claim_test(&note, at(160)), Ok(()));
        assert_eq!(claim_test(&note, at(20)), Ok(()), "the clock was wrong");
        std::fs::write(&note, "x").unwrap();
        assert_eq!(claim_test(&note, at(21)), Ok(()));
        let missing = claim_test(&folder.path().join("none/note"), at(300)).unwrap_err();
        assert!(missing.contains("let the operator write there"), "{missing}");
    }

    #[test]
    fn report_has_no_name_of_a_user() {
        let people = People::parse("users: {SECRET: {mail: SECRET@example.com}}", &[]).unwrap();
        let (_, text) = recipient_of_user(&people, "SECRET", Medium::Mail).unwrap();
        let refused = recipient_of_user(&people, "SECRET@example.org", Medium::Mail).unwrap_err();
        assert!(!text.contains("SECRET") && !refused.contains("SECRET"), "{text}, {refused}");
    }

    #[test]
    fn a_report_has_a_line_for_each_stage() {
        let mut report = TestReport::default();
        assert_eq!(report.note("configuration", Ok((7, "channel mail".to_owned()))), Some(7));
        assert_eq!(report.note::<()>("address", Err("it is refused".to_owned())), None);
        assert_eq!(report.to_string(), "ok      configuration: channel mail\nFAILED  address: it is refused\n");
        assert!(!report.is_delivered());
    }
}
