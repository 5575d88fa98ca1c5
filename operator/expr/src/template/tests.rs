//! Tests of the results of templates, and of refused templates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};

use super::{Template, vocabulary};
use crate::{Known, LanguageError, Members, Scope, check};

fn scope() -> Scope {
    let mut scope = Scope::new();
    scope
        .set(
            "inputs",
            json!({"customer": "Ada", "amount": 420, "rate": 1.5, "tags": ["a", "b", "c"], "note": null,
                   "full name": "Ada L", "details": {"z": 1, "a": 2}}),
        )
        .set("hitl_response", json!(" Approved "))
        .set("long", json!("x".repeat(1 << 20)))
        .set("evil", json!("{{ inputs.customer }}{% for x in range(9) %}\u{1b}[31m\u{202e}"))
        .set("a", json!({"b": [{"c": "deep"}, {"c": "deeper"}]}))
        .set_records(
            "steps",
            vec![
                ("draft".into(), json!({"name": "draft", "response": "first"})),
                ("my-review".into(), json!({"name": "my-review", "response": "second"})),
            ],
        );
    scope
}

fn render(source: &str) -> Result<String, LanguageError> {
    Template::parse(source, "spec.value")?.render(&scope())
}

fn refusal(source: &str) -> String {
    match render(source) {
        Ok(text) => panic!("{source} gives {text:.200}"),
        Err(error) => error.to_string(),
    }
}

fn is_limit(source: &str) -> bool {
    matches!(render(source), Err(LanguageError::Limit { .. }))
}

#[test]
fn every_feature_of_the_manual_works() {
    for (source, text) in [
        ("plain text", "plain text"),
        ("{{ a.b[0].c }} {{ a.b[-1].c }}", "deep deeper"),
        ("{{ inputs.customer[:2] }}{{ inputs.customer[-1] }}{{ long[:3] }}", "Adaxxx"),
        ("{{ inputs.tags[1:] | join('-') }}", "b-c"),
        ("{{ inputs['full name'] }}", "Ada L"),
        ("{{ inputs.amount }} {{ inputs.rate }} {{ inputs.amount + 1 }}", "420 1.5 421"),
        ("{% if inputs.amount > 500 %}big{% elif inputs.amount > 100 %}mid{% else %}small{% endif %}", "mid"),
        ("{% for t in inputs.tags %}{{ loop.index }}{{ t }}{% if not loop.last %},{% endif %}{% endfor %}", "1a,2b,3c"),
        ("{% for k, v in inputs.details.items() %}{{ k }}={{ v }};{% endfor %}", "z=1;a=2;"),
        ("{% for k in inputs.details %}{{ k }}{% endfor %}", "za"),
        ("{% for x in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for t in inputs.tags if t != 'b' %}{{ t }}{% endfor %}", "ac"),
        ("{{ 'a' in inputs.tags and not 'x' in inputs.tags or false }}", "true"),
        ("{{ 'yes' if inputs.amount > 1 else 'no' }}", "yes"),
        ("{{ 'a' + 'b' ~ 1 }}", "ab1"),
        ("{{ inputs.other is defined }} {{ inputs.customer is defined }} {{ nothing is defined }}", "false true false"),
        ("{{ inputs.note is none and inputs.note == null and inputs.note == none }} {{ inputs.note }}", "true null"),
        (
            "{{ inputs.tags }}{{ inputs.details }}{{ ['<', none, true, 1.5] }}",
            "[\"a\",\"b\",\"c\"]{\"z\":1,\"a\":2}[\"<\",null,true,1.5]",
        ),
        ("{{ hitl_response.strip().lower() }}", "approved"),
        ("{{ hitl_response.strip().upper().startswith('APP') }}", "true"),
        ("{{ 'a,b'.split(',')[1] }}{{ 'aXa'.replace('X', '-') }}{{ '-'.join(inputs.tags) }}", "ba-aa-b-c"),
        ("{{ inputs.details.get('q', 'd') }}{{ inputs.details.keys() | list | length }}", "d2"),
        ("{{ 'abcdefghij' | truncate(6) }} {{ 'abc' | truncate(3) }} {{ 'abcd' | truncate(2) }}", "abc... abc ab"),
        ("{{ 'abcdefghij' | truncate(n=5, end='…') }}{{ 'ééééé' | truncate(4) }}", "abcd…é..."),
        (
            "{{ inputs.details | tojson }}{{ '<&\\'>' | tojson }}{{ steps | tojson }}",
            "{\"z\":1,\"a\":2}\"<&'>\"[{\"name\":\"draft\",\"response\":\"first\"},{\"name\":\"my-review\",\"response\":\"second\"}]",
        ),
        (
            "{{ 'hello world' | title }} {{ 'ABC' | lower }} {{ 'abc' | upper }} {{ ' x ' | trim }}",
            "Hello World abc ABC x",
        ),
        ("{{ 'order 4711 and 12' | regex_search('[0-9]+') }} {{ 'x' | regex_search('y') }}", "4711 null"),
        ("{{ inputs.missing | default('none given') }} {{ inputs.tags | length }}", "none given 3"),
        ("{{ 'a-b' | replace('-', '+') }}{{ inputs.tags | join(', ') }}", "a+ba, b, c"),
        ("{{ inputs.amount | float * 2 }} {{ 2 * 3 }} {{ 7 // 2 }} {{ 7 % 4 }}", "840.0 6 3 3"),
        ("{{ 'abc' is contains('b') }} {{ inputs.tags is contains 'z' }}", "true false"),
        (
            "{{ inputs.tags | map('upper') | join }}{{ steps | map(attribute='name') | join(' ') }}",
            "ABCdraft my-review",
        ),
        ("{{ steps | selectattr('name', 'eq', 'draft') | list | length }}", "1"),
        ("{% for i in range(3) %}{{ i }}{% endfor %}", "012"),
        ("{# a comment #}{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{%- if true -%}  x  {%- endif -%}", "x"),
    ] {
        assert_eq!(render(source), Ok(text.to_owned()), "{source}");
    }
}

