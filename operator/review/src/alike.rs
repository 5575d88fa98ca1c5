//! Requests of equal gates: the same gate and quorums, in runs whose specs differ in values of inputs only.
//!
//! request -> key of its gate *(pure)*; run *(I/O)* -> shape of its spec *(pure)*.

use kube::{
    Api, Client,
    core::{Request, params::GetParams},
};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use signoff_api::{Approval, Digest, RecordPath, Workflow, WorkflowSpec, names};
use signoff_engine::plan::spec_digest;

use crate::{
    brief,
    seen::{RunFound, RunNow},
};

/// The fields of a spec that differ between equal runs: the requester, and the fields that can change during a run.
const OF_ONE_RUN: [&str; 5] = ["requestedBy", "requestedFor", "suspend", "cancel", "ttlAfterFinished"];
/// The hex digits of a key.
const DIGITS: usize = 16;
/// The longest line with the values of the inputs of a run, in characters.
const INPUTS: usize = 300;

/// Returns the digest of the gate of a request. Equal gates with equal quorums in one namespace have equal digests. The
/// gate of a call is identified by its agent, its tool and its place in the Workflow, because its path has the numbers
/// of the turn and of the call.
#[must_use]
pub fn gate(approval: &Approval) -> Digest {
    let request = &approval.spec.request;
    let place = match &request.action {
        Some(action) => {
            let place = RecordPath::new(&request.gate.path).place().into_string();
            json!([action.kind, action.agent, action.tool, place])
        }
        None => json!(request.gate.path),
    };
    let gate = json!([
        approval.metadata.namespace,
        request.gate.name,
        request.gate.type_,
        place,
        request.quorums,
        approval.approvers(),
        request.required_by,
        request.allowed_verdicts,
    ]);
    Digest::of(&gate).unwrap_or_else(|_| request.digest.clone())
}

/// Returns the first digits of the digest of a gate, by which lists name the group of equal gates. To compare two
/// gates, use [`gate`].
#[must_use]
pub fn key(approval: &Approval) -> String {
    gate(approval).short(DIGITS).to_owned()
}

/// The facts of a run for a page with many requests: without its definition and its journal.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    /// The state of the run.
    pub now: RunNow,
    /// The digest of the run's spec without the values of inputs, if the spec could be read.
    pub shape: Option<Digest>,
    /// The digest of the run's spec, and the values of the inputs in a line.
    inputs: Option<(Digest, String)>,
}

/// The parts of a Workflow that are parsed. The status stays text at first, because its journal is long.
#[derive(Deserialize)]
struct RunAnswer {
    metadata: RunUid,
    #[serde(default)]
    spec: Value,
    status: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct RunUid {
    #[serde(default)]
    uid: String,
}

impl RunFacts {
    /// Reads a run by its name in a request. A text that is not the name of an object is not sent, because it would be
    /// another path of the API server.
    pub async fn read(client: &Client, namespace: &str, run: &str) -> Self {
        let facts_of = |now: RunNow| Self { now, ..Self::default() };
        if !names::is_object(run) {
            return facts_of(RunNow { found: RunFound::NoName, ..RunNow::default() });
        }
        let url = Api::<Workflow>::namespaced(client.clone(), namespace).resource_url().to_owned();
        let answer = match Request::new(url).get(run, &GetParams::default()).map_err(kube::Error::BuildRequest) {
            Ok(request) => client.request::<RunAnswer>(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => Self::of(answer),
            Err(error) => facts_of(RunNow::answered(Err(error))),
        }
    }

    fn of(answer: RunAnswer) -> Self {
        let RunAnswer { metadata, spec, status } = answer;
        let status = status.and_then(|status| serde_json::from_str::<RunNow>(status.get()).ok());
        let is_suspended = spec.get("suspend").and_then(Value::as_bool) == Some(true);
        let found = RunFound::There { uid: metadata.uid };
        Self {
            now: RunNow { is_suspended, found, ..status.unwrap_or_default() },
            inputs: spec_inputs(&spec),
            shape: shape(spec),
        }
    }

    /// Returns the values of the inputs in a line. Returns `None` if there are none, or if the request was made from
    /// another spec. `asked_from`: the digest of the spec that the request names.
    #[must_use]
    pub fn inputs_of(&self, asked_from: &Digest) -> Option<&str> {
        let (spec, inputs) = self.inputs.as_ref()?;
        (spec == asked_from && !inputs.is_empty()).then_some(inputs.as_str())
    }
}

/// Returns the digest of a spec, and the values of its inputs in a line.
fn spec_inputs(spec: &Value) -> Option<(Digest, String)> {
    let spec = WorkflowSpec::deserialize(spec).ok()?;
    let values = spec.inputs.iter().filter_map(|input| {
        let value = input.value.as_ref().or(input.default.as_ref())?;
        Some((input.name.clone(), value.0.clone()))
    });
    let values: Map<String, Value> = values.collect();
    Some((spec_digest(&spec).ok()?, brief::in_words(&values, INPUTS)))
}

/// Returns the digest of a spec without the values of inputs and without the fields of [`OF_ONE_RUN`].
fn shape(mut spec: Value) -> Option<Digest> {
    let fields = spec.as_object_mut()?;
    fields.retain(|field, _| !OF_ONE_RUN.contains(&field.as_str()));
    for input in fields.get_mut("inputs").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(input) = input.as_object_mut() {
            input.remove("value");
        }
    }
    Digest::of(&spec).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample;

