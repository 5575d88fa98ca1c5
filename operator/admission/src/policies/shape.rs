//! The validation rules of the types as parts of admission policies: CEL over a whole object, generated from the
//! declared schema.
//!
//! ```text
//! schema -> rules with their places -> one variable a rule: the violations -> one validation for the first  (pure)
//! ```
//!
//! Rules that compare with an older object are not generated. `COVERED` names the admission policy that has each of
//! them.

use std::fmt::Write as _;

use serde_json::Value;

use signoff_api::crds;

/// A rule of the types that an admission policy enforces with a message of its own.
struct CoveredRule {
    kind: &'static str,
    /// The message of the rule, or its beginning.
    rule: &'static str,
    policy: &'static str,
    /// The message of the policy, or its beginning.
    #[cfg_attr(not(test), expect(dead_code, reason = "compared with the policy by a test"))]
    words: &'static str,
}

const COVERED: [CoveredRule; 7] = [
    covered_rule("Approval", "a stored request cannot be removed", "signoff-approvals", "spec.request: Required value"),
    covered_rule("Approval", "a decision is final", "signoff-approvals", "a decision is final"),
    covered_rule("Approval", "request is immutable", "signoff-approvals", "spec.request is immutable"),
    covered_rule(
        "Approval",
        "request is immutable, and so is its digest",
        "signoff-approvals",
        "spec.request is immutable",
    ),
    covered_rule("Approval", "status.outcome is final", "signoff-status", "status.outcome is final"),
    covered_rule(
        "Workflow",
        "metadata.name must have at most 63",
        "signoff-workflows",
        "metadata.name must have at most 63",
    ),
    covered_rule("Workflow", "requestedBy is immutable", "signoff-workflows", "spec.requestedBy is immutable"),
];

const fn covered_rule(
    kind: &'static str,
    rule: &'static str,
    policy: &'static str,
    words: &'static str,
) -> CoveredRule {
    CoveredRule { kind, rule, policy, words }
}

/// The fields of a Workflow's spec that an update may change.
const MUTABLE: [&str; 3] = ["suspend", "cancel", "ttlAfterFinished"];

/// A segment of the path from an object to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// A field, and whether it can be absent.
    Field { name: String, is_optional: bool },
    /// The items of a list, and whether each has a name.
    Items { are_named: bool },
    /// The values of a map.
    Values,
}

/// The path of a rule.
type Place = Vec<Segment>;

/// A validation rule of the types, with every path to which it applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    source: String,
    pub(super) message: String,
    places: Vec<Place>,
}

/// Returns every rule that the types of a kind declare, in the order of their paths. Rules of the status are omitted,
/// because only the operator writes it.
pub(super) fn declared_rules(kind: &str) -> Vec<Rule> {
    let mut schema = crds::declared_schema(kind);
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.remove("status");
    }
    let mut rules = Vec::new();
    collect(&schema, &mut Vec::new(), &mut rules);
    rules
}

/// Adds the rules of a schema and of everything below it. `place`: the path to the schema. A rule with a known source
/// only gets a further path.
fn collect(schema: &Value, place: &mut Place, rules: &mut Vec<Rule>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        match rules.iter_mut().find(|known| known.source == text("rule")) {
            Some(known) => known.places.push(place.clone()),
            None => {
                rules.push(Rule { source: text("rule"), message: text("message"), places: vec![place.clone()] });
            }
        }
    }
    let required = |schema: &Value, name: &str| {
        schema["required"].as_array().into_iter().flatten().any(|field| field.as_str() == Some(name))
    };
    let mut within = |segment: Segment, inner: &Value| {
        place.push(segment);
        collect(inner, place, rules);
        place.pop();
    };
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        within(Segment::Field { name: name.clone(), is_optional: !required(schema, name) }, inner);
    }
    if let Some(items) = schema.get("items") {
        let are_named = required(items, "name") && items["properties"]["name"]["type"] == "string";
        within(Segment::Items { are_named }, items);
    }
    if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        within(Segment::Values, values);
    }
}

