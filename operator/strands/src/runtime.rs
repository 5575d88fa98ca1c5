//! Providers, agents and limits: the addresses of models, the agents, and the limits of time and repetition.
//!
//! **Invariant:** no key is copied from a file. If one is needed, a Secret is named.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use signoff_manifest::source::Node;

use super::{
    gates::{scalar_text, whole_number},
    import::Import,
    import_notes::NoteLevel,
    names::label,
};

/// A provider that files can name.
struct Provider {
    name: &'static str,
    /// The field of `spec.providers` for its kind.
    kind: &'static str,
    /// The base URL if the file has no host; `None` for that of the kind, or if there is none.
    base_url: Option<&'static str>,
    key: bool,
    /// The note about it.
    note: Option<&'static str>,
}

const PROVIDERS: [Provider; 7] = [
    Provider { name: "openai", kind: OPENAI, base_url: Some("https://api.openai.com/v1"), key: true, note: None },
    Provider { name: "ollama", kind: OLLAMA, base_url: Some("http://localhost:11434"), key: false, note: None },
    Provider { name: "anthropic", kind: ANTHROPIC, base_url: None, key: true, note: None },
    Provider { name: "gemini", kind: GEMINI, base_url: None, key: true, note: None },
    Provider {
        name: BEDROCK,
        kind: OPENAI,
        base_url: None,
        key: true,
        note: Some(
            "reached by its OpenAI-compatible address with a Bedrock API key: see that the model is offered there",
        ),
    },
    Provider { name: AZURE, kind: OPENAI, base_url: None, key: true, note: None },
    Provider { name: "local", kind: OPENAI, base_url: Some("http://localhost:8000/v1"), key: false, note: None },
];

const OPENAI: &str = "openai";
const ANTHROPIC: &str = "anthropic";
const GEMINI: &str = "gemini";
const OLLAMA: &str = "ollama";
const BEDROCK: &str = "bedrock";
const AZURE: &str = "azure_openai";

/// The longest duration of a Workflow, in seconds.
const MAX_SECONDS: u64 = 9_999_999;

/// The default model.
const MODEL: &str = "gpt-4o-mini";

