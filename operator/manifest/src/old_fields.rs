//! Fields of Workflows from before all steps were in `spec.steps`, with the place of each today.
//!
//! Such fields stay errors: only the remedy is worded here.

/// Each old field, and the remedy.
const OLD: [(&str, &str); 14] = [
    ("spec.pattern.chain", "a chain has no pattern: move its steps to spec.steps, and leave pattern out"),
    ("spec.pattern.dag.tasks", "move the tasks to spec.steps, and write dependsOn for deps"),
    ("spec.pattern.graph.nodes", "move the nodes to spec.steps"),
    (
        "spec.pattern.routing.routes",
        "move the steps of every route to spec.steps, each with `branch: <name of the route>`",
    ),
    ("spec.pattern.parallel.branches", "move the steps of every branch to spec.steps, each with `branch: <name>`"),
    ("spec.pattern.parallel.reduce", STEP),
    ("spec.pattern.orchestratorWorkers.reduce", STEP),
    ("spec.pattern.orchestratorWorkers.writeup", STEP),
    ("spec.pattern.routing.router.review", GATE),
    ("spec.pattern.evaluatorOptimizer.reviewGate", GATE),
    ("spec.pattern.orchestratorWorkers.decompositionReview", GATE),
    ("spec.pattern.orchestratorWorkers.reduceReview", GATE),
    (
        "spec.providers[].openai|anthropic|gemini|ollama.keyFrom",
        "move it to spec.secrets as `{name: <name>, secret: <Secret>, key: <key>}`, and write `key: <name>` here",
    ),
    ("spec.steps[].deps", "it is now called dependsOn: rename it"),
];

const STEP: &str = "move the step to spec.steps, and write its name here";
const GATE: &str =
    "move the gate to spec.gates as `{name: <name>, hitl: {...}}`, without a type, and write its name here";

/// Returns the remedy for a field that has moved. `field` is its path, such as `spec.steps[2].deps`.
pub(crate) fn remedy(field: &str) -> Option<&'static str> {
    find(&OLD, field)
}

/// Returns the entry of a table of paths for a field, independent of positions in lists. A part of a path in the table
/// can have alternatives: `spec.steps[].when|if`.
pub(crate) fn find(table: &[(&str, &'static str)], field: &str) -> Option<&'static str> {
    let without_positions = |text: &str| {
        let mut parts = text.split('[');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |path, part| path + "[]" + part.split_once(']').map_or("", |(_, rest)| rest))
    };
    let path = without_positions(field);
    let is_one_of = |(names, part): (&str, &str)| names.split('|').any(|name| name == part);
    let fits = |names: &str| {
        names.split('.').count() == path.split('.').count() && names.split('.').zip(path.split('.')).all(is_one_of)
    };
    table.iter().find(|(names, _)| fits(names)).map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_moved_is_found_by_its_path() {
        assert_eq!(remedy("spec.steps[12].deps"), Some("it is now called dependsOn: rename it"));
        assert_eq!(remedy("spec.pattern.parallel.reduce"), Some(STEP));
        assert_eq!(remedy("spec.pattern.parallel.maxParallel"), None);
        assert_eq!(remedy("deps"), None);
    }

    #[test]
    fn the_key_of_an_earlier_draft_is_found_under_each_kind_with_a_key() {
        for kind in signoff_api::workflow::Provider::KINDS {
            let found = remedy(&format!("spec.providers[1].{kind}.keyFrom"));
            assert_eq!(
                found.is_some_and(|remedy| remedy.contains("write `key: <name>` here")),
                kind != "scripted",
                "{kind}"
            );
        }
        assert_eq!(remedy("spec.providers[1].openai|anthropic|gemini|ollama.keyFrom"), None);
        assert_eq!(remedy("spec.providers[1].openai"), None);
        assert_eq!(remedy("spec.providers[1].openai.keyFrom.name"), None);
    }
}
