//! The release of a result: render outputs -> ask the author's gate -> revise -> render outputs and files -> ask the
//! gates of policies -> release.
//!
//! Must not release anything but what has the digest that every gate of a policy approved.

use std::rc::Rc;

use serde_json::{Value, json};
use signoff_api::{
    Digest, Verdict,
    approval::Edit,
    journal::{StepKind, StepPhase, StepRecord},
};
use signoff_expr::text::display;

use super::{LazyValue, PatternResult, RunResult, edits_of, known_edits, next_seq, plain, plain_text};
use crate::{
    evaluation::{Part, within},
    plan::{PlannedArtifact, PlannedStep, safe_path},
    replay::{
        run::{RenderError, Run},
        scope::{
            self, StepScope,
            editors::{self, EditsAt},
        },
    },
    steps::{self, EarlyEnd, StepResult, excerpt::Fields, request::ReviewSubject},
};

/// The name of the part that renders what is released.
const OUTPUTS: &str = ".outputs";

/// The first line of what the people of a policy are shown.
const RELEASED: &str = "# this is released once it is approved, and nothing else";

/// The outputs that the gates of policies are asked about.
#[derive(Clone)]
enum Outputs {
    /// As their template renders them.
    Rendered(String),
    /// As a person wrote them.
    Written(String),
    /// None, and no files: people skipped the release.
    Withheld,
}

pub(super) async fn release<'a>(run: &Run<'a>, done: PatternResult<'a>) -> Result<RunResult, EarlyEnd> {
    let mut done = done;
    loop {
        let text = rendered(run, || text(run, &done, next_seq(run)))
            .await
            .map_err(|why| EarlyEnd::Failed(format!("outputs: {why}")))?;
        let Some(gate) = &run.plan.release else {
            return approved(run, &done, Outputs::Rendered(text)).await;
        };
        let output = text.clone();
        let step_scope = done.step_scope.with_vars(move |_, _, _, scope| {
            scope.set("output", json!(output));
            Ok(())
        });
        let what = ReviewSubject::of(".final", &text);
        let before = |seq| edits_of_outputs(run, &done, &Outputs::Rendered(String::new()), seq);
        let subject = |seq| Ok(Some(what.clone().changed_by(before(seq)?)));
        let decided = steps::decide(run, &step_scope, gate, ".final", &subject).await?;
        let edits = || async {
            let before = run.render(|| before(decided.record.seq)).await.map_err(EarlyEnd::Failed)?;
            Ok(known_edits([vec![decided.edit_of(run, &text).await?], before].concat()))
        };
        match steps::verdict_or_end(run, &decided, &[Verdict::Defer, Verdict::Retry])? {
            Verdict::Skip => return approved(run, &done, Outputs::Withheld).await,
            Verdict::Modify => {
                let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
                let edited = parameters.0.get("response").cloned().unwrap_or(Value::Null);
                let done = done.replaced(edited.clone(), edits().await?);
                return approved(run, &done, Outputs::Written(plain_text(&edited))).await;
            }
            Verdict::Respond => {
                let said = decided.full_outcome(run).await?.response.unwrap_or_default();
                let done = done.replaced(json!(said), edits().await?);
                return approved(run, &done, Outputs::Written(said)).await;
            }
            Verdict::Defer | Verdict::Retry => done = revised(run, done, &text, decided.record.done).await?,
            _ => return approved(run, &done, Outputs::Rendered(text)).await,
        }
    }
}

/// Asks the gates that policies put at the end, one after the other, until all of them have approved the same release.
///
/// All of them see one rendering: it is fixed by the number at which the first of them asked.
async fn approved<'a>(run: &Run<'a>, done: &PatternResult<'a>, outputs: Outputs) -> Result<RunResult, EarlyEnd> {
    let Some(first) = run.plan.end.first() else { return shown(run, done, outputs, None).await };
    loop {
        let asked = run.next_visit(&first.path);
        let begun = run.state.borrow().journal.get(&asked, 1).map(|record| record.seq);
        let seq = begun.unwrap_or_else(|| next_seq(run));
        let shown = shown(run, done, outputs.clone(), Some(seq)).await?;
        let digest = shown.digest().map_err(EarlyEnd::Failed)?;
        let what =
            run.render(|| Ok(shown.reviewed(&digest)?.changed_by(edits_of_release(run, done, &outputs, seq)?))).await;
        let what = what.map_err(EarlyEnd::Failed)?;
        let mut is_approved = true;
        for gate in &run.plan.end {
            let decided = steps::pass(run, &done.step_scope, gate, &gate.path, &|_| Ok(Some(what.clone()))).await?;
            // An approval of something else counts for nothing: an earlier version asked about less than is released.
            let is_this =
                |one: &steps::DecidedGate| one.was_not_asked() || one.record.input_digest.as_ref() == Some(&digest);
            if !decided.as_ref().is_none_or(is_this) {
                is_approved = false;
                break;
            }
        }
        if is_approved {
            return Ok(shown);
        }
    }
}

