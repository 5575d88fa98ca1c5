//! The requests that `kubectl approve` does not decide, because something about them is not verified. No operator runs.
//! It must not test a decision that is recorded: `plugin.rs` does.

use serde_json::json;

use crate::asked::Place;
use crate::plugin::refusal;

#[tokio::test]
async fn a_request_whose_run_is_gone_or_unguarded_is_not_decided() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let other = place.ask(|request| request.workflow.uid = "6f1c3e5a-0000-4000-8000-000000000001".to_owned()).await;
    let missing = place.ask(|request| request.workflow.name = "refund-4712".to_owned()).await;
    let said = async |name: &str| refusal(&place.approve("alice", &["approve", name]).await);
    let not_the_run =
        "refused: the run refund-4711 is not the run that asked (it has another uid): do not decide this request";
    assert!(said(&other).await.starts_with(not_the_run));
    assert!(said(&missing).await.starts_with("refused: the run refund-4712 of this request does not exist"));
    let condition = json!({"type": "Guarded", "status": "False", "reason": "PoliciesDiffer", "message": "signoff-approvals differs",
        "lastTransitionTime": "2026-11-22T10:00:00Z"});
    place.says_of_run(json!([condition])).await;
    assert_eq!(said(&name).await, "refused: decisions are not honoured now: signoff-approvals differs");
    for name in [&name, &other, &missing] {
        assert!(place.stored(name).await.spec.decisions.is_empty());
    }
    place.says_of_run(json!([])).await;
    place.approve("alice", &["approve", &name]).await.ok().unwrap();
}
