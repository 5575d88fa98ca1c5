//! The settings of the page, each an option of the command line and an environment variable.
//!
//! Pure: the files that the settings name are read elsewhere.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use openidconnect::IssuerUrl;
use signoff_api::Span;
use url::{Host, Url};

/// The shortest session that can be set.
const SHORTEST_SESSION: Duration = Duration::from_secs(60);
/// The longest session that can be set.
const LONGEST_SESSION: Duration = Duration::from_secs(8 * 3600);

/// Serve the inbox of Signoff: people see what waits for them, and decide it as themselves.
#[derive(Clone, Debug, Parser)]
#[command(name = "signoff-web", version)]
pub struct Settings {
    /// The address for the page. TLS is ended in front of it.
    #[arg(long, env = "SIGNOFF_WEB_LISTEN", default_value = "127.0.0.1:8081", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// The address for /healthz and /readyz.
    #[arg(long, env = "SIGNOFF_WEB_HEALTH_LISTEN", default_value = "127.0.0.1:8082", value_name = "ADDRESS")]
    pub health_listen: SocketAddr,
    /// The address under which people reach the page, such as https://signoff.example.com. Without TLS only a loopback
    /// host.
    #[allow(rustdoc::bare_urls, reason = "help texts of clap are not Markdown")]
    #[arg(long, env = "SIGNOFF_WEB_URL", value_name = "URL", value_parser = public_url)]
    pub url: Url,
    /// The identity with which the page sends requests to the API server.
    #[arg(long, env = "SIGNOFF_WEB_AUTH", value_enum, default_value = "pass-through")]
    pub auth: Auth,
    /// Needed for legacy-impersonation, with which this process can act as anybody, administrators included.
    #[arg(long, env = "SIGNOFF_WEB_I_ACCEPT_LEGACY_IMPERSONATION")]
    pub i_accept_legacy_impersonation: bool,
    /// The kubeconfig file. Default: the cluster of its Pod. With pass-through only the address and the CA of the API
    /// server are used of it.
    #[arg(long, env = "SIGNOFF_WEB_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig file. Default: the current context.
    #[arg(long, env = "SIGNOFF_WEB_CONTEXT", value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// A file of at least 64 random bytes, the same for all replicas, with which cookies are encrypted. Default: a key
    /// that is drawn at the start.
    #[arg(long, env = "SIGNOFF_WEB_COOKIE_KEY_FILE", value_name = "FILE")]
    pub cookie_key_file: Option<PathBuf>,
    /// Sign-in with OpenID Connect.
    #[command(flatten)]
    pub oidc: Oidc,
    /// Accept no pasted tokens.
    #[arg(long, env = "SIGNOFF_WEB_NO_TOKEN_SIGN_IN")]
    pub no_token_sign_in: bool,
    /// A namespace that is listed for users who must not list the whole cluster; can be given more than once.
    #[arg(long, env = "SIGNOFF_WEB_NAMESPACE", value_name = "NAME", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// The namespace of the operator, whose Lease says whether it runs.
    #[arg(
        long,
        env = "SIGNOFF_WEB_OPERATOR_NAMESPACE",
        default_value = "signoff-system",
        value_name = "NAME",
        value_parser = namespace
    )]
    pub operator_namespace: String,
    /// With impersonation: let users suspend, resume, cancel and repeat runs on the page too. With pass-through they
    /// always can.
    #[arg(long, env = "SIGNOFF_WEB_IMPERSONATION_RUNS")]
    pub impersonation_runs: bool,
    /// The longest session; a shorter life of the token goes before it.
    #[arg(long, env = "SIGNOFF_WEB_MAX_SESSION", default_value = "8h", value_name = "DURATION", value_parser = session_length)]
    pub max_session: Span,
    /// The number of reverse proxies in front of the page. The address of a client is taken from what the first of them
    /// appended to X-Forwarded-For.
    #[arg(long, env = "SIGNOFF_WEB_PROXIES", default_value_t = 0, value_name = "NUMBER")]
    pub proxies: u8,
    /// The maximum number of tokens for which the cluster is watched at once.
    #[arg(long, env = "SIGNOFF_WEB_MAX_LIVE", default_value_t = 500, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_live: u16,
    /// The format of the log.
    #[arg(long, env = "SIGNOFF_WEB_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// The settings of the identity provider.
