//! The long expressions of the admission policies: `@@NAME argument@@` in a template is replaced by the result of the
//! function of that name. CEL has neither user-defined functions nor recursion, so nesting is unrolled here.
//!
//! **Invariant:** the result depends only on the template and the identity.

use super::{Identity, shape};
use signoff_api::{ApprovalRequest, Decision, Verdict, approval::ARGUMENTS};

/// Returns the template with every expression expanded. Unknown names are left as they are, so that a test finds them.
pub(super) fn expand(template: &str, identity: &Identity) -> String {
    let mut parts = template.split("@@");
    let mut text = parts.next().unwrap_or_default().to_owned();
    while let Some(inside) = parts.next() {
        let (name, argument) = inside.split_once(' ').unwrap_or((inside, ""));
        match name {
            "namespace" => text.push_str(&identity.namespace),
            "USER" => text.push_str(&identity.user_name()),
            "OPERATOR" => text.push_str(&is_operator(identity)),
            "HOUSEKEEPER" => text.push_str(HOUSEKEEPER),
            "PERSON" => text.push_str(&person_of(argument)),
            "EXCLUDED" => text.push_str(&excluded_persons(argument)),
            "BOUND" => text.push_str(&limit_or_text(argument).unwrap_or_else(|| format!("@@{inside}@@"))),
            "WHEN_OVERDUE" => text.push_str(&verdicts_when_overdue()),
            "IS_TEXT" => text.push_str(&has_text_of_arguments(argument)),
            "SIZE" => text.push_str(&size_of_decision(argument)),
            "DEPTH" => text.push_str(&keys_end_within(argument, 20, 0)),
            "SHALLOW" => text.push_str(&nests_within(argument, 16, 0)),
            "FITS" => text.push_str(&has_type(argument)),
            "RECONCILED" => text.push_str(&has_key_of_reconciler(argument)),
            "NAMES" => text.push_str(&is_named(argument)),
            "GROUPS_OF_VOTER" => text.push_str(&groups_of_voter()),
            "SHAPE_OPERATIONS" => text.push_str(shape::operations(argument)),
            "SHAPE_VARIABLES" => text.push_str(&shape::variables(argument)),
            "SHAPE_RULE" => text.push_str(shape::VALIDATION),
            "SECRETS" => text.push_str(&can_read_secrets(8)),
            _ => text.push_str(&format!("@@{inside}@@")),
        }
        text.push_str(parts.next().unwrap_or_default());
    }
    text
}

/// Returns the expression for the operator: its service account with a token bound to a pod. `kubectl create token`,
/// token Secrets and impersonation have no pod. Needs `variables.me`.
fn is_operator(identity: &Identity) -> String {
    format!(
        "variables.me == '{}' && has(request.userInfo.extra) && 'authentication.kubernetes.io/pod-name' in request.userInfo.extra",
        identity.user_name()
    )
}

/// The controllers that delete objects without an owner or a namespace. Needs `variables.me`.
const HOUSEKEEPER: &str = "variables.me in ['system:serviceaccount:kube-system:generic-garbage-collector', 'system:serviceaccount:kube-system:namespace-controller', 'system:kube-controller-manager']";

/// Returns the expression for the person of the user name `u`: by the first rule of `variables.persons` that matches
/// the whole name, otherwise the name itself. CEL cannot extract a group of a match, so `$1` is the text between the
/// matches of the two parts of the pattern around its only group. Only the first matching rule is applied, because
/// every match costs.
fn person_of(u: &str) -> String {
    let before = format!("size({u}.find('^(?:' + e.pattern.substring(0, e.pattern.indexOf('(')) + ')'))");
    let after = format!("size({u}.find('(?:' + e.pattern.substring(e.pattern.lastIndexOf(')') + 1) + ')$'))");
    format!(
        "[variables.persons.filter(e, {u}.matches('^(?:' + e.pattern + ')$'))].map(m, size(m) == 0 ? {u} : [m[0]].map(e, \
         !e.person.contains('$1') || !e.pattern.matches('[(].*[)]') ? string(e.person) : \
         [{before}].map(b, [{after}].map(a, \
         b + a <= size({u}) ? e.person.replace('$1', {u}.substring(b, size({u}) - a)) : {u})[0])[0])[0])[0]"
    )
}

/// The names of `variables.excluded` in one expression, because each expression has its own cost budget.
const NAMES_AT_ONCE: usize = 8;

/// Returns the expression for the persons of [`NAMES_AT_ONCE`] names of `variables.excluded`, from the index `from` on.
fn excluded_persons(from: &str) -> String {
    let first: usize = from.parse().unwrap_or(0);
    let indexes: Vec<_> = (first..first + NAMES_AT_ONCE).map(|index| index.to_string()).collect();
    format!(
        "[{}].filter(i, i < size(variables.excluded)).map(i, variables.excluded[i]).map(u, {})",
        indexes.join(", "),
        person_of("u")
    )
}

