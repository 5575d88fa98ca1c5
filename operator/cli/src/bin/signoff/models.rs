//! `signoff models`: lists the models that a provider offers, and tries one model with a tool.
//!
//! **Invariant:** a turn, which costs money, is sent only with `--yes` or after the user has confirmed it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};
use serde_json::json;
use signoff_api::{
    Span,
    workflow::{ModelApi, OpenAi, OpenAiApi, Provider, ProviderKind, SecretEntry},
};
use signoff_cli::{sanitize::one_line, table::render_table, terminal};
use signoff_engine::{
    Settings,
    transition::{Message, Role, ToolCall, ToolOffer},
};
use signoff_executor::{
    AddressSettings, CallError, HttpClient, Model as _, Providers, SecretText, Secrets as _, TurnReply, TurnRequest,
    UnboundedRoom, http::HttpSettings,
};
use signoff_local::LocalSecrets;
use signoff_manifest::report;
use signoff_strands::read_any;
use url::Url;

use crate::{exit::Exit, texts};

/// The default timeout of a request, as of a step with an agent.
const TIMEOUT: &str = "5m";
/// The namespace under which this process caches what it learns about providers.
const NAMESPACE: &str = "local";
/// The name of the tool that the model is offered.
const TOOL: &str = "echo";

/// List the models that a provider offers, and try one turn with a tool
#[derive(Args, Debug)]
pub struct Models {
    /// The kind of the provider: openai, anthropic, gemini or ollama; with --file, the name of a provider in the file
    #[arg(value_name = "PROVIDER")]
    provider: String,
    /// The file of a Workflow that has the provider, or - for standard input
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["base_url", "api", "key"])]
    file: Option<PathBuf>,
    /// The base URL of the server. Default: that of the provider
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The API of an openai server
    #[arg(long, value_enum)]
    api: Option<Api>,
    /// The key: a Secret and a key of it, as in models/token. It is read as `signoff run` reads it
    #[arg(long, value_name = "SECRET/KEY")]
    key: Option<String>,
    /// The folder of Secrets. Without it, each key is the environment variable SIGNOFF_SECRET_<NAME>_<KEY>
    #[arg(long, value_name = "DIR")]
    secrets_dir: Option<PathBuf>,
    /// The model to try one turn with a tool; that costs some tokens
    #[arg(long = "try", value_name = "MODEL", value_parser = parse_model_name)]
    model: Option<String>,
    /// Try it without asking
    #[arg(long, short, requires = "model")]
    yes: bool,
    /// The longest time for the list, and for each request of the turn, such as 30s or 10m
    #[arg(long, value_name = "DURATION", default_value = TIMEOUT, value_parser = parse_timeout)]
    timeout: Duration,
}

/// The APIs of an openai server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Api {
    /// Chat completions.
    Chat,
    /// Responses.
    Responses,
}

/// Prints the models that the provider offers, and the result of a turn with `--try`.
pub async fn models(options: Models) -> anyhow::Result<Exit> {
    let (provider, entry) = read_provider(&options)?;
    let Some(endpoint) = provider.kind().and_then(ProviderKind::endpoint).map(str::to_owned) else {
        return Err(Exit::Usage.because(format!("provider {} asks no server: name one that does", provider.name)));
    };
    let url = endpoint.parse::<Url>().map_err(|why| {
        Exit::Invalid.because(format!("provider {}: baseURL is not a valid URL: {why}", provider.name))
    })?;
    let server = Server {
        key: read_key(&options, entry.as_ref(), &url).await?,
        timeout: options.timeout,
        providers: Providers::new(HttpClient::new(HttpSettings {
            addresses: AddressSettings::default().with_loopback(),
            ..HttpSettings::default()
        })?),
        provider,
    };
    server.print_models(&url, options.model.is_some()).await?;
    match &options.model {
        Some(model) => server.print_trial(model, &endpoint, options.yes).await,
        None => Ok(Exit::Ok),
    }
}

/// Returns the provider of the file or of the options, and the Secret entry of its key.
fn read_provider(options: &Models) -> anyhow::Result<(Provider, Option<SecretEntry>)> {
    match &options.file {
        Some(file) => find_provider(file, &options.provider),
        None => build_provider(options),
    }
}

