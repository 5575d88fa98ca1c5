//! The whole texts of a request. A text that is too long for the request is in a Blob of its run.
//!
//! **Invariant:** bytes without the digest that the request names are never returned.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde::Deserialize;
use signoff_api::{
    Approval, ApprovalRequest, Blob, Digest, Workflow,
    approval::{Sent, WorkflowRef},
    gate::GateType,
    journal::BlobRef,
    names,
};

use crate::{action::call, text::one_line};

/// The name of the reviewed response in errors.
const REVIEW: &str = "the reviewed response";
/// The name of the sent text in errors.
const SENDS: &str = "what is sent";

/// The reason why a whole text cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum WholeTextError {
    /// The text that was found does not have the digest that the request names.
    #[error(
        "DIGEST MISMATCH: {what} cannot be shown, {why}: do not decide this request, and tell the administrators of Signoff"
    )]
    Mismatch {
        /// The name of the text in the message, such as `the context`.
        what: String,
        /// The difference.
        why: String,
    },
    /// The request does not say where the whole text is.
    #[error("the request does not say where the whole of {REVIEW} is: ask its requester")]
    Nowhere,
    /// The name of the run is not the name of an object, so it would be another path of the API server.
    #[error(
        "the whole of {what} cannot be read: the name of its run is no name of an object; do not decide this request, and tell the administrators of Signoff"
    )]
    NoRun {
        /// The name of the text in the message, such as `the context`.
        what: &'static str,
    },
    /// The API server did not return the Blob.
    #[error("{}", unreadable(.what, .error))]
    Unreadable {
        /// The name of the text in the message, such as `the context`.
        what: &'static str,
        /// The answer of the API server.
        error: kube::Error,
    },
}

fn unreadable(what: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 404 => absent(what, &one_line(&status.message, 1024)),
        kube::Error::Api(status) if status.code == 403 => forbidden(what, &one_line(&status.message, 1024)),
        other => format!("the whole of {what} cannot be read: {}", one_line(&other.to_string(), 1024)),
    }
}

/// The whole texts of which the request has only the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// The whole context.
    pub context: Option<String>,
    /// The whole reviewed response.
    pub review: Option<String>,
    /// The whole text that is sent, or was sent.
    pub sends: Option<String>,
}

/// Whether the request has only a part of the reviewed response.
pub fn is_review_cut(request: &ApprovalRequest) -> bool {
    let cut = |text: &str, whole: &Digest| Digest::of_bytes(text.as_bytes()) != *whole;
    request.reviews.as_ref().is_some_and(|review| cut(&review.response, &review.digest))
}

/// Returns the request that a Modify changes at a gate about the failure of a step, or `None` at any other gate.
pub fn edited_call(request: &ApprovalRequest) -> Option<&Sent> {
    let is_of_failure = request.gate.type_ == GateType::ErrorEscalation && call(request).is_none();
    request.sends.as_ref().filter(|_| is_of_failure)
}

/// Returns the text with which an edit begins: the sent text at a gate about a failure, otherwise the reviewed text.
/// Returns `None` if neither the request nor `whole` has all of it.
pub fn to_edit<'t>(request: &'t ApprovalRequest, whole: Option<&'t Whole>) -> Option<&'t str> {
    if let Some(sent) = edited_call(request) {
        return match sent.ref_ {
            None => Some(&sent.text),
            Some(_) => whole?.sends.as_deref(),
        };
    }
    match &request.reviews {
        Some(_) if is_review_cut(request) => whole?.review.as_deref(),
        review => review.as_ref().map(|review| review.response.as_str()),
    }
}

/// Whether the request has only a part of the text of [`to_edit`].
pub fn is_edit_cut(request: &ApprovalRequest) -> bool {
    to_edit(request, None).is_none() && (request.reviews.is_some() || request.sends.is_some())
}

