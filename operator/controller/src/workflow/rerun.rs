//! Verifies the reference of a new run to the run that it repeats *(I/O)*. The users in `spec.rerunOf.requesters`
//! cannot decide gates that exclude the requester, so each must be a requester of that run.

use serde_json::Value;
use signoff_api::{Workflow, conditions::reason, names, workflow::RerunOf};
use signoff_cluster::requests::ApiRequests;
use signoff_expr::text;

use super::{observe::ObservedRun, plan::Refusal};
use crate::error::Error;

/// Returns the refusal of a run because of the run that it names, or `None`. Reads that run from the API server,
/// because only a summary of a finished run is cached.
pub(super) async fn find_refusal(requests: &ApiRequests, seen: &ObservedRun) -> Result<Option<Refusal>, Error> {
    let Some(rerun) = &seen.workflow.spec.rerun_of else { return Ok(None) };
    let named = match names::is_object(&rerun.name) {
        true => requests.get_raw::<Workflow>(&seen.name.beside(&rerun.name)).await?,
        false => None,
    };
    Ok(problem_of(rerun, named.as_ref()).map(|message| Refusal { reason: reason::INVALID, message }))
}

/// Returns the problem of a reference to a run, or `None`. `named`: the stored run of that name.
fn problem_of(rerun: &RerunOf, named: Option<&Value>) -> Option<String> {
    let name = text::display(&rerun.name, 63);
    let Some(named) = named.filter(|named| named["metadata"]["uid"] == rerun.uid.as_str()) else {
        return Some(format!(
            "spec.rerunOf: this namespace has no Workflow {name} with the uid {}: leave rerunOf out, or use `kubectl approve rerun NAME` for a run that exists",
            text::display(&rerun.uid, 36)
        ));
    };
    let spec = &named["spec"];
    let requested = |user: &str| spec["requestedBy"] == user || spec["requestedFor"] == user;
    // The run's own list was verified when it was accepted, or comes from a backup.
    let is_verified = named["status"]["specDigest"].is_string() || spec["restored"] == true;
    let repeats =
        |user: &str| spec["rerunOf"]["requesters"].as_array().is_some_and(|all| all.iter().any(|name| name == user));
    let user = rerun.requesters.iter().find(|user| !(requested(user) || (is_verified && repeats(user))))?;
    let shown = text::display(user, 253);
    Some(if repeats(user) {
        format!(
            "spec.rerunOf.requesters: Workflow {name} names {shown}, and was not accepted: leave rerunOf out, or use `kubectl approve rerun NAME` for the run that {name} repeats"
        )
    } else {
        format!(
            "spec.rerunOf.requesters: {shown} requested neither Workflow {name} nor a run that it repeats: leave rerunOf out, or use `kubectl approve rerun {name}`"
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    const UID: &str = "00000000-0000-4000-8000-000000000001";

    fn rerun(requesters: &[&str]) -> RerunOf {
        let requesters = requesters.iter().map(|&name| name.to_owned()).collect();
        RerunOf { name: "refund".to_owned(), uid: UID.to_owned(), requesters }
    }

    fn run(spec: Value, status: Value) -> Value {
        let mut run = json!({"metadata": {"uid": UID}, "spec": spec, "status": status});
        run["spec"]["requestedBy"] = json!("dana");
        run
    }

    #[test]
    fn each_requester_requested_the_run_or_a_run_that_it_repeats() {
        let of_erin = json!({"requestedFor": "erin", "rerunOf": {"name": "r", "uid": UID, "requesters": ["carol"]}});
        let mut restored = of_erin.clone();
        restored["restored"] = json!(true);
        let accepted = json!({"specDigest": "sha256:0"});
        let none = json!({"phase": "Pending"});
        for (requesters, spec, status, words) in [
            (&["dana", "erin"][..], &of_erin, &none, None),
            (&[], &of_erin, &none, None),
            (&["carol", "dana"], &of_erin, &accepted, None),
            (&["carol"], &restored, &none, None),
            (&["carol"], &of_erin, &none, Some("names carol, and was not accepted")),
            (&["dana", "bob"], &of_erin, &accepted, Some("bob requested neither Workflow refund nor")),
            (&["bob"], &restored, &none, Some("bob requested neither Workflow refund nor")),
        ] {
            let message = problem_of(&rerun(requesters), Some(&run(spec.clone(), status.clone())));
            let fits = match words {
                Some(words) => {
                    message.as_ref().is_some_and(|text| text.contains(words) && text.contains("leave rerunOf out"))
                }
                None => message.is_none(),
            };
            assert!(fits, "{requesters:?} of {spec}: {message:?}");
        }
    }

    #[test]
    fn a_missing_or_other_run_cannot_be_repeated() {
        let mut other = run(json!({}), json!({}));
        other["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000002");
        for named in [None, Some(&other)] {
            let message = problem_of(&rerun(&["dana"]), named).unwrap();
            assert!(
                message.starts_with("spec.rerunOf: this namespace has no Workflow refund with the uid"),
                "{message}"
            );
        }
    }
}