impl Import<'_> {
    /// Sets the limits of patterns and steps, and the retry of steps, from the runtime. Returns `activeDeadline`.
    /// `kind`: the name of the pattern.
    pub(super) fn import_limits(&mut self, runtime: &Node, kind: &str) -> Option<String> {
        let path = "runtime";
        self.notes.read(runtime, "runtime", path);
        self.max_parallel = self.read_capped(runtime, path, "max_parallel", 256);
        if !["workflow", "parallel", "orchestrator_workers"].contains(&kind) {
            let why = "this pattern runs one step at a time: left out";
            self.notes.tell_unused(NoteLevel::Info, runtime, path, &["max_parallel"], why);
        }
        if let Some(policy) = runtime.get("failure_policy") {
            self.notes.read(policy, "runtime.failure_policy", "runtime.failure_policy");
            self.retry = self.import_retry(policy);
            let alone = match kind {
                "routing" => "the router is",
                "evaluator_optimizer" => "producer and evaluator are",
                "orchestrator_workers" => "the orchestrator is",
                _ => "",
            };
            if self.retry.is_some() && !alone.is_empty() {
                let why = format!("steps and workers are tried again where a call fails, {alone} not");
                self.notes.tell_unused(NoteLevel::Changed, runtime, path, &["failure_policy"], &why);
            }
        }
        let budgets = runtime.get("budgets")?;
        let path = "runtime.budgets";
        self.notes.read(budgets, "runtime.budgets", path);
        self.max_steps = self.read_capped(budgets, path, "max_steps", 1000);
        if kind != "graph" {
            self.notes.tell_unused(
                NoteLevel::Changed,
                budgets,
                path,
                &["max_steps"],
                "only graphs count their steps: left out",
            );
        }
        self.read_capped(budgets, path, "max_duration_s", MAX_SECONDS).map(|seconds| format!("{seconds}s"))
    }

    /// Returns a whole number, or `most` with a note if the number is larger.
    fn read_capped(&mut self, node: &Node, path: &str, field: &str, most: u64) -> Option<u64> {
        let number = whole_number(node, field)?;
        if number > most {
            self.notes.tell_unused(
                NoteLevel::Changed,
                node,
                path,
                &[field],
                &format!("at most {most} are allowed: set to {most}"),
            );
        }
        Some(number.min(most))
    }

    /// Returns `retry` of the steps of agents, or `None` if the file allows no retries.
    fn import_retry(&mut self, policy: &Node) -> Option<Value> {
        let path = "runtime.failure_policy";
        let Some(limit) = self.read_capped(policy, path, "retries", 20).filter(|limit| *limit > 0) else {
            let why = "it has no effect without retries: left out";
            self.notes.tell_unused(NoteLevel::Info, policy, path, &["backoff", "wait_min", "wait_max"], why);
            return None;
        };
        let mut backoff = Map::new();
        for (theirs, ours) in [("wait_min", "base"), ("wait_max", "max")] {
            if let Some(seconds) = self.read_capped(policy, path, theirs, MAX_SECONDS).filter(|seconds| *seconds > 0) {
                backoff.insert(ours.into(), format!("{seconds}s").into());
            }
        }
        let (factor, jitter) = match policy.get("backoff").map(scalar_text).as_deref() {
            Some("constant") => (1.0, 0.0),
            Some("jittered") => (2.0, 0.5),
            None | Some("" | "exponential") => (2.0, 0.0),
            Some(other) => {
                let why = format!("{other} is not one of constant, exponential and jittered: exponential is used");
                self.notes.tell_unused(NoteLevel::Changed, policy, path, &["backoff"], &why);
                (2.0, 0.0)
            }
        };
        backoff.insert("factor".into(), json!(factor));
        backoff.insert("jitter".into(), json!(jitter));
        Some(json!({"limit": limit, "backoff": backoff}))
    }

    /// Adds the schemas of agents to `schemas`, with a note about each schema that is in another file.
    pub(super) fn read_output_schemas(&mut self, agents: &Node) {
        for (key, agent) in agents.fields() {
            let Some(schema) = agent.get("output_schema") else { continue };
            if schema.fields().is_empty() {
                let message = "other files are not read: write the schema into this file";
                self.tell_at(NoteLevel::Unsupported, &format!("agents.{}.output_schema", key.name), schema, message);
            } else {
                self.schemas.insert(key.name.clone(), schema.to_json());
            }
        }
    }

    /// Imports the agents with their providers and tools. Returns `spec.secrets`, `spec.providers` and `spec.agents`.
    pub(super) fn import_agents(&mut self, runtime: Option<&Node>, agents: &Node, router: Option<&str>) -> [Value; 3] {
        let (mut providers, mut list) = (BTreeMap::new(), Vec::new());
        let of_runtime = |field: &str| runtime.and_then(|runtime| runtime.get(field));
        let default_provider = of_runtime("provider").map_or_else(|| "ollama".to_owned(), scalar_text);
        for (key, node) in agents.fields() {
            let path = format!("agents.{}", key.name);
            self.notes.read(node, "agent", &path);
            if let Some(inference) = node.get("inference") {
                self.notes.read(inference, "agent.inference", &format!("{path}.inference"));
            }
            if self.schemas.contains_key(&key.name) && !self.checked.contains(&key.name) {
                let why = "only answers of steps are checked, and no step is this agent's: left out";
                self.notes.tell_unused(NoteLevel::Changed, node, &path, &["output_schema"], why);
            }
            let kind = node.get("provider").map_or_else(|| default_provider.clone(), scalar_text);
            let provider = label(&kind, "provider");
            if !providers.contains_key(&provider) {
                let host = of_runtime("host").filter(|_| kind == default_provider).map(scalar_text);
                let region = of_runtime("region").map(scalar_text);
                let imported = self.import_provider(&kind, host, region, runtime.unwrap_or(node));
                providers.insert(provider.clone(), imported);
            }
            let mut agent =
                Map::from_iter([("name".to_owned(), json!(key.name)), ("provider".to_owned(), json!(provider))]);
            let model = node.get("model_id").or(of_runtime("model_id")).map_or_else(
                || {
                    self.notes.tell(NoteLevel::Changed, &path, &key.at, format!("no model is named: {MODEL} is asked"));
                    MODEL.to_owned()
                },
                scalar_text,
            );
            agent.insert("model".into(), model.into());
            if let Some(mut prompt) = self.import_text(node, "prompt") {
                if router == Some(&key.name) {
                    prompt = self.with_route_names(&prompt);
                }
                agent.insert("system".into(), prompt.into());
            }
            for (theirs, ours) in [("temperature", "temperature"), ("max_tokens", "maxTokens")] {
                let own = node.get("inference").and_then(|inference| inference.get(theirs));
                if let Some(value) = own.or(of_runtime(theirs)) {
                    agent.insert(ours.into(), value.to_json());
                }
            }
            let mut variants = vec![(key.name.clone(), self.import_tools_of_agent(&key.name, node))];
            for at in 0..self.variants.len() {
                variants.extend(self.import_tools_of_variant(at, &key.name));
            }
            for (name, tools) in variants {
                let mut agent = Map::from_iter(agent.iter().map(|(field, value)| (field.clone(), value.clone())));
                agent.insert("name".into(), name.into());
                if !tools.is_empty() {
                    agent.insert("tools".into(), json!(tools));
                }
                list.push(Value::Object(agent));
            }
        }
        self.tell_unused_tools();
        if let Some(runtime) = runtime.filter(|_| !providers.contains_key(BEDROCK)) {
            self.notes.tell_unused(
                NoteLevel::Info,
                runtime,
                "runtime",
                &["region"],
                "no agent is asked at bedrock: left out",
            );
        }
        let kinds =
            providers.values().flat_map(|provider: &Value| provider.as_object().into_iter().flat_map(Map::values));
        let names = kinds.filter_map(|kind| kind.get("key"));
        let secrets = names.map(|name| json!({"name": name, "secret": name, "key": "api-key"})).collect();
        [secrets, providers.into_values().collect(), Value::Array(list)]
    }

    /// Returns the entry of `spec.providers` for a provider of the file. `host`, `region`: from the runtime, if given.
    /// `at`: the node of the notes.
    fn import_provider(&mut self, kind: &str, host: Option<String>, region: Option<String>, at: &Node) -> Value {
        let name = label(kind, "provider");
        let known = PROVIDERS.iter().find(|known| known.name == kind);
        let field = "runtime.provider";
        let address = match (host, known, region) {
            (Some(host), known, _) => Some(base_url(known, &host)),
            (None, Some(known), region) if known.name == BEDROCK => {
                let region = region.unwrap_or_else(|| "us-east-1".to_owned());
                Some(format!("https://bedrock-runtime.{region}.amazonaws.com/openai/v1"))
            }
            (None, Some(known), _) if known.base_url.is_some() => known.base_url.map(str::to_owned),
            (None, Some(known), _) if known.kind != OPENAI => None,
            (None, ..) => {
                let message = format!("the address of {kind} is not known: write it into spec.providers");
                self.tell_at(NoteLevel::Unsupported, field, at, message);
                Some("https://models.invalid/v1".to_owned())
            }
        };
        if let Some(note) = known.and_then(|known| known.note) {
            self.tell_at(NoteLevel::Changed, field, at, format!("{kind} is {note}"));
        }
        let mut api = Map::new();
        if let Some(address) = address {
            api.insert("baseURL".into(), address.into());
        }
        if known.is_none_or(|known| known.key) {
            let message = format!("the key of {kind} is taken from the key `api-key` of the Secret {name}");
            self.tell_at(NoteLevel::Info, field, at, message);
            api.insert("key".into(), json!(name));
        }
        let kind_of_api = known.map_or(OPENAI, |known| known.kind);
        json!({"name": name, kind_of_api: api})
    }
}

