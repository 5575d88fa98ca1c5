//! Tests of the semantics of conditions, and of refused conditions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};

use super::Condition;
use crate::{LanguageError, Scope};

fn scope() -> Scope {
    let mut scope = Scope::new();
    scope
        .set("inputs", json!({"customer": "Ada", "amount": 420, "rate": 1.5, "tags": ["a", "b"], "note": null}))
        .set("hitl_response", json!("approved"))
        .set("risk_level", json!(3))
        .set("nodes", json!({"x": {"response": null, "status": "not_executed"}}))
        .set("big", json!(u64::MAX))
        .set("many", Value::Array((0..5000).map(Value::from).collect()))
        .set("long", json!("x".repeat(1 << 20)))
        .set_records(
            "steps",
            vec![
                ("draft".into(), json!({"name": "draft", "response": "rejected"})),
                ("my-review".into(), json!({"name": "my-review", "response": "ok"})),
            ],
        );
    scope
}

fn eval(source: &str) -> Result<Value, LanguageError> {
    Condition::parse(source, "spec.when")?.evaluate_value(&scope())
}

fn holds(source: &str) -> bool {
    Condition::parse(source, "spec.when").and_then(|c| c.evaluate(&scope())).unwrap_or_else(|e| panic!("{source}: {e}"))
}

fn refusal(source: &str) -> String {
    match eval(source) {
        Ok(value) => panic!("{source} is {value}"),
        Err(error) => error.to_string(),
    }
}

/// Runs `work` on a stack as small as that of a worker thread, where an overflow would end the process.
fn on_a_small_stack(work: impl FnOnce() + Send) {
    std::thread::scope(|threads| {
        std::thread::Builder::new().stack_size(2 << 20).spawn_scoped(threads, work).unwrap().join().unwrap();
    });
}

#[test]
fn the_conditions_of_the_manual_hold() {
    for source in [
        "hitl_response == 'approved'",
        "steps[0].response == 'rejected'",
        "steps.draft.response == 'rejected'",
        "steps['my-review'].response == 'ok'",
        "nodes.x.response == null",
        "risk_level < 5",
        "else",
        " else ",
        "size(steps) == 2 && steps.size() == 2",
        "'draft' in steps && !('send' in steps)",
        "steps.exists(s, s.response == 'ok') && !steps.all(s, s.response == 'ok')",
    ] {
        assert!(holds(source), "{source}");
    }
}

#[test]
fn numbers_compare_across_types_and_exactly() {
    for source in [
        "inputs.amount == 420.0 && inputs.amount < 420.5 && 419.9 < inputs.amount",
        "inputs.rate == 1.5 && inputs.rate > 1 && inputs.rate != 2",
        "9007199254740993 != 9007199254740992.0",
        "9007199254740993 > 9007199254740992.0",
        "-9223372036854775808 < 9223372036854775807",
        "-1 > -1.5 && -1.5 < -1 && 0 == -0.0",
        "1 < 1e300 && 1 > -1e300",
        "0.0 / 0.0 != 0.0 / 0.0 && !(0.0 / 0.0 < 1.0)",
        "0x10 == 16 && .5 == 0.5 && 1.5e3 == 1500",
    ] {
        assert!(holds(source), "{source}");
    }
}

#[test]
fn operators_bind_as_in_cel() {
    for (source, value) in [
        ("1 + 2 * 3", json!(7)),
        ("(1 + 2) * 3", json!(9)),
        ("10 - 2 - 3", json!(5)),
        ("-7 / 2", json!(-3)),
        ("-7 % 3", json!(-1)),
        ("1 - -1", json!(2)),
        ("--1", json!(1)),
        ("!!true", json!(true)),
        ("!true == false", json!(true)),
        ("true || false && false", json!(true)),
        ("1 < 2 == true", json!(true)),
        ("false ? 1 : true ? 2 : 3", json!(2)),
        ("1 in [1, 2] && !(3 in [1, 2])", json!(true)),
        ("'a' in {'a': 1}", json!(true)),
        ("[1] + [2, 3,]", json!([1, 2, 3])),
        ("{'b': 1, 'a': [null]}", json!({"b": 1, "a": [null]})),
        ("'a' + \"b\" + '''c'd''' + r'\\n'", json!("abc'd\\n")),
        ("'\\x41\\u00e9\\101\\n'", json!("AéA\n")),
        ("1 // the rest is a comment", json!(1)),
    ] {
        assert_eq!(eval(source), Ok(value), "{source}");
    }
}

