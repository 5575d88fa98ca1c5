//! Tests of the influence that a value can have on a URL, and of its limits.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{LanguageError, Scope, Template};

fn url(template: &str, value: impl Into<Value>) -> Result<String, LanguageError> {
    let mut scope = Scope::new();
    scope.set("v", value.into()).set("base", json!("https://api.example.com/v1")).set("list", json!(["a b", "c/d"]));
    Template::parse(template, "http.url")?.render_url(&scope)
}

#[track_caller]
fn assert_url(template: &str, value: impl Into<Value>, expected: &str) {
    assert_eq!(url(template, value).unwrap(), expected, "{template}");
}

#[track_caller]
fn assert_refused(template: &str, value: &str, problem: &str) {
    match url(template, value) {
        Ok(url) => panic!("{template} with {value:?} gives {url}"),
        Err(LanguageError::Evaluation { what, problem: why }) => {
            assert_eq!(what, "http.url");
            assert!(why.contains(problem), "{template} with {value:?}: {why}");
        }
        Err(other) => panic!("{other}"),
    }
}

const ORDER: &str = "https://api.example.com/orders/{{ v }}";
const DOTS: &str = "makes a segment of the URL's path `.` or `..`";
const HOST: &str = "in the host of the URL is not a host name";

#[test]
fn a_value_in_the_path_stays_one_segment() {
    assert_url(ORDER, "4711", "https://api.example.com/orders/4711");
    assert_url(ORDER, 4711, "https://api.example.com/orders/4711");
    assert_url(ORDER, "a-b_c.d~e", "https://api.example.com/orders/a-b_c.d~e");
    assert_url(ORDER, "1?all=true#x", "https://api.example.com/orders/1%3Fall%3Dtrue%23x");
    assert_url(ORDER, "1/delete", "https://api.example.com/orders/1%2Fdelete");
    assert_url(ORDER, r"1\delete", "https://api.example.com/orders/1%5Cdelete");
    assert_url(ORDER, "1%2Fdelete", "https://api.example.com/orders/1%252Fdelete");
    assert_url(ORDER, "Zoë 1\n", "https://api.example.com/orders/Zo%C3%AB%201%0A");
    assert_url(ORDER, json!({"a": [1]}), "https://api.example.com/orders/%7B%22a%22%3A%5B1%5D%7D");
    assert_url(ORDER, "...", "https://api.example.com/orders/...");
    assert_url(ORDER, "report.v1..2", "https://api.example.com/orders/report.v1..2");
}

#[test]
fn a_value_cannot_leave_a_segment_empty() {
    for value in ["", " ", "\t"] {
        assert_refused(ORDER, value, "leaves a segment of the URL's path empty");
        assert_refused("https://api.example.com/{{ v }}/items?a=b", value, "leaves a segment of the URL's path empty");
    }
    assert_url("https://api.example.com/orders{{ v }}", "", "https://api.example.com/orders");
    assert_url("https://api.example.com/orders//x?id={{ v }}", "", "https://api.example.com/orders//x?id=");
}

#[test]
fn a_value_cannot_continue_the_host_of_the_template() {
    let problem = "goes on with the host of the URL and holds a dot";
    for template in
        ["https://api.example.com{{ v }}", "https://api.example.com{{ v }}:443/x", "https://api.example.com{{ v }}?a=b"]
    {
        assert_refused(template, ".evil.org", problem);
        assert_refused(template, "x.evil.org", problem);
    }
    assert_refused("https://api.example.com{{ v[:1] }}{{ v[1:] }}/", ".evil.org", problem);
    assert_url("https://api-{{ v }}/", "eu.example.com", "https://api-eu.example.com/");
    assert_url("https://api.{{ v }}/x", "example.com", "https://api.example.com/x");
    assert_url("https://{{ v }}.example.com/", "a.b", "https://a.b.example.com/");
    assert_url("https://shard{{ v }}.example.com/", "7.eu", "https://shard7.eu.example.com/");
    assert_url("http://shard{{ v }}/", "7", "http://shard7/");
}

#[test]
fn a_value_in_the_query_stays_one_parameter() {
    let template = "https://api.example.com/orders?id={{ v }}&limit=1#{{ v }}";
    assert_url(template, "1&all=true", "https://api.example.com/orders?id=1%26all%3Dtrue&limit=1#1%26all%3Dtrue");
    assert_url(template, "1+1 #", "https://api.example.com/orders?id=1%2B1%20%23&limit=1#1%2B1%20%23");
    // Dots are special only in the path.
    assert_url(template, "../x", "https://api.example.com/orders?id=..%2Fx&limit=1#..%2Fx");
}

#[test]
fn the_text_of_the_template_is_never_encoded() {
    assert_url("https://api.example.com/a/../b?c=d&e=%20#f{{ v }}", "", "https://api.example.com/a/../b?c=d&e=%20#f");
    assert_url(
        "https://api.example.com/x{% for i in list %}/{{ i }}{% endfor %}?{% if v %}v={{ v }}&{% endif %}z",
        "=",
        "https://api.example.com/x/a%20b/c%2Fd?v=%3D&z",
    );
}

