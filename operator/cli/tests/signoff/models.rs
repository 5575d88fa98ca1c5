//! `signoff models`: the list of a provider, and one turn with a tool, against a server on loopback.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use rexpect::session::spawn_command;
use serde_json::{Value, json};

use crate::{Ended, Home};

/// The longest wait for the end, in milliseconds. It is long enough for a busy machine.
const TIMEOUT_MS: u64 = 60_000;

/// A model server that refuses `temperature`, calls the offered tool, and requires a field of its own to be sent back.
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
                while !is_complete(&request) {
                    let length = stream.read(&mut bytes).unwrap();
                    if length == 0 {
                        break;
                    }
                    request.push_str(&String::from_utf8_lossy(&bytes[..length]));
                }
                let (status, body) = build_answer(&request);
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

    /// Returns a Workflow with the provider `models` at this server.
    fn workflow(&self) -> String {
        workflow(&self.url())
    }
}

/// Returns a Workflow with the provider `models`.
fn workflow(base_url: &str) -> String {
    format!(
        "apiVersion: signoff.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  \
         providers: [{{name: models, openai: {{baseURL: '{base_url}'}}}}]\n  \
         agents: [{{name: a, model: small}}]\n  steps: [{{name: s, agent: {{name: a, input: x}}}}]\n"
    )
}

fn is_complete(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn build_answer(request: &str) -> (&'static str, String) {
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
        None if body["model"] == "stranger" => json!({"content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "launch\u{1b}[31m", "arguments": "{}"}}]}),
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
    assert_eq!(ended.err, "", "progress is for terminals only");
    let requests = server.requests.lock().unwrap();
    assert_eq!(requests.len(), 1);
    assert!(
        requests[0].contains("authorization: Bearer hunter22") && !requests[0].contains("hunter22\n"),
        "{requests:?}"
    );
    assert!(!(ended.out + &ended.err).contains("hunter22"));
}

#[test]
fn a_turn_is_tried_only_after_a_yes() {
    let (home, server) = (Home::new(), Server::start());
    home.file("w.yaml", &server.workflow());
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
    // The requests are the list, the refused one, the call, and its result.
    assert_eq!(server.requests.lock().unwrap().len(), 1 + 4);
}

#[test]
fn a_model_that_calls_an_unoffered_tool_gets_no_result() {
    let (home, server) = (Home::new(), Server::start());
    let tried = home.run(&["models", "openai", "--base-url", &server.url(), "--try", "stranger", "--yes"]).with(0);
    assert!(tried.out.contains("no: it called launch[31m, which was not offered"), "{tried:?}");
    assert!(!tried.out.contains("Takes the result"), "{tried:?}");
    // The requests are the list, the refused one, and the call.
    assert_eq!(server.requests.lock().unwrap().len(), 3);
}

#[test]
fn a_terminal_shows_each_wait() {
    let (home, server) = (Home::new(), Server::start());
    let command = home.signoff(&["models", "openai", "--base-url", &server.url(), "--try", "small", "--yes"]);
    let shown = spawn_command(command, Some(TIMEOUT_MS)).unwrap().exp_eof().unwrap();
    let asking = format!("asking {} for its list of models...", server.address);
    for line in [asking.as_str(), "trying one turn with small..."] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

#[test]
fn a_server_that_does_not_answer_fails_after_the_timeout() {
    // The system accepts the connection, but no answer ever comes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", silent.local_addr().unwrap());
    let ended = Home::new().run(&["models", "openai", "--base-url", &url, "--timeout", "200ms"]).with(10);
    assert!(ended.err.contains("gave no complete answer within 200ms"), "{ended:?}");
}

#[test]
fn the_workflow_is_read_from_standard_input_or_a_file_that_errors_name() {
    let (home, server) = (Home::new(), Server::start());
    let file = home.file("w.yaml", &server.workflow());
    let piped = |provider: &str| {
        let mut command = home.signoff(&["models", provider, "-f", "-"]);
        Ended::of(&command.stdin(File::open(&file).unwrap()).output().unwrap())
    };
    assert_eq!(piped("models").with(0).out, "MODEL\nsmall\nlarge[31m\n");
    let other = piped("other").with(2);
    assert!(other.err.contains("standard input has no provider other: it has models"), "{other:?}");
    let missing = home.run(&["models", "models", "-f", "missing.yaml"]).with(2);
    assert!(missing.err.contains("missing.yaml: "), "{missing:?}");
    home.file("hostless.yaml", &workflow("http://"));
    let hostless = home.run(&["models", "models", "-f", "hostless.yaml"]).with(3);
    assert!(hostless.err.contains("hostless.yaml: 1 error: see signoff validate hostless.yaml"), "{hostless:?}");
}

#[test]
fn an_option_without_meaning_is_refused_with_a_remedy() {
    let home = Home::new();
    let mut refusals = vec![
        (vec!["openai", "--base-url", "host:1234/v1"], "write it as in https://models.example.com/v1"),
        (vec!["openai", "--base-url", "http://"], "not a valid URL"),
        (vec!["openai", "--try", ""], "it is empty: name a model"),
        (vec!["openai", "--try", " "], "it is empty: name a model"),
        (vec!["openai", "--timeout", "soon"], "not a duration like 30s"),
        (vec!["openai", "--timeout", "0s"], "it leaves no time for an answer"),
    ];
    let without_apis = ["anthropic", "gemini", "ollama"];
    refusals.extend(without_apis.map(|kind| (vec![kind, "--api", "responses"], "only openai has it; leave --api out")));
    for (options, why) in refusals {
        let refused = home.run(&[&["models"][..], options.as_slice()].concat()).with(2);
        assert!(refused.err.contains(why), "{options:?}: {refused:?}");
    }
}

#[test]
fn an_unknown_provider_is_refused_with_the_known_ones() {
    let home = Home::new();
    for key in ["sk-123456", "/token", "models/"] {
        let refused = home.run(&["models", "openai", "--key", key]).with(2);
        assert!(refused.err.contains("as in models/token") && !refused.err.contains("sk-1"), "{refused:?}");
    }
    for url in ["https://dana:hunter2@models.example.com/v1", "https://models.example.com/v1?key=hunter2", "hunter2"] {
        let refused = home.run(&["models", "openai", "--base-url", url, "--key", "models/token"]).with(2);
        assert!(refused.err.contains("--base-url: ") && !refused.err.contains("hunter2"), "{refused:?}");
    }
    let unknown = home.run(&["models", "claude"]).with(2);
    assert!(unknown.err.contains("name one of openai, anthropic, gemini, ollama"), "{unknown:?}");
    home.file("w.yaml", crate::LETTER);
    let other = home.run(&["models", "other", "-f", "w.yaml"]).with(2);
    assert!(other.err.contains("w.yaml has no provider other: it has models"), "{other:?}");
    let scripted = home.run(&["models", "models", "-f", "w.yaml"]).with(2);
    assert!(scripted.err.contains("provider models asks no server"), "{scripted:?}");
}
