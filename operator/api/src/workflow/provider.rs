//! The model providers of a Workflow, and the Secrets that it uses.
//!
//! `executor/src/agent.rs` chooses the protocol of a provider.
//!
//! **Invariant:** all code that needs the address of a provider or its key uses [`Provider::kind`]. A new kind does not
//! compile without both.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{hosts, values::JsonObject};

/// A key of a Secret that a run uses. The creator of the Workflow must be allowed to read the Secret, and the
/// annotation `signoff.dev/allowed-hosts` of the Secret must list each host to which the value is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretEntry {
    /// The name by which other fields refer to the entry.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The name of the Secret, in the namespace of the Workflow.
    #[schemars(length(min = 1, max = 253))]
    pub secret: String,
    /// The key in the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A model provider. Exactly one of `openai`, `anthropic`, `gemini`, `ollama` and `scripted`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new(
    "(has(self.openai) ? 1 : 0) + (has(self.anthropic) ? 1 : 0) + (has(self.gemini) ? 1 : 0) + (has(self.ollama) ? 1 : 0) + (has(self.scripted) ? 1 : 0) == 1"
).optional_old_self(true).message(Provider::ONE_KIND))]
pub struct Provider {
    /// The name by which agents refer to the provider.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// A server with the OpenAI chat completions API or Responses API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openai: Option<OpenAi>,
    /// A server with the Messages API of Anthropic. Default of `baseURL`: `https://api.anthropic.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anthropic: Option<ModelApi>,
    /// A server with the Gemini API. Default of `baseURL`: `https://generativelanguage.googleapis.com/v1beta`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gemini: Option<ModelApi>,
    /// A server with the API of Ollama. Default of `baseURL`: `http://localhost:11434`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ollama: Option<ModelApi>,
    /// Scripted replies, for demonstrations and tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripted: Option<Scripted>,
}

/// A server with the OpenAI chat completions API or Responses API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenAi {
    /// The base URL, without `/chat/completions` or `/responses`. Default: `https://api.openai.com/v1`.
    #[serde(default, rename = "baseURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), pattern("^https?://"))]
    pub base_url: Option<String>,
    /// The API key: the name of an entry of `spec.secrets`. Default: none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub key: Option<String>,
    /// The API that is called. Default: `chat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<OpenAiApi>,
}

/// The APIs of servers that speak as OpenAI's do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OpenAiApi {
    /// Chat completions.
    #[default]
    Chat,
    /// Responses.
    Responses,
}

/// A server of models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelApi {
    /// The base URL.
    #[serde(default, rename = "baseURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), pattern("^https?://"))]
    pub base_url: Option<String>,
    /// The API key: the name of an entry of `spec.secrets`. Default: none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub key: Option<String>,
}

/// Scripted replies of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scripted {
    /// The replies. The first one whose `contains` occurs in the last message is used.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub replies: Vec<ScriptedReply>,
}

/// One scripted reply: a text, calls of tools or both; or an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("(has(self.text) || has(self.calls)) != has(self.error)").message("a scripted reply is either text, calls or both, or an error"))]
pub struct ScriptedReply {
    /// The text that must occur in the last message. Default: matches every message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub contains: Option<String>,
    /// The reply of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub text: Option<String>,
    /// The tools that the model calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub calls: Vec<ScriptedCall>,
    /// The error with which the model fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub error: Option<String>,
}

/// One call of a tool in a scripted reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScriptedCall {
    /// The name of the tool.
    #[schemars(length(min = 1, max = 64))]
    pub tool: String,
    /// The arguments. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<JsonObject>,
}

