//! Tests of rewritten templates, and of parts that must not change.

#![allow(clippy::expect_used)]
use super::*;

fn names() -> Names {
    let mut names = Names { root: "nodes", root_now: "steps", ..Names::default() };
    names.assign_names(["initial_plan", "review", "other-one"]);
    names.special.insert("timestamp", "run.startedAt".to_owned());
    names.special.insert("terminal_node", "('a' if x else '')".to_owned());
    names.optional.insert("audience".to_owned());
    names.inputs.insert("loop_".to_owned(), "input_loop".to_owned());
    names
}

#[track_caller]
fn becomes(source: &str, expected: &str) {
    assert_eq!(rewrite_template(source, &names(), &mut UnresolvedNames::default()), expected);
}

#[test]
fn ids_with_new_names_are_written_in_brackets() {
    becomes("a {{ nodes.initial_plan.response[:30] }} b", "a {{ steps['initial-plan'].response[:30] }} b");
    becomes("{{ nodes['initial_plan']['response'] }}", "{{ steps['initial-plan'].response }}");
    becomes(
        "{% if 'x' in nodes.initial_plan.response.lower() %}",
        "{% if 'x' in steps['initial-plan'].response.lower() %}",
    );
    becomes("{{ nodes.review.response }}", "{{ steps.review.response }}");
    becomes("{{ nodes['other-one'].response }}", "{{ steps['other-one'].response }}");
}

#[test]
fn text_strings_comments_and_raw_blocks_stay_as_they_are() {
    for same in [
        "nodes.initial_plan.response",
        "{{ 'nodes.initial_plan' }}",
        "{# nodes.initial_plan #}",
        "{% raw %}{{ nodes.initial_plan }}{% endraw %}",
        "{{ x.nodes.initial_plan }}",
        "{{ steps[0].response | replace('initial_plan', \"b\") }}",
        "{{ a['b c'][0].d }}",
        "{% set nodes_ = 1 %}{{ f(nodes=1) }}",
    ] {
        becomes(same, same);
    }
    becomes("{{ nodes | tojson }}", "{{ steps | tojson }}");
}

#[test]
fn a_node_as_a_condition_is_a_test_whether_it_has_run() {
    becomes("{% if nodes.initial_plan %}", "{% if steps['initial-plan'].response %}");
    becomes(
        "{% if nodes.review is defined and nodes.review.response %}",
        "{% if steps.review.response is not none and steps.review.response %}",
    );
    becomes("{{ nodes.review is not defined }}", "{{ steps.review.response is none }}");
    becomes("{{ nodes.initial_plan.iteration >= 3 }}", "{{ (steps['initial-plan'].visits | length) >= 3 }}");
}

#[test]
fn a_loop_over_nodes_is_limited_to_those_that_have_run() {
    becomes(
        "{% for id, n in nodes.items() %}{% if id == 'initial_plan' %}{{ n.iteration }}{% endif %}{% endfor %}",
        "{% for id, n in steps.items() if n.response is not none %}{% if id == 'initial-plan' %}{{ (n.visits | length) }}{% endif %}{% endfor %}",
    );
}

#[test]
fn names_of_the_strands_cli_become_expressions() {
    becomes("{{ timestamp }} {{ x.timestamp }}", "{{ run.startedAt }} {{ x.timestamp }}");
    becomes("{% if terminal_node == 'initial_plan' %}", "{% if ('a' if x else '') == 'initial-plan' %}");
    becomes("{{ inputs.values.topic }}", "{{ inputs.topic }}");
    becomes("{{ loop_ }}", "{{ input_loop }}");
}

#[test]
fn what_people_say_is_never_taken_for_an_id() {
    becomes("{% if hitl_response == 'initial_plan' %}", "{% if hitl_response == 'initial_plan' %}");
    becomes("{% if nodes.review.response == 'initial_plan' %}", "{% if steps.review.response == 'initial_plan' %}");
}

#[test]
fn the_default_of_an_optional_input_holds_for_an_empty_text() {
    becomes("{{ audience|default('experts') }}", "{{ audience|default('experts', true) }}");
    becomes("{{ audience | default(f('a', 1)) | upper }}", "{{ audience | default(f('a', 1), true) | upper }}");
    becomes("{{ audience | default('a', false) }}", "{{ audience | default('a', false) }}");
    becomes("{{ other | default('a') }}", "{{ other | default('a') }}");
}

#[test]
fn members_of_iterations_are_in_their_evaluation() {
    let names = Names { judged: true, ..Names::default() };
    let becomes = |source: &str| rewrite_template(source, &names, &mut UnresolvedNames::default());
    assert_eq!(becomes("{{ iterations[-1].score }}"), "{{ iterations[-1].evaluation.score }}");
    assert_eq!(becomes("{{ iterations[0].draft_preview }}..."), "{{ iterations[0].draft[:200] }}...");
    assert_eq!(
        becomes("{% for one in iterations %}{{ one.score }}{{ one.draft }}{% endfor %}"),
        "{% for one in iterations %}{{ one.evaluation.score }}{{ one.draft }}{% endfor %}"
    );
    assert_eq!(
        becomes("{% set last = iterations[-1] %}{{ last.score }}"),
        "{% set last = iterations[-1] %}{{ last.evaluation.score }}"
    );
    assert_eq!(becomes("{{ evaluation.score }} {{ steps[0].score }}"), "{{ evaluation.score }} {{ steps[0].score }}");
}

#[test]
fn unknown_ids_become_empty_texts_and_are_recorded() {
    let mut found = UnresolvedNames::default();
    assert_eq!(rewrite_template("{{ nodes.nobody.response.lower() }}", &names(), &mut found), "{{ ''.lower() }}");
    assert_eq!(found.unknown_ids.into_iter().collect::<Vec<_>>(), ["nodes.nobody.response.lower"]);
}