/// Returns the provider of this name in the file of a Workflow, and the Secret entry of its key.
fn find_provider(file: &Path, name: &str) -> anyhow::Result<(Provider, Option<SecretEntry>)> {
    let texts::Text { name: source, text, .. } = texts::read_one(file).map_err(|why| Exit::Usage.because(why))?;
    let read = read_any(&text, "", &Settings::default());
    let workflow = read.map(|read| read.workflow).map_err(|problems| {
        let counted = report::counted(&problems);
        Exit::Invalid.because(format!("{source}: {counted}: see signoff validate {}", texts::display_path(file)))
    })?;
    let found = workflow.spec.providers.iter().find(|provider| provider.name == *name).cloned();
    let provider = found.ok_or_else(|| {
        let names: Vec<_> = workflow.spec.providers.iter().map(|provider| provider.name.as_str()).collect();
        Exit::Usage.because(format!("{source} has no provider {name}: it has {}", names.join(", ")))
    })?;
    let key = provider.kind().and_then(ProviderKind::key);
    let entry = workflow.spec.secrets.iter().find(|entry| Some(entry.name.as_str()) == key).cloned();
    Ok((provider, entry))
}

/// Returns the provider that the options describe, and the Secret entry of its key.
fn build_provider(options: &Models) -> anyhow::Result<(Provider, Option<SecretEntry>)> {
    let name = &options.provider;
    let entry = options.key.as_deref().map(parse_secret_entry).transpose()?;
    let (base_url, key) = (options.base_url.clone(), entry.as_ref().map(|entry| entry.name.clone()));
    let api = options.api.map(|api| match api {
        Api::Chat => OpenAiApi::Chat,
        Api::Responses => OpenAiApi::Responses,
    });
    let model_api = ModelApi { base_url: base_url.clone(), key: key.clone() };
    let mut provider = Provider { name: name.clone(), ..Provider::default() };
    match name.as_str() {
        "openai" => provider.openai = Some(OpenAi { base_url, key, api }),
        "anthropic" | "gemini" | "ollama" if api.is_some() => {
            let message = format!("--api: the kind {name} has no field api, only openai has it; leave --api out");
            return Err(Exit::Usage.because(message));
        }
        "anthropic" => provider.anthropic = Some(model_api),
        "gemini" => provider.gemini = Some(model_api),
        "ollama" => provider.ollama = Some(model_api),
        other => {
            let kinds = Provider::KINDS.into_iter().filter(|kind| *kind != "scripted").collect::<Vec<_>>().join(", ");
            return Err(
                Exit::Usage.because(format!("{other} is no kind of a provider: name one of {kinds}, or a file"))
            );
        }
    }
    if let Some(why) = provider.kind().and_then(ProviderKind::base_url_error) {
        return Err(Exit::Usage.because(format!("--base-url: {why}")));
    }
    Ok((provider, entry))
}

/// Reads the key of the entry, or returns `None` without an entry.
async fn read_key(options: &Models, entry: Option<&SecretEntry>, url: &Url) -> anyhow::Result<Option<SecretText>> {
    let Some(entry) = entry else { return Ok(None) };
    let secrets = options.secrets_dir.as_ref().map_or_else(LocalSecrets::default, LocalSecrets::in_folder);
    let found = secrets.get(NAMESPACE, &entry.secret, &entry.key, url).await;
    found.map(Some).map_err(|error| Exit::Usage.because(error.to_string()))
}

fn parse_model_name(typed: &str) -> Result<String, String> {
    if typed.trim().is_empty() {
        return Err("it is empty: name a model of the provider".to_owned());
    }
    Ok(typed.to_owned())
}

/// Parses the longest time for a request, which must not be zero.
pub fn parse_timeout(typed: &str) -> Result<Duration, String> {
    let timeout = typed.parse::<Span>()?.duration();
    if timeout.is_zero() {
        return Err("it leaves no time for an answer: give a longer one, such as 30s".to_owned());
    }
    Ok(timeout)
}

