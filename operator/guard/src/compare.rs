//! Compares what is in force with what this build ships.
//!
//! It must not overlook a difference: what is not understood differs.

use jiff::Timestamp;
use k8s_openapi::{
    api::authentication::v1::UserInfo,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec,
};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use signoff_api::{
    names::LABEL_GUARD,
    policies::{self, Identity, PolicyObject},
};

use crate::{
    CRDS, ObjectVersions, difference, external_mutators,
    read::{ByName, InForce, read},
};

const REMEDY: &str = "install the chart of this operator's version again";
/// What a token that is bound to a pod says of its bearer.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// What an inspection found.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Every object on which the guard rests, in the order in which they were compared.
    pub objects: Vec<Object>,
    /// Other people's webhooks and policies that could change a vote on its way, by kind and name.
    pub external_mutators: Vec<String>,
    /// The operator that the rules were compared for; none where whoever asked is none.
    pub identity: Option<Identity>,
    /// What is wrong besides: with whoever asks.
    pub complaints: Vec<String>,
    /// What tells whether an object was changed since.
    pub versions: ObjectVersions,
    /// When one of the objects was last changed, as far as they say so themselves.
    pub changed_at: Option<Timestamp>,
}

/// One object on which the guard rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// How it stands.
    pub state: State,
}

/// How an object of the guard stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// As this build ships it.
    AsShipped,
    /// It differs, at this place first.
    Differs(String),
    /// It is not there.
    Missing,
    /// Of the APIService: requests for our objects go to another server.
    Elsewhere,
    /// The API server does not know the kind, and the rules hold without it.
    NotServed,
}

impl Inspection {
    /// Everything that is wrong, each with its remedy; nothing where all is in force.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let of_objects = self.objects.iter().filter_map(|Object { kind, name, state }| match state {
            State::AsShipped | State::NotServed => None,
            State::Missing => Some(format!("{kind} {name} is missing: {REMEDY}")),
            State::Differs(place) => {
                Some(format!("{kind} {name} is not the one that this operator ships, {place} differs: {REMEDY}"))
            }
            State::Elsewhere => Some(format!("the API {name} is served by another server: delete that {kind}")),
        });
        of_objects.chain(self.complaints.iter().cloned()).collect()
    }

    /// Whether another server answers for our objects: what it says may be false, and the objects' versions would not
    /// tell that it ever did.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.objects.iter().any(|object| object.state == State::Elsewhere)
    }
}

/// Looks once, as the operator: its own identity is what the rules must trust. `mutating`: whether the API server
/// serves mutating policies.
///
/// # Errors
/// As the API server answers.
pub async fn inspect(client: &Client, mutating: bool) -> Result<Inspection, kube::Error> {
    let found = read_all(client, mutating).await?;
    let operator = identity(&found.me);
    Ok(compare(&found, operator))
}

/// Looks once, as anybody who may read the rules, for the operator with this identity.
///
/// # Errors
/// As the API server answers.
pub async fn inspect_as(client: &Client, identity: Identity, mutating: bool) -> Result<Inspection, kube::Error> {
    Ok(compare(&read_all(client, mutating).await?, Ok(identity)))
}

async fn read_all(client: &Client, mutating: bool) -> Result<InForce, kube::Error> {
    let crds: Vec<String> = CRDS.iter().map(ResourceExt::name_any).collect();
    read(client, mutating, &crds, &crate::api_service()).await
}

fn compare(found: &InForce, identity: Result<Identity, String>) -> Inspection {
    let mut inspection = Inspection::default();
    for crd in CRDS.iter() {
        inspection.object("CustomResourceDefinition", crd, Some(&found.crds), |crd| defaulted(&crd.spec));
    }
    let elsewhere =
        found.service.as_ref().and_then(|service| service.spec.as_ref()).is_some_and(|spec| spec.service.is_some());
    let state = if elsewhere { State::Elsewhere } else { State::AsShipped };
    inspection.objects.push(Object { kind: "APIService", name: crate::api_service(), state });
    match identity {
        Ok(identity) => {
            inspection.policies(&identity, found);
            inspection.identity = Some(identity);
        }
        Err(why) => inspection.complaints.push(why),
    }
    let names = |object: &Object| (object.kind == "MutatingAdmissionPolicy").then(|| object.name.clone());
    inspection.external_mutators =
        external_mutators::mutators(found, &inspection.objects.iter().filter_map(names).collect::<Vec<_>>());
    inspection
}

