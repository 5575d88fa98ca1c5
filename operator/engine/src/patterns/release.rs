//! The release of a result: render outputs -> ask the author's gate -> revise -> render outputs and files -> ask the
//! gates of policies -> release.
//!
//! **Invariant:** the released files have the digest that every gate of a policy approved.

use serde_json::{Value, json};
use signoff_api::{
    Digest, Seq, Verdict,
    journal::{StepKind, StepPhase, StepRecord},
};
use signoff_expr::text::display;

use super::{PatternResult, RunResult, lazy_constant, next_seq, origins_of_answer, render_exact, render_plain};
use crate::{
    evaluation::{Part, within},
    plan::{PlannedArtifact, PlannedStep, check_artifact_path},
    replay::{
        origins::Origins,
        run::{RenderError, Run},
        scope::{self, StepScope},
    },
    steps::{self, EarlyEnd, StepResult, excerpt::Fields, request::ReviewSubject},
};

/// The name of the part that renders the release.
const OUTPUTS: &str = ".outputs";

/// The first line of the release in the requests of policies.
const RELEASED: &str = "# this is released once it is approved, and nothing else";

/// The outputs that the gates of policies review.
#[derive(Clone)]
enum Outputs {
    /// The text that the template renders.
    Rendered(String),
    /// The text that a person wrote.
    Written(String),
    /// No outputs and no files, because people skipped the release.
    Withheld,
}

pub(super) async fn release<'a>(run: &Run<'a>, pattern: PatternResult<'a>) -> Result<RunResult, EarlyEnd> {
    let mut pattern = pattern;
    loop {
        let (text, origins) = render_part(run, || render_outputs(run, &pattern, next_seq(run)))
            .await
            .map_err(|why| EarlyEnd::Failed(format!("outputs: {why}")))?;
        let Some(gate) = &run.plan.release else {
            return ask_end_gates(run, &pattern, Outputs::Rendered(text)).await;
        };
        let step_scope = with_output(&pattern.step_scope, &text, &origins);
        let subject = ReviewSubject::of(".final", &text).made_of(origins.clone());
        let decided = steps::decide(run, &step_scope, gate, ".final", &|_| Ok(Some(subject.clone()))).await?;
        let origins_of_edit = async || Ok(Origins::of(decided.edit_of(run, &text).await?).and(&origins));
        match steps::verdict_or_end(run, &decided, &[Verdict::Defer, Verdict::Retry])? {
            Verdict::Skip => return ask_end_gates(run, &pattern, Outputs::Withheld).await,
            Verdict::Modify => {
                let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
                let edited = parameters.0.get("response").cloned().unwrap_or(Value::Null);
                let pattern = pattern.with_other_result(edited.clone(), origins_of_edit().await?);
                return ask_end_gates(run, &pattern, Outputs::Written(render_plain(&edited))).await;
            }
            Verdict::Respond => {
                let response = decided.full_outcome(run).await?.response.unwrap_or_default();
                let pattern = pattern.with_other_result(json!(response), origins_of_edit().await?);
                return ask_end_gates(run, &pattern, Outputs::Written(response)).await;
            }
            Verdict::Defer | Verdict::Retry => pattern = revise(run, pattern, step_scope, decided.record.done).await?,
            _ => return ask_end_gates(run, &pattern, Outputs::Rendered(text)).await,
        }
    }
}

/// Returns the scope with `output`, the text to be released.
fn with_output<'a>(step_scope: &StepScope<'a>, text: &str, origins: &Origins) -> StepScope<'a> {
    let (output, origins) = (text.to_owned(), origins.clone());
    step_scope.with_vars(move |run, wanted, _, scope| {
        if wanted.root("output") {
            run.origins.note(&origins);
        }
        scope.set("output", json!(output));
        Ok(())
    })
}

