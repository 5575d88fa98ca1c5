//! The overview on every page: whether its reader may read policies, and the reason why votes are not counted now.
//!
//! **Invariant:** an overview is read with the reader's own client, and kept for the reader's token alone.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{future::join_all, join};
use kube::Client;
use lru::LruCache;
use signoff_review::{
    operator_lease::{self, GONE},
    text::one_line,
};
use tokio::time::Instant;

use super::TokenId;
use crate::{
    error::PageError,
    rights::{Right, has},
    scope::NAMESPACES,
    workflows::{first, still_running},
};

/// The most tokens whose overviews are kept.
const TOKENS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_023);
/// The time for which an overview is shown before it is read again, even if the last read failed.
const FRESH_FOR: Duration = Duration::from_secs(20);
/// The longest time of a read, for which a page waits if there is no earlier overview.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for which a page waits if there is an earlier overview, which it can show instead.
const SHORT_READ_TIMEOUT: Duration = Duration::from_millis(300);
/// The age from which a Lease is old. It is several times the duration of a Lease, because the clocks of two API
/// servers differ, and because a new operator needs some seconds to take over.
const LEASE_IS_OLD_AFTER: Duration = Duration::from_secs(60);

/// The facts on every page of one reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The reason why votes are not counted now, in sentences.
    pub alert: Option<String>,
    /// Whether the reader may read policies.
    pub reads_policies: bool,
}

/// The overviews of recent readers. Clones share them.
#[derive(Clone)]
pub struct Overviews(Arc<Mutex<LruCache<TokenId, (Instant, Overview)>>>);

impl Default for Overviews {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LruCache::new(TOKENS))))
    }
}

impl Overviews {
    /// Returns the kept overview of a token. Sends no request.
    pub fn cached(&self, token: &TokenId) -> Overview {
        self.get(token).map(|(_, overview)| overview).unwrap_or_default()
    }

    /// Returns the overview of a reader, and reads it again if it is not fresh. `namespaces`: the namespaces that the
    /// page lists. `operator`: the namespace of the operator.
    pub async fn load(&self, client: &Client, token: &TokenId, namespaces: &[String], operator: &str) -> Overview {
        let known = self.get(token);
        match &known {
            Some((at, overview)) if at.elapsed() < FRESH_FOR => return overview.clone(),
            // The overview counts as fresh while it is read, so that other pages of this reader do not read it too.
            Some((_, overview)) => self.put(token, overview.clone()),
            None => {}
        }
        let is_known = known.is_some();
        let (all, client, token) = (self.clone(), client.clone(), token.clone());
        let (namespaces, operator) = (namespaces.to_vec(), operator.to_owned());
        let known = known.map(|(_, overview)| overview).unwrap_or_default();
        let otherwise = known.clone();
        // The task ends after [`READ_TIMEOUT`], whether the page waits for it or not.
        let reading = tokio::spawn(async move {
            let parts = async { join!(reads_policies(&client, &namespaces), alert(&client, &namespaces, &operator)) };
            let overview = match tokio::time::timeout(READ_TIMEOUT, parts).await {
                Ok((reads_policies, alert)) => Overview { alert, reads_policies },
                Err(_) => known,
            };
            all.put(&token, overview.clone());
            overview
        });
        let read = if is_known {
            tokio::time::timeout(SHORT_READ_TIMEOUT, reading).await.ok().and_then(Result::ok)
        } else {
            reading.await.ok()
        };
        read.unwrap_or(otherwise)
    }

    fn get(&self, token: &TokenId) -> Option<(Instant, Overview)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    fn put(&self, token: &TokenId, overview: Overview) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(token.clone(), (Instant::now(), overview));
    }
}

/// Whether a reader may list the policies of the cluster, or those of a namespace that the page lists.
async fn reads_policies(client: &Client, namespaces: &[String]) -> bool {
    let lists = |resource, namespace| has(client, Right { verb: "list", resource, namespace, name: None });
    let (of_cluster, of_all) = join!(lists("clusterapprovalpolicies", None), lists("approvalpolicies", None));
    if matches!(of_cluster, Ok(true)) || matches!(of_all, Ok(true)) {
        return true;
    }
    // After an error of one review, further reviews would fail too.
    if of_cluster.is_err() {
        return false;
    }
    let named = namespaces.iter().take(NAMESPACES);
    let each: Vec<_> = named.map(|namespace| lists("approvalpolicies", Some(namespace.as_str()))).collect();
    join_all(each).await.into_iter().any(|answer| answer == Ok(true))
}

