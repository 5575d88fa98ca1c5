//! Takes the admission policies out of force on a cluster of our own, and puts them back: by their bindings.
//! Must not be used on a cluster that was not started here.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::admissionregistration::v1::{MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBinding};
use kube::api::{Api, DeleteParams, PostParams};
use signoff_admission::policies::{Identity, PolicyObject, objects};
use signoff_tests::control_plane::{Cluster, OPERATOR_ACCOUNT, OPERATOR_NAMESPACE};

use super::crowd;

/// Longer than an API server takes to go by a change of policies.
const PATIENCE: Duration = Duration::from_secs(60);

/// Deletes the bindings, and waits until `refused`, a POST of this body to this path, passes as a dry run.
pub(super) async fn lift(cluster: &Cluster, path: &str, refused: Vec<u8>) -> Result<()> {
    let admin = cluster.admin().await?;
    for object in ours()? {
        match object {
            PolicyObject::ValidatingBinding(binding) => {
                let name = binding.metadata.name.unwrap_or_default();
                let api = Api::<ValidatingAdmissionPolicyBinding>::all(admin.clone());
                api.delete(&name, &DeleteParams::default()).await?;
            }
            PolicyObject::MutatingBinding(binding) => {
                let name = binding.metadata.name.unwrap_or_default();
                let api = Api::<MutatingAdmissionPolicyBinding>::all(admin.clone());
                api.delete(&name, &DeleteParams::default()).await?;
            }
            PolicyObject::Validating(_) | PolicyObject::Mutating(_) => {}
        }
    }
    let path = format!("{path}?dryRun=All");
    let deadline = Instant::now() + PATIENCE;
    // An API server has no event for the policies it goes by: it is asked until it does.
    while let Err(error) = crowd::post(&admin, &path, refused.clone()).await {
        if Instant::now() > deadline {
            bail!("the policies are still in force {PATIENCE:?} after their bindings are gone: {error:#}");
        }
    }
    Ok(())
}

/// Creates the bindings again, and waits until they are in force.
pub(super) async fn restore(cluster: &Cluster) -> Result<()> {
    let admin = cluster.admin().await?;
    for object in ours()? {
        match object {
            PolicyObject::ValidatingBinding(binding) => {
                let api = Api::<ValidatingAdmissionPolicyBinding>::all(admin.clone());
                api.create(&PostParams::default(), &binding).await?;
            }
            PolicyObject::MutatingBinding(binding) => {
                let api = Api::<MutatingAdmissionPolicyBinding>::all(admin.clone());
                api.create(&PostParams::default(), &binding).await?;
            }
            PolicyObject::Validating(_) | PolicyObject::Mutating(_) => {}
        }
    }
    cluster.in_force().await
}

fn ours() -> Result<Vec<PolicyObject>> {
    Ok(objects(&Identity::new(OPERATOR_NAMESPACE, OPERATOR_ACCOUNT))?)
}
