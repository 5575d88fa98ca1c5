//! Tests of new rules of plans, which do not apply to runs that were accepted before, and of advice.

use serde_json::{Value, json};
use signoff_api::Verdict;

use super::*;

/// Returns a step list with one gate, whose form has a question. `more`: further fields of the gate.
fn gate_with_question(question: Value, more: Value) -> Value {
    let mut hitl = json!({
        "prompt": "go?", "approvers": [{"kind": "User", "name": "alice"}], "form": {"questions": [question]},
        "allowedVerdicts": ["Approve", "Respond", "Reject"],
    });
    for (key, value) in more.as_object().unwrap() {
        hitl[key] = value.clone();
    }
    json!([{"name": "gate", "hitl": hitl}])
}

#[test]
fn an_approve_without_required_answers_needs_allow_unanswered() {
    let required = json!({"id": "ticket"});
    assert_refused(
        &errors_of_steps(gate_with_question(required.clone(), json!({}))),
        "spec.steps[0].hitl.allowedVerdicts",
        "set allowUnanswered: true",
    );
    for (question, more) in [
        (required.clone(), json!({"allowUnanswered": true})),
        (required, json!({"allowedVerdicts": ["Respond", "Reject"]})),
        (json!({"id": "ticket", "required": false}), json!({})),
        (json!({"id": "ticket", "allowSkip": true}), json!({})),
    ] {
        assert_eq!(errors_of_steps(gate_with_question(question.clone(), more.clone())), [""; 0], "{question} {more}");
    }
}

#[test]
fn a_new_run_without_a_requester_is_refused() {
    let spec = |requester: &str| json!({"requestedBy": requester, "steps": [{"name": "only", "set": {"value": "x"}}]});
    assert_refused(&errors(spec("")), "spec.requestedBy", "the requester is missing");
    assert_eq!(errors(spec("dana")), [""; 0]);
    let accepted = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
        "spec": {"steps": [{"name": "only", "set": {"value": "x"}}]},
        "status": {"phase": "Running", "seq": 1, "specDigest": Digest::of_bytes(b"")},
    });
    let accepted = serde_json::from_value(accepted).unwrap();
    assert!(Plan::of(&accepted, &Settings::default(), &Arc::default()).is_ok());
}

#[test]
fn a_second_review_of_the_same_text_that_offers_modify_is_a_warning() {
    let warnings = |second: Value| {
        let gate = |name: &str, more: Value| {
            let mut hitl = json!({"prompt": "go?", "approvers": [{"kind": "User", "name": "alice"}]});
            hitl.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"name": name, "hitl": hitl})
        };
        let draft = json!({"name": "draft", "set": {"value": "x"}});
        let workflow = serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
            "spec": {"requestedBy": "dana", "steps": [draft, gate("first", json!({})), gate("second", second)]},
        }));
        let plan = Plan::of(&workflow.unwrap(), &Settings::default(), &Arc::default()).unwrap();
        let usual = [Verdict::Approve, Verdict::Reject, Verdict::Modify, Verdict::Respond, Verdict::Abort];
        assert_eq!(plan.allowed_verdicts("spec.steps[1].hitl"), usual, "the default");
        plan.warnings().to_vec()
    };
    let found = warnings(json!({}));
    assert!(found.iter().any(|warning| warning.contains("approved at gate first")), "{found:?}");
    let apart = json!({"allowedVerdicts": ["Approve", "Reject"], "excludeDeciders": ["first"]});
    assert_eq!(warnings(apart), [""; 0]);
}

/// Returns the plan of a spec, or its errors. `accepted`: whether the run was accepted before.
fn plan_of(spec: &Value, accepted: bool) -> Result<Plan, Vec<String>> {
    let status = if accepted { json!({"specDigest": Digest::of_bytes(b"")}) } else { json!({}) };
    let workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec, "status": status,
    }));
    Plan::of(&workflow.unwrap(), &Settings::default(), &Arc::default())
        .map_err(|found| found.iter().map(ToString::to_string).collect())
}

/// Returns a spec with the request `look`, whose answer has a schema, and a POST with the condition `skip_if`.
fn spec_with_lookup(schema: Option<Value>, skip_if: &str) -> Value {
    let mut look = json!({"name": "look", "http": {"url": "http://x.svc/"}});
    if let Some(schema) = schema {
        look["outputSchema"] = schema;
    }
    json!({"requestedBy": "dana", "steps": [
        look, {"name": "pay", "skipIf": skip_if, "http": {"method": "POST", "url": "http://x.svc/"}},
    ]})
}

