//! One call of a tool: check -> propose -> ask -> perform, again from the start after people changed its arguments or
//! approved another attempt.
//!
//! **Invariant:** a call is performed only with the permission that [`Gating::clear`] gives.

use std::rc::Rc;

use serde_json::{Value, json};
use signoff_api::{
    FailureClass, Outcome, Seq,
    journal::{StepPhase, StepRecord},
};
use signoff_expr::text;

use super::{
    ask::{CallDecision, NOT_APPROVED_AGAIN, ask},
    equal::{EqualCalls, earlier_result},
    gating::{Cleared, Gating},
    limits::agents_around,
    proposal::{propose, step_path},
    refusal::{check_of, has_passed_check, next_seq, recorded_refusal, refusal_text, refuse, refuse_repeated},
    rejected::{earlier_rejection, escalate},
    shown,
    site::{Answered, CallOfTurn, Proposal, ToolCallSite, TurnSite, cut},
};
use crate::{
    evaluation::{self, Part, within},
    plan::{DefinedBy, PlannedStep, PlannedTool},
    replay::{
        run::Run,
        scope::{RecordNamespace, StepScope, editors},
        step_invocation::Permission,
    },
    schema::Schema,
    steps::{
        attempts::{Attempts, Performed},
        flow::{EarlyEnd, StepResult},
        join::Member,
    },
    tools::arguments::Arguments,
};

/// A call that may be performed.
pub(in crate::steps) struct ClearedCall<'a> {
    pub(in crate::steps) step_scope: StepScope<'a>,
    pub(in crate::steps) step: &'a PlannedStep,
    /// The path of its step.
    pub(in crate::steps) path: String,
    pub(in crate::steps) attempts: Attempts,
    /// The number of the journal as of which its templates see values.
    pub(in crate::steps) seen: Seq,
    pub(in crate::steps) cleared: Cleared,
}