/// Returns the variables up to `counted`, which is the list of groups of a vote. It equals
/// [`signoff_api::Approval::groups_of_voter`], so it has at most [`signoff_api::Decision::MAX_GROUPS`] groups. A caller
/// can be in a group several times, but each group is listed once. Needs `variables.groups`, `quorums` and `lists`, the
/// current approvers of each quorum.
fn groups_of_voter() -> String {
    /// The quorums in one expression, because each expression has its own cost budget.
    const QUORUMS_AT_ONCE: usize = 3;
    let quorums = ApprovalRequest::MAX_QUORUMS;
    let mut lines = vec![
        "  - {name: requiredGroups, expression: \"variables.quorums.map(q, has(q.requiredFrom) ? q.requiredFrom.filter(r, r.group in variables.groups).map(r, string(r.group)) : [])\"}".to_owned(),
    ];
    let parts = quorums.div_ceil(QUORUMS_AT_ONCE);
    for part in 0..parts {
        let start = part * QUORUMS_AT_ONCE;
        let indexes: Vec<_> = (start..quorums.min(start + QUORUMS_AT_ONCE)).map(|index| index.to_string()).collect();
        lines.push(format!(
            "  - name: firstGroups{part}\n    expression: >-\n      size(variables.quorums) < 2 ? [] : [{}].filter(i, i < size(variables.lists)).map(i,\n        \
             variables.lists[i].filter(a, a.kind == 'Group' && a.name in variables.groups)).filter(l, size(l) > 0).map(l, [string(l[0].name)])",
            indexes.join(", ")
        ));
    }
    let names: Vec<_> = (0..parts).map(|part| format!("variables.firstGroups{part}")).collect();
    lines.push(format!("  - {{name: namedGroups, expression: \"variables.requiredGroups + {}\"}}", names.join(" + ")));
    // Each list has only the groups that no list before it has.
    let new_groups_at = |index: usize| {
        let before: Vec<_> = (0..index).map(|earlier| earlier.to_string()).collect();
        let is_new = format!("![{}].exists(i, g in variables.namedGroups[i])", before.join(", "));
        let filter = if index == 0 { String::new() } else { format!(".filter(g, {is_new})") };
        format!("(size(variables.namedGroups) > {index} ? variables.namedGroups[{index}]{filter} : [])")
    };
    let lists: Vec<_> = (0..2 * quorums).map(new_groups_at).collect();
    lines.push(format!("  - name: counted\n    expression: >-\n      {}", lists.join(" +\n      ")));
    lines.join("\n")
}

/// Returns the list of the verdicts that are accepted when an Approval is overdue.
fn verdicts_when_overdue() -> String {
    format!("[{}]", Verdict::WHEN_OVERDUE.map(|verdict| format!("'{verdict}'")).join(", "))
}

/// Returns a limit of decisions, or the text of a refusal, by its name in a template.
fn limit_or_text(name: &str) -> Option<String> {
    Some(match name {
        "MAX_SIZE" => Decision::MAX_SIZE.to_string(),
        "MAX_EDIT_SIZE" => Decision::MAX_EDIT_SIZE.to_string(),
        "MAX_EDIT_THRESHOLD" => Decision::MAX_EDIT_THRESHOLD.to_string(),
        "MAX_SIZE_OF_ALL" => Decision::MAX_SIZE_OF_ALL.to_string(),
        "MAX_SIZE_OF_SMALL" => Decision::MAX_SIZE_OF_SMALL.to_string(),
        "ALWAYS_FITS" => Decision::ALWAYS_FITS.to_string(),
        "FURTHER_BYTES" => (Decision::ESCAPED - 1).to_string(),
        "TOO_LARGE" => Decision::TOO_LARGE.to_owned(),
        "FULL" => Decision::FULL.to_owned(),
        _ => return None,
    })
}

/// Returns the expression for whether labels or annotations have a key that Flux or Argo CD sets on every object that
/// it applies.
fn has_key_of_reconciler(keys: &str) -> String {
    format!(
        "{keys}.exists(k, k.startsWith('kustomize.toolkit.fluxcd.io/') || k.startsWith('helm.toolkit.fluxcd.io/') || \
         k in ['argocd.argoproj.io/instance', 'argocd.argoproj.io/tracking-id'])"
    )
}

/// Returns the expression for whether a decision has the arguments of a call as one text.
fn has_text_of_arguments(d: &str) -> String {
    format!("has({d}.parameters) && '{ARGUMENTS}' in {d}.parameters && type({d}.parameters['{ARGUMENTS}']) == string")
}

