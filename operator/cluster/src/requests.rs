//! The requests that read and write objects of both kinds, each with a timeout and a count in the metrics *(I/O)*.
//!
//! **Invariant:** does not retry, cache or judge an answer.

use std::{future::Future, sync::Arc, time::Duration};

use futures::AsyncBufRead;
use http::header::{ACCEPT, HeaderValue};
use k8s_openapi::{
    api::core::v1::{Namespace, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Client, Resource as _,
    api::{DeleteParams, LogParams, PostParams, Preconditions},
    core::Request,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signoff_expr::text;

use crate::{
    error::{Error, status_code},
    fair_budget::FairBudget,
    kinds::{Decoded, DecodedKind, METADATA_ONLY, Meta, Name, NamespacedKind, ReconciledKind, WriteAnswer},
    metrics::RequestMetrics,
    write_priority::WritePriority,
};

/// The timeout of an answer. A dead connection must not block an object for ever.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The form of the answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// The whole object.
    Whole,
    /// Only the metadata.
    Metadata,
}

/// The body of a write of a status.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusOnly<'a, S> {
    api_version: &'a str,
    kind: &'static str,
    metadata: ObjectVersion<'a>,
    status: &'a S,
}

/// The version of an object that a write is for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectVersion<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a Option<String>,
    resource_version: &'a Option<String>,
}

/// An object of which only the metadata is read.
#[derive(Deserialize)]
struct MetadataOf {
    metadata: Meta,
}

/// The most writes at once. A namespace alone can have half of them, which keep an API server on two processors busy.
/// More writes would only wait in the API server, and delay the requests of people. Namespaces write in turn, so that
/// no write waits behind all writes of another namespace.
const MAX_WRITES: usize = 12;

/// Returns the budget of writes at once, by which namespaces write in turn.
#[must_use]
pub fn write_turns() -> Arc<FairBudget> {
    FairBudget::new(MAX_WRITES)
}

/// The requests to the API server.
#[derive(Clone)]
pub struct ApiRequests {
    client: Client,
    metrics: RequestMetrics,
    priority: WritePriority,
    turns: Arc<FairBudget>,
}

impl ApiRequests {
    /// Returns the requests through this client. `turns`: the budget from [`write_turns`].
    #[must_use]
    pub fn new(client: Client, metrics: RequestMetrics, priority: WritePriority, turns: Arc<FairBudget>) -> Self {
        Self { client, metrics, priority, turns }
    }

    /// Returns the newest version of an object, or `None` if it does not exist.
    ///
    /// # Errors
    /// No answer, a refusal, or an object that cannot be decoded.
    pub async fn get<K: NamespacedKind>(&self, name: &Name) -> Result<Option<K>, Error> {
        let what = || format!("getting {}", name.as_a::<K>());
        let request = path_of::<K>(name).get(&name.name, &kube::api::GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest).map_err(Error::of(what()))?;
        match self.send_as::<Decoded<K>>(request).await {
            Ok(Decoded(object)) => Ok(Some(object)),
            Err(error) if status_code(&error) == Some(404) => Ok(None),
            // A truncated answer is a transient error: the next one may be complete.
            Err(kube::Error::SerdeError(error)) if error.is_data() => {
                Err(Error::Unreadable { object: name.as_a::<K>(), why: text::display(&error.to_string(), 200) })
            }
            Err(error) => Err(Error::of(what())(error)),
        }
    }

    /// Asks the API server for its version: the cheapest answer with a `Date`. A refusal has one too.
    ///
    /// # Errors
    /// No answer.
    pub async fn ask_time(&self) -> Result<(), Error> {
        let request = http::Request::get("/version").body(Vec::new()).map_err(kube::Error::HttpError);
        let answer = async { self.send_as::<serde::de::IgnoredAny>(request?).await };
        match answer.await {
            Err(error) if status_code(&error).is_none() => Err(Error::of("asking the API server for its time")(error)),
            _ => Ok(()),
        }
    }

    /// Returns the newest metadata of an object, or `None` if it does not exist.
    ///
    /// # Errors
    /// No answer.
    pub async fn metadata<K: NamespacedKind>(&self, name: &Name) -> Result<Option<ObjectMeta>, Error> {
        self.metadata_at(path_of::<K>(name), &name.name, name.as_a::<K>()).await
    }

    /// Returns the newest metadata of a namespace, or `None` if it does not exist.
    ///
    /// # Errors
    /// No answer.
    pub async fn namespace(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        self.metadata_at(Request::new(Namespace::url_path(&(), None)), name, format!("Namespace {name}")).await
    }

    /// Returns the newest metadata of an object under a path. `what`: the kind and name for errors.
    async fn metadata_at(&self, path: Request, name: &str, what: String) -> Result<Option<ObjectMeta>, Error> {
        let what = format!("getting {what}");
        let request = path.get(name, &kube::api::GetParams::default());
        let mut request = request.map_err(kube::Error::BuildRequest).map_err(Error::of(what.clone()))?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
        match self.send_as::<MetadataOf>(request).await {
            Ok(MetadataOf { metadata }) => Ok(Some(metadata.into())),
            Err(error) if status_code(&error) == Some(404) => Ok(None),
            Err(error) => Err(Error::of(what)(error)),
        }
    }

