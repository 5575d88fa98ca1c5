//! The position of a list of steps in a run: the records that its templates see, their names, and the other values in
//! scope.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use serde_json::{Map, Value, json};
use signoff_api::{RecordPath, Seq, journal::StepRecord};
use signoff_expr::Scope;

use super::{PathPart, RequestedNames, VisibleRecord, parts, view};

use crate::{
    journal::within,
    plan::PlannedStep,
    replay::run::{RenderError, Run},
};

/// The variables of a pattern, as of a number of the journal.
pub(crate) type PatternVars<'a> =
    Rc<dyn Fn(&Run<'a>, &RequestedNames<'_>, Seq, &mut Scope) -> Result<(), RenderError> + 'a>;

/// The namespace in which templates name the records of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordNamespace {
    /// Templates cannot name the records.
    Nothing,
    /// `steps[0]` and `steps.<name>`, for finished steps.
    Steps,
    /// `steps.<name>`, for finished steps.
    Named,
    /// `steps.<name>` with every visit, for all steps.
    Visited,
}

/// For each step of a list the number at which its first record ended, cached with the last number of the journal from
/// which the ends were computed.
pub(crate) type FirstEnds = Rc<RefCell<Option<(Seq, Rc<[Option<Seq>]>)>>>;

/// The scope of a list of steps in a run.
#[derive(Clone)]
pub(crate) struct StepScope<'a> {
    /// The prefix of the paths of its records: empty, or `billing/`.
    pub(crate) prefix: String,
    pub(crate) listed: RecordNamespace,
    /// The steps of the list. Only [`Self::with_step`] changes the list.
    pub(crate) list: Rc<[&'a PlannedStep]>,
    pub(crate) first_ends: FirstEnds,
    /// The positions of the visible steps; `None` for all.
    pub(crate) visible: Option<Rc<[usize]>>,
    /// Steps outside the list whose newest response and decision are visible too.
    pub(crate) also_visible: Vec<&'a PlannedStep>,
    pub(crate) pattern_vars: PatternVars<'a>,
    /// The path at or below which agents remember their turns.
    pub(crate) conversation: String,
    /// Decisions at or below this path are added to the feedback of agents, in addition to decisions of visible gates.
    /// `None` adds only decisions of visible gates.
    pub(crate) feedback_from: Option<String>,
    /// The maximum number of calls in flight among the records whose paths begin with a prefix.
    pub(crate) limit: Option<(String, usize)>,
    /// The description of the tool call that runs the list, for the requests of its gates; `None` outside of calls.
    pub(crate) call: Option<CallText<'a>>,
    /// The beginning of the arguments of the tool call that runs the list.
    pub(crate) given: Option<String>,
    /// The arguments of the tool call that runs the list, as they are sent to a server.
    pub(crate) arguments: Option<Rc<Map<String, Value>>>,
}

/// A function that describes a call for a request, as of a number of the journal.
pub(crate) type CallText<'a> = Rc<dyn Fn(&Run<'a>, Seq) -> Result<String, RenderError> + 'a>;

impl<'a> StepScope<'a> {
    /// Returns a scope for steps whose records begin with `prefix`, without the memory of another frame.
    pub(crate) fn of(prefix: &str, listed: RecordNamespace, list: impl IntoIterator<Item = &'a PlannedStep>) -> Self {
        Self {
            prefix: prefix.to_owned(),
            listed,
            list: list.into_iter().collect(),
            first_ends: FirstEnds::default(),
            visible: None,
            also_visible: Vec::new(),
            pattern_vars: Rc::new(|_, _, _, _| Ok(())),
            conversation: prefix.to_owned(),
            feedback_from: Some(prefix.to_owned()),
            limit: None,
            call: None,
            given: None,
            arguments: None,
        }
    }

