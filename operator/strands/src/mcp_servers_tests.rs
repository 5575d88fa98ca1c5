//! Tests of imported MCP servers: sent data, gates about their tools, and parts that are not imported.

#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};
use signoff_engine::Settings;
use signoff_manifest::Severity;

use crate::{Imported, NoteLevel, import};

/// Returns a file with `servers` and one agent that lists the tools `listed`.
fn file(servers: &str, listed: &str) -> String {
    format!(
        "runtime: {{provider: ollama, model_id: m}}\ntools: {{mcp: [{servers}]}}\nagents: {{clerk: {{prompt: x, tools: [{listed}]}}}}\n\
         pattern: {{type: chain, config: {{steps: [{{agent: clerk, input: a}}]}}}}\n"
    )
}

fn imported(servers: &str, listed: &str) -> Imported {
    import(&file(servers, listed), "alice").unwrap()
}

/// Returns the notes of a level, as `field: message`.
fn notes(imported: &Imported, level: NoteLevel) -> Vec<String> {
    imported.notes.iter().filter(|n| n.weight == level).map(|n| format!("{}: {}", n.field, n.message)).collect()
}

/// Returns the errors of the imported Workflow in a local run that can start commands.
fn errors(imported: &Imported) -> Vec<String> {
    let settings = Settings { allow_commands: true, ..Settings::default() };
    let checked = signoff_manifest::check(&imported.to_yaml(), &settings);
    let problems = checked.into_iter().flat_map(|one| one.problems);
    let errors = problems.filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| format!("{}: {}", problem.field, problem.message)).collect()
}

fn spec<'i>(imported: &'i Imported, field: &str) -> &'i Value {
    &imported.object["spec"][field]
}

#[test]
fn a_server_has_its_address_and_a_gate_asks_about_each_call() {
    let imported = imported("{id: crm, url: 'https://crm.example.com/mcp?team=a'}", "crm");
    assert_eq!(*spec(&imported, "servers"), json!([{"name": "crm", "url": "https://crm.example.com/mcp?team=a"}]));
    assert_eq!(spec(&imported, "agents")[0]["tools"], json!(["crm.*"]));
    let gate = &spec(&imported, "gates")[0];
    assert_eq!((&gate["type"], &gate["tools"]), (&json!("specificTools"), &json!(["crm.*"])));
    assert_eq!(gate["hitl"]["approvers"], json!([{"kind": "User", "name": "alice"}]));
    let changed = notes(&imported, NoteLevel::Changed);
    assert!(
        matches!(changed.as_slice(), [one] if one.starts_with("tools.mcp[0]: ") && one.contains("gate server-tools asks")),
        "{changed:?}"
    );
    assert!(imported.is_complete());
    assert_eq!(errors(&imported), [] as [String; 0]);
}

#[test]
fn a_command_is_imported_for_local_runs_only() {
    let imported = imported("{id: files, command: npx, args: [-y, 'server@1.0', 'a b']}", "files");
    assert_eq!(spec(&imported, "servers")[0]["command"], json!(["npx", "-y", "server@1.0", "a b"]));
    let changed = notes(&imported, NoteLevel::Changed);
    assert!(changed.iter().any(|note| note.contains("only a local run starts a command")), "{changed:?}");
    assert_eq!(errors(&imported), [] as [String; 0]);
    // On a cluster no command is started.
    let checked = signoff_manifest::check(&imported.to_yaml(), &Settings::default());
    assert!(checked.iter().any(|one| !one.is_valid()));
}

#[test]
fn a_header_with_a_credential_becomes_a_key_from_a_secret() {
    for (header, value, secret, named, scheme) in [
        ("Authorization", "Bearer ${CRM_TOKEN}", "crm-token", json!(null), ""),
        ("authorization", "bearer ghp_abc4711", "crm-authorization", json!(null), ""),
        ("Authorization", "Basic ghp_abc4711", "crm-authorization", json!("Authorization"), "`Basic `"),
        ("X-Api-Key", "${CRM_TOKEN}", "crm-token", json!("X-Api-Key"), ""),
        ("X-Api-Key", "ghp_abc4711", "crm-x-api-key", json!("X-Api-Key"), ""),
        ("X-Other", "Token ${CRM_TOKEN}", "crm-token", json!("X-Other"), "`Token `"),
    ] {
        let servers =
            format!("{{id: crm, url: 'https://crm.example.com/mcp', headers: {{Accept: x, {header}: '{value}'}}}}");
        let imported = imported(&servers, "crm");
        let server = &spec(&imported, "servers")[0];
        assert_eq!((&server["key"], &server["header"]), (&json!(secret), &named), "{header}: {value}");
        assert_eq!(*spec(&imported, "secrets"), json!([{"name": secret, "secret": secret, "key": "value"}]));
        let output = format!("{}{:?}", imported.to_yaml(), imported.notes);
        assert!(!output.contains("ghp_abc4711"), "{header}: {output}");
        assert!(output.contains(&format!("of the Secret {secret}")) && output.contains(scheme), "{header}: {output}");
        assert!(imported.is_complete());
        assert_eq!(errors(&imported), [] as [String; 0], "{header}");
    }
}

