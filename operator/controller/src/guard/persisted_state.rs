//! The state of the guard that outlives this process, in a ConfigMap of the operator's namespace *(I/O)*: the epoch in
//! force, its beginning, and the number of interruptions that changed no object.
//!
//! **Invariant:** a forged ConfigMap can only make the operator more careful.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};

/// The ConfigMap's name.
pub(super) const NAME: &str = "signoff-guard";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PersistedState {
    /// The epoch in force and its beginning, or `None` while the policies are not in force.
    pub(super) in_force: Option<(String, Timestamp)>,
    /// The number of interruptions that changed no object.
    pub(super) interruptions: u32,
    /// Whether no state was ever stored.
    pub(super) blank: bool,
}

impl PersistedState {
    /// Loads the stored state. Without a ConfigMap the state is blank. Values that cannot be parsed count as missing.
    pub(super) async fn load(client: &Client, namespace: &str) -> Result<Self, kube::Error> {
        let found = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(NAME).await?;
        let Some(data) = found.and_then(|found| found.data) else {
            return Ok(Self { blank: true, ..Self::default() });
        };
        let text = |key: &str| data.get(key).map(String::as_str).unwrap_or_default();
        let since = text("since").parse().ok();
        Ok(Self {
            in_force: since.filter(|_| !text("epoch").is_empty()).map(|since| (text("epoch").to_owned(), since)),
            interruptions: text("interruptions").parse().unwrap_or_default(),
            blank: false,
        })
    }

    pub(super) async fn store(&self, client: &Client, namespace: &str) -> Result<(), kube::Error> {
        let (epoch, since) = match &self.in_force {
            Some((epoch, since)) => (epoch.clone(), since.to_string()),
            None => Default::default(),
        };
        let data = BTreeMap::from([
            ("epoch".to_owned(), epoch),
            ("since".to_owned(), since),
            ("interruptions".to_owned(), self.interruptions.to_string()),
        ]);
        let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
        let object = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        let (api, options) = (Api::<ConfigMap>::namespaced(client.clone(), namespace), PostParams::default());
        match api.replace(NAME, &options, &object).await {
            Err(kube::Error::Api(status)) if status.code == 404 => api.create(&options, &object).await.map(drop),
            other => other.map(drop),
        }
    }
}
