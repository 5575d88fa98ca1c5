//! Compares what is in force with what this build ships, and draws the epoch from it.
//!
//! It may not overlook a difference: what is not understood differs.

use k8s_openapi::{
    api::authentication::v1::UserInfo,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, CustomResourceDefinitionSpec},
};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use signoff_api::{
    Digest, GROUP, VERSION, crds,
    policies::{self, Identity, Shipped},
};

use super::{
    Names, Standing, difference,
    read::{ByName, InForce, read},
};

const REMEDY: &str = "install the chart of this operator's version again";
/// What a token that is bound to a pod says of its bearer.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// What was found so far.
#[derive(Default)]
struct Findings {
    names: Names,
    wrong: Vec<String>,
    /// Of each object: its kind, name, uid and generation.
    marks: Vec<Value>,
}

/// Looks once: how the guard stands, and which objects that depends on.
pub(super) async fn look(client: &Client, mutating: bool) -> Result<(Standing, Names), kube::Error> {
    let shipped_crds = crds::all();
    let crd_names: Vec<String> = shipped_crds.iter().map(ResourceExt::name_any).collect();
    let found = read(client, mutating, &crd_names, &format!("{VERSION}.{GROUP}")).await?;
    let mut findings = Findings::default();
    for crd in &shipped_crds {
        findings.crd(crd, &found.crds);
    }
    if found.service.as_ref().and_then(|service| service.spec.as_ref()).is_some_and(|spec| spec.service.is_some()) {
        findings.wrong.push(format!("the API {VERSION}.{GROUP} is served by another server: delete that APIService"));
    }
    match identity(&found.me) {
        Ok(identity) => findings.policies(&identity, &found),
        Err(why) => findings.wrong.push(why),
    }
    let Findings { names, wrong, mut marks } = findings;
    if !wrong.is_empty() {
        return Ok((Standing::Broken(wrong.into()), names));
    }
    marks.sort_by_key(ToString::to_string);
    Ok(match Digest::of(&marks) {
        Ok(epoch) => (Standing::InForce { epoch: epoch.as_str().into() }, names),
        Err(why) => (Standing::broken(format!("the guard's epoch cannot be drawn: {why}")), names),
    })
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

impl Findings {
    fn policies(&mut self, identity: &Identity, found: &InForce) {
        let shipped = match policies::shipped(identity) {
            Ok(shipped) => shipped,
            Err(why) => return self.wrong.push(why.to_string()),
        };
        for object in &shipped {
            match object {
                Shipped::Validating(policy) => {
                    self.object("ValidatingAdmissionPolicy", policy, &found.validating, |p| &p.spec)
                }
                Shipped::ValidatingBinding(binding) => {
                    self.object("ValidatingAdmissionPolicyBinding", binding, &found.validating_bindings, |b| &b.spec);
                }
                // An API server that does not know them cannot fill in who asks: that must be typed there.
                Shipped::Mutating(policy) => {
                    if let Some((policies, _)) = &found.mutating {
                        self.object("MutatingAdmissionPolicy", policy, policies, |p| &p.spec);
                    }
                }
                Shipped::MutatingBinding(binding) => {
                    if let Some((_, bindings)) = &found.mutating {
                        self.object("MutatingAdmissionPolicyBinding", binding, bindings, |b| &b.spec);
                    }
                }
            }
        }
    }

    fn object<K: Resource, S: Serialize>(
        &mut self,
        kind: &str,
        shipped: &K,
        found: &ByName<K>,
        spec: impl Fn(&K) -> &S,
    ) {
        let name = shipped.name_any();
        self.names.insert(name.clone());
        match found.get(&name) {
            None => self.wrong.push(format!("{kind} {name} is missing: {REMEDY}")),
            Some(object) => match difference::first(spec(shipped), spec(object)) {
                Some(place) => self.differs(kind, &name, &place),
                None => self.mark(kind, object),
            },
        }
    }

    fn crd(&mut self, shipped: &CustomResourceDefinition, found: &ByName<CustomResourceDefinition>) {
        const KIND: &str = "CustomResourceDefinition";
        let name = shipped.name_any();
        self.names.insert(name.clone());
        match found.get(&name) {
            None => self.wrong.push(format!("{KIND} {name} is missing: {REMEDY}")),
            Some(object) => match difference::first(&defaulted(&shipped.spec), &defaulted(&object.spec)) {
                Some(place) => self.differs(KIND, &name, &place),
                None => self.mark(KIND, object),
            },
        }
    }

    fn differs(&mut self, kind: &str, name: &str, place: &str) {
        self.wrong.push(format!("{kind} {name} is not the one that this operator ships, {place} differs: {REMEDY}"));
    }

    fn mark<K: Resource>(&mut self, kind: &str, object: &K) {
        let meta = object.meta();
        self.marks.push(json!([kind, meta.name, meta.uid, meta.generation]));
    }
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
