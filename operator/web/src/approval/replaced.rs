//! Requests that another one has replaced: after the message whose link was opened was sent, or by being superseded.

use signoff_api::{ApprovalRequest, RecordPath, approval::ApprovalPhase, names};
use signoff_review::successor;

use super::{
    model::RequestLink,
    next,
    read::{Read, approval},
};
use crate::session::{
    Caller,
    wanted::{DIGITS, told_digest},
};

/// Whether the opened link is of a notice about another request than the stored one.
pub(super) fn is_replaced(query: &str, request: &ApprovalRequest) -> bool {
    told_digest(query).is_some_and(|told| told != request.digest.short(DIGITS))
}

/// Returns the latest request that asks again after one was superseded, or `None` if there is none that the reader can
/// read. The run names it, so only one Approval is read.
pub(super) async fn asked_again(caller: &Caller, read: &Read) -> Option<RequestLink> {
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
    let found = approval(&caller.client, namespace, newest).await.ok()?;
    successor::last(superseded, std::iter::once(&found.approval)).map(next::of)
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
    fn a_link_with_another_digest_is_told_and_one_with_an_invalid_digest_is_not() {
        let request = sample::approval().spec.request;
        let (own, other) = (request.digest.short(16), Digest::of_bytes(b"other"));
        assert!(is_replaced(&format!("d={}", other.short(16)), &request));
        let [shorter, longer] = [15, 17].map(|digits| format!("d={}", other.short(digits)));
        for query in ["", "d=x", &format!("d={own}"), &shorter, &longer] {
            assert!(!is_replaced(query, &request), "{query}");
        }
    }

    #[tokio::test]
    async fn a_replaced_request_says_so_and_is_to_be_read_again_only_where_it_can_be_decided() {
        let (replaced, again) = ("after the message that led you here was sent", "Read it again before you decide.");
        for (user, is_replaced, can_decide) in [
            ("alice@example.com", true, true),
            ("mallory@example.com", true, false),
            ("alice@example.com", false, true),
        ] {
            let read = read_of(&sample::approval());
            let mut page = ApprovalPage::of(&caller(user), &read, &Typed::default(), &Problems::default());
            page.related.is_replaced = is_replaced;
            let page = page.render().unwrap();
            assert_eq!(page.contains(replaced), is_replaced, "{user}: {page}");
            assert_eq!(page.contains(again), is_replaced && can_decide, "{user}: {page}");
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

    fn second(change: impl FnOnce(&mut Approval)) -> Value {
        let mut approval = sample::approval();
        approval.spec.request.gate.path = "review#2".to_owned();
        approval.spec.request.gate.visit = 2;
        change(&mut approval);
        sample::seal(&mut approval);
        approval.metadata.name = Some(AGAIN.to_owned());
        serde_json::to_value(approval).unwrap()
    }

    #[tokio::test]
    async fn a_superseded_request_leads_to_the_one_that_asks_again_if_its_reader_can_read_that() {
        let read = superseded();
        let link = async |answer: (u16, Value)| {
            let (client, asked) = server(move |_| answer.clone());
            let caller = Caller { client, ..caller("alice@example.com") };
            let link = asked_again(&caller, &read).await;
            assert_eq!(asked.lock().unwrap().len(), 1, "one request is read");
            (caller, link)
        };
        let (caller, found) = link((200, second(|_| {}))).await;
        let mut page = ApprovalPage::of(&caller, &read, &Typed::default(), &Problems::default());
        page.related.asked_again = found;
        let page = page.render().unwrap();
        let expected = format!("<a href=\"/n/finance/a/{AGAIN}\">Send this letter to ACME?</a>");
        assert!(page.contains(&expected), "{page}");
        assert!(link(forbidden()).await.1.is_none(), "its reader cannot read it");
        let of_another_run = second(|approval| approval.spec.request.workflow.uid = "another".to_owned());
        assert!(link((200, of_another_run)).await.1.is_none());
    }

    #[tokio::test]
    async fn only_for_a_superseded_request_another_one_is_read() {
        let (client, asked) = server(|_| (200, second(|_| {})));
        let caller = Caller { client, ..caller("alice@example.com") };
        let (mut open, mut newest) = (superseded(), superseded());
        open.seen.approval.status.as_mut().unwrap().phase = ApprovalPhase::Approved;
        newest.seen.approval.metadata.name = Some(AGAIN.to_owned());
        for read in [open, newest] {
            assert!(asked_again(&caller, &read).await.is_none());
        }
        assert!(asked.lock().unwrap().is_empty());
    }
}
