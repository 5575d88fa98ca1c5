//! The requests that are decided together, as their reader reads them: the open ones of one turn, or those of equal
//! gates.
//!
//! The turn is read from the request, and not from the label of the Approval. Gates are compared by their requests and
//! by the specs of their runs.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use kube::{Client, api::ListParams};
use signoff_api::{Approval, Digest, names};
use signoff_review::{
    action::turn_of,
    alike::{self, RunFacts},
    seen::{RunFound, RunNow, Seen, still_open},
};

use super::bond::Bond;
use crate::{
    approval::read::{self, Read},
    error::PageError,
    long_reads::LONG_READS,
    session::Caller,
    state::PageState,
};

/// The most requests to the API server at once for one page. An answer can have more than a megabyte.
const AT_ONCE: usize = 4;

/// Requests that are decided together, in the order of the page.
pub struct Together {
    /// The turn of the requests, or the equality of their gates.
    pub bond: Bond,
    /// The namespace of all requests.
    pub namespace: String,
    /// The requests with the objects around them.
    pub calls: Vec<Read>,
    /// The names of the requests that do not belong to the others.
    pub strangers: BTreeSet<String>,
}

impl Together {
    /// Reads the open Approvals of a turn, in the order of the model's calls.
    ///
    /// # Errors
    /// As every request; and an Approval that this version cannot read.
    pub async fn turn(state: &PageState, caller: &Caller, namespace: &str, name: &str) -> Result<Self, PageError> {
        let _place = LONG_READS.wait(&caller.token).await?;
        let most = u32::try_from(Bond::MOST).unwrap_or(u32::MAX);
        let open =
            ListParams::default().labels(&format!("{}={name}", names::LABEL_TURN)).fields(&still_open()).limit(most);
        let listed = read::approvals(&caller.client, namespace).list(&open).await?;
        let seen: Result<Vec<_>, _> = listed.items.iter().map(Seen::of).collect();
        let mut seen = seen.map_err(|why| PageError::Internal(why.to_string()))?;
        seen.retain(|one| one.approval.spec.request.turn().as_deref() == Some(name));
        seen.sort_by_key(|one| turn_of(&one.approval.spec.request.gate.path).map(|(_, number)| number));
        // All calls of a turn are of one run.
        let first: Vec<_> = seen.iter().take(1).map(|request| &request.approval).collect();
        let run = Runs::read(&caller.client, namespace, &first).await.0.into_values().next().unwrap_or_default();
        let calls: Vec<_> =
            seen.into_iter().map(|request| Read::fetch_around(state, caller, namespace, request)).collect();
        let calls = few_at_once(calls).await;
        let calls = calls.into_iter().map(|call| Read { run: run.now.clone(), ..call }).collect();
        let bond = Bond::Turn(name.to_owned());
        Ok(Self { bond, namespace: namespace.to_owned(), calls, strangers: BTreeSet::new() })
    }

    /// Reads requests of equal gates. Requests that do not exist are left out.
    ///
    /// # Errors
    /// As every request, except for requests that do not exist.
    pub async fn equal(
        state: &PageState,
        caller: &Caller,
        namespace: &str,
        names: &[String],
    ) -> Result<Self, PageError> {
        let _place = LONG_READS.wait(&caller.token).await?;
        let reads: Vec<_> = names.iter().map(|name| read::fetch_approval(&caller.client, namespace, name)).collect();
        let mut seen = Vec::new();
        for read in few_at_once(reads).await {
            match read {
                Ok(read) => seen.push(read),
                Err(PageError::NotFound(_)) => {}
                Err(other) => return Err(other),
            }
        }
        let approvals: Vec<_> = seen.iter().map(|request| &request.approval).collect();
        let runs = Runs::read(&caller.client, namespace, &approvals).await;
        let strangers = runs.strangers(&approvals);
        let calls: Vec<_> =
            seen.into_iter().map(|request| Read::fetch_around(state, caller, namespace, request)).collect();
        let calls = few_at_once(calls).await;
        let calls = calls.into_iter().map(|call| Read { run: runs.of(&call.seen.approval).now, ..call }).collect();
        Ok(Self { bond: Bond::Equal, namespace: namespace.to_owned(), calls, strangers })
    }