impl RunResult {
    /// The digest of everything that is released.
    fn digest(&self) -> Result<Digest, String> {
        Digest::of(&json!({"outputs": self.outputs, "artifacts": self.artifacts})).map_err(|why| why.to_string())
    }

    /// The outputs and every file, bound by their digest.
    fn reviewed(&self, digest: &Digest) -> Result<ReviewSubject, RenderError> {
        let mut files = serde_json::Map::new();
        for (path, content) in &self.artifacts {
            let mut name = path.clone();
            while files.contains_key(&name) {
                name.push_str(" (once more)");
            }
            files.insert(name, json!(content));
        }
        let fields = Fields::of(&json!({"outputs": self.outputs, "artifacts": files}), &["outputs"], "outputs")?;
        Ok(ReviewSubject::bound(OUTPUTS, RELEASED, &fields, digest.clone()))
    }
}

/// Renders the release as one part: where values of others make it too costly, the run fails and is not quarantined.
async fn rendered<T>(run: &Run<'_>, render: impl Fn() -> Result<T, RenderError>) -> Result<T, String> {
    let costly = run.state.borrow().costly.get(&(OUTPUTS.to_owned(), 1)).cloned();
    if let Some(why) = costly {
        return Err(why);
    }
    let part = || Part::step(OUTPUTS, 1);
    run.render(|| within(part, &render)).await
}

fn text<'a>(run: &Run<'a>, done: &PatternResult<'a>, seq: i64) -> Result<String, RenderError> {
    match &run.plan.outputs {
        Some(template) => Ok(template.render(&scope::general(run, &done.step_scope, template.references(), seq)?)?),
        None => plain(&(done.result)(run, seq)?),
    }
}

/// Returns the edits of the values from which the outputs are made, newest first.
fn edits_of_outputs<'a>(
    run: &Run<'a>,
    done: &PatternResult<'a>,
    outputs: &Outputs,
    seq: i64,
) -> Result<Vec<Edit>, RenderError> {
    match (outputs, &run.plan.outputs) {
        (Outputs::Rendered(_), Some(template)) => editors::of_values(run, &done.step_scope, template.references(), seq),
        (Outputs::Rendered(_), None) | (Outputs::Written(_), _) => (done.edits)(run, seq),
        (Outputs::Withheld, _) => Ok(Vec::new()),
    }
}

/// The same of the outputs and of the files.
fn edits_of_release<'a>(
    run: &Run<'a>,
    done: &PatternResult<'a>,
    outputs: &Outputs,
    seq: i64,
) -> Result<Vec<Edit>, RenderError> {
    let mut edits = edits_of_outputs(run, done, outputs, seq)?;
    if !matches!(outputs, Outputs::Withheld) {
        let files = &run.plan.artifacts;
        let wanted = files.iter().flat_map(|file| file.path.references().iter().chain(file.from.references()));
        edits.extend(editors::of_values(run, &done.step_scope, &wanted.cloned().collect(), seq)?);
    }
    Ok(editors::newest_first(run, edits))
}