    /// Returns the newest version of an object as JSON, even if it cannot be decoded. `None` if it does not exist.
    ///
    /// # Errors
    /// No answer.
    pub async fn get_raw<K: ReconciledKind>(&self, name: &Name) -> Result<Option<Value>, Error> {
        let request = path_of::<K>(name).get(&name.name, &kube::api::GetParams::default());
        let what = || format!("getting {}", name.as_a::<K>());
        let request = request.map_err(kube::Error::BuildRequest).map_err(Error::of(what()))?;
        match self.send_as::<Value>(request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if status_code(&error) == Some(404) => Ok(None),
            Err(error) => Err(Error::of(what())(error)),
        }
    }

    /// Merges a patch into an object's status, and keeps its other fields. The patch names the version that it is for.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn merge_status<K: ReconciledKind>(&self, name: &Name, patch: &Value) -> Result<(), Error> {
        let uri = format!("{}/{}/status?", path_of::<K>(name).url_path, name.name);
        let request = http::Request::patch(uri).header(http::header::CONTENT_TYPE, "application/merge-patch+json");
        let request = request.body(patch.to_string().into_bytes()).map_err(kube::Error::HttpError);
        let answer = async { self.send_as::<serde::de::IgnoredAny>(request?).await };
        match self.write(&name.namespace, K::KIND, "patch", answer).await {
            Ok(_) => Ok(()),
            Err(error) if status_code(&error) == Some(409) => Err(Error::Conflict(name.as_a::<K>())),
            Err(error) => Err(Error::of(format!("writing the status of {}", name.as_a::<K>()))(error)),
        }
    }

    /// Creates an object.
    ///
    /// # Errors
    /// The API server refuses, or does not answer.
    pub async fn create<K: ReconciledKind>(&self, object: &K, form: AnswerForm) -> Result<WriteAnswer<K>, kube::Error> {
        let bytes = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let name = Name::of(object);
        let request = path_of::<K>(&name).create(&PostParams::default(), bytes);
        self.write(&name.namespace, K::KIND, "create", self.send(request.map_err(kube::Error::BuildRequest)?, form))
            .await
    }

    /// Creates an object from JSON and returns the decoded part. Waits for no turn: the Pod runner has just verified
    /// the run and the Lease, and a delay would make that outdated.
    ///
    /// # Errors
    /// The API server refuses, or does not answer.
    pub async fn create_as<K: NamespacedKind>(&self, name: &Name, object: &Value) -> Result<K, kube::Error> {
        let bytes = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = path_of::<K>(name).create(&PostParams::default(), bytes);
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.count_write(K::KIND, "create", self.send_as::<Decoded<K>>(request)).await.map(|Decoded(object)| object)
    }

    /// Opens the log of a container of a Pod: the whole log, or its last lines.
    ///
    /// # Errors
    /// The API server refuses, or does not answer.
    pub async fn open_log(
        &self,
        pod: &Name,
        container: &str,
        lines: Option<i64>,
    ) -> Result<impl AsyncBufRead + use<>, kube::Error> {
        let params = LogParams { container: Some(container.to_owned()), tail_lines: lines, ..LogParams::default() };
        let pods = Request::new(Pod::url_path(&(), Some(&pod.namespace)));
        let request = pods.logs(&pod.name, &params).map_err(kube::Error::BuildRequest)?;
        let stream = tokio::time::timeout(TIMEOUT, self.client.request_stream(request)).await;
        stream.map_err(|_| kube::Error::Service(format!("no answer within {TIMEOUT:?}").into()))?
    }

    /// Replaces an object's status if it still has the version that `observed` has. Nothing else is sent: the API
    /// server keeps the rest of the stored object.
    ///
    /// # Errors
    /// The API server refuses, or does not answer. 409 if the object has another version.
    pub async fn replace_status<K: ReconciledKind>(
        &self,
        observed: &K,
        status: &K::Status,
        form: AnswerForm,
    ) -> Result<WriteAnswer<K>, kube::Error> {
        let name = Name::of(observed);
        let ObjectMeta { uid, resource_version, .. } = observed.meta();
        let body = StatusOnly {
            api_version: &K::api_version(&()),
            kind: K::KIND,
            metadata: ObjectVersion { name: &name.name, namespace: &name.namespace, uid, resource_version },
            status,
        };
        let bytes = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
        let request = path_of::<K>(&name).replace_subresource("status", &name.name, &PostParams::default(), bytes);
        self.write(&name.namespace, K::KIND, "replace", self.send(request.map_err(kube::Error::BuildRequest)?, form))
            .await
    }

    /// Applies a JSON Patch to an object's status.
    ///
    /// # Errors
    /// The API server refuses, or does not answer. 422 if a `test` of the patch fails.
    pub async fn patch_status<K: ReconciledKind>(&self, name: &Name, operations: &[Value]) -> Result<K, kube::Error> {
        let bytes = serde_json::to_vec(operations).map_err(kube::Error::SerdeError)?;
        let uri = format!("{}/{}/status?", path_of::<K>(name).url_path, name.name);
        let request =
            http::Request::patch(uri).header(http::header::CONTENT_TYPE, "application/json-patch+json").body(bytes);
        let answer = self.send_as::<Decoded<K>>(request.map_err(kube::Error::HttpError)?);
        self.write(&name.namespace, K::KIND, "patch", answer).await.map(|Decoded(object)| object)
    }

    /// Deletes exactly the object with the given uid, and then the objects that it owns. `grace`: the grace period in
    /// seconds, or `None` for that of the object.
    ///
    /// # Errors
    /// No answer, or a refusal. A missing object is not an error.
    pub async fn delete<K: NamespacedKind>(&self, name: &Name, uid: &str, grace: Option<u32>) -> Result<(), Error> {
        let what = || format!("deleting {}", name.as_a::<K>());
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::background()
        };
        let request = path_of::<K>(name).delete(&name.name, &params);
        let request = request.map_err(kube::Error::BuildRequest).map_err(Error::of(what()))?;
        let answer = self.send_as::<serde::de::IgnoredAny>(request);
        match self.write(&name.namespace, K::KIND, "delete", answer).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(status_code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(Error::of(what())(error)),
        }
    }

    /// Sends a write and reads its answer.
    async fn send<K: DecodedKind>(
        &self,
        mut request: http::Request<Vec<u8>>,
        form: AnswerForm,
    ) -> Result<WriteAnswer<K>, kube::Error> {
        if form == AnswerForm::Metadata {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
        }
        WriteAnswer::parse(&self.send_for_text(request).await?).map_err(kube::Error::SerdeError)
    }

    /// Sends a request and parses the answer.
    async fn send_as<T: serde::de::DeserializeOwned>(&self, request: http::Request<Vec<u8>>) -> Result<T, kube::Error> {
        serde_json::from_str(&self.send_for_text(request).await?).map_err(kube::Error::SerdeError)
    }

    /// Sends a request and returns the text of the answer, up to the timeout.
    async fn send_for_text(&self, request: http::Request<Vec<u8>>) -> Result<String, kube::Error> {
        let text = tokio::time::timeout(TIMEOUT, self.client.request_text(request)).await;
        text.map_err(|_| kube::Error::Service(format!("no answer within {TIMEOUT:?}").into()))?
    }

    /// Sends a write when it is the turn of its namespace, and counts it.
    async fn write<T>(
        &self,
        namespace: &Arc<str>,
        kind: &'static str,
        verb: &'static str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, kube::Error> {
        let in_turn = async {
            let _turn = self.turns.take(namespace, 1).await;
            request.await
        };
        self.count_write(kind, verb, in_turn).await
    }

    /// Counts a write and its answer. Events wait while it is in flight.
    async fn count_write<T>(
        &self,
        kind: &'static str,
        verb: &'static str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, kube::Error> {
        let busy = self.priority.begin_state_write();
        let answer = request.await;
        drop(busy);
        let result = match answer.as_ref().err().map(status_code) {
            None => "ok",
            Some(Some(409)) => "conflict",
            Some(Some(_)) => "refused",
            Some(None) => "lost",
        };
        self.metrics.count_write(kind, verb, result);
        answer
    }
}

