//! Changed names: ids become DNS labels, and names that only the Strands CLI has become expressions. [`super::rewrite`]
//! changes the texts.

use std::collections::{BTreeMap, BTreeSet};

use super::rewrite::cli_paths::CliPaths;

/// The names that differ in the imported Workflow.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// The name of the map of ids in the file: `nodes`, `tasks` or `branches`.
    pub(super) root: &'static str,
    /// The name of the map of ids in the Workflow: `steps` for nodes and tasks.
    pub(super) root_now: &'static str,
    /// Every id and its name.
    pub(super) ids: BTreeMap<String, String>,
    /// Names that become an expression, in parentheses if the expression has more than one part.
    pub(super) special: BTreeMap<&'static str, String>,
    /// Inputs whose own name is reserved in templates.
    pub(super) inputs: BTreeMap<String, String>,
    /// Paths that only the Strands CLI has.
    pub(super) context: CliPaths,
    /// The agent of each node as a literal, by the name of the node in the Workflow; an empty text for a gate.
    pub(super) agents: BTreeMap<String, String>,
    /// Whether `iterations` contain evaluations, which are objects of their own in a Workflow.
    pub(super) judged: bool,
    /// The type of each input, by its name in the Workflow.
    pub(super) types: BTreeMap<String, String>,
    /// Optional inputs.
    pub(super) optional: BTreeSet<String>,
}

impl Names {
    /// Assigns a unique name to each id, in order.
    pub(super) fn assign_names<'a>(&mut self, ids: impl IntoIterator<Item = &'a str>) {
        for id in ids {
            let taken = |name: &str| self.ids.values().any(|other| other == name);
            let name = free_name(&label(id, "item"), taken);
            self.ids.entry(id.to_owned()).or_insert(name);
        }
    }

    /// Returns a text for people or models in which each id that is a whole word is replaced by its name.
    pub(super) fn with_names(&self, text: &str) -> String {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let mut replaced = String::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let begins = |id: &str| rest.strip_prefix(id).is_some_and(|after| !after.starts_with(is_word));
            let is_word_start = !replaced.ends_with(is_word);
            let ids = self.ids.iter().filter(|(id, _)| is_word_start && !id.is_empty() && begins(id));
            let id = ids.max_by_key(|(id, _)| id.len());
            let (length, name) = match id {
                Some((id, name)) => (id.len(), name.as_str()),
                None => (next.len_utf8(), &rest[..next.len_utf8()]),
            };
            replaced.push_str(name);
            rest = &rest[length..];
        }
        replaced
    }

    /// Returns the agents of all nodes as a map of a template.
    pub(super) fn agents_by_name(&self) -> String {
        let pairs: Vec<String> = self.agents.iter().map(|(name, agent)| format!("'{name}': {agent}")).collect();
        format!("{{{}}}", pairs.join(", "))
    }

    /// Returns the name for an id. An unknown id gets the name that it would have had.
    pub(super) fn of(&self, id: &str) -> String {
        self.ids.get(id).cloned().unwrap_or_else(|| label(id, "item"))
    }
}

/// The maximum length of a DNS label, in characters.
const MAX_LABEL: usize = 63;

/// Returns the name, with the first free number from 2 on if the name is taken.
pub(super) fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut candidate = name.to_owned();
    let mut number = 2;
    while taken(&candidate) {
        let end = format!("-{number}");
        let start: String = name.chars().take(MAX_LABEL - end.len()).collect();
        candidate = format!("{}{end}", start.trim_end_matches('-'));
        number += 1;
    }
    candidate
}

/// Converts a text to a DNS label: `Initial_Plan 2` becomes `initial-plan-2`.
pub(super) fn label(text: &str, otherwise: &str) -> String {
    let mut label = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            label.push(c);
        } else if !label.is_empty() && !label.ends_with('-') {
            label.push('-');
        }
        if label.len() == MAX_LABEL {
            break;
        }
    }
    let label = label.trim_end_matches('-');
    if label.is_empty() { otherwise.to_owned() } else { label.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_labels_and_stay_different() {
        let mut names = Names::default();
        names.assign_names(["initial_plan", "Initial-Plan", "x", "été!"]);
        assert_eq!(names.of("initial_plan"), "initial-plan");
        assert_eq!(names.of("Initial-Plan"), "initial-plan-2");
        assert_eq!(names.of("x"), "x");
        assert_eq!(names.of("été!"), "t");
        assert_eq!(label(&"a".repeat(80), "x").len(), 63);
        assert_eq!(label("***", "x"), "x");
    }

    #[test]
    fn whole_ids_in_a_text_are_replaced_once() {
        let mut names = Names::default();
        names.assign_names(["billing_support", "billing", "Tech Support", "a-b", "a_b"]);
        assert_eq!(
            names.with_names("Say billing_support, billing, Tech Support; not billing_supports or a_b!"),
            "Say billing-support, billing, tech-support; not billing_supports or a-b-2!"
        );
    }
}