/// Returns the release; `seq`: as of this number of the journal, where that is fixed.
async fn shown<'a>(
    run: &Run<'a>,
    done: &PatternResult<'a>,
    outputs: Outputs,
    seq: Option<i64>,
) -> Result<RunResult, EarlyEnd> {
    let outputs = match (outputs, seq) {
        (Outputs::Withheld, _) => {
            return Ok(RunResult { outputs: String::new(), artifacts: Vec::new(), left_out: Vec::new() });
        }
        (Outputs::Rendered(_), Some(seq)) => {
            let text = rendered(run, || text(run, done, seq)).await;
            text.map_err(|why| EarlyEnd::Failed(format!("outputs: {why}")))?
        }
        (Outputs::Rendered(text) | Outputs::Written(text), _) => text,
    };
    let render = || {
        let seq = seq.unwrap_or_else(|| next_seq(run));
        let files: Vec<_> =
            run.plan.artifacts.iter().map(|artifact| file(run, &done.step_scope, artifact, seq)).collect();
        scope::all(files)
    };
    let files = rendered(run, render).await.map_err(|why| EarlyEnd::Failed(format!("outputs.artifacts: {why}")))?;
    let mut result = RunResult { outputs, artifacts: Vec::new(), left_out: Vec::new() };
    for file in files {
        match file {
            File::Rendered(path, content) => result.artifacts.push((path, content)),
            File::Skipped => {}
            File::Undecided(why) => result.left_out.push(why),
        }
    }
    Ok(result)
}

/// A rendered artifact.
enum File {
    /// Its path and content.
    Rendered(String, String),
    Skipped,
    /// Left out, because its condition cannot be evaluated.
    Undecided(String),
}

/// Renders an artifact.
fn file<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    artifact: &PlannedArtifact,
    seq: i64,
) -> Result<File, RenderError> {
    let mut wanted = artifact.path.references().clone();
    wanted.extend(artifact.from.references().iter().cloned());
    wanted.extend(artifact.skip_if.iter().flat_map(|condition| condition.references()));
    let scope = scope::general(run, step_scope, &wanted, seq)?;
    match artifact.skip_if.as_ref().map(|condition| condition.evaluate(&scope)) {
        Some(Ok(true)) => return Ok(File::Skipped),
        Some(Err(why)) => {
            // A path that has no text either is named as the author wrote it.
            let path = artifact.path.render(&scope).unwrap_or_else(|_| artifact.path.source().to_owned());
            return Ok(File::Undecided(format!("{} ({why})", display(path.trim(), 200))));
        }
        Some(Ok(false)) | None => {}
    }
    let path = artifact.path.render(&scope)?.trim().to_owned();
    safe_path(&path).map_err(|why| RenderError::Invalid(format!("{}: {why}", display(&path, 200))))?;
    Ok(File::Rendered(path, artifact.from.render(&scope)?))
}

impl<'a> PatternResult<'a> {
    /// The same end, with another result.
    fn replaced(&self, value: Value, edits: EditsAt<'a>) -> Self {
        let result: LazyValue<'a> = Rc::new(move |_, _| Ok(value.clone()));
        Self { step_scope: self.step_scope.clone(), result, edits }.with_result()
    }
}

/// The last agent makes its answer anew; it hears what was said at the gate.
async fn revised<'a>(
    run: &Run<'a>,
    done: PatternResult<'a>,
    text: &str,
    before: Option<i64>,
) -> Result<PatternResult<'a>, EarlyEnd> {
    let spoke = |step: &&PlannedStep| {
        let state = run.state.borrow();
        let own = |r: &&StepRecord| r.kind == StepKind::Agent && r.phase == StepPhase::Succeeded && r.done < before;
        let mut records = state.journal.records().iter().filter(own);
        records.any(|record| run.plan.step_of(&record.path).is_some_and(|of| of.path == step.path))
    };
    // The last one as declared: who spoke last where several spoke at once is chance.
    let last = run.plan.pattern.steps().into_iter().rfind(spoke);
    let Some(step) = last.and_then(|step| run.plan.reviser_of(step)) else {
        return Err(EarlyEnd::Rejected("the final response cannot be written again: no agent wrote it".to_owned()));
    };
    let output = text.to_owned();
    let step_scope = done.step_scope.with_vars(move |_, _, _, scope| {
        scope.set("output", json!(output));
        Ok(())
    });
    let step_scope =
        StepScope { conversation: ".revision".to_owned(), feedback_from: Some(String::new()), ..step_scope };
    match steps::perform(run, &step_scope, step, ".revision", None).await? {
        StepResult::Answered(answer) => {
            let edits = known_edits(edits_of(run, &step_scope, step, ".revision").await?);
            Ok(done.replaced(json!(answer), edits))
        }
        _ => Ok(done),
    }
}