/// Who the operator is, as the API server sees it: the policies exempt exactly this one.
fn identity(me: &UserInfo) -> Result<Identity, String> {
    let name = me.username.as_deref().unwrap_or_default();
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let Some((namespace, account)) = account else {
        return Err(format!("the operator is {name}, which is no service account: run it as the chart's"));
    };
    if !me.extra.as_ref().is_some_and(|extra| extra.contains_key(POD_NAME)) {
        return Err(format!(
            "the operator's token of {name} is bound to no pod: run it in a Pod, or with a token made by `kubectl create token --bound-object-kind=Pod`"
        ));
    }
    Ok(Identity::new(namespace, account))
}

impl Inspection {
    fn policies(&mut self, identity: &Identity, found: &InForce) {
        let shipped = match policies::objects(identity) {
            Ok(shipped) => shipped,
            Err(why) => return self.complaints.push(why.to_string()),
        };
        let (mutating, mutating_bindings) = match &found.mutating {
            Some((policies, bindings)) => (Some(policies), Some(bindings)),
            None => (None, None),
        };
        for object in &shipped {
            match object {
                PolicyObject::Validating(policy) => {
                    self.object("ValidatingAdmissionPolicy", policy, Some(&found.validating), |p| p.spec.clone());
                }
                PolicyObject::ValidatingBinding(binding) => {
                    let found = Some(&found.validating_bindings);
                    self.object("ValidatingAdmissionPolicyBinding", binding, found, |b| b.spec.clone());
                }
                // An API server that does not know them cannot fill in who asks: that must be typed there.
                PolicyObject::Mutating(policy) => {
                    self.object("MutatingAdmissionPolicy", policy, mutating, |p| p.spec.clone());
                }
                PolicyObject::MutatingBinding(binding) => {
                    self.object("MutatingAdmissionPolicyBinding", binding, mutating_bindings, |b| b.spec.clone());
                }
            }
        }
    }

    /// Compares one object by its spec and the guard's label; `found` is none where the API server does not know the kind.
    fn object<K: Resource, S: Serialize>(
        &mut self,
        kind: &'static str,
        shipped: &K,
        found: Option<&ByName<K>>,
        spec: impl Fn(&K) -> S,
    ) {
        let name = shipped.name_any();
        let state = match found.map(|found| found.get(&name)) {
            None => State::NotServed,
            Some(None) => State::Missing,
            Some(Some(object)) => {
                self.mark(kind, object);
                let place = difference::first(&spec(shipped), &spec(object)).or_else(|| unlabelled(object));
                place.map_or(State::AsShipped, State::Differs)
            }
        };
        self.objects.push(Object { kind, name, state });
    }

    fn mark<K: Resource>(&mut self, kind: &str, object: &K) {
        let meta = object.meta();
        self.versions.add(kind, meta);
        let times = meta.managed_fields.iter().flatten().filter_map(|entry| entry.time.as_ref());
        let newest = times.chain(&meta.creation_timestamp).map(|time| time.0).max();
        self.changed_at = self.changed_at.max(newest);
    }
}

/// Returns where the guard's label belongs, on an object that lacks it: the question before a decision would not find that object.
fn unlabelled<K: Resource>(object: &K) -> Option<String> {
    let label = object.labels().get(LABEL_GUARD).map(String::as_str);
    (label != Some("true")).then(|| format!("metadata.labels[{LABEL_GUARD}]"))
}

/// A CRD's spec without what the API server fills in for every CRD.
fn defaulted(spec: &CustomResourceDefinitionSpec) -> CustomResourceDefinitionSpec {
    let mut spec = spec.clone();
    if spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy == "None") {
        spec.conversion = None;
    }
    if spec.preserve_unknown_fields == Some(false) {
        spec.preserve_unknown_fields = None;
    }
    if spec.names.list_kind.as_deref() == Some(&format!("{}List", spec.names.kind)) {
        spec.names.list_kind = None;
    }
    if spec.names.singular.as_deref() == Some(&spec.names.kind.to_lowercase()) {
        spec.names.singular = None;
    }
    spec
}
