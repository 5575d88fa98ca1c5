//! HTTP executors and `http_request` as tools: each becomes steps of the kind `http` with a fixed method, host and
//! headers.
//!
//! **Invariant:** the model chooses neither host, method nor header. No credential of a file is copied into the
//! Workflow, which names a Secret instead.

use serde_json::{Map, Value, json};
use signoff_manifest::source::Node;
use url::Url;

use super::{
    gates::{scalar_text, whole_number},
    import::Import,
    import_notes::NoteLevel,
    names::{free_name, label},
};

/// The methods of an HTTP step that can be the method of a tool.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// The methods of a tool whose path the model chooses.
const METHODS_OF_ANY_PATH: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// The maximum length of the description of a tool, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1024;

/// The maximum number of query parameters of a call.
const MAX_QUERY: usize = 32;

/// The form of a header whose value comes from a Secret.
const FORM: &str = "at most 4 headers have the value of a Secret, written as `${NAME}` with upper-case letters, digits and `_`, \
                    after a word such as Bearer or nothing";

/// The key of a Secret with the value of a header.
pub(super) const KEY: &str = "value";

/// The maximum number of headers of a step with values from Secrets.
const MAX_SECRET_HEADERS: usize = 4;

/// The words before a credential in a header.
const SCHEMES: [&str; 4] = ["Bearer ", "Basic ", "Token ", "ApiKey "];

/// The body that the model may give.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    /// JSON, in the argument `json_data`.
    Json,
    /// A text, in the argument `body`.
    Text,
}

/// A server whose paths the model may choose.
struct Server<'a> {
    /// The tool's id in the file.
    id: &'a str,
    /// The URL of the server, a template without a slash at the end.
    base: String,
    description: String,
    headers: Map<String, Value>,
    /// The headers whose values come from Secrets.
    secret_headers: Vec<Value>,
    timeout: Option<String>,
    body: Body,
}

/// A tool that makes one request.
struct HttpCall {
    name: String,
    method: String,
    url: String,
    description: String,
    /// The schema of each argument.
    fields: Map<String, Value>,
    required: Vec<String>,
}

