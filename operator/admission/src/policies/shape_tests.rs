//! Every rule of the types is in exactly one policy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::Validation as ValidationRule;
use serde_json::{Value, json};

use super::*;
use crate::policies::{Identity, PolicyObject, objects};

/// Returns the messages of the validations and the expressions of the variables of each validating policy, by its name.
fn policy_texts() -> BTreeMap<String, Vec<String>> {
    let policies = objects(&Identity::default()).unwrap().into_iter().filter_map(|object| match object {
        PolicyObject::Validating(policy) => {
            let spec = policy.spec.unwrap();
            let message = |rule: ValidationRule| rule.message.or(rule.message_expression);
            let messages = spec.validations.unwrap_or_default().into_iter().filter_map(message);
            let variables = spec.variables.unwrap_or_default().into_iter().map(|variable| variable.expression);
            Some((policy.metadata.name.unwrap(), messages.chain(variables).collect()))
        }
        _ => None,
    });
    policies.collect()
}

#[test]
fn every_declared_rule_is_in_exactly_one_policy() {
    let messages = policy_texts();
    let mut counted = BTreeMap::new();
    for kind in ["Workflow", "Approval"] {
        for rule in declared_rules(kind) {
            let own = if kind == "Workflow" { "signoff-workflows-shape" } else { "signoff-approvals" };
            let quoted = rule.message.replace('\\', r"\\").replace('\'', r"\'");
            let words = format!("[0] + ': {quoted}'");
            let written: usize = messages[own].iter().map(|message| message.matches(&words).count()).sum();
            match rule.covering_policy(kind) {
                Some(policy) => {
                    let covers = |known: &&CoveredRule| known.kind == kind && rule.message.contains(known.rule);
                    let covered_rule = COVERED.iter().find(covers).unwrap();
                    assert!(
                        messages[policy].iter().any(|message| message.contains(covered_rule.words)),
                        "{policy}: {}",
                        covered_rule.words
                    );
                    *counted.entry((kind, "in other words")).or_insert(0) += 1;
                }
                None => {
                    assert!(
                        !rule.source.contains("oldSelf"),
                        "no policy compares with an older object: {}",
                        rule.source
                    );
                    let on = [On::Create, On::Changed].map(|on| usize::from(rule.violations(kind, on).is_some()));
                    assert_eq!(written, on.iter().sum::<usize>(), "{own}: {}", rule.message);
                    *counted.entry((kind, "as it is")).or_insert(0) += 1;
                }
            }
        }
    }
    let count = |kind, how| counted.get(&(kind, how)).copied().unwrap_or(0);
    assert!(count("Workflow", "as it is") >= 18 && count("Approval", "as it is") >= 12, "{counted:?}");
    assert_eq!((count("Workflow", "in other words"), count("Approval", "in other words")), (2, 5), "{counted:?}");
}

#[test]
fn every_covered_rule_is_still_declared() {
    for covered_rule in COVERED {
        assert!(
            declared_rules(covered_rule.kind).iter().any(|rule| rule.message.contains(covered_rule.rule)),
            "{}: {}",
            covered_rule.kind,
            covered_rule.rule
        );
    }
}

fn rule(places: Vec<Place>) -> Rule {
    Rule { source: "self.ok".to_owned(), message: "it's not ok".to_owned(), places }
}

fn field(name: &str, is_optional: bool) -> Segment {
    Segment::Field { name: name.to_owned(), is_optional }
}

#[test]
fn a_rule_below_lists_tests_optional_parents_first_and_names_the_item() {
    let steps = [field("spec", false), field("steps", true), Segment::Items { are_named: true }];
    let approvers = [field("hitl", true), field("approvers", false), Segment::Items { are_named: true }];
    let spans = [field("hitl", true), field("levels", false), Segment::Items { are_named: false }, field("to", true)];
    let places = vec![[&steps[..], &approvers].concat(), [&steps[..], &spans].concat()];
    assert_eq!(
        rule(places).violations("Workflow", On::Create).unwrap(),
        "(has(object.spec.steps) ? object.spec.steps.filter(v0, \
         !((!has(v0.hitl) || v0.hitl.approvers.all(self, self.ok)) && \
         (!has(v0.hitl) || v0.hitl.levels.all(v1, (!has(v1.to) || [v1.to].all(self, self.ok)))))).map(v0, 'spec.steps ' + v0.name) : [])"
    );
}

#[test]
fn only_a_rule_about_a_mutable_field_is_evaluated_on_updates() {
    let violations_of =
        |name: &str, on| rule(vec![vec![field("spec", false), field(name, true)]]).violations("Workflow", on);
    let violations = |name: &str| {
        format!("((!has(object.spec.{name}) || [object.spec.{name}].all(self, self.ok)) ? [] : ['spec.{name}'])")
    };
    assert_eq!(violations_of("ttlAfterFinished", On::Changed), Some(violations("ttlAfterFinished")));
    assert_eq!(violations_of("ttlAfterFinished", On::Create), None);
    assert_eq!(violations_of("pattern", On::Create), Some(violations("pattern")));
    assert_eq!(violations_of("pattern", On::Changed), None);
    assert_eq!(operations("Workflow"), "CREATE");
}

#[test]
fn a_rule_about_decisions_holds_for_the_entries_that_changed() {
    let entry = [field("spec", false), field("decisions", true), Segment::Values];
    assert_eq!(
        rule(vec![entry.to_vec()]).violations("Approval", On::Changed).unwrap(),
        "(variables.given.all(self, self.ok) ? [] : ['spec.decisions'])"
    );
    let below: Place = [&entry[..], &[field("escalateTo", true), Segment::Items { are_named: true }]].concat();
    assert_eq!(
        rule(vec![below]).violations("Approval", On::Changed).unwrap(),
        "(variables.given.all(v0, (!has(v0.escalateTo) || v0.escalateTo.all(self, self.ok))) ? [] : ['spec.decisions.escalateTo'])"
    );
}

#[test]
fn collect_finds_each_path_with_its_optional_fields() {
    let ruled = |more: Value| {
        let mut schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "r", "message": "m"}]});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let item = ruled(json!({"required": ["name"], "properties": {"name": {"type": "string"}}}));
    let schema = json!({"properties": {"spec": {"required": ["one"], "properties": {
        "one": ruled(json!({})), "list": {"items": item}, "map": {"additionalProperties": ruled(json!({}))}}}}});
    let mut rules = Vec::new();
    collect(&schema, &mut Vec::new(), &mut rules);
    let spec = field("spec", true);
    let expected: Vec<Place> = vec![
        vec![spec.clone(), field("one", false)],
        vec![spec.clone(), field("list", true), Segment::Items { are_named: true }],
        vec![spec, field("map", true), Segment::Values],
    ];
    assert_eq!(rules, [Rule { source: "r".into(), message: "m".into(), places: expected }]);
}