fn closed_schema() -> Option<Value> {
    Some(json!({"type": "object", "additionalProperties": false, "properties": {"score": {"type": "number"}}}))
}

#[test]
fn new_errors_of_the_plan_do_not_stop_an_accepted_run() {
    let inputs = |input: Value| json!({"requestedBy": "dana", "inputs": [input], "steps": [{"name": "a", "set": {"value": "x"}}]});
    let edge = |when: &str| {
        json!({"requestedBy": "dana", "pattern": {"graph": {"edges": [
        {"from": "look", "choose": [{"when": when, "to": "pay"}, {"when": "else", "to": "rest"}]}]}},
        "steps": [
            {"name": "look", "outputSchema": closed_schema(), "http": {"url": "http://x.svc/"}},
            {"name": "pay", "set": {"value": "x"}}, {"name": "rest", "set": {"value": "x"}},
        ]})
    };
    let gate = |condition: &str| {
        json!({"requestedBy": "dana", "steps": [
            {"name": "look", "outputSchema": closed_schema(), "http": {"url": "http://x.svc/"}},
            {"name": "pay", "http": {"method": "POST", "url": "http://x.svc/"}}],
            "gates": [{"name": "ask", "type": "stepStart", "steps": ["pay"], "condition": condition,
                "hitl": {"prompt": "go?", "approvers": [{"kind": "User", "name": "alice"}]}}]})
    };
    let artifact = |skip_if: &str| {
        let look = json!({"name": "look", "outputSchema": closed_schema(), "http": {"url": "http://x.svc/"}});
        json!({"requestedBy": "dana", "pattern": {"dag": {}}, "steps": [look],
            "outputs": {"artifacts": [{"path": "a.txt", "from": "x", "skipIf": skip_if}]}})
    };
    let deferred = |conversation: &str| {
        let mut spec = json!({
            "requestedBy": "dana",
            "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}],
            "agents": [{"name": "clerk", "tools": ["refund"]}],
            "tools": [{"name": "refund", "description": "Refunds.", "step": "pay", "effects": "irreversible"}],
            "steps": [
                {"name": "ask", "agent": {"name": "clerk", "input": "go"}},
                {"name": "review", "hitl": {"prompt": "go?", "approvers": [{"kind": "User", "name": "alice"}],
                    "allowedVerdicts": ["Approve", "Reject", "Defer"]}},
                {"name": "pay", "http": {"method": "POST", "url": "http://x.svc/"}}],
        });
        if conversation == "fresh" {
            spec["steps"][0]["agent"]["conversation"] = json!("fresh");
        }
        spec
    };
    let excluding = |gate: &str| {
        let hitl =
            json!({"prompt": "go?", "approvers": [{"kind": "Group", "name": "finance"}], "excludeDeciders": [gate]});
        json!({"requestedBy": "dana", "steps": [{"name": "prod", "hitl": hitl}]})
    };
    let notifying = |channels: &[&str]| {
        let hitl = json!({"prompt": "go?", "approvers": [{"kind": "User", "name": "alice"}], "notify": channels});
        json!({"requestedBy": "dana", "steps": [{"name": "pay", "hitl": hitl}]})
    };
    let typed_input = |type_: &str, skip_if: &str| {
        let pay = json!({"name": "pay", "skipIf": skip_if, "http": {"method": "POST", "url": "https://bank.example"}});
        json!({"requestedBy": "dana", "inputs": [{"name": "of", "type": type_}], "steps": [pay]})
    };
    let tool_that_skips = |skip_if: &str| {
        let parameters =
            json!({"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}});
        let pay = json!({"name": "pay", "skipIf": skip_if, "http": {"method": "POST", "url": "https://bank.example"}});
        json!({
            "requestedBy": "dana", "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}],
            "agents": [{"name": "clerk", "tools": ["refund"]}],
            "tools": [{"name": "refund", "step": "pay", "description": "Pays.", "parameters": parameters}],
            "steps": [{"name": "handle", "agent": {"name": "clerk", "input": "x"}}, pay],
        })
    };
    let asking = |base_url: &str| {
        let provider = json!({"name": "p", "anthropic": {"baseURL": base_url}});
        json!({"requestedBy": "dana", "providers": [provider], "steps": [{"name": "a", "set": {"value": "x"}}]})
    };
    let sending = |url: &str| json!({"requestedBy": "dana", "steps": [{"name": "a", "http": {"url": url}}]});
    // (the spec, the field, a part of the message, a valid spec that differs in one point)
    let table = [
        (
            asking("https://dana:hunter2@models.example.com"),
            "spec.providers[0].anthropic.baseURL",
            "a user name or a password",
            asking("https://models.example.com"),
        ),
        (
            asking("https://models.example.com?key=hunter2"),
            "spec.providers[0].anthropic.baseURL",
            "a query",
            asking("https://models.example.com/key"),
        ),
        (
            sending("https://dana:hunter2@shop.example.com/{{ run.name }}"),
            "spec.steps[0].http.url",
            "a user name or a password",
            sending("https://shop.example.com/{{ run.name }}?owner=dana@example.com"),
        ),
        (
            inputs(json!({"name": "big", "type": "number", "value": 1e20})),
            "spec.inputs[0].value",
            "input big: the number is beyond ±2^53",
            inputs(json!({"name": "big", "type": "string", "value": "100000000000000000000"})),
        ),
        (
            inputs(json!({"name": "order", "type": "object", "default": {"customer": {"id": 1e20}}})),
            "spec.inputs[0].default",
            "input order: the number at /customer/id is beyond ±2^53",
            inputs(
                json!({"name": "order", "type": "object", "default": {"customer": {"id": 9_007_199_254_740_992_u64}}}),
            ),
        ),
        (
            inputs(json!({"name": "tiny", "type": "number", "value": 5e-324})),
            "spec.inputs[0].value",
            "input tiny: the number is too close to 0",
            inputs(json!({"name": "tiny", "type": "number", "value": 0.1})),
        ),
        (
            spec_with_lookup(Some(json!({"type": "object", "properties": {"n": {"maximum": 1e300}}})), "false"),
            "spec.steps[0].outputSchema.properties.n.maximum",
            "the number is beyond ±2^53",
            spec_with_lookup(Some(json!({"type": "object", "properties": {"n": {"maximum": 1e15}}})), "false"),
        ),
        (
            spec_with_lookup(closed_schema(), "steps.look.response.status == 'refunded'"),
            "spec.steps[1].skipIf",
            "`steps.look.response.status` can never be there",
            spec_with_lookup(closed_schema(), "has(steps.look.response.status)"),
        ),
        (
            spec_with_lookup(Some(json!({"type": "string"})), "steps.look.response.status == 'refunded'"),
            "spec.steps[1].skipIf",
            "`steps.look.response` is a text by its outputSchema, and has no fields",
            spec_with_lookup(Some(json!({"type": "string"})), "steps.look.response == 'refunded'"),
        ),
        (
            spec_with_lookup(closed_schema(), "steps.look.response.score == 'high'"),
            "spec.steps[1].skipIf",
            "and is compared with a text",
            spec_with_lookup(closed_schema(), "steps.look.response.score == 7"),
        ),
        (
            spec_with_lookup(None, "steps.look.statusCode == '200'"),
            "spec.steps[1].skipIf",
            "`steps.look.statusCode` is a number, and is compared with a text",
            spec_with_lookup(None, "steps.look.statusCode == 200"),
        ),
        (
            typed_input("integer", "inputs.of == '5'"),
            "spec.steps[0].skipIf",
            "`inputs.of` is a number, and is compared with a text",
            typed_input("string", "inputs.of == '5'"),
        ),
        (
            typed_input("boolean", "of in ['yes', 'no']"),
            "spec.steps[0].skipIf",
            "`of` is true or false, and is compared with a text",
            typed_input("object", "of.x == 'yes'"),
        ),
        (
            tool_that_skips("args.amount == '420'"),
            "spec.steps[1].skipIf",
            "`args.amount` is a number, and is compared with a text",
            tool_that_skips("args.amount == 420"),
        ),
        (
            edge("steps.look.response.status == 'paid'"),
            "spec.pattern.graph.edges[0].choose[0].when",
            "can never be there",
            edge("steps.look.response.score > 5"),
        ),
        (
            gate("steps.look.response.status == 'paid'"),
            "spec.gates[0].condition",
            "can never be there",
            gate("steps.look.response.score > 5"),
        ),
        (
            artifact("steps.look.response.status == 'paid'"),
            "spec.outputs.artifacts[0].skipIf",
            "can never be there",
            artifact("steps.look.response.score > 5"),
        ),
        (
            json!({"requestedBy": "dana", "steps": gate_with_question(json!({"id": "ticket"}), json!({}))}),
            "spec.steps[0].hitl.allowedVerdicts",
            "set allowUnanswered: true",
            json!({"requestedBy": "dana", "steps": gate_with_question(json!({"id": "ticket"}), json!({"allowUnanswered": true}))}),
        ),
        (excluding("sql"), "spec.steps[0].hitl.excludeDeciders", "there is no gate sql", excluding("*")),
        (
            notifying(&["finance", "https://hooks.example.com"]),
            "spec.steps[0].hitl.notify[1]",
            "https://hooks.example.com is not the name of a channel",
            notifying(&["finance", "hooks"]),
        ),
        (
            notifying(&["mail", "mail"]),
            "spec.steps[0].hitl.notify[1]",
            "duplicate channel mail",
            notifying(&["mail", "mail-2"]),
        ),
        (
            deferred("fresh"),
            "spec.steps[1].hitl.allowedVerdicts",
            "Defer runs step ask again, whose agent forgets what its tools did",
            deferred("keep"),
        ),
    ];
    for (spec, field, words, twin) in table {
        let found = plan_of(&spec, false).err().unwrap_or_default();
        assert_refused(&found, field, words);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(plan_of(&spec, true).err(), None, "an accepted run goes on: {field}: {words}");
        assert_eq!(plan_of(&twin, false).err(), None, "{field}: {words}");
    }
}

/// Returns a spec with a request and one entry `crm` in `spec.secrets`. `more`: further fields of the request.
fn spec_with_secret(more: Value) -> Value {
    let mut http = json!({"url": "https://crm.example.com/orders"});
    http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "requestedBy": "dana", "secrets": [{"name": "crm", "secret": "vault", "key": "token"}],
        "steps": [{"name": "look", "http": http}],
    })
}

