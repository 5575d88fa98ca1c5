//! The end of a session: an unanswered call is canceled, and the server is notified that the session has ended.
//!
//! Both happen after the call, in a separate task, so that they delay no result.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use signoff_executor::{Http as _, HttpClient, HttpRequest};
use tokio::{runtime::Handle, sync::watch};

use crate::message::notification;

/// The timeout of each of the two requests that end a session.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of sessions that are ended at once. Further sessions are left to their servers.
const MAX_ENDINGS: usize = 64;

/// The number of sessions that are currently being ended.
#[derive(Clone, Debug)]
pub(crate) struct Endings(Arc<watch::Sender<usize>>);

impl Default for Endings {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Endings {
    /// Waits until no session is being ended.
    pub(crate) async fn wait_until_settled(&self) {
        let mut open = self.0.subscribe();
        // `self` holds the sender, so the wait cannot fail.
        drop(open.wait_for(|open| *open == 0).await);
    }

    /// Counts one more session that is being ended. Returns `false` without counting if [`MAX_ENDINGS`] is reached.
    fn try_begin(&self) -> bool {
        self.0.send_if_modified(|open| {
            let is_below_limit = *open < MAX_ENDINGS;
            if is_below_limit {
                *open += 1;
            }
            is_below_limit
        })
    }

    fn end(&self) {
        self.0.send_modify(|open| *open = open.saturating_sub(1));
    }
}

/// A session with a server, which ends when it is dropped.
pub(crate) struct Session {
    ending: Option<SessionEnd>,
    endings: Endings,
}

/// The data for ending a session.
struct SessionEnd {
    http: HttpClient,
    /// A request of the session, with its id and the key.
    request: HttpRequest,
    /// The unanswered request.
    in_flight: Option<u64>,
}

impl Session {
    /// Returns a session whose requests have the address and the headers of `request`.
    pub(crate) fn new(http: HttpClient, request: HttpRequest, endings: Endings) -> Self {
        Self { ending: Some(SessionEnd { http, request, in_flight: None }), endings }
    }

    /// Sets the request in flight, or `None`.
    pub(crate) fn set_in_flight(&mut self, id: Option<u64>) {
        if let Some(ending) = &mut self.ending {
            ending.in_flight = id;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(ending) = self.ending.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.endings.try_begin() {
            return;
        }
        let endings = self.endings.clone();
        runtime.spawn(async move {
            ending.end().await;
            endings.end();
        });
    }
}

impl SessionEnd {
    /// Cancels the unanswered request, and ends the session. Servers need not support either.
    async fn end(self) {
        if let Some(id) = self.in_flight {
            let params = json!({"requestId": id, "reason": "the call ended without an answer"});
            let cancelled = notification("notifications/cancelled", &params);
            let _ = self.http.call(self.request("POST", Some(cancelled))).await;
        }
        let _ = self.http.call(self.request("DELETE", None)).await;
    }

    fn request(&self, method: &str, body: Option<String>) -> HttpRequest {
        HttpRequest { method: method.to_owned(), body, timeout: REQUEST_TIMEOUT, ..self.request.clone() }
    }
}