/// Returns the names of the texts of which the request has only a part, each with the size of the whole text if the
/// request has it: `the context (70000 bytes)`.
pub fn cut(request: &ApprovalRequest) -> Vec<String> {
    let with_size = |what: &str, whole: Option<&BlobRef>| match whole {
        Some(whole) => format!("{what} ({} bytes)", whole.size),
        None => what.to_owned(),
    };
    let review = request.reviews.as_ref().filter(|_| is_review_cut(request));
    let what = if call(request).is_some() { "the arguments" } else { REVIEW };
    let review = review.map(|review| with_size(what, review.ref_.as_ref()));
    let sends = request.sends.as_ref().and_then(|sent| sent.ref_.as_ref()).map(|whole| with_size(SENDS, Some(whole)));
    let context = request.context_ref.as_ref().map(|whole| with_size("the context", Some(whole)));
    review.into_iter().chain(sends).chain(context).collect()
}

/// Fetches the whole texts of which the request has only a part, and verifies them.
///
/// # Errors
/// As every request; a Blob that does not exist, or whose content does not have the digest that the request names.
pub async fn fetch(client: &Client, namespace: &str, approval: &Approval) -> Result<Whole, WholeTextError> {
    let request = &approval.spec.request;
    let review = match request.reviews.as_ref().filter(|_| is_review_cut(request)) {
        None => None,
        Some(review) => match &review.ref_ {
            Some(whole) if whole.digest == review.digest => {
                Some(fetch_text(client, namespace, request, &whole.digest, REVIEW).await?)
            }
            Some(_) => return Err(mismatch(REVIEW, "its reference has another digest than it")),
            None => return Err(WholeTextError::Nowhere),
        },
    };
    let context = match &request.context_ref {
        None => None,
        Some(whole) => Some(fetch_text(client, namespace, request, &whole.digest, "the context").await?),
    };
    let sends = match request.sends.as_ref().and_then(|sent| sent.ref_.as_ref()) {
        None => None,
        Some(whole) => Some(fetch_text(client, namespace, request, &whole.digest, SENDS).await?),
    };
    Ok(Whole { context, review, sends })
}