impl Import<'_> {
    /// Imports an HTTP executor: a tool for each endpoint, or for each method if it has no endpoints. Returns the names
    /// of the tools. `path`: the field of the executor in the file.
    pub(super) fn import_http_executor(&mut self, id: &str, node: &Node, path: &str) -> Vec<String> {
        let Some(base) = self.import_base_url(node, path) else { return Vec::new() };
        let description = node.get("description").map(scalar_text).filter(|text| !text.trim().is_empty());
        let mut description = description.unwrap_or_else(|| format!("Requests to {base}."));
        for (field, name) in [("response_format", "Response format"), ("authentication_info", "Authentication")] {
            if let Some(text) = node.get(field).map(scalar_text).filter(|text| !text.trim().is_empty()) {
                description = format!("{}\n{name}: {}", description.trim_end(), text.trim());
            }
        }
        let (headers, secret_headers) = self.import_headers(id, node, path);
        let timeout = whole_number(node, "timeout_ms").map(|millis| format!("{}s", millis.div_ceil(1000).max(1)));
        let mut server = Server { id, base, description, headers, secret_headers, timeout, body: Body::Json };
        let endpoints = node.get("common_endpoints").map(Node::items).unwrap_or_default();
        let mut tools = Vec::new();
        for (at, endpoint) in endpoints.iter().enumerate() {
            let field = format!("{path}.common_endpoints[{at}]");
            self.notes.read(endpoint, "http executor's endpoint", &field);
            tools.extend(self.import_endpoint(&server, endpoint, &field));
        }
        if endpoints.is_empty() {
            if let Some(examples) = node.get("examples").filter(|examples| !examples.items().is_empty()) {
                server.description += "\nExamples:";
                for (at, example) in examples.items().iter().enumerate() {
                    self.notes.read(example, "http executor's example", &format!("{path}.examples[{at}]"));
                    server.description += &format!("\n{}", example_text(example));
                }
            }
            tools = self.add_any_path_tools(&server, &METHODS_OF_ANY_PATH);
            let message = format!(
                "it becomes the tools {}: the model chooses path, query and body; method, host and headers are fixed",
                tools.join(", ")
            );
            self.tell_at(NoteLevel::Changed, path, node, message);
        } else {
            let why = "the tools of the endpoints have descriptions of their own: left out";
            self.notes.tell_unused(NoteLevel::Info, node, path, &["examples"], why);
            let message = format!(
                "it becomes one tool for each of common_endpoints ({}): the model cannot call anything else there",
                if tools.is_empty() { "none".to_owned() } else { tools.join(", ") }
            );
            self.tell_at(NoteLevel::Changed, path, node, message);
        }
        tools
    }

    /// Imports the tool by which a model calls any URL. In the Workflow an input names the one server that it can
    /// reach.
    pub(super) fn import_any_url_tool(&mut self, id: &str, at: &Node, field: &str) -> Vec<String> {
        let (methods, description): (&[&str], _) = match id {
            "web_fetch" => (&["GET"], "Fetches a page of one server."),
            _ => (&["GET", "POST", "PUT", "DELETE"], "Makes an HTTP request to one server."),
        };
        let input = format!("{id}_url");
        self.servers.push((input.clone(), format!("The server that {id} calls, such as https://api.example.com")));
        let server = Server {
            id,
            base: format!("{{{{ inputs.{input} }}}}"),
            description: description.to_owned(),
            headers: Map::new(),
            secret_headers: Vec::new(),
            timeout: None,
            body: Body::Text,
        };
        let tools = self.add_any_path_tools(&server, methods);
        let message = format!(
            "a model must not choose a host: {} call only the server in the input {input}, which is required, as `--var {input}=https://…`; \
             the model chooses path, query and body, and no headers",
            tools.join(", ")
        );
        self.tell_at(NoteLevel::Changed, field, at, message);
        tools
    }

    /// Returns the base URL of an executor, or `None` with a note or an error if it does not name one fixed server.
    fn import_base_url(&mut self, node: &Node, path: &str) -> Option<String> {
        let field = format!("{path}.base_url");
        let Some((_, value)) = node.entry("base_url") else {
            self.tell_at(NoteLevel::Unsupported, &field, node, "there is no address: write one; the tool is left out");
            return None;
        };
        let error = match fixed_url(&scalar_text(value)) {
            Ok(url) if url.query().is_some() || url.fragment().is_some() => {
                "an address that paths are appended to has neither a query nor a fragment: leave them out"
            }
            Ok(url) => return Some(url.as_str().trim_end_matches('/').to_owned()),
            Err(error) => error,
        };
        self.notes.wrong.error("WrongType", &field, value.at.clone(), error);
        None
    }

    /// Returns the headers of every request: those with a value from the file, and those with a value from a Secret.
    /// Adds the Secrets to the spec, and a note about each secret value.
    fn import_headers(&mut self, id: &str, node: &Node, path: &str) -> (Map<String, Value>, Vec<Value>) {
        let (mut headers, mut secret_headers) = (Map::new(), Vec::new());
        for (key, value) in node.get("headers").map(Node::fields).unwrap_or_default() {
            let (text, field) = (scalar_text(value), format!("{path}.headers.{}", key.name));
            let is_filled_in = is_filled_in(&text);
            if !is_filled_in && !names_secret(&key.name) {
                headers.insert(key.name.clone(), text.into());
                continue;
            }
            let credential = secret_of(id, &key.name, &text);
            let is_name = key.name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
            let has_room = secret_headers.len() < MAX_SECRET_HEADERS;
            let Some((prefix, secret)) = credential.filter(|_| is_name && has_room) else {
                self.notes.tell(NoteLevel::Unsupported, &field, &key.at, format!("left out: {FORM}"));
                continue;
            };
            let (level, why) = if is_filled_in {
                (NoteLevel::Info, format!("its value is taken from the key `{KEY}` of the Secret {secret}"))
            } else {
                let why = format!(
                    "its value looks like a secret and is not taken over: write it into the key `{KEY}` of the Secret {secret}"
                );
                (NoteLevel::Changed, why)
            };
            self.notes.tell(level, &field, &key.at, why);
            let mut header = json!({"name": key.name, "from": secret});
            if !prefix.is_empty() {
                header["prefix"] = prefix.into();
            }
            secret_headers.push(header);
            self.add_secret(&secret);
        }
        (headers, secret_headers)
    }

    /// Adds the Secret of a header to `spec.secrets`, once.
    pub(super) fn add_secret(&mut self, secret: &str) {
        let entry = json!({"name": secret, "secret": secret, "key": KEY});
        if !self.spec_secrets.contains(&entry) {
            self.spec_secrets.push(entry);
        }
    }

    /// Imports the tool of one endpoint, and returns its name. Returns `None` with a note if the path or the method is
    /// not possible.
    fn import_endpoint(&mut self, server: &Server<'_>, node: &Node, field: &str) -> Option<String> {
        let method = node.get("method").map_or_else(|| "GET".to_owned(), scalar_text).to_ascii_uppercase();
        let path = node.get("path").map(scalar_text).unwrap_or_default();
        let why = if !METHODS.contains(&method.as_str()) {
            format!("a tool has one of the methods {}: this endpoint is left out", METHODS.join(", "))
        } else if path.contains("${") {
            "left out: its path is filled in from a secret or a variable, and a Secret is sent in a header only"
                .to_owned()
        } else if let Some((template, names)) = path_template(&path) {
            let text = node.get("description").map(scalar_text).unwrap_or_default();
            let description = format!("{}\n{method} {path}\n{}", text.trim(), server.description.trim());
            let mut fields: Map<String, Value> = Map::new();
            for name in &names {
                fields.insert(name.clone(), json!({"type": "string", "minLength": 1}));
            }
            let mut url = format!("{}{template}", server.base);
            if !path.contains('?') && !fields.contains_key("query") {
                fields.insert("query".into(), query_schema());
                url += QUERY;
            }
            let name = format!("{}-{method}-{path}", server.id);
            return Some(
                self.add_http_tool(server, HttpCall { name, method, url, description, fields, required: names }),
            );
        } else {
            "its path is not one below the address, with {name} for each value: this endpoint is left out".to_owned()
        };
        self.tell_at(NoteLevel::Unsupported, field, node, why);
        None
    }

    /// Adds a tool for each method, with a path that the model chooses. Returns the names of the tools.
    fn add_any_path_tools(&mut self, server: &Server<'_>, methods: &[&str]) -> Vec<String> {
        let path = json!({
            "type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[^?#]*$",
            "description": "The path below the server's address, such as /orders/4711",
        });
        // If a Secret is sent, the URL of the server includes the first `/`.
        let is_bare = !server.secret_headers.is_empty() && server.base.matches('/').count() == 2;
        let parts = if is_bare {
            "/{% for part in args.path.split('/') if part %}{% if loop.first %}{% else %}/{% endif %}{{ part }}{% endfor %}"
        } else {
            "{% for part in args.path.split('/') if part %}/{{ part }}{% endfor %}"
        };
        let url = format!("{}{parts}{QUERY}", server.base);
        let tool = |method: &&str| {
            let call = HttpCall {
                name: format!("{}-{method}", server.id),
                method: (*method).to_owned(),
                url: url.clone(),
                description: server.description.clone(),
                fields: Map::from_iter([("path".to_owned(), path.clone()), ("query".to_owned(), query_schema())]),
                required: vec!["path".to_owned()],
            };
            self.add_http_tool(server, call)
        };
        methods.iter().map(tool).collect()
    }

    /// Adds a tool and its step, and returns the name of both.
    fn add_http_tool(&mut self, server: &Server<'_>, call: HttpCall) -> String {
        let HttpCall { name, method, url, description, mut fields, required } = call;
        let taken = |name: &str| self.spec_steps.iter().chain(&self.tool_steps).any(|step| step["name"] == name);
        let name = free_name(&label(&name, "tool"), taken);
        let mut http = Map::from_iter([("method".to_owned(), json!(method)), ("url".to_owned(), json!(url))]);
        let mut headers = server.headers.clone();
        let (argument, schema) = match server.body {
            Body::Json => ("json_data", json!({"type": "object", "description": "The body, as JSON"})),
            Body::Text => ("body", json!({"type": "string", "description": "The body"})),
        };
        if matches!(method.as_str(), "POST" | "PUT" | "PATCH") && !fields.contains_key(argument) {
            fields.insert(argument.into(), schema);
            let value = if server.body == Body::Json { "args.json_data | tojson" } else { "args.body" };
            let body = format!("{{% if args.{argument} is defined %}}{{{{ {value} }}}}{{% endif %}}");
            http.insert("body".into(), body.into());
            if server.body == Body::Json && !headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
                headers.insert("Content-Type".into(), "application/json".into());
            }
        }
        if !headers.is_empty() {
            http.insert("headers".into(), Value::Object(headers));
        }
        if !server.secret_headers.is_empty() {
            http.insert("secretHeaders".into(), json!(server.secret_headers));
        }
        let mut parameters = json!({"type": "object", "properties": fields, "additionalProperties": false});
        if !required.is_empty() {
            parameters["required"] = json!(required);
        }
        let mut step = json!({"name": name, "http": http});
        if let Some(timeout) = &server.timeout {
            step["timeout"] = timeout.as_str().into();
        }
        self.tool_steps.push(step);
        let description: String = description.trim().chars().take(MAX_DESCRIPTION_CHARS).collect();
        self.spec_tools.push(json!({"name": name, "step": name, "description": description, "parameters": parameters}));
        name
    }
}

