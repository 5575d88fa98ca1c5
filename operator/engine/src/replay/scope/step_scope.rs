//! Where a list of steps stands in a run: which records its templates see, under which name, and what else.
//!
//! It must not begin anything: it only looks at what is done.

use std::{collections::BTreeMap, rc::Rc};

use serde_json::{Map, Value, json};
use signoff_api::journal::StepRecord;
use signoff_expr::Scope;

use super::{
    RequestedNames, VisibleRecord,
    editors::{EditsAt, EditsOfVars},
    parts, view,
};

use crate::{
    journal::within,
    plan::PlannedStep,
    replay::run::{RenderError, Run},
};

/// The variables of a pattern, as of a number of the journal.
pub(crate) type PatternVars<'a> =
    Rc<dyn Fn(&Run<'a>, &RequestedNames<'_>, i64, &mut Scope) -> Result<(), RenderError> + 'a>;

/// The namespace in which templates name the records of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordNamespace {
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
pub(crate) struct StepScope<'a> {
    /// Before the names of its records: empty, or `billing/`.
    pub(crate) prefix: String,
    pub(crate) listed: RecordNamespace,
    pub(crate) list: Rc<[&'a PlannedStep]>,
    /// The positions that can be seen; none means all.
    pub(crate) visible: Option<Rc<[usize]>>,
    /// Steps outside the list whose newest response and decision count too.
    pub(crate) also_visible: Vec<&'a PlannedStep>,
    pub(crate) pattern_vars: PatternVars<'a>,
    /// The edits of the values of its variables; a later entry replaces an earlier one of the same name.
    pub(crate) edits: Vec<EditsOfVars<'a>>,
    /// Agents remember what they said and heard at this path and beneath it.
    pub(crate) conversation: String,
    /// Besides the gates that can be seen, agents hear what people decided at this path and beneath it.
    pub(crate) feedback_from: Option<String>,
    /// The most calls in flight among the records whose path begins with a text.
    pub(crate) limit: Option<(String, usize)>,
    /// Describes the call of a tool to which these steps belong, for the requests of their gates.
    pub(crate) call: Option<CallText<'a>>,
    /// The beginning of the arguments of the call of a tool to which these steps belong.
    pub(crate) given: Option<String>,
}

/// The description of a call for a request that is made at a number of the journal.
pub(crate) type CallText<'a> = Rc<dyn Fn(&Run<'a>, i64) -> Result<String, RenderError> + 'a>;

impl<'a> StepScope<'a> {
    /// A frame of these steps, whose records begin with `prefix`, and that remembers no other.
    pub(crate) fn of(prefix: &str, listed: RecordNamespace, list: impl IntoIterator<Item = &'a PlannedStep>) -> Self {
        Self {
            prefix: prefix.to_owned(),
            listed,
            list: list.into_iter().collect(),
            visible: None,
            also_visible: Vec::new(),
            pattern_vars: Rc::new(|_, _, _, _| Ok(())),
            edits: Vec::new(),
            conversation: prefix.to_owned(),
            feedback_from: Some(prefix.to_owned()),
            limit: None,
            call: None,
            given: None,
        }
    }