/// Performs the step of a tool for one call.
pub(in crate::steps) type PerformCall<'a> = for<'r> fn(&'r Run<'a>, ClearedCall<'a>) -> Member<'r, Performed>;

/// A call in progress.
pub(super) struct OngoingCall<'t, 'a> {
    run: &'t Run<'a>,
    turn: &'t TurnSite<'t, 'a>,
    /// The position of the call in its turn, from 0.
    at: usize,
    path: String,
    tool: &'a PlannedTool,
    arguments: Arguments,
    /// The people who changed the arguments.
    editors: Vec<String>,
    /// The last editor and the arguments before the edit, as a line of the request.
    edited: Option<String>,
    /// The line above the result that says what ran, if people changed the arguments.
    note: String,
    /// Whether the check for an escalation was made. A call is checked once, also if people change its arguments.
    is_escalated: bool,
    attempts: Attempts,
}

/// The end of a call: its result, or the end of the run.
enum CallEnd {
    Answered(Answered),
    Early(EarlyEnd),
}

impl From<EarlyEnd> for CallEnd {
    fn from(end: EarlyEnd) -> Self {
        Self::Early(end)
    }
}

impl CallEnd {
    fn result(text: String) -> Self {
        Self::Answered(Answered::Result(text))
    }
}

impl<'t, 'a> OngoingCall<'t, 'a> {
    /// Returns a call that was not checked yet. `at` is its position in the turn.
    pub(super) fn new(
        run: &'t Run<'a>,
        turn: &'t TurnSite<'t, 'a>,
        (at, path): (usize, String),
        tool: &'a PlannedTool,
        arguments: Arguments,
    ) -> Self {
        Self {
            run,
            turn,
            at,
            path,
            tool,
            arguments,
            editors: Vec::new(),
            edited: None,
            note: String::new(),
            is_escalated: false,
            attempts: Attempts::first(&tool.step),
        }
    }

    /// Runs the call to its end and returns its result. `perform` performs the step of its tool.
    pub(super) async fn make(mut self, perform: PerformCall<'a>) -> Result<Answered, EarlyEnd> {
        loop {
            match self.try_once(perform).await {
                Ok(()) => {}
                Err(CallEnd::Answered(answered)) => return Ok(answered),
                Err(CallEnd::Early(end)) => return Err(end),
            }
        }
    }

    /// Checks, proposes, asks about and performs the call once. Returns `Ok` if the call starts again, with other
    /// arguments or another attempt.
    async fn try_once(&mut self, perform: PerformCall<'a>) -> Result<(), CallEnd> {
        let (check, _) = self.run.visit(&check_of(&self.path));
        self.check(&check).await?;
        let site = self.site();
        let proposal = self.propose(&check, &site).await?;
        match self.ask(&check, &site, &proposal).await? {
            Some((cleared, earlier)) => self.perform(perform, &site, proposal, cleared, earlier.as_ref()).await,
            None => Ok(()),
        }
    }

    /// Refuses a call with unusable arguments, or a call that people rejected before.
    async fn check(&self, check: &str) -> Result<(), CallEnd> {
        if let Some(why) = recorded_refusal(self.run, self.turn, check, || self.has_continued()).await {
            return Err(self.end_of_refused(&why));
        }
        if let Some(why) = self.argument_problem(check) {
            let why = format!("the arguments do not fit the tool {}: {why}", self.tool.name);
            return Err(self.refuse(check, FailureClass::Arguments, &why).await);
        }
        if let Some(why) = earlier_rejection(self.run, self.turn.seen, &self.tool.name, &self.arguments) {
            return Err(CallEnd::result(refuse(self.run, self.turn, check, FailureClass::Refused, &why).await));
        }
        Ok(())
    }

    /// Renders the call. Refuses a call that cannot be rendered or that policies forbid.
    async fn propose(&self, check: &str, site: &ToolCallSite<'a>) -> Result<Proposal, CallEnd> {
        let render = || within(|| Part::step(check, 1), || propose(self.run, site, &self.arguments));
        let mut proposal = match self.run.render(render).await {
            Ok(proposal) => proposal,
            Err(why) => {
                let why = format!("{} cannot be called with these arguments: {why}", self.tool.name);
                let has_continued = self.has_continued();
                return Err(if has_continued {
                    self.end_of_refused(&why)
                } else {
                    self.refuse(check, FailureClass::Template, &why).await
                });
            }
        };
        // A forbidden call is refused before people are asked. If a gate or the step already has a record, the step
        // refuses the call when it starts.
        if !self.has_continued()
            && let Some(why) = &proposal.forbidden
        {
            return Err(self.refuse(check, FailureClass::NotAllowed, why).await);
        }
        proposal.equal = EqualCalls::of(self.run, self.turn, self.tool, &self.path, &proposal);
        Ok(proposal)
    }

    /// Asks people about the call. Returns the permission and the equal call that was made before, or `None` if people
    /// changed the arguments.
    async fn ask(
        &mut self,
        check: &str,
        site: &ToolCallSite<'a>,
        proposal: &Proposal,
    ) -> Result<Option<(Cleared, Option<StepRecord>)>, CallEnd> {
        let (run, turn, at) = (self.run, self.turn, self.at);
        if !std::mem::replace(&mut self.is_escalated, true)
            && let Some(answered) = escalate(run, turn, at, (site, check), proposal).await?
        {
            return Err(CallEnd::Answered(answered));
        }
        let mut gating = self.find_gates(check, site, proposal).await?;
        match ask(run, turn, at, site, proposal, &mut gating, &self.editors).await? {
            CallDecision::Approved => self.clear(site, proposal, &gating).map(Some),
            CallDecision::Answered(answered) => Err(CallEnd::Answered(answered.after(self.earlier_success()))),
            CallDecision::Edited(arguments, outcome) => {
                self.apply_edit(arguments, &outcome);
                Ok(None)
            }
        }
    }

    /// Performs the step of the tool. Returns `Ok` if another attempt needs an approval.
    async fn perform(
        &mut self,
        perform: PerformCall<'a>,
        site: &ToolCallSite<'a>,
        proposal: Proposal,
        cleared: Cleared,
        earlier: Option<&StepRecord>,
    ) -> Result<(), CallEnd> {
        let call = self.cleared_call(site, proposal, cleared);
        match perform(self.run, call).await? {
            Performed::Ended(result) => {
                let text = self.result_text(result, earlier).await?;
                Err(CallEnd::result(format!("{}{text}", self.note)))
            }
            // Every gate asks again about the next attempt.
            Performed::AskAgain(next) => {
                self.attempts = next;
                Ok(())
            }
        }
    }

    /// Whether the call continued after this check, so that it is not refused any more.
    fn has_continued(&self) -> bool {
        self.turn.is_answered || has_passed_check(self.run, self.tool, &self.path, self.attempts.next)
    }

    /// Returns the end of a refused call.
    fn end_of_refused(&self, why: &str) -> CallEnd {
        CallEnd::result(refusal_text(why, self.attempts, self.edited.is_some()))
    }

    /// Records the refusal of the call, and returns its end.
    async fn refuse(&self, check: &str, class: FailureClass, why: &str) -> CallEnd {
        let why = refuse(self.run, self.turn, check, class, why).await;
        self.end_of_refused(&why)
    }

    /// Returns the call as its templates and its gates see it.
    fn site(&self) -> ToolCallSite<'a> {
        ToolCallSite {
            tool: self.tool,
            path: self.path.clone(),
            scope: self.scope(),
            seen: self.turn.seen,
            attempts: self.attempts,
            edited: self.edited.clone(),
        }
    }

    /// Finds the gates that ask about the call. Ends the call if no gate asks and an equal call was made before.
    async fn find_gates(
        &self,
        check: &str,
        site: &ToolCallSite<'a>,
        proposal: &Proposal,
    ) -> Result<Gating<'a>, CallEnd> {
        let part = || Part::step(check, 1);
        let gating = self.run.render(|| within(part, || Gating::find(self.run, site, proposal))).await;
        let gating = gating.map_err(EarlyEnd::Failed)?;
        let step = &self.tool.step;
        let is_asked = gating.asks() || step.start.is_some() || !step.policy_gates.is_empty();
        match refuse_repeated(self.run, self.turn, site, check, proposal, is_asked).await? {
            Some(of_all) => Err(CallEnd::Answered(Answered::OfAllEqual(of_all))),
            None => Ok(gating),
        }
    }

    /// Returns the permission to perform the call that people approved, and the equal call that was made before.
    fn clear(
        &self,
        site: &ToolCallSite<'a>,
        proposal: &Proposal,
        gating: &Gating<'a>,
    ) -> Result<(Cleared, Option<StepRecord>), CallEnd> {
        let place = step_path(&self.path, self.tool);
        let earlier = proposal.equal.as_ref().and_then(|equal| {
            let began = self.run.state.borrow().journal.get(&place, self.attempts.next).map(|record| record.seq);
            equal.last_made_before(self.run, began.unwrap_or_else(|| next_seq(self.run)))
        });
        let is_repeated = earlier.is_some() || self.attempts.next > 1;
        let cleared = gating.clear(site, proposal, &self.editors, is_repeated);
        let not_cleared =
            || EarlyEnd::Failed("internal error; report this as a bug: a call was not cleared".to_owned());
        Ok((cleared.ok_or_else(not_cleared)?, earlier))
    }

    /// Replaces the arguments by the arguments that people gave. Notes the change for the request and for the model.
    fn apply_edit(&mut self, arguments: Arguments, outcome: &Outcome) {
        self.note = format!("A human changed the arguments. This ran: {}\n", arguments.text());
        let (editors, before) = (outcome.decided_by.join(", "), self.arguments.text());
        self.edited = Some(format!("this call, changed by {editors}; before: {before}"));
        self.arguments = arguments;
        self.editors.extend(outcome.actors().cloned());
    }

    /// Returns the call with everything that the gates before its step show.
    fn cleared_call(&self, site: &ToolCallSite<'a>, proposal: Proposal, cleared: Cleared) -> ClearedCall<'a> {
        let (tool, needs_people) = (self.tool, cleared.needs_people());
        let (call, given) =
            (CallOfTurn::of(self.turn, self.at, site), Some(shown::arguments_beginning(&self.arguments)));
        let describe = move |run: &Run<'a>, seq: Seq| {
            run.origins.note_edits(&editors::edits_of_call(run, &call.path, Seq::END)?);
            shown::describe_at_step(run, &call, tool, &proposal, (needs_people, seq))
        };
        let step_scope = StepScope { call: Some(Rc::new(describe)), given, ..site.scope.clone() };
        let path = step_path(&self.path, tool);
        ClearedCall { step_scope, step: &tool.step, path, attempts: self.attempts, seen: site.seen, cleared }
    }

    /// Returns the text that the model receives for the result of the step. `earlier` is the equal call that was made
    /// before.
    async fn result_text(&self, result: StepResult, earlier: Option<&StepRecord>) -> Result<String, EarlyEnd> {
        Ok(match (result, earlier) {
            (StepResult::Answered(text), _) => cut(&text),
            (StepResult::Failed(why), _) => format!("Error: {}", text::display(&why, 2000)),
            (StepResult::Skipped, Some(earlier)) => {
                earlier_result(self.run, earlier).await.map_err(EarlyEnd::Failed)?
            }
            (StepResult::Skipped, None) if self.attempts.next > 1 => NOT_APPROVED_AGAIN.to_owned(),
            (StepResult::Skipped, None) => "Skipped: the tool was left out".to_owned(),
        })
    }

    /// Returns a note for the model if an attempt succeeded before people decided about another attempt: a refusal of
    /// the other attempt does not concern the successful attempt.
    fn earlier_success(&self) -> Option<String> {
        let (state, before) = (self.run.state.borrow(), self.attempts.next - 1);
        let earlier = state.journal.get(&step_path(&self.path, self.tool), before)?;
        let succeeded = earlier.phase == StepPhase::Succeeded;
        succeeded.then(|| format!("[attempt {before} at this call succeeded; this is about a further one]"))
    }

    /// Returns the reason why the arguments do not match the schema of the tool. Each call is validated once.
    fn argument_problem(&self, check: &str) -> Option<String> {
        // Without an edit, arguments and schema can both come from the author of the Workflow.
        let is_authored = self.edited.is_none()
            && self.tool.defined_by == DefinedBy::Author
            && self.run.plan.is_scripted(self.turn.agent);
        let validate = || {
            if !is_authored {
                evaluation::record_foreign_text();
            }
            schema_problem(self.tool, &self.arguments)
        };
        let validate_in_part = || within(|| Part::step(check, 1), validate);
        self.run.plan.validated_answers.get_or_validate(check, &self.arguments.digest(), validate_in_part)
    }

    /// Returns the scope of the templates of the call, with `args`, `tool`, `effects`, `agent` and `agents`.
    fn scope(&self) -> StepScope<'a> {
        let (tool, args) = (self.tool, Value::Object(self.arguments.value().clone()));
        let (agent, agents) = (self.turn.agent.to_owned(), agents_around(self.run, self.turn));
        let own = StepScope::of(&format!("{}/", self.path), RecordNamespace::Nothing, [&tool.step]);
        let limit = self.turn.invocation.step_scope.limit.clone();
        let call = self.path.clone();
        let arguments = Some(Rc::new(self.arguments.value().clone()));
        let scope = StepScope { limit, arguments, ..own };
        scope.with_vars(move |run, wanted, _, scope| {
            if wanted.root("args") {
                run.origins.note_edits(&editors::edits_of_call(run, &call, Seq::END)?);
            }
            scope.set("args", args.clone());
            scope.set("tool", json!(tool.name));
            scope.set("effects", json!(tool.effects().name()));
            scope.set("agent", json!(agent));
            scope.set("agents", json!(agents));
            Ok(())
        })
    }
}

/// Returns the reason why arguments do not match the schema of their tool.
fn schema_problem(tool: &PlannedTool, arguments: &Arguments) -> Option<String> {
    match Schema::compile(&tool.parameters).map(|schema| schema.check(&Value::Object(arguments.value().clone()))) {
        Ok(Ok(())) => None,
        Ok(Err((place, problem))) => Some(text::display(&format!("{place} {problem}"), 400).trim().to_owned()),
        Err(why) => Some(why),
    }
}