#[test]
fn records_are_read_by_position_and_name() {
    for (source, text) in [
        ("{{ steps[0].response }} {{ steps.draft.response }} {{ steps['my-review'].response }}", "first first second"),
        ("{{ steps[-1].response }} {{ steps | length }} {{ steps[:1] | length }}", "second 2 1"),
        ("{% for s in steps %}{{ s.name }};{% endfor %}", "draft;my-review;"),
        ("{{ steps.none is defined }} {{ steps[7] is defined }} {{ (steps | last).name }}", "false false my-review"),
    ] {
        assert_eq!(render(source), Ok(text.to_owned()), "{source}");
    }
}

#[test]
fn values_are_never_rendered_again() {
    assert_eq!(render("<{{ evil }}>"), Ok("<{{ inputs.customer }}{% for x in range(9) %}[31m\u{202e}>".to_owned()));
    assert_eq!(render("{{ '{{ inputs.customer }}' }}"), Ok("{{ inputs.customer }}".to_owned()));
}

#[test]
fn rendered_text_is_clean() {
    let mut scope = Scope::new();
    scope.set("x", json!("a\u{0}b\u{1b}[2Jc\u{9b}d\te\r\nf e\u{301}"));
    let text = Template::parse("{{ x }}\u{7}", "x").unwrap().render(&scope).unwrap();
    assert_eq!(text, "ab[2Jcd\te\r\nf é");
}

#[test]
fn an_undefined_name_is_an_error_that_names_it() {
    for source in [
        "{{ nothing }}",
        "{{ inputs.nothing }}",
        "{{ inputs.nothing.deeper }}",
        "{{ steps.nothing.response }}",
        "{% if nothing %}x{% endif %}",
        "{% for x in nothing %}x{% endfor %}",
        "{{ nothing | upper }}",
        "{{ nothing ~ 'x' }}",
        "{{ nothing | tojson }}",
        "{{ inputs.note.deeper }}",
    ] {
        let message = refusal(source);
        assert!(message.starts_with("spec.value: line 1: "), "{source}: {message}");
    }
    assert_eq!(
        refusal("x\n{{ inputs.nothing }}"),
        "spec.value: line 2: `inputs.nothing` is undefined; test it with `is defined` or give it a `default(…)`"
    );
}

