//! Compares the admission policies and CRDs in the cluster with those of this build.
//!
//! **Invariant:** installs, repairs and watches nothing. What cannot be read or understood counts as different.
//!
//! * [`inspect`]: reads everything and compares it; [`Inspection::report`] is for people
//! * [`object_versions`]: the cheap question whether anything was changed since an inspection
//! * [`probe`]: whether a forged request is refused, by every API server

mod compare;
mod difference;
mod external_mutators;
pub mod object_versions;
pub mod probe;
mod read;
mod report;

pub use compare::{Inspection, Object, State, inspect, inspect_as};
pub use object_versions::ObjectVersions;
pub use read::{installed_for, serves_mutating_policies};

use std::{collections::BTreeSet, sync::LazyLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use signoff_api::{
    crds,
    policies::{self, Identity},
};

/// The role of the chart whose holders may read everything that an inspection reads.
pub const READER_ROLE: &str = "signoff-guard-reader";

/// The APIService by which requests for our objects are routed.
#[must_use]
pub fn api_service() -> String {
    format!("{}.{}", signoff_api::VERSION, signoff_api::GROUP)
}

/// The CRDs of this build: making them from the types takes long enough to do it once.
pub(crate) static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(crds::all);

static NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let policies = policies::objects(&Identity::default()).unwrap_or_default();
    let policies = policies.iter().filter_map(|object| object.meta().name.clone());
    policies.chain(CRDS.iter().map(ResourceExt::name_any)).chain([api_service()]).collect()
});

/// The names of all objects on which the guard rests, of whatever kind.
#[must_use]
pub fn names() -> &'static BTreeSet<String> {
    &NAMES
}
