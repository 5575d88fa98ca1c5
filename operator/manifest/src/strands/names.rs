//! Names that change on the way: ids become DNS labels, and names that only the Strands CLI knows become expressions.
//!
//! It may not touch a text: [`super::rewrite`] does.

use std::collections::{BTreeMap, BTreeSet};

/// What is called otherwise in the imported Workflow.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Where the ids are asked for: `nodes`, `tasks` or `branches`.
    pub(super) root: &'static str,
    /// What that is called now.
    pub(super) root_now: &'static str,
    /// Every id and its name.
    pub(super) ids: BTreeMap<String, String>,
    /// Names that become an expression, in parentheses where it has more than one part.
    pub(super) special: BTreeMap<&'static str, String>,
    /// Inputs whose own name has a meaning in templates.
    pub(super) inputs: BTreeMap<String, String>,
    /// Whether `iterations` hold judgements, which have an object of their own here.
    pub(super) judged: bool,
    /// Inputs that need not be given.
    pub(super) optional: BTreeSet<String>,
}

impl Names {
    /// Gives every id a name, in order; two ids never get the same.
    pub(super) fn give<'a>(&mut self, ids: impl IntoIterator<Item = &'a str>) {
        for id in ids {
            let taken = |name: &str| self.ids.values().any(|other| other == name);
            let name = free(&label(id, "item"), taken);
            self.ids.entry(id.to_owned()).or_insert(name);
        }
    }

    /// The name of an id; one that nothing has keeps what it would have got.
    pub(super) fn of(&self, id: &str) -> String {
        self.ids.get(id).cloned().unwrap_or_else(|| label(id, "item"))
    }
}

/// The name, or the name with the first number that makes it free.
pub(super) fn free(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut candidate = name.to_owned();
    let mut number = 2;
    while taken(&candidate) {
        let end = format!("-{number}");
        let kept: String = name.chars().take(63 - end.len()).collect();
        candidate = format!("{}{end}", kept.trim_end_matches('-'));
        number += 1;
    }
    candidate
}

/// A text as a DNS label: `Initial_Plan 2` becomes `initial-plan-2`.
pub(super) fn label(text: &str, otherwise: &str) -> String {
    let mut label = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            label.push(c);
        } else if !label.is_empty() && !label.ends_with('-') {
            label.push('-');
        }
        if label.len() == 63 {
            break;
        }
    }
    let label = label.trim_end_matches('-');
    if label.is_empty() { otherwise.to_owned() } else { label.to_owned() }
}

/// Whether `.name` can be written, rather than `['name']`.
pub(super) fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_labels_and_stay_different() {
        let mut names = Names::default();
        names.give(["initial_plan", "Initial-Plan", "x", "été!"]);
        assert_eq!(names.of("initial_plan"), "initial-plan");
        assert_eq!(names.of("Initial-Plan"), "initial-plan-2");
        assert_eq!(names.of("x"), "x");
        assert_eq!(names.of("été!"), "t");
        assert_eq!(label(&"a".repeat(80), "x").len(), 63);
        assert_eq!(label("***", "x"), "x");
    }
}
