//! The admission policies that this build ships, and the check that they are in force in the cluster.
//!
//! ```text
//! policies: templates -> expressions -> objects and files    (pure)
//! inspect (I/O) -> compare (pure) -> report (pure)
//! object_versions: whether an object was changed since an inspection    (I/O)
//! probe: whether every API server refuses forged requests    (I/O)
//! ```
//!
//! **Invariant:** installs, repairs and watches nothing. An object that cannot be read or understood counts as
//! different.

mod compare;
mod external_mutators;
pub mod files;
mod inspect;
pub mod object_versions;
pub mod policies;
pub mod probe;
mod report;

pub use compare::{Inspection, Object, State};
pub use inspect::{inspect, inspect_as, installed_for, serves_mutating_policies};
pub use object_versions::ObjectVersions;

use std::{collections::BTreeSet, sync::LazyLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use signoff_api::crds;

use crate::policies::Identity;

/// The ClusterRole of the chart with the rights that an inspection needs.
pub const READER_ROLE: &str = "signoff-guard-reader";

/// Returns the name of the APIService that routes requests for objects of Signoff.
#[must_use]
pub fn api_service() -> String {
    format!("{}.{}", signoff_api::VERSION, signoff_api::GROUP)
}

/// The CRDs of this build, built once because building them is slow.
pub(crate) static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(crds::all);

static NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let policies = policies::objects(&Identity::default()).unwrap_or_default();
    let policies = policies.iter().filter_map(|object| object.meta().name.clone());
    policies.chain(CRDS.iter().map(ResourceExt::name_any)).chain([api_service()]).collect()
});

/// Returns the names of all objects, of all kinds, that the guard compares.
#[must_use]
pub fn names() -> &'static BTreeSet<String> {
    &NAMES
}