async fn fetch_text(
    client: &Client,
    namespace: &str,
    request: &ApprovalRequest,
    digest: &Digest,
    what: &'static str,
) -> Result<String, WholeTextError> {
    let bytes = value(client, namespace, &request.workflow, digest, what).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Fetches a long value of a run from its Blob, and verifies it. If the usual name does not lead to the Blob, the
/// status of the run is read for another name. `what`: the name of the value in errors.
///
/// # Errors
/// As every request; a Blob that does not exist, belongs to another run, or has other content.
pub async fn value(
    client: &Client,
    namespace: &str,
    run: &WorkflowRef,
    digest: &Digest,
    what: &'static str,
) -> Result<Vec<u8>, WholeTextError> {
    if !names::is_object(&run.name) {
        return Err(WholeTextError::NoRun { what });
    }
    let blobs = Api::<Blob>::namespaced(client.clone(), namespace);
    let unreadable = |error| WholeTextError::Unreadable { what, error };
    let usual = names::blob(&run.name, &run.uid, digest);
    let found = match blobs.get(&usual).await {
        Ok(blob) if blob.is_of_run(&run.name, &run.uid) => Ok(blob),
        Ok(_) => Err(mismatch(what, &format!("the Blob {usual} belongs to another run"))),
        Err(error) => Err(unreadable(error)),
    };
    let blob = match found {
        Ok(blob) => blob,
        // A few Blobs have another name, which the status of the run has.
        Err(error) => match fetch_value_name(client, namespace, &run.name, digest).await {
            Some(other) if other != usual && names::is_blob(&usual, &other) => {
                blobs.get(&other).await.map_err(unreadable)?
            }
            _ => return Err(error),
        },
    };
    verified(blob, run, digest, what)
}

/// Fetches the name of the Blob of a value, if the status of the Workflow has one. Returns `None` if the Workflow
/// cannot be read.
async fn fetch_value_name(client: &Client, namespace: &str, workflow: &str, digest: &Digest) -> Option<String> {
    let resource = ApiResource::erase::<Workflow>(&());
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let found = api.get(workflow).await.ok()?;
    serde_json::from_value::<ValueNames>(found.data).ok()?.of(digest)
}

/// Returns the content of a Blob if it belongs to the run and has the digest.
///
/// # Errors
/// The Blob belongs to another run, or has another digest.
pub fn verified(blob: Blob, run: &WorkflowRef, digest: &Digest, what: &str) -> Result<Vec<u8>, WholeTextError> {
    let name = blob.metadata.name.clone().unwrap_or_default();
    if !blob.is_of_run(&run.name, &run.uid) {
        return Err(mismatch(what, &format!("the Blob {name} belongs to another run")));
    }
    let bytes = blob.spec.into_bytes();
    let found = Digest::of_bytes(&bytes);
    if found != *digest {
        return Err(mismatch(what, &format!("the Blob {name} has {found}, and the request names {digest}")));
    }
    Ok(bytes)
}

fn mismatch(what: &str, why: &str) -> WholeTextError {
    WholeTextError::Mismatch { what: what.to_owned(), why: one_line(why, 600) }
}

/// Returns the sentence about a Blob that does not exist. `why`: the message of the API server.
pub fn absent(what: &str, why: &str) -> String {
    format!("the whole of {what} is not there: {why}")
}

/// Returns the sentence about a Blob that the API server refuses, with the roles that allow it. `why`: the message of
/// the API server.
pub fn forbidden(what: &str, why: &str) -> String {
    format!(
        "{why}; the ClusterRoles signoff-approver and signoff-viewer let you get Blobs, in which the whole of {what} is"
    )
}

/// The fields of a Workflow that are read.
#[derive(Deserialize)]
struct ValueNames {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    value_names: std::collections::BTreeMap<Digest, String>,
}

impl ValueNames {
    /// Returns the name of the Blob of a value whose usual name was taken by another object.
    fn of(mut self, digest: &Digest) -> Option<String> {
        self.status.value_names.remove(digest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample;

    const UID: &str = "6f1c3e5a-0000-4000-8000-000000000001";

    fn blob(uid: &str, text: &str) -> Blob {
        let mut blob = Blob::of_run("finance", "refund-4711", uid, text.as_bytes().to_vec());
        blob.metadata.name = Some("refund-4711-0a1b".to_owned());
        blob
    }

    #[test]
    fn a_text_is_shown_only_with_the_digest_that_the_request_names() {
        let digest = Digest::of_bytes(b"we refund 420 EUR");
        let run = WorkflowRef { name: "refund-4711".to_owned(), uid: UID.to_owned() };
        let shown = |blob: Blob| verified(blob, &run, &digest, "the context");
        let mut of_approval = blob(UID, "we refund 420 EUR");
        of_approval.metadata.owner_references.iter_mut().flatten().for_each(|owner| owner.kind = "Approval".to_owned());
        assert_eq!(shown(blob(UID, "we refund 420 EUR")).unwrap(), b"we refund 420 EUR");
        for (wrong, why) in [
            (blob(UID, "we refund 420000 EUR"), "and the request names sha256:"),
            (blob("another", "we refund 420 EUR"), "the Blob refund-4711-0a1b belongs to another run"),
            (of_approval, "the Blob refund-4711-0a1b belongs to another run"),
        ] {
            let message = shown(wrong).unwrap_err().to_string();
            assert!(message.starts_with("DIGEST MISMATCH: the context") && message.contains(why), "{message}");
        }
    }

    #[test]
    fn a_cut_text_is_named_with_its_size() {
        let mut request = sample::approval().spec.request;
        assert!(cut(&request).is_empty());
        let whole = BlobRef { digest: Digest::of_bytes(b"x"), size: 12345 };
        request.context_ref = Some(whole.clone());
        let review = request.reviews.as_mut().unwrap();
        review.response = "Dear".to_owned();
        assert_eq!(cut(&request), ["the reviewed response", "the context (12345 bytes)"]);
        request.reviews.as_mut().unwrap().ref_ = Some(whole);
        assert_eq!(cut(&request)[0], "the reviewed response (12345 bytes)");
    }

    #[test]
    fn a_refusal_names_the_roles_that_read_blobs() {
        let answer = |code, message: &str| {
            let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
            let error = kube::Error::Api(Box::new(status));
            WholeTextError::Unreadable { what: "the context", error }.to_string()
        };
        assert!(answer(403, "no").starts_with("no; the ClusterRoles signoff-approver and signoff-viewer"));
        assert_eq!(answer(404, "no such blob"), "the whole of the context is not there: no such blob");
    }
}
