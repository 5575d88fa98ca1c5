//! `signoff models`: the list of a provider, and one turn with a tool, against a server on loopback.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

use crate::{Ended, Home};

/// A server that refuses `temperature`, calls the tool that it is offered, and wants a field of its own back.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = String::new();
                let mut bytes = [0; 8192];
                while !is_whole(&request) {
                    let length = stream.read(&mut bytes).unwrap();
                    if length == 0 {
                        break;
                    }
                    request.push_str(&String::from_utf8_lossy(&bytes[..length]));
                }
                let (status, body) = answer(&request);
                log.lock().unwrap().push(request);
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        });
        Self { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn answer(request: &str) -> (&'static str, String) {
    if request.starts_with("GET /v1/models ") {
        return ("200 OK", json!({"data": [{"id": "small"}, {"id": "large\u{1b}[31m"}]}).to_string());
    }
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    if body.get("temperature").is_some() {
        let error = json!({"error": {"message": "Unsupported parameter: 'temperature'", "param": "temperature"}});
        return ("400 Bad Request", error.to_string());
    }
    let messages = body["messages"].as_array().unwrap();
    let message = match messages.iter().find(|message| message["role"] == "assistant") {
        None => json!({"content": null, "reasoning_content": "I call.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "echo", "arguments": "{\"word\":\"ready\"}"}}]}),
        Some(said) if said["reasoning_content"] == "I call." => json!({"content": "It returned ready."}),
        Some(_) => {
            return ("400 Bad Request", json!({"error": {"message": "reasoning_content is missing"}}).to_string());
        }
    };
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 2});
    ("200 OK", json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).to_string())
}

#[test]
fn the_models_of_a_provider_are_listed_with_its_key_and_nothing_is_tried() {
    let (home, server) = (Home::new(), Server::start());
    let mut listed = home.signoff(&["models", "openai", "--base-url", &server.url(), "--key", "models/token"]);
    listed.env("SIGNOFF_SECRET_MODELS_TOKEN", "hunter22").env("SIGNOFF_SECRET_MODELS_ALLOWED_HOSTS", "127.0.0.1");
    let ended = Ended::of(&listed.output().unwrap()).with(0);
    assert_eq!(ended.out, "MODEL\nsmall\nlarge[31m\n", "{ended:?}");
    let requests = server.requests.lock().unwrap();
    assert_eq!(requests.len(), 1);
    assert!(
        requests[0].contains("authorization: Bearer hunter22") && !requests[0].contains("hunter22\n"),
        "{requests:?}"
    );
    assert!(!(ended.out + &ended.err).contains("hunter22"));
}

#[test]
fn a_turn_is_tried_only_after_a_yes_and_what_was_found_is_told() {
    let (home, server) = (Home::new(), Server::start());
    home.file("w.yaml", &format!(
        "apiVersion: signoff.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  providers: [{{name: models, openai: {{baseURL: '{}'}}}}]\n  \
         agents: [{{name: a, model: small}}]\n  steps: [{{name: s, agent: {{name: a, input: x}}}}]\n", server.url()));
    let asked = home.run(&["models", "models", "-f", "w.yaml", "--try", "small"]).with(2);
    assert!(asked.err.contains("nothing was tried"), "{asked:?}");
    assert_eq!(server.requests.lock().unwrap().len(), 1);

    let tried = home.run(&["models", "models", "-f", "w.yaml", "--try", "small", "--yes"]).with(0);
    for line in
        ["Calls a tool", "yes", "bytes, which go back with the call", "20 read, 4 written", "Refuses", "temperature"]
    {
        assert!(tried.out.contains(line), "{line}: {tried:?}");
    }
    assert!(!tried.out.contains("I call."), "{tried:?}");
    // The list, a refusal, the call, and its result.
    assert_eq!(server.requests.lock().unwrap().len(), 1 + 4);
}

#[test]
fn what_is_no_provider_is_refused_with_the_ones_there_are() {
    let home = Home::new();
    for key in ["sk-123456", "/token", "models/"] {
        let refused = home.run(&["models", "openai", "--key", key]).with(2);
        assert!(refused.err.contains("as in models/token") && !refused.err.contains("sk-1"), "{refused:?}");
    }
    let unknown = home.run(&["models", "claude"]).with(2);
    assert!(unknown.err.contains("name one of openai, anthropic, gemini, ollama"), "{unknown:?}");
    home.file("w.yaml", crate::LETTER);
    let other = home.run(&["models", "other", "-f", "w.yaml"]).with(2);
    assert!(other.err.contains("w.yaml has no provider other: it has models"), "{other:?}");
    let scripted = home.run(&["models", "models", "-f", "w.yaml"]).with(2);
    assert!(scripted.err.contains("provider models asks no server"), "{scripted:?}");
}