    #[test]
    fn gates_differ_by_each_part_of_the_gate_and_not_by_the_prompt() {
        let own = sample::approval();
        let changed = |change: fn(&mut Approval)| {
            let mut approval = sample::approval();
            change(&mut approval);
            key(&approval)
        };
        assert_eq!(key(&own).len(), DIGITS);
        assert_eq!(
            (gate(&own).short(64).len(), gate(&own).short(DIGITS)),
            (64, key(&own).as_str()),
            "names, and tells"
        );
        assert_eq!(changed(|approval| approval.spec.request.prompt = "Another?".to_owned()), key(&own));
        assert_eq!(changed(|approval| approval.spec.request.workflow.name = "refund-4712".to_owned()), key(&own));
        let others = [
            changed(|approval| approval.metadata.namespace = Some("other".to_owned())),
            changed(|approval| approval.spec.request.gate.path = "other".to_owned()),
            changed(|approval| approval.spec.request.gate.name = "other".to_owned()),
            changed(|approval| approval.spec.request.quorums.iter_mut().for_each(|quorum| quorum.threshold = 2)),
            changed(|approval| approval.spec.request.allowed_verdicts.truncate(1)),
            changed(|approval| {
                approval.status.get_or_insert_default().approvers = vec![signoff_api::gate::Subject::group("ops")]
            }),
        ];
        assert!(!others.contains(&key(&own)), "{others:?}");
    }

    #[test]
    fn calls_of_one_tool_are_equal_in_different_turns() {
        let call = |path: &str, tool: &str| {
            let mut approval = sample::call();
            approval.spec.request.gate.path = path.to_owned();
            approval.spec.request.action.as_mut().unwrap().tool = tool.to_owned();
            key(&approval)
        };
        let first = call("small/.turn-1/.call-1/.gate", "refund");
        assert_eq!(call("small/.turn-4/.call-2/.gate", "refund"), first);
        assert_ne!(call("small/.turn-1/.call-1/.gate", "letter"), first);
        assert_ne!(call("large/.turn-1/.call-1/.gate", "refund"), first, "another step of the same agent");
    }

    #[test]
    fn a_run_is_read_without_its_journal_and_its_inputs_belong_to_one_spec() {
        let spec = json!({"requestedBy": "dana", "suspend": true, "steps": [{"name": "a", "set": {"value": "x"}}],
            "inputs": [{"name": "invoice", "value": "501"}, {"name": "note", "default": "a: b"}]});
        let digest = spec_digest(&serde_json::from_value(spec.clone()).unwrap()).unwrap();
        let run = |status: &str| {
            let text = format!(r#"{{"metadata": {{"name": "a", "uid": "u"}}, "spec": {spec}, "status": {status}}}"#);
            RunFacts::of(serde_json::from_str(&text).unwrap())
        };
        let read = run(r#"{"phase": "Waiting", "pending": ["a-1"], "steps": [{"odd": true}]}"#);
        assert_eq!(read.now.found, RunFound::There { uid: "u".to_owned() });
        assert!(read.now.is_suspended && read.now.workflow.is_none() && read.now.pending == ["a-1"]);
        assert_eq!(read.inputs_of(&digest), Some("invoice 501 · note \"a: b\""));
        assert_eq!(read.inputs_of(&Digest::of_bytes(b"another")), None);
        assert_eq!(read.shape, shape(spec.clone()));
        let odd = run(r#"{"phase": "Later"}"#);
        assert_eq!((odd.now.phase, odd.now.found), (None, RunFound::There { uid: "u".to_owned() }));
    }

    #[test]
    fn specs_have_one_shape_for_all_requesters_and_input_values() {
        let spec = |value: u32, default: u32, by: &str| {
            shape(
                json!({"requestedBy": by, "inputs": [{"name": "invoice", "default": default, "value": value}], "steps": []}),
            )
        };
        assert_eq!(spec(501, 1, "dana"), spec(502, 1, "erin"));
        assert_ne!(spec(501, 1, "dana"), spec(501, 2, "dana"), "a default is a part of the spec");
        assert_ne!(shape(json!({"steps": [1]})), shape(json!({"steps": []})));
        assert_eq!(shape(json!("no spec")), None);
    }
}
