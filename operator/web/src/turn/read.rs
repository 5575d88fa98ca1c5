//! The Approvals of one turn that are open, read as their reader.
//!
//! It must not trust the label of an Approval: the turn is computed from the request.

use futures::future::join_all;
use kube::api::ListParams;
use signoff_api::names;
use signoff_review::{
    action::turn_of,
    seen::{RunNow, Seen, still_open},
};

use crate::{
    approval::read::{self, Read},
    error::PageError,
    session::Caller,
    state::PageState,
};

/// The most Approvals of a turn that are shown. A turn has at most 32 calls.
const MOST: u32 = 32;

/// A turn with its open Approvals, in the order of the model.
pub struct Turn {
    /// The namespace.
    pub namespace: String,
    /// The value of the label of the turn.
    pub name: String,
    /// The open Approvals.
    pub calls: Vec<Read>,
    /// Where the run stands.
    pub run: RunNow,
}

impl Turn {
    /// Reads a turn.
    ///
    /// # Errors
    /// As every request; and an Approval that this version cannot read.
    pub async fn fetch(state: &PageState, caller: &Caller, namespace: &str, name: &str) -> Result<Self, PageError> {
        let open =
            ListParams::default().labels(&format!("{}={name}", names::LABEL_TURN)).fields(&still_open()).limit(MOST);
        let found = read::approvals(&caller.client, namespace).list(&open).await?;
        let seen: Result<Vec<_>, _> = found.items.iter().map(Seen::of).collect();
        let mut seen = seen.map_err(|why| PageError::Internal(why.to_string()))?;
        seen.retain(|one| one.approval.spec.request.turn().as_deref() == Some(name));
        seen.sort_by_key(|one| turn_of(&one.approval.spec.request.gate.path).map(|(_, number)| number));
        let workflow = seen.first().map(|one| one.approval.spec.request.workflow.name.clone()).unwrap_or_default();
        let calls = join_all(seen.into_iter().map(|one| Read::of(state, caller, namespace, one)));
        let (mut calls, run) = tokio::join!(calls, read::run(&caller.client, namespace, &workflow));
        // All calls of a turn are of one run: a call of another one is no call of this turn.
        calls.iter_mut().for_each(|call| call.run = run.clone());
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), calls, run })
    }
}