#[test]
fn constructs_that_load_define_or_grow_are_refused() {
    for source in [
        "{% macro f() %}{% endmacro %}",
        "{% call f() %}{% endcall %}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{% block x %}{% endblock %}",
        "{% set x = 1 %}",
        "{% set x %}a{% endset %}",
        "{% with x = 1 %}{% endwith %}",
        "{% filter upper %}x{% endfilter %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% do steps.x() %}",
        "{% for x in inputs.tags recursive %}{{ loop([x]) }}{% endfor %}",
        "{% for x in inputs.tags %}{{ loop([x]) }}{% endfor %}",
        "{{ namespace() }}",
        "{{ dict(a=1) }}",
        "{{ debug() }}",
        "{{ 'x' | format(1) }}",
        "{{ 'x' | indent(1000000000) }}",
        "{{ 'x' | pprint }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'x' | attr('y') }}",
        "{{ inputs.customer() }}",
        "{{ (inputs.customer)() }}",
        "{{ range(*inputs.tags) }}",
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{{ [1] * 1000000000 }}",
        "{{ inputs.customer * inputs.amount }}",
        "{{ inputs.customer | int('x') * 1000000 }}",
        "{{ x is nosuchtest }}",
    ] {
        assert!(Template::parse(source, "spec.value").is_err(), "{source}");
    }
    assert!(refusal("{{ 'x' | uper }}").contains("there is no filter `uper`; did you mean `upper`?"));
    assert!(refusal("{% set x = 1 %}").contains("`set` is not available in templates"));
}

#[test]
fn memory_and_time_are_bounded_while_rendering() {
    let bytes = "x".repeat(17 << 10);
    assert!(is_limit(&bytes), "the source");
    for source in [
        "{{ long }}",
        "{{ inputs.details | tojson }}{% for i in range(1000) %}{{ long[:1000] }}{% endfor %}",
        "{{ range(1001) | length }}",
        "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
        "{{ long | replace('x', 'yy') | length }}",
        "{{ long.replace('x', 'yy') | length }}",
        "{{ [long, long] | join | length }}",
        "{{ ''.join([long, long]) | length }}",
        "{{ 'x' | replace('x', long ~ 'y') | length }}",
        "{{ [long, long] | tojson | length }}",
        "{{ [long, long] | string | length }}",
        "{% for i in range(1000) %}{% if long.lower() == 'x' %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{{ 'x' | regex_search('(?:a{50}){20}') or '' }}{% endfor %}",
        "{% for a in [long ~ long ~ long] %}{% for b in [a ~ a] %}{{ b }}{% endfor %}{% endfor %}",
    ] {
        assert!(is_limit(source), "{source}: {:?}", render(source).map(|t| t.len()));
    }
    let growing = format!("{{{{ ({}) | length }}}}", vec!["long"; 40].join(" ~ "));
    assert!(is_limit(&growing));
    assert_eq!(render("{{ (long ~ long) | length }}"), Ok((2 << 20).to_string()));
}

