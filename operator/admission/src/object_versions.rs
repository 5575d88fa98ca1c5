//! The uid and generation of each object of the guard. They show that an object was changed or created again, even if
//! its content is the same as before. If the versions are equal, the last inspection still holds.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{Api, Client, Resource, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use signoff_api::{Digest, digest, names::LABEL_GUARD};

/// The policy, with a binding of the same name, without which a user could write a vote in the name of others.
const VOTES_POLICY: &str = "signoff-approvals";

/// The number of hex digits of an epoch, which is short because every vote and every request contains it.
const EPOCH_DIGITS: usize = 32;

/// The uid and the generation of each object, by kind and name. The API server increases the generation with every
/// change of a spec, and no user can set it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ObjectVersions(BTreeMap<String, (String, i64)>);

impl ObjectVersions {
    pub(crate) fn add(&mut self, kind: &str, meta: &ObjectMeta) {
        let name = meta.name.as_deref().unwrap_or_default();
        let version = (meta.uid.clone().unwrap_or_default(), meta.generation.unwrap_or_default());
        self.0.insert(format!("{kind}/{name}"), version);
    }

    /// Returns the epoch, 128 bits in hex. The epoch changes if one of the objects is changed or created again, and
    /// with every interruption that changed no object.
    ///
    /// # Errors
    /// Never in practice: generations are far below the numbers that JSON readers round.
    pub fn epoch(&self, interruptions: u32) -> Result<String, digest::Error> {
        Digest::of(&(&self.0, interruptions)).map(|digest| digest.short(EPOCH_DIGITS).to_owned())
    }

    /// Returns the current versions of the objects with the guard's label, or `None` if another server serves the API.
    /// `mutating`: whether mutating policies are served. Each kind is listed without a `resourceVersion`, so that no
    /// answer is older than the question.
    ///
    /// # Errors
    /// The API server refuses, or does not answer.
    pub async fn current(client: &Client, mutating: bool) -> Result<Option<Self>, kube::Error> {
        let mutators = async {
            if !mutating {
                return Ok((Vec::new(), Vec::new()));
            }
            futures::try_join!(
                list_labelled::<MutatingAdmissionPolicy>(client),
                list_labelled::<MutatingAdmissionPolicyBinding>(client)
            )
        };
        let (policies, bindings, (mutations, mutation_bindings), crds, is_local) = futures::try_join!(
            list_labelled::<ValidatingAdmissionPolicy>(client),
            list_labelled::<ValidatingAdmissionPolicyBinding>(client),
            mutators,
            list_labelled::<CustomResourceDefinition>(client),
            is_served_locally(client),
        )?;
        if !is_local {
            return Ok(None);
        }
        let mut now = Self::default();
        for (kind, meta) in [policies, bindings, mutations, mutation_bindings, crds].iter().flatten() {
            now.add(kind, meta);
        }
        Ok(Some(now))
    }

    /// Returns the versions with new versions of the policy of votes and of its binding, or `None` if another server
    /// serves the API. Reads three objects by name, because the API server answers a read from etcd at once, while a
    /// list waits until the server's cache is current.
    ///
    /// # Errors
    /// The API server refuses, or does not answer.
    pub async fn with_policy_of_votes(&self, client: &Client) -> Result<Option<Self>, kube::Error> {
        let (is_local, policy, binding) = futures::try_join!(
            is_served_locally(client),
            get_labelled::<ValidatingAdmissionPolicy>(client, VOTES_POLICY),
            get_labelled::<ValidatingAdmissionPolicyBinding>(client, VOTES_POLICY),
        )?;
        if !is_local {
            return Ok(None);
        }
        let mut now = self.clone();
        now.0.retain(|key, _| !is_policy_of_votes(key));
        for (kind, meta) in policy.iter().chain(&binding) {
            now.add(kind, meta);
        }
        Ok(Some(now))
    }

    /// Whether `now` contains each object of `self` unchanged. An object that has lost the label is missing in `now`.
    #[must_use]
    pub fn still_hold(&self, now: &Self) -> bool {
        self.0.iter().all(|(name, version)| now.0.get(name) == Some(version))
    }
}