#[test]
fn names_of_other_loops_are_not_rewritten() {
    let judged = Names { judged: true, ..Names::default() };
    for same in [
        "{% for one in evaluation.issues %}{{ one.score }}{% endfor %}",
        "{% for one in iterations %}{% endfor %}{% for one in tags %}{{ one.score }}{% endfor %}",
    ] {
        assert_eq!(rewrite_template(same, &judged, &mut UnresolvedNames::default()), same);
    }
    assert_eq!(
        rewrite_template(
            "{% for one in iterations %}{% for one in tags %}{{ one.score }}{% endfor %}{{ one.score }}{% endfor %}",
            &judged,
            &mut UnresolvedNames::default()
        ),
        "{% for one in iterations %}{% for one in tags %}{{ one.score }}{% endfor %}{{ one.evaluation.score }}{% endfor %}"
    );
    for same in [
        "{% for one in tags %}{{ one.iteration }}{% endfor %}",
        "{% for word in tags %}{% if word == 'initial_plan' %}x{% endif %}{% endfor %}",
    ] {
        becomes(same, same);
    }
}

/// Returns the names of a file with this pattern.
fn names_of_file(kind: &str) -> Names {
    let text = "runtime: {model_id: it's, temperature: 0.5, region: ~, budgets: {max_steps: 3}}\nconfig: {accept: {max_iters: 4}}\n";
    let nodes: Vec<signoff_manifest::source::Node> =
        signoff_manifest::source::documents(text).into_iter().flatten().collect();
    let file = nodes.first().expect("one document");
    let config = file.get("config").expect("a config");
    Names {
        context: cli_paths::CliPaths::new(file, kind, config, |name| name == "context_policy"),
        judged: kind == "evaluator_optimizer",
        agents: [("a-b".to_owned(), "'writer'".to_owned())].into(),
        ..names()
    }
}

#[track_caller]
fn becomes_in(kind: &str, source: &str, expected: &str, missing: &[&str]) {
    let mut found = UnresolvedNames::default();
    assert_eq!(rewrite_template(source, &names_of_file(kind), &mut found), expected);
    assert_eq!(found.missing.iter().map(String::as_str).collect::<Vec<_>>(), missing, "{source}");
}

#[test]
fn paths_of_the_cli_become_names_of_a_graph() {
    let becomes = |source: &str, expected: &str, missing: &[&str]| becomes_in("graph", source, expected, missing);
    becomes("{{ execution_context.terminal_node }}", "{{ ('a' if x else '') }}", &[]);
    becomes("{{ execution_context['nodes'].initial_plan.response }}", "{{ steps['initial-plan'].response }}", &[]);
    becomes(
        "{% for id, n in execution_context.nodes.items() %}{{ n.agent }}{% endfor %}",
        "{% for id, n in steps.items() if n.response is not none %}{{ {'a-b': 'writer'}[n.name] }}{% endfor %}",
        &[],
    );
    let path = ["execution_context.execution_path"];
    becomes("{{ execution_context.execution_path[-1].x(1) | join('-') }}", "{{ '' | join('-') }}", &path);
    becomes("{% for id in execution_context.execution_path %}{% endfor %}", "{% for id in [] %}{% endfor %}", &path);
    becomes("{{ execution_context }}{{ execution_context.get('nodes') }}", "{{ '' }}{{ '' }}", &["execution_context"]);
    becomes("{{ x.execution_context.y }}{{ 'runtime.a' }}", "{{ x.execution_context.y }}{{ 'runtime.a' }}", &[]);
    becomes("{% set runtime = x %}{{ runtime.y }}", "{% set runtime = x %}{{ runtime.y }}", &[]);
}

#[test]
fn paths_of_the_cli_become_names_of_an_evaluator() {
    let becomes =
        |source: &str, expected: &str, missing: &[&str]| becomes_in("evaluator_optimizer", source, expected, missing);
    becomes(
        "{{ execution_context.iterations }} of {{ execution_context.max_iters }}",
        "{{ (iterations | length) }} of {{ 4 }}",
        &[],
    );
    becomes("{{ execution_context.final_score }}", "{{ evaluation.score }}", &[]);
    becomes("{{ execution_context.history[-1].score }}", "{{ iterations[-1].evaluation.score }}", &[]);
    becomes(
        "{% for one in execution_context.history %}{{ one.iteration }}: {{ one.score }}{% endfor %}",
        "{% for one in iterations %}{{ loop.index }}: {{ one.evaluation.score }}{% endfor %}",
        &[],
    );
    becomes(
        "{% for one in iterations %}{% for x in y %}{{ one.iteration }}{% endfor %}{% endfor %}",
        "{% for one in iterations %}{% for x in y %}{{ '' }}{% endfor %}{% endfor %}",
        &["one.iteration"],
    );
}

#[test]
fn single_values_of_the_file_become_literals() {
    let becomes = |source: &str, expected: &str, missing: &[&str]| becomes_in("chain", source, expected, missing);
    becomes("{{ runtime.model_id.upper() }}", "{{ 'it\\'s'.upper() }}", &[]);
    becomes("{{ runtime.temperature }} {{ runtime['budgets'].max_steps }}", "{{ 0.5 }} {{ 3 }}", &[]);
    becomes(
        "{{ runtime.region.upper() }}{{ runtime.budgets }}",
        "{{ '' }}{{ '' }}",
        &["runtime.budgets", "runtime.region"],
    );
    becomes("{{ context_policy.notes }}", "{{ context_policy.notes }}", &[]);
    becomes("{{ execution_context.steps[0].response }}", "{{ steps[0].response }}", &[]);
}