    /// Returns the state of the run of each request; of a turn only one, because its calls are of one run.
    pub fn runs(&self) -> impl Iterator<Item = &RunNow> {
        let most = match self.bond {
            Bond::Turn(_) => 1,
            Bond::Equal => usize::MAX,
        };
        self.calls.iter().map(|read| &read.run).take(most)
    }
}

/// The runs of requests, each read once, by their names.
pub struct Runs(BTreeMap<String, RunFacts>);

impl Runs {
    /// Reads the runs of some requests of a namespace.
    pub async fn read(client: &Client, namespace: &str, approvals: &[&Approval]) -> Self {
        let names: BTreeSet<&str> =
            approvals.iter().map(|approval| approval.spec.request.workflow.name.as_str()).collect();
        let reads: Vec<_> = names.iter().map(|name| RunFacts::read(client, namespace, name)).collect();
        let facts = few_at_once(reads).await;
        Self(names.into_iter().map(str::to_owned).zip(facts).collect())
    }

    /// Returns the run of a request, or the facts of an unread run if the run was not read.
    pub fn of(&self, approval: &Approval) -> RunFacts {
        self.0.get(&approval.spec.request.workflow.name).cloned().unwrap_or_default()
    }

    /// Returns the names of the Approvals whose gate, quorums or spec of the run differ from those of the first
    /// Approval.
    pub fn strangers(&self, approvals: &[&Approval]) -> BTreeSet<String> {
        let shapes: Vec<_> = approvals.iter().map(|approval| self.shape(approval)).collect();
        strangers_by(approvals, &shapes)
    }

    /// Returns the shape of the spec of the run that asks; or `None` if the run could not be read, or if another run
    /// has its name by now.
    fn shape(&self, approval: &Approval) -> Option<Digest> {
        let asking = &approval.spec.request.workflow;
        let run = self.0.get(&asking.name)?;
        let is_asking = matches!(&run.now.found, RunFound::There { uid } if *uid == asking.uid);
        run.shape.clone().filter(|_| is_asking)
    }
}

/// Waits for requests, at most [`AT_ONCE`] at the same time, and returns their answers in order.
pub async fn few_at_once<F: Future>(requests: Vec<F>) -> Vec<F::Output> {
    stream::iter(requests).buffered(AT_ONCE).collect().await
}

/// Returns the names of the Approvals that differ from the first one. `shapes`: the shapes of the specs of their runs.
/// A run that could not be read has no shape, and differs from every other.
fn strangers_by(approvals: &[&Approval], shapes: &[Option<Digest>]) -> BTreeSet<String> {
    let keys: Vec<_> =
        approvals.iter().zip(shapes).map(|(approval, shape)| Some((alike::gate(approval), shape.clone()?))).collect();
    let first = keys.first().cloned().flatten();
    let strangers = approvals.iter().zip(&keys).filter(|(_, key)| key.is_none() || **key != first);
    strangers.map(|(approval, _)| approval.metadata.name.clone().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use serde_json::json;
    use signoff_review::sample;

    use super::*;
    use crate::history::tests::server;

    fn approval_of_run(name: &str) -> Approval {
        let mut approval = sample::approval();
        approval.spec.request.workflow.name = name.to_owned();
        approval
    }

    #[tokio::test]
    async fn each_run_is_read_once_and_has_a_shape_only_with_its_own_uid() {
        let uid = sample::approval().spec.request.workflow.uid;
        let (client, asked) = server(move |address| {
            let uid = if address.contains("other") { "another" } else { uid.as_str() };
            (200, json!({"metadata": {"name": "a", "uid": uid}, "spec": {"steps": []}, "status": {"steps": [1]}}))
        });
        let all = [
            approval_of_run("pay-1"),
            approval_of_run("pay-1"),
            approval_of_run("pay-2"),
            approval_of_run("other"),
            approval_of_run("../secrets"),
        ];
        let all: Vec<_> = all.iter().collect();
        let runs = Runs::read(&client, "finance", &all).await;
        assert_eq!(asked.lock().unwrap().len(), 3, "each run once, and no other path");
        let shapes: Vec<_> = all.iter().map(|one| runs.shape(one).is_some()).collect();
        assert_eq!(shapes, [true, true, true, false, false]);
    }

    #[tokio::test]
    async fn few_at_once_bounds_the_requests_in_flight() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let request = |number: usize| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                number
            }
        };
        let answers = few_at_once((0..32).map(request).collect()).await;
        assert_eq!(answers, (0..32).collect::<Vec<_>>(), "in their order");
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
    }

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