/// Whether this API server serves the API of Signoff itself, so that no APIService routes its requests to another
/// server.
async fn is_served_locally(client: &Client) -> Result<bool, kube::Error> {
    let service = Api::<APIService>::all(client.clone()).get_opt(&crate::api_service()).await?;
    Ok(service.and_then(|service| service.spec).is_none_or(|spec| spec.service.is_none()))
}

/// Whether `key` names the policy of votes or its binding.
fn is_policy_of_votes(key: &str) -> bool {
    let Some((kind, name)) = key.split_once('/') else { return false };
    kind.starts_with("ValidatingAdmissionPolicy") && name == VOTES_POLICY
}

/// Returns the kind and the metadata of the object `name`, or `None` if it is missing or lacks the label of the guard.
async fn get_labelled<K>(client: &Client, name: &str) -> Result<Option<(String, ObjectMeta)>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let object = Api::<K>::all(client.clone()).get_metadata_opt(name).await?;
    let meta = object.map(|object| object.metadata);
    let is_labelled = |meta: &ObjectMeta| {
        meta.labels.as_ref().and_then(|labels| labels.get(LABEL_GUARD)).is_some_and(|value| value == "true")
    };
    Ok(meta.filter(is_labelled).map(|meta| (K::kind(&()).into_owned(), meta)))
}

/// Returns the kind and the metadata of each object with the label of the guard.
async fn list_labelled<K>(client: &Client) -> Result<Vec<(String, ObjectMeta)>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let params = ListParams::default().labels(&format!("{LABEL_GUARD}=true"));
    let items = match Api::<K>::all(client.clone()).list_metadata(&params).await {
        Ok(list) => list.items,
        // A kind that is no longer served has no objects.
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(items.into_iter().map(|object| (K::kind(&()).into_owned(), object.metadata)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn versions(uid: &str, generation: i64) -> ObjectVersions {
        let mut versions = ObjectVersions::default();
        let meta = ObjectMeta {
            name: Some("signoff-approvals".into()),
            uid: Some(uid.into()),
            generation: Some(generation),
            ..ObjectMeta::default()
        };
        versions.add("ValidatingAdmissionPolicy", &meta);
        versions
    }

    #[test]
    fn the_epoch_depends_on_uid_generation_and_interruptions() {
        let epoch = |versions: ObjectVersions, interruptions| versions.epoch(interruptions).unwrap();
        let first = epoch(versions("a", 1), 0);
        assert_eq!(first, epoch(versions("a", 1), 0));
        assert!(first.len() == 32 && first.chars().all(|digit| digit.is_ascii_hexdigit()), "{first}");
        for other in [epoch(versions("b", 1), 0), epoch(versions("a", 2), 0), epoch(versions("a", 1), 1)] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn this_build_has_the_policy_of_votes_and_a_binding_of_the_same_name() {
        let objects = crate::policies::objects(&crate::policies::Identity::default()).unwrap();
        let has_name = |object: &&crate::policies::PolicyObject| object.meta().name.as_deref() == Some(VOTES_POLICY);
        let named: Vec<_> = objects.iter().filter(has_name).collect();
        use crate::policies::PolicyObject::{Validating, ValidatingBinding};
        assert!(matches!(named[..], [Validating(_), ValidatingBinding(_)] | [ValidatingBinding(_), Validating(_)]));
    }

    #[test]
    fn versions_hold_until_an_object_is_missing_recreated_or_changed() {
        let first = versions("a", 1);
        let mut among_others = first.clone();
        let other = ObjectMeta { name: Some("elsewhere".into()), ..ObjectMeta::default() };
        among_others.add("ValidatingAdmissionPolicy", &other);
        assert!(first.still_hold(&first) && first.still_hold(&among_others));
        for now in [ObjectVersions::default(), versions("b", 1), versions("a", 2)] {
            assert!(!first.still_hold(&now), "{now:?}");
        }
    }
}
