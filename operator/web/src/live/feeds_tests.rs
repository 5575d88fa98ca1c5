//! Tests of the feeds: their readers, their bounds, and their ends.
//!
//! The API server of the tests lists nothing, and its watches are silent.

#![allow(clippy::unwrap_used)]
use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use kube::client::Body;
use secrecy::SecretString;
use serde_json::json;
use signoff_review::sample;
use tokio::sync::Semaphore;

use super::*;

/// An API server without Approvals in the namespaces a, b and c.
#[derive(Clone)]
struct Server {
    gate: Arc<Semaphore>,
    /// The number of further lists whose version expires, which ends their feed.
    expires: Arc<AtomicUsize>,
    watches: Arc<AtomicUsize>,
    all: bool,
}

type Answer = Response<axum::body::Body>;

impl Server {
    fn new(all: bool) -> Self {
        let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self { gate, expires: Arc::default(), watches: Arc::default(), all }
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request.uri().clone()).await) }
        });
        signoff_cluster::client::connect_service(service, "default")
    }

    async fn answer(&self, uri: http::Uri) -> Answer {
        let _open = self.gate.acquire().await.unwrap();
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let may = self.all || ["a", "b", "c"].iter().any(|name| path.contains(&format!("/namespaces/{name}/")));
        if !may {
            return status(403);
        }
        if query.contains("watch=") {
            self.watches.fetch_add(1, Ordering::SeqCst);
            let silence = futures::stream::pending::<Result<bytes::Bytes, Infallible>>();
            return Response::new(axum::body::Body::from_stream(silence));
        }
        let is_feed = query.contains("fieldSelector=");
        let left = self.expires.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if is_feed && left.is_ok() {
            return status(410);
        }
        body(
            200,
            &json!({"apiVersion": "signoff.dev/v1", "kind": "ApprovalList", "metadata": {"resourceVersion": "1"}, "items": []}),
        )
    }

    fn caller(&self, token: &str, user: &str) -> Caller {
        Caller {
            me: sample::me(user, &[]),
            token: TokenId::of(&SecretString::from(token)),
            client: self.client(),
            ends: now().after(Duration::from_secs(3600)),
            groups_left_out: None,
            overview: crate::session::Overview::default(),
            arrived: Instant::now(),
        }
    }
}

fn status(code: u16) -> Answer {
    body(
        code,
        &json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": "x", "message": "x"}),
    )
}

fn body(code: u16, value: &serde_json::Value) -> Answer {
    let answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
    answer.header("content-type", "application/json").body(axum::body::Body::from(value.to_string())).unwrap()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn feed_is_reused_although_a_namespace_is_forbidden() {
    let (server, feeds) = (Server::new(false), Feeds::new(10));
    let caller = server.caller("t", "alice");
    let first = feeds.complete_feed(&caller, &names(&["a", "secret", "a"])).await.unwrap();
    assert_eq!(first.namespaces, Some(names(&["a"])));
    let second = feeds.complete_feed(&caller, &names(&["a", "secret"])).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    let third = feeds.complete_feed(&caller, &names(&["a", "b"])).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &third) && first.has_ended(), "other namespaces are another feed");
    assert_eq!(feeds.count(), 1);
}

#[tokio::test]
async fn feed_of_all_namespaces_serves_each_namespace() {
    let (server, feeds) = (Server::new(true), Feeds::new(10));
    let caller = server.caller("t", "alice");
    let first = feeds.complete_feed(&caller, &names(&["a"])).await.unwrap();
    assert!(Arc::ptr_eq(&first, &feeds.complete_feed(&caller, &names(&["b"])).await.unwrap()));
}

