//! The examples of models, run on this machine with a server that answers in the protocol of each.
//!
//! The tests only check that each example sends requests to the path, and with the key, of its provider. No server is
//! real.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    http::{HeaderMap, Uri},
};
use serde_json::{Value, json};
use signoff_api::{ApprovalRequest, Decision, Workflow, workflow::Provider};
use signoff_local::{Local, LocalSecrets, RunOutcome, Sessions, from_yaml};
use tokio::sync::mpsc;
use url::Url;

use crate::story::among;

/// The beginning of the names of these examples.
pub(crate) const FOLDER: &str = "models/";

const KEY: &str = "a-key";
const BEARER: Option<(&str, &str)> = Some(("authorization", "Bearer a-key"));

/// An example: its name, the path of its requests, the header with its key, and the answer of the model.
type Example = (&'static str, &'static str, Option<(&'static str, &'static str)>, &'static str);

const EXAMPLES: [Example; 8] = [
    ("models/anthropic", "/v1/messages", Some(("x-api-key", KEY)), "We are sorry."),
    ("models/azure", "/openai/v1/chat/completions", BEARER, "We look for a nurse."),
    (
        "models/gemini",
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        Some(("x-goog-api-key", KEY)),
        "Montag geschlossen.",
    ),
    ("models/ollama", "/api/chat", None, "A customer waits for a parcel."),
    ("models/openai-chat", "/v1/chat/completions", BEARER, "* Exports are faster."),
    ("models/openai-responses", "/v1/responses", BEARER, "1. Make a backup."),
    ("models/own-gateway", "/v1/chat/completions", BEARER, "Your order arrives on Tuesday."),
    ("models/vllm", "/v1/chat/completions", None, r#"{"team":"billing","urgent":false}"#),
];

/// Returns a whole answer with a text, in the protocol of a path.
fn answer(path: &str, text: &str) -> Value {
    match path {
        _ if path.ends_with("/v1/messages") => {
            json!({"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"})
        }
        _ if path.ends_with("/responses") => {
            let content = json!([{"type": "output_text", "text": text}]);
            json!({"status": "completed", "output": [{"type": "message", "role": "assistant", "content": content}]})
        }
        _ if path.ends_with("/api/chat") => json!({"message": {"role": "assistant", "content": text}, "done": true}),
        _ if path.contains(":streamGenerateContent") => {
            json!({"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]})
        }
        _ => signoff_tests::chat_completions::completion(Some(text), &[], "stop"),
    }
}

/// A request: its path with the query, its headers, and its body.
type Request = (String, HeaderMap, Value);

/// Starts a server of models. Returns its address, and its requests.
async fn server(text: &'static str) -> (String, mpsc::UnboundedReceiver<Request>) {
    let (to, asked) = mpsc::unbounded_channel();
    let handle = move |uri: Uri, headers: HeaderMap, Json(body): Json<Value>| {
        let path = uri.to_string();
        let answered = answer(&path, text);
        to.send((path, headers, body)).unwrap();
        std::future::ready(Json(answered))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async { axum::serve(listener, Router::new().fallback(handle)).await });
    (address, asked)
}

/// Changes every provider of a Workflow to another server, under the path of its own.
fn move_providers(workflow: &mut Workflow, address: &str) {
    for provider in &mut workflow.spec.providers {
        let own = Url::parse(provider.kind().unwrap().endpoint().unwrap()).unwrap();
        let moved = Some(format!("http://{address}{}", own.path().trim_end_matches('/')));
        let Provider { name: _, openai, anthropic, gemini, ollama, scripted: _ } = provider;
        openai.iter_mut().for_each(|api| api.base_url.clone_from(&moved));
        [anthropic, gemini, ollama].into_iter().flatten().for_each(|api| api.base_url.clone_from(&moved));
    }
}

#[tokio::test]
async fn every_example_of_a_model_calls_its_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let examples: BTreeMap<_, _> =
        among(|name| name.starts_with(FOLDER)).into_iter().map(|example| (example.name, example.text)).collect();
    let names: Vec<_> = examples.keys().map(String::as_str).collect();
    assert_eq!(names, EXAMPLES.map(|(name, ..)| name));
    signoff_tests::tried(names.len(), "examples of models");
    for (name, path, key, text) in EXAMPLES {
        let (address, mut asked) = server(text).await;
        let mut workflow = from_yaml(&examples[name], "dana@example.com").unwrap_or_else(|why| panic!("{name}: {why}"));
        move_providers(&mut workflow, &address);
        let models: Vec<_> = workflow.spec.agents.iter().filter_map(|agent| agent.model.clone()).collect();
        let folder = tempfile::tempdir().unwrap();
        for entry in &workflow.spec.secrets {
            let secret = folder.path().join("secrets").join(&entry.secret);
            std::fs::create_dir_all(&secret).unwrap();
            std::fs::write(secret.join(&entry.key), KEY).unwrap();
            std::fs::write(secret.join("allowed-hosts"), &address).unwrap();
        }
        let sessions = Sessions::new(folder.path().join("sessions"));
        let secrets = LocalSecrets::in_folder(folder.path().join("secrets"));
        let gates = Arc::new(std::sync::Mutex::new(0));
        let counted = Arc::clone(&gates);
        let approve = move |_: &ApprovalRequest| -> Option<Decision> {
            *counted.lock().unwrap() += 1;
            Some(serde_json::from_value(json!({"verdict": "Approve"})).unwrap())
        };
        let local = Local::with_secrets(sessions, "dana@example.com", secrets).unwrap();
        let local = local.decider("bob@example.com").handler(approve);
        let mut run = local.begin(workflow).unwrap_or_else(|why| panic!("{name}: {why}"));
        let ended = run.go().await.unwrap_or_else(|why| panic!("{name}: {why}"));
        let status = run.snapshot().workflow.status;
        assert!(matches!(ended, RunOutcome::Over(_)), "{name} waits: {status:#?}");
        let status = status.unwrap();
        assert_eq!(status.phase.name(), "Succeeded", "{name}: {:?}", status.message);
        assert!(status.outputs.as_ref().is_some_and(|outputs| outputs.contains(text)), "{name}: {:?}", status.outputs);
        assert_eq!(*gates.lock().unwrap(), 1, "{name}");
        let mut requests = Vec::new();
        while let Ok(request) = asked.try_recv() {
            requests.push(request);
        }
        assert_eq!(requests.len(), models.len(), "{name}: every agent is asked once");
        for ((asked_path, headers, body), model) in requests.into_iter().zip(models) {
            assert_eq!(asked_path, path, "{name}");
            let header = key.map(|(header, _)| headers[header].to_str().unwrap());
            assert_eq!(header, key.map(|(_, value)| value), "{name}");
            assert!(key.is_some() || !headers.contains_key("authorization"), "{name}");
            assert!(asked_path.contains(&model) || body["model"] == model, "{name}: {model} in {body}");
        }
    }
}
