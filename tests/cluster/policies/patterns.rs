//! The API server reads a form's patterns exactly as the plan of a Workflow does. The table is shared with the tests of
//! the operator.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use signoff_tests::control_plane::named;

use super::harness::{Harness, to_answer};

#[tokio::test]
async fn patterns_match_the_same_on_the_api_server_and_in_a_plan() {
    let table: Value = serde_json::from_str(include_str!("../../contract/patterns.json")).unwrap();
    let harness = Harness::open("patterns").await;
    let (alice, me) = (harness.approvals("alice").await, named("alice").unwrap().user);
    let mut tried = 0;
    for row in table["read"].as_array().unwrap() {
        let question = json!({"id": "answer", "pattern": row["pattern"], "errorMessage": "it does not match"});
        let approval = harness.ask(json!({"form": {"questions": [question]}})).await;
        for (list, matches) in [("yes", true), ("no", false)] {
            for text in row[list].as_array().unwrap() {
                let respond = json!({"verdict": "Respond", "answers": {"answer": {"text": text}}});
                let patch = Patch::Merge(json!({"spec": {"decisions": {me: respond}}}));
                let dry = PatchParams { dry_run: true, ..PatchParams::default() };
                let answer = to_answer(alice.patch(&approval.name_any(), &dry, &patch).await).map(drop);
                let right = match &answer {
                    Ok(()) => matches,
                    Err(why) => !matches && why.contains("it does not match"),
                };
                assert!(right, "{} and {text}: {answer:?}", row["pattern"]);
                tried += 1;
            }
        }
    }
    assert!(tried > 40, "{tried} texts: where are they?");
}