#[tokio::test]
async fn two_requests_at_once_share_one_feed() {
    let (mut server, feeds) = (Server::new(false), Feeds::new(10));
    server.gate = Arc::new(Semaphore::new(0));
    let (caller, asked) = (server.caller("t", "alice"), names(&["a"]));
    let open = async {
        tokio::task::yield_now().await;
        server.gate.add_permits(100);
    };
    let (first, second, ()) =
        tokio::join!(feeds.complete_feed(&caller, &asked), feeds.complete_feed(&caller, &asked), open);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(Arc::ptr_eq(&first, &second) && !first.has_ended());
    // Both requests asked for the scope before either had a feed.
    let caller = server.caller("u", "bob");
    let started = AtomicUsize::new(0);
    let start = |_| {
        started.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(std::future::pending::<()>()).abort_handle()
    };
    let first = feeds.admit(&caller, &asked, Some(asked.clone()), start).unwrap();
    let second = feeds.admit(&caller, &asked, Some(asked.clone()), start).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(started.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn feed_is_opened_again_if_it_ends_before_its_list_is_complete() {
    let (server, feeds) = (Server::new(true), Feeds::new(10));
    let caller = server.caller("t", "alice");
    // Each expired list begins a second time, which ends its feed.
    server.expires.store(2, Ordering::SeqCst);
    assert!(!feeds.complete_feed(&caller, &[]).await.unwrap().has_ended());
    feeds.end(&caller.token);
    server.expires.store(usize::MAX, Ordering::SeqCst);
    let caller = server.caller("t", "alice");
    let refused = feeds.complete_feed(&caller, &[]).await;
    assert!(matches!(refused, Err(PageError::Away(why)) if why.contains("begin anew 3 times")));
}

#[tokio::test]
async fn complete_feed_can_be_shown_after_its_end() {
    let feed = Feed::new(sample::me("alice", &[]), Vec::new(), None);
    feed.notify_readers();
    feed.end(Ended::Over);
    assert_eq!(feed.wait_until_complete().await, Ok(true));
    let feed = Feed::new(sample::me("alice", &[]), Vec::new(), None);
    feed.end(Ended::Over);
    assert_eq!(feed.wait_until_complete().await, Ok(false), "another is to be opened");
    let feed = Feed::new(sample::me("alice", &[]), Vec::new(), None);
    feed.end(Ended::Broken("x".to_owned()));
    let why = PageError::Away("the Approvals cannot be followed: x".to_owned());
    assert_eq!(feed.wait_until_complete().await, Err(why));
}

#[test]
fn feed_lives_at_least_half_a_minute_and_at_most_ten() {
    let at = now();
    assert_eq!(life(at, at.after(Duration::from_secs(20))), Duration::from_secs(30));
    assert_eq!(life(at.after(Duration::from_secs(90)), at), Duration::from_secs(90));
    assert_eq!(life(at.after(Duration::from_secs(9000)), at), Duration::from_secs(600));
}

#[tokio::test(start_paused = true)]
async fn oldest_feed_of_a_user_ends_if_the_user_has_too_many() {
    let (server, feeds) = (Server::new(true), Feeds::new(20));
    let other = feeds.complete_feed(&server.caller("b", "bob"), &[]).await.unwrap();
    let mut own = Vec::new();
    for at in 0..=MOST_OF_PERSON {
        own.push(feeds.complete_feed(&server.caller(&format!("a{at}"), "alice"), &[]).await.unwrap());
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let ended: Vec<_> = own.iter().map(|feed| feed.has_ended()).collect();
    assert!(ended[0] && !ended[1..].contains(&true), "{ended:?}");
    assert!(!other.has_ended());
    assert_eq!(feeds.count(), MOST_OF_PERSON + 1);
}

#[tokio::test(start_paused = true)]
async fn feed_without_a_reader_ends_first_if_there_are_too_many() {
    let (server, feeds) = (Server::new(true), Feeds::new(3));
    let mut all = Vec::new();
    for user in ["a", "b", "c"] {
        all.push(feeds.complete_feed(&server.caller(user, user), &[]).await.unwrap());
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let read = all[0].changes();
    feeds.complete_feed(&server.caller("b", "b"), &[]).await.unwrap();
    let fourth = feeds.complete_feed(&server.caller("d", "d"), &[]).await.unwrap();
    let ended: Vec<_> = all.iter().map(|feed| feed.has_ended()).collect();
    assert_eq!(ended, [false, false, true], "a is read, and b was used after c");
    let more = (all[1].changes(), fourth.changes());
    let refused = feeds.complete_feed(&server.caller("e", "e"), &[]).await;
    assert!(matches!(refused, Err(PageError::TooMany(why)) if why.contains("--max-live")));
    assert_eq!(feeds.count(), 3);
    drop((read, more));
}

#[tokio::test]
async fn request_from_before_a_sign_out_opens_no_feed() {
    let (mut server, feeds) = (Server::new(true), Feeds::new(10));
    server.gate = Arc::new(Semaphore::new(0));
    let caller = server.caller("t", "alice");
    let out = async {
        tokio::task::yield_now().await;
        feeds.end(&caller.token);
        server.gate.add_permits(100);
    };
    let (opened, ()) = tokio::join!(feeds.complete_feed(&caller, &[]), out);
    assert!(matches!(opened, Err(PageError::SignIn)));
    assert!(matches!(feeds.complete_feed(&caller, &[]).await, Err(PageError::SignIn)), "nor later");
    assert_eq!((feeds.count(), server.watches.load(Ordering::SeqCst)), (0, 0));
    let again = server.caller("t", "alice");
    assert!(feeds.complete_feed(&again, &[]).await.is_ok(), "the same token can sign in again");
}

#[tokio::test]
async fn ended_feed_stops_a_task_that_is_set_later() {
    let feed = Feed::new(sample::me("alice", &[]), Vec::new(), None);
    feed.end(Ended::Over);
    let task = tokio::spawn(std::future::pending::<()>());
    feed.set_task(task.abort_handle());
    assert!(task.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn page_that_ends_opens_no_feed() {
    let (server, feeds) = (Server::new(true), Feeds::new(10));
    let caller = server.caller("t", "alice");
    let feed = feeds.complete_feed(&caller, &[]).await.unwrap();
    feeds.end_all();
    assert!(feed.has_ended());
    assert!(matches!(feeds.complete_feed(&caller, &[]).await, Err(PageError::Away(_))));
    assert_eq!(feeds.count(), 0);
}
