//! Where the gates that floors add stand in a list of steps.
//!
//! It may not leave one out: what has no place is a complaint.

use std::borrow::Cow;

use signoff_api::{
    floor::{AddedStep, Position},
    step::Step,
};

use super::Check;
use crate::floors::MOST_ADDED;

/// A step in its place.
pub(super) struct Placed<'a> {
    pub(super) step: Cow<'a, Step>,
    /// Where it is written, for complaints.
    pub(super) field: String,
    /// How many of the author's steps stand before it.
    pub(super) at: usize,
    /// The policy that added it.
    pub(super) added_by: Option<&'a str>,
    /// The step that it was added before.
    pub(super) guarded: Option<&'a Step>,
}

impl Check<'_> {
    /// The author's steps and the added ones, in the order in which they run.
    pub(super) fn with_added<'a>(&mut self, steps: &'a [Step], field: &str, added: &'a [AddedStep]) -> Vec<Placed<'a>> {
        if added.len() > MOST_ADDED {
            let message = format!(
                "policies add {} gates to every run, and there is room for {MOST_ADDED}: merge some of them",
                added.len()
            );
            self.complain_as("FloorsContradict", field, message);
        }
        let of = |position| added.iter().filter(move |one| one.step.at == Some(position));
        let mut placed: Vec<Placed<'a>> =
            of(Position::Start).map(|one| place(one, one.step.name.clone(), 0, None)).collect();
        for (at, step) in steps.iter().enumerate() {
            let guards = |one: &&AddedStep| {
                one.step.before.as_ref().is_some_and(|before| before.kinds.iter().any(|kind| kind.is(step)))
            };
            for one in added.iter().filter(guards) {
                placed.push(place(one, format!("{}-{}", one.step.name, step.name), at, Some(step)));
            }
            let field = format!("{field}[{at}]");
            placed.push(Placed { step: Cow::Borrowed(step), field, at, added_by: None, guarded: None });
        }
        placed.extend(of(Position::End).map(|one| place(one, one.step.name.clone(), steps.len(), None)));
        placed
    }
}

fn place<'a>(added: &'a AddedStep, name: String, at: usize, guarded: Option<&'a Step>) -> Placed<'a> {
    let field = format!("{}: spec.steps[{}]", added.source, added.step.name);
    let step = Step { name, hitl: Some(added.step.hitl.clone()), ..Step::default() };
    Placed { step: Cow::Owned(step), field, at, added_by: Some(&added.source), guarded }
}