#[test]
fn no_value_makes_a_segment_of_dots_in_any_spelling() {
    for value in [
        ".",
        "..",
        "\u{2025}",
        "\u{fe30}",
        "\u{2025}\u{fe68}x",
        "x\u{2044}\u{2025}",
        "%2e",
        "%2E%2e",
        ".%2E",
        "%2e.",
        "%252e%252e",
        "%25252e.",
        "../admin",
        "../../admin/delete?all=true",
        "x/..",
        "x/../y",
        r"..\admin",
        r"x\..",
        "..%2fadmin",
        "..%5cadmin",
        "%2e%2e%2fadmin",
        "..;",
        "..;x=y",
        ".. ",
        " ..",
        "..\n",
        "\t.",
        "..\u{0}",
        "．．",
        "․․",
        "﹒",
        "..／x",
    ] {
        assert_refused(ORDER, value, DOTS);
        assert_refused("https://api.example.com/orders/{{ v }}/items?x=1", value, DOTS);
        assert_refused("https://api.example.com\\orders\\{{ v }}", value, DOTS);
        assert_refused("{{ base }}/orders/{{ v }}", value, DOTS);
    }
}

#[test]
fn no_value_completes_a_segment_of_dots() {
    assert_refused("https://api.example.com/orders/.{{ v }}", ".", DOTS);
    assert_refused("https://api.example.com/orders/{{ v }}.", ".", DOTS);
    assert_refused("https://api.example.com/orders/.{{ v }}./x", "", DOTS);
    assert_refused("https://api.example.com/orders/%2e{{ v }}", ".", DOTS);
    assert_refused("https://api.example.com/orders/%{{ v }}", "2e", DOTS);
    assert_refused("https://api.example.com/orders/{{ v }}{{ v }}", ".", DOTS);
    assert_url("https://api.example.com/orders/a{{ v }}", "..", "https://api.example.com/orders/a..");
    assert_url("https://api.example.com/../{{ v }}/.", "x", "https://api.example.com/../x/.");
}

#[test]
fn results_of_urlencode_are_not_encoded_again() {
    let once = "https://api.example.com/orders/a%2Fb%20c";
    assert_url(ORDER, "a/b c", once);
    assert_url("https://api.example.com/orders/{{ v | urlencode }}", "a/b c", once);
    assert_url("https://api.example.com/orders/{{ v | urlencode | urlencode }}", "a/b c", once);
    assert_url("https://api.example.com/orders/{{ (v | urlencode) if v else 'none' }}", "a/b c", once);
    assert_refused("https://api.example.com/orders/{{ v | urlencode }}", "..", DOTS);
    // A changed result of `urlencode` is an ordinary text.
    assert_url("https://api.example.com/{{ v | urlencode ~ '/x' }}", "a/b", "https://api.example.com/a%252Fb%2Fx");
    assert_url(
        "https://api.example.com/{{ v | urlencode | replace('%2F', '/') }}",
        "a/b",
        "https://api.example.com/a%2Fb",
    );
}

#[test]
fn no_filter_marks_an_unencoded_value_as_encoded() {
    for filter in ["safe", "escape", "e", "tojson | safe"] {
        assert!(Template::parse(&format!("https://h.example/{{{{ v | {filter} }}}}"), "http.url").is_err(), "{filter}");
    }
    for expression in [
        "v | urlencode ~ v",
        "v ~ (v | urlencode)",
        "[v | urlencode, v] | join('/')",
        "v | replace('b', v | urlencode)",
        "(v | urlencode).replace('%2F', '/')",
        "('/' | urlencode).join([v, v])",
        "[v | urlencode, v]",
        "(v | urlencode)[0] ~ '/'",
        "{'a': v | urlencode}",
        "[v | urlencode, v] | sort | join('?')",
        "(v | urlencode) + v",
        "v | default(v | urlencode)",
    ] {
        let rendered = url(&format!("https://h.example/x/{{{{ {expression} }}}}"), "a/b?c").unwrap();
        let value = rendered.strip_prefix("https://h.example/x/").unwrap();
        assert!(!value.contains(['/', '?', '#', '\\']), "{expression}: {rendered}");
    }
}

#[test]
fn a_value_that_begins_the_url_is_taken_as_it_is() {
    assert_url("{{ v }}", "https://h.example/a/../b?c=d&e=f", "https://h.example/a/../b?c=d&e=f");
    assert_url(" {{ v }}", "https://h.example/a", " https://h.example/a");
    assert_url("{{ base }}/orders/{{ v }}", "1/2", "https://api.example.com/v1/orders/1%2F2");
    assert_url("{{ base }}?id={{ v }}", "1&2", "https://api.example.com/v1?id=1%262");
    assert_url("{{ v }}://h.example/{{ v }}", "https", "https://h.example/https");
    // Only one value can begin the URL, even if it is empty.
    assert_refused("{{ '' }}{{ v }}", "https://evil.example/", HOST);
    assert_refused("{% for i in ['', v] %}{{ i }}{% endfor %}", "https://evil.example/", HOST);
}

