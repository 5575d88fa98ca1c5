//! Tests of `check`: mistakes of authors, each with the place where it is reported.
#![allow(clippy::unwrap_used)]

use super::*;

/// Renders each problem of a text as `line:column reason field: message`.
fn problem_lines(text: &str) -> Vec<String> {
    let problems = |checked: Checked| checked.problems;
    let line = |p: Problem| format!("{}:{} {} {}: {}", p.line, p.column, p.reason, p.field, p.message);
    check(text, &Settings::default()).into_iter().flat_map(problems).map(line).collect()
}

const GOOD: &str = "\
apiVersion: signoff.dev/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  steps:
  - {name: a, set: {value: x}}
";

#[test]
fn a_good_file_has_no_problems_and_a_title() {
    let checked = check(GOOD, &Settings::default()).remove(0);
    assert_eq!((checked.title.as_str(), checked.problems.as_slice()), ("Workflow w", &[] as &[Problem]));
    assert_eq!(checked.workflow.unwrap().spec.requested_by, REQUESTER);
}

#[test]
fn a_generated_name_is_shown_by_its_prefix() {
    let checked = check(&GOOD.replace("name: w", "generateName: refund-"), &Settings::default()).remove(0);
    assert_eq!((checked.title.as_str(), checked.problems.as_slice()), ("Workflow refund-…", &[] as &[Problem]));
    let bad = problem_lines(&GOOD.replace("name: w", "generateName: Refund_"));
    assert!(bad.len() == 1 && bad[0].starts_with("3:26 WrongForm metadata.generateName: "), "{bad:?}");
}

#[test]
fn every_mistake_of_every_document_is_found_at_its_place() {
    let text = format!(
        "{GOOD}---\n\
        apiVersion: signoff.dev/v1\n\
        kind: Worfklow\n\
        ---\n\
        a: [\n\
        ---\n\
        apiVersion: signoff.dev/v1alpha1\n\
        kind: Workflow\n\
        metadata: {{name: Bad_Name}}\n\
        spec:\n\
        \x20 steps:\n\
        \x20 - name: a\n\
        \x20   sett: {{value: x}}\n\
        \x20 - name: b\n\
        \x20   set:\n\
        \x20     value: |\n\
        \x20       {{{{ steps.c.response }}}}\n\
        \x20 - name: b\n\
        \x20   hitl: {{prompt: 7, approvers: [{{kind: Person, name: x}}]}}\n"
    );
    assert_eq!(
        problem_lines(&text),
        [
            "8:13 UnknownKind apiVersion: write apiVersion: signoff.dev/v1alpha1",
            "9:7 UnknownKind kind: write the kind: did you mean Workflow?",
            "11:4 NotYaml : not valid YAML: unclosed bracket '[': close it with ]",
            "15:18 WrongForm metadata.name: a name has 1 to 63 lower-case letters, digits, `-` and `.`, and starts and ends with a letter or digit",
            "19:5 UnknownField spec.steps[0].sett: unknown field sett: did you mean set?",
            "25:20 WrongType spec.steps[2].hitl.prompt: expected a text, found a number: put it into quotes",
            "25:42 NotOneOf spec.steps[2].hitl.approvers[0].kind: Person is not an allowed value: there are User, Group, ServiceAccount",
            "16:1 NotChecked spec: names, references and gates are checked once the errors above are corrected",
        ]
    );
}

#[test]
fn the_first_error_of_an_old_shape_names_the_new_field() {
    let old = GOOD.replace("  steps:", "  pattern: {chain: {steps: []}}\n  steps:");
    let problems = problem_lines(&old);
    let moved = "unknown field chain: a chain has no pattern: move its steps to spec.steps, and leave pattern out";
    assert!(problems[0].ends_with(moved), "{problems:?}");
    assert!(!problems.iter().any(|problem| problem.contains("it names no pattern")), "{problems:?}");
}

#[test]
fn a_text_that_kubectl_cannot_read_in_flow_style_is_found() {
    let step = |hitl: &str| GOOD.replace("set: {value: x}", &format!("hitl: {hitl}"));
    let count_refused = |hitl: &str| {
        let problems = problem_lines(&step(hitl));
        problems.iter().filter(|problem| problem.contains("KubectlRefuses spec.steps[0].hitl")).count()
    };
    let approvers = "approvers: [{kind: Group, name: finance}]";
    assert_eq!(count_refused(&format!("{{prompt: ok?, {approvers}}}")), 1);
    assert_eq!(count_refused(&format!("{{prompt: is it ok ? yes, {approvers}}}")), 1);
    for quoted in ["'ok?'", "\"ok?\"", "ok"] {
        assert_eq!(count_refused(&format!("{{prompt: {quoted}, {approvers}}}")), 0, "{quoted}");
    }
    let block = "\n      prompt: ok?\n      approvers: [{kind: Group, name: finance}]";
    assert_eq!(count_refused(block), 0, "a block has no such rule");
    let after = GOOD.to_owned() + "  - name: b\n    set:\n      value: ok?\n";
    assert_eq!(problem_lines(&after).iter().filter(|problem| problem.contains("KubectlRefuses")).count(), 0, "{after}");
}

