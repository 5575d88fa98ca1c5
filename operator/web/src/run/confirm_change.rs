//! The page that shows a change of a run before it is sent: its effect, and the steps of a new run.
//!
//! Pure.

use askama::Template;
use kube::api::DynamicObject;
use serde_json::Value;
use signoff_api::Workflow;
use signoff_expr::text::display;
use signoff_review::{
    coming,
    run_change::{earlier, origin},
    text::one_line,
};

use super::change::PageVerb;
use crate::{error::PageError, page::Shell};

/// The most steps of a list.
const MOST_STEPS: usize = 64;
/// The longest value of an input, in characters.
const LONGEST_INPUT: usize = 400;
/// The longest spec, in characters.
const LONGEST_SPEC: usize = 200_000;

#[derive(Template)]
#[template(path = "run_change.html")]
pub(super) struct ConfirmChange {
    pub(super) shell: Shell,
    /// The path of the run's page.
    pub(super) run: String,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) verb: PageVerb,
    /// The run that would be created.
    pub(super) new: Option<NewRun>,
    pub(super) warning: Option<String>,
    pub(super) uid: String,
    /// The digest of the change that is confirmed.
    pub(super) confirmed: String,
    /// Whether the reader confirmed another change than the one that would be sent now.
    pub(super) differs: bool,
}

/// The page of a confirmation whose run exists already.
#[derive(Template)]
#[template(path = "run_repeated.html")]
pub(super) struct Repeated {
    pub(super) shell: Shell,
    /// The path of the new run's page.
    pub(super) run: String,
    pub(super) name: String,
}

/// A new run on its confirmation.
#[derive(Debug)]
pub(super) struct NewRun {
    /// The name of the new run.
    name: String,
    /// The facts about the new run, each with its label.
    facts: Vec<(&'static str, String)>,
    /// The steps of the new run, each in a line.
    steps: Vec<String>,
    /// The inputs of the new run with their values.
    inputs: Vec<(String, String)>,
    /// The spec of the new run as JSON, cut at its bound.
    spec: String,
    /// Whether the spec is cut.
    is_cut: bool,
}

impl NewRun {
    /// Returns a new run for its confirmation. `old`: the run that it repeats.
    ///
    /// # Errors
    /// A run that this version cannot read.
    pub(super) fn of(new: &DynamicObject, old: &DynamicObject) -> Result<Self, PageError> {
        let unreadable = |error: serde_json::Error| {
            let why = display(&error.to_string(), 300);
            PageError::Unreadable(format!("this version of the page cannot read the run: {why}"))
        };
        let json = serde_json::to_value(new).map_err(unreadable)?;
        let workflow: Workflow = serde_json::from_value(json).map_err(unreadable)?;
        let spec = new.data.get("spec").unwrap_or(&Value::Null);
        let spec = serde_json::to_string_pretty(spec).map_err(unreadable)?;
        Ok(Self {
            name: one_line(new.metadata.name.as_deref().unwrap_or_default(), 253),
            facts: facts(new, old),
            steps: coming::steps(&workflow, MOST_STEPS),
            inputs: coming::inputs(&workflow, LONGEST_INPUT),
            is_cut: spec.chars().count() > LONGEST_SPEC,
            spec: display(&spec, LONGEST_SPEC),
        })
    }
}

/// Returns the facts of a new run: the creator of the run that it repeats, and the users whom its gates exclude.
fn facts(new: &DynamicObject, old: &DynamicObject) -> Vec<(&'static str, String)> {
    let name = one_line(old.metadata.name.as_deref().unwrap_or_default(), 253);
    let uid = one_line(old.metadata.uid.as_deref().unwrap_or_default(), 64);
    let requesters = match earlier(new) {
        Some(users) => format!("you and {users}: gates that exclude the requester exclude all of you"),
        None => "you: gates that exclude the requester exclude you".to_owned(),
    };
    let written = format!("those of run {name}, {}: read them before you run them in your name", origin(old));
    vec![("Steps and inputs", written), ("Repeats (rerunOf)", format!("{name}, uid {uid}")), ("Requesters", requesters)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use signoff_review::{run_change::copy, sample};

    use super::*;

    #[test]
    fn a_new_run_is_shown_with_its_origin_steps_inputs_and_spec() {
        let hostile = "<b>\u{202e}";
        let pay = json!({"method": "POST", "url": format!("https://bank.example/{hostile}")});
        let old = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "refund", "namespace": "finance", "uid": "u"}, "status": {"phase": "Failed"},
            "spec": {"requestedBy": "mallory", "rerunOf": {"name": "r", "uid": "v", "requesters": ["erin"]},
                "inputs": [{"name": "words", "value": hostile}],
                "steps": [{"name": "pay", "http": pay}]}});
        let old: DynamicObject = serde_json::from_value(old).unwrap();
        let mut new = copy(&old, &sample::me("bob", &[])).unwrap();
        new.metadata.name = Some("refund-01234567".to_owned());
        let new = NewRun::of(&new, &old).unwrap();
        let facts: Vec<_> = new.facts.iter().map(|(label, text)| format!("{label}: {text}")).collect();
        assert_eq!(
            facts,
            [
                "Steps and inputs: those of run refund, created by mallory, who says that it repeats runs of erin; its steps may differ: \
                 read them before you run them in your name",
                "Repeats (rerunOf): refund, uid u",
                "Requesters: you and erin, mallory: gates that exclude the requester exclude all of you",
            ]
        );
        assert_eq!(new.inputs, [("words".to_owned(), "<b>⟨U+202E⟩".to_owned())]);
        assert_eq!(new.steps, ["step pay: POST https://bank.example/<b>⟨U+202E⟩; if it fails the run fails"]);
        let page = ConfirmChange {
            shell: Shell::of_nobody("Rerun"),
            run: "/n/finance/w/refund".to_owned(),
            name: "refund".to_owned(),
            namespace: "finance".to_owned(),
            verb: PageVerb::Rerun,
            new: Some(new),
            warning: None,
            uid: "u".to_owned(),
            confirmed: "c".to_owned(),
            differs: false,
        };
        let page = page.render().unwrap();
        for part in ["refund-01234567", "step pay: POST", "rerunOf", "bank.example"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<b>") && !page.contains('\u{202e}'), "{page}");
    }
}
