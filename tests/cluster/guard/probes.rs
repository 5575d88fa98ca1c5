//! The forged requests of the guard on a real API server: each is refused by its own policy, and the guard reports a
//! policy that no longer refuses, whatever is stored of it.

use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use signoff_admission::policies::Identity;
use signoff_admission::probe::{self, Answer};
use signoff_api::Workflow;
use signoff_tests::control_plane::OPERATOR_NAMESPACE;

use super::harness::Harness;

const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// Each policy that a forged request tests, and the description of that request.
const TRIED: [(&str, &str); 4] = [
    ("signoff-approvals", "a forged decision"),
    ("signoff-blobs", "a Blob without a Workflow"),
    ("signoff-workflows", "a Workflow in the name of another person"),
    ("signoff-workflows-shape", "a Workflow with a step that does nothing"),
];

#[tokio::test]
async fn a_policy_that_is_removed_or_only_warns_is_named() {
    let harness = Harness::open().await;
    let operator = harness.cluster.operator_client().await.unwrap();
    let asked = async || probe::forged(&operator, &Identity::default()).await.unwrap();
    let all_refused = async || match asked().await {
        Answer::Refused(at) => Ok(at),
        Answer::Otherwise(what) => Err(what),
    };
    let warns = |binding: &mut Value| {
        binding["spec"]["validationActions"] = json!(["Warn"]);
        true
    };
    harness.repeat_until_accepted("that all are refused", all_refused).await.unwrap();
    for (policy, what) in TRIED {
        let changes: [&dyn Fn(&mut Value) -> bool; 2] = [&warns, &|_| false];
        for change in changes {
            let before = harness.change_or_delete(BINDING, policy, change).await;
            let said = harness
                .repeat_until_accepted(&format!("a probe of {policy}"), async || match asked().await {
                    Answer::Refused(_) => Err("every forged request is refused".to_owned()),
                    Answer::Otherwise(what) => Ok(what),
                })
                .await;
            assert_eq!(said, format!("it accepts {what}"));
            harness.restore(BINDING, before).await;
            harness.repeat_until_accepted(&format!("that {policy} refuses again"), all_refused).await;
        }
    }
    let workflows: Api<Workflow> = Api::namespaced(harness.admin.clone(), OPERATOR_NAMESPACE);
    assert!(workflows.list(&ListParams::default()).await.unwrap().items.is_empty(), "a probe was stored");
}
