//! The requests that are decided together, read as their reader: the open ones of one turn, or those of equal gates.
//!
//! It must not trust the label of an Approval: the turn is computed from the request. Whether gates are equal is
//! computed from their requests and from the specs of their runs.

use std::collections::BTreeSet;

use futures::future::join_all;
use kube::{Client, api::ListParams};
use signoff_api::{Approval, Digest, names};
use signoff_review::{
    action::turn_of,
    alike,
    seen::{RunNow, Seen, still_open},
};

use super::bond::Bond;
use crate::{
    approval::read::{self, Read},
    error::PageError,
    session::Caller,
    state::PageState,
};

/// Requests that are decided together, in the order of the page.
pub struct Together {
    /// The reason why they are.
    pub bond: Bond,
    /// The namespace.
    pub namespace: String,
    /// The requests.
    pub calls: Vec<Read>,
    /// The names of those that do not belong to the others.
    pub strangers: BTreeSet<String>,
}

impl Together {
    /// Reads a turn: its open Approvals, in the order of the model.
    ///
    /// # Errors
    /// As every request; and an Approval that this version cannot read.
    pub async fn turn(state: &PageState, caller: &Caller, namespace: &str, name: &str) -> Result<Self, PageError> {
        let most = u32::try_from(Bond::MOST).unwrap_or(u32::MAX);
        let open =
            ListParams::default().labels(&format!("{}={name}", names::LABEL_TURN)).fields(&still_open()).limit(most);
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
        let bond = Bond::Turn(name.to_owned());
        Ok(Self { bond, namespace: namespace.to_owned(), calls, strangers: BTreeSet::new() })
    }

    /// Reads requests of equal gates. Those that are not there are left out.
    ///
    /// # Errors
    /// As every request, except that one is not there.
    pub async fn equal(
        state: &PageState,
        caller: &Caller,
        namespace: &str,
        names: &[String],
    ) -> Result<Self, PageError> {
        let found = join_all(names.iter().map(|name| Read::fetch(state, caller, namespace, name))).await;
        let mut calls = Vec::new();
        for read in found {
            match read {
                Ok(read) => calls.push(read),
                Err(PageError::NotFound(_)) => {}
                Err(other) => return Err(other),
            }
        }
        let approvals: Vec<_> = calls.iter().map(|read| &read.seen.approval).collect();
        let strangers = strangers(&caller.client, namespace, &approvals).await;
        Ok(Self { bond: Bond::Equal, namespace: namespace.to_owned(), calls, strangers })
    }

    /// Returns where the runs stand: a turn has one.
    pub fn runs(&self) -> impl Iterator<Item = &RunNow> {
        let most = match self.bond {
            Bond::Turn(_) => 1,
            Bond::Equal => usize::MAX,
        };
        self.calls.iter().map(|read| &read.run).take(most)
    }
}

/// Returns the names of the Approvals whose gate, quorums or spec of the run differ from those of the first one.
pub async fn strangers(client: &Client, namespace: &str, approvals: &[&Approval]) -> BTreeSet<String> {
    let shapes = approvals.iter().map(|one| alike::shape_of_run(client, namespace, &one.spec.request.workflow));
    let shapes = join_all(shapes).await;
    strangers_by(approvals, &shapes)
}

/// `shapes`: the shapes of the specs of the runs; a run that could not be read has none, and is like no other.
fn strangers_by(approvals: &[&Approval], shapes: &[Option<Digest>]) -> BTreeSet<String> {
    let likes: Vec<_> =
        approvals.iter().zip(shapes).map(|(one, shape)| Some((alike::key(one), shape.clone()?))).collect();
    let first = likes.first().cloned().flatten();
    let strange = approvals.iter().zip(&likes).filter(|(_, like)| like.is_none() || **like != first);
    strange.map(|(one, _)| one.metadata.name.clone().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use signoff_review::sample;

    use super::*;

    #[test]
    fn requests_are_strangers_by_their_gate_and_by_the_spec_of_their_run() {
        let named = |name: &str, path: &str| {
            let mut approval = sample::approval();
            approval.metadata.name = Some(name.to_owned());
            approval.spec.request.gate.path = path.to_owned();
            approval
        };
        let all = [named("a", "ok"), named("b", "ok"), named("c", "other"), named("d", "ok"), named("e", "ok")];
        let all: Vec<_> = all.iter().collect();
        let shape = |text: &str| Some(Digest::of_bytes(text.as_bytes()));
        let shapes = [shape("spec"), shape("spec"), shape("spec"), shape("another"), None];
        assert_eq!(strangers_by(&all, &shapes), BTreeSet::from(["c", "d", "e"].map(str::to_owned)));
        let unread = [None, shape("spec"), shape("spec"), shape("spec"), shape("spec")];
        assert_eq!(strangers_by(&all, &unread).len(), 5, "the first could not be read");
    }
}