/// The end of a URL whose query the model chooses.
const QUERY: &str = "{% if args.query is defined %}{% for name, value in args.query.items() %}{% if loop.first %}?{% else %}&{% endif %}{{ name }}={{ value }}{% endfor %}{% endif %}";

/// Returns the schema of the argument `query`.
fn query_schema() -> Value {
    json!({
        "type": "object", "maxProperties": MAX_QUERY, "additionalProperties": {"type": ["string", "number", "boolean"]},
        "description": "The query parameters",
    })
}

/// Returns a path with `{name}` for its values as a template, with their names, or `None` if it is not a path below a
/// base URL.
fn path_template(path: &str) -> Option<(String, Vec<String>)> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (way, _) = path.split_once('?').unwrap_or((path, ""));
    let leads_out = way.contains("//") || way.starts_with('/') || way.contains("://");
    let is_dots = way.split('/').any(|segment| matches!(segment, "." | ".."));
    if leads_out || is_dots || path.chars().any(|c| c.is_control() || c.is_whitespace() || matches!(c, '\\' | '#')) {
        return None;
    }
    let (mut template, mut names, mut rest) = ("/".to_owned(), Vec::<String>::new(), path);
    while let Some((literal, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if !is_name || literal.contains('}') {
            return None;
        }
        let name = name.replace('-', "_");
        template += &format!("{literal}{{{{ args.{name} }}}}");
        if !names.contains(&name) {
            names.push(name);
        }
        rest = after;
    }
    (!rest.contains('}')).then(|| (template + rest, names))
}