#[derive(Clone, Debug, clap::Args)]
pub struct Oidc {
    /// The issuer, as in its discovery document; https only.
    #[arg(long = "oidc-issuer", env = "SIGNOFF_WEB_OIDC_ISSUER", value_name = "URL", requires = "client_id", value_parser = issuer_url)]
    pub issuer: Option<IssuerUrl>,
    /// The client that the issuer knows this page as.
    #[arg(long = "oidc-client-id", env = "SIGNOFF_WEB_OIDC_CLIENT_ID", value_name = "ID", requires = "issuer")]
    pub client_id: Option<String>,
    /// A file with the secret of the client. Default: a public client.
    #[arg(long = "oidc-client-secret-file", env = "SIGNOFF_WEB_OIDC_CLIENT_SECRET_FILE", value_name = "FILE")]
    pub client_secret_file: Option<PathBuf>,
    /// A scope that is asked for besides openid; can be given more than once.
    #[arg(long = "oidc-scope", env = "SIGNOFF_WEB_OIDC_SCOPE", value_name = "SCOPE", value_delimiter = ',')]
    pub scopes: Vec<String>,
    /// A file with the CA certificates of the issuer. Default: those of the system.
    #[arg(long = "oidc-ca-file", env = "SIGNOFF_WEB_OIDC_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The claim of the user name, for impersonation.
    #[arg(
        long = "oidc-username-claim",
        env = "SIGNOFF_WEB_OIDC_USERNAME_CLAIM",
        default_value = "sub",
        value_name = "CLAIM"
    )]
    pub username_claim: String,
    /// The claim of the groups, for impersonation.
    #[arg(long = "oidc-groups-claim", env = "SIGNOFF_WEB_OIDC_GROUPS_CLAIM", value_name = "CLAIM")]
    pub groups_claim: Option<String>,
    /// The prefix of the user name, for impersonation. Default: as the API server does it, the issuer and `#` unless
    /// the claim is email; `-` for nothing.
    #[arg(long = "username-prefix", env = "SIGNOFF_WEB_USERNAME_PREFIX", value_name = "TEXT")]
    pub username_prefix: Option<String>,
    /// The prefix of each group, for impersonation.
    #[arg(long = "groups-prefix", env = "SIGNOFF_WEB_GROUPS_PREFIX", default_value = "", value_name = "TEXT")]
    pub groups_prefix: String,
}

/// The identity with which the page sends requests to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// The user's own token goes to the API server. The page needs no right at all.
    PassThrough,
    /// The page acts as the user, by constrained impersonation (Kubernetes 1.36).
    Impersonation,
    /// The page acts as the user, by impersonation without constraint.
    LegacyImpersonation,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Settings {
    /// Returns the problem of settings that contradict each other, or `None`.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let is_impersonating = self.auth != Auth::PassThrough;
        if self.auth == Auth::LegacyImpersonation && !self.i_accept_legacy_impersonation {
            return Some(
                "--auth legacy-impersonation lets this process act as anybody, administrators included: use impersonation, or add --i-accept-legacy-impersonation"
                    .to_owned(),
            );
        }
        if is_impersonating && self.oidc.issuer.is_none() {
            return Some("--auth impersonation needs an identity provider that authenticates the users: add --oidc-issuer and --oidc-client-id".to_owned());
        }
        if self.no_token_sign_in && self.oidc.issuer.is_none() {
            return Some(
                "nobody can sign in: add --oidc-issuer and --oidc-client-id, or leave out --no-token-sign-in"
                    .to_owned(),
            );
        }
        None
    }

    /// Whether people can sign in with a pasted token. An impersonating page cannot verify such a token.
    #[must_use]
    pub fn takes_tokens(&self) -> bool {
        self.auth == Auth::PassThrough && !self.no_token_sign_in
    }

    /// Whether the page offers to change runs: with pass-through, or if an administrator allowed it.
    #[must_use]
    pub fn changes_runs(&self) -> bool {
        self.auth == Auth::PassThrough || self.impersonation_runs
    }

    /// Returns the origin of the page, as browsers send it.
    #[must_use]
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

