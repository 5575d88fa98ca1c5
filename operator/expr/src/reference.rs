//! The names that an expression uses, and the check that they exist when it is evaluated.
//!
//! Only names are checked, without an evaluation, so that a misspelled name is found before the first step runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::{LanguageError, answer_shape::AnswerShape, nearest::is_near};

/// A name in an expression, as far as it follows from the text: `steps.draft.response`, `steps[0]`,
/// `inputs['full name']`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The variable.
    pub root: String,
    /// The members in order, up to the first computed one.
    pub members: Vec<Member>,
    /// Whether the expression handles the absence of the last member (`has(x.y)`, `x.y is defined`,
    /// `x.y | default('none')`).
    pub optional: bool,
}

/// One step of a [`Reference`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// A field: `.draft` or `['draft']`.
    Name(String),
    /// A position, from the end if negative: `[0]`.
    Position(i64),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.root)?;
        self.members.iter().try_for_each(|member| match member {
            Member::Name(name) if is_identifier(name) => write!(f, ".{name}"),
            Member::Name(name) => write!(f, "['{}']", super::text::display(name, 64)),
            Member::Position(position) => write!(f, "[{position}]"),
        })
    }
}

/// Whether `.name` can be written instead of `['name']`: ASCII letters, digits and `_`, without a leading digit.
#[must_use]
pub fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The names that exist when an expression is evaluated.
#[derive(Debug, Clone, Default)]
pub struct Known {
    roots: BTreeMap<String, Members>,
    /// All steps of the run, and the step of the expression. A reference to another step gets the remedy `dependsOn`.
    steps: Option<(Arc<BTreeSet<String>>, String)>,
}

/// The members of a name. Copies share their shapes, because a list of a thousand steps has a thousand similar records,
/// and each step has a copy.
#[derive(Debug, Clone)]
pub enum Members {
    /// Any members, because the shape is known only in the run.
    Open,
    /// These fields and no others.
    Fields(Arc<BTreeMap<String, Members>>),
    /// These records, by name and by position.
    Records(Arc<[(String, Members)]>),
    /// The answer of a step, an input or an argument, whose members follow from a schema or type.
    Answer(Arc<AnswerShape>),
}

impl Members {
    /// Returns the shape of an object with exactly these fields, each of unknown shape.
    pub fn fields<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::shapes(names.into_iter().map(|name| (name.into(), Self::Open)))
    }

    /// Returns exactly these fields, each with its shape.
    pub fn shapes(fields: impl IntoIterator<Item = (String, Self)>) -> Self {
        Self::Fields(Arc::new(fields.into_iter().collect()))
    }

    /// Returns the members of the answer of a step.
    #[must_use]
    pub fn answer(shape: AnswerShape) -> Self {
        Self::Answer(Arc::new(shape))
    }

    /// Returns these records, each with its shape.
    pub fn records(records: impl IntoIterator<Item = (String, Self)>) -> Self {
        Self::Records(records.into_iter().collect())
    }
}

impl Known {
    /// Returns an empty set of names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the names of all steps and of the step of the expression, so that a reference to a step of the
    /// run for which that step does not wait gets the remedy `dependsOn`.
    #[must_use]
    pub fn of_step(mut self, own: &str, all: &Arc<BTreeSet<String>>) -> Self {
        self.steps = Some((Arc::clone(all), own.to_owned()));
        self
    }

    /// Whether `name` is a step of the run, other than the step of the expression.
    fn is_other_step(&self, name: &str) -> bool {
        self.steps.as_ref().is_some_and(|(all, own)| name != own && all.contains(name))
    }

    /// Returns the shape of the answer that a reference reads, and the number of members before it.
    pub(super) fn answer(&self, reference: &Reference) -> Option<(&AnswerShape, usize)> {
        let mut shape = self.roots.get(&reference.root)?;
        for (index, member) in reference.members.iter().enumerate() {
            shape = match (shape, member) {
                (Members::Answer(answer), _) => return Some((answer, index)),
                (Members::Fields(fields), Member::Name(name)) => fields.get(name)?,
                (Members::Records(records), Member::Name(name)) => &records.iter().rev().find(|(n, _)| n == name)?.1,
                (Members::Records(records), Member::Position(position)) => &entry_at(records, *position)?.1,
                _ => return None,
            };
        }
        match shape {
            Members::Answer(answer) => Some((answer, reference.members.len())),
            _ => None,
        }
    }