async fn alert(client: &Client, namespaces: &[String], operator: &str) -> Option<String> {
    let (guard, operator) = join!(guard_alert(client, namespaces), operator_alert(client, operator));
    let sentences: Vec<_> = guard.into_iter().chain(operator).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Returns a sentence about an operator that has not renewed its Lease for a minute. Returns `None` for a newer Lease,
/// and if the Lease cannot be read.
async fn operator_alert(client: &Client, operator: &str) -> Option<String> {
    let reading = operator_lease::read(client, operator).await.ok()??;
    let state = reading.judge();
    (state.is_gone() && reading.age() > LEASE_IS_OLD_AFTER)
        .then(|| format!("The operator does not answer: {state}. {GONE}"))
}

/// Returns the sentence about policies that are not in force, which the operator wrote on the first open run that the
/// reader may list, or `None`.
async fn guard_alert(client: &Client, namespaces: &[String]) -> Option<String> {
    let selector = still_running();
    let said = |why: String| {
        let why = one_line(&why, 300);
        format!(
            "Decisions do not count now: the admission policies are not in force. Tell the administrators of Signoff: {why}"
        )
    };
    match first(client, None, &selector).await {
        Ok(run) => return run?.unguarded().map(said),
        Err(PageError::Refused(_)) => {}
        Err(_) => return None,
    }
    for namespace in namespaces.iter().take(NAMESPACES) {
        if let Ok(Some(run)) = first(client, Some(namespace), &selector).await {
            return run.unguarded().map(said);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use secrecy::SecretString;
    use serde_json::{Value, json};

    use super::*;
    use crate::history::tests::{forbidden, server};

    fn answer(address: &str, renewed: &str, guarded: &str) -> (u16, Value) {
        match address {
            one if one.contains("selfsubjectaccessreviews") => (201, json!({"spec": {}, "status": {"allowed": true}})),
            one if one.contains("/leases/") => (
                200,
                json!({"metadata": {"name": "signoff-operator"},
                    "spec": {"holderIdentity": "operator-1", "leaseDurationSeconds": 15, "renewTime": renewed}}),
            ),
            _ => (
                200,
                json!({"metadata": {}, "items": [{"metadata": {"name": "a", "namespace": "finance"}, "status": {
                    "phase": "Running", "conditions": [{"type": "Guarded", "status": guarded, "message": "<b>signoff-status</b> is gone"}]}}]}),
            ),
        }
    }

    #[tokio::test]
    async fn old_lease_and_missing_policies_are_an_alert_that_is_read_once() {
        let overviews = Overviews::default();
        let token = |text: &str| TokenId::of(&SecretString::from(text.to_owned()));
        let (client, asked) = server(|address| answer(address, "2020-11-22T10:00:00.000000Z", "False"));
        let first = overviews.load(&client, &token("a"), &[], "signoff-system").await;
        let said = first.alert.clone().unwrap();
        for part in ["policies are not in force", "is gone", "no operator has renewed its Lease", GONE] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(first.reads_policies);
        let before = asked.lock().unwrap().len();
        assert_eq!(overviews.load(&client, &token("a"), &[], "signoff-system").await, first);
        assert_eq!(asked.lock().unwrap().len(), before, "it is fresh");
        assert_eq!(overviews.cached(&token("b")), Overview::default(), "of another token nothing is known");
        let (fine, _) = server(|address| answer(address, "2999-11-22T10:00:00.000000Z", "True"));
        assert_eq!(overviews.load(&fine, &token("b"), &[], "signoff-system").await.alert, None);
    }

    /// Returns a client of an API server that never answers, and the number of requests that it received.
    fn silent_server() -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<http::Response<axum::body::Body>, Infallible>>()
        });
        (signoff_cluster::client::connect_service(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_api_server_delays_only_the_first_page() {
        let overviews = Overviews::default();
        let token = TokenId::of(&SecretString::from("t".to_owned()));
        let (client, asked) = silent_server();
        let begun = Instant::now();
        assert_eq!(overviews.load(&client, &token, &[], "signoff-system").await, Overview::default());
        assert!(begun.elapsed() >= READ_TIMEOUT && begun.elapsed() < READ_TIMEOUT * 2, "{:?}", begun.elapsed());
        let (begun, before) = (Instant::now(), asked.load(Ordering::SeqCst));
        for _ in 0..3 {
            assert_eq!(overviews.load(&client, &token, &[], "signoff-system").await, Overview::default());
        }
        assert_eq!((begun.elapsed(), asked.load(Ordering::SeqCst)), (Duration::ZERO, before), "the failure is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_overview_is_shown_while_it_is_read_again() {
        let overviews = Overviews::default();
        let token = TokenId::of(&SecretString::from("t".to_owned()));
        let (fine, _) = server(|address| answer(address, "2999-11-22T10:00:00.000000Z", "True"));
        let first = overviews.load(&fine, &token, &[], "signoff-system").await;
        assert!(first.reads_policies);
        tokio::time::advance(FRESH_FOR).await;
        let (client, asked) = silent_server();
        let begun = Instant::now();
        assert_eq!(overviews.load(&client, &token, &[], "signoff-system").await, first);
        assert!(begun.elapsed() >= SHORT_READ_TIMEOUT && begun.elapsed() < READ_TIMEOUT, "{:?}", begun.elapsed());
        let before = asked.load(Ordering::SeqCst);
        assert_eq!(overviews.load(&client, &token, &[], "signoff-system").await, first);
        assert_eq!(asked.load(Ordering::SeqCst), before, "it is read once at a time");
    }

    #[tokio::test]
    async fn reader_without_rights_has_an_empty_overview() {
        let overviews = Overviews::default();
        let (client, _) = server(|_| forbidden());
        let token = TokenId::of(&SecretString::from("t".to_owned()));
        let found = overviews.load(&client, &token, &["finance".to_owned()], "signoff-system").await;
        assert_eq!(found, Overview::default());
    }
}
