//! The codes of refusals: every message of the admission policies and every reason of a condition has a code or is
//! listed here with the reason why not, and every code has its section in the documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use signoff_admission::policies::{Identity, PolicyObject, objects};
use signoff_api::Code;

/// The remedy is in the message.
const HAS_REMEDY: &str = "the message names the field and the bound or the remedy";
/// The beginning or the end of a message.
const PART: &str = "another part of the message has a code";
/// The API server shows such a message only where the expression of the message fails.
const FALLBACK: &str = "shown only where the expression of the message fails";
/// A rule of requests.
const OF_OPERATOR: &str = "met by the operator alone, which creates Approvals";

/// The messages without a code: a part of each, and the reason.
const WITHOUT_CODE: &[(&str, &str)] = &[
    ("a rule of this kind is broken", FALLBACK),
    ("the decision does not answer what this gate asks", FALLBACK),
    ("spec.request: Required value: ", PART),
    ("(it has none)", PART),
    ("(this question has no options)", PART),
    ("(it takes neither options nor text)", PART),
    (" (an integer within ±2^53)", PART),
    ("only the operator can write its Lease, the state of the guard and that of notices", PART),
    ("what is named signoff-notifications decides where notices and their secrets are sent", PART),
    ("the routes of this namespace, and what is named signoff-web, decide where people sign in", PART),
    ("code and tokens of this namespace can act as the operator or the page", PART),
    ("the garbage collector can change only owner references and finalizers", "met by the garbage collector alone"),
    ("a key of spec.decisions must have at most 512 characters", HAS_REMEDY),
    ("metadata.name must have at most 63 characters", HAS_REMEDY),
    ("every group of requiredFrom must be among the approvers of its gate", HAS_REMEDY),
    ("a Workflow must name at most 8 Secrets", HAS_REMEDY),
    (": namespace is required for kind ServiceAccount", HAS_REMEDY),
    (": name must not start with system:", HAS_REMEDY),
    (": metadata.name must end with the first ten hex digits", OF_OPERATOR),
    (": multiple needs options", OF_OPERATOR),
    (": errorMessage needs a pattern", OF_OPERATOR),
    (": person with $1 needs a pattern", OF_OPERATOR),
];

/// The policy with the rules of the types of a Workflow. None of its messages has a code: each names the field and the
/// remedy, and `signoff validate` prints the same.
const RULES_OF_TYPES: &str = "signoff-workflows-shape";

/// The reasons without a code: the condition says that all is well, or that the run waits and continues by itself.
const REASONS_WITHOUT_CODE: [&str; 4] = ["Accepted", "ApprovalPending", "NothingPending", "Queued"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A message of an admission policy.
#[derive(Debug)]
struct PolicyMessage {
    policy: String,
    /// The constant texts, in their order.
    texts: Vec<String>,
}

impl PolicyMessage {
    fn has(&self, part: &str) -> bool {
        self.texts.iter().any(|text| text.contains(part))
    }
}

/// Returns the texts of an expression of CEL, in a list for each alternative between `?` and `:`. An alternative
/// without a text of several words is no message.
fn alternatives(expression: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut rest = expression.chars();
    while let Some(c) = rest.next() {
        match c {
            '?' | ':' => all.push(Vec::new()),
            '\'' | '"' => {
                let mut text = String::new();
                while let Some(inner) = rest.next().filter(|inner| *inner != c) {
                    text.push(if inner == '\\' { rest.next().unwrap() } else { inner });
                }
                all.last_mut().unwrap().push(text);
            }
            _ => {}
        }
    }
    let is_sentence = |text: &String| text.contains(' ') && text.chars().any(char::is_alphabetic);
    all.retain(|texts| texts.iter().any(is_sentence));
    all
}

/// Returns every message of the admission policies.
fn messages() -> Vec<PolicyMessage> {
    let mut all = Vec::new();
    for object in objects(&Identity::default()).unwrap() {
        let PolicyObject::Validating(policy) = object else { continue };
        let (name, spec) = (policy.metadata.name.unwrap(), policy.spec.unwrap());
        let variables = spec.variables.unwrap_or_default();
        for rule in spec.validations.unwrap_or_default() {
            let mut found: Vec<Vec<String>> = rule.message.into_iter().map(|message| vec![message]).collect();
            if let Some(expression) = rule.message_expression {
                let named = variables.iter().find(|variable| expression == format!("variables.{}", variable.name));
                found.extend(alternatives(named.map_or(expression.as_str(), |variable| variable.expression.as_str())));
            }
            all.extend(found.into_iter().map(|texts| PolicyMessage { policy: name.clone(), texts }));
        }
    }
    assert!(all.len() > 90, "{} messages: where are they?", all.len());
    all
}

#[test]
fn every_message_of_a_policy_has_one_code_or_is_listed_without() {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for message in messages() {
        let codes: Vec<Code> =
            Code::all().filter(|code| code.messages().iter().any(|part| message.has(part))).collect();
        let exceptions: Vec<&str> =
            WITHOUT_CODE.iter().map(|(part, _)| *part).filter(|part| message.has(part)).collect();
        used.extend(exceptions.iter().copied());
        if message.policy == RULES_OF_TYPES {
            assert!(codes.is_empty(), "{message:?}: {codes:?}");
        } else if exceptions.is_empty() {
            assert_eq!(codes.len(), 1, "give {message:?} one code, or list it without: {codes:?}");
            assert_eq!(Code::of_message(&message.texts.concat()), Some(codes[0]), "{message:?}");
        } else {
            assert!(codes.is_empty(), "{message:?} is listed without a code: {codes:?}");
        }
    }
    let unused: Vec<_> = WITHOUT_CODE.iter().filter(|(part, _)| !used.contains(part)).collect();
    assert!(unused.is_empty(), "in no message: {unused:?}");
}

#[test]
fn every_part_of_a_code_is_in_a_message_of_a_policy() {
    let messages = messages();
    for code in Code::all() {
        for part in code.messages() {
            assert!(messages.iter().any(|message| message.has(part)), "{code}: no message has {part:?}");
        }
    }
}

#[test]
fn every_reason_of_a_condition_has_a_code_or_needs_none() {
    let source = fs::read_to_string(root().join("operator/api/src/conditions.rs")).unwrap();
    let (_, reasons) = source.split_once("pub mod reason {").unwrap();
    let (reasons, _) = reasons.split_once("\n}").unwrap();
    let reasons: BTreeSet<&str> =
        reasons.lines().filter(|line| line.contains("pub const")).filter_map(|line| line.split('"').nth(1)).collect();
    assert!(reasons.len() > 30, "{reasons:?}");
    let without: BTreeSet<&str> = reasons.into_iter().filter(|reason| Code::of_reason(reason).is_none()).collect();
    assert_eq!(without, REASONS_WITHOUT_CODE.into(), "give each a code, or list it without");
}

#[test]
fn codes_ascend_without_duplicates() {
    let codes: Vec<Code> = Code::all().collect();
    assert!(codes.is_sorted_by(|one, next| one < next), "{codes:?}");
}

#[test]
fn every_code_has_its_section_in_the_documentation() {
    let page = fs::read_to_string(root().join("docs/reference/codes.md")).unwrap();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let expected: Vec<String> = Code::all().map(|code| format!("{code}: {}", code.title())).collect();
    assert_eq!(sections, expected);
    for section in page.split("\n## ").skip(1) {
        let lines = section.trim().lines().skip(1).filter(|line| !line.is_empty()).count();
        assert!((3..=7).contains(&lines), "3 to 7 lines, not {lines}:\n{section}");
    }
}