/// Parses the Secret and its key that `--key` names.
pub fn parse_secret_entry(typed: &str) -> anyhow::Result<SecretEntry> {
    // The message does not repeat the text, which might be the key itself.
    let parts = typed.split_once('/').filter(|(secret, key)| !secret.is_empty() && !key.is_empty());
    let (secret, key) =
        parts.ok_or_else(|| Exit::Usage.because("--key is a Secret and a key of it, as in models/token"))?;
    Ok(SecretEntry { name: "key".into(), secret: secret.into(), key: key.into() })
}

/// Returns the host, with the port unless it is the default port of the scheme.
pub fn host_and_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// A provider with its key.
struct Server {
    providers: Providers,
    provider: Provider,
    key: Option<SecretText>,
    timeout: Duration,
}

/// The replies of a model that was tried.
struct Trial {
    first: TurnReply,
    /// The reply to the result of the call, or `None` if the model called no tool, or one that was not offered.
    second: Option<TurnReply>,
}

impl Server {
    /// Prints the models that the provider offers. `is_optional`: whether a missing list is only a note, because the
    /// models of a gateway can work without a list.
    async fn print_models(&self, url: &Url, is_optional: bool) -> anyhow::Result<()> {
        terminal::progress(&format!("asking {} for its list of models...", host_and_port(url)));
        match self.providers.offered(&self.provider, self.key.as_ref(), self.timeout).await {
            Ok(offered) if offered.is_empty() => terminal::print("The provider lists no models.\n")?,
            Ok(offered) => {
                let rows = offered.iter().map(|model| vec![one_line(model, 120)]).collect();
                terminal::print(&render_table(&["MODEL"], rows))?;
            }
            Err(error) if is_optional => terminal::note(&format!("no list of models: {error}")),
            Err(error) => return Err(Exit::Failed.because(error.to_string())),
        }
        Ok(())
    }

    /// Tries one turn with a model, and prints the result. Asks first, unless `yes` is set.
    async fn print_trial(&self, model: &str, endpoint: &str, yes: bool) -> anyhow::Result<Exit> {
        let shown = one_line(model, 120);
        let endpoint = one_line(endpoint, 512);
        let question = format!("Try one turn with a tool at {endpoint}? It costs some tokens of {shown}.");
        let may_try = yes || (terminal::can_ask() && terminal::ask(&question)?);
        if !may_try {
            terminal::note("nothing was tried: answer the question with yes, or add --yes");
            return Ok(Exit::Usage);
        }
        terminal::progress(&format!("trying one turn with {shown}..."));
        let trial = self.try_tool(model).await.map_err(|error| Exit::Failed.because(error.to_string()))?;
        let left_out = self.providers.left_out(NAMESPACE, &self.provider, model);
        let left_out = if left_out.is_empty() { "nothing".to_owned() } else { left_out.join(", ") };
        let rows = trial.render_rows().into_iter().chain([row("Refuses", left_out)]).collect();
        terminal::print(&render_table(&["WHAT", "FOUND"], rows))?;
        Ok(Exit::Ok)
    }

    /// Asks a model to call a tool. If it calls only this tool, sends the result of the call.
    async fn try_tool(&self, model: &str) -> Result<Trial, CallError> {
        let question = Message::text(Role::User, "Call the tool echo with the word ready. Then say what it returned.");
        let first = self.send_turn(model, vec![question.clone()]).await?;
        let offered = first.calls.first().filter(|_| unoffered_tool(&first).is_none());
        let Some(call) = offered else { return Ok(Trial { first, second: None }) };
        let id = if call.id.is_empty() { "call-1".to_owned() } else { call.id.clone() };
        let arguments = json!({"word": "ready"}).to_string();
        let requested = ToolCall { id: id.clone(), tool: call.tool.clone(), arguments };
        let opaque = first.opaque.clone().map(std::sync::Arc::new);
        let reply = Message { calls: vec![requested], opaque, ..Message::text(Role::Assistant, first.text.clone()) };
        let second = self.send_turn(model, vec![question, reply, Message::result(id, "ready")]).await?;
        Ok(Trial { first, second: Some(second) })
    }