#[test]
fn functions_and_macros_work() {
    for (source, value) in [
        ("'Hello'.contains('ell') && 'Hello'.startsWith('He') && 'Hello'.endsWith('lo')", json!(true)),
        ("inputs.customer.lowerAscii() + inputs.customer.upperAscii()", json!("adaADA")),
        ("' a '.trim()", json!("a")),
        ("'a,b'.split(',')", json!(["a", "b"])),
        ("['a', 'b'].join('-') + ['c'].join()", json!("a-bc")),
        ("'aXa'.replace('a', 'bb')", json!("bbXbb")),
        ("'héllo'.substring(1, 3) + 'héllo'.substring(4)", json!("élo")),
        ("'héllo'.indexOf('l') + 'x'.indexOf('y')", json!(1)),
        ("size('héllo') + size([1]) + size({})", json!(6)),
        ("int('12') + int(1.9) + int(-1.9)", json!(12)),
        ("double('1.5') + double(1)", json!(2.5)),
        ("string(12) + string(1.5) + string(true)", json!("121.5true")),
        ("bool('true') && dyn(true)", json!(true)),
        ("'INV-0042'.matches('^INV-[0-9]{4}$')", json!(true)),
        ("has(inputs.customer) && !has(inputs.other)", json!(true)),
        ("[1, 2, 3].map(x, x * 2)", json!([2, 4, 6])),
        ("[1, 2, 3].map(x, x > 1, x * 2)", json!([4, 6])),
        ("[1, 2, 3].filter(x, x > 1).map(y, y + 1)", json!([3, 4])),
        ("[1, 2, 3].exists_one(x, x == 2)", json!(true)),
        ("steps.map(s, s.name)", json!(["draft", "my-review"])),
        ("nodes.x.map(k, k)", json!(["response", "status"])),
    ] {
        assert_eq!(eval(source), Ok(value), "{source}");
    }
}

#[test]
fn maps_are_iterated_in_their_written_order_every_time() {
    for _ in 0..50 {
        assert_eq!(eval("inputs.map(k, k)[0]"), Ok(json!("customer")));
        assert_eq!(eval("{'z': 1, 'a': 2, 'm': 3}.map(k, k)"), Ok(json!(["z", "a", "m"])));
    }
}

#[test]
fn implicit_conversions_of_jinja_are_errors() {
    for source in [
        "nodes.x.response < 5",
        "inputs.customer < 5",
        "inputs.customer.field",
        "inputs.customer.field == 'x'",
        "inputs.note.field == null",
        "has(inputs.customer.field)",
        "inputs.missing == null",
        "missing == 'x'",
        "inputs.tags['a']",
        "inputs.customer[0]",
        "'1' + 1",
        "1 + 1.5",
        "'a' in 'abc'",
        "!1",
        "-'a'",
        "1 && true",
        "steps[-1].response",
        "steps[2].response",
        "steps.drfat.response",
        "big > 5",
        "[1].exists(x, x)",
        "'a'.split(1)",
        "size(1)",
        "{null: 1}",
        "{'a': 1, 'a': 2}",
    ] {
        refusal(source);
    }
    for source in ["1", "'true'", "null", "[true]", "inputs"] {
        let condition = Condition::parse(source, "spec.when").unwrap();
        let error = condition.evaluate(&scope()).unwrap_err().to_string();
        assert!(error.contains("must be true or false"), "{source}: {error}");
    }
}

#[test]
fn a_fault_is_ignored_only_if_the_other_side_decides() {
    assert!(holds("missing == 1 || true"));
    assert!(holds("true || missing == 1"));
    assert!(!holds("missing == 1 && false"));
    assert!(holds("[1, 2].exists(x, x == 2 || missing)"));
    refusal("missing == 1 || false");
    refusal("missing == 1 && true");
}

