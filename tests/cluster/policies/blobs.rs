//! Blobs on a real API server: the rights on them, and the largest size.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use signoff_api::blob::MAX_BYTES;
use signoff_api::{Blob, BlobSpec};
use signoff_tests::control_plane::{OPERATOR_ACCOUNT, OPERATOR_NAMESPACE, named};

use super::harness::{Answer, Harness, assert_refused, to_answer};

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

impl Harness {
    /// Returns whether a user has a right on Blobs here by RBAC, without admission.
    async fn is_allowed(&self, admin: &Client, user: &str, groups: &[&str], verb: &str) -> bool {
        let question: SubjectAccessReview = serde_json::from_value(json!({"spec": {
            "user": user, "groups": groups,
            "resourceAttributes": {"namespace": self.namespace.name, "group": "signoff.dev", "resource": "blobs", "verb": verb},
        }}))
        .unwrap();
        let reviews: Api<SubjectAccessReview> = Api::all(admin.clone());
        reviews.create(&PostParams::default(), &question).await.unwrap().status.unwrap().allowed
    }

    /// Stores a Blob of a Workflow, as the operator.
    async fn store(&self, uid: &str, name: &str, spec: BlobSpec) -> Answer<Blob> {
        let mut blob = Blob::of_run(&self.namespace.name, "refund", uid, Vec::new());
        blob.metadata.name = Some(name.to_owned());
        blob.spec = spec;
        let blobs: Api<Blob> = Api::namespaced(self.operator.clone(), &self.namespace.name);
        to_answer(blobs.create(&PostParams::default(), &blob).await)
    }
}

#[tokio::test]
async fn each_role_has_exactly_these_rights_on_blobs() {
    let harness = Harness::open("blobs").await;
    let admin = harness.client("admin").await;
    let operator = format!("system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}");
    let none: &[&str] = &[];
    let rights = [
        ("alice", &["get"][..]),
        ("bob", &["get"]),
        ("flux", &["get"]),
        ("viktor", &["get"]),
        ("dana", none),
        ("nina", none),
        ("adam", none),
        ("mallory", none),
        ("operator", &["get", "create"]),
        ("admin", &VERBS),
    ];
    for (who, held) in rights {
        let (user, groups) = match named(who) {
            Ok(person) => (person.user, person.groups),
            Err(_) => (operator.as_str(), none),
        };
        for verb in VERBS {
            let may = harness.is_allowed(&admin, user, groups, verb).await;
            assert_eq!(may, held.contains(&verb), "{who} {verb}");
        }
    }
    signoff_tests::tried(rights.len() * VERBS.len(), "rights on Blobs");
}

#[tokio::test]
async fn a_blob_can_be_read_by_its_name_and_not_listed() {
    let harness = Harness::open("blobs").await;
    let run = harness.request("dana", "refund", json!({"suspend": true})).await.unwrap();
    harness.store(&run.uid().unwrap(), "letter", BlobSpec::of_bytes(b"Dear ACME".to_vec())).await.unwrap();
    for (who, reads) in [("alice", true), ("viktor", true), ("dana", false), ("nina", false), ("adam", false)] {
        let blobs: Api<Blob> = Api::namespaced(harness.client(who).await, &harness.namespace.name);
        match to_answer(blobs.get("letter").await) {
            Ok(blob) => assert!(reads && blob.spec.into_bytes() == b"Dear ACME", "{who}"),
            refusal => {
                assert!(!reads, "{who}: {refusal:?}");
                assert_refused(refusal, "cannot get resource \"blobs\"");
            }
        }
        assert_refused(to_answer(blobs.list(&Default::default()).await), "cannot list resource \"blobs\"");
    }
}

#[tokio::test]
async fn a_blob_of_one_mebibyte_is_stored_and_a_larger_one_is_refused() {
    let harness = Harness::open("blobs").await;
    let run = harness.request("dana", "refund", json!({"suspend": true})).await.unwrap();
    let uid = run.uid().unwrap();
    let blobs: Api<Blob> = Api::namespaced(harness.operator.clone(), &harness.namespace.name);
    for (name, unit) in [("plain", "x"), ("html", "<"), ("quotes", "\""), ("marks", "\u{2028}x"), ("wide", "é")] {
        let text = unit.repeat(MAX_BYTES / unit.len());
        let content = BlobSpec::of_bytes(text.clone().into_bytes());
        harness.store(&uid, name, content).await.unwrap_or_else(|why| panic!("{name}: {why:?}"));
        assert!(blobs.get(name).await.unwrap().spec.into_bytes() == text.as_bytes(), "{name}");
    }
    let long =
        |data: Option<String>, binary: Option<Vec<u8>>| BlobSpec { data, binary: binary.map(k8s_openapi::ByteString) };
    let text = harness.store(&uid, "long", long(Some("x".repeat(MAX_BYTES + 1)), None)).await;
    assert_refused(text, "spec.data: Too long");
    let bytes = harness.store(&uid, "long", long(None, Some(vec![0; MAX_BYTES + 3]))).await;
    assert_refused(bytes, "spec.binary: Too long");
}

#[tokio::test]
async fn blobs_are_deleted_with_their_namespace() {
    let harness = Harness::open("blobs-gone").await;
    let run = harness.request("dana", "refund", json!({"suspend": true})).await.unwrap();
    harness.store(&run.uid().unwrap(), "letter", BlobSpec::of_bytes(b"x".to_vec())).await.unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(harness.client("admin").await);
    let name = harness.namespace.name.clone();
    let uid = namespaces.get(&name).await.unwrap().uid().unwrap();
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    let gone =
        kube::runtime::wait::await_condition(namespaces, &name, kube::runtime::wait::conditions::is_deleted(&uid));
    tokio::time::timeout(std::time::Duration::from_secs(120), gone).await.unwrap().unwrap();
}
