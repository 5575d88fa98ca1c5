//! The condition of an edge of a graph: a CEL condition, or a template in `{{ }}` that must
//! come to exactly `true` or `false`.
//!
//! It must not guess: a template that comes to any other text is an error, never `false`. Gates, `skipIf` and
//! grants take conditions only.

use std::collections::BTreeSet;

use super::{Condition, LanguageError, Reference, Scope, Template, text};

/// Bytes that a template which decides may come to, and those of it that an error shows.
const MAX_ANSWER: usize = 1024;

/// A `when` that parsed and is within its limits.
#[derive(Debug, Clone)]
pub enum When {
    /// A condition, `else` included.
    Cel(Condition),
    /// A template that must come to exactly `true` or `false`.
    Template(Template),
}

impl When {
    /// Parses `source`; `what` is the path of the field that holds it, for messages.
    ///
    /// What begins with `{{` or `{%` is a template; no condition begins so. Blank space around it counts for nothing.
    ///
    /// # Errors
    /// Those of [`Condition::parse`] and [`Template::parse`].
    pub fn parse(source: &str, what: &str) -> Result<Self, LanguageError> {
        let trimmed = source.trim();
        if trimmed.starts_with("{{") || trimmed.starts_with("{%") {
            Template::parse(trimmed, what).map(Self::Template)
        } else {
            Condition::parse(source, what).map(Self::Cel)
        }
    }

    /// The text this was parsed from, for a template without blank space around it.
    pub fn source(&self) -> &str {
        match self {
            Self::Cel(condition) => condition.source(),
            Self::Template(template) => template.source(),
        }
    }

    /// Whether this is the literal `else`, which always holds.
    pub fn is_else(&self) -> bool {
        matches!(self, Self::Cel(condition) if condition.is_else())
    }

    /// The names this uses, as far as they can be read without evaluating.
    pub fn references(&self) -> BTreeSet<Reference> {
        match self {
            Self::Cel(condition) => condition.references(),
            Self::Template(template) => template.references().clone(),
        }
    }

    /// Whether the edge is taken in `scope`.
    ///
    /// # Errors
    /// Those of [`Condition::evaluate`] and [`Template::render`], and [`LanguageError::Evaluation`] for a template
    /// that comes to any text but `true` and `false`. The message does not show the text: it may be secret.
    pub fn evaluate(&self, scope: &Scope) -> Result<bool, LanguageError> {
        let (template, answer) = match self {
            Self::Cel(condition) => return condition.evaluate(scope),
            Self::Template(template) => (template, template.render_within(scope, MAX_ANSWER)?),
        };
        match answer.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(LanguageError::Evaluation {
                what: template.what().to_owned(),
                problem: format!(
                    "the template must come to exactly `true` or `false`, this one came to {}; compare, as in \
                     `{{{{ x == 'yes' }}}}`",
                    described(other)
                ),
            }),
        }
    }
}

/// Describes a text that must not be shown.
fn described(answer: &str) -> String {
    match answer.trim() {
        "" => "no text".to_owned(),
        word @ ("true" | "false") => format!("`{word}` with blank space around it"),
        word if ["true", "false"].contains(&word.to_lowercase().as_str()) => format!("`{}`", text::display(word, 5)),
        other => format!("a text of length {}", other.chars().count()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use serde_json::json;

    use super::*;

    fn scope() -> Scope {
        let mut scope = Scope::new();
        scope
            .set("nodes", json!({"classify": {"response": "Technical issue", "status": "succeeded"}}))
            .set("hitl_response", json!("Approved"))
            .set("word", json!("true"))
            .set("secret", json!("s3cr3t"));
        scope
    }

    fn evaluate(source: &str) -> Result<bool, LanguageError> {
        When::parse(source, "spec.pattern.graph.edges[0].choose[1].when")?.evaluate(&scope())
    }

    #[test]
    fn a_when_is_a_condition_or_a_template() {
        for (source, taken) in [
            ("hitl_response == 'Approved'", true),
            ("nodes.classify.response == null", false),
            ("else", true),
            (" else\n", true),
            ("{{ hitl_response.lower() == 'approved' }}", true),
            ("{{ 'technical' in nodes.classify.response.lower() }}", true),
            ("{{ nodes.classify.response is contains('billing') }}", false),
            ("{{ nodes.classify.response.lower().startswith('tech') and hitl_response != 'no' }}", true),
            ("\n  {{ nodes.classify.status == 'failed' }}\n", false),
            ("{% if hitl_response == 'Approved' %}true{% else %}false{% endif %}", true),
            ("{{ word }}", true),
            ("'{{' == '{{'", true),
        ] {
            assert_eq!(evaluate(source), Ok(taken), "{source}");
        }
    }

    #[test]
    fn only_else_is_else() {
        assert!(When::parse("else", "when").unwrap().is_else());
        assert!(!When::parse("true", "when").unwrap().is_else());
        assert!(!When::parse("{{ true }}", "when").unwrap().is_else());
    }

    #[test]
    fn a_template_that_comes_to_neither_true_nor_false_is_an_error_that_does_not_show_it() {
        for (source, came_to) in [
            ("{{ secret }}", "a text of length 6"),
            ("{{ '' }}", "no text"),
            ("{{ 'True' }}", "`True`"),
            ("{{ 'FALSE' }}", "`FALSE`"),
            ("{{ ' true' }}", "`true` with blank space around it"),
            ("{{ 1 }}", "a text of length 1"),
            ("{{ true }} and {{ true }}", "a text of length 13"),
        ] {
            let message = evaluate(source).expect_err(source).to_string();
            assert_eq!(
                message,
                format!(
                    "spec.pattern.graph.edges[0].choose[1].when: the template must come to exactly `true` or `false`, \
                     this one came to {came_to}; compare, as in `{{{{ x == 'yes' }}}}`"
                )
            );
        }
        assert!(evaluate("{{ nothing }}").is_err());
        assert!(matches!(evaluate("{% for i in range(1000) %}true{% endfor %}"), Err(LanguageError::Limit { .. })));
    }

    #[test]
    fn the_names_of_both_forms_are_known_before_the_run() {
        let names = |source: &str| -> Vec<String> {
            When::parse(source, "when").unwrap().references().iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("nodes.a.response == hitl_response"), ["hitl_response", "nodes.a.response"]);
        assert_eq!(names("{{ nodes.a.response == hitl_response }}"), ["hitl_response", "nodes.a.response"]);
        assert!(names("else").is_empty());
    }
}