fn namespace(text: &str) -> Result<String, String> {
    let why = "it is no namespace: names have lower-case letters, digits and hyphens";
    crate::scope::is_namespace(text).then(|| text.to_owned()).ok_or_else(|| why.to_owned())
}

fn public_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("it is no URL: {error}"))?;
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => return Err("it has no host".to_owned()),
    };
    if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback) {
        return Err(
            "it must begin with https://: without TLS anybody on the way can read the tokens of people".to_owned()
        );
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err("it must be an origin without a path, such as https://signoff.example.com".to_owned());
    }
    Ok(url)
}

/// Parses the address of an issuer. The text is kept unchanged, because tokens name their issuer letter by letter.
fn issuer_url(text: &str) -> Result<IssuerUrl, String> {
    let issuer = IssuerUrl::new(text.to_owned()).map_err(|error| format!("it is no URL: {error}"))?;
    let url = issuer.url();
    if url.scheme() != "https" || url.host_str().is_none_or(str::is_empty) {
        return Err("it must begin with https://: the keys of all tokens come from there".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err(
            "an issuer has no query, fragment, user or password: type it as in its discovery document".to_owned()
        );
    }
    Ok(issuer)
}

fn session_length(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    let length = span.duration();
    if length > LONGEST_SESSION || length < SHORTEST_SESSION {
        return Err("a session lasts from 1m to 8h".to_owned());
    }
    Ok(span)
}

#[cfg(test)]
#[path = "../../../tests/command_reference.rs"]
mod command_reference;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_reference_of_the_command_line_is_that_of_the_program() {
        let head = "`signoff-web`\n\nThe inbox. The chart sets these options from its values.";
        command_reference::matches_page("signoff-web.md", head, Settings::command());
    }

    fn parse(arguments: &[&str]) -> Result<Settings, String> {
        let all = ["signoff-web"].iter().chain(arguments);
        Settings::try_parse_from(all).map_err(|error| error.to_string())
    }

    #[test]
    fn a_public_address_is_an_origin_with_tls() {
        for good in ["https://signoff.example.com", "http://localhost:8081", "http://127.0.0.1:9", "http://[::1]:9"] {
            assert!(parse(&["--url", good]).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("http://signoff.example.com", "must begin with https://"),
            ("https://signoff.example.com/inbox", "without a path"),
            ("signoff.example.com", "no URL"),
            ("ftp://localhost", "must begin with https://"),
        ] {
            assert!(parse(&["--url", bad]).unwrap_err().contains(why), "{bad}");
        }
    }

    #[test]
    fn an_issuer_is_kept_as_it_was_typed_and_has_tls() {
        let with = |issuer| parse(&["--url", "https://a.example", "--oidc-issuer", issuer, "--oidc-client-id", "x"]);
        for good in ["https://idp.example", "https://idp.example/", "https://idp.example/realms/a"] {
            assert_eq!(with(good).unwrap().oidc.issuer.unwrap().as_str(), good);
        }
        for (bad, why) in [
            ("http://idp.example", "must begin with https://"),
            ("http://127.0.0.1:9", "must begin with https://"),
            ("idp.example", "no URL"),
            ("https://idp.example?a=b", "no query"),
            ("https://u:p@idp.example", "no query"),
        ] {
            assert!(with(bad).unwrap_err().contains(why), "{bad}");
        }
        assert!(parse(&["--url", "https://a.example", "--oidc-client-id", "x"]).unwrap_err().contains("--oidc-issuer"));
    }

    #[test]
    fn no_session_is_longer_than_eight_hours() {
        let with = |span| parse(&["--url", "https://a.example", "--max-session", span]);
        assert!(with("8h").is_ok() && with("90m").is_ok());
        assert!(with("9h").unwrap_err().contains("from 1m to 8h"));
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused() {
        let problem = |more: &[&str]| {
            let arguments: Vec<_> = ["--url", "https://a.example"].iter().chain(more).copied().collect();
            parse(&arguments).unwrap().problem().unwrap_or_default()
        };
        assert_eq!(problem(&[]), "");
        assert!(problem(&["--auth", "legacy-impersonation"]).contains("--i-accept-legacy-impersonation"));
        assert!(problem(&["--auth", "impersonation"]).contains("--oidc-issuer"));
        assert!(problem(&["--no-token-sign-in"]).contains("nobody can sign in"));
    }
}