    async fn send_turn(&self, model: &str, messages: Vec<Message>) -> Result<TurnReply, CallError> {
        let parameters = json!({"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]});
        let request = TurnRequest {
            provider: self.provider.clone(),
            namespace: NAMESPACE.to_owned(),
            model: model.to_owned(),
            system: Some("You try whether tools work.".to_owned()),
            messages,
            tools: vec![ToolOffer { name: TOOL.to_owned(), description: "Returns a word.".to_owned(), parameters }],
            max_tokens: Some(2000),
            temperature: Some(0.0),
            timeout: self.timeout,
            key: self.key.clone(),
        };
        self.providers.turn(request, &UnboundedRoom).await
    }
}

impl Trial {
    fn render_rows(&self) -> Vec<Vec<String>> {
        let Self { first, second } = self;
        let calls = match (first.calls.iter().any(|call| call.tool == TOOL), unoffered_tool(first)) {
            (true, None) => "yes".to_owned(),
            (true, Some(tool)) => format!("yes, but it also called {tool}, which was not offered"),
            (false, Some(tool)) => format!("no: it called {tool}, which was not offered"),
            (false, None) => "no: it did not call the tool that it was offered".to_owned(),
        };
        let kept = first.opaque.as_ref().map_or_else(
            || "nothing".to_owned(),
            |opaque| format!("{} bytes, which go back with the call and are never shown", opaque.bytes()),
        );
        let mut rows = vec![row("Calls a tool", calls), row("Wants back", kept)];
        if let Some(second) = second {
            let result = match unoffered_tool(second) {
                Some(tool) => format!("yes, but it then called {tool}, which was not offered"),
                None if second.text.trim().is_empty() => "yes, with an empty answer".to_owned(),
                None => "yes".to_owned(),
            };
            rows.push(row("Takes the result", result));
        }
        let used = second.iter().chain([first]).filter_map(|reply| reply.usage).reduce(|mut sum, more| {
            sum += more;
            sum
        });
        rows.push(row("Tokens", used.map_or_else(|| "not reported".to_owned(), |usage| usage.to_string())));
        rows
    }
}

/// Returns the name of a tool that was called without being offered, for a terminal.
fn unoffered_tool(reply: &TurnReply) -> Option<String> {
    reply.calls.iter().find(|call| call.tool != TOOL).map(|call| one_line(&call.tool, 120))
}

fn row(what: &str, found: impl Into<String>) -> Vec<String> {
    vec![what.to_owned(), found.into()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::turn::{RequestedArguments, RequestedCall};

    use super::*;

    fn reply(tools: &[&str]) -> TurnReply {
        let call = |tool: &&str| RequestedCall {
            id: String::new(),
            tool: (*tool).to_owned(),
            arguments: RequestedArguments::Text("{}".to_owned()),
        };
        let calls = tools.iter().map(call).collect();
        TurnReply { text: "ready".to_owned(), calls, dropped: 0, opaque: None, usage: None, truncated: false }
    }

    #[test]
    fn a_call_of_a_tool_that_was_not_offered_is_named_in_each_turn() {
        let found = |first: &[&str], second: &[&str]| {
            let rows = Trial { first: reply(first), second: Some(reply(second)) }.render_rows();
            ["Calls a tool", "Takes the result"].map(|what| rows.iter().find(|row| row[0] == what).unwrap()[1].clone())
        };
        assert_eq!(found(&["echo"], &[]), ["yes", "yes"]);
        let [calls, takes] = found(&["echo", "launch"], &["echo", "launch\u{1b}[31m"]);
        assert_eq!(calls, "yes, but it also called launch, which was not offered");
        assert_eq!(takes, "yes, but it then called launch[31m, which was not offered");
        assert_eq!(found(&["launch"], &[])[0], "no: it called launch, which was not offered");
        assert_eq!(found(&[], &[])[0], "no: it did not call the tool that it was offered");
    }

    #[test]
    fn the_host_is_shown_without_user_path_and_usual_port() {
        let shown = |url: &str| host_and_port(&url.parse().unwrap());
        assert_eq!(shown("https://user:hunter2@models.example.com:443/v1"), "models.example.com");
        assert_eq!(shown("http://[::1]:11434"), "[::1]:11434");
    }

    #[test]
    fn the_usual_timeout_can_be_read() {
        assert_eq!(parse_timeout(TIMEOUT), Ok(Duration::from_secs(300)));
    }
}
