//! The administrator's configuration of notices. Parsing is strict: an unknown field is an error, and an error names
//! the field and the remedy.
//!
//! **Invariant:** the configuration contains no text of a Workflow. No error contains a value of the configuration or
//! the content of a Secret: an administrator may have written a token into a wrong field.

mod file;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use signoff_api::{gate::GateType, names};
use signoff_executor::{
    Allowed,
    address::ranges::{IPV4, IPV6},
};
use url::{Host, Url};

use crate::{
    notice::NoticeEvent,
    people::{is_domain, is_mail_address},
    yaml,
};

pub use file::{ConfigFile, FileState, LoadedConfig};

/// The largest number of channels. The state of so many fits into one ConfigMap.
pub const MAX_CHANNELS: usize = 16;
/// The largest number of routes.
pub const MAX_ROUTES: usize = 256;

/// The labels that a namespace must have.
pub type NamespaceLabels = BTreeMap<String, String>;

/// The configuration of notices.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Config {
    /// The URL of the inbox, to which notices link.
    pub inbox: Option<Url>,
    /// The addresses that channels may reach besides public ones.
    pub allowed_addresses: Vec<Allowed>,
    /// The channels, each with a unique name.
    pub channels: Vec<ChannelConfig>,
    /// The sources of the addresses of people.
    pub people: PeopleConfig,
    /// The routes from events to channels.
    pub routes: Vec<Route>,
}

/// The configuration of one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelConfig {
    /// The unique name of the channel: lower-case letters, digits and hyphens.
    pub name: String,
    /// Whether workflow authors may add the channel to a gate.
    pub authors: bool,
    /// The labels of the namespaces whose notices the channel gets; empty: all namespaces.
    pub namespaces: NamespaceLabels,
    /// Whether notices in the channel show the question and the arguments of a call.
    pub has_details: bool,
    /// The kind, with its settings.
    pub kind: ChannelKind,
}

/// The kinds of channels.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelKind {
    /// Slack.
    Slack(SlackConfig),
    /// Mail.
    Smtp(SmtpConfig),
    /// A webhook.
    Webhook(WebhookConfig),
    /// PagerDuty.
    PagerDuty(PagerDutyConfig),
}

/// The settings of Slack.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SlackConfig {
    /// The file with the token of the bot.
    pub token_file: PathBuf,
    /// The Slack channel, such as `#finance-approvals`.
    pub channel: String,
    /// Whether people also get direct messages.
    #[serde(default)]
    pub direct_messages: bool,
    /// The base URL of Slack's methods, if not the usual one; GovSlack has another one.
    #[serde(default)]
    pub api: Option<String>,
}

/// The settings of mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmtpConfig {
    /// The URL of the server: `smtps://` for TLS from the beginning, `smtp://` for STARTTLS. A server without STARTTLS
    /// is refused.
    pub url: Url,
    /// The file with the user name.
    pub user_file: Option<PathBuf>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// The mail address of the sender.
    pub from: String,
    /// The mail address that gets the notices for people without an address. `None`: such notices are not sent.
    pub to: Option<String>,
}

/// The settings of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookConfig {
    /// The file with the URL. The URL may contain a token, and so is treated as a secret.
    pub url_file: PathBuf,
    /// The file with the secret that signs the requests.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// The format of the requests.
    pub format: WebhookFormat,
}

/// The formats of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebhookFormat {
    /// Standard Webhooks, signed.
    Standard,
    /// The payload of the Strands CLI (S1), signed.
    S1,
    /// CloudEvents.
    CloudEvents,
    /// A card of Microsoft Teams.
    Teams,
}

/// The settings of PagerDuty.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PagerDutyConfig {
    /// The file with the routing key of the Events API v2.
    pub routing_key_file: PathBuf,
    /// The URL of the Events API, if not the usual one; the EU service region has another one.
    #[serde(default)]
    pub api: Option<String>,
}

/// The sources of the addresses of people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeopleConfig {
    /// The file with the addresses of users and groups.
    pub file: Option<PathBuf>,
    /// The domains whose user names are also mail addresses.
    pub domains: Vec<String>,
}

/// A route: it sends some events of some namespaces and gates to some channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The labels of the namespaces whose events take the route; empty: all namespaces.
    pub namespaces: NamespaceLabels,
    /// The types of gates whose events take the route; empty: all. The end of a run has no gate, and takes every route.
    pub gate_types: Vec<GateType>,
    /// The events that take the route; empty: all.
    pub events: BTreeSet<NoticeEvent>,
    /// The names of the channels to which the route leads.
    pub to: Vec<String>,
}

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// The path of the field.
    pub field: String,
    /// The problem and the remedy.
    pub problem: String,
}

