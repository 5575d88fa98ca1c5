//! The rights of a caller, which the API server is asked about before a page offers an action.
//!
//! The answer only decides what a page offers. The API server authorizes every request again.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};

use crate::error::PageError;

/// A verb on a kind of Signoff, in a namespace or in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right<'r> {
    /// The verb, such as `patch`.
    pub verb: &'r str,
    /// The plural of the kind.
    pub resource: &'r str,
    /// The namespace, or `None` for all.
    pub namespace: Option<&'r str>,
    /// The name of one object, or `None` for any.
    pub name: Option<&'r str>,
}

/// Whether the caller holds a right.
///
/// # Errors
/// As every request.
pub async fn has(client: &Client, right: Right<'_>) -> Result<bool, PageError> {
    let attributes = ResourceAttributes {
        group: Some("signoff.dev".to_owned()),
        resource: Some(right.resource.to_owned()),
        verb: Some(right.verb.to_owned()),
        namespace: right.namespace.map(str::to_owned),
        name: right.name.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() };
    let question = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &question).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
