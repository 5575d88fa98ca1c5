//! Removes the bindings of the admission policies on a cluster of our own, and restores them.
//!
//! **Invariant:** no cluster is changed that was not started here.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use signoff_admission::policies::{Identity, PolicyObject, objects};
use signoff_tests::control_plane::{Cluster, OPERATOR_ACCOUNT, OPERATOR_NAMESPACE};

use super::crowd;

/// The deadline for an API server to apply a change of policies.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Deletes the bindings, and waits until `refused`, a POST of this body to this path, passes as a dry run.
pub(super) async fn remove_all(cluster: &Cluster, path: &str, refused: Vec<u8>) -> Result<()> {
    let admin = cluster.admin().await?;
    for object in policy_objects()? {
        delete(&admin, object).await?;
    }
    let path = format!("{path}?dryRun=All");
    let deadline = Instant::now() + TIMEOUT;
    // No event tells which policies an API server applies, so the request is repeated until it passes.
    while let Err(error) = crowd::post(&admin, &path, refused.clone()).await {
        if Instant::now() > deadline {
            bail!("the policies are still in force {TIMEOUT:?} after their bindings are gone: {error:#}");
        }
    }
    Ok(())
}

/// Creates the bindings again, and waits until the policies are enforced.
pub(super) async fn restore_all(cluster: &Cluster) -> Result<()> {
    let admin = cluster.admin().await?;
    for object in policy_objects()? {
        create(&admin, object).await?;
    }
    cluster.in_force().await
}

/// Deletes the binding of one policy.
pub(super) async fn remove(cluster: &Cluster, policy: &str) -> Result<()> {
    let admin = cluster.admin().await?;
    for object in objects_of(policy)? {
        delete(&admin, object).await?;
    }
    Ok(())
}

/// Creates the binding of one policy again, and waits until all policies are enforced.
pub(super) async fn add(cluster: &Cluster, policy: &str) -> Result<()> {
    let admin = cluster.admin().await?;
    for object in objects_of(policy)? {
        create(&admin, object).await?;
    }
    cluster.in_force().await
}

async fn delete(admin: &Client, object: PolicyObject) -> Result<()> {
    let name = object.meta().name.clone().unwrap_or_default();
    match object {
        PolicyObject::ValidatingBinding(_) => {
            let api = Api::<ValidatingAdmissionPolicyBinding>::all(admin.clone());
            api.delete(&name, &DeleteParams::default()).await?;
        }
        PolicyObject::MutatingBinding(_) => {
            let api = Api::<MutatingAdmissionPolicyBinding>::all(admin.clone());
            api.delete(&name, &DeleteParams::default()).await?;
        }
        PolicyObject::Validating(_) | PolicyObject::Mutating(_) => {}
    }
    Ok(())
}

async fn create(admin: &Client, object: PolicyObject) -> Result<()> {
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
    Ok(())
}

/// Returns a policy and its binding, which has the same name.
fn objects_of(policy: &str) -> Result<Vec<PolicyObject>> {
    let mut objects = policy_objects()?;
    objects.retain(|object| object.meta().name.as_deref() == Some(policy));
    ensure!(!objects.is_empty(), "there is no policy {policy}");
    Ok(objects)
}

/// Returns the policies and bindings of the chart.
fn policy_objects() -> Result<Vec<PolicyObject>> {
    Ok(objects(&Identity::new(OPERATOR_NAMESPACE, OPERATOR_ACCOUNT))?)
}