#[test]
fn a_secret_header_with_an_open_url_is_refused() {
    let header = |name: &str, from: &str| json!({"name": name, "from": from});
    let to = |url: &str| spec_with_secret(json!({"url": url, "secretHeaders": [header("X-Key", "crm")]}));
    let (url, first) = ("spec.steps[0].http.url", "spec.steps[0].http.secretHeaders[0]");
    for open in [
        "{{ inputs.url }}",
        "https://{{ inputs.host }}/",
        "https://crm.example.com{{ inputs.path }}",
        "https://crm.example.com",
        "https://crm.example.com?a={{ inputs.path }}",
        "https://crm.example.com#/",
        r"https://crm.example.com\@evil.example/",
        "https://crm.example.com:{{ inputs.port }}/",
        "//crm.example.com/",
        "ftp://crm.example.com/",
    ] {
        for is_accepted in [false, true] {
            let found = plan_of(&to(open), is_accepted).err().unwrap_or_default();
            assert_refused(&found, url, "a URL that is sent a Secret begins with scheme, host and `/`");
        }
    }
    for (more, field, words) in [
        (json!({"secretHeaders": [header("X-Key", "hunter2")]}), format!("{first}.from"), "name one of them (crm)"),
        (
            json!({"headers": {"x_key": "x"}, "secretHeaders": [header("X-Key", "crm")]}),
            format!("{first}.name"),
            "the step has another header X-Key",
        ),
        (
            json!({"secretHeaders": [header("X-Key", "crm"), header("x-KEY", "crm")]}),
            "spec.steps[0].http.secretHeaders[1].name".to_owned(),
            "the step has another header x-KEY",
        ),
        (json!({"secretHeaders": [header("X-HTTP-Method", "crm")]}), format!("{first}.name"), "set `method` instead"),
    ] {
        for is_accepted in [false, true] {
            let found = plan_of(&spec_with_secret(more.clone()), is_accepted).err().unwrap_or_default();
            assert_refused(&found, &field, words);
            assert!(!found.concat().contains("hunter2"), "{found:?}");
        }
    }
    let twin = |url: &str| {
        let more = json!({"url": url, "headers": {"Accept": "text/plain"},
            "secretHeaders": [header("Authorization", "crm"), header("X-Key", "crm")]});
        plan_of(&spec_with_secret(more), false).map(|plan| plan.warnings().to_vec())
    };
    for url in
        ["https://crm.example.com/", "https://crm.example.com:8443/{{ run.name }}?a={{ run.name }}", "https://[::1]/"]
    {
        assert_eq!(twin(url), Ok(vec![]), "{url}");
    }
    let warned = twin("http://crm.svc:8080/orders").unwrap();
    assert!(matches!(warned.as_slice(), [one] if one.contains("sent without TLS")), "{warned:?}");
}

