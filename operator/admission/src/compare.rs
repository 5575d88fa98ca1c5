//! Compares the objects in force with those that this build ships.
//!
//! **Invariant:** a value that is not understood counts as different.

use jiff::Timestamp;
use k8s_openapi::{
    api::authentication::v1::UserInfo,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec,
};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;
use signoff_api::names::LABEL_GUARD;

use crate::{
    CRDS, ObjectVersions, external_mutators,
    inspect::{ByName, InForce},
    policies::{self, Identity, PolicyObject},
};

/// The remedy for an object that is missing or different.
pub(crate) const REMEDY: &str = "install the chart of this operator's version again";
/// The field of a user that only a token bound to a pod has.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// The result of an inspection.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Every object on which the guard rests, in the order in which they were compared.
    pub objects: Vec<Object>,
    /// Webhooks and mutating policies that Signoff did not install and that could change a vote before it is stored, by
    /// kind and name.
    pub external_mutators: Vec<String>,
    /// The operator whose identity the policies were compared with, or `None` if the caller is not an operator.
    pub identity: Option<Identity>,
    /// Problems with the identity of the caller.
    pub complaints: Vec<String>,
    /// The versions of the objects, to find later changes.
    pub versions: ObjectVersions,
    /// The newest time of a change in the metadata of the objects.
    pub changed_at: Option<Timestamp>,
}

/// One object on which the guard rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kind as in its manifest, such as `ValidatingAdmissionPolicy`.
    pub kind: &'static str,
    /// The value of `metadata.name`.
    pub name: String,
    /// The difference between the object in the cluster and the one that this build ships.
    pub state: State,
}

/// The result of the comparison of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Equal to the object that this build ships.
    AsShipped,
    /// Different; the text is the path of the first difference.
    Differs(String),
    /// Missing in the cluster.
    Missing,
    /// Only of the APIService: another server gets the requests for objects of Signoff.
    Elsewhere,
    /// The API server does not serve the kind. The other policies verify decisions without it.
    NotServed,
}

impl Inspection {
    /// Returns a sentence for each problem, with its remedy. Empty if everything is in force.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let of_objects = self.objects.iter().filter_map(|Object { kind, name, state }| match state {
            State::AsShipped | State::NotServed => None,
            State::Missing => Some(format!("{kind} {name} is missing: {REMEDY}")),
            State::Differs(place) => {
                Some(format!("{kind} {name} differs from the one that this operator ships, in {place}: {REMEDY}"))
            }
            State::Elsewhere => Some(format!("the API {name} is served by another server: delete that {kind}")),
        });
        of_objects.chain(self.complaints.iter().cloned()).collect()
    }

    /// Whether another server answers requests for objects of Signoff. Its answers may be false, and the versions of
    /// the objects do not show afterwards that it answered.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.objects.iter().any(|object| object.state == State::Elsewhere)
    }
}

/// Compares the objects in force with those of this build. Without an identity, the policies are not compared, and the
/// error is a complaint of the inspection.
pub(crate) fn compare(in_force: &InForce, identity: Result<Identity, String>) -> Inspection {
    let mut inspection = Inspection::default();
    for crd in CRDS.iter() {
        let crds = Some(&in_force.crds);
        inspection.compare_object("CustomResourceDefinition", crd, crds, |crd| without_defaults(&crd.spec));
    }
    let service = in_force.service.as_ref().and_then(|service| service.spec.as_ref());
    let is_elsewhere = service.is_some_and(|spec| spec.service.is_some());
    let state = if is_elsewhere { State::Elsewhere } else { State::AsShipped };
    inspection.objects.push(Object { kind: "APIService", name: crate::api_service(), state });
    match identity {
        Ok(identity) => {
            inspection.compare_policies(&identity, in_force);
            inspection.identity = Some(identity);
        }
        Err(why) => inspection.complaints.push(why),
    }
    let mutating = |object: &Object| (object.kind == "MutatingAdmissionPolicy").then(|| object.name.clone());
    let own: Vec<_> = inspection.objects.iter().filter_map(mutating).collect();
    inspection.external_mutators = external_mutators::mutators(in_force, &own);
    inspection
}

/// Parses the operator's identity from the user that the API server authenticates. Refuses a user that is no service
/// account, and a token that is not bound to a Pod, because the policies exempt neither.
pub(crate) fn parse_identity(me: &UserInfo) -> Result<Identity, String> {
    let name = me.username.as_deref().unwrap_or_default();
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let Some((namespace, account)) = account else {
        return Err(format!(
            "the operator runs as {name}, which is not a service account: run it with the service account of the chart"
        ));
    };
    if !me.extra.as_ref().is_some_and(|extra| extra.contains_key(POD_NAME)) {
        return Err(format!(
            "the operator's token of {name} is not bound to a Pod: run it in a Pod, or with a token made by `kubectl create token --bound-object-kind=Pod`"
        ));
    }
    Ok(Identity::new(namespace, account))
}