#[test]
fn arithmetic_and_conversions_never_wrap_or_panic() {
    for source in [
        "9223372036854775807 + 1",
        "-9223372036854775808 - 1",
        "9223372036854775807 * 2",
        "-9223372036854775808 / -1",
        "-9223372036854775808 % -1",
        "-(-9223372036854775808)",
        "9223372036854775808",
        "1 / 0",
        "1 % 0",
        "1.0 % 0.0",
        "int(1e19)",
        "int(0.0 / 0.0)",
        "int('9223372036854775808')",
        "int('')",
        "double('x')",
        "1e999",
        "'abc'.substring(2, 1)",
        "'abc'.substring(-1)",
        "'abc'.substring(0, 9223372036854775807)",
        "[1][9223372036854775807]",
        "0.0 / 0.0",
        "1.0 / 0.0",
    ] {
        refusal(source);
    }
}

#[test]
fn messages_name_the_field_the_column_and_the_remedy_but_no_values() {
    for (source, message) in [
        ("a = 1", "spec.when: column 3: `=` is not an operator; `==` compares"),
        ("a and b", "spec.when: column 3: found `and` where an operator or the end was expected; write `&&`"),
        ("'abc", "spec.when: column 1: the text that starts here is never closed"),
        ("risk_level <", "spec.when: column 13: found the end where a value was expected"),
        (
            "hitl_response.lower() == 'x'",
            "spec.when: column 14: there is no method `lower`; did you mean `lowerAscii`?",
        ),
        ("1u", "spec.when: column 1: unsigned numbers are not available in conditions; leave out the `u`"),
        ("while", "spec.when: column 1: `while` is a reserved word and cannot be a variable"),
        ("A{b: 1}", "spec.when: column 2: messages are not available in conditions; write a map, as in `{'a': 1}`"),
        ("b'x'", "spec.when: column 1: bytes are not available in conditions; use a text"),
        (
            "steps.drfat.response == ''",
            "spec.when: column 6: a list of records has no member `drfat`; it has draft, my-review",
        ),
        ("hitl_response.status == 'paid'", "spec.when: column 14: a text has no members: only maps and lists have"),
        ("risk_level['amount'] > 1", "spec.when: column 11: an int has no members: only maps and lists have"),
        (
            "[1]['amount'] > 1",
            "spec.when: column 4: the items of a list are read by their position, an int from 0, and this is a text",
        ),
        ("inputs[1] == 'x'", "spec.when: column 7: the members of a map are read by their name, and this is an int"),
        ("1 + 1.5", "spec.when: column 3: `+` does not work on an int and a double; convert one with `double(…)`"),
        ("hitl_response < 5", "spec.when: column 15: a text cannot be compared with an int"),
        (
            "risk_level.matches(hitl_response)",
            "spec.when: column 11: the pattern of `matches` must be written out as a text, it cannot be computed",
        ),
    ] {
        assert_eq!(refusal(source), message);
    }
    assert!(!refusal("inputs.customer < 5").contains("Ada"));
}

#[test]
fn limits_on_the_source_are_checked_before_it_is_built() {
    on_a_small_stack(|| {
        let sum = vec!["1"; 4000].join(" + ");
        let triple = "[1,2].map(a, [1,2].map(b, [1,2].map(c, c)))";
        let long_list = format!("size([{}]) > 0", vec!["1"; 400].join(","));
        for source in [sum.as_str(), triple, &long_list] {
            assert!(
                matches!(Condition::parse(source, "spec.when"), Err(LanguageError::Limit { .. })),
                "{:.40}",
                source
            );
        }
        assert!(Condition::parse(&"1+".repeat(99), "spec.when").is_err());
        assert!(Condition::parse("[[1]].map(a, a.all(b, true))", "spec.when").is_err());
    });
}

#[test]
fn any_source_of_a_thousand_characters_fits_a_small_stack() {
    on_a_small_stack(|| {
        for piece in [
            "(",
            "!",
            "-",
            "[",
            "{",
            "{1:",
            "a.",
            "a[",
            "a.b(",
            "size(",
            "1+",
            "1?",
            "1?1:",
            "true?",
            "a&&",
            "a||",
            "!(",
            "-(",
            "has(",
            "[].map(x,",
            "'",
            "\"\"\"",
            "\\",
            "//",
            "0x",
            "9",
            ".",
            "=",
            "in ",
            "a in ",
            "((1)+",
            "?:",
            "r'",
            "🦀",
            "\u{202e}",
            "\0",
        ] {
            for tail in ["", "1", ")))", "]"] {
                let source: String = piece.chars().cycle().take(1024 - tail.len()).collect();
                let source = source + tail;
                if let Ok(condition) = Condition::parse(&source, "spec.when") {
                    let _ = condition.evaluate(&scope());
                }
            }
        }
        // The deepest trees that parse can also be evaluated, compared and dropped.
        for source in [
            format!("{}1", "-(".repeat(11)) + &")".repeat(11) + " == 1",
            format!("{}1{}", "[".repeat(23), "]".repeat(23)) + " == [[[[1]]]]",
            vec!["1"; 60].join("+") + " == 60",
            "a".to_owned() + &".b".repeat(60) + " == 1",
            vec!["true"; 170].join("&&"),
        ] {
            let condition = Condition::parse(&source, "spec.when").unwrap_or_else(|e| panic!("{source}: {e}"));
            let _ = condition.evaluate(&scope());
        }
    });
}

