//! Tests of imported tools: the choices of a model, and the parts of a file that are not imported.

#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};
use signoff_engine::Settings;
use signoff_manifest::Severity;

use crate::{Imported, NoteLevel, import};

/// Returns a file with `tools` and one agent that lists the tools `listed`.
fn file(tools: &str, listed: &str) -> String {
    format!(
        "runtime: {{provider: ollama, model_id: m}}\ntools: {tools}\nagents: {{clerk: {{prompt: x{listed}}}}}\n\
         pattern: {{type: chain, config: {{steps: [{{agent: clerk, input: a}}]}}}}\n"
    )
}

fn imported(tools: &str, listed: &str) -> Imported {
    import(&file(tools, listed), "alice").unwrap()
}

/// Returns the notes of a level, as `field: message`.
fn notes(imported: &Imported, level: NoteLevel) -> Vec<String> {
    imported.notes.iter().filter(|n| n.weight == level).map(|n| format!("{}: {}", n.field, n.message)).collect()
}

/// Returns the names of the tools of the first agent.
fn tools(imported: &Imported) -> Vec<&str> {
    let listed = imported.object["spec"]["agents"][0]["tools"].as_array();
    listed.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the problems that `signoff validate` finds in the imported Workflow.
fn problems(imported: &Imported, severity: Severity) -> Vec<String> {
    let checked = signoff_manifest::check(&imported.to_yaml(), &Settings::default());
    let problems = checked.into_iter().flat_map(|one| one.problems).filter(|problem| problem.severity == severity);
    problems.map(|problem| format!("{}: {}", problem.field, problem.message)).collect()
}

fn step<'i>(imported: &'i Imported, name: &str) -> &'i Value {
    let steps = imported.object["spec"]["steps"].as_array().unwrap();
    steps.iter().find(|step| step["name"] == name).unwrap()
}

#[test]
fn an_endpoint_is_a_tool_whose_method_host_and_headers_are_fixed() {
    let crm = "{http_executors: [{id: crm, base_url: 'https://crm.example.com/v2', headers: {Accept: application/json}, \
               common_endpoints: [{method: POST, path: '/customers/{id}/refunds', description: Refund}]}]}";
    let imported = imported(crm, ", tools: [crm]");
    assert_eq!(tools(&imported), ["crm-post-customers-id-refunds"]);
    let http = &step(&imported, "crm-post-customers-id-refunds")["http"];
    assert_eq!(http["method"], "POST");
    assert!(http["url"].as_str().unwrap().starts_with("https://crm.example.com/v2/customers/{{ args.id }}/refunds"));
    assert_eq!(http["headers"]["Accept"], "application/json");
    let tool = &imported.object["spec"]["tools"][0];
    assert_eq!(tool["parameters"]["required"], serde_json::json!(["id"]));
    assert_eq!(tool["parameters"]["additionalProperties"], false);
    assert!(tool.get("effects").is_none(), "what a call changes is not guessed");
    assert_eq!(problems(&imported, Severity::Error), [] as [String; 0]);
    let warnings = problems(&imported, Severity::Warning);
    assert!(warnings.iter().any(|warning| warning.contains("no gate asks about them")), "{warnings:?}");
}

#[test]
fn a_model_chooses_a_path_below_the_address_and_never_a_host() {
    let imported = imported("{http_executors: [{id: api, base_url: 'https://api.example.com'}]}", ", tools: [api]");
    assert_eq!(tools(&imported), ["api-get", "api-post", "api-put", "api-patch", "api-delete"]);
    let url = step(&imported, "api-get")["http"]["url"].as_str().unwrap();
    let render = |args: Value| {
        let mut scope = signoff_expr::Scope::default();
        scope.set("args", args);
        signoff_expr::Template::parse(url, "").unwrap().render_url(&scope)
    };
    let args = serde_json::json!({"path": "/a b/c", "query": {"q": "x&y=z", "n": 1}});
    assert_eq!(render(args).unwrap(), "https://api.example.com/a%20b/c?q=x%26y%3Dz&n=1");
    assert_eq!(render(serde_json::json!({"path": "/"})).unwrap(), "https://api.example.com");
    for path in ["//evil.example.com/x", "https://evil.example.com", "@evil.example.com", ".evil.example.com"] {
        let url = render(serde_json::json!({"path": path})).unwrap();
        assert!(url.starts_with("https://api.example.com/"), "{path}: {url}");
    }
    for path in ["/../x", "/a/%2e%2e/x", "/./x"] {
        assert!(render(serde_json::json!({"path": path})).is_err(), "{path}");
    }
}

