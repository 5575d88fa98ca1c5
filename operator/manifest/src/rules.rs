//! The CEL rules of a schema, evaluated by the engine's own conditions.
//!
//! A rule that compares with an older object does not apply to a file. A rule that the engine's conditions cannot
//! express is left to the plan, which checks the same; a test lists those rules.

use std::{collections::BTreeMap, sync::Mutex};

use serde_json::Value as Json;
use signoff_api::Span;
use signoff_expr::{Condition, Scope, re2};

use crate::{
    problem::{Problems, place},
    source::Node,
};

/// Reports every rule of the schema that a value breaks.
pub(crate) fn check(node: &Node, schema: &Json, field: &str, problems: &mut Problems<'_>) {
    let Some(rules) = schema["x-kubernetes-validations"].as_array() else { return };
    let mut scope = Scope::new();
    scope.set("self", node.to_json());
    for rule in rules {
        let Some(source) = rule["rule"].as_str().filter(|source| holds_for_a_file(source)) else { continue };
        let holds = if source == PATTERNS_COMPILE {
            Ok(node
                .items()
                .iter()
                .all(|item| item.get("pattern").and_then(Node::text).is_none_or(|pattern| re2::whole(pattern).is_ok())))
        } else if source == LASTS_A_MINUTE {
            let span = node.text().and_then(|span| span.parse::<Span>().ok());
            Ok(span.is_none_or(|span| span.duration().as_secs() >= 60))
        } else {
            let Some(condition) = compile_once(source) else { continue };
            condition.evaluate(&scope)
        };
        if holds == Ok(false) {
            let below = rule["fieldPath"].as_str().unwrap_or_default();
            let message = rule["message"].as_str().unwrap_or(source);
            problems.error("RuleBroken", &format!("{field}{below}"), place(node, below), message);
        }
    }
}

/// The only rule about a computed pattern, which conditions do not allow.
const PATTERNS_COMPILE: &str = "self.all(r, ''.matches('^(?:' + r.pattern + ')$') ? true : true)";

/// The only rule about a time span, for which conditions have no function.
const LASTS_A_MINUTE: &str = "duration(self) >= duration('1m')";

/// Whether a rule is about one object alone.
fn holds_for_a_file(source: &str) -> bool {
    !source.contains("oldSelf")
}

/// Returns the compiled rule, or `None` if conditions cannot express the rule. Each rule is parsed once, because the
/// same rule applies to every step.
fn compile_once(source: &str) -> Option<Condition> {
    static RULES: Mutex<BTreeMap<String, Option<Condition>>> = Mutex::new(BTreeMap::new());
    let Ok(mut rules) = RULES.lock() else { return Condition::parse(source, "rule").ok() };
    rules.entry(source.to_owned()).or_insert_with(|| Condition::parse(source, "rule").ok()).clone()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn sources(schema: &Json, found: &mut BTreeSet<String>) {
        match schema {
            Json::Object(fields) => {
                let rules = fields.get("x-kubernetes-validations").and_then(Json::as_array);
                found.extend(rules.into_iter().flatten().filter_map(|rule| Some(rule["rule"].as_str()?.to_owned())));
                fields.values().for_each(|inner| sources(inner, found));
            }
            Json::Array(items) => items.iter().for_each(|inner| sources(inner, found)),
            _ => {}
        }
    }

    #[test]
    fn the_declared_schema_of_a_workflow_has_its_rules() {
        let mut all = BTreeSet::new();
        sources(crate::schema::of("Workflow").unwrap_or(&Json::Null), &mut all);
        assert!(all.len() >= 20, "{} rules: {all:#?}", all.len());
    }

    #[test]
    fn the_plan_checks_every_rule_that_conditions_cannot_express() {
        let mut all = BTreeSet::new();
        for kind in ["Workflow", "ApprovalPolicy", "ClusterApprovalPolicy"] {
            sources(crate::schema::of(kind).unwrap_or(&Json::Null), &mut all);
        }
        assert!(all.len() > 10, "{all:#?}");
        let left: Vec<_> = all
            .into_iter()
            .filter(|source| holds_for_a_file(source) && compile_once(source).is_none())
            .filter(|source| !source.contains("requiredFrom.all("))
            .filter(|source| ![PATTERNS_COMPILE, LASTS_A_MINUTE].contains(&source.as_str()))
            .collect();
        assert_eq!(left, [] as [String; 0]);
    }
}