    /// Adds `name` with these members, and replaces an earlier entry.
    pub fn with(mut self, name: impl Into<String>, members: Members) -> Self {
        self.roots.insert(name.into(), members);
        self
    }
}

/// Returns an error for each reference that does not exist, with `what` (the field), the reference and the nearest
/// existing names. Empty if the expression is valid.
pub fn check(references: &BTreeSet<Reference>, known: &Known, what: &str) -> Vec<LanguageError> {
    references
        .iter()
        .filter_map(|reference| {
            let remedy = resolve(reference, known).err()?;
            Some(LanguageError::Unknown { what: what.to_owned(), reference: reference.to_string(), remedy })
        })
        .collect()
}

/// Follows a reference as far as shapes are known. Returns the remedy if a member does not exist and is not optional.
fn resolve(reference: &Reference, known: &Known) -> Result<(), String> {
    let is_guarded = |depth: usize| reference.optional && depth == reference.members.len();
    let Some(mut shape) = known.roots.get(&reference.root) else {
        if is_guarded(0) {
            return Ok(());
        }
        return Err(describe_remedy(&reference.root, known.roots.keys(), ""));
    };
    let mut path = reference.root.clone();
    for (index, member) in reference.members.iter().enumerate() {
        let next = match (shape, member) {
            (Members::Open | Members::Answer(_), _) => return Ok(()),
            (Members::Fields(fields), Member::Name(name)) => match fields.get(name) {
                Some(next) => next,
                None if is_guarded(index + 1) => return Ok(()),
                None if index == 0 && path == "steps" && known.is_other_step(name) => {
                    return Err(format!("this step does not wait for {name}: add it to dependsOn, such as [{name}]"));
                }
                None => return Err(describe_remedy(name, fields.keys(), &path)),
            },
            (Members::Fields(_), Member::Position(_)) => {
                return Err(format!("`{path}` has fields, not positions; write a field's name"));
            }
            (Members::Records(records), Member::Name(name)) => match records.iter().rev().find(|(n, _)| n == name) {
                Some((_, next)) => next,
                None if is_guarded(index + 1) => return Ok(()),
                None => return Err(describe_remedy(name, records.iter().map(|(n, _)| n), &path)),
            },
            (Members::Records(records), Member::Position(position)) => match entry_at(records, *position) {
                Some((_, next)) => next,
                None if is_guarded(index + 1) => return Ok(()),
                None => return Err(format!("`{path}` has {} entries here", records.len())),
            },
        };
        path = Reference { root: path, members: vec![member.clone()], optional: false }.to_string();
        shape = next;
    }
    Ok(())
}

fn entry_at<T>(list: &[T], position: i64) -> Option<&T> {
    match usize::try_from(position) {
        Ok(index) => list.get(index),
        Err(_) => {
            let from_end = usize::try_from(position.unsigned_abs()).ok()?;
            list.get(list.len().checked_sub(from_end)?)
        }
    }
}