#[test]
fn a_problem_of_the_plan_is_found_at_its_place() {
    let text = GOOD.replace("value: x", "value: '{{ stpes }}'");
    assert_eq!(
        problem_lines(&text),
        ["6:28 Invalid spec.steps[0].set.value: unknown reference `stpes`; did you mean `steps`?"]
    );
}

#[test]
fn bounds_of_the_schema_are_described_in_words() {
    let text = GOOD.replace(
        "{name: a, set: {value: x}}",
        "{name: a, set: {value: x}, retry: {limit: 99}, timeout: soon, skipIf: ''}",
    );
    let found = problem_lines(&text);
    assert!(
        found.iter().any(|it| it.contains("OutOfBounds spec.steps[0].retry.limit: 99 is not between 0 and 20")),
        "{found:#?}"
    );
    assert!(found.iter().any(|it| it.contains("WrongForm spec.steps[0].timeout: write a duration")), "{found:#?}");
    assert!(found.iter().any(|it| it.contains("skipIf: it is empty: write something")), "{found:#?}");
}

#[test]
fn a_price_of_another_form_is_described_in_words() {
    let problems_of = |price: &str| {
        let agent = format!("  agents: [{{name: a, price: {{inputPerMillion: {price}, outputPerMillion: '1'}}}}]\n");
        let found = problem_lines(&GOOD.replace("  steps:", &(agent + "  steps:")));
        let of_price = |problem: &String| problem.contains("spec.agents[0].price.inputPerMillion: ");
        found.into_iter().filter(of_price).collect::<Vec<_>>()
    };
    for price in ["3 USD", "'3 USD'", "abc", "'-1'", "-1", "1e-9", "'1,50'", "'$3'"] {
        let problems = problems_of(price);
        assert!(
            matches!(problems.as_slice(), [one] if one.contains("write an amount in quotes") && one.contains("\"3.00\"")),
            "{problems:?}"
        );
        assert!(!problems[0].contains('^'), "{problems:?}");
    }
    let unquoted = problems_of("3.00");
    assert!(
        matches!(unquoted.as_slice(), [one] if one.ends_with("found a number: put it into quotes")),
        "{unquoted:?}"
    );
    assert_eq!(problems_of("'3.00'"), [""; 0]);
}

#[test]
fn a_provider_whose_kind_has_another_name_has_no_other_error() {
    let provider = |fields: &str| {
        let providers = format!("  providers: [{{name: p, {fields}}}]\n");
        problem_lines(&GOOD.replace("  steps:", &(providers + "  steps:")))
    };
    for (fields, ending) in [
        ("claude: {}", "claude: did you mean anthropic?"),
        ("antropic: {}", "antropic: did you mean anthropic?"),
        ("OpenAI: {}", "OpenAI: did you mean openai?"),
        ("gpt: {}", "gpt: did you mean openai?"),
        ("google: {}", "google: did you mean gemini?"),
    ] {
        let found = provider(fields);
        assert!(matches!(found.as_slice(), [one] if one.ends_with(ending)), "{found:?}");
    }
    let two = provider("anthropic: {}, openai: {}");
    assert_eq!(two, ["5:16 Invalid spec.providers[0]: it has anthropic and openai: keep one"]);
}

#[test]
fn foreign_objects_are_reported_as_not_checked() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n";
    assert_eq!(problem_lines(text), ["2:7 NotOurs kind: Secret of v1 is not a kind of Signoff: it was not checked"]);
    assert!(check(text, &Settings::default())[0].is_valid());
}

#[test]
fn policies_are_checked_by_their_schema() {
    let text = "apiVersion: signoff.dev/v1alpha1\nkind: ClusterApprovalPolicy\nmetadata: {name: p}\nspec:\n  identities: [{pattern: '(', person: x}]\n  stesp: []\n";
    let found = problem_lines(text);
    assert!(
        found.iter().any(|it| it.contains("UnknownField spec.stesp: unknown field stesp: did you mean steps?")),
        "{found:#?}"
    );
    assert!(found.iter().any(|it| it.contains("RuleBroken spec.identities")), "{found:#?}");
}

#[test]
fn the_items_of_a_list_are_checked_at_their_places() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap}\n- apiVersion: signoff.dev/v1alpha1\n  kind: Workflow\n  metadata: {name: A}\n";
    let checked = check(text, &Settings::default());
    let titles: Vec<_> = checked.iter().map(|one| one.title.as_str()).collect();
    assert_eq!(titles, ["ConfigMap", "Workflow A"]);
    assert!(checked[1].problems.iter().any(|problem| problem.line == 7 && problem.field == "metadata.name"));
}

#[test]
fn answers_have_no_kind() {
    assert!(!check("review: {verdict: Approve}\n", &Settings::default())[0].is_named);
    assert!(check("kind: Workflow\n", &Settings::default())[0].is_named);
}