#[test]
fn a_condition_that_may_have_no_value_is_a_warning_with_the_remedy() {
    let warnings = |spec: Value| plan_of(&spec, false).unwrap().warnings().to_vec();
    let found = warnings(spec_with_lookup(None, "steps.look.response.status == 'refunded'"));
    assert!(
        matches!(found.as_slice(), [one] if one.starts_with("spec.steps[1].skipIf: `steps.look` has no outputSchema")
            && one.contains("and the step then fails: give the step an outputSchema")),
        "{found:?}"
    );
    let open = Some(json!({"type": "object", "properties": {}}));
    let found = warnings(spec_with_lookup(open.clone(), "steps.look.response.status == 'refunded'"));
    assert!(matches!(found.as_slice(), [one] if one.contains("is not among the properties")), "{found:?}");
    let guarded = "has(steps.look.response.status) && steps.look.response.status == 'refunded'";
    assert_eq!(warnings(spec_with_lookup(open, guarded)), Vec::<String>::new());
    assert_eq!(warnings(spec_with_lookup(None, "steps.look.response == 'refunded'")), Vec::<String>::new());
    // An accepted run gets no advice about conditions.
    let accepted = plan_of(&spec_with_lookup(None, "steps.look.response.status == 'refunded'"), true).unwrap();
    assert_eq!(accepted.warnings(), Vec::<String>::new());
}

