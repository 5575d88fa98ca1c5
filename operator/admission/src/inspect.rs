//! Reads the policies with their bindings, the CRDs, the APIService, the webhooks and mutating policies of others, and
//! the identity of the caller *(I/O)*. `compare` compares them with this build.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        },
        authentication::v1::{SelfSubjectReview, UserInfo},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, PostParams},
};
use serde::de::DeserializeOwned;

use crate::{
    CRDS, Inspection,
    compare::{compare, parse_identity},
    policies::Identity,
};

/// Objects by name.
pub(crate) type ByName<K> = BTreeMap<String, K>;

/// The objects in force that an inspection compares.
pub(crate) struct InForce {
    pub(crate) validating: ByName<ValidatingAdmissionPolicy>,
    pub(crate) validating_bindings: ByName<ValidatingAdmissionPolicyBinding>,
    /// `None` if the API server does not serve mutating policies.
    pub(crate) mutating: Option<(ByName<MutatingAdmissionPolicy>, ByName<MutatingAdmissionPolicyBinding>)>,
    pub(crate) webhooks: ByName<MutatingWebhookConfiguration>,
    pub(crate) crds: ByName<CustomResourceDefinition>,
    pub(crate) service: Option<APIService>,
    /// The user that the API server authenticates for the caller.
    pub(crate) me: UserInfo,
}

/// Inspects the cluster as the operator: the policies must exempt the identity of this caller. `mutating`: whether the
/// API server serves mutating policies.
///
/// # Errors
/// The API server refuses, or does not answer.
pub async fn inspect(client: &Client, mutating: bool) -> Result<Inspection, kube::Error> {
    let in_force = read_all(client, mutating).await?;
    let operator = parse_identity(&in_force.me);
    Ok(compare(&in_force, operator))
}

/// Inspects the cluster for the operator with the given identity. The caller can be any user with the right to read the
/// policies.
///
/// # Errors
/// The API server refuses, or does not answer.
pub async fn inspect_as(client: &Client, identity: Identity, mutating: bool) -> Result<Inspection, kube::Error> {
    Ok(compare(&read_all(client, mutating).await?, Ok(identity)))
}

/// Reads all objects that an inspection compares.
async fn read_all(client: &Client, mutating: bool) -> Result<InForce, kube::Error> {
    let crds: Vec<String> = CRDS.iter().map(ResourceExt::name_any).collect();
    read(client, mutating, &crds, &crate::api_service()).await
}

/// Whether the API server serves mutating policies, as Kubernetes does from 1.36 on.
///
/// # Errors
/// The API server refuses, or does not answer.
pub async fn serves_mutating_policies(client: &Client) -> Result<bool, kube::Error> {
    match Api::<MutatingAdmissionPolicy>::all(client.clone()).list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the operator that the installed policies exempt, so that readers of a report can compare it with their own.
/// `None` if no policy names one.
///
/// # Errors
/// The API server refuses, or does not answer.
pub async fn installed_for(client: &Client) -> Result<Option<Identity>, kube::Error> {
    let policy = Api::<ValidatingAdmissionPolicy>::all(client.clone()).get_opt("signoff-status").await?;
    let text = policy.and_then(|policy| serde_json::to_string(&policy.spec).ok()).unwrap_or_default();
    let name = text.split_once("system:serviceaccount:").and_then(|(_, rest)| rest.split_once('\''));
    let account = name.and_then(|(name, _)| name.split_once(':'));
    Ok(account.map(|(namespace, account)| Identity::new(namespace, account)))
}

async fn read(client: &Client, mutating: bool, crds: &[String], service: &str) -> Result<InForce, kube::Error> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let (params, question) = (PostParams::default(), SelfSubjectReview::default());
    let services = Api::<APIService>::all(client.clone());
    let policies =
        async { if mutating { futures::try_join!(list_all(client), list_all(client)).map(Some) } else { Ok(None) } };
    let (validating, validating_bindings, mutating, webhooks, crds, service, review) = futures::try_join!(
        list_all(client),
        list_all(client),
        policies,
        list_all(client),
        read_crds(client, crds),
        services.get_opt(service),
        reviews.create(&params, &question),
    )?;
    let me = review.status.and_then(|status| status.user_info).unwrap_or_default();
    Ok(InForce { validating, validating_bindings, mutating, webhooks, crds, service, me })
}

/// Reads the CRDs by name, because a cluster may have hundreds of other large ones.
async fn read_crds(client: &Client, names: &[String]) -> Result<ByName<CustomResourceDefinition>, kube::Error> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let found = futures::future::try_join_all(names.iter().map(|name| api.get_opt(name))).await?;
    Ok(found.into_iter().flatten().map(|crd| (crd.name_any(), crd)).collect())
}

async fn list_all<K>(client: &Client) -> Result<ByName<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let list = Api::<K>::all(client.clone()).list(&ListParams::default()).await?;
    Ok(list.items.into_iter().map(|object| (object.name_any(), object)).collect())
}