#[test]
fn http_request_calls_the_server_that_the_run_names() {
    for id in ["http_request", "strands_tools.http_request", "strands_tools.http_request.http_request"] {
        let imported = imported("{}", &format!(", tools: [{id}]"));
        assert_eq!(
            tools(&imported),
            ["http-request-get", "http-request-post", "http-request-put", "http-request-delete"]
        );
        let input = &imported.object["spec"]["inputs"][0];
        assert_eq!((&input["name"], &input["required"]), (&"http_request_url".into(), &true.into()));
        let url = step(&imported, "http-request-get")["http"]["url"].as_str().unwrap();
        assert!(url.starts_with("{{ inputs.http_request_url }}{% for part in args.path"), "{url}");
        let changed = notes(&imported, NoteLevel::Changed);
        assert!(changed.iter().any(|note| note.contains("must not choose a host")), "{changed:?}");
        assert!(imported.is_complete());
    }
}

#[test]
fn a_tool_that_asks_people_becomes_the_built_in_tool_with_a_gate() {
    for (id, name) in [
        ("handoff_to_user", "handoff_to_user"),
        ("strands_tools.handoff_to_user.handoff_to_user", "handoff_to_user"),
        ("human_intervention.request", "human_intervention.request"),
    ] {
        let imported = imported("{}", &format!(", tools: [{id}]"));
        assert_eq!(tools(&imported), [name]);
        let gate = &imported.object["spec"]["gates"][0];
        assert_eq!((&gate["name"], &gate["type"]), (&"questions".into(), &"question".into()));
        assert_eq!(gate["hitl"]["approvers"][0]["name"], "alice");
        assert_eq!(problems(&imported, Severity::Error), [] as [String; 0]);
    }
}

#[test]
fn an_agent_without_a_list_has_every_declared_tool() {
    let declared = "{python: [handoff_to_user], http_executors: [{id: api, base_url: 'https://api.example.com'}]}";
    assert_eq!(tools(&imported(declared, "")).len(), 6);
    let none = imported(declared, ", tools: []");
    assert_eq!(tools(&none), [] as [&str; 0]);
    assert!(none.object["spec"].get("tools").is_none());
    let messages = notes(&none, NoteLevel::Info);
    assert_eq!(messages.iter().filter(|note| note.contains("no agent lists the tool")).count(), 2, "{messages:?}");
}

/// Returns the import of a tool with one header.
fn with_header(header: &str, value: &str) -> Imported {
    let tools = format!(
        "{{http_executors: [{{id: api, base_url: 'https://api.example.com', headers: {{{header}: '{value}'}}}}]}}"
    );
    imported(&tools, ", tools: [api]")
}

#[test]
fn a_header_with_a_credential_comes_from_a_secret() {
    for (header, value, prefix, secret, level) in [
        ("Authorization", "Bearer ghp_abc4711", json!("Bearer "), "api-authorization", NoteLevel::Changed),
        ("X-Api-Key", "ghp_abc4711", json!(null), "api-x-api-key", NoteLevel::Changed),
        ("Cookie", "session=ghp_abc4711", json!(null), "api-cookie", NoteLevel::Changed),
        ("Authorization", "Bearer ${CRM_TOKEN}", json!("Bearer "), "crm-token", NoteLevel::Info),
        ("X-Other", "${CRM_TOKEN}", json!(null), "crm-token", NoteLevel::Info),
    ] {
        let imported = with_header(header, value);
        let messages = notes(&imported, level);
        assert!(
            messages.iter().any(|note| note.contains(&format!("of the Secret {secret}"))),
            "{header}: {messages:?}"
        );
        let sent = &step(&imported, "api-get")["http"]["secretHeaders"];
        let expected = json!([{"name": header, "from": secret, "prefix": prefix}]);
        assert_eq!(sent[0]["prefix"], expected[0]["prefix"], "{header}");
        assert_eq!((&sent[0]["name"], &sent[0]["from"]), (&expected[0]["name"], &expected[0]["from"]));
        let entry = json!([{"name": secret, "secret": secret, "key": "value"}]);
        assert_eq!(imported.object["spec"]["secrets"], entry);
        assert_eq!(problems(&imported, Severity::Error), [] as [String; 0], "{header}");
        let output = format!("{}{:?}", imported.to_yaml(), imported.notes);
        assert!(!output.contains("ghp_abc4711"), "{header}: {output}");
        assert!(imported.is_complete());
    }
}

