//! Does what a committed turn asks for: asks people, begins calls.
//!
//! It may not wait for either, and adopts no Approval that is not exactly the one it would have made.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use signoff_api::{Approval, ApprovalSpec, Workflow, names};
use signoff_engine::{Command, Turn, turn::Ask};
use signoff_runtime::RunRef;

use super::{
    claim::Claim,
    observe::{Seen, stranger},
};
use crate::{
    context::{Context, Start},
    error::{Error, status_code},
};

/// Returns the Approvals that were made.
pub(super) async fn dispatch(
    context: &Context,
    seen: &Seen,
    turn: &Turn,
    claims: Vec<Claim>,
) -> Result<Vec<Arc<Approval>>, Error> {
    // Calls first: they wait for nothing more, and an Approval that cannot be made must not hold them up.
    for claim in claims {
        begin(context, seen, claim);
    }
    let mut asked = Vec::new();
    for command in &turn.commands {
        if let Command::Ask(request) = command {
            let approval = ask(context, seen, turn, request).await?;
            context.look_at_approval(seen.name.beside(&request.name));
            asked.push(approval);
        }
    }
    Ok(asked)
}

fn begin(context: &Context, seen: &Seen, claim: Claim) {
    let Claim { call, permit } = claim;
    context.runs.begin(&seen.name, &seen.uid, (call.path.clone(), call.attempt));
    let run = RunRef {
        namespace: seen.name.namespace.to_string(),
        workflow: seen.name.name.to_string(),
        uid: seen.uid.clone(),
    };
    // Nobody listens only while the operator ends: then nothing begins any more.
    let _ = context.starts.send(Start { name: seen.name.clone(), run, call, permit });
}

async fn ask(context: &Context, seen: &Seen, turn: &Turn, ask: &Ask) -> Result<Arc<Approval>, Error> {
    let place = seen.name.beside(&ask.name);
    if !context.tenure.holds() {
        return Err(Error::Conflict(format!("the Lease under which {}", place.as_a::<Approval>())));
    }
    let error = match context.wire.create(&approval(seen, ask)).await {
        Ok(approval) => return Ok(context.approvals.record(approval)),
        Err(error) => error,
    };
    if status_code(&error) == Some(409)
        && let Some(there) = context.fresh(&context.approvals, &place).await?
    {
        let record = turn.journal.get(&ask.path, 1);
        return match record.map(|record| stranger(&there, record, &seen.uid)) {
            Some(None) => Ok(there),
            why => Err(Error::Foreign {
                object: seen.name.as_a::<Workflow>(),
                name: place.as_a::<Approval>(),
                why: why.flatten().unwrap_or("is not expected").to_owned(),
            }),
        };
    }
    Err(Error::of(format!("creating {}", place.as_a::<Approval>()))(error))
}

fn approval(seen: &Seen, ask: &Ask) -> Approval {
    let labels = BTreeMap::from([
        (names::LABEL_WORKFLOW.to_owned(), seen.name.name.to_string()),
        (names::LABEL_WORKFLOW_UID.to_owned(), seen.uid.clone()),
        (names::LABEL_GATE.to_owned(), ask.request.gate.name.clone()),
    ]);
    let owner = OwnerReference {
        api_version: Workflow::api_version(&()).into_owned(),
        kind: Workflow::kind(&()).into_owned(),
        name: seen.name.name.to_string(),
        uid: seen.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Approval {
        metadata: ObjectMeta {
            name: Some(ask.name.clone()),
            namespace: Some(seen.name.namespace.to_string()),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: ApprovalSpec { request: ask.request.clone(), decisions: BTreeMap::new() },
        status: None,
    }
}