#[test]
fn work_and_size_are_bounded_while_evaluating() {
    for source in [
        "many.all(x, x >= 0)",
        "many.map(x, x)",
        "many + [1]",
        "many.filter(x, true)",
        "long + long",
        "'a'.replace('a', long + 'a')",
        "long.split('')",
        "[long, long].join()",
    ] {
        let error = Condition::parse(source, "spec.when").unwrap().evaluate_value(&scope()).unwrap_err();
        assert!(matches!(error, LanguageError::Limit { .. }), "{source}: {error}");
    }
    // A comprehension over large texts reaches the limit of work.
    let range: Vec<String> = (0..90).map(|_| "long".to_owned()).collect();
    let source = format!("[{}].all(t, t.matches('y$') || t.contains('z') || true)", range.join(","));
    let condition = Condition::parse(&source, "spec.when").unwrap();
    assert!(matches!(condition.evaluate(&scope()), Err(LanguageError::Limit { .. })));
    assert!(holds("5 in many && size(many) == 5000 && size(long) > 0"));
}

#[test]
fn deep_json_is_compared_and_printed_on_a_small_stack() {
    on_a_small_stack(|| {
        let deep: Value = serde_json::from_str(&("[".repeat(127) + &"]".repeat(127))).unwrap();
        let mut scope = Scope::new();
        scope.set("a", json!({"x": deep.clone()})).set("b", json!({"x": deep}));
        let condition = Condition::parse("((((a == b))))", "spec.when").unwrap();
        assert_eq!(condition.evaluate(&scope), Ok(true));
        assert!(Condition::parse("a", "spec.when").unwrap().evaluate_value(&scope).is_ok());
    });
}

#[test]
fn maps_and_lists_are_never_equal_and_order_of_keys_does_not_matter() {
    for source in [
        "{} != [] && [] != {}",
        "{'a': 1, 'b': 2} == {'b': 2, 'a': 1.0}",
        "{1: 'a'} != {'1': 'a'}",
        "nodes.x == {'status': 'not_executed', 'response': null}",
        "{'status': 'not_executed', 'response': null} == nodes.x",
        "nodes.x != {1: 2, 3: 4} && {1: 2, 3: 4} != nodes.x",
        "inputs.tags == ['a', 'b'] && inputs.tags != ['b', 'a'] && inputs.tags != 'ab'",
    ] {
        assert!(holds(source), "{source}");
    }
}

#[test]
fn patterns_are_bounded_and_checked_with_the_source() {
    for source in [
        "'a'.matches('(')",
        "'a'.matches('(?:a{1000}){1000}')",
        "'a'.matches('\\\\pL{900}')",
        "'a'.matches('(?x)a b')",
        "'a'.matches('[a-z&&[^b]]')",
        "'a'.matches('((((((((((((((((((a))))))))))))))))))')",
    ] {
        assert!(Condition::parse(source, "spec.when").is_err(), "{source}");
    }
    assert!(!holds("long.matches('(x+x+)+y')"));
    let why = Condition::parse("'a'.matches('[a&&b]')", "spec.when").unwrap_err().to_string();
    assert!(why.contains("which the API server (RE2) reads differently: list what the class has"), "{why}");
    assert!(holds("'7'.matches('^\\\\d$') && !'\u{0667}'.matches('\\\\d')"), "as RE2, whose digits are ASCII");
}