#[test]
fn a_header_that_no_secret_can_fill_in_is_left_out_and_never_repeated() {
    for value in ["${ghp_abc4711}", "{{ secrets.ghp_abc4711 }}", "ghp_abc4711${KEY}", "${KEY}${ghp_abc4711}"] {
        let imported = with_header("X-Other", value);
        let messages = notes(&imported, NoteLevel::Unsupported);
        assert!(messages.iter().any(|note| note.contains("headers.X-Other: left out")), "{value}: {messages:?}");
        let output = format!("{}{:?}", imported.to_yaml(), imported.notes);
        assert!(!output.contains("ghp_abc4711"), "{value}: {output}");
    }
}

#[test]
fn a_path_of_the_model_stays_below_a_server_with_a_secret() {
    let imported = with_header("X-Api-Key", "${KEY}");
    let url = step(&imported, "api-get")["http"]["url"].as_str().unwrap();
    for (path, expected) in [("/a b/c", "/a%20b/c"), ("/", "/"), ("@evil.example.com//x/", "/%40evil.example.com/x")] {
        let mut scope = signoff_expr::Scope::default();
        scope.set("args", json!({"path": path}));
        let rendered = signoff_expr::Template::parse(url, "").unwrap().render_url(&scope);
        assert_eq!(rendered.unwrap(), format!("https://api.example.com{expected}"), "{path}");
    }
}

#[test]
fn an_address_that_is_not_one_fixed_server_is_refused_without_repeating_it() {
    for address in [
        "https://{{ args.host }}/",
        "https://api.example.com/{{ args.path }}",
        "https://{% raw %}x",
        "https://${HOST}/",
        "https://user:ghp_abc4711@api.example.com",
        "https://api.example.com?token=ghp_abc4711",
        "https://api.example.com#x",
        "file:///etc/passwd",
        "api.example.com",
        "//api.example.com",
        "",
    ] {
        let text = file(&format!("{{http_executors: [{{id: api, base_url: '{address}'}}]}}"), ", tools: [api]");
        let wrong = import(&text, "alice").unwrap_err();
        let messages: Vec<_> = wrong.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(messages, ["tools.http_executors[0].base_url"], "{address}: {wrong:?}");
        assert!(!wrong[0].message.contains("ghp_abc4711"), "{wrong:?}");
    }
}

#[test]
fn a_tool_without_an_equivalent_has_a_remedy() {
    for (tool, remedy) in [
        ("python_exec", "pod step"),
        ("strands_tools.notes", "the conversation"),
        ("calculator", "a step that calculates"),
        ("anything", "there is no tool anything"),
    ] {
        let imported = imported("{}", &format!(", tools: ['{tool}']"));
        let messages = notes(&imported, NoteLevel::Unsupported);
        assert!(
            matches!(messages.as_slice(), [one] if one.starts_with("agents.clerk.tools[0]") && one.contains(remedy)),
            "{tool}: {messages:?}"
        );
        assert!(!imported.is_complete());
        let kept = &imported.object["metadata"]["annotations"]["import.signoff.dev/tools"];
        assert_eq!(*kept, format!("clerk: {tool}"));
    }
}

#[test]
fn a_step_with_its_own_tools_has_a_variant_of_the_agent() {
    let text = "runtime: {provider: ollama, model_id: m}\n\
                tools: {http_executors: [{id: api, base_url: 'https://api.example.com'}]}\n\
                agents: {clerk: {prompt: x, tools: [api]}}\n\
                pattern: {type: chain, config: {steps: [{agent: clerk, input: a}, {agent: clerk, input: b, tool_overrides: []}]}}\n";
    let imported = import(text, "alice").unwrap();
    let agents = imported.object["spec"]["agents"].as_array().unwrap();
    assert_eq!((agents.len(), &agents[1]["name"]), (2, &"clerk-tools".into()));
    assert_eq!((agents[0]["tools"].as_array().unwrap().len(), agents[1].get("tools")), (5, None));
    assert_eq!(agents[1]["system"], "x");
    let steps = &imported.object["spec"]["steps"];
    assert_eq!((&steps[0]["agent"]["name"], &steps[1]["agent"]["name"]), (&"clerk".into(), &"clerk-tools".into()));
}

#[test]
fn a_tool_never_takes_the_name_of_a_step() {
    let text = "runtime: {provider: ollama, model_id: m}\n\
                tools: {http_executors: [{id: api, base_url: 'https://api.example.com'}]}\n\
                agents: {clerk: {prompt: x, tools: [api]}}\n\
                pattern: {type: chain, config: {steps: [{id: api-get, agent: clerk, input: a}]}}\n";
    let imported = import(text, "alice").unwrap();
    assert_eq!(tools(&imported)[0], "api-get-2");
    assert_eq!(problems(&imported, Severity::Error), [] as [String; 0]);
}