impl Rule {
    /// Returns the admission policy that has the rule with a message of its own, or `None`.
    pub(super) fn covering_policy(&self, kind: &str) -> Option<&'static str> {
        let covering = COVERED.iter().find(|covered| covered.kind == kind && self.message.contains(covered.rule));
        covering.map(|covered| covered.policy)
    }

    /// Returns the expression for the list of paths that violate the rule, of the paths that are evaluated on these
    /// requests. `None` if the rule has no such path.
    fn violations(&self, kind: &str, on: On) -> Option<String> {
        let mut groups: Vec<Group> = Vec::new();
        for place in &self.places {
            let start = Start::new(kind, place);
            if start.on != on {
                continue;
            }
            // The paths below one named list share a loop.
            let fields = start.place.iter().take_while(|segment| matches!(segment, Segment::Field { .. })).count();
            let is_named = start.place.get(fields) == Some(&Segment::Items { are_named: true });
            let (outer, inner) = start.place.split_at(if is_named { fields } else { 0 });
            let known = groups.iter_mut().find(|group| is_named && group.is_named && group.start.place == outer);
            match known {
                Some(group) => group.inner.push(inner.to_vec()),
                None => {
                    let (outer, inner) = (outer.to_vec(), vec![inner.to_vec()]);
                    groups.push(Group { start: Start { place: outer, ..start }, is_named, inner });
                }
            }
        }
        let expressions: Vec<_> = groups.iter().map(|group| self.violations_of_group(group)).collect();
        Some(expressions.join(" +\n      ")).filter(|violations| !violations.is_empty())
    }

    /// Returns the expression for the list of paths of a group that violate the rule.
    fn violations_of_group(&self, Group { start, is_named, inner }: &Group) -> String {
        let mut guards = Vec::new();
        let violations = if *is_named {
            let list = value_at(&start.root, &start.place, &mut guards);
            let holds: Vec<String> = inner.iter().map(|place| self.holds_for_items(place)).collect();
            let text = start.display_path(&[]);
            format!("{list}.filter(v0, !({})).map(v0, '{text} ' + v0.name)", holds.join(" && "))
        } else {
            let place = inner.first().map_or(&[][..], Vec::as_slice);
            format!("({} ? [] : ['{}'])", self.holds(&start.root, place, 0), start.display_path(place))
        };
        if guards.is_empty() { violations } else { format!("({} ? {violations} : [])", guards.join(" && ")) }
    }

    /// Returns the expression for whether the rule holds for the item `v0` of a list that `place` begins with.
    fn holds_for_items(&self, place: &[Segment]) -> String {
        self.holds("v0", place.split_first().map_or(&[], |(_, rest)| rest), 1)
    }

    /// Returns the expression for whether the rule holds at this path below a value.
    fn holds(&self, value: &str, place: &[Segment], depth: usize) -> String {
        let Some((segment, rest)) = place.split_first() else { return format!("[{value}].all(self, {})", self.source) };
        match segment {
            Segment::Field { name, is_optional } => {
                let field = format!("{value}.{name}");
                let below = self.holds(&field, rest, depth);
                if *is_optional { format!("(!has({field}) || {below})") } else { below }
            }
            Segment::Items { .. } if rest.is_empty() => format!("{value}.all(self, {})", self.source),
            Segment::Items { .. } => {
                format!("{value}.all(v{depth}, {})", self.holds(&format!("v{depth}"), rest, depth + 1))
            }
            Segment::Values => {
                let entry = format!("{value}[v{depth}]");
                format!("{value}.all(v{depth}, {})", self.holds(&entry, rest, depth + 1))
            }
        }
    }
}

/// The requests on which a rule is evaluated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    /// Requests that create the part.
    Create,
    /// Requests that can change the part. Only the entries that the policy lists as changed are evaluated.
    Changed,
}

impl On {
    /// Returns the beginning of the names of the variables with violations.
    const fn variable(self) -> &'static str {
        match self {
            Self::Create => "brokenAtCreation",
            Self::Changed => "brokenByChange",
        }
    }

    /// Returns the condition under which a request can break such a rule, as the beginning of an expression.
    fn condition(self, kind: &str) -> &'static str {
        match self {
            Self::Create => "variables.create && ",
            Self::Changed if kind == "Approval" => "variables.votes && ",
            Self::Changed => "",
        }
    }
}

/// The value at which the expression of a rule begins, and the rest of the path.
struct Start {
    root: String,
    /// The root as users read it.
    text: &'static str,
    place: Place,
    on: On,
}

