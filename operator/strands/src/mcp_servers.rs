//! MCP servers of a file as `spec.servers`, and its file tools as tools of the filesystem server.
//!
//! **Invariant:** no credential of a file is copied into the Workflow, which names a Secret instead.

use serde_json::{Map, Value, json};
use signoff_api::hosts;
use signoff_manifest::source::{Key, Node};
use url::Url;

use super::{
    gates::scalar_text,
    http_tools::{KEY, fixed_url, is_filled_in, names_secret, secret_of},
    import::Import,
    import_notes::NoteLevel,
    names::{free_name, label},
};

/// The maximum length of the name of a server, in characters.
const MAX_SERVER_NAME: usize = 20;

/// The maximum length of the name of a server that is followed by a number, in characters.
const MAX_BEFORE_NUMBER: usize = 17;

/// The command of the filesystem server, which can access the folder in which it is started.
const FILESYSTEM: [&str; 4] = ["npx", "-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "."];

/// The file tools of the Strands CLI, each with the tools of the filesystem server that replace it.
const FILE_TOOLS: [(&str, &[&str]); 6] = [
    ("file_read", &["read_text_file"]),
    ("head", &["read_text_file"]),
    ("tail", &["read_text_file"]),
    ("grep", &["search_files", "read_text_file"]),
    ("search", &["search_files", "read_text_file"]),
    ("file_write", &[WRITE_FILE]),
];

/// The tool of the filesystem server that changes something.
const WRITE_FILE: &str = "write_file";

/// Headers that the operator's client sends itself.
const OF_CLIENT: [&str; 3] = ["accept", "content-type", "user-agent"];

/// The remedy for a command, which only local runs start.
const ONLY_LOCAL: &str = "only a local run starts a command, with `signoff run --allow-commands` and after a person has \
                          confirmed it; on a cluster, give the `url` of a server instead";

impl Import<'_> {
    /// Imports an MCP server, and adds its tools to the gate for tools of servers. Returns the entry that lists all of
    /// its tools, or none and a note if the server is left out. `path`: the field of the server in the file.
    pub(super) fn import_mcp_server(&mut self, id: &str, node: &Node, path: &str) -> Vec<String> {
        let value_of = |field: &str| node.get(field).filter(|value| !value.is_null());
        let name = self.free_server_name(id);
        let mut server = Map::from_iter([("name".to_owned(), json!(name))]);
        let is_imported = match (value_of("url"), value_of("command")) {
            (Some(url), None) => {
                let why = "a server with an address is started by others: left out";
                self.notes.tell_unused(NoteLevel::Unsupported, node, path, &["args", "env"], why);
                let is_fixed = self.add_server_url(url, &format!("{path}.url"), &mut server);
                self.add_server_key(id, node, path, &mut server);
                is_fixed
            }
            (None, Some(program)) => {
                let why = "a command is sent no headers: left out";
                self.notes.tell_unused(NoteLevel::Unsupported, node, path, &["headers"], why);
                self.tell_variables(node, path);
                self.add_server_command(program, node, path, &mut server)
            }
            (Some(url), Some(_)) => {
                let wrong = "a server has an address or a command: leave one of them out";
                self.notes.wrong.error("WrongType", &format!("{path}.url"), url.at.clone(), wrong);
                false
            }
            (None, None) => {
                let why = "it has neither url nor command: write one; the server is left out";
                self.tell_at(NoteLevel::Unsupported, path, node, why);
                false
            }
        };
        if !is_imported {
            return Vec::new();
        }
        let all = format!("{name}.*");
        let gate = self.add_to_gate(&all);
        let remedy = if server.contains_key("command") { format!("; {ONLY_LOCAL}") } else { String::new() };
        let message = format!(
            "it becomes the server {name}, whose tools are {name}.<tool>: what they change is not known, so the gate {gate} asks about \
             each call; list tools that change nothing in `read` of the server, and leave them out of the gate{remedy}"
        );
        self.tell_at(NoteLevel::Changed, path, node, message);
        self.spec_servers.push(Value::Object(server));
        vec![all]
    }

    /// Imports a file tool, and returns the tools of the filesystem server that replace it, or `None` for another tool.
    pub(super) fn import_file_tool(&mut self, id: &str, node: &Node, field: &str) -> Option<Vec<String>> {
        let (_, tools) = FILE_TOOLS.iter().find(|(name, _)| *name == id)?;
        let server = self.add_file_tools(tools);
        let names: Vec<String> = tools.iter().map(|tool| format!("{server}.{tool}")).collect();
        let mut message = format!(
            "it becomes {} of the filesystem server, which has the folder of the run and what is below; {ONLY_LOCAL}",
            names.join(" and ")
        );
        if tools.contains(&"search_files") {
            message += "; the server finds files by their names, and the model reads a file to search in it";
        }
        if tools.contains(&WRITE_FILE) {
            let gate = self.add_to_gate(&format!("{server}.{WRITE_FILE}"));
            message += &format!("; the gate {gate} asks about each call, and the server creates no folders");
        }
        self.tell_at(NoteLevel::Changed, field, node, message);
        Some(names)
    }

    /// Adds tools to the filesystem server, and returns its name. The first call adds the server.
    fn add_file_tools(&mut self, tools: &[&str]) -> String {
        // Only the filesystem server has the field `only` in an import.
        let is_filesystem = |server: &Value| server.get("only").is_some();
        if !self.spec_servers.iter().any(is_filesystem) {
            let name = self.free_server_name("files");
            self.spec_servers.push(json!({"name": name, "command": FILESYSTEM, "only": []}));
        }
        let mut servers = self.spec_servers.iter_mut();
        let Some(server) = servers.find(|server| is_filesystem(server)) else { return String::new() };
        for tool in tools {
            add_to_list(server, "only", tool);
            if *tool != WRITE_FILE {
                add_to_list(server, "read", tool);
            }
        }
        server.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Adds an entry to the tools of the gate that asks about tools of servers, and returns the name of the gate. The
    /// first call adds the gate.
    fn add_to_gate(&mut self, tools: &str) -> String {
        const TYPE: &str = "specificTools";
        if !self.spec_gates.iter().any(|gate| gate["type"] == TYPE) {
            let is_taken =
                |name: &str| self.spec_gates.iter().chain(&self.spec_steps).any(|entry| entry["name"] == name);
            let name = free_name("server-tools", is_taken);
            self.spec_gates.push(json!({"name": name, "type": TYPE, "tools": [], "hitl": {
                "prompt": "Agent {{ agent }} calls {{ tool }}. May it?",
                "approvers": [{"kind": "User", "name": self.approver}],
            }}));
        }
        let Some(gate) = self.spec_gates.iter_mut().find(|gate| gate["type"] == TYPE) else { return String::new() };
        add_to_list(gate, "tools", tools);
        gate.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Returns a unique name for a server.
    fn free_server_name(&self, id: &str) -> String {
        let taken = |name: &str| self.spec_servers.iter().any(|server| server["name"] == name);
        let label = label(id, "server");
        let cut = |most: usize| label.chars().take(most).collect::<String>().trim_end_matches('-').to_owned();
        let name = cut(MAX_SERVER_NAME);
        if taken(&name) { free_name(&cut(MAX_BEFORE_NUMBER), taken) } else { name }
    }

    /// Adds the URL of a server. Returns `false` with an error if the URL does not name one fixed server, or has a key.
    fn add_server_url(&mut self, value: &Node, field: &str, server: &mut Map<String, Value>) -> bool {
        let text = scalar_text(value);
        let has_key =
            |url: &Url| url.query_pairs().any(|(name, _)| names_secret(&name) || name.eq_ignore_ascii_case("key"));
        let error = match fixed_url(&text) {
            Ok(url) if url.fragment().is_some() => "an address of a server has no fragment: leave it out",
            Ok(url) if has_key(&url) => {
                "the query of an address must not contain a key: leave it out, and write the key as a header"
            }
            Ok(_) => {
                server.insert("url".into(), text.trim().into());
                return true;
            }
            Err(error) => error,
        };
        self.notes.wrong.error("WrongType", field, value.at.clone(), error);
        false
    }

    /// Adds the one header of a server: its key, from a Secret. Adds a note about each other header.
    fn add_server_key(&mut self, id: &str, node: &Node, path: &str, server: &mut Map<String, Value>) {
        for (key, value) in node.get("headers").map(Node::fields).unwrap_or_default() {
            let (text, field) = (scalar_text(value), format!("{path}.headers.{}", key.name));
            if OF_CLIENT.iter().any(|name| key.name.eq_ignore_ascii_case(name)) {
                self.notes.tell(NoteLevel::Info, &field, &key.at, "left out: the operator's client sends its own");
            } else if !is_filled_in(&text) && !names_secret(&key.name) {
                let why = "left out: a server is sent no header but its key: let a proxy in front of it add others";
                self.notes.tell(NoteLevel::Unsupported, &field, &key.at, why);
            } else if server.contains_key("key") {
                let why = "left out: a server is sent one key: let a proxy in front of it add others";
                self.notes.tell(NoteLevel::Unsupported, &field, &key.at, why);
            } else {
                self.add_key_of_header(id, key, &text, &field, server);
            }
        }
    }

    /// Adds the value of a header as the key of a server, from a Secret. Adds a note if a Secret cannot replace the
    /// value.
    fn add_key_of_header(&mut self, id: &str, key: &Key, text: &str, field: &str, server: &mut Map<String, Value>) {
        let is_name = key.name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let Some((scheme, secret)) = secret_of(id, &key.name, text).filter(|_| is_name) else {
            let why = "left out: the key of a server is written as `${NAME}` with upper-case letters, digits and `_`, after a word \
                       such as Bearer or nothing";
            self.notes.tell(NoteLevel::Unsupported, field, &key.at, why);
            return;
        };
        let is_bearer = key.name.eq_ignore_ascii_case("authorization") && scheme == "Bearer ";
        let with_scheme =
            if is_bearer || scheme.is_empty() { String::new() } else { format!(", where it begins with `{scheme}`") };
        let (level, message) = if is_filled_in(text) {
            let level = if with_scheme.is_empty() { NoteLevel::Info } else { NoteLevel::Changed };
            (level, format!("its value is taken from the key `{KEY}` of the Secret {secret}{with_scheme}"))
        } else {
            let message = format!(
                "its value looks like a secret and is not taken over: write it into the key `{KEY}` of the Secret {secret}{with_scheme}"
            );
            (NoteLevel::Changed, message)
        };
        self.notes.tell(level, field, &key.at, message);
        self.add_secret(&secret);
        server.insert("key".into(), secret.into());
        if !is_bearer {
            server.insert("header".into(), key.name.as_str().into());
        }
    }

    /// Adds the command of a server. Returns `false` with a note if an argument is or names a credential.
    fn add_server_command(&mut self, program: &Node, node: &Node, path: &str, server: &mut Map<String, Value>) -> bool {
        let mut command = vec![scalar_text(program)];
        command.extend(node.get("args").map(Node::items).unwrap_or_default().iter().map(scalar_text));
        if command.iter().any(|word| has_credential(word)) {
            let why = "an argument is a credential, or names one, and is not taken over: write a script that reads it and starts the \
                       server, and name the script in `command`; the server is left out";
            self.tell_at(NoteLevel::Unsupported, &format!("{path}.args"), node, why);
            return false;
        }
        server.insert("command".into(), json!(command));
        true
    }

    /// Adds a note about the environment variables of a command, which has none here.
    fn tell_variables(&mut self, node: &Node, path: &str) {
        for (key, value) in node.get("env").map(Node::fields).unwrap_or_default() {
            let is_secret = names_secret(&key.name) || is_filled_in(&scalar_text(value));
            let level = if is_secret { NoteLevel::Unsupported } else { NoteLevel::Changed };
            let why = "left out: a command is started with PATH and HOME only: write a script that sets it and starts the server, \
                       and name the script in `command`";
            self.notes.tell(level, &format!("{path}.env.{}", key.name), &key.at, why);
        }
    }
}

/// Adds a text to a list of an object, without duplicates.
fn add_to_list(object: &mut Value, field: &str, text: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    let list = fields.entry(field).or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|one| one == text)
    {
        list.push(text.into());
    }
}

/// Whether an argument of a command is an option for a credential, or a URL with one.
fn has_credential(word: &str) -> bool {
    let url = Url::parse(word).ok().filter(Url::has_host);
    let option = word.split(['=', ':']).next().unwrap_or_default();
    let is_option = (word.starts_with('-') || word.contains(['=', ':'])) && names_secret(option);
    let has_key = |url: &Url| url.query_pairs().any(|(name, _)| names_secret(&name));
    (url.is_none() && is_option) || url.is_some_and(|url| hosts::has_credentials(&url) || has_key(&url))
}

#[cfg(test)]
#[path = "mcp_servers_tests.rs"]
mod tests;