#[test]
fn headers_and_variables_without_an_equivalent_have_a_remedy() {
    let headers = "X-Team: blue, Authorization: 'Bearer ${TOKEN}', X-Api-Key: '${KEY}', X-Mixed: 'a ghp_abc4711${KEY}'";
    let sent = imported(&format!("{{id: crm, url: 'https://crm.example.com/mcp', headers: {{{headers}}}}}"), "crm");
    let variables = "LOG_LEVEL: info, CRM_TOKEN: ghp_abc4711, HOST: '${HOST}'";
    let started = imported(&format!("{{id: crm, command: crm-server, env: {{{variables}}}}}"), "crm");
    let mixed =
        imported("{id: crm, url: 'https://crm.example.com/mcp', headers: {X-Mixed: 'ghp_abc4711${KEY}'}}", "crm");
    for (imported, level, fields) in [
        (&sent, NoteLevel::Unsupported, vec!["headers.X-Team", "headers.X-Api-Key", "headers.X-Mixed"]),
        (&mixed, NoteLevel::Unsupported, vec!["headers.X-Mixed"]),
        (&started, NoteLevel::Unsupported, vec!["env.CRM_TOKEN", "env.HOST"]),
        (&started, NoteLevel::Changed, vec!["env.LOG_LEVEL"]),
    ] {
        let messages = notes(imported, level);
        let messages: Vec<_> = messages.iter().filter(|note| note.contains(": left out: ")).collect();
        assert_eq!(messages.len(), fields.len(), "{messages:?}");
        for (field, note) in fields.iter().zip(&messages) {
            assert!(note.starts_with(&format!("tools.mcp[0].{field}: ")), "{field}: {note}");
        }
        let output = format!("{}{:?}", imported.to_yaml(), imported.notes);
        assert!(!output.contains("ghp_abc4711"), "{output}");
    }
    let command = &spec(&started, "servers")[0]["command"];
    assert_eq!(*command, json!(["crm-server"]));
}

#[test]
fn a_command_with_a_credential_is_left_out_without_repeating_it() {
    for argument in [
        "--token=ghp_abc4711",
        "API_KEY=ghp_abc4711",
        "postgres://me:ghp_abc4711@db/crm",
        "https://ghp_abc4711@crm.example.com/",
        "https://crm.example.com/?api_key=ghp_abc4711",
        "Authorization: Bearer ghp_abc4711",
    ] {
        let imported = imported(&format!("{{id: crm, command: crm-server, args: ['{argument}']}}"), "crm");
        let messages = notes(&imported, NoteLevel::Unsupported);
        assert!(
            matches!(messages.as_slice(), [one] if one.starts_with("tools.mcp[0].args: ") && one.contains("write a script")),
            "{argument}: {messages:?}"
        );
        assert_eq!(*spec(&imported, "servers"), Value::Null);
        assert_eq!(imported.object["metadata"]["annotations"]["import.signoff.dev/tools"], "clerk: crm");
        let output = format!("{}{:?}", imported.to_yaml(), imported.notes);
        assert!(!output.contains("ghp_abc4711"), "{output}");
    }
    for argument in ["-y", "/srv/tokens.txt", "https://crm.example.com/x", "--port=8080"] {
        let imported = imported(&format!("{{id: crm, command: crm-server, args: ['{argument}']}}"), "crm");
        assert!(imported.is_complete(), "{argument}: {:?}", imported.notes);
    }
}