/// Returns the base URL for the host of a file, with the path that the kind of the provider expects there.
fn base_url(known: Option<&Provider>, host: &str) -> String {
    let host = host.trim_end_matches('/');
    match known {
        Some(Provider { kind: ANTHROPIC | OLLAMA, .. }) => host.strip_suffix("/v1").unwrap_or(host).to_owned(),
        Some(Provider { kind: GEMINI, .. }) => {
            let host = host.strip_suffix("/openai").unwrap_or(host);
            let has_version = ["/v1", "/v1beta"].iter().any(|version| host.ends_with(version));
            if has_version { host.to_owned() } else { format!("{host}/v1beta") }
        }
        Some(Provider { name: AZURE, .. }) if !host.ends_with("/v1") => format!("{host}/openai/v1"),
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{PROVIDERS, base_url};

    #[test]
    fn a_host_becomes_the_base_url_that_the_kind_expects() {
        for (provider, host, expected) in [
            ("openai", "http://localhost:4010/v1/", "http://localhost:4010/v1"),
            ("ollama", "http://models:11434", "http://models:11434"),
            ("ollama", "http://models:11434/v1/", "http://models:11434"),
            ("anthropic", "https://claude.example.com/", "https://claude.example.com"),
            ("anthropic", "https://claude.example.com/v1", "https://claude.example.com"),
            ("gemini", "https://gemini.example.com", "https://gemini.example.com/v1beta"),
            ("gemini", "https://gemini.example.com/v1beta/openai/", "https://gemini.example.com/v1beta"),
            ("gemini", "https://gemini.example.com/v1", "https://gemini.example.com/v1"),
            ("azure_openai", "https://acme.openai.azure.com/", "https://acme.openai.azure.com/openai/v1"),
            ("azure_openai", "https://acme.openai.azure.com/openai/v1", "https://acme.openai.azure.com/openai/v1"),
            ("somewhere", "https://models.example.com/api/", "https://models.example.com/api"),
        ] {
            let known = PROVIDERS.iter().find(|known| known.name == provider);
            assert_eq!(base_url(known, host), expected, "{provider}: {host}");
        }
    }
}