    /// Returns the scope with further variables of a pattern.
    pub(crate) fn with_vars(
        &self,
        more: impl Fn(&Run<'a>, &RequestedNames<'_>, Seq, &mut Scope) -> Result<(), RenderError> + 'a,
    ) -> Self {
        let before = Rc::clone(&self.pattern_vars);
        let pattern_vars: PatternVars<'a> = Rc::new(move |run, wanted, seq, scope| {
            let first = before(run, wanted, seq, scope);
            more(run, wanted, seq, scope).and(first)
        });
        Self { pattern_vars, ..self.clone() }
    }

    /// Adds a step to the list.
    pub(crate) fn with_step(self, step: &'a PlannedStep) -> Self {
        let list = self.list.iter().copied().chain([step]).collect();
        Self { list, first_ends: FirstEnds::default(), ..self }
    }

    /// Sets the variables of the pattern.
    pub(super) fn set_pattern_vars(
        &self,
        run: &Run<'a>,
        wanted: &RequestedNames<'_>,
        seq: Seq,
        scope: &mut Scope,
    ) -> Result<(), RenderError> {
        (self.pattern_vars)(run, wanted, seq, scope)
    }

    /// Returns the step at a position of the list.
    pub(crate) fn step(&self, at: usize) -> Option<&'a PlannedStep> {
        self.list.get(at).copied()
    }

    /// Returns the step with this name, visible or not.
    pub(crate) fn step_named(&self, name: &str) -> Option<&'a PlannedStep> {
        self.list.iter().find(|step| step.name == name).copied()
    }

    /// Returns the visible steps, in the order of declaration.
    fn visible_steps(&self) -> impl Iterator<Item = &'a PlannedStep> + '_ {
        let visible = |at: &usize| self.visible.as_ref().is_none_or(|visible| visible.contains(at));
        self.list.iter().enumerate().filter(move |(at, _)| visible(at)).map(|(_, step)| *step)
    }

    /// Whether the agents of the list receive the decision at a gate.
    pub(crate) fn is_feedback(&self, path: &str) -> bool {
        let is_of_pattern = RecordPath::new(path).parent().is_none() && RecordPath::new(path).last().is_part();
        let is_of_visible_step = || {
            let place = RecordPath::new(path).before_visits().as_str();
            self.visible_steps().any(|step| step.path == place)
        };
        is_of_pattern
            || within(path, &self.conversation)
            || self.feedback_from.as_ref().map_or_else(is_of_visible_step, |place| within(path, place))
    }

    /// Returns the newest record, done before `seq`, of each visible step, in the order of declaration.
    pub(crate) fn newest_records(&self, run: &Run<'a>, seq: Seq) -> Vec<VisibleRecord<'a>> {
        self.finished_steps(run, seq).into_iter().filter_map(|step| self.newest_record(run, step, seq)).collect()
    }

    /// Returns the visible steps that had a result before `seq`, in the order of declaration.
    fn finished_steps(&self, run: &Run<'a>, seq: Seq) -> Vec<&'a PlannedStep> {
        let ends = self.first_ends(run);
        let has_ended = |at: &usize| ends.get(*at).copied().flatten().is_some_and(|end| end < seq);
        let positions: Vec<usize> = match &self.visible {
            Some(visible) => (0..self.list.len()).filter(|at| has_ended(at) && visible.contains(at)).collect(),
            None => (0..self.list.len()).filter(has_ended).collect(),
        };
        positions.into_iter().filter_map(|at| self.step(at)).collect()
    }

    /// Returns the first end of each step of the list, and caches the ends for this state of the journal.
    fn first_ends(&self, run: &Run<'a>) -> Rc<[Option<Seq>]> {
        let state = run.state.borrow();
        let mut cached = self.first_ends.borrow_mut();
        if let Some((_, ends)) = cached.as_ref().filter(|(seq, _)| *seq == state.journal.seq()) {
            return Rc::clone(ends);
        }
        let mut first: BTreeMap<&str, Seq> = BTreeMap::new();
        for record in state.journal.under(&self.prefix) {
            let own = record.path.strip_prefix(&self.prefix).filter(|rest| !rest.contains('/'));
            if let (Some(own), Some(done)) = (own, record.done) {
                first.entry(parts(own).0).and_modify(|end| *end = done.min(*end)).or_insert(done);
            }
        }
        let ends: Rc<[_]> = self.list.iter().map(|step| first.get(step.name.as_str()).copied()).collect();
        *cached = Some((state.journal.seq(), Rc::clone(&ends)));
        ends
    }

    /// Returns the newest record of a step of the list that was done before `seq`: the last attempt at the last visit.
    pub(super) fn newest_record(&self, run: &Run<'a>, step: &'a PlannedStep, seq: Seq) -> Option<VisibleRecord<'a>> {
        let place = format!("{}{}", self.prefix, step.name);
        let path = |visit: usize| RecordPath::new(&place).at_visit(i64::try_from(visit).unwrap_or(i64::MAX));
        let state = run.state.borrow();
        let known = |path: &str, attempt: i32| {
            state.journal.get(path, attempt).filter(|record| record.done.is_some_and(|done| done < seq))
        };
        // Visits of a step follow each other, and so do its attempts.
        let visit = last_where(|visit| known(&path(visit), 1).is_some());
        let path = path(visit);
        let attempt = last_where(|attempt| i32::try_from(attempt).is_ok_and(|attempt| known(&path, attempt).is_some()));
        let record = known(&path, i32::try_from(attempt).ok()?)?.clone();
        Some(VisibleRecord { step, record })
    }

    /// Returns the newest record that the author's templates see and for which `is_wanted` holds.
    pub(crate) fn newest_where(
        &self,
        run: &Run<'a>,
        seq: Seq,
        is_wanted: impl Fn(&StepRecord) -> bool,
    ) -> Option<VisibleRecord<'a>> {
        let is_visible = |at: usize| self.visible.as_ref().is_none_or(|visible| visible.contains(&at));
        let step_of = |record: &StepRecord| {
            let path = RecordPath::new(&record.path).without_last_visit().as_str();
            // Records below a step are not visible to others.
            if path.contains('#') {
                return None;
            }
            let own = |(at, step): &(usize, &&'a PlannedStep)| step.path == path && is_visible(*at);
            let own = path.starts_with(&self.prefix).then(|| self.list.iter().enumerate().find(own)).flatten();
            let step = own.map(|(_, step)| *step);
            let step = step.or_else(|| self.also_visible.iter().copied().find(|step| step.path == path))?;
            step.added_by.is_none().then_some(step)
        };
        let state = run.state.borrow();
        let mut ended = state.journal.ended_before(seq);
        ended.find_map(|record| {
            let step = step_of(record)?;
            is_wanted(record).then(|| VisibleRecord { step, record: record.clone() })
        })
    }

    /// Adds the records of the list to a scope as `steps`, without the gates of policies. Adds nothing if no template
    /// reads `steps`.
    pub(super) fn add_records(
        &self,
        run: &Run<'a>,
        wanted: &RequestedNames<'_>,
        seq: Seq,
        scope: &mut Scope,
    ) -> Result<(), RenderError> {
        let root = "steps";
        if self.listed == RecordNamespace::Nothing || !wanted.root(root) {
            return Ok(());
        }
        // A gate of a policy must not change the results of the author's templates.
        let mut steps = self.finished_steps(run, seq);
        steps.retain(|step| step.added_by.is_none());
        let count = steps.len();
        let views: Vec<_> = steps
            .into_iter()
            .enumerate()
            .map(|(at, step)| {
                let part = PathPart::entry(at, count).named(&step.name);
                let view = match wanted.reads(root, &[part]).then(|| self.newest_record(run, step, seq)).flatten() {
                    Some(record) => {
                        view(run, self, &record, seq, &|field| wanted.reads(root, &[part, PathPart::field(field)]))
                    }
                    None => Ok(Value::Null),
                };
                view.map(|view| (step.name.clone(), view))
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
                    // A graph can visit a node often, so visits that no template names are not read.
                    let visits = [PathPart::field(&name), PathPart::field("visits")];
                    if wanted.reads(root, &visits) {
                        let visits = self.visits(run, &name, seq, &|part, field| {
                            wanted.reads(root, &[visits[0], visits[1], part, PathPart::field(field)])
                        })?;
                        if let Some(view) = view.as_object_mut() {
                            view.insert("visits".to_owned(), visits);
                        }
                    }
                    object.insert(name, view);
                }
                scope.set(root, Value::Object(object));
            }
        }
        Ok(())
    }

    /// Returns the visits of a node of a graph, the oldest first. `is_read` says whether a template reads a field of a
    /// visit.
    fn visits(
        &self,
        run: &Run<'a>,
        name: &str,
        seq: Seq,
        is_read: &dyn Fn(PathPart<'_>, &str) -> bool,
    ) -> Result<Value, RenderError> {
        let Some(step) = self.step_named(name) else { return Ok(Value::Null) };
        let last_attempts: BTreeMap<i32, StepRecord> = {
            let state = run.state.borrow();
            let done = state.journal.under(name).filter(|r| r.done.is_some_and(|done| done < seq));
            let own = done.filter(|r| RecordPath::new(&r.path).without_last_visit().as_str() == name);
            own.map(|record| (parts(&record.path).1, record.clone())).collect()
        };
        let count = last_attempts.len();
        let view = |(at, record): (usize, StepRecord)| {
            let part = PathPart::entry(at, count);
            view(run, self, &VisibleRecord { step, record }, seq, &|field| is_read(part, field))
        };
        all(last_attempts.into_values().enumerate().map(view).collect()).map(Value::Array)
    }
}

/// Returns the last number for which a condition holds, or 1. The condition must hold for all numbers from 1 up to some
/// number, and for no larger one.
fn last_where(holds: impl Fn(usize) -> bool) -> usize {
    let mut step = 1;
    while holds(step * 2) {
        step *= 2;
    }
    let mut last = step;
    while step > 1 {
        step /= 2;
        if holds(last + step) {
            last += step;
        }
    }
    last
}

/// Returns all values, or the first error. The caller has computed every value, so that all missing values are fetched
/// at once.
pub(crate) fn all<T>(tried: Vec<Result<T, RenderError>>) -> Result<Vec<T>, RenderError> {
    tried.into_iter().collect()
}
