//! Where a list of steps stands in a run: which records its templates see, under which name, and what else.
//!
//! It must not begin anything: it only looks at what is done.

use std::{collections::BTreeMap, rc::Rc};

use serde_json::{Map, Value, json};
use signoff_api::journal::StepRecord;
use signoff_expr::Scope;

use super::{Seen, Wanted, parts, view};

use crate::{
    activity::{Run, Trouble},
    plan::PlannedStep,
};

/// The variables of a pattern, as of a number of the journal.
pub(crate) type Given<'a> = Rc<dyn Fn(&Run<'a>, &Wanted<'_>, i64, &mut Scope) -> Result<(), Trouble> + 'a>;

/// The namespace in which templates name the records of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Not at all.
    Nothing,
    /// `steps[0]` and `steps.<name>`: those that are done.
    Steps,
    /// `steps.<name>`: those that are done.
    Named,
    /// `steps.<name>`: all, done or not, with every visit.
    Visited,
}

/// The scope of a list of steps in a run.
#[derive(Clone)]
pub(crate) struct Frame<'a> {
    /// Before the names of its records: empty, or `billing/`.
    pub(crate) prefix: String,
    pub(crate) listed: Listed,
    pub(crate) list: Rc<[&'a PlannedStep]>,
    /// The positions that can be seen; none means all.
    pub(crate) sees: Option<Rc<[usize]>>,
    /// Steps outside the list whose newest response and decision count too.
    pub(crate) beside: Vec<&'a PlannedStep>,
    pub(crate) given: Given<'a>,
    /// Agents remember what they said and heard at this path and beneath it.
    pub(crate) memory: String,
    /// Besides the gates that can be seen, agents hear what people decided at this path and beneath it.
    pub(crate) hears: Option<String>,
    /// The most calls in flight among the records whose path begins with a text.
    pub(crate) limit: Option<(String, usize)>,
}

impl<'a> Frame<'a> {
    /// A frame of these steps, whose records begin with `prefix`, and that remembers no other.
    pub(crate) fn of(prefix: &str, listed: Listed, list: impl IntoIterator<Item = &'a PlannedStep>) -> Self {
        Self {
            prefix: prefix.to_owned(),
            listed,
            list: list.into_iter().collect(),
            sees: None,
            beside: Vec::new(),
            given: Rc::new(|_, _, _, _| Ok(())),
            memory: prefix.to_owned(),
            hears: Some(prefix.to_owned()),
            limit: None,
        }
    }