/// Asks the gates that policies put at the end, one after the other, until all of them have approved the same release.
///
/// All gates see the rendering as of the number of the first request.
async fn ask_end_gates<'a>(
    run: &Run<'a>,
    pattern: &PatternResult<'a>,
    outputs: Outputs,
) -> Result<RunResult, EarlyEnd> {
    let Some(first) = run.plan.end.first() else { return Ok(render_release(run, pattern, outputs, None).await?.0) };
    loop {
        let visit = run.next_visit(&first.path);
        let first_request = run.state.borrow().journal.get(&visit, 1).map(|record| record.seq);
        let seq = first_request.unwrap_or_else(|| next_seq(run));
        let (release, origins) = render_release(run, pattern, outputs.clone(), Some(seq)).await?;
        let digest = release.digest().map_err(EarlyEnd::Failed)?;
        let subject = run.render(|| Ok(release.to_review_subject(&digest)?.made_of(origins.clone()))).await;
        let subject = subject.map_err(EarlyEnd::Failed)?;
        let mut is_approved = true;
        for gate in &run.plan.end {
            let decided =
                steps::pass(run, &pattern.step_scope, gate, &gate.path, &|_| Ok(Some(subject.clone()))).await?;
            // An approval with another digest does not count: an earlier version showed less than is released.
            let is_about_release = |decided: &steps::DecidedGate| {
                decided.was_not_asked() || decided.record.input_digest.as_ref() == Some(&digest)
            };
            if !decided.as_ref().is_none_or(is_about_release) {
                is_approved = false;
                break;
            }
        }
        if is_approved {
            return Ok(release);
        }
    }
}

impl RunResult {
    /// Returns the digest of the whole release.
    fn digest(&self) -> Result<Digest, String> {
        Digest::of(&json!({"outputs": self.outputs, "artifacts": self.artifacts})).map_err(|why| why.to_string())
    }

    /// Returns the outputs and all files as the subject of a review, bound by their digest.
    fn to_review_subject(&self, digest: &Digest) -> Result<ReviewSubject, RenderError> {
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

/// Renders a value of the release, and returns the value with its origins. If values of models or people make it too
/// costly, the run fails and is not quarantined.
async fn render_part<T>(run: &Run<'_>, render: impl Fn() -> Result<T, RenderError>) -> Result<(T, Origins), String> {
    let costly = run.state.borrow().costly.get(&(OUTPUTS.to_owned(), 1)).cloned();
    if let Some(why) = costly {
        return Err(why);
    }
    let part = || Part::step(OUTPUTS, 1);
    let render = || {
        let (value, origins) = run.origins.collect(|| within(part, &render));
        Ok((value?, origins))
    };
    run.render(render).await
}

fn render_outputs<'a>(run: &Run<'a>, pattern: &PatternResult<'a>, seq: Seq) -> Result<String, RenderError> {
    match &run.plan.outputs {
        Some(template) => {
            Ok(template.render(&scope::general(run, &pattern.step_scope, template.references(), seq)?)?)
        }
        None => render_exact(&(pattern.result)(run, seq)?),
    }
}

/// Renders the release, and returns it with its origins. `seq`: the number of the journal as of which the release is
/// rendered; `None` for the newest number, in a run without gates of policies at its end.
async fn render_release<'a>(
    run: &Run<'a>,
    pattern: &PatternResult<'a>,
    outputs: Outputs,
    seq: Option<Seq>,
) -> Result<(RunResult, Origins), EarlyEnd> {
    let (outputs, origins_of_outputs) = match (outputs, seq) {
        (Outputs::Withheld, _) => {
            let nothing = RunResult { outputs: String::new(), artifacts: Vec::new(), left_out: Vec::new() };
            return Ok((nothing, Origins::default()));
        }
        // The gates review the rendering as of `seq`, so the text is rendered again.
        (Outputs::Rendered(_), Some(seq)) => {
            let text = render_part(run, || render_outputs(run, pattern, seq)).await;
            text.map_err(|why| EarlyEnd::Failed(format!("outputs: {why}")))?
        }
        // Without a gate the origins are not used.
        (Outputs::Rendered(text), None) => (text, Origins::default()),
        // The text is already rendered. Its origins are those of the result, which is the text of the person.
        (Outputs::Written(text), _) => {
            let seq = seq.unwrap_or_else(|| next_seq(run));
            let origins = run.render(|| run.origins.collect_only(|| (pattern.result)(run, seq))).await;
            (text, origins.map_err(EarlyEnd::Failed)?)
        }
    };
    let render = || {
        let seq = seq.unwrap_or_else(|| next_seq(run));
        let render_file = |artifact: &PlannedArtifact| render_artifact(run, &pattern.step_scope, artifact, seq);
        scope::all(run.plan.artifacts.iter().map(render_file).collect())
    };
    let (files, origins_of_files) =
        render_part(run, render).await.map_err(|why| EarlyEnd::Failed(format!("outputs.artifacts: {why}")))?;
    let mut result = RunResult { outputs, artifacts: Vec::new(), left_out: Vec::new() };
    for file in files {
        match file {
            File::Rendered(path, content) => result.artifacts.push((path, content)),
            File::Skipped => {}
            File::Undecided(why) => result.left_out.push(why),
        }
    }
    Ok((result, origins_of_files.and(&origins_of_outputs)))
}