/// The kind of a provider, with its fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProviderKind<'a> {
    /// A server with one of OpenAI's APIs.
    OpenAi(&'a OpenAi),
    /// A server with the Messages API of Anthropic.
    Anthropic(&'a ModelApi),
    /// A server with the Gemini API.
    Gemini(&'a ModelApi),
    /// A server with the API of Ollama.
    Ollama(&'a ModelApi),
    /// Scripted replies.
    Scripted(&'a Scripted),
}

impl Provider {
    /// The fields that are kinds.
    pub const KINDS: [&str; 5] = ["openai", "anthropic", "gemini", "ollama", "scripted"];

    /// The error of a provider that has no kind.
    pub const ONE_KIND: &str = "a provider is exactly one of openai, anthropic, gemini, ollama and scripted";

    /// Returns the kind, or `None` unless the provider has exactly one.
    #[must_use]
    pub fn kind(&self) -> Option<ProviderKind<'_>> {
        self.try_kind().ok()
    }

    /// Returns the kind.
    ///
    /// # Errors
    /// The provider has no kind, or several.
    pub fn try_kind(&self) -> Result<ProviderKind<'_>, String> {
        let Self { name: _, openai, anthropic, gemini, ollama, scripted } = self;
        let given = [
            openai.as_ref().map(ProviderKind::OpenAi),
            anthropic.as_ref().map(ProviderKind::Anthropic),
            gemini.as_ref().map(ProviderKind::Gemini),
            ollama.as_ref().map(ProviderKind::Ollama),
            scripted.as_ref().map(ProviderKind::Scripted),
        ];
        let given: Vec<_> = given.into_iter().flatten().collect();
        if let [only] = given.as_slice() {
            return Ok(*only);
        }
        let mut names: Vec<_> = given.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        match names.split_last() {
            None => Err(Self::ONE_KIND.to_owned()),
            Some((last, others)) => Err(format!("it has {} and {last}: keep one", others.join(", "))),
        }
    }
}

impl<'a> ProviderKind<'a> {
    /// Returns the name of its field.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi(_) => "openai",
            Self::Anthropic(_) => "anthropic",
            Self::Gemini(_) => "gemini",
            Self::Ollama(_) => "ollama",
            Self::Scripted(_) => "scripted",
        }
    }

    /// Returns the base URL of its server, or `None` without a server.
    #[must_use]
    pub fn endpoint(self) -> Option<&'a str> {
        let (own, usual) = match self {
            Self::OpenAi(OpenAi { base_url, .. }) => (base_url, "https://api.openai.com/v1"),
            Self::Anthropic(ModelApi { base_url, .. }) => (base_url, "https://api.anthropic.com"),
            Self::Gemini(ModelApi { base_url, .. }) => (base_url, "https://generativelanguage.googleapis.com/v1beta"),
            Self::Ollama(ModelApi { base_url, .. }) => (base_url, "http://localhost:11434"),
            Self::Scripted(_) => return None,
        };
        Some(own.as_deref().unwrap_or(usual))
    }

    /// Returns the error of its base URL, or `None`. The error does not quote the URL, because it can contain a key.
    #[must_use]
    pub fn base_url_error(self) -> Option<&'static str> {
        let url = Url::parse(self.endpoint()?).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = url else {
            return Some("not a valid URL: write it as in https://models.example.com/v1");
        };
        if hosts::has_credentials(&url) {
            Some("it has a user name or a password: leave them out, and give a key by `key` and `spec.secrets`")
        } else if url.query().is_some() {
            Some(
                "it has a query: leave out `?` and the rest, and give a key by `key` and `spec.secrets`. \
                 Azure OpenAI needs no api-version at https://RESOURCE.openai.azure.com/openai/v1",
            )
        } else {
            url.fragment().map(|_| "it has a fragment: leave out `#` and the rest")
        }
    }

    /// Returns the name of the entry of `spec.secrets` with its key, or `None` without a key.
    #[must_use]
    pub fn key(self) -> Option<&'a str> {
        match self {
            Self::OpenAi(OpenAi { key, .. }) => key.as_deref(),
            Self::Anthropic(api) | Self::Gemini(api) | Self::Ollama(api) => api.key.as_deref(),
            Self::Scripted(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn provider(mut fields: Value) -> Provider {
        fields["name"] = json!("p");
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn every_field_but_the_name_is_a_kind() {
        let schema = serde_json::to_value(schemars::schema_for!(Provider)).unwrap();
        let fields = schema["properties"].as_object().unwrap().keys().filter(|field| *field != "name");
        let mut fields: Vec<_> = fields.map(String::as_str).collect();
        fields.sort_by_key(|field| Provider::KINDS.iter().position(|kind| kind == field));
        assert_eq!(fields, Provider::KINDS);
        assert!(Provider::KINDS.iter().all(|kind| Provider::ONE_KIND.contains(kind)));
    }

    #[test]
    fn a_provider_has_exactly_one_kind_and_a_server_its_usual_address() {
        for fields in [json!({}), json!({"openai": {}, "scripted": {"replies": []}})] {
            assert_eq!(provider(fields).kind(), None);
        }
        let error = |fields| provider(fields).try_kind().unwrap_err();
        assert_eq!(error(json!({})), Provider::ONE_KIND);
        assert_eq!(error(json!({"openai": {}, "anthropic": {}})), "it has anthropic and openai: keep one");
        assert_eq!(
            error(json!({"openai": {}, "ollama": {}, "gemini": {}})),
            "it has gemini, ollama and openai: keep one"
        );
        for kind in Provider::KINDS {
            if kind == "scripted" {
                let scripted = provider(json!({"scripted": {"replies": []}}));
                let scripted = scripted.kind().unwrap();
                assert_eq!((scripted.name(), scripted.endpoint(), scripted.key()), (kind, None, None));
                assert_eq!(scripted.base_url_error(), None);
                continue;
            }
            let own = provider(json!({kind: {"baseURL": "https://models.example.com/v1", "key": "k"}}));
            let own = own.kind().unwrap();
            assert_eq!((own.endpoint(), own.key()), (Some("https://models.example.com/v1"), Some("k")), "{kind}");
            let usual = provider(json!({kind: {}}));
            let usual = usual.kind().unwrap();
            assert!(usual.endpoint().unwrap().starts_with("http") && usual.key().is_none(), "{kind}");
            assert_eq!((own.name(), own.base_url_error(), usual.base_url_error()), (kind, None, None));
        }
    }

    #[test]
    fn a_base_url_has_no_credentials_query_or_fragment() {
        let error =
            |url: &str| provider(json!({"openai": {"baseURL": url}})).kind().and_then(ProviderKind::base_url_error);
        for url in ["http://localhost:11434", "https://models.example.com/v1/", "https://[::1]:8080/v1/a@b"] {
            assert_eq!(error(url), None, "{url}");
        }
        for (url, part) in [
            ("https://dana:hunter2@models.example.com/v1", "a user name or a password"),
            ("https://hunter2@models.example.com/v1?a=b#c", "a user name or a password"),
            ("https://:hunter2@models.example.com/v1", "a user name or a password"),
            ("https://models.example.com/v1?api-key=hunter2", "a query"),
            ("https://models.example.com/v1?", "a query"),
            ("https://models.example.com/v1#hunter2", "a fragment"),
            ("https://models.example.com:hunter2", "not a valid URL"),
            ("https://", "not a valid URL"),
            ("models.example.com/v1", "not a valid URL"),
            ("models.example.com:8000/v1", "not a valid URL"),
        ] {
            let why = error(url).unwrap();
            assert!(why.contains(part) && !why.contains("hunter2"), "{url}: {why}");
        }
    }
}
