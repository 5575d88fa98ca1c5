//! A gate before a step: people see exactly what will run, and nothing else runs then.
//!
//! It may not begin the step: what was approved is compared with what would run when that begins.

use std::collections::BTreeMap;

use serde_json::Value;
use signoff_api::{Digest, Verdict, values::as_yaml};

use super::{Reviewed, Stop, gate, open, or_stop};
use crate::{
    activity::{Change, Opening, Place, Run, Trouble, Work, input_digest},
    plan::PlannedStep,
    turn::{Call, What},
};

/// What people said about a step that is about to begin.
pub(super) enum Said {
    /// Run exactly what has this digest; whatever it is where nobody was asked.
    Run(Option<Digest>),
    /// Run it with these changes.
    Changed(Change),
    /// Leave it out.
    Skip,
}

/// Asks at the gate before an attempt, which stands at `place`.
pub(super) async fn ask<'a>(
    run: &Run<'a>,
    work: &Work<'a>,
    gate: &'a PlannedStep,
    place: &Place,
) -> Result<Said, Stop> {
    let shown = |seq| match open(run, work, seq, place)? {
        Opening::Call(call) => {
            let digest = input_digest(&call).map_err(Trouble::Invalid)?;
            Ok(Some(Reviewed { binds: Some(digest), ..Reviewed::of(&place.path, &described(&call)) }))
        }
        _ => Ok(None),
    };
    loop {
        let decided = gate::decide(run, &work.frame, gate, &format!("{}/.start", place.path), &shown).await?;
        match or_stop(run, &decided, &[Verdict::Retry])? {
            Verdict::Retry => {}
            Verdict::Skip => return Ok(Said::Skip),
            Verdict::Modify => {
                let parameters = decided.whole(run).await?.parameters.unwrap_or_default();
                return Ok(Said::Changed(Change::of(parameters)));
            }
            _ => return Ok(Said::Run(decided.record.input_digest)),
        }
    }
}

/// What will run, for people: YAML, every value rendered. What may be long comes last, the longest at the very end, or it
/// would push the rest out of sight.
fn described(call: &Call) -> String {
    match &call.what {
        What::Pod(pod) => {
            let Ok(Value::Object(mut fields)) = serde_json::to_value(&pod.spec) else { return as_yaml(&pod.spec) };
            let long = ["command", "args", "env", "files", "podTemplate"];
            let mut long: Vec<_> =
                long.into_iter().filter_map(|name| Some((name, fields.shift_remove(name)?))).collect();
            long.sort_by_key(|(_, value)| value.to_string().len());
            fields.extend(long.into_iter().map(|(name, value)| (name.to_owned(), value)));
            as_yaml(&fields)
        }
        What::Http(http) => as_yaml(http),
        What::Agent(agent) => as_yaml(agent),
    }
}

impl Change {
    /// The same with further changes, which count where both speak of a field.
    pub(super) fn and(&mut self, more: Self) {
        self.parameters.extend(more.parameters);
    }

    /// The fields that a person gave; those that are no text are left out.
    pub(super) fn of(parameters: signoff_api::JsonObject) -> Self {
        let texts = parameters.0.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
        Self { parameters: texts.collect::<BTreeMap<_, _>>() }
    }
}
