//! The calls that a repetition of a whole run would make again: those whose outcome is unknown, and those that
//! succeeded and must not be repeated.
//!
//! The callers decide whether a run is repeated.

use signoff_api::{
    RecordPath, Workflow, WorkflowSpec,
    journal::{FACT_UNKNOWN, StepKind, StepPhase, StepRecord},
    sent_method::SentMethod,
    step::Step,
    tool::{Effects, Tool},
};

use crate::text::one_line;

/// The most calls that a sentence names.
const MOST: usize = 5;

/// The calls that a repetition of a run would make again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repetition {
    /// The calls that may have had an effect.
    unknown: Vec<String>,
    /// The calls that succeeded and must not be repeated.
    done: Vec<String>,
    /// The number of records that could not be read.
    unread: i64,
    /// Whether the run is a copy from a backup without its old status.
    is_lost: bool,
}

impl Repetition {
    /// Returns the calls of a run. Segments that could not be read are still in `status.segments`.
    #[must_use]
    pub fn of(workflow: &Workflow) -> Self {
        let mut found = Self::default();
        let Some(status) = &workflow.status else { return found };
        found.unread = status.segments.iter().map(|segment| i64::from(segment.records)).sum();
        for record in &status.steps {
            let name = || match record.attempt {
                ..=1 => one_line(&record.path, 253),
                attempt => format!("{} (attempt {attempt})", one_line(&record.path, 253)),
            };
            if is_unknown(record) {
                found.unknown.push(name());
            } else if record.phase == StepPhase::Succeeded && must_not_be_repeated(workflow, record) {
                found.done.push(name());
            }
        }
        found
    }

    /// Returns the calls of a restored run, by its status in the backup. Calls that were in flight at the time of the
    /// backup may have had an effect too.
    #[must_use]
    pub fn of_restored(backup: Option<&Workflow>) -> Self {
        let Some((old, status)) = backup.and_then(|old| Some((old, old.status.as_ref()?))) else {
            return Self { is_lost: true, ..Self::default() };
        };
        let mut found = Self::of(old);
        let in_flight = status.steps.iter().filter(|record| record.phase == StepPhase::Started);
        found.unknown.extend(
            in_flight.filter(|record| must_not_be_repeated(old, record)).map(|record| one_line(&record.path, 253)),
        );
        found
    }

    /// Returns the reason why the run must not be repeated before people have checked its calls, or `None`. The
    /// sentence has no full stop.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        if self.is_lost {
            return Some(
                "it is a copy from a backup without its status, so it is not known what it has done: check by hand"
                    .to_owned(),
            );
        }
        match (self.unknown.as_slice(), self.unread) {
            ([], 0) => None,
            ([], unread) => Some(format!(
                "{unread} records of the run cannot be read, so it is not known which of its calls had an effect: check by hand what it has done"
            )),
            (unknown, _) => {
                Some(format!("the outcome of {} is unknown: check by hand what it has done", name_list(unknown)))
            }
        }
    }

    /// Returns the calls that would be made again although they succeeded and must not be repeated, as a sentence
    /// without its full stop, or `None`.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let has_done = !self.done.is_empty();
        has_done.then(|| {
            format!("every step runs again, also {}, which succeeded and must not be repeated", name_list(&self.done))
        })
    }
}

fn name_list(all: &[String]) -> String {
    let shown = all.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    if all.len() > MOST { format!("{shown} and {} more", all.len() - MOST) } else { shown }
}

/// Whether a call may have had an effect although it has no result.
fn is_unknown(record: &StepRecord) -> bool {
    let may_be_done = record.facts.get(FACT_UNKNOWN).is_some_and(|value| value == "true");
    record.phase == StepPhase::Unknown || (record.phase.is_end() && may_be_done)
}

/// Whether a call must not be made twice, by the kind and the method of its step, or by the effects of its tool.
fn must_not_be_repeated(workflow: &Workflow, record: &StepRecord) -> bool {
    let path = RecordPath::new(&record.path);
    let name = path.last().name();
    let is_call = path.parent().is_some_and(RecordPath::is_in_call);
    let spec = &workflow.spec;
    // The step of a tool of a server has the name of the tool.
    if let (StepKind::Mcp, true, Some((server, tool))) = (record.kind, is_call, name.split_once('.')) {
        return !spec.servers.iter().any(|known| known.name == server && known.reads(tool));
    }
    spec.steps.iter().filter(|step| step.name == name).any(|step| {
        let of_step = |tool: &&Tool| is_call && tool.step == step.name;
        changes_something(spec, step, record.kind)
            || spec.tools.iter().filter(of_step).any(|tool| {
                is_call_kind(record.kind)
                    && tool.effects_of(step).is_none_or(|effects| effects == Effects::Irreversible)
            })
    })
}

/// Whether records of this kind are calls.
fn is_call_kind(kind: StepKind) -> bool {
    matches!(kind, StepKind::Http | StepKind::Mcp | StepKind::Pod | StepKind::Agent)
}

