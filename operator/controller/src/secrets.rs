//! Reads Secrets from the API server *(I/O)*, with one read for each call.
//!
//! **Invariant:** never keeps or logs a value, and returns no value for a host that the Secret does not allow.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use k8s_openapi::{
    ByteString,
    api::{authentication::v1::SelfSubjectReview, core::v1::Secret},
};
use kube::{
    Api, Client, Resource,
    api::{GetParams, PostParams},
    core::Request,
};
use serde::Deserialize;
use signoff_api::names::ROLE_SECRETS;
use signoff_cluster::error::status_code;
use signoff_executor::{
    CallError, ErrorClass, SecretText, Secrets,
    secrets::{ALLOWED_HOSTS, FoundSecret, SecretUse, host_allowed},
};

/// The time limit of an answer of the API server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The reader of Secrets through a client.
pub struct ClusterSecrets {
    client: Client,
}

impl ClusterSecrets {
    /// Returns a reader that sends its requests through `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl ClusterSecrets {
    /// Returns the operator's service account as `NAMESPACE:NAME`, from the API server, or a placeholder.
    async fn service_account(&self) -> String {
        let review = Api::<SelfSubjectReview>::all(self.client.clone());
        let (options, question) = (PostParams::default(), SelfSubjectReview::default());
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, review.create(&options, &question)).await;
        let user = answer.ok().and_then(Result::ok).and_then(|review| review.status?.user_info?.username);
        let account = user.as_deref().and_then(|user| user.strip_prefix("system:serviceaccount:"));
        account.unwrap_or("OPERATOR-NAMESPACE:OPERATOR-SERVICE-ACCOUNT").to_owned()
    }
}

/// The part of a Secret that is decoded.
#[derive(Deserialize)]
struct SecretObject {
    metadata: SecretMeta,
    #[serde(default)]
    data: BTreeMap<String, ByteString>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretMeta {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

#[async_trait]
impl Secrets for ClusterSecrets {
    async fn read(
        &self,
        namespace: &str,
        name: &str,
        key: &str,
        wanted: SecretUse<'_>,
    ) -> Result<FoundSecret, CallError> {
        let secret = format!("{namespace}/{name}");
        let unreachable_error = |why: &str| {
            CallError::new(ErrorClass::Unreachable, false, format!("Secret {secret} cannot be read: {why}"))
        };
        let request = Request::new(Secret::url_path(&(), Some(namespace))).get(name, &GetParams::default());
        let request = request.map_err(|why| CallError::invalid(format!("Secret {secret}: {why}")))?;
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.client.request_text(request)).await;
        let text = match answer.map_err(|_| unreachable_error("the API server does not answer"))? {
            Ok(text) => text,
            Err(error) => {
                return Err(match status_code(&error) {
                    Some(404) => {
                        CallError::invalid(format!("there is no Secret {secret}: create it with the key {key}"))
                    }
                    Some(403) => CallError::invalid(format!(
                        "the operator is not allowed to read Secret {secret}; allow it to read the Secrets of that namespace: kubectl create \
                         rolebinding {ROLE_SECRETS} -n {namespace} --clusterrole={ROLE_SECRETS} --serviceaccount={}",
                        self.service_account().await
                    )),
                    _ => unreachable_error("the API server gave no answer"),
                });
            }
        };
        // The parser's message would quote the value.
        let Ok(object) = serde_json::from_str::<SecretObject>(&text) else {
            return Err(unreachable_error("the answer is not a Secret"));
        };
        let SecretMeta { annotations, uid, resource_version } = object.metadata;
        host_allowed(&secret, annotations.get(ALLOWED_HOSTS).map(String::as_str), wanted)?;
        let Some(ByteString(bytes)) = object.data.get(key) else {
            return Err(CallError::invalid(format!("Secret {secret} has no key {key}")));
        };
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|_| CallError::invalid(format!("Secret {secret}: the value of {key} is not text")))?;
        let value = SecretText::from(text.trim_end_matches(['\r', '\n']).to_owned());
        Ok(FoundSecret { value, version: Some(format!("uid {uid}, version {resource_version}")) })
    }
}