/// Returns the expression for the size of a decision, as [`Decision::size`], or at least a million if `parameters`
/// nests too deep.
fn size_of_decision(d: &str) -> String {
    let text = |field: &str| format!("(has({d}.{field}) ? size({d}.{field}) : 0)");
    format!(
        "{} + {} + {} + ({} ? size(bytes(string({d}.parameters['{ARGUMENTS}']))) - size(string({d}.parameters['{ARGUMENTS}'])) : 0) + (has({d}.answers) ? {d}.answers.map(q, size(q) + (has({d}.answers[q].text) ? size({d}.answers[q].text) : 0) \
         + (has({d}.answers[q].options) ? 72 * size({d}.answers[q].options) : 0)).sum() : 0) + (has({d}.parameters) ? {} : 0)",
        text("reason"),
        text("response"),
        text("guidance"),
        has_text_of_arguments(d),
        size_of_value(&format!("{d}.parameters"), Decision::MAX_LEVELS, 0),
    )
}

/// Returns the expression for the approximate number of bytes of a JSON value, or a million if it nests deeper than
/// `levels`.
fn size_of_value(v: &str, levels: usize, depth: u32) -> String {
    let leaf = format!("(type({v}) == string ? size({v}) : 8)");
    if levels == 0 {
        return format!("(type({v}) == map || type({v}) == list ? 1000000 : {leaf})");
    }
    let (key, element) = (format!("k{depth}"), format!("e{depth}"));
    let of_value = size_of_value(&format!("{v}[{key}]"), levels - 1, depth + 1);
    let of_element = size_of_value(&element, levels - 1, depth + 1);
    format!(
        "(type({v}) == map ? {v}.map({key}, size({key}) + 8 + {of_value}).sum() : \
         type({v}) == list ? {v}.map({element}, 8 + {of_element}).sum() : {leaf})"
    )
}

/// Returns the expression for whether a tree of objects, such as `managedFields`, has at most this number of levels.
fn keys_end_within(v: &str, levels: u32, depth: u32) -> String {
    if levels == 0 {
        return format!("size({v}) == 0");
    }
    format!("{v}.all(f{depth}, {})", keys_end_within(&format!("{v}[f{depth}]"), levels - 1, depth + 1))
}

/// Returns the expression for whether a JSON value nests at most this number of levels.
fn nests_within(v: &str, levels: u32, depth: u32) -> String {
    if levels == 0 {
        return format!("type({v}) != map && type({v}) != list");
    }
    let (key, inner) = (format!("k{depth}"), format!("v{depth}"));
    format!(
        "(type({v}) == map ? {v}.map({key}, {v}[{key}]) : type({v}) == list ? {v} : []).all({inner}, {})",
        nests_within(&inner, levels - 1, depth + 1)
    )
}

/// Returns the expression for whether a text is the id or the label of an option: `option, text`.
fn is_named(argument: &str) -> String {
    let (option, text) = argument.split_once(", ").unwrap_or((argument, "''"));
    format!("({option}.id == {text}.trim() || (has({option}.label) && {option}.label == {text}.trim()))")
}

/// Returns the expression for whether a value has the declared type of an input: `value, type`. Integers beyond ±2^53
/// do not match, because JSON readers round them differently.
fn has_type(argument: &str) -> String {
    let (v, t) = argument.split_once(", ").unwrap_or((argument, "'string'"));
    format!(
        "[{t}].all(t, t == 'string' ? type({v}) == string : t == 'boolean' ? type({v}) == bool : \
         t == 'integer' ? type({v}) == int && {v} <= 9007199254740991 && {v} >= -9007199254740991 : \
         t == 'number' ? type({v}) == double || (type({v}) == int && {v} <= 9007199254740991 && {v} >= -9007199254740991) : \
         t == 'object' ? type({v}) == map : type({v}) == list)"
    )
}

/// Returns the validations that the requester can read every named Secret, up to `most`; two checks per expression.
fn can_read_secrets(most: usize) -> String {
    let mut rules = format!(
        "  - expression: \"!variables.create || size(variables.secrets) <= {most}\"\n    message: \"a Workflow must name at most {most} Secrets\"\n"
    );
    let check = |n: usize| {
        format!(
            "(size(variables.secrets) <= {n} || variables.secret.name(variables.secrets[{n}]).check('get').allowed())"
        )
    };
    for first in (0..most).step_by(2) {
        rules.push_str(&format!(
            "  - expression: \"!variables.runs || ({} && {})\"\n    \
             messageExpression: \"variables.me + ' lacks the RBAC verb get on the Secrets that this Workflow uses: ' + variables.secrets.join(', ')\"\n    \
             reason: Forbidden\n",
            check(first),
            check(first + 1)
        ));
    }
    rules.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_not_expanded() {
        assert_eq!(expand("a @@NOBODY x@@ b", &Identity::default()), "a @@NOBODY x@@ b");
    }

    #[test]
    fn the_operator_needs_a_pod() {
        let text = expand("@@OPERATOR@@", &Identity::new("ns", "sa"));
        assert!(text.starts_with("variables.me == 'system:serviceaccount:ns:sa' && "));
        assert!(text.ends_with("'authentication.kubernetes.io/pod-name' in request.userInfo.extra"));
    }
}
