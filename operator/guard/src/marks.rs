//! Marks: what tells that an object of the guard was changed or made anew, even where it is the same again.
//!
//! They say nothing about what the object holds: equal marks mean that what an earlier look found still holds.

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
use kube::{
    Api, Client, Resource,
    api::{GetParams, ListParams},
};
use serde::{Serialize, de::DeserializeOwned};
use signoff_api::{Digest, digest};

use crate::CRDS;

/// The hex digits of an epoch: every vote and every request carries one.
const EPOCH_DIGITS: usize = 32;

/// By kind and name: the uid and the generation, which the API server moves with every change of a spec and nobody
/// can move back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Marks(BTreeMap<String, (String, i64)>);

impl Marks {
    pub(crate) fn add(&mut self, kind: &str, meta: &ObjectMeta) {
        let name = meta.name.as_deref().unwrap_or_default();
        let mark = (meta.uid.clone().unwrap_or_default(), meta.generation.unwrap_or_default());
        self.0.insert(format!("{kind}/{name}"), mark);
    }

    /// The epoch, 128 bits in hex: moves whenever one of the objects is changed or made anew, and with every interruption that left
    /// no mark.
    ///
    /// # Errors
    /// Never in practice: generations are far from what JSON readers round.
    pub fn epoch(&self, interruptions: u32) -> Result<String, digest::Error> {
        Digest::of(&(&self.0, interruptions)).map(|digest| digest.short(EPOCH_DIGITS).to_owned())
    }

    /// Whether the objects still have these marks, and this API server itself serves the API. `mutating`: whether
    /// mutating policies are served.
    ///
    /// # Errors
    /// As the API server answers.
    pub async fn still_hold(&self, client: &Client, mutating: bool) -> Result<bool, kube::Error> {
        let names: Vec<&str> = CRDS.iter().filter_map(|crd| crd.metadata.name.as_deref()).collect();
        let crds = Api::<CustomResourceDefinition>::all(client.clone());
        let crds = names.iter().map(|name| async { crds.get_metadata_with(name, &GetParams::default()).await });
        let services = Api::<APIService>::all(client.clone());
        let service = crate::api_service();
        let mutators = async {
            if !mutating {
                return Ok((Vec::new(), Vec::new()));
            }
            futures::try_join!(all::<MutatingAdmissionPolicy>(client), all::<MutatingAdmissionPolicyBinding>(client))
        };
        let found = futures::try_join!(
            all::<ValidatingAdmissionPolicy>(client),
            all::<ValidatingAdmissionPolicyBinding>(client),
            mutators,
            futures::future::try_join_all(crds),
            services.get_opt(&service),
        );
        let (policies, bindings, (mutations, mutation_bindings), crds, service) = match found {
            Ok(found) => found,
            // A CRD that is not there is no error of the question.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut now = Self::default();
        let lists = policies.iter().chain(&bindings).chain(&mutations).chain(&mutation_bindings);
        for (kind, meta) in lists {
            now.add(kind, meta);
        }
        for crd in &crds {
            now.add("CustomResourceDefinition", &crd.metadata);
        }
        let elsewhere = service.and_then(|service| service.spec).is_some_and(|spec| spec.service.is_some());
        Ok(!elsewhere && self.0.iter().all(|(name, mark)| now.0.get(name) == Some(mark)))
    }
}

async fn all<K>(client: &Client) -> Result<Vec<(String, ObjectMeta)>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let list = Api::<K>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    Ok(list.items.into_iter().map(|object| (K::kind(&()).into_owned(), object.metadata)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn marks(uid: &str, generation: i64) -> Marks {
        let mut marks = Marks::default();
        let meta = ObjectMeta {
            name: Some("signoff-approvals".into()),
            uid: Some(uid.into()),
            generation: Some(generation),
            ..ObjectMeta::default()
        };
        marks.add("ValidatingAdmissionPolicy", &meta);
        marks
    }

    #[test]
    fn the_epoch_moves_with_uid_generation_and_interruptions_and_with_nothing_else() {
        let epoch = |marks: Marks, interruptions| marks.epoch(interruptions).unwrap();
        let first = epoch(marks("a", 1), 0);
        assert_eq!(first, epoch(marks("a", 1), 0));
        assert!(first.len() == 32 && first.chars().all(|digit| digit.is_ascii_hexdigit()), "{first}");
        for other in [epoch(marks("b", 1), 0), epoch(marks("a", 2), 0), epoch(marks("a", 1), 1)] {
            assert_ne!(first, other);
        }
    }
}