#[test]
fn an_identifier_declared_as_a_number_is_a_warning() {
    let warnings = |input: Value, properties: Value| {
        let spec = json!({
            "requestedBy": "dana", "inputs": [input],
            "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}],
            "agents": [{"name": "clerk", "tools": ["refund"]}],
            "tools": [{"name": "refund", "description": "Refunds an order.", "step": "pay", "effects": "read",
                "parameters": {"type": "object", "properties": properties}}],
            "steps": [{"name": "ask", "agent": {"name": "clerk", "input": "go"}},
                {"name": "pay", "http": {"url": "http://x.svc/"}}],
        });
        plan_of(&spec, false).unwrap().warnings().to_vec()
    };
    let found = warnings(
        json!({"name": "customerId", "type": "integer", "value": 5}),
        json!({
            "id": {"type": "integer"}, "order_id": {"type": ["number", "null"]},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"productId": {"type": "integer"}}}},
        }),
    );
    let fields: Vec<&str> = found.iter().filter_map(|one| one.split(':').next()).collect();
    assert_eq!(
        fields,
        [
            "spec.inputs[0].type",
            "spec.tools[0].parameters.properties.id.type",
            "spec.tools[0].parameters.properties.order_id.type",
            "spec.tools[0].parameters.properties.lines.items.properties.productId.type",
        ],
        "{found:#?}"
    );
    assert!(found.iter().all(|one| one.ends_with("declare it as `type: string`")), "{found:#?}");
    let honest = warnings(
        json!({"name": "amount", "type": "integer", "value": 5}),
        json!({"id": {"type": "string"}, "paid": {"type": "integer"}, "shelf_id": {"type": "integer", "maximum": 99}}),
    );
    assert_eq!(honest, Vec::<String>::new());
}

#[test]
fn an_integer_with_a_fraction_or_exponent_is_read_as_integer() {
    let spec = |value: Value| {
        json!({"requestedBy": "dana", "steps": [{"name": "a", "set": {"value": "{{ inputs.n }}"}}],
            "inputs": [{"name": "n", "type": "integer", "value": value, "enum": [1000, 2]}]})
    };
    assert_eq!(plan_of(&spec(json!(1e3)), false).unwrap().inputs["n"], json!(1000));
    assert_refused(&plan_of(&spec(json!(1.5)), false).err().unwrap_or_default(), "spec.inputs[0].value", "an integer");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn two_specs_with_different_integers_never_share_a_digest(one in "-?[1-9][0-9]{0,40}", two in "-?[1-9][0-9]{0,40}", near in -3..3_i64) {
        let digest = |integer: &str| {
            let text = format!(
                r#"{{"requestedBy": "dana", "inputs": [{{"name": "n", "type": "object", "value": {{"id": {integer}}}}}],
                    "steps": [{{"name": "a", "set": {{"value": "x"}}}}]}}"#
            );
            plan_of(&serde_json::from_str(&text).unwrap(), false).map(|plan| plan.spec_digest().clone())
        };
        let edge = |by: i64| ((1_i64 << 53) + near + by).to_string();
        for (one, two) in [(one.clone(), two.clone()), (edge(0), edge(1)), (one.clone(), format!("{one}0")), (one, format!("-{two}"))] {
            match (digest(&one), digest(&two.replace("--", ""))) {
                (Ok(first), Ok(second)) => proptest::prop_assert_eq!(first == second, one == two.replace("--", ""), "{} {}", one, two),
                (Err(why), _) | (_, Err(why)) => proptest::prop_assert!(why[0].contains("the number at /id is beyond ±2^53"), "{:?}", why),
            }
        }
    }
}
