//! Drivers of expressions: any bytes as a template, a condition, or an answer that may hold JSON.

use serde_json::json;
use signoff_expr::{Condition, Scope, Template, json as json_text, text};

/// Parses the bytes as a template and renders it; then renders them as a value.
pub fn template(data: &[u8]) {
    let source = String::from_utf8_lossy(data);
    if let Ok(template) = Template::parse(&source, "fuzz") {
        let _ = template.references();
        if let Ok(rendered) = template.render_within(&scope(&source), 1 << 16) {
            assert_eq!(text::clean(&rendered), rendered, "rendered text is clean");
        }
        let _ = (template.render_url(&scope(&source)), template.json_advice(|_| false));
    }
    if let Ok(quote) = Template::parse("https://h.example/a/{{ text }}/b?c={{ text }}", "fuzz")
        && let Ok(rendered) = quote.render_url(&scope(&source))
    {
        let read = url::Url::parse(&rendered);
        let place = read.as_ref().ok().and_then(|url| Some((url.host_str()?, url.path_segments()?.count())));
        assert_eq!(place, Some(("h.example", 3)), "a value stays a segment");
    }
    if let Ok(quote) = Template::parse("{{ text }}", "fuzz")
        && let Ok(rendered) = quote.render(&scope(&source))
    {
        assert_eq!(rendered, text::clean(&source), "a value is data");
    }
}

/// Parses the bytes as a condition and evaluates it; then compares them as a value.
pub fn condition(data: &[u8]) {
    let source = String::from_utf8_lossy(data);
    if let Ok(condition) = Condition::parse(&source, "fuzz") {
        let _ = condition.references();
        let scope = scope(&source);
        assert_eq!(condition.evaluate_value(&scope), condition.evaluate_value(&scope), "evaluation is deterministic");
        assert!(!condition.is_else() || condition.evaluate(&scope) == Ok(true), "else always holds");
        let _ = condition.evaluate(&scope);
    }
    if let Ok(condition) = Condition::parse("text == text && !(text != text)", "fuzz") {
        assert_eq!(condition.evaluate(&scope(&source)), Ok(true), "a value is data");
    }
}

/// Cleans, shows and searches the bytes as an answer.
pub fn answer(data: &[u8]) {
    let source = String::from_utf8_lossy(data);
    let shown = text::display(&source, 100);
    assert!(shown.chars().count() <= 100, "what is shown is bounded");
    assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{200b}', '\r']), "what is shown hides nothing");
    if let Some(found) = json_text::extract(&source) {
        // Not compared: the last digit of a number may differ after it was written and read.
        assert!(json_text::extract(&found.to_string()).is_some(), "what was found is found again");
    }
    let wanted = |value: &serde_json::Value| value.get("route").is_some_and(serde_json::Value::is_string);
    if let Some(found) = json_text::extract_where(&source, wanted) {
        assert!(wanted(&found), "nothing is taken for what was wanted");
        let quoted = format!("I choose {found}, and not [1].");
        let again = json_text::extract_where(&quoted, wanted);
        assert_eq!(
            again.map(|value| value["route"].clone()),
            Some(found["route"].clone()),
            "words around it change nothing"
        );
    }
}

fn scope(text: &str) -> Scope {
    let mut scope = Scope::new();
    scope
        .set("text", json!(text))
        .set("n", json!(7))
        .set("m", json!({"k": "v", "l": [1, 2.5, null, true]}))
        .set_records("steps", vec![("draft".into(), json!({"response": "ok"}))]);
    scope
}

#[cfg(test)]
mod tests {
    //! Mutations of a corpus that holds what has gone wrong elsewhere.

    use super::*;
    use crate::mutations::survives;

    fn templates() -> Vec<String> {
        vec![
            "{{ steps[0].response }} {{ m.l[-1] }} {{ text[:30] | upper }}".into(),
            "{% for k, v in m.items() %}{{ loop.index }}{{ k }}{% else %}x{% endfor %}".into(),
            "{% if n > 5 and 'a' in text %}{{ text.lower().split(',') | join('-') }}{% elif n %}y{% endif %}".into(),
            "{{ m | tojson }}{{ text | regex_search('(?:a{1000}){1000}') }}{{ text | truncate(5) }}".into(),
            "{{ text | replace(text, text) | replace('', text) }}{{ text ~ text + 'x' if n else m }}".into(),
            "{{ 'x' * 1000000000 }}{{ 2 ** 127 * 3 }}{{ 1 // 0 }}{{ 9223372036854775807 + n }}".into(),
            "{# c #}{% raw %}{{ }}{% endraw %}{{ steps.draft is defined }}{{ x | default(n) }}".into(),
            "(".repeat(200),
            format!("{{{{ {} }}}}", "[".repeat(250)),
            format!("{{{{ {} }}}}", vec!["1"; 4000].join("+")),
            "{{ range(-9223372036854775808, 9223372036854775807, -1) }}{{ text[::0] }}{{ text[9:1:-1] }}".into(),
            "{{ n | round(999999999) }}{{ -n | abs }}{{ '99' | int(base=99) }}{{ text.count('') }}".into(),
        ]
    }

    fn conditions() -> Vec<String> {
        vec![
            "steps[0].response == 'ok' && m.l.exists(x, x == 2.5)".into(),
            vec!["1"; 4000].join(" + "),
            "[1].map(a, [1].map(b, [1].map(c, c)))".into(),
            "text.matches('(?:a{1000}){1000}') || text.contains(\"x\") ? has(m.k) : !(n < 5)".into(),
            "m.map(k, k).filter(k, k in m).join(',') + string(n) + text.substring(0, n)".into(),
            "-9223372036854775808 / -1 + 0x7fffffffffffffff % 0 * int('12') - int(1e300)".into(),
            "{'a': [1, {2: true}], \"b\": null}['a'][1][2]".into(),
            "'\\x41\\u00e9\\U0001F980\\101' + r'\\n' + '''a\nb'''".into(),
            "(".repeat(200),
            "[".repeat(200),
            "!".repeat(200) + "true",
            "-".repeat(200) + "1",
        ]
    }

    fn answers() -> Vec<String> {
        vec![
            "I think ```json\n{\"route\": \"a\"}\n``` is {\"b\": [1, 2]}".into(),
            "{\"a\": \"} \\\" {\", \"b\": [[[{}]]]}".into(),
            "[".repeat(500),
            "{\"route\": \"refund\", \"why\": 1e308}".into(),
            "See [1]: ```\n{\"score\": -0.0, \"issues\": [\"\\ud83e\\udd80\"]}\n``` {\"route\": null}".into(),
            "[{\"task\": \"a\"}, {\"task\": \"b\"}] {\"route\": \"x\", \"route\": \"y\"}".into(),
            "\u{1b}[31m\u{202e}approve\u{200b}\r\n\u{feff}e\u{301}".into(),
        ]
    }

    #[test]
    fn no_template_panics_or_overflows() {
        assert!(survives(templates(), 3000, template));
    }

    #[test]
    fn no_condition_panics_or_overflows() {
        assert!(survives(conditions(), 8000, condition));
        let words = ["true", "false", " true", "True", "else", "{{ text == 'x' }}", "{% if n > 5 %}true{% endif %}"];
        let corpus = conditions().into_iter().chain(templates()).chain(words.map(String::from));
        assert!(survives(corpus, 3000, condition));
    }

    #[test]
    fn no_answer_panics_or_overflows() {
        assert!(survives(answers(), 1500, answer));
    }
}
