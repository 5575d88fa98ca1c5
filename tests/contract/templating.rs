//! The recipes for Workflows in other template languages: rendered by real helm, and by Flux's rules, they are
//! Workflows whose own templates are unchanged.

use serde_json::Value;
use signoff_api::Workflow;
use signoff_engine::{Plan, Settings};
use signoff_tests::page::blocks;

use super::{chart::helm, examples::parse};

/// Returns the block of the recipes for this language.
fn recipe(language: &str) -> String {
    let text = std::fs::read_to_string(format!("{}/../docs/guides/recipes.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let blocks = blocks(&text);
    blocks.iter().find(|block| block.word("template") == Some(language)).unwrap().text()
}

/// Parses a Workflow that can be run, and returns it.
fn parse_runnable(rendered: &str) -> Value {
    let workflow: Workflow = parse("the recipe", rendered);
    Plan::of(&workflow, &Settings::default(), &Default::default()).unwrap();
    serde_json::to_value(&workflow).unwrap()
}

#[test]
fn a_workflow_in_a_helm_chart_keeps_its_templates() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    let template = recipe("helm");
    write("Chart.yaml", "apiVersion: v2\nname: refunds\nversion: 0.1.0\n");
    write("values.yaml", "invoice: 4711\ncustomer: ACME\n");
    write("templates/refund.yaml", &template);
    write("workflows/raw.yaml", "body: \"{{ steps.draft.response }}\"\n");
    write("templates/raw.yaml", "{{ .Files.Get \"workflows/raw.yaml\" }}");
    let chart = folder.path().display().to_string();
    let render = |file: &str| helm(&["template", "refunds", &chart, "--show-only", file]).unwrap();
    let workflow = parse_runnable(&render("templates/refund.yaml"));
    assert_eq!(workflow["metadata"]["name"], "refund-4711");
    let steps = &workflow["spec"]["steps"];
    assert_eq!(steps[0]["set"]["value"], "Dear ACME, we refund invoice 4711.");
    for kept in [&steps[1]["hitl"]["contextDisplay"], &steps[2]["http"]["body"]] {
        assert_eq!(kept, "{{ steps.draft.response }}");
    }
    let raw = render("templates/raw.yaml");
    assert!(raw.contains("body: \"{{ steps.draft.response }}\""), "a file is not rendered: {raw}");
    // Without the backticks, Helm reads them.
    write("templates/refund.yaml", &template.replace("{{`", "").replace("`}}", ""));
    assert!(helm(&["template", "refunds", &chart]).is_err());
}

/// Replaces as the postBuild of a Kustomization does: `${name}` by its value, an unknown one by nothing, and `$${` by
/// `${`.
fn substitute(text: &str, values: &[(&str, &str)]) -> String {
    let (mut rest, mut out) = (text, String::new());
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out += &rest[..at];
            out.push('{');
            rest = &rest[at + 2..];
            continue;
        }
        let (name, after) = rest[at + 2..].split_once('}').unwrap();
        out += &rest[..at];
        out += values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
        rest = after;
    }
    out + rest
}

#[test]
fn a_workflow_through_the_post_build_of_flux_keeps_its_templates_and_scripts() {
    let text = recipe("flux");
    let workflow = parse_runnable(&substitute(&text, &[("invoice", "4711")]));
    assert_eq!(workflow["metadata"]["name"], "refund-4711");
    let steps = &workflow["spec"]["steps"];
    assert_eq!(steps[0]["set"]["value"], "We refund invoice 4711.");
    assert_eq!(steps[1]["hitl"]["contextDisplay"], "{{ steps.draft.response }}");
    let pod = &steps[2]["pod"];
    assert_eq!(pod["command"][2], "echo \"${LETTER}\" | mail -s \"$SUBJECT\" all");
    assert_eq!(
        (&pod["env"][0]["value"], &pod["env"][1]["value"]),
        (&"{{ steps.draft.response }}".into(), &"Invoice 4711".into())
    );
    // With a single dollar the script would lose its variable.
    let lost = substitute(&text.replace("$${", "${"), &[("invoice", "4711")]);
    assert!(lost.contains("echo \"\" | mail"), "{lost}");
}