/// A rendered artifact.
enum File {
    /// The path and the content.
    Rendered(String, String),
    Skipped,
    /// Skipped, because the condition cannot be evaluated.
    Undecided(String),
}

/// Renders the path and the content of an artifact, unless its condition skips it.
fn render_artifact<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    artifact: &PlannedArtifact,
    seq: Seq,
) -> Result<File, RenderError> {
    if let Some(condition) = &artifact.skip_if {
        let scope = run.origins.ignore(|| scope::general(run, step_scope, &condition.references(), seq))?;
        match condition.evaluate(&scope) {
            Ok(true) => return Ok(File::Skipped),
            Err(why) => {
                let named = run.origins.ignore(|| scope::general(run, step_scope, artifact.path.references(), seq))?;
                // If the path cannot be rendered either, the artifact is named by the text of the author.
                let path = artifact.path.render(&named).unwrap_or_else(|_| artifact.path.source().to_owned());
                return Ok(File::Undecided(format!("{} ({why})", display(path.trim(), 200))));
            }
            Ok(false) => {}
        }
    }
    let mut wanted = artifact.path.references().clone();
    wanted.extend(artifact.from.references().iter().cloned());
    let scope = scope::general(run, step_scope, &wanted, seq)?;
    let path = artifact.path.render(&scope)?.trim().to_owned();
    check_artifact_path(&path).map_err(|why| RenderError::Invalid(format!("{}: {why}", display(&path, 200))))?;
    Ok(File::Rendered(path, artifact.from.render(&scope)?))
}

impl<'a> PatternResult<'a> {
    /// Returns a copy with another result, which is also `last_response`.
    fn with_other_result(&self, value: Value, origins: Origins) -> Self {
        Self { step_scope: self.step_scope.clone(), result: lazy_constant(value, origins) }.with_result()
    }
}

/// Runs the last agent again that answered before `before`, with the feedback of the gate. Without such an agent the
/// run is rejected. `step_scope` contains `output`.
async fn revise<'a>(
    run: &Run<'a>,
    pattern: PatternResult<'a>,
    step_scope: StepScope<'a>,
    before: Option<Seq>,
) -> Result<PatternResult<'a>, EarlyEnd> {
    let has_answered = |step: &&PlannedStep| {
        let state = run.state.borrow();
        let is_answer = |record: &&StepRecord| {
            record.kind == StepKind::Agent && record.phase == StepPhase::Succeeded && record.done < before
        };
        let mut records = state.journal.records().iter().filter(is_answer);
        records.any(|record| run.plan.step_of(&record.path).is_some_and(|planned| planned.path == step.path))
    };
    // The last one in the order of declaration, because the order in which parallel agents end is random.
    let last_agent = run.plan.pattern.steps().into_iter().rfind(has_answered);
    let Some(step) = last_agent.and_then(|step| run.plan.reviser_of(step)) else {
        return Err(EarlyEnd::Rejected("the final response cannot be written again: no agent wrote it".to_owned()));
    };
    let step_scope =
        StepScope { conversation: ".revision".to_owned(), feedback_from: Some(String::new()), ..step_scope };
    match steps::perform(run, &step_scope, step, ".revision", None).await? {
        StepResult::Answered(answer) => {
            let origins = origins_of_answer(run, &step_scope, step, ".revision").await?;
            Ok(pattern.with_other_result(json!(answer), origins))
        }
        _ => Ok(pattern),
    }
}