fn path_of<K: NamespacedKind>(name: &Name) -> Request {
    Request::new(K::url_path(&(), Some(&name.namespace)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;

    use futures::FutureExt as _;
    use kube::client::Body;
    use serde_json::json;
    use signoff_api::Workflow;

    use super::*;

    fn client() -> Client {
        let object = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "1"},
            "spec": {"requestedBy": "dana", "steps": [{"name": "a", "set": {"value": "x"}}]},
        });
        let body = serde_json::to_vec(&object).unwrap();
        let service = tower::service_fn(move |_: http::Request<Body>| {
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(body.clone()))))
        });
        crate::connect_service(service, "n")
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_the_turn_of_its_namespace_and_create_as_does_not() {
        let turns = write_turns();
        let requests =
            ApiRequests::new(client(), RequestMetrics::default(), WritePriority::default(), Arc::clone(&turns));
        let name = Name::new("n", "w");
        let others: Vec<_> = (0..MAX_WRITES).map(|at| turns.note(&format!("other-{at}").into(), 1)).collect();
        let mut patch = Box::pin(requests.patch_status::<Workflow>(&name, &[]));
        assert!(patch.as_mut().now_or_never().is_none(), "it waits");
        assert!(requests.create_as::<Workflow>(&name, &json!({})).await.is_ok());
        assert!(patch.as_mut().now_or_never().is_none(), "it still waits");
        drop(others);
        assert!(patch.await.is_ok());
    }
}