/// Renders an example request for the model.
fn example_text(example: &Node) -> String {
    let text = |field: &str| example.get(field).map(scalar_text).unwrap_or_default();
    let method = if text("method").is_empty() { "GET".to_owned() } else { text("method") };
    let body = example.get("json_data").map_or_else(String::new, |body| format!(" {}", body.to_json()));
    format!("{}: {method} {}{body}", text("description"), text("path"))
}

/// Returns the URL of a fixed server, or an error. The error does not quote the text, because it can contain a
/// password.
pub(super) fn fixed_url(text: &str) -> Result<Url, &'static str> {
    if is_filled_in(text) {
        return Err("the host of a tool is fixed, and nothing is filled in here: write the address itself");
    }
    let url = Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or("this is not an address: write one with http:// or https:// and a host")?;
    if url.username().is_empty() && url.password().is_none() {
        Ok(url)
    } else {
        Err("an address must not contain a user name or a password: leave them out")
    }
}

/// Returns the word before the credential in a header, and the name of the Secret for the credential. Returns `None` if
/// the value has other parts, which a Secret cannot replace. `id` is the tool of the header.
pub(super) fn secret_of(id: &str, header: &str, text: &str) -> Option<(String, String)> {
    let found =
        if is_filled_in(text) { parse_filled_in(text) } else { Some((scheme_of(text), format!("{id}-{header}"))) };
    found.map(|(scheme, name)| (scheme, label(&name, "header")))
}