/// The paths of a rule that share a loop over the items of one list, or a single path.
struct Group {
    /// The path of the list, or an empty path.
    start: Start,
    is_named: bool,
    inner: Vec<Place>,
}

impl Start {
    fn new(kind: &str, place: &[Segment]) -> Self {
        let name = |segment: &Segment| match segment {
            Segment::Field { name, .. } => name.clone(),
            Segment::Items { .. } | Segment::Values => String::new(),
        };
        let names: Vec<String> = place.iter().map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match names.as_slice() {
            // The admission policy of Approvals has the changed entries in a list.
            ["spec", "decisions", "", ..] if kind == "Approval" => {
                let entries = [Segment::Items { are_named: false }].into_iter().chain(place.iter().skip(3).cloned());
                Self {
                    root: "variables.given".to_owned(),
                    text: "spec.decisions",
                    place: entries.collect(),
                    on: On::Changed,
                }
            }
            ["spec", field, ..] if kind == "Workflow" && MUTABLE.contains(field) => {
                Self { root: "object".to_owned(), text: "", place: place.to_vec(), on: On::Changed }
            }
            _ => Self { root: "object".to_owned(), text: "", place: place.to_vec(), on: On::Create },
        }
    }

    /// Returns the path as users read it: `spec.pattern.graph.nodes`.
    fn display_path(&self, below: &[Segment]) -> String {
        let fields = self.place.iter().chain(below).filter_map(|segment| match segment {
            Segment::Field { name, .. } => Some(name.as_str()),
            Segment::Items { .. } | Segment::Values => None,
        });
        let text: Vec<&str> = [self.text].into_iter().filter(|text| !text.is_empty()).chain(fields).collect();
        if text.is_empty() { "metadata".to_owned() } else { text.join(".") }
    }
}

/// Returns the expression of the value at a path, and adds to `guards` the conditions under which it exists.
fn value_at(root: &str, place: &[Segment], guards: &mut Vec<String>) -> String {
    let mut value = root.to_owned();
    for segment in place {
        if let Segment::Field { name, is_optional } = segment {
            value = format!("{value}.{name}");
            if *is_optional {
                guards.push(format!("has({value})"));
            }
        }
    }
    value
}

/// Returns the rules that are generated into the admission policy of a kind: all except those in `COVERED`.
fn written_rules(kind: &str) -> Vec<Rule> {
    declared_rules(kind).into_iter().filter(|rule| rule.covering_policy(kind).is_none()).collect()
}

/// Returns the operations on which the rules of a kind are evaluated: also UPDATE if a rule applies to a field that an
/// update can change.
pub(super) fn operations(kind: &str) -> &'static str {
    let rules = written_rules(kind);
    let changes = |place: &Place| Start::new(kind, place).on == On::Changed;
    if rules.iter().flat_map(|rule| &rule.places).any(changes) { "CREATE, UPDATE" } else { "CREATE" }
}

/// Returns the variables of an admission policy: the violations of each rule, and `broken`, the first violation in
/// words or an empty text. A request evaluates only the rules that it can break.
pub(super) fn variables(kind: &str) -> String {
    let (mut text, mut first) = (String::new(), String::new());
    for (number, rule) in written_rules(kind).iter().enumerate() {
        let quoted = rule.message.replace('\\', r"\\").replace('\'', r"\'");
        for on in [On::Create, On::Changed] {
            let Some(violations) = rule.violations(kind, on) else { continue };
            let (name, evaluated) = (on.variable(), on.condition(kind));
            let _ = write!(text, "  - name: {name}{number}\n    expression: >-\n      {violations}\n");
            let is_violated = format!("{evaluated}size(variables.{name}{number}) > 0");
            let _ = writeln!(first, "      {is_violated} ? variables.{name}{number}[0] + ': {quoted}' :");
        }
    }
    let _ = write!(text, "  - name: broken\n    expression: >-\n{first}      ''");
    text
}

/// The validation of an admission policy that refuses the first violation. The API server evaluates the message
/// expression of every validation even if it refuses nothing, so all rules share one validation.
pub(super) const VALIDATION: &str = "  - expression: \"variables.broken == ''\"\n    message: \"a rule of this kind is broken\"\n    messageExpression: \"variables.broken\"";

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
