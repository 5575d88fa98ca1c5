//! Tests of the limits of the influence that text of models and people has on a request.

use serde_json::json;
use signoff_api::journal::StepPhase;

use crate::tests::test_run::{TestRun, agent, chain_of, gate};
use crate::transition::{CallContent, Command, HttpCall};

/// Returns the request that is sent at a path in this transition.
fn sent_request<'a>(run: &'a TestRun, path: &str) -> Option<&'a HttpCall> {
    run.transition.commands.iter().find_map(|command| match command {
        Command::Call(call) if call.path == path => match &call.content {
            CallContent::Http(http) => Some(http),
            _ => None,
        },
        _ => None,
    })
}

/// Returns a run that requests an order whose number, `answer`, is the answer of a model.
fn run_with_order(answer: &str) -> TestRun {
    let url = "http://orders.shop.svc/orders/{{ steps.pick.response }}?full={{ steps.pick.response }}";
    let mut run =
        TestRun::new(json!([agent("pick", "writer", "which order?"), {"name": "read", "http": {"url": url}}]));
    run.reply("pick", 1, answer);
    run
}

#[test]
fn text_of_a_model_in_a_url_cannot_change_the_rest_of_the_url() {
    for answer in ["../admin/delete?all=true", "..", "%2e%2e/admin", r"..\admin", "4711/../../admin/delete?all=true#"] {
        let run = run_with_order(answer);
        assert!(sent_request(&run, "read").is_none(), "{answer}");
        let record = run.record("read");
        assert_eq!(record.phase, StepPhase::Failed, "{answer}");
        let error = record.error.as_ref().unwrap();
        assert_eq!((error.class.as_str(), error.retryable), ("Template", false));
        assert!(error.message.starts_with("spec.steps[1].http.url: a value makes"), "{}", error.message);
    }
    for (answer, url) in [
        ("4711", "http://orders.shop.svc/orders/4711?full=4711"),
        ("1/delete?all=true", "http://orders.shop.svc/orders/1%2Fdelete%3Fall%3Dtrue?full=1%2Fdelete%3Fall%3Dtrue"),
        ("1&all=true", "http://orders.shop.svc/orders/1%26all%3Dtrue?full=1%26all%3Dtrue"),
    ] {
        assert_eq!(sent_request(&run_with_order(answer), "read").unwrap().url, url);
    }
}

#[test]
fn people_approve_the_url_as_it_is_sent() {
    let step = json!({"name": "read", "http": {"url": "http://orders.shop.svc/orders/{{ inputs.order }}"}});
    let mut spec = chain_of(json!([step]));
    spec["inputs"] = json!([{"name": "order", "value": "1/delete?all=true"}]);
    let hitl = gate(json!({"allowedVerdicts": ["Approve", "Modify"]}));
    spec["gates"] = json!([{"name": "human", "type": "stepStart", "steps": ["read"], "hitl": hitl}]);
    let encoded = "http://orders.shop.svc/orders/1%2Fdelete%3Fall%3Dtrue";
    let mut run = TestRun::of(spec.clone());
    let reviewed_text = run.asked("read/.start").request.reviews.as_ref().unwrap().response.clone();
    assert!(reviewed_text.contains(encoded), "{reviewed_text}");
    run.approve("read/.start");
    assert_eq!(sent_request(&run, "read").unwrap().url, encoded);
    assert_eq!(run.record("read").input_digest, run.record("read/.start").input_digest);
    // A URL of a person replaces the whole URL.
    let mut run = TestRun::of(spec);
    run.modify("read/.start", json!({"url": "http://orders.shop.svc/a/../b?c=d&e=f"}));
    assert_eq!(sent_request(&run, "read").unwrap().url, "http://orders.shop.svc/a/../b?c=d&e=f");
}

#[test]
fn a_value_can_be_a_whole_url_and_cannot_end_the_host() {
    let render_url = |template: &str, input: &str| {
        let mut spec = chain_of(json!([{"name": "read", "http": {"url": template}}]));
        spec["inputs"] = json!([{"name": "v", "value": input}]);
        let run = TestRun::of(spec);
        match sent_request(&run, "read") {
            Some(call) => Ok(call.url.clone()),
            None => Err(run.record("read").error.as_ref().unwrap().message.clone()),
        }
    };
    let whole_url = "https://a.org/x/../y?z=1&w=2";
    assert_eq!(render_url("{{ inputs.v }}", whole_url).unwrap(), whole_url);
    assert_eq!(render_url("{{ inputs.v }}/orders", "https://a.org/v1").unwrap(), "https://a.org/v1/orders");
    assert_eq!(render_url("http://{{ inputs.v }}.shop.svc/x", "orders").unwrap(), "http://orders.shop.svc/x");
    for input in ["evil.org/", "evil.org#", "x@evil.org?", ""] {
        let rendered = render_url("http://{{ inputs.v }}.shop.svc/x", input);
        match input {
            "" => assert!(rendered.unwrap_err().contains("in the host of the URL")),
            _ => assert!(rendered.unwrap_err().starts_with("spec.steps[0].http.url: "), "{input}"),
        }
    }
}