#[test]
fn references_are_paths_without_local_variables() {
    let condition = Condition::parse(
        "steps[0].response == inputs['full name'] && steps.all(s, s.response != a.b) && has(inputs.note) && c.d.trim() == e[f].g",
        "spec.when",
    )
    .unwrap();
    let references: Vec<String> = condition.references().iter().map(|r| r.to_string()).collect();
    assert_eq!(
        references,
        ["a.b", "c.d", "e", "f", "inputs['full name']", "inputs.note", "steps", "steps[0].response"]
    );
    assert_eq!(condition.references().iter().filter(|r| r.optional).count(), 1);
    assert!(Condition::parse("else", "spec.when").unwrap().references().is_empty());
}

#[test]
fn templates_and_fake_verdicts_in_values_stay_data() {
    let mut scope = Scope::new();
    scope.set("answer", json!("' || true || '{{ 1 }} approved\u{1b}[31m\u{202e}"));
    let condition = Condition::parse("answer == 'approved'", "spec.when").unwrap();
    assert_eq!(condition.evaluate(&scope), Ok(false));
}

/// The `cel` crate is the oracle: if it and this implementation both give an answer, the answers are equal. (Where it
/// guesses, this implementation refuses; see `cel.rs`.)
#[test]
fn the_cel_crate_agrees_where_both_answer() {
    let atoms = [
        "1",
        "2.5",
        "-3",
        "'a'",
        "\"b\"",
        "true",
        "false",
        "null",
        "[1, 2]",
        "{'a': 1}",
        "n",
        "d",
        "t",
        "l",
        "m.k",
        "l[0]",
        "size(t)",
        "t.contains('x')",
        "l.map(x, x + 1)",
        "l.exists(x, x > n)",
        "has(m.k)",
        "(n + 1)",
        "!b",
    ];
    let operators = ["==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&&", "||", "in"];
    let mut scope = Scope::new();
    let mut context = cel::Context::default();
    let values = json!({"n": 7, "d": 1.5, "t": "xyz", "l": [7, 8, 9], "m": {"k": "v"}, "b": true});
    for (name, value) in values.as_object().unwrap() {
        scope.set(name.clone(), value.clone());
        context.add_variable_from_value(name.clone(), from_json(value));
    }
    let (mut agreed, mut seed) = (0, 42_u64);
    let mut pick = |n: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % n as u64).unwrap()
    };
    println!("tried: 1500 conditions compared with the crate cel");
    for _ in 0..1500 {
        let mut source = atoms[pick(atoms.len())].to_owned();
        for _ in 0..=pick(3) {
            source += &format!(" {} {}", operators[pick(operators.len())], atoms[pick(atoms.len())]);
        }
        if pick(5) == 0 {
            source = format!("({source}) ? {} : {}", atoms[pick(atoms.len())], atoms[pick(atoms.len())]);
        }
        let ours = Condition::parse(&source, "x").and_then(|c| c.evaluate_value(&scope));
        let Ok(program) = cel::Program::compile(&source) else {
            assert!(ours.is_err(), "only we parse {source}");
            continue;
        };
        if let (Ok(ours), Ok(theirs)) = (ours, program.execute(&context)) {
            let theirs = to_json(&theirs);
            assert_eq!(ours, theirs, "{source}");
            agreed += 1;
        }
    }
    assert!(agreed > 200, "only {agreed} expressions had a value");
}

fn from_json(value: &Value) -> cel::Value {
    match value {
        Value::Bool(b) => (*b).into(),
        Value::String(s) => s.as_str().into(),
        Value::Array(items) => items.iter().map(from_json).collect::<Vec<_>>().into(),
        Value::Object(fields) => cel::Value::Map(cel::objects::Map {
            map: std::sync::Arc::new(
                fields.iter().map(|(key, value)| (key.as_str().into(), from_json(value))).collect(),
            ),
        }),
        number => number.as_i64().map_or_else(|| cel::Value::Float(number.as_f64().unwrap()), cel::Value::Int),
    }
}

fn to_json(value: &cel::Value) -> Value {
    match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(b) => json!(b),
        cel::Value::Int(n) => json!(n),
        cel::Value::Float(n) => json!(n),
        cel::Value::String(s) => json!(s.as_str()),
        cel::Value::List(items) => items.iter().map(to_json).collect(),
        cel::Value::Map(map) => map
            .map
            .iter()
            .map(|(key, value)| (key.to_string(), to_json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => panic!("unexpected {other:?}"),
    }
}
