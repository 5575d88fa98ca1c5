//! Tests of the documented features of the two languages, one test for each. Errors are tested in the module of each
//! language.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};

use super::{Condition, LanguageError, Scope, Template};

fn scope() -> Scope {
    let mut scope = Scope::new();
    scope
        .set("a", json!({"b": [{"c": "deep"}, {"c": "deeper"}]}))
        .set("x", json!("abcdef"))
        .set("d", json!({"one": 1, "two": 2}))
        .set("nothing", Value::Null)
        .set("word", json!(" Yes, Ada "))
        .set("risk_level", json!(3))
        .set("hitl_response", json!("approved"))
        .set("nodes", json!({"x": {"response": null}}))
        .set_records("steps", vec![("draft".into(), json!({"name": "draft", "response": "rejected"}))]);
    scope
}

#[track_caller]
fn renders(source: &str, text: &str) {
    let rendered = Template::parse(source, "spec.value").and_then(|template| template.render(&scope()));
    assert_eq!(rendered.as_deref(), Ok(text), "{source}");
}

fn decide(source: &str) -> Result<bool, LanguageError> {
    Condition::parse(source, "spec.when")?.evaluate(&scope())
}

#[test]
fn a_path_goes_through_fields_and_positions() {
    renders("{{ a.b[0].c }}", "deep");
}

#[test]
fn a_negative_index_counts_from_the_end() {
    renders("{{ a.b[-1].c }}{{ x[-1] }}", "deeperf");
}

#[test]
fn slices_take_a_part_of_a_text_or_a_list() {
    renders(
        "{{ x[:3] }} {{ x[3:] }} {{ x[1:3] }} {{ x[:300] }} {{ x[-2:] }} {{ a.b[1:] | length }}",
        "abc def bc abcdef ef 1",
    );
}

#[test]
fn if_elif_else_choose_a_branch() {
    let source = "{% if n == 1 %}one{% elif n == 2 %}two{% else %}many{% endif %}";
    for (n, text) in [(1, "one"), (2, "two"), (3, "many")] {
        let mut scope = Scope::new();
        scope.set("n", json!(n));
        assert_eq!(Template::parse(source, "").unwrap().render(&scope).as_deref(), Ok(text));
    }
}

#[test]
fn for_goes_over_lists() {
    renders("{% for item in a.b %}<{{ item.c }}>{% endfor %}", "<deep><deeper>");
}