    /// The same frame and further names.
    pub(crate) fn giving(
        &self,
        more: impl Fn(&Run<'a>, &Wanted<'_>, i64, &mut Scope) -> Result<(), Trouble> + 'a,
    ) -> Self {
        let before = Rc::clone(&self.given);
        let given: Given<'a> = Rc::new(move |run, wanted, seq, scope| {
            let first = before(run, wanted, seq, scope);
            more(run, wanted, seq, scope).and(first)
        });
        Self { given, ..self.clone() }
    }

    /// The names that its pattern gives.
    pub(super) fn give(&self, run: &Run<'a>, wanted: &Wanted<'_>, seq: i64, scope: &mut Scope) -> Result<(), Trouble> {
        (self.given)(run, wanted, seq, scope)
    }

    /// The step at a position of its list.
    pub(crate) fn step(&self, at: usize) -> Option<&'a PlannedStep> {
        self.list.get(at).copied()
    }

    /// The step of this name, whether it can be seen or not.
    pub(crate) fn named(&self, name: &str) -> Option<&'a PlannedStep> {
        self.list.iter().find(|step| step.name == name).copied()
    }

    /// The steps that can be seen, in declared order.
    fn visible(&self) -> impl Iterator<Item = &'a PlannedStep> + '_ {
        let sees = |at: &usize| self.sees.as_ref().is_none_or(|sees| sees.contains(at));
        self.list.iter().enumerate().filter(move |(at, _)| sees(at)).map(|(_, step)| *step)
    }

    /// Whether agents of this frame are told what was decided at a gate.
    pub(crate) fn is_heard(&self, path: &str) -> bool {
        let of_the_pattern = path.starts_with('.') && !path.contains('/');
        let visible = || {
            let place = path.split_once('#').map_or(path, |(place, _)| place);
            self.visible().any(|step| step.path == place)
        };
        of_the_pattern
            || within(path, &self.memory)
            || self.hears.as_ref().map_or_else(visible, |place| within(path, place))
    }

    /// The newest visit of each step of the list, as far as its result was known at `seq`; in declared order.
    pub(crate) fn seen(&self, run: &Run<'a>, seq: i64) -> Vec<Seen<'a>> {
        let books = run.books.borrow();
        let mut newest: BTreeMap<&str, (i32, &StepRecord)> = BTreeMap::new();
        let records = books.journal.under(&self.prefix).filter(|r| r.done.is_some_and(|done| done < seq));
        for record in records {
            let Some(rest) = record.path.strip_prefix(&self.prefix).filter(|rest| !rest.contains('/')) else {
                continue;
            };
            let (name, visit) = parts(rest);
            let found = newest.entry(name).or_insert((visit, record));
            if (visit, record.attempt) >= (found.0, found.1.attempt) {
                *found = (visit, record);
            }
        }
        let find = |step: &'a PlannedStep| {
            newest.get(step.name.as_str()).map(|(_, record)| Seen { step, record: (*record).clone() })
        };
        self.visible().filter_map(find).collect()
    }

    /// The newest record that the author's templates see and that is as asked for.
    pub(crate) fn newest(&self, run: &Run<'a>, seq: i64, is: impl Fn(&StepRecord) -> bool) -> Option<Seen<'a>> {
        let books = run.books.borrow();
        let all = self.visible().chain(self.beside.iter().copied());
        let visible: BTreeMap<&str, &'a PlannedStep> =
            all.filter(|step| step.added_by.is_none()).map(|step| (step.path.as_str(), step)).collect();
        let beside = self.beside.iter().flat_map(|step| books.journal.under(&step.path));
        let records = books.journal.under(&self.prefix).chain(beside);
        let known = records.filter(|r| r.done.is_some_and(|done| done < seq));
        let mut seen: Vec<_> = known
            .filter_map(|record| {
                let (path, visit) = record.path.split_once('#').unwrap_or((&record.path, ""));
                // What lies beneath a step is the step's own business.
                if visit.contains('/') { None } else { Some((*visible.get(path)?, record)) }
            })
            .collect();
        seen.sort_by_key(|(_, record)| record.done);
        let (step, record) = seen.into_iter().rfind(|(_, record)| is(record))?;
        Some(Seen { step, record: record.clone() })
    }

    /// Puts the records of the list into a scope.
    pub(super) fn records(
        &self,
        run: &Run<'a>,
        wanted: &Wanted<'_>,
        seq: i64,
        scope: &mut Scope,
    ) -> Result<(), Trouble> {
        let root = "steps";
        if self.listed == Listed::Nothing || !wanted.root(root) {
            return Ok(());
        }
        let seen = self.seen(run, seq);
        // A gate that a policy added must not change the results of the author's templates.
        let visible = seen.iter().filter(|one| one.step.added_by.is_none());
        let views: Vec<_> = visible
            .enumerate()
            .map(|(at, one)| {
                let view =
                    if wanted.member(root, &one.step.name, at) { view(run, self, one, seq) } else { Ok(Value::Null) };
                view.map(|view| (one.step.name.clone(), view))
            })
            .collect();
        let views = all(views)?;
        match self.listed {
            Listed::Steps | Listed::Nothing => {
                scope.set_records(root, views);
            }
            Listed::Named => {
                scope.set(root, Value::Object(views.into_iter().collect()));
            }
            Listed::Visited => {
                let mut object = Map::new();
                for node in self.visible() {
                    let never = || json!({"name": node.name, "status": "not_executed", "response": null, "visits": []});
                    object.insert(node.name.clone(), never());
                }
                for (name, mut view) in views {
                    // A graph visits a node often: what nobody asks for is not looked at.
                    if let (Some(view), true) = (view.as_object_mut(), wanted.field(root, &name, "visits")) {
                        view.insert("visits".to_owned(), self.visits(run, &name, seq)?);
                    }
                    object.insert(name, view);
                }
                scope.set(root, Value::Object(object));
            }
        }
        Ok(())
    }

    /// Every visit of a node, the first one first.
    fn visits(&self, run: &Run<'a>, name: &str, seq: i64) -> Result<Value, Trouble> {
        let Some(step) = self.named(name) else { return Ok(Value::Null) };
        let last_attempts: BTreeMap<i32, StepRecord> = {
            let books = run.books.borrow();
            let done = books.journal.under(name).filter(|r| r.done.is_some_and(|done| done < seq));
            let own = done.filter(|r| !r.path.contains('/') && parts(&r.path).0 == name);
            own.map(|record| (parts(&record.path).1, record.clone())).collect()
        };
        let visits = last_attempts.into_values().map(|record| view(run, self, &Seen { step, record }, seq)).collect();
        all(visits).map(Value::Array)
    }
}

/// Whether a path is this place, one of its visits, or beneath it.
pub(crate) fn within(path: &str, place: &str) -> bool {
    let bounded =
        |rest: &str| place.is_empty() || place.ends_with('/') || rest.is_empty() || rest.starts_with(['/', '#']);
    path.strip_prefix(place).is_some_and(bounded)
}

/// All of them, or what is missing: every one is tried, so that all that is missing is fetched in one go.
pub(crate) fn all<T>(tried: Vec<Result<T, Trouble>>) -> Result<Vec<T>, Trouble> {
    tried.into_iter().collect()
}
