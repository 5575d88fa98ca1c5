//! The objects of the page of a request, read as its reader.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use signoff_api::{Approval, Decision, Moment, Verdict};
use signoff_engine::approval::eligibility::{allowed_verdicts, ineligible};
use signoff_review::{
    clock, edits,
    entry::Entry,
    foreseen::{self, Reached},
    problem::Problem,
    reading::{self, Texts, Verified},
    seen::{RunNow, Seen},
    voided::{self, Earlier},
    whole::{self, Whole},
};

use crate::{error::PageError, session::Caller, state::PageState};

pub use signoff_review::reading::run;

/// A request and the objects around it, as they were read at one moment.
pub struct Read {
    /// The Approval as it is stored.
    pub seen: Seen,
    /// The state of the run that asks.
    pub run: RunNow,
    /// The whole texts of which the request has only the beginning, or the reason why one cannot be shown.
    pub whole: Result<Whole, Problem>,
    /// The text before each change of people, in the order of the changes, or the reason why it cannot be shown.
    pub originals: Vec<Result<String, String>>,
    /// The Approvals that this one asks again, with their votes.
    pub earlier: Vec<Earlier>,
    /// The effect of each verdict without a payload, if the reader gave it.
    pub foreseen: Vec<(Verdict, Reached)>,
    /// The time of the read.
    pub at: Moment,
}

impl Read {
    /// Reads a request.
    ///
    /// # Errors
    /// As every request.
    pub async fn fetch(state: &PageState, caller: &Caller, namespace: &str, name: &str) -> Result<Self, PageError> {
        let seen = fetch_approval(&caller.client, namespace, name).await?;
        let workflow = seen.approval.spec.request.workflow.name.clone();
        let (run, read) =
            tokio::join!(run(&caller.client, namespace, &workflow), Self::fetch_around(state, caller, namespace, seen));
        Ok(Self { run, ..read })
    }

    /// Reads the objects around an Approval, except its run, and counts the effect of each verdict.
    pub async fn fetch_around(state: &PageState, caller: &Caller, namespace: &str, seen: Seen) -> Self {
        let whole = whole::fetch(&caller.client, namespace, &seen.approval).await;
        let originals = edits::originals(&caller.client, namespace, &seen.approval).await;
        let earlier = voided::earlier(&caller.client, namespace, &seen.approval).await;
        let at = clock::now();
        let foreseen = foresee(state, caller, &seen.approval, at).await;
        let whole = whole.map_err(Problem::from);
        Self { whole, originals, earlier, run: RunNow::default(), foreseen, at, seen }
    }

    /// Returns the request if everything about it is verified.
    ///
    /// # Errors
    /// The first part of the request that is not verified.
    pub fn verified(&self) -> Result<Verified<'_>, Problem> {
        reading::verify(&self.seen, &self.run, Texts::Whole(&self.whole))
    }
}

/// Reads an Approval as it is stored.
///
/// # Errors
/// As every request; and an object that this version cannot read.
pub async fn fetch_approval(client: &Client, namespace: &str, name: &str) -> Result<Seen, PageError> {
    let object = approvals(client, namespace).get(name).await?;
    Seen::of(&object).map_err(|why| PageError::Internal(why.to_string()))
}

/// Returns the Approvals of a namespace as untyped objects, because the digest of a request covers fields that only a
/// later version has.
pub fn approvals(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Approval>(&()))
}

/// Returns the effect of each verdict that the caller could give now without a payload. Empty for a caller who cannot
/// decide.
async fn foresee(state: &PageState, caller: &Caller, approval: &Approval, at: Moment) -> Vec<(Verdict, Reached)> {
    let mut effects = Vec::new();
    if ineligible(approval, &caller.me.voter(), at).is_some() {
        return effects;
    }
    let status = approval.status.clone().unwrap_or_default();
    for &verdict in allowed_verdicts(&approval.spec.request, &status) {
        let Ok(entry) = Entry::new(Decision::new(verdict), None, approval, &caller.me) else { continue };
        if matches!(verdict, Verdict::Modify | Verdict::Respond | Verdict::Defer) {
            continue;
        }
        let voted = foreseen::with(approval, &entry);
        let counted = state.counter.count(&voted, at).await.ok();
        effects.push((verdict, foreseen::reached(&voted, counted.as_ref(), &entry)));
    }
    effects
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::history::tests::{forbidden, server};

    #[tokio::test]
    async fn run_whose_name_is_another_path_is_not_read() {
        let (client, asked) = server(|_| forbidden());
        for name in ["", "..", "../../../api/v1/secrets/x", "a/b", "a?watch=true", "A"] {
            run(&client, "finance", name).await;
            assert!(asked.lock().unwrap().is_empty(), "{name}");
        }
        run(&client, "finance", "refund-4711").await;
        assert_eq!(asked.lock().unwrap().len(), 1);
    }
}