/// Whether a part of a text is replaced when the text is used.
pub(super) fn is_filled_in(text: &str) -> bool {
    holds_template(text) || text.contains("${")
}

/// Whether a text would be read as a template.
fn holds_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark))
}

/// Returns the word before a credential, or an empty text.
fn scheme_of(text: &str) -> String {
    let is_before = |scheme: &&&str| {
        let beginning = text.get(..scheme.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(scheme))
    };
    SCHEMES.iter().find(is_before).map(|scheme| (*scheme).to_owned()).unwrap_or_default()
}

/// Returns the word before `${NAME}`, and the name, or `None` if a value has other parts.
fn parse_filled_in(text: &str) -> Option<(String, String)> {
    let prefix = scheme_of(text);
    let name = text.get(prefix.len()..)?.trim().strip_prefix("${")?.strip_suffix('}')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    is_name.then(|| (prefix, name.to_owned()))
}

/// Whether the name of a header or of another setting suggests that its value is a secret.
pub(super) fn names_secret(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    ["authorization", "cookie", "token", "secret", "password", "api-key", "apikey", "api_key", "-key", "credential"]
        .iter()
        .any(|word| header.contains(word))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_path_becomes_a_template_with_its_values() {
        for (path, template, names) in [
            ("/repos/{owner}/{repo}", "/repos/{{ args.owner }}/{{ args.repo }}", vec!["owner", "repo"]),
            ("weather", "/weather", vec![]),
            ("/search?q={text}&page=1", "/search?q={{ args.text }}&page=1", vec!["text"]),
            ("/a/{user-id}/b/{user-id}", "/a/{{ args.user_id }}/b/{{ args.user_id }}", vec!["user_id"]),
        ] {
            let (found, found_names) = path_template(path).unwrap();
            assert_eq!(found, template, "{path}");
            assert_eq!(found_names, names, "{path}");
        }
    }

    #[test]
    fn a_path_to_another_host_or_with_a_template_is_refused() {
        for path in [
            "//evil.example.com/x",
            "https://evil.example.com/x",
            "/{{ args.host }}/x",
            "/{% raw %}",
            "/{#x#}",
            "/a/../../admin",
            "/./a",
            "/a\\..\\b",
            "/a#b",
            "/a b",
            "/{a",
            "/a}",
            "/{}",
            "/{1}",
            "/{a.b}",
        ] {
            assert_eq!(path_template(path), None, "{path}");
        }
    }

    #[test]
    fn a_header_value_is_one_name_with_at_most_a_known_word_before() {
        let found = |text| parse_filled_in(text).map(|(prefix, name)| format!("{prefix}|{name}"));
        assert_eq!(found("Bearer ${CRM_TOKEN}").as_deref(), Some("Bearer |CRM_TOKEN"));
        assert_eq!(found("${KEY2}").as_deref(), Some("|KEY2"));
        for other in ["abc${KEY}", "${KEY}abc", "${KEY}${KEY}", "${key}", "${}", "${2}", "{{ KEY }}", "Bearer x ${KEY}"]
        {
            assert_eq!(found(other), None, "{other}");
        }
        for (text, scheme) in [("basic abc", "Basic "), ("Basic", ""), ("abc", "")] {
            assert_eq!(scheme_of(text), scheme, "{text}");
        }
    }

    #[test]
    fn a_header_with_the_name_of_a_secret_is_secret() {
        for name in ["Authorization", "X-API-Key", "cookie", "X-Auth-Token", "Ocp-Apim-Subscription-Key", "apikey"] {
            assert!(names_secret(name), "{name}");
        }
        for name in ["Accept", "Content-Type", "User-Agent", "X-Request-Source"] {
            assert!(!names_secret(name), "{name}");
        }
    }
}
