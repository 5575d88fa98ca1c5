//! The installed rules are those of this build, and the API server found no errors in them.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, Validation,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use signoff_admission::policies::{Identity, PolicyObject, objects};
use signoff_api::crds;
use signoff_tests::control_plane::{Cluster, OPERATOR_ACCOUNT, OPERATOR_NAMESPACE};

fn ours() -> Vec<PolicyObject> {
    objects(&Identity::new(OPERATOR_NAMESPACE, OPERATOR_ACCOUNT)).unwrap()
}

#[tokio::test]
async fn policies_and_bindings_are_stored_exactly_as_they_are_shipped() {
    let admin = Cluster::shared().unwrap().admin().await.unwrap();
    for object in ours() {
        match object {
            PolicyObject::Validating(policy) => {
                let stored =
                    Api::<ValidatingAdmissionPolicy>::all(admin.clone()).get(&policy.name_any()).await.unwrap();
                assert_eq!(stored.spec, policy.spec, "{}", policy.name_any());
            }
            PolicyObject::ValidatingBinding(binding) => {
                let stored =
                    Api::<ValidatingAdmissionPolicyBinding>::all(admin.clone()).get(&binding.name_any()).await.unwrap();
                assert_eq!(stored.spec, binding.spec, "{}", binding.name_any());
            }
            PolicyObject::Mutating(policy) => {
                let stored = Api::<MutatingAdmissionPolicy>::all(admin.clone()).get(&policy.name_any()).await.unwrap();
                assert_eq!(stored.spec, policy.spec, "{}", policy.name_any());
            }
            PolicyObject::MutatingBinding(binding) => {
                let stored =
                    Api::<MutatingAdmissionPolicyBinding>::all(admin.clone()).get(&binding.name_any()).await.unwrap();
                assert_eq!(stored.spec, binding.spec, "{}", binding.name_any());
            }
        }
    }
}

/// Returns copies of a policy whose rules name today's versions, and which no binding enforces. The API server checks
/// types only where a rule names versions, and ours match every version. It compiles every variable again for every
/// validation, so validations that use a very long variable have a copy of their own.
fn typed_copies(policy: &ValidatingAdmissionPolicy) -> Vec<ValidatingAdmissionPolicy> {
    let mut spec = policy.spec.clone().unwrap();
    for rule in spec.match_constraints.as_mut().and_then(|rules| rules.resource_rules.as_mut()).into_iter().flatten() {
        let ours = rule.api_groups.as_ref().is_some_and(|groups| groups.contains(&"signoff.dev".to_owned()));
        rule.api_versions = Some(vec![if ours { "v1alpha1" } else { "v1" }.to_owned()]);
    }
    let long: Vec<_> = spec.variables.iter().flatten().filter(|v| v.expression.len() > 4096).cloned().collect();
    let uses =
        |validation: &Validation| long.iter().any(|v| validation.expression.contains(&format!("variables.{}", v.name)));
    let copy = |name: &str, spec| ValidatingAdmissionPolicy {
        metadata: ObjectMeta { name: Some(format!("typed-{name}{}", policy.name_any())), ..ObjectMeta::default() },
        spec: Some(spec),
        status: None,
    };
    let (mut short, mut rest) = (spec.clone(), spec);
    rest.validations.iter_mut().for_each(|all| all.retain(|validation| uses(validation)));
    short.validations.iter_mut().for_each(|all| all.retain(|validation| !uses(validation)));
    for variable in short.variables.iter_mut().flatten().filter(|v| v.expression.len() > 4096) {
        variable.expression = "[0]".to_owned();
    }
    match long.is_empty() {
        true => vec![copy("", short)],
        false => vec![copy("", short), copy("long-", rest)],
    }
}

#[tokio::test]
async fn the_api_server_checks_the_types_of_every_expression_and_warns_of_none() {
    let api: Api<ValidatingAdmissionPolicy> = Api::all(Cluster::shared().unwrap().admin().await.unwrap());
    let copies: Vec<_> = ours()
        .into_iter()
        .flat_map(|object| match object {
            PolicyObject::Validating(policy) => typed_copies(&policy),
            _ => Vec::new(),
        })
        .collect();
    for copy in &copies {
        api.create(&PostParams::default(), copy).await.unwrap();
    }
    for copy in &copies {
        let checked = |policy: Option<&ValidatingAdmissionPolicy>| {
            policy.and_then(|policy| policy.status.as_ref()?.observed_generation).is_some()
        };
        let name = copy.name_any();
        let waiting = await_condition(api.clone(), &name, checked);
        let policy = tokio::time::timeout(Duration::from_secs(120), waiting).await.expect(&name).unwrap();
        let warnings = policy
            .and_then(|policy| policy.status)
            .and_then(|status| status.type_checking)
            .and_then(|checking| checking.expression_warnings)
            .unwrap_or_default();
        assert!(warnings.is_empty(), "{name}: {warnings:#?}");
        api.delete(&name, &DeleteParams::default()).await.unwrap();
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

/// Returns a value without empty lists, which the API server does not distinguish from missing ones.
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
