//! The state of notices in ConfigMaps of the operator's namespace *(I/O)*: one with the watermarks, and several with
//! the handles of messages.
//!
//! **Invariant:** a forged ConfigMap can only cause notices to be repeated or omitted. It changes no decision.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};
use signoff_notify::{
    StateStore,
    delivery::StoredState,
    state::{MAX_HANDLES, SHARD},
};
use tokio::time::timeout;

/// The name of the ConfigMap with the watermarks. The ConfigMaps of messages append a number.
pub const NAME: &str = "signoff-notices";

/// The time limit of an answer of the API server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of notices in ConfigMaps.
pub struct ConfigMapStore {
    api: Api<ConfigMap>,
}

impl ConfigMapStore {
    /// Returns a store in `namespace`, the operator's own.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    /// Returns the data of a ConfigMap; empty if it does not exist.
    async fn get(&self, name: &str) -> Result<BTreeMap<String, String>, String> {
        let found = await_answer(self.api.get_opt(name)).await?;
        Ok(found.and_then(|found| found.data).unwrap_or_default())
    }

    /// Replaces the data of a ConfigMap, which is created if it does not exist.
    async fn put(&self, name: &str, data: &BTreeMap<String, String>) -> Result<(), String> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let object = ConfigMap { metadata, data: Some(data.clone()), ..ConfigMap::default() };
        let options = PostParams::default();
        let written = async {
            match self.api.replace(name, &options, &object).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    self.api.create(&options, &object).await.map(drop)
                }
                other => other.map(drop),
            }
        };
        await_answer(written).await
    }
}

#[async_trait]
impl StateStore for ConfigMapStore {
    async fn load(&self) -> Result<StoredState, String> {
        let marks = self.get(NAME).await?;
        let mut handles = BTreeMap::new();
        for number in 0..MAX_HANDLES / SHARD {
            let messages = self.get(&handles_name(number)).await?;
            if messages.is_empty() {
                break;
            }
            handles.insert(number, messages);
        }
        Ok(StoredState { marks, handles })
    }

    async fn store_marks(&self, marks: &BTreeMap<String, String>) -> Result<(), String> {
        self.put(NAME, marks).await
    }

    async fn store_handles(&self, number: usize, handles: &BTreeMap<String, String>) -> Result<(), String> {
        self.put(&handles_name(number), handles).await
    }
}

fn handles_name(number: usize) -> String {
    format!("{NAME}-{number}")
}

/// Awaits an answer of the API server, up to the time limit.
async fn await_answer<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    let answer = timeout(ANSWER_TIMEOUT, request).await;
    let answer = answer.map_err(|_| format!("no answer of the API server within {ANSWER_TIMEOUT:?}"))?;
    answer.map_err(|error| signoff_cluster::error::plain(&error))
}