fn changes_something(spec: &WorkflowSpec, step: &Step, kind: StepKind) -> bool {
    if let (StepKind::Mcp, Some(mcp)) = (kind, &step.mcp) {
        return !spec.servers.iter().any(|server| server.name == mcp.server && server.reads(&mcp.tool));
    }
    match (kind, &step.http, &step.pod) {
        (StepKind::Http, Some(http), _) => !(http.is_idempotent() && SentMethod::of_step(http).is_idempotent()),
        (StepKind::Pod, _, Some(pod)) => !pod.is_idempotent(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn record(path: &str, kind: &str, phase: &str, facts: &Value) -> Value {
        json!({"path": path, "attempt": 1, "kind": kind, "phase": phase, "seq": 1, "at": "2026-11-22T10:00:00Z", "facts": facts})
    }

    fn repetition_of(records: Value, segments: &Value) -> Repetition {
        Repetition::of(&workflow(records, segments))
    }

    fn workflow(records: Value, segments: &Value) -> Workflow {
        let workflow = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
            "spec": {
                "requestedBy": "dana",
                "tools": [
                    {"name": "find", "step": "find", "description": "Finds.", "effects": "read"},
                    {"name": "guess", "step": "guess", "description": "Guesses."},
                ],
                "steps": [
                    {"name": "pay", "http": {"method": "POST", "url": "http://x/"}},
                    {"name": "again", "http": {"method": "POST", "url": "http://x/", "idempotent": true}},
                    {"name": "look", "http": {"url": "http://x/"}},
                    {"name": "build", "pod": {"image": "a"}},
                    {"name": "clean", "pod": {"image": "a", "idempotent": true}},
                    {"name": "find", "http": {"url": "http://x/"}},
                    {"name": "guess", "http": {"url": "http://x/"}},
                    {"name": "text", "set": {"value": "x"}},
                ],
            },
            "status": {"steps": records, "segments": segments},
        });
        serde_json::from_value(workflow).unwrap()
    }

    fn succeeded(path: &str, kind: &str) -> Repetition {
        repetition_of(json!([record(path, kind, "Succeeded", &json!({}))]), &json!([]))
    }

    #[test]
    fn a_call_whose_outcome_is_unknown_forbids_the_repetition_and_is_named() {
        for record in [
            record("pay", "http", "Unknown", &json!({})),
            record("pay", "http", "Failed", &json!({"outcomeUnknown": "true"})),
        ] {
            let found = repetition_of(json!([record]), &json!([]));
            assert_eq!(found.refusal().unwrap(), "the outcome of pay is unknown: check by hand what it has done");
        }
        let known = repetition_of(json!([record("pay", "http", "Failed", &json!({}))]), &json!([]));
        assert_eq!((known.refusal(), known.warning()), (None, None));
    }

    #[test]
    fn records_that_cannot_be_read_forbid_the_repetition() {
        let segment = json!([{"digest": format!("sha256:{}", "0".repeat(64)), "size": 9, "records": 7, "through": 9}]);
        assert!(
            repetition_of(json!([]), &segment).refusal().unwrap().starts_with("7 records of the run cannot be read")
        );
    }

    #[test]
    fn calls_that_succeeded_are_warned_about_by_kind_method_and_effects() {
        let call = "handle/.turn-1/.call-1";
        for (path, kind) in [
            ("pay", "http"),
            ("again", "http"),
            ("build", "pod"),
            ("pay#2", "http"),
            (&*format!("{call}/pay"), "http"),
            (&*format!("{call}/guess"), "http"),
        ] {
            let found = succeeded(path, kind);
            assert_eq!(found.refusal(), None, "{path}");
            assert!(found.warning().unwrap().contains(&format!("also {path}, which succeeded")), "{path}");
        }
        for (path, kind) in
            [("look", "http"), ("clean", "pod"), ("text", "set"), (&*format!("{call}/find"), "http"), ("pay", "hitl")]
        {
            assert_eq!(succeeded(path, kind).warning(), None, "{path}");
        }
    }

    #[test]
    fn a_restored_run_is_judged_by_its_status_in_the_backup() {
        let lost = Repetition::of_restored(None).refusal().unwrap();
        assert!(lost.contains("without its status"), "{lost}");
        let backup = |record: Value| Repetition::of_restored(Some(&workflow(json!([record]), &json!([]))));
        let in_flight = backup(record("pay", "http", "Started", &json!({})));
        assert_eq!(in_flight.refusal().unwrap(), "the outcome of pay is unknown: check by hand what it has done");
        assert_eq!(backup(record("look", "http", "Started", &json!({}))).refusal(), None);
        let paid = backup(record("pay", "http", "Succeeded", &json!({})));
        assert_eq!(paid.refusal(), None);
        assert!(paid.warning().unwrap().contains("also pay, which succeeded"));
    }

    #[test]
    fn a_sentence_names_few_calls_and_counts_the_others() {
        let records: Vec<_> = (1..=7).map(|at| record(&format!("b{at}/pay"), "http", "Unknown", &json!({}))).collect();
        let why = repetition_of(Value::Array(records), &json!([])).refusal().unwrap();
        assert!(why.contains("b5/pay and 2 more is unknown"), "{why}");
    }
}