#[test]
fn a_value_in_the_host_cannot_end_it() {
    for value in [
        "evil.example/",
        "evil.example?",
        "evil.example#",
        r"evil.example\",
        "user@evil.example",
        "a:b@evil.example",
        "x:80/",
        "evil.example%2f",
        "evil。example",
        "a b",
        "a\tb",
        "x\n",
        "é",
        ":pw@",
        "[::1]@x",
        "a:80:80",
        "a[::1]",
    ] {
        for template in [
            "https://{{ v }}.internal.example/x",
            "https://internal-{{ v }}/x",
            "https://{{ v }}/x",
            "https:{{ v }}/x",
            "https:/{{ v }}/x",
            r"https:\\{{ v }}/x",
            "http{{ v }}://internal.example/",
        ] {
            assert_refused(template, value, HOST);
        }
    }
    // A value cannot continue the host that another value began.
    for value in [".evil.example", "-evil.example", ":8080", "8080"] {
        assert_refused("{{ 'https://api.example.com' }}{{ v }}/x", value, HOST);
        assert_refused("{{ 'https://api' }}.eu{{ v }}.example.com/x", value, HOST);
    }
    assert_url("{{ 'http://api.svc' }}:{{ v }}/x", 8080, "http://api.svc:8080/x");
    assert_url("{{ 'http' }}://{{ v }}/x", "api.svc", "http://api.svc/x");
    // With an empty host the following text would become the host.
    assert_refused("https://{{ v }}/orders/x", "", HOST);
    assert_refused("https://{{ v }}{{ v }}/orders/x", "", HOST);
    assert_refused("https://h.example:{{ v }}/orders/x", "", HOST);
    assert_url("https://api{{ v }}.example.com/x", "", "https://api.example.com/x");
    assert_url("https://api{{ v }}.example.com/x", "-eu", "https://api-eu.example.com/x");
    assert_url("http://{{ v }}/x", "letters.finance.svc:8080", "http://letters.finance.svc:8080/x");
    assert_url("http://{{ v }}/x", "[fd12::1]:8080", "http://[fd12::1]:8080/x");
    assert_url("http://localhost:{{ v }}/x", 8080, "http://localhost:8080/x");
}

#[test]
fn a_frame_in_a_value_or_in_the_template_is_not_read_as_one() {
    assert_url(ORDER, "\u{1}e3:a/b", "https://api.example.com/orders/e3%3Aa%2Fb");
    assert_refused("https://api.example.com/\u{1}{{ v }}", "x", "control character");
    assert_refused("https://api.example.com/\u{1}e999:{{ v }}", "x", "control character");
}

#[test]
fn a_host_of_many_values_is_bounded_and_a_path_of_many_values_is_not() {
    assert_refused("https://h{% for i in range(1000) %}{{ v }}{% endfor %}/x", "ab", HOST);
    let rendered = url("https://h{% for i in range(1000) %}/{{ v }}{% endfor %}", "%25".repeat(40)).unwrap();
    assert_eq!(rendered.matches("/%2525").count(), 1000);
}

proptest! {
    #[test]
    fn no_value_changes_the_host_path_or_parameters_of_the_template(value in any::<String>()) {
        println!("tried: 1 property cases");
        let template = "https://api.example.com/orders/{{ v }}/items?id={{ v }}&limit=1";
        if let Ok(rendered) = url(template, value.as_str()) {
            let read = url::Url::parse(&rendered).unwrap();
            prop_assert_eq!(read.as_str(), rendered.as_str(), "nothing is left to the parser");
            prop_assert_eq!(read.host_str(), Some("api.example.com"));
            let segments: Vec<_> = read.path_segments().unwrap().collect();
            prop_assert_eq!((segments.len(), segments[0], segments[2]), (3, "orders", "items"));
            let parameters: Vec<_> = read.query_pairs().collect();
            prop_assert_eq!(parameters.len(), 2);
            prop_assert_eq!(&parameters[0].1, &crate::text::clean(&value));
        }
    }

    #[test]
    fn no_value_in_the_host_changes_the_rest_of_the_host(value in "[ -~]{0,12}") {
        if let Ok(rendered) = url("https://{{ v }}.internal.example/orders", value.as_str())
            && let Ok(read) = url::Url::parse(&rendered)
        {
            prop_assert!(read.host_str().unwrap().ends_with(".internal.example"), "{}", rendered);
            prop_assert_eq!((read.path(), read.username()), ("/orders", ""));
        }
    }
}