#[test]
fn an_address_that_is_not_one_fixed_server_is_refused_without_repeating_it() {
    for (server, field) in [
        ("url: 'https://{{ args.host }}/mcp'", "url"),
        ("url: 'https://${HOST}/mcp'", "url"),
        ("url: 'https://me:ghp_abc4711@crm.example.com/mcp'", "url"),
        ("url: 'https://crm.example.com/mcp?api_key=ghp_abc4711'", "url"),
        ("url: 'https://crm.example.com/mcp?key=ghp_abc4711'", "url"),
        ("url: 'https://crm.example.com/mcp#ghp_abc4711'", "url"),
        ("url: 'crm.example.com/mcp'", "url"),
        ("url: 'https://crm.example.com/mcp', command: npx", "url"),
        ("command: [npx, server]", "command"),
    ] {
        let wrong = import(&file(&format!("{{id: crm, {server}}}"), "crm"), "alice").unwrap_err();
        let messages: Vec<_> = wrong.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(messages, [format!("tools.mcp[0].{field}")], "{server}: {wrong:?}");
        assert!(!wrong[0].message.contains("ghp_abc4711"), "{wrong:?}");
    }
    let neither = imported("{id: crm}", "crm");
    let messages = notes(&neither, NoteLevel::Unsupported);
    assert!(messages.iter().any(|note| note.contains("neither url nor command")), "{messages:?}");
}

#[test]
fn file_tools_become_tools_of_one_filesystem_server() {
    let imported = imported("", "file_read, strands_tools.file_write, head, search");
    assert_eq!(
        *spec(&imported, "servers"),
        json!([{
            "name": "files",
            "command": ["npx", "-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "."],
            "only": ["read_text_file", "write_file", "search_files"],
            "read": ["read_text_file", "search_files"],
        }])
    );
    let tools = json!(["files.read_text_file", "files.write_file", "files.search_files"]);
    assert_eq!(spec(&imported, "agents")[0]["tools"], tools);
    assert_eq!(spec(&imported, "gates")[0]["tools"], json!(["files.write_file"]));
    assert!(imported.is_complete());
    assert_eq!(errors(&imported), [] as [String; 0]);
}

#[test]
fn a_tool_that_only_reads_files_needs_no_gate() {
    let imported = imported("", "file_read");
    assert_eq!(spec(&imported, "servers")[0]["only"], json!(["read_text_file"]));
    assert_eq!(*spec(&imported, "gates"), Value::Null);
    assert_eq!(errors(&imported), [] as [String; 0]);
}

#[test]
fn a_server_named_files_keeps_all_of_its_tools() {
    let imported = imported("{id: files, command: my-files}", "files, file_read");
    let servers = spec(&imported, "servers");
    assert_eq!(servers[0], json!({"name": "files", "command": ["my-files"]}));
    assert_eq!((&servers[1]["name"], &servers[1]["only"]), (&json!("files-2"), &json!(["read_text_file"])));
    assert_eq!(spec(&imported, "agents")[0]["tools"], json!(["files.*", "files-2.read_text_file"]));
}

#[test]
fn every_agent_has_the_tools_of_retrieval() {
    let text = |tools: &str| {
        format!(
            "runtime: {{provider: ollama, model_id: m}}\ncontext_policy: {{retrieval: {{jit_tools: [tail, head], mcp_servers: [crm]}}}}\n\
             tools: {{python: [handoff_to_user], mcp: [{{id: crm, url: 'https://crm.example.com/mcp'}}]}}\n\
             agents: {{clerk: {{prompt: x{tools}}}}}\n\
             pattern: {{type: chain, config: {{steps: [{{agent: clerk, input: a}}]}}}}\n"
        )
    };
    for (listed, tools) in [
        (", tools: []", json!(["files.read_text_file"])),
        (", tools: [handoff_to_user]", json!(["handoff_to_user", "files.read_text_file"])),
        // An agent without a list has its servers, and no other tool of the file.
        ("", json!(["crm.*", "files.read_text_file"])),
    ] {
        let imported = import(&text(listed), "alice").unwrap();
        assert_eq!(spec(&imported, "agents")[0]["tools"], tools, "{listed}");
        assert_eq!(errors(&imported), [] as [String; 0], "{listed}");
    }
}

#[test]
fn names_of_servers_are_labels_of_twenty_characters_and_stay_different() {
    let servers = "{id: 'The_Customers.of:ACME-2026', url: 'https://a.example.com'}, \
                   {id: the-customers-of-acme-2027, url: 'https://b.example.com'}";
    let imported = imported(servers, "'The_Customers.of:ACME-2026', the-customers-of-acme-2027");
    let names: Vec<_> = spec(&imported, "servers").as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["the-customers-of-acm", "the-customers-of"]);
    assert_eq!(errors(&imported), [] as [String; 0]);
}