impl Inspection {
    fn compare_policies(&mut self, identity: &Identity, in_force: &InForce) {
        let shipped = match policies::objects(identity) {
            Ok(shipped) => shipped,
            Err(why) => return self.complaints.push(why.to_string()),
        };
        let (mutating, mutating_bindings) = match &in_force.mutating {
            Some((policies, bindings)) => (Some(policies), Some(bindings)),
            None => (None, None),
        };
        for object in &shipped {
            match object {
                PolicyObject::Validating(policy) => {
                    let policies = Some(&in_force.validating);
                    self.compare_object("ValidatingAdmissionPolicy", policy, policies, |p| p.spec.clone());
                }
                PolicyObject::ValidatingBinding(binding) => {
                    let bindings = Some(&in_force.validating_bindings);
                    self.compare_object("ValidatingAdmissionPolicyBinding", binding, bindings, |b| b.spec.clone());
                }
                // On an API server without mutating policies, authors type the requester themselves.
                PolicyObject::Mutating(policy) => {
                    self.compare_object("MutatingAdmissionPolicy", policy, mutating, |p| p.spec.clone());
                }
                PolicyObject::MutatingBinding(binding) => {
                    let bindings = mutating_bindings;
                    self.compare_object("MutatingAdmissionPolicyBinding", binding, bindings, |b| b.spec.clone());
                }
            }
        }
    }

    /// Compares one object by its spec and the label of the guard, and adds its state and its version to the
    /// inspection. `in_force`: the objects of the kind in the cluster, or `None` if the API server does not serve the
    /// kind.
    fn compare_object<K: Resource, S: Serialize>(
        &mut self,
        kind: &'static str,
        shipped: &K,
        in_force: Option<&ByName<K>>,
        spec: impl Fn(&K) -> S,
    ) {
        let name = shipped.name_any();
        let state = match in_force.map(|objects| objects.get(&name)) {
            None => State::NotServed,
            Some(None) => State::Missing,
            Some(Some(object)) => {
                self.record_version(kind, object);
                let place = first_difference(&spec(shipped), &spec(object)).or_else(|| missing_label(object));
                place.map_or(State::AsShipped, State::Differs)
            }
        };
        self.objects.push(Object { kind, name, state });
    }

    /// Adds the version of an object in force, and keeps the newest time of a change.
    fn record_version<K: Resource>(&mut self, kind: &str, object: &K) {
        let meta = object.meta();
        self.versions.add(kind, meta);
        let times = meta.managed_fields.iter().flatten().filter_map(|entry| entry.time.as_ref());
        let newest = times.chain(&meta.creation_timestamp).map(|time| time.0).max();
        self.changed_at = self.changed_at.max(newest);
    }
}

/// Returns the path of the guard's label if the object lacks it. The recheck before a decision lists objects by this
/// label.
fn missing_label<K: Resource>(object: &K) -> Option<String> {
    let label = object.labels().get(LABEL_GUARD).map(String::as_str);
    (label != Some("true")).then(|| format!("metadata.labels[{LABEL_GUARD}]"))
}

/// Returns a CRD's spec without the fields that the API server fills in for every CRD.
fn without_defaults(spec: &CustomResourceDefinitionSpec) -> CustomResourceDefinitionSpec {
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

/// Returns the path of the first difference, such as `spec.validations[3].expression`, or `None` if both are equal.
/// Every difference counts.
fn first_difference(shipped: &impl Serialize, in_force: &impl Serialize) -> Option<String> {
    let (Ok(shipped), Ok(in_force)) = (serde_json::to_value(shipped), serde_json::to_value(in_force)) else {
        return Some("somewhere".to_owned());
    };
    compare_values("spec", &shipped, &in_force)
}

fn compare_values(path: &str, shipped: &Value, in_force: &Value) -> Option<String> {
    match (shipped, in_force) {
        (Value::Object(shipped), Value::Object(in_force)) => {
            let path_of = |key: &str| format!("{path}.{key}");
            let extra = in_force.keys().find(|key| !shipped.contains_key(*key)).map(|key| path_of(key));
            let differs = shipped.iter().find_map(|(key, value)| match in_force.get(key) {
                None => Some(path_of(key)),
                Some(value_in_force) => compare_values(&path_of(key), value, value_in_force),
            });
            differs.or(extra)
        }
        (Value::Array(shipped), Value::Array(in_force)) => {
            let mut pairs = shipped.iter().zip(in_force).enumerate();
            let differs = pairs.find_map(|(index, (a, b))| compare_values(&format!("{path}[{index}]"), a, b));
            differs.or_else(|| (shipped.len() != in_force.len()).then(|| format!("{path} (its length)")))
        }
        _ => (shipped != in_force).then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_named_by_its_path() {
        let shipped = json!({"rules": [{"a": 1}, {"b": [1, 2]}]});
        assert_eq!(first_difference(&shipped, &shipped), None);
        assert_eq!(
            first_difference(&shipped, &json!({"rules": [{"a": 1}, {"b": [1, 3]}]})).as_deref(),
            Some("spec.rules[1].b[1]")
        );
        assert_eq!(
            first_difference(&shipped, &json!({"rules": [{"a": 1}]})).as_deref(),
            Some("spec.rules (its length)")
        );
        assert_eq!(
            first_difference(&shipped, &json!({"rules": [{"a": 1}, {"b": [1, 2], "c": 0}]})).as_deref(),
            Some("spec.rules[1].c")
        );
    }
}