    /// The same frame and further names.
    pub(crate) fn with_vars(
        &self,
        more: impl Fn(&Run<'a>, &RequestedNames<'_>, i64, &mut Scope) -> Result<(), RenderError> + 'a,
    ) -> Self {
        let before = Rc::clone(&self.pattern_vars);
        let pattern_vars: PatternVars<'a> = Rc::new(move |run, wanted, seq, scope| {
            let first = before(run, wanted, seq, scope);
            more(run, wanted, seq, scope).and(first)
        });
        Self { pattern_vars, ..self.clone() }
    }

    /// The same scope, where people changed the values of these variables.
    pub(crate) fn with_edits(mut self, vars: &'static [&'static str], edits: EditsAt<'a>) -> Self {
        self.edits.push((vars, edits));
        self
    }

    /// The names that its pattern gives.
    pub(super) fn set_pattern_vars(
        &self,
        run: &Run<'a>,
        wanted: &RequestedNames<'_>,
        seq: i64,
        scope: &mut Scope,
    ) -> Result<(), RenderError> {
        (self.pattern_vars)(run, wanted, seq, scope)
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
    fn visible_steps(&self) -> impl Iterator<Item = &'a PlannedStep> + '_ {
        let visible = |at: &usize| self.visible.as_ref().is_none_or(|visible| visible.contains(at));
        self.list.iter().enumerate().filter(move |(at, _)| visible(at)).map(|(_, step)| *step)
    }

    /// Whether agents of this frame are told what was decided at a gate.
    pub(crate) fn is_feedback(&self, path: &str) -> bool {
        let of_the_pattern = path.starts_with('.') && !path.contains('/');
        let visible = || {
            let place = path.split_once('#').map_or(path, |(place, _)| place);
            self.visible_steps().any(|step| step.path == place)
        };
        of_the_pattern
            || within(path, &self.conversation)
            || self.feedback_from.as_ref().map_or_else(visible, |place| within(path, place))
    }

    /// The newest visit of each step of the list, as far as its result was known at `seq`; in declared order.
    pub(crate) fn seen(&self, run: &Run<'a>, seq: i64) -> Vec<VisibleRecord<'a>> {
        let state = run.state.borrow();
        let mut newest: BTreeMap<&str, (i32, &StepRecord)> = BTreeMap::new();
        let records = state.journal.under(&self.prefix).filter(|r| r.done.is_some_and(|done| done < seq));
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
            newest.get(step.name.as_str()).map(|(_, record)| VisibleRecord { step, record: (*record).clone() })
        };
        self.visible_steps().filter_map(find).collect()
    }

    /// The newest record that the author's templates see and that is as asked for.
    pub(crate) fn newest(
        &self,
        run: &Run<'a>,
        seq: i64,
        is: impl Fn(&StepRecord) -> bool,
    ) -> Option<VisibleRecord<'a>> {
        let state = run.state.borrow();
        let all = self.visible_steps().chain(self.also_visible.iter().copied());
        let visible: BTreeMap<&str, &'a PlannedStep> =
            all.filter(|step| step.added_by.is_none()).map(|step| (step.path.as_str(), step)).collect();
        let beside = self.also_visible.iter().flat_map(|step| state.journal.under(&step.path));
        let records = state.journal.under(&self.prefix).chain(beside);
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
        Some(VisibleRecord { step, record: record.clone() })
    }

    /// Puts the records of the list into a scope.
    pub(super) fn records(
        &self,
        run: &Run<'a>,
        wanted: &RequestedNames<'_>,
        seq: i64,
        scope: &mut Scope,
    ) -> Result<(), RenderError> {
        let root = "steps";
        if self.listed == RecordNamespace::Nothing || !wanted.root(root) {
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
            RecordNamespace::Steps | RecordNamespace::Nothing => {
                scope.set_records(root, views);
            }
            RecordNamespace::Named => {
                scope.set(root, Value::Object(views.into_iter().collect()));
            }
            RecordNamespace::Visited => {
                let mut object = Map::new();
                for node in self.visible_steps() {
                    let never = || json!({"name": node.name, "status": "not_executed", "response": null, "visits": []});
                    object.insert(node.name.clone(), never());
                }
                for (name, mut view) in views {
                    // A graph visits a node often: visits that no template names are not read.
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
    fn visits(&self, run: &Run<'a>, name: &str, seq: i64) -> Result<Value, RenderError> {
        let Some(step) = self.named(name) else { return Ok(Value::Null) };
        let last_attempts: BTreeMap<i32, StepRecord> = {
            let state = run.state.borrow();
            let done = state.journal.under(name).filter(|r| r.done.is_some_and(|done| done < seq));
            let own = done.filter(|r| !r.path.contains('/') && parts(&r.path).0 == name);
            own.map(|record| (parts(&record.path).1, record.clone())).collect()
        };
        let visits =
            last_attempts.into_values().map(|record| view(run, self, &VisibleRecord { step, record }, seq)).collect();
        all(visits).map(Value::Array)
    }
}

/// All of them, or what is missing: every one is tried, so that all that is missing is fetched in one go.
pub(crate) fn all<T>(tried: Vec<Result<T, RenderError>>) -> Result<Vec<T>, RenderError> {
    tried.into_iter().collect()
}