impl ConfigError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawConfig {
    inbox: Option<String>,
    #[serde(default)]
    allowed_addresses: Vec<String>,
    #[serde(default)]
    channels: Vec<Value>,
    people: Option<Value>,
    #[serde(default)]
    routes: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawChannel {
    name: String,
    #[serde(default)]
    authors: bool,
    #[serde(default)]
    namespaces: NamespaceLabels,
    details: Option<Details>,
    slack: Option<Value>,
    smtp: Option<Value>,
    webhook: Option<Value>,
    pagerduty: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawSmtp {
    url: String,
    user_file: Option<PathBuf>,
    password_file: Option<PathBuf>,
    from: String,
    to: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Details {
    Full,
    None,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPeople {
    file: Option<PathBuf>,
    users_are_emails: Option<UsersAreEmails>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersAreEmails {
    domains: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawRoute {
    #[serde(default)]
    namespaces: NamespaceLabels,
    #[serde(default)]
    gate_types: Vec<GateType>,
    #[serde(default)]
    events: BTreeSet<NoticeEvent>,
    to: Vec<String>,
}

impl Config {
    /// Reads a configuration from YAML.
    ///
    /// # Errors
    /// The first invalid field, and the remedy.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let value = yaml::read(text).map_err(|why| ConfigError::new("notifications", why))?;
        let raw: Option<RawConfig> = deserialize("notifications", value)?;
        let RawConfig { inbox, allowed_addresses, channels, people, routes } = raw.unwrap_or_default();
        let inbox = inbox.map(|inbox| parse_inbox(&inbox)).transpose()?;
        let allowed_addresses = allowed_addresses.iter().enumerate().map(|(index, text)| read_allowed(index, text));
        let allowed_addresses = allowed_addresses.collect::<Result<_, _>>()?;
        check_number("channels", channels.len(), MAX_CHANNELS)?;
        check_number("routes", routes.len(), MAX_ROUTES)?;
        let channels = channels.into_iter().enumerate().map(|(index, value)| ChannelConfig::read(index, value));
        let channels = channels.collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        for (index, channel) in channels.iter().enumerate() {
            if !names.insert(channel.name.as_str()) {
                let problem = "duplicate name; give each channel its own";
                return Err(ConfigError::new(format!("channels[{index}].name"), problem));
            }
        }
        let people = people.map(PeopleConfig::read).transpose()?.unwrap_or_default();
        let routes = routes.into_iter().enumerate().map(|(index, value)| Route::read(index, value, &names));
        let routes = routes.collect::<Result<_, _>>()?;
        Ok(Self { inbox, allowed_addresses, channels, people, routes })
    }

    /// Returns the files that the configuration names, each with the path of its field.
    #[must_use]
    pub fn files(&self) -> Vec<(String, &PathBuf)> {
        let channel_files = self.channels.iter().enumerate().flat_map(|(index, channel)| {
            channel.files().into_iter().map(move |(field, file)| (format!("channels[{index}].{field}"), file))
        });
        let people_file = self.people.file.iter().map(|file| ("people.file".to_owned(), file));
        channel_files.chain(people_file).collect()
    }
}

impl ChannelConfig {
    fn read(index: usize, value: Value) -> Result<Self, ConfigError> {
        let field = format!("channels[{index}]");
        let raw: RawChannel = deserialize(&field, value)?;
        let RawChannel { name, authors, namespaces, details, slack, smtp, webhook, pagerduty } = raw;
        if !names::is_label(&name) {
            return Err(ConfigError::new(
                format!("{field}.name"),
                "not a name; use lower-case letters, digits and hyphens",
            ));
        }
        let kind = match (slack, smtp, webhook, pagerduty) {
            (Some(slack), None, None, None) => ChannelKind::Slack(SlackConfig::read(&format!("{field}.slack"), slack)?),
            (None, Some(smtp), None, None) => ChannelKind::Smtp(SmtpConfig::read(&format!("{field}.smtp"), smtp)?),
            (None, None, Some(hook), None) => {
                ChannelKind::Webhook(WebhookConfig::read(&format!("{field}.webhook"), hook)?)
            }
            (None, None, None, Some(key)) => {
                ChannelKind::PagerDuty(PagerDutyConfig::read(&format!("{field}.pagerduty"), key)?)
            }
            _ => return Err(ConfigError::new(field, "needs exactly one of slack, smtp, webhook and pagerduty")),
        };
        let has_details = details == Some(Details::Full);
        if has_details && namespaces.is_empty() {
            let problem = "full goes round the rights of readers; name the namespaces by their labels in `namespaces`";
            return Err(ConfigError::new(format!("{field}.details"), problem));
        }
        Ok(Self { name, authors, namespaces, has_details, kind })
    }

    fn files(&self) -> Vec<(&'static str, &PathBuf)> {
        let files = match &self.kind {
            ChannelKind::Slack(slack) => vec![("slack.tokenFile", Some(&slack.token_file))],
            ChannelKind::Smtp(smtp) => {
                vec![("smtp.userFile", smtp.user_file.as_ref()), ("smtp.passwordFile", smtp.password_file.as_ref())]
            }
            ChannelKind::Webhook(hook) => {
                vec![("webhook.urlFile", Some(&hook.url_file)), ("webhook.secretFile", hook.secret_file.as_ref())]
            }
            ChannelKind::PagerDuty(pagerduty) => vec![("pagerduty.routingKeyFile", Some(&pagerduty.routing_key_file))],
        };
        files.into_iter().filter_map(|(field, file)| Some((field, file?))).collect()
    }

    /// Whether the channel sends many notices within a minute as one. Channels for machines send each notice.
    #[must_use]
    pub fn folds(&self) -> bool {
        match &self.kind {
            ChannelKind::Slack(_) | ChannelKind::Smtp(_) => true,
            ChannelKind::Webhook(hook) => hook.format == WebhookFormat::Teams,
            ChannelKind::PagerDuty(_) => false,
        }
    }
}

impl SlackConfig {
    fn read(field: &str, value: Value) -> Result<Self, ConfigError> {
        let slack: Self = deserialize(field, value)?;
        let name = slack.channel.strip_prefix('#').unwrap_or(&slack.channel);
        let fits = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.chars().count() > 80 || !name.chars().all(fits) {
            let problem = "not a channel; write its name, as in \"#finance-approvals\", or its id";
            return Err(ConfigError::new(format!("{field}.channel"), problem));
        }
        check_api(field, slack.api.as_deref(), "https://slack-gov.com/api")?;
        Ok(slack)
    }
}

impl PagerDutyConfig {
    fn read(field: &str, value: Value) -> Result<Self, ConfigError> {
        let pagerduty: Self = deserialize(field, value)?;
        check_api(field, pagerduty.api.as_deref(), "https://events.eu.pagerduty.com/v2/enqueue")?;
        Ok(pagerduty)
    }
}

impl SmtpConfig {
    fn read(field: &str, value: Value) -> Result<Self, ConfigError> {
        let RawSmtp { url, user_file, password_file, from, to } = deserialize(field, value)?;
        let url = url.parse().map_err(|_| {
            ConfigError::new(format!("{field}.url"), "not a URL; write it as in smtps://mail.example.com:465")
        })?;
        let smtp = Self { url, user_file, password_file, from, to };
        let problem = match smtp.url.scheme() {
            "smtp" | "smtps" if smtp.url.host_str().is_none_or(str::is_empty) => Some("has no host"),
            "smtp" | "smtps" if !smtp.url.username().is_empty() || smtp.url.password().is_some() => {
                Some("has a user or a password; put them into userFile and passwordFile")
            }
            "smtp" | "smtps" => None,
            _ => Some("must begin with smtps://, or with smtp:// for STARTTLS"),
        };
        if let Some(problem) = problem {
            return Err(ConfigError::new(format!("{field}.url"), problem));
        }
        if smtp.user_file.is_some() != smtp.password_file.is_some() {
            return Err(ConfigError::new(field, "userFile and passwordFile belong together; set both or none"));
        }
        let addresses = [("from", Some(&smtp.from)), ("to", smtp.to.as_ref())];
        for (name, address) in addresses {
            if address.is_some_and(|address| !is_mail_address(address)) {
                let problem = "not a mail address; write it as in signoff@example.com";
                return Err(ConfigError::new(format!("{field}.{name}"), problem));
            }
        }
        Ok(smtp)
    }
}

impl WebhookConfig {
    fn read(field: &str, value: Value) -> Result<Self, ConfigError> {
        let hook: Self = deserialize(field, value)?;
        let is_signed = matches!(hook.format, WebhookFormat::Standard | WebhookFormat::S1);
        if is_signed && hook.secret_file.is_none() {
            let problem = "is required for this format, which is signed; name a file of a Secret";
            return Err(ConfigError::new(format!("{field}.secretFile"), problem));
        }
        Ok(hook)
    }
}

impl PeopleConfig {
    fn read(value: Value) -> Result<Self, ConfigError> {
        let RawPeople { file, users_are_emails } = deserialize("people", value)?;
        let domains = users_are_emails.map(|emails| emails.domains).unwrap_or_default();
        if let Some(index) = domains.iter().position(|domain| !is_domain(domain)) {
            let problem = "not a domain; write it as in example.com";
            return Err(ConfigError::new(format!("people.usersAreEmails.domains[{index}]"), problem));
        }
        Ok(Self { file, domains })
    }
}

impl Route {
    fn read(index: usize, value: Value, channels: &BTreeSet<&str>) -> Result<Self, ConfigError> {
        let field = format!("routes[{index}]");
        let RawRoute { namespaces, gate_types, events, to } = deserialize(&field, value)?;
        if to.is_empty() {
            return Err(ConfigError::new(format!("{field}.to"), "is empty; name at least one channel"));
        }
        if let Some(unknown) = to.iter().position(|name| !channels.contains(name.as_str())) {
            let known = channels.iter().copied().collect::<Vec<_>>().join(", ");
            return Err(ConfigError::new(
                format!("{field}.to[{unknown}]"),
                format!("no such channel; there are: {known}"),
            ));
        }
        Ok(Self { namespaces, gate_types, events, to })
    }
}

fn deserialize<T: DeserializeOwned>(field: &str, value: Value) -> Result<T, ConfigError> {
    yaml::convert(value).map_err(|why| ConfigError::new(field, why))
}

fn check_number(field: &str, number: usize, max: usize) -> Result<(), ConfigError> {
    if number <= max {
        return Ok(());
    }
    Err(ConfigError::new(field, format!("has {number} entries; at most {max} are possible")))
}

/// Parses the URL of the inbox, which is an origin with TLS.
fn parse_inbox(text: &str) -> Result<Url, ConfigError> {
    let invalid = |problem: &str| ConfigError::new("inbox", problem);
    let url: Url = text.parse().map_err(|_| invalid("not a URL; write it as in https://signoff.example.com"))?;
    if url.host().is_none() {
        return Err(invalid("has no host; write it as in https://signoff.example.com"));
    }
    let is_safe = is_safe(&url);
    let is_origin = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    if !is_safe || !is_origin || !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("must be an origin with TLS and without a path, as in https://signoff.example.com"));
    }
    Ok(url)
}

/// Checks a configured URL of a service, to which a token is sent. `example`: a valid URL, for the error message.
fn check_api(field: &str, api: Option<&str>, example: &str) -> Result<(), ConfigError> {
    let Some(api) = api else { return Ok(()) };
    let url = api.parse::<Url>().ok().filter(is_safe);
    let is_plain = |url: &Url| {
        let has_rest = url.query().is_some() || url.fragment().is_some();
        url.username().is_empty() && url.password().is_none() && !has_rest && !api.ends_with('/')
    };
    if url.as_ref().is_some_and(is_plain) {
        return Ok(());
    }
    let problem = format!("must be an address with TLS and without a slash at its end, as in {example}");
    Err(ConfigError::new(format!("{field}.api"), problem))
}

/// Whether requests to a URL use TLS or stay on this machine, so that no other machine can read them.
fn is_safe(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback)
}

/// Parses an entry of `allowedAddresses`. A network within a range that is always closed to channels is an error.
fn read_allowed(index: usize, text: &str) -> Result<Allowed, ConfigError> {
    let invalid = |problem: String| ConfigError::new(format!("allowedAddresses[{index}]"), problem);
    let allowed: Allowed = text.parse().map_err(|_| {
        let forms =
            "a network (10.0.0.0/24), an address (10.0.0.25, 10.0.0.25:465), or a name and port (relay.internal:465)";
        invalid(format!("not an address to allow; write {forms}"))
    })?;
    if let Allowed::Network { network, .. } = &allowed {
        let covering = IPV4.iter().chain(IPV6).filter(|range| network.is_within(&range.network));
        let nearest = covering.max_by_key(|range| range.network.prefix());
        if let Some(range) = nearest.filter(|range| range.is_closed()) {
            return Err(invalid(format!("is {}; no channel reaches one", range.class.what)));
        }
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests;
