//! What the chart installed is what this build ships, and the API server found nothing to complain about.
//! These tests may not change anything.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use signoff_api::crds;
use signoff_api::policies::{Identity, Shipped, shipped};
use signoff_tests::control_plane::{Cluster, OPERATOR_ACCOUNT, OPERATOR_NAMESPACE};

fn ours() -> Vec<Shipped> {
    shipped(&Identity::new(OPERATOR_NAMESPACE, OPERATOR_ACCOUNT)).unwrap()
}

#[tokio::test]
async fn policies_and_bindings_are_stored_exactly_as_they_are_shipped() {
    let admin = Cluster::shared().unwrap().admin().await.unwrap();
    for object in ours() {
        match object {
            Shipped::Validating(policy) => {
                let stored =
                    Api::<ValidatingAdmissionPolicy>::all(admin.clone()).get(&policy.name_any()).await.unwrap();
                assert_eq!(stored.spec, policy.spec, "{}", policy.name_any());
            }
            Shipped::ValidatingBinding(binding) => {
                let stored =
                    Api::<ValidatingAdmissionPolicyBinding>::all(admin.clone()).get(&binding.name_any()).await.unwrap();
                assert_eq!(stored.spec, binding.spec, "{}", binding.name_any());
            }
            Shipped::Mutating(policy) => {
                let stored = Api::<MutatingAdmissionPolicy>::all(admin.clone()).get(&policy.name_any()).await.unwrap();
                assert_eq!(stored.spec, policy.spec, "{}", policy.name_any());
            }
            Shipped::MutatingBinding(binding) => {
                let stored =
                    Api::<MutatingAdmissionPolicyBinding>::all(admin.clone()).get(&binding.name_any()).await.unwrap();
                assert_eq!(stored.spec, binding.spec, "{}", binding.name_any());
            }
        }
    }
}

#[tokio::test]
async fn the_api_server_has_checked_the_types_of_every_expression_and_warns_of_none() {
    let api: Api<ValidatingAdmissionPolicy> = Api::all(Cluster::shared().unwrap().admin().await.unwrap());
    for object in ours() {
        let Shipped::Validating(policy) = object else { continue };
        let checked = |policy: Option<&ValidatingAdmissionPolicy>| {
            policy.is_some_and(|policy| {
                let checked = policy.status.as_ref().and_then(|status| status.observed_generation);
                checked.is_some() && checked == policy.metadata.generation
            })
        };
        let name = policy.name_any();
        let waiting = await_condition(api.clone(), &name, checked);
        let policy = tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await.unwrap().unwrap();
        let warnings = policy
            .and_then(|policy| policy.status)
            .and_then(|status| status.type_checking)
            .and_then(|checking| checking.expression_warnings)
            .unwrap_or_default();
        assert!(warnings.is_empty(), "{name}: {warnings:#?}");
    }
}

#[tokio::test]
async fn the_crds_are_stored_as_they_are_made_from_the_types() {
    let api: Api<CustomResourceDefinition> = Api::all(Cluster::shared().unwrap().admin().await.unwrap());
    for crd in crds::all() {
        let stored = api.get(&crd.name_any()).await.unwrap();
        let versions =
            |crd: &CustomResourceDefinition| without_empty_lists(serde_json::to_value(&crd.spec.versions).unwrap());
        assert_eq!(versions(&crd), versions(&stored), "{}", crd.name_any());
        assert_eq!(stored.annotations().get("helm.sh/resource-policy").map(String::as_str), Some("keep"));
    }
}

/// An empty list and none are the same to the API server.
fn without_empty_lists(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.as_array().is_some_and(Vec::is_empty))
            .map(|(name, value)| (name, without_empty_lists(value)))
            .collect(),
        serde_json::Value::Array(items) => items.into_iter().map(without_empty_lists).collect(),
        other => other,
    }
}