#[test]
fn extreme_numbers_and_arguments_have_a_value() {
    for (source, value) in [
        ("{{ inputs.amount is divisibleby(0) }}", "false"),
        ("{{ ((0 - 2 ** 126) - 2 ** 126) // -1 }}", "170141183460469231731687303715884105728"),
        ("{{ 1.5 | round(-2147483648) }}", "0.0"),
        ("{{ 1.5 | round(2147483647) }}", "1.5"),
        ("{{ inputs.amount | round(-2147483648) }}", "0"),
        ("{{ '9' | int(base=0) }}", "9"),
        ("{{ '9' | int(base=1) }}", "9"),
        ("{{ '9' | int(base=37) }}", "9"),
        ("{{ '9' | int(base=4294967295) }}", "9"),
        ("{{ 'abc'[9223372036854775807:] }}{{ 'abc'[:-9223372036854775808] }}", ""),
        ("{{ inputs.tags[9223372036854775807:-9223372036854775808:-1] }}", r#"["c","b","a"]"#),
        (
            "{{ 'abc'.split('', -9223372036854775808) }}{{ 'abc'.split('') }}",
            r#"["","a","b","c",""]["","a","b","c",""]"#,
        ),
        ("{{ 'abc'.replace('', 'x', -1) }}{{ 'abc'.count('') }}{{ ''.find('') }}", "xaxbxcx40"),
        ("{{ 'abc' | truncate(0) }}{{ 'abc' | truncate(2, end='') }}", "ab"),
        (
            "{{ [1, 'a', none, inputs, steps] | sort }}{{ [1, 'a', none] | unique | list }}",
            r#"[null,1,"a",[{"name":"draft","response":"first"},{"name":"my-review","response":"second"}],{"customer":"Ada","amount":420,"rate":1.5,"tags":["a","b","c"],"note":null,"full name":"Ada L","details":{"z":1,"a":2}}][1,"a",null]"#,
        ),
        ("{{ 1e999 }}{{ 1e999 - 1e999 }}{{ [1e999] | tojson }}", "infNaN[null]"),
    ] {
        assert_eq!(render(source).as_deref(), Ok(value), "{source}");
    }
}

#[test]
fn expressions_that_could_panic_the_engine_are_errors() {
    for source in [
        "{{ range(9223372036854775807, -9223372036854775808, -1) }}",
        "{{ range(-9223372036854775808, 9223372036854775807) }}",
        "{{ range(0, 10, -9223372036854775808) }}",
        "{{ range(0, 10, 0) }}",
        "{{ 1 // 0 }}{{ 1 % 0 }}",
        "{{ inputs.amount % 0 }}",
        "{{ inputs.amount // 0 }}",
        "{{ 2 ** 127 * 2 }}",
        "{{ ((0 - 2 ** 126) - 2 ** 126) | abs }}",
        "{{ -((0 - 2 ** 126) - 2 ** 126) }}",
        "{{ 'abc'[::-9223372036854775808] }}{{ 'abc'[::0] }}",
        "{{ inputs.tags[-9223372036854775808] }}{{ inputs.tags[9223372036854775807] }}",
        "{% for x in inputs.tags %}{{ loop.cycle() }}{% endfor %}",
        "{{ 'abc' | truncate(9223372036854775807) }}{{ 'abc' | truncate(-1) }}",
        "{{ inputs.tags | map }}",
        "{{ inputs.tags | map('nosuchfilter') | list }}",
        "{{ inputs.tags | map('map', 'map') | list }}",
        "{{ inputs.tags | select('nosuchtest') | list }}",
        "{{ inputs | dictsort(by='nothing') }}{{ steps | dictsort }}",
        "{{ [1.5, 'a', inputs] | max }}{{ [] | min }}{{ [] | first }}",
        "{{ inputs.tags | join(5) }}{{ 5 | join }}",
        "{% for a, b, c in inputs.details.items() %}{% endfor %}",
        "{{ 170141183460469231731687303715884105728 }}{{ 340282366920938463463374607431768211456 }}",
    ] {
        refusal(source);
    }
    for source in [
        "{{ 'abc'[::inputs.amount] }}",
        "{{ 'abc'[::-9223372036854775808] }}",
        "{{ inputs.tags[::0] }}",
        "{% for x in inputs.tags %}{{ loop.cycle() }}{% endfor %}",
        "{% for x in inputs.tags %}{{ loop.cycle(a=1) }}{% endfor %}",
    ] {
        assert!(Template::parse(source, "spec.value").is_err(), "{source}");
    }
    assert_eq!(
        render("{{ 'abc'[::-1] }}{% for x in inputs.tags %}{{ loop.cycle('x', 'y') }}{% endfor %}"),
        Ok("cbaxyx".into())
    );
}

#[test]
fn an_undefined_name_is_an_error_in_every_construct() {
    for source in [
        "{{ [inputs.missing] }}",
        "{{ {'a': [inputs.missing]} | tojson }}",
        "{{ [[inputs.missing]] | string }}",
        "{% if inputs.missing == 'x' %}{% endif %}",
        "{% if inputs.missing != 'x' %}{% endif %}",
        "{% if 'x' in inputs.missing %}{% endif %}",
        "{% if inputs.missing in ['x'] %}{% endif %}",
        "{% if not inputs.missing %}{% endif %}",
        "{% if inputs.missing < 5 %}{% endif %}",
        "{{ inputs.missing[:3] }}",
        "{{ inputs.tags[inputs.missing] }}",
        "{{ inputs.missing | length }}",
        "{{ inputs.missing or 'x' }}",
        "{{ 'x' | replace(inputs.missing, 'y') }}",
        "{{ [inputs.missing] | join }}",
        "{{ range(inputs.missing) }}",
    ] {
        refusal(source);
    }
}

#[test]
fn the_limit_of_the_output_can_be_set() {
    let template = Template::parse("{{ long[:100] }}", "spec.value").unwrap();
    assert_eq!(template.render_within(&scope(), 100).map(|t| t.len()), Ok(100));
    assert_eq!(
        template.render_within(&scope(), 99).unwrap_err().to_string(),
        "spec.value: the rendered text is larger than 99 bytes; shorten it, for example with `truncate(1000)`"
    );
}

#[test]
fn templates_of_16_kib_fit_a_small_stack() {
    std::thread::scope(|threads| {
        let run = || {
            let sources = [
                "(",
                "[",
                "{",
                "{'a':",
                "-",
                "not ",
                "1+",
                "1**",
                "1~",
                "a.",
                "a[",
                "a[1:",
                "a|upper|",
                "a is not ",
                "1 if ",
                "1 if 1 else ",
                "a(",
                "a.lower().",
                "1<",
                "1 and ",
                "'",
                "\"",
                "{{",
                "}}",
                "{%",
                "*",
            ];
            for piece in sources {
                for (open, close) in
                    [("{{ ", " }}"), ("{{ ", ""), ("{% if ", " %}x{% endif %}"), ("{% for x in ", " %}{% endfor %}")]
                {
                    let middle: String = piece.chars().cycle().take(16_000).collect();
                    let _ = render(&format!("{open}{middle}1{close}"));
                    let middle: String = piece.chars().cycle().take(240).collect();
                    let _ = render(&format!("{open}{middle}1{close}"));
                    for times in [10, 20, 23, 60, 100, 120] {
                        let _ = render(&format!("{open}{}1{close}", piece.repeat(times)));
                    }
                }
            }
            for block in ["{% if true %}", "{% for x in [1] %}", "{% elif true %}", "{% else %}", "{% raw %}", "{#"] {
                for times in [1, 20, 24, 1000] {
                    let _ = render(&block.repeat(times));
                    let _ = render(&format!("{{% if true %}}{}", block.repeat(times)));
                }
            }
            let elifs = format!("{{% if false %}}{}{{% endif %}}", "{% elif false %}x".repeat(500));
            assert!(is_limit(&elifs));
            let nested = format!("{}x{}", "{% if true %}".repeat(20), "{% endif %}".repeat(20));
            assert_eq!(render(&nested), Ok("x".to_owned()));
            let deep: Value = serde_json::from_str(&("[".repeat(127) + &"]".repeat(127))).unwrap();
            let mut scope = Scope::new();
            scope.set("deep", deep.clone()).set_records("steps", vec![("x".into(), deep)]);
            for source in ["{{ deep }}", "{{ steps | tojson }}", "{{ deep == steps }}", "{{ deep ~ steps }}"] {
                Template::parse(source, "spec.value").unwrap().render(&scope).unwrap();
            }
            let sequence = "{% if true %}a{% elif true %}b{% endif %}".repeat(300);
            assert_eq!(render(&sequence), Ok("a".repeat(300)));
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn_scoped(threads, run).unwrap().join().unwrap();
    });
}

#[test]
fn references_are_complete_and_mark_guarded_names() {
    let template = Template::parse(
        "{{ inputs.customer[:3] }}{{ steps[-1].response | upper }}{{ steps['my-review'].x }}{{ a.b[i].c }}\
         {% for s in steps %}{{ s.name }}{{ loop.index }}{% endfor %}{{ s }}\
         {{ maybe | default('x') }}{{ inputs.note is defined }}{{ null }}{{ long.strip().lower() }}{{ range(n) }}",
        "spec.value",
    )
    .unwrap();
    let references: Vec<String> =
        template.references().iter().map(|r| format!("{r}{}", if r.optional { "?" } else { "" })).collect();
    assert_eq!(
        references,
        [
            "a.b",
            "i",
            "inputs.customer",
            "inputs.note?",
            "long",
            "maybe?",
            "n",
            "s",
            "steps",
            "steps['my-review'].x",
            "steps[-1].response"
        ]
    );
}

#[test]
fn a_misspelt_reference_is_found_without_rendering() {
    let known = Known::new().with("steps", Members::records([("draft".into(), Members::fields(["response"]))]));
    let template = Template::parse("{{ steps.drft.response[:300] }}", "spec.value").unwrap();
    let problems: Vec<String> =
        check(template.references(), &known, "spec.value").iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["spec.value: unknown reference `steps.drft.response`; did you mean `steps.draft`?"]);
}

#[test]
fn every_word_of_the_vocabulary_exists_in_the_engine() {
    let env = vocabulary::environment();
    let state = env.empty_state();
    for filter in vocabulary::split_words(vocabulary::FILTERS) {
        assert!(minijinja::tests::is_filter(&state, filter), "{filter}");
    }
    for test in vocabulary::split_words(vocabulary::TESTS) {
        assert!(minijinja::tests::is_test(&state, test), "{test}");
    }
    let own = vocabulary::split_words(vocabulary::CONSTANTS).chain(vocabulary::split_words(vocabulary::FUNCTIONS));
    assert_eq!(env.globals().map(|(name, _)| name).collect::<Vec<_>>(), own.collect::<Vec<_>>());
    assert_eq!(render("{{ 'a'.capitalize() }}{{ {'a': 1}.values() | list }}"), Ok("A[1]".to_owned()));
}

#[test]
fn errors_do_not_show_values() {
    let mut scope = Scope::new();
    scope.set("secret", json!({"token": "s3cr3t", "n": 5}));
    for source in [
        "{{ secret.token + 1 }}",
        "{{ secret.token.nothing }}",
        "{{ secret.token | int }}",
        "{{ secret.token | round }}",
        "{{ secret.token | abs }}",
        "{{ secret.token - 1 }}",
        "{{ -secret.token }}",
        "{{ 'x' | regex_search(secret.token ~ '(') }}",
        "{{ secret.token[secret] }}",
        "{{ secret.token.split(5) }}",
        "{{ secret.n.lower() }}",
        "{% for a, b in [secret.token] %}{% endfor %}",
    ] {
        let result = Template::parse(source, "spec.value").and_then(|t| t.render(&scope));
        let message = result.expect_err(source).to_string();
        assert!(!message.contains("s3cr3t"), "{source}: {message}");
    }
}

#[test]
fn a_large_scope_costs_only_what_is_referenced() {
    let mut scope = scope();
    scope.set("huge", Value::Array(vec![json!({"k": "v".repeat(100)}); 10_000]));
    let template = Template::parse("{{ inputs.customer }}", "spec.value").unwrap();
    assert_eq!(template.render(&scope), Ok("Ada".to_owned()));
}

#[test]
fn unreadable_numbers_below_a_long_key_cost_no_more() {
    let bytes = |key: usize| {
        let text = format!("{{\"{}\": [{}]}}", "k".repeat(key), vec!["1e999"; 50].join(","));
        let mut scope = Scope::new();
        scope.set("x", crate::json::read(&text).unwrap());
        let read =
            |at| Template::parse(&format!("{{{{ (x.values() | list)[0][{at}] }}}}"), "v").unwrap().render(&scope);
        (0..50).map(|at| read(at).unwrap_err().to_string().len()).sum::<usize>()
    };
    assert!(bytes(256 * 1024) < 4 * bytes(100), "each message has the beginning of the pointer");
}