/// Returns the remedy for a missing `name` under `path`: similar existing names, else all existing names (up to ten).
/// Without existing names it says so.
pub(super) fn describe_remedy<'a>(name: &str, existing: impl Iterator<Item = &'a String>, path: &str) -> String {
    let existing: Vec<&str> = existing.map(String::as_str).collect();
    let render_name = |candidate: &&str| {
        if path.is_empty() {
            format!("`{candidate}`")
        } else if is_identifier(candidate) {
            format!("`{path}.{candidate}`")
        } else {
            format!("`{path}['{candidate}']`")
        }
    };
    let near: Vec<String> =
        existing.iter().filter(|candidate| is_near(name, candidate)).take(3).map(render_name).collect();
    if !near.is_empty() {
        return format!("did you mean {}?", near.join(" or "));
    }
    if existing.is_empty() {
        return if path.is_empty() {
            "there are no names here".to_owned()
        } else if path == "steps" {
            "no step runs before this one: move the other step in front of it, or leave the reference out".to_owned()
        } else {
            format!("`{path}` has no members here")
        };
    }
    let listed: Vec<String> = existing.iter().take(10).map(render_name).collect();
    let more = if existing.len() > 10 { ", …" } else { "" };
    format!("there are {}{more}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known_names() -> Known {
        let record = || Members::fields(["name", "type", "response", "decision"]);
        Known::new()
            .with("inputs", Members::fields(["customer", "amount"]))
            .with("run", Members::Open)
            .with("steps", Members::records([("draft".into(), record()), ("my-review".into(), record())]))
    }

    fn reference(root: &str, members: &[&str]) -> Reference {
        Reference {
            root: root.into(),
            members: members
                .iter()
                .map(|m| match m.parse() {
                    Ok(position) => Member::Position(position),
                    Err(_) => Member::Name((*m).into()),
                })
                .collect(),
            optional: false,
        }
    }

    fn refusal(reference: Reference) -> Option<String> {
        check(&BTreeSet::from([reference]), &known_names(), "spec.x").pop().map(|e| e.to_string())
    }

    #[test]
    fn existing_references_are_accepted() {
        for good in [
            reference("inputs", &["customer"]),
            reference("run", &["anything", "at", "all"]),
            reference("steps", &["draft", "response", "inner"]),
            reference("steps", &["1", "decision"]),
            reference("steps", &["-2", "decision"]),
            reference("steps", &[]),
        ] {
            assert_eq!(refusal(good), None);
        }
    }

    #[test]
    fn a_refusal_names_the_field_the_reference_and_the_nearest_name() {
        assert_eq!(
            refusal(reference("steps", &["drfat", "response"])).as_deref(),
            Some("spec.x: unknown reference `steps.drfat.response`; did you mean `steps.draft`?")
        );
        assert_eq!(
            refusal(reference("steps", &["draft", "reponse"])).as_deref(),
            Some("spec.x: unknown reference `steps.draft.reponse`; did you mean `steps.draft.response`?")
        );
        assert_eq!(
            refusal(reference("input", &["amount"])).as_deref(),
            Some("spec.x: unknown reference `input.amount`; did you mean `inputs`?")
        );
    }

    #[test]
    fn a_step_that_is_not_waited_for_gets_the_remedy_depends_on() {
        let steps = Members::shapes([("draft".into(), Members::Open)]);
        let all = Arc::new(["draft", "sent", "post"].map(str::to_owned).into());
        let known = Known::new().with("steps", steps).of_step("post", &all);
        let refusal = |name: &str| {
            let references = BTreeSet::from([reference("steps", &[name, "response"])]);
            check(&references, &known, "spec.x").pop().map(|error| error.to_string()).unwrap_or_default()
        };
        let remedy = "this step does not wait for sent: add it to dependsOn, such as [sent]";
        assert_eq!(refusal("sent"), format!("spec.x: unknown reference `steps.sent.response`; {remedy}"));
        assert!(refusal("drfat").ends_with("did you mean `steps.draft`?"));
        assert!(!refusal("post").contains("dependsOn"), "no step waits for itself");
    }

    #[test]
    fn a_name_with_a_dash_is_suggested_in_brackets() {
        assert_eq!(
            refusal(reference("steps", &["my"])).as_deref(),
            Some("spec.x: unknown reference `steps.my`; did you mean `steps['my-review']`?")
        );
    }

    #[test]
    fn all_names_are_listed_if_none_is_similar() {
        assert_eq!(
            refusal(reference("inputs", &["zzzzz"])).as_deref(),
            Some("spec.x: unknown reference `inputs.zzzzz`; there are `inputs.amount`, `inputs.customer`")
        );
        assert_eq!(
            refusal(reference("steps", &["7"])).as_deref(),
            Some("spec.x: unknown reference `steps[7]`; `steps` has 2 entries here")
        );
    }

    #[test]
    fn only_the_guarded_member_can_be_absent() {
        let optional = |root, members: &[&str]| Reference { optional: true, ..reference(root, members) };
        assert_eq!(refusal(optional("inputs", &["note"])), None);
        assert_eq!(refusal(optional("nothing", &[])), None);
        assert!(refusal(optional("steps", &["drfat", "response"])).is_some());
        assert!(refusal(optional("nothing", &["note"])).is_some());
    }
}