#[test]
fn for_goes_over_the_items_of_a_map() {
    renders("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "one=1;two=2;");
}

#[test]
fn loop_index_counts_from_one() {
    renders("{% for item in a.b %}{{ loop.index }}{% endfor %}", "12");
}

#[test]
fn in_finds_items_parts_and_fields() {
    renders("{{ 2 in [1, 2] }} {{ 'cd' in x }} {{ 'one' in d }} {{ 'z' in x }}", "true true true false");
}

#[test]
fn and_or_not_combine() {
    renders(
        "{{ true and not false or false }} {{ not (true and false) }} {{ false or x == 'abcdef' }}",
        "true true true",
    );
}

#[test]
fn an_inline_if_chooses_a_value() {
    renders("{{ 'A' if d.one == 1 else 'B' }}{{ 'A' if d.one == 2 else 'B' }}", "AB");
}

#[test]
fn plus_adds_numbers_and_joins_texts() {
    renders("{{ 1 + 2 }}{{ 'a' + 'b' }}", "3ab");
}

#[test]
fn is_defined_asks_whether_a_name_is_there() {
    renders(
        "{{ x is defined }} {{ y is defined }} {{ a.z is defined }} {{ y is not defined }}",
        "true false false true",
    );
}

#[test]
fn pythons_methods_of_texts_work() {
    renders("{{ word.lower() }}|{{ word.upper() }}|{{ word.strip() }}", " yes, ada | YES, ADA |Yes, Ada");
    renders("{{ word.strip().split(', ')[1] }}|{{ word.replace('Ada', 'Bob').strip() }}", "Ada|Yes, Bob");
    renders("{{ word.strip().startswith('Yes') }}", "true");
}

#[test]
fn truncate_makes_n_characters_in_all_with_the_ellipsis() {
    renders("{{ 'abcdefghij' | truncate(8) }} {{ 'abcdefgh' | truncate(8) }}", "abcde... abcdefgh");
}

#[test]
fn tojson_writes_json() {
    renders("{{ d | tojson }} {{ 'a\"b<' | tojson }} {{ null | tojson }}", "{\"one\":1,\"two\":2} \"a\\\"b<\" null");
}

#[test]
fn title_capitalizes_each_word() {
    renders("{{ 'hello wide world' | title }}", "Hello Wide World");
}

#[test]
fn regex_search_finds_the_first_match_or_null() {
    renders("{{ 'order 4711, 12' | regex_search('[0-9]+') }} {{ x | regex_search('[0-9]') is none }}", "4711 true");
}

#[test]
fn length_counts_characters_items_and_fields() {
    renders("{{ 'äöü' | length }} {{ a.b | length }} {{ d | length }}", "3 2 2");
}

#[test]
fn lower_and_upper_change_letters() {
    renders("{{ 'Äb' | lower }} {{ 'äb' | upper }}", "äb ÄB");
}

#[test]
fn join_puts_a_list_together() {
    renders("{{ [1, 'a', true] | join('-') }}", "1-a-true");
}

#[test]
fn replace_changes_every_occurrence() {
    renders("{{ 'a.b.c' | replace('.', '/') }}", "a/b/c");
}

#[test]
fn trim_takes_blank_space_away() {
    renders("<{{ word | trim }}>", "<Yes, Ada>");
}

#[test]
fn default_provides_for_what_is_not_there() {
    renders("{{ y | default('none') }} {{ a.z.q | default('none') if a.z is defined else 'no z' }}", "none no z");
}

#[test]
fn null_is_a_value_and_is_printed_as_such() {
    renders("{{ null }} {{ nothing }} {{ nothing == null }} {{ nothing is none }}", "null null true true");
}

#[test]
fn rendering_is_one_pass() {
    let mut scope = Scope::new();
    scope.set("answer", json!("{{ secret }}{% if true %}!{% endif %}")).set("secret", json!("s3cr3t"));
    let rendered = Template::parse("{{ answer }}", "").unwrap().render(&scope).unwrap();
    assert_eq!(rendered, "{{ secret }}{% if true %}!{% endif %}");
}

#[test]
fn control_characters_are_dropped_and_tab_and_line_ends_are_kept() {
    let mut scope = Scope::new();
    scope.set("answer", json!("a\u{0}\u{1b}[31mb\tc\r\nd\u{7f}\u{9b}"));
    assert_eq!(Template::parse("{{ answer }}", "").unwrap().render(&scope).as_deref(), Ok("a[31mb\tc\r\nd"));
}

#[test]
fn rendered_text_is_in_normal_form_c() {
    let mut scope = Scope::new();
    scope.set("answer", json!("e\u{301}"));
    assert_eq!(Template::parse("{{ answer }}", "").unwrap().render(&scope).as_deref(), Ok("é"));
}

#[test]
fn an_undefined_name_is_an_error_in_both_languages() {
    assert!(Template::parse("{{ y }}", "").unwrap().render(&scope()).is_err());
    assert!(decide("y == 1").is_err());
}

#[test]
fn a_condition_errs_where_a_template_guesses() {
    renders("{{ nothing < 5 }}", "true");
    assert!(matches!(decide("nothing < 5"), Err(LanguageError::Evaluation { .. })));
}

#[test]
fn the_usual_conditions_work() {
    for (source, holds) in [
        ("hitl_response == 'approved'", true),
        ("steps[0].response == 'rejected'", true),
        ("steps.draft.response == 'rejected'", true),
        ("nodes.x.response == null", true),
        ("risk_level < 5", true),
        ("else", true),
        ("risk_level >= 5", false),
    ] {
        assert_eq!(decide(source), Ok(holds), "{source}");
    }
}

#[test]
fn a_condition_has_at_most_1024_characters() {
    let long = |characters: usize| format!("x == '{}'", "y".repeat(characters - 7));
    assert_eq!(decide(&long(1024)), Ok(false));
    assert!(matches!(decide(&long(1025)), Err(LanguageError::Limit { .. })));
}

#[test]
fn a_condition_has_at_most_200_parts() {
    let sum = |terms: usize| format!("0 < {}", vec!["1"; terms].join("+"));
    assert_eq!(decide(&sum(50)), Ok(true));
    assert!(matches!(decide(&sum(150)), Err(LanguageError::Limit { .. })));
}

#[test]
fn comprehensions_cannot_be_nested() {
    assert_eq!(decide("[1, 2].all(n, n > 0) && [1].exists(n, n == 1)"), Ok(true));
    assert!(matches!(decide("[1].all(n, [1].exists(m, m == n))"), Err(LanguageError::Limit { .. })));
}

#[test]
fn a_list_of_a_condition_has_at_most_1000_items() {
    for (items, fits) in [(1000, true), (1001, false)] {
        let mut scope = Scope::new();
        scope.set("list", Value::from(vec![1; items]));
        let decided = Condition::parse("list.all(n, n == 1)", "").unwrap().evaluate(&scope);
        assert_eq!(decided.is_ok(), fits, "{items}: {decided:?}");
    }
}
