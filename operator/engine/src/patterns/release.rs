//! The release of a result: its outputs and files rendered, and people asked where a gate stands before them.
//!
//! Nothing of it leaves before they said yes.

use std::rc::Rc;

use serde_json::{Value, json};
use signoff_api::{
    Verdict,
    journal::{StepKind, StepPhase, StepRecord},
};

use super::{Done, Later, Shown, now, plain};
use crate::{
    activity::{Run, Trouble},
    evaluation::{Part, within},
    plan::{PlannedArtifact, PlannedStep, safe_path},
    scope::{self, Frame},
    steps::{self, Performed, Reviewed, Stop},
};

/// The name of the part that renders what is released.
const OUTPUTS: &str = ".outputs";

pub(super) async fn release<'a>(run: &Run<'a>, done: Done<'a>) -> Result<Shown, Stop> {
    let mut done = done;
    loop {
        let text = rendered(run, || text(run, &done)).await.map_err(|why| Stop::Failed(format!("outputs: {why}")))?;
        let Some(gate) = &run.plan.release else { return shown(run, &done, text).await };
        let output = text.clone();
        let frame = done.frame.giving(move |_, _, _, scope| {
            scope.set("output", json!(output));
            Ok(())
        });
        let what = Reviewed::of(".final", &text);
        let decided = steps::decide(run, &frame, gate, ".final", &|_| Ok(Some(what.clone()))).await?;
        match steps::or_stop(run, &decided, &[Verdict::Defer, Verdict::Retry])? {
            Verdict::Skip => return Ok(Shown { outputs: String::new(), artifacts: Vec::new() }),
            Verdict::Modify => {
                let parameters = decided.whole(run).await?.parameters.unwrap_or_default();
                let edited = parameters.0.get("response").cloned().unwrap_or(Value::Null);
                return shown(run, &done.replaced(edited.clone()), plain(&edited)).await;
            }
            Verdict::Respond => {
                let said = decided.whole(run).await?.response.unwrap_or_default();
                return shown(run, &done.replaced(json!(said)), said).await;
            }
            Verdict::Defer | Verdict::Retry => done = revised(run, done, &text, decided.record.done).await?,
            _ => return shown(run, &done, text).await,
        }
    }
}

/// What is released, rendered as one part: where values of others make it too costly, the run fails and is not set aside.
async fn rendered<T>(run: &Run<'_>, render: impl Fn() -> Result<T, Trouble>) -> Result<T, String> {
    let costly = run.books.borrow().costly.get(&(OUTPUTS.to_owned(), 1)).cloned();
    if let Some(why) = costly {
        return Err(why);
    }
    let part = || Part::step(OUTPUTS, 1);
    run.made(|| within(part, &render)).await
}

fn text<'a>(run: &Run<'a>, done: &Done<'a>) -> Result<String, Trouble> {
    let seq = now(run);
    match &run.plan.outputs {
        Some(template) => Ok(template.render(&scope::general(run, &done.frame, template.references(), seq)?)?),
        None => Ok(plain(&(done.result)(run, seq)?)),
    }
}

async fn shown<'a>(run: &Run<'a>, done: &Done<'a>, outputs: String) -> Result<Shown, Stop> {
    let render = || {
        let files: Vec<_> = run.plan.artifacts.iter().map(|artifact| file(run, &done.frame, artifact)).collect();
        scope::all(files)
    };
    let files = rendered(run, render).await.map_err(|why| Stop::Failed(format!("outputs.artifacts: {why}")))?;
    Ok(Shown { outputs, artifacts: files.into_iter().flatten().collect() })
}

/// The path and content of a file; none where it is left out.
fn file<'a>(run: &Run<'a>, frame: &Frame<'a>, artifact: &PlannedArtifact) -> Result<Option<(String, String)>, Trouble> {
    let mut wanted = artifact.path.references().clone();
    wanted.extend(artifact.from.references().iter().cloned());
    wanted.extend(artifact.skip_if.iter().flat_map(|condition| condition.references()));
    let scope = scope::general(run, frame, &wanted, now(run))?;
    // A condition without a value leaves nothing out.
    if artifact.skip_if.as_ref().is_some_and(|condition| condition.evaluate(&scope).unwrap_or(false)) {
        return Ok(None);
    }
    let path = artifact.path.render(&scope)?.trim().to_owned();
    safe_path(&path)
        .map_err(|why| Trouble::Invalid(format!("{}: {why}", crate::language::text::display(&path, 200))))?;
    Ok(Some((path, artifact.from.render(&scope)?)))
}

impl<'a> Done<'a> {
    /// The same end, with another result.
    fn replaced(&self, value: Value) -> Self {
        let result: Later<'a> = Rc::new(move |_, _| Ok(value.clone()));
        Self { frame: self.frame.clone(), result }.with_result()
    }
}

/// The last agent makes its answer anew; it hears what was said at the gate.
async fn revised<'a>(run: &Run<'a>, done: Done<'a>, text: &str, before: Option<i64>) -> Result<Done<'a>, Stop> {
    let spoke = |step: &&PlannedStep| {
        let books = run.books.borrow();
        let own = |r: &&StepRecord| r.kind == StepKind::Agent && r.phase == StepPhase::Succeeded && r.done < before;
        let mut records = books.journal.records().iter().filter(own);
        records.any(|record| run.plan.step_of(&record.path).is_some_and(|of| of.path == step.path))
    };
    // The last one as declared: who spoke last where several spoke at once is chance.
    let last = run.plan.pattern.steps().into_iter().rfind(spoke);
    let Some(step) = last.and_then(|step| run.plan.reviser_of(step)) else {
        return Err(Stop::Rejected("the final response cannot be made anew: no agent made it".to_owned()));
    };
    let output = text.to_owned();
    let frame = done.frame.giving(move |_, _, _, scope| {
        scope.set("output", json!(output));
        Ok(())
    });
    let frame = Frame { memory: ".revision".to_owned(), hears: Some(String::new()), ..frame };
    match steps::perform(run, &frame, step, ".revision", None).await? {
        Performed::Answered(answer) => Ok(done.replaced(json!(answer))),
        _ => Ok(done),
    }
}
