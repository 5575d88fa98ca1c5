//! Requests that a later request has replaced: since the message with the opened link was sent, or by superseding them.

use signoff_api::{ApprovalRequest, RecordPath, approval::ApprovalPhase, names};
use signoff_review::successor;

use super::{
    model::RequestLink,
    next,
    read::{Read, fetch_approval},
};
use crate::session::{
    Caller,
    wanted::{DIGITS, link_digest},
};

/// Whether the opened link is of a notice about another request than the stored one.
pub(super) fn is_replaced(query: &str, request: &ApprovalRequest) -> bool {
    link_digest(query).is_some_and(|digest| digest != request.digest.short(DIGITS))
}

/// Finds the request that asks again after a request was superseded, or `None` if the reader can read no such request.
/// The run names the latest request of the gate, so only one Approval is read.
pub(super) async fn latest_successor(caller: &Caller, read: &Read) -> Option<RequestLink> {
    let superseded = &read.seen.approval;
    superseded.status.as_ref().filter(|status| status.phase == ApprovalPhase::Superseded)?;
    let gate = RecordPath::new(&superseded.spec.request.gate.path).without_last_visit().as_str();
    let status = read.run.workflow.as_ref()?.status.as_ref()?;
    let visits = status.steps.iter().filter(|record| {
        record.object.is_some() && RecordPath::new(&record.path).without_last_visit().as_str() == gate
    });
    let newest = visits.max_by_key(|record| RecordPath::new(&record.path).last().visit())?.object.as_deref()?;
    let namespace = superseded.metadata.namespace.as_deref()?;
    if !names::is_object(newest) || superseded.metadata.name.as_deref() == Some(newest) {
        return None;
    }
    let found = fetch_approval(&caller.client, namespace, newest).await.ok()?;
    successor::last(superseded, std::iter::once(&found.approval)).map(next::link_to)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use askama::Template;
    use serde_json::{Value, json};
    use signoff_api::{Approval, Digest, Workflow};
    use signoff_review::sample;

    use super::*;
    use crate::{
        approval::{
            ApprovalPage, Problems, Typed,
            tests::{caller, read_of},
        },
        history::tests::{forbidden, server},
    };

    /// The name of the request that asks again.
    const AGAIN: &str = "refund-4711-again";

    #[test]
    fn link_is_replaced_only_with_another_valid_digest() {
        let request = sample::approval().spec.request;
        let (own, other) = (request.digest.short(16), Digest::of_bytes(b"other"));
        assert!(is_replaced(&format!("d={}", other.short(16)), &request));
        let [shorter, longer] = [15, 17].map(|digits| format!("d={}", other.short(digits)));
        for query in ["", "d=x", &format!("d={own}"), &shorter, &longer] {
            assert!(!is_replaced(query, &request), "{query}");
        }
    }

    #[tokio::test]
    async fn replaced_request_has_a_warning_and_a_hint_if_it_can_be_decided() {
        let (warning, hint) = ("after the message that led you here was sent", "Read it again before you decide.");
        for (user, is_replaced, can_decide) in [
            ("alice@example.com", true, true),
            ("mallory@example.com", true, false),
            ("alice@example.com", false, true),
        ] {
            let read = read_of(&sample::approval());
            let mut page = ApprovalPage::of(&caller(user), &read, &Typed::default(), &Problems::default());
            page.related.is_replaced = is_replaced;
            let page = page.render().unwrap();
            assert_eq!(page.contains(warning), is_replaced, "{user}: {page}");
            assert_eq!(page.contains(hint), is_replaced && can_decide, "{user}: {page}");
        }
    }

    /// Returns the sample request after it was superseded, with a run whose gate has asked again.
    fn superseded() -> Read {
        let mut approval = sample::approval();
        let status = json!({"phase": "Superseded", "seq": 1, "outcome": {"phase": "Superseded", "source": "Policy"}});
        approval.status = serde_json::from_value(status).unwrap();
        let record = |seq: i32, path: &str, name: &str| {
            json!({
                "path": path, "attempt": 1, "kind": "hitl", "phase": "Waiting", "seq": seq,
                "at": "2026-11-22T09:30:00Z", "object": name,
            })
        };
        let own = approval.metadata.name.clone().unwrap();
        let steps = [record(1, "review", &own), record(2, "review#2", AGAIN), record(3, "other#3", "refund-other")];
        let workflow: Workflow = serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "refund-4711", "namespace": "finance", "uid": "u"},
            "spec": {"requestedBy": "dana@example.com", "steps": []}, "status": {"phase": "Waiting", "steps": steps},
        }))
        .unwrap();
        let mut read = read_of(&approval);
        read.run.workflow = Some(Arc::new(workflow));
        read
    }

    /// Returns the request of the second visit of the gate as the API server sends it, after a change.
    fn successor_with(change: impl FnOnce(&mut Approval)) -> Value {
        let mut approval = sample::approval();
        approval.spec.request.gate.path = "review#2".to_owned();
        approval.spec.request.gate.visit = 2;
        change(&mut approval);
        sample::seal(&mut approval);
        approval.metadata.name = Some(AGAIN.to_owned());
        serde_json::to_value(approval).unwrap()
    }

    #[tokio::test]
    async fn superseded_request_links_to_its_readable_successor() {
        let read = superseded();
        let link = async |answer: (u16, Value)| {
            let (client, asked) = server(move |_| answer.clone());
            let caller = Caller { client, ..caller("alice@example.com") };
            let link = latest_successor(&caller, &read).await;
            assert_eq!(asked.lock().unwrap().len(), 1, "one request is read");
            (caller, link)
        };
        let (caller, found) = link((200, successor_with(|_| {}))).await;
        let mut page = ApprovalPage::of(&caller, &read, &Typed::default(), &Problems::default());
        page.related.asked_again = found;
        let page = page.render().unwrap();
        let expected = format!("<a href=\"/n/finance/a/{AGAIN}\">Send this letter to ACME?</a>");
        assert!(page.contains(&expected), "{page}");
        assert!(link(forbidden()).await.1.is_none(), "its reader cannot read it");
        let of_another_run = successor_with(|approval| approval.spec.request.workflow.uid = "another".to_owned());
        assert!(link((200, of_another_run)).await.1.is_none());
    }

    #[tokio::test]
    async fn successor_is_read_only_for_a_superseded_request() {
        let (client, asked) = server(|_| (200, successor_with(|_| {})));
        let caller = Caller { client, ..caller("alice@example.com") };
        let (mut open, mut newest) = (superseded(), superseded());
        open.seen.approval.status.as_mut().unwrap().phase = ApprovalPhase::Approved;
        newest.seen.approval.metadata.name = Some(AGAIN.to_owned());
        for read in [open, newest] {
            assert!(latest_successor(&caller, &read).await.is_none());
        }
        assert!(asked.lock().unwrap().is_empty());
    }
}
