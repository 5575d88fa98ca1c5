//! The connection of a command: its cluster, its user, and the Approvals there.
//!
//! **Invariant:** every request is sent as the user of the kubeconfig.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, ListParams, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use signoff_api::{Approval, Blob, Workflow, names};
use signoff_cli::sanitize::one_line;
use signoff_review::{
    entry::Entry,
    reading,
    record::record,
    seen::{RunNow, Seen, Unreadable},
    suggest::CallFlags,
    voter::Me,
};

use crate::{
    args::{self, Connection},
    error::{Failure, Server},
};

/// The connection to a cluster as one user.
pub struct Session {
    client: Client,
    server: Server,
    /// The first namespace that the command line names, or the context's.
    pub namespace: String,
    /// The namespaces that the command line names, or else the context's; sorted, without duplicates.
    pub namespaces: Vec<String>,
    /// The time for which a decision waits for its outcome without `--wait`.
    pub default_wait: Duration,
    /// The flags that suggested commands repeat.
    pub call: CallFlags,
}

/// The choice of Approvals for a list.
#[derive(Clone, Debug, Default)]
pub struct Selection<'s> {
    /// Whether the list has the Approvals of all namespaces.
    pub everywhere: bool,
    /// The field selector. Empty: no filter.
    pub fields: String,
    /// The label selector, or `None` without a filter.
    pub labels: Option<&'s str>,
}

/// The most Approvals in one answer of the API server.
const PAGE: u32 = 500;

impl Session {
    /// Reads the kubeconfig and creates a client. Sends no request.
    ///
    /// # Errors
    /// The kubeconfig is missing or cannot be used.
    pub async fn open(options: &Connection) -> Result<Self, Failure> {
        let mut config = load_config(options).await?;
        if let Some(user) = &options.impersonate {
            config.auth_info.impersonate = Some(user.clone());
        }
        if !options.impersonate_group.is_empty() {
            config.auth_info.impersonate_groups = Some(options.impersonate_group.clone());
        }
        let install_hint = config.auth_info.exec.as_ref().and_then(|exec| exec.install_hint.clone());
        let server = Server { url: config.cluster_url.to_string(), context: options.context.clone(), install_hint };
        let mut namespaces = options.namespace.clone();
        let namespace = namespaces.first().unwrap_or(&config.default_namespace).clone();
        if namespaces.is_empty() {
            namespaces.push(namespace.clone());
        }
        namespaces.sort();
        namespaces.dedup();
        let client = signoff_cluster::connect(config).map_err(|error| server.explain(error))?;
        let variable = std::env::var(args::WAIT_VARIABLE).ok();
        let default_wait =
            args::default_wait(variable.as_deref()).map_err(|why| Failure::Usage(one_line(&why, 300)))?;
        Ok(Self { client, server, namespace, namespaces, default_wait, call: CallFlags::from(options) })
    }

    /// Returns the client, for requests about other objects than Approvals.
    pub fn raw(&self) -> &Client {
        &self.client
    }

    /// Returns the failure that explains a client's error to the user.
    pub fn explain(&self, error: kube::Error) -> Failure {
        self.server.explain(error)
    }

    /// Returns the state of a Workflow of the namespace, which is empty if the Workflow cannot be read.
    pub async fn run(&self, workflow: &str) -> RunNow {
        self.run_in(&self.namespace, workflow).await
    }

    /// Returns the state of a Workflow of another namespace, which is empty if the Workflow cannot be read.
    pub async fn run_in(&self, namespace: &str, workflow: &str) -> RunNow {
        reading::run(&self.client, namespace, workflow).await
    }

    /// Returns a Blob of the namespace.
    ///
    /// # Errors
    /// The request fails.
    pub async fn blob(&self, name: &str) -> Result<Blob, Failure> {
        let api = Api::<Blob>::namespaced(self.client.clone(), &self.namespace);
        api.get(name).await.map_err(|error| self.server.explain(error))
    }

    /// Returns the user and groups as which the API server sees this session.
    ///
    /// # Errors
    /// The request fails.
    pub async fn me(&self) -> Result<Me, Failure> {
        let review: SelfSubjectReview = self.ask(SelfSubjectReview::default()).await?;
        let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
        Ok(Me { user: user.username.unwrap_or_default(), groups: user.groups.unwrap_or_default() })
    }

    /// Creates a review object, such as a SelfSubjectAccessReview, and returns it with the API server's answer.
    ///
    /// # Errors
    /// The request fails.
    pub async fn ask<K>(&self, question: K) -> Result<K, Failure>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
        K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope>,
    {
        Api::all(self.client.clone())
            .create(&PostParams::default(), &question)
            .await
            .map_err(|error| self.server.explain(error))
    }

    /// Returns an Approval of the namespace.
    ///
    /// # Errors
    /// The request fails, or this plugin cannot read the object.
    pub async fn approval(&self, name: &str) -> Result<Seen, Failure> {
        let found = self.approvals(false).get(name).await.map_err(|error| self.server.explain(error))?;
        read_approval(&found)
    }

    /// Whether no namespace of this session has a Workflow of this name. False if a request fails, or if the text is
    /// not a valid name.
    pub async fn is_missing(&self, workflow: &str) -> bool {
        if !names::is_object(workflow) {
            return false;
        }
        for namespace in &self.namespaces {
            let resource = ApiResource::erase::<Workflow>(&());
            let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
            match api.get_metadata(workflow).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                _ => return false,
            }
        }
        true
    }

    /// Returns the Approvals that a field selector picks, of the first namespace or of all. The second list has a
    /// message for each object that cannot be read as an Approval.
    ///
    /// # Errors
    /// The request fails.
    pub async fn list(&self, everywhere: bool, fields: &str) -> Result<(Vec<Seen>, Vec<String>), Failure> {
        let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
        let page = ListParams::default().fields(fields);
        self.list_pages(self.approvals(everywhere), page, &mut readable, &mut unreadable).await?;
        Ok((readable, unreadable))
    }

    /// Returns the Approvals of a selection, from all namespaces of the session or from the whole cluster. The second
    /// list has a message for each object that cannot be read as an Approval.
    ///
    /// # Errors
    /// A request fails. If the user cannot list the whole cluster, the error says how to list namespaces.
    pub async fn select(&self, selection: &Selection<'_>) -> Result<(Vec<Seen>, Vec<String>), Failure> {
        let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
        let mut page = ListParams::default().fields(&selection.fields);
        page.label_selector = selection.labels.map(str::to_owned);
        if selection.everywhere {
            let listed = self.list_pages(self.approvals(true), page, &mut readable, &mut unreadable).await;
            listed.map_err(|failure| match failure {
                Failure::Refused(why) => Failure::Refused(format!(
                    "{why}; name the namespaces that you may list: kubectl approve list -n NAMESPACE -n NAMESPACE"
                )),
                other => other,
            })?;
        } else {
            for namespace in &self.namespaces {
                self.list_pages(self.approvals_in(namespace), page.clone(), &mut readable, &mut unreadable).await?;
            }
        }
        Ok((readable, unreadable))
    }

    /// Fetches all pages of a list, and sorts the objects into Approvals and messages about unreadable objects.
    async fn list_pages(
        &self,
        api: Api<DynamicObject>,
        page: ListParams,
        readable: &mut Vec<Seen>,
        unreadable: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let mut page = page.limit(PAGE);
        loop {
            let found = api.list(&page).await.map_err(|error| self.server.explain(error))?;
            for object in &found.items {
                match read_approval(object) {
                    Ok(approval) => readable.push(approval),
                    Err(error) => unreadable.push(error.to_string()),
                }
            }
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// Writes an entry into an Approval of the namespace, and returns the Approval as it is stored.
    ///
    /// # Errors
    /// The request fails, most often because the API server refuses the decision.
    pub async fn record(&self, approval: &Seen, entry: &Entry, dry_run: bool) -> Result<Seen, Failure> {
        let options = PatchParams { dry_run, field_manager: Some("kubectl-approve".into()), ..PatchParams::default() };
        let stored = record(&self.approvals(false), approval, entry, &options).await;
        read_approval(&stored.map_err(|error| self.server.explain(error))?)
    }

    fn approvals(&self, everywhere: bool) -> Api<DynamicObject> {
        // Dynamic objects keep the fields that a later version adds, which are compared and printed too.
        let resource = ApiResource::erase::<Approval>(&());
        if everywhere { Api::all_with(self.client.clone(), &resource) } else { self.approvals_in(&self.namespace) }
    }

    fn approvals_in(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Approval>(&()))
    }
}

fn read_approval(object: &DynamicObject) -> Result<Seen, Failure> {
    Seen::of(object).map_err(|Unreadable { name, why }| {
        let (name, why) = (one_line(&name, 253), one_line(&why.to_string(), 1000));
        Failure::Other(format!(
            "approval {name} cannot be read by this version of kubectl-approve ({why}): update it, or use kubectl get approval {name} -o yaml"
        ))
    })
}

/// Reads the kubeconfig that the options or the environment name, and chooses the context. In a Pod without a
/// kubeconfig, returns the configuration of its service account.
async fn load_config(options: &Connection) -> Result<Config, Failure> {
    let file = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let file = match file {
        Ok(file) => file,
        // As kubectl does.
        Err(error) => {
            if options.kubeconfig.is_none()
                && options.context.is_none()
                && let Ok(config) = Config::incluster()
            {
                return Ok(config);
            }
            return Err(Failure::Other(format!("no kubeconfig: {error}; name one with --kubeconfig or KUBECONFIG")));
        }
    };
    let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &choice).await.map_err(|error| {
        Failure::Other(format!("the kubeconfig cannot be used: {error}; see kubectl config get-contexts"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_approval_that_cannot_be_read_is_named_in_one_line() {
        let object = serde_json::json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval",
            "metadata": {"name": "x\u{1b}[2J\nfake"}, "spec": {"request": {"gate": {"type": "\u{1b}[31m"}}}});
        let why = read_approval(&serde_json::from_value(object).unwrap()).unwrap_err().to_string();
        assert!(why.starts_with("error: approval x[2J fake cannot be read by this version"), "{why}");
        assert!(!why.contains(['\u{1b}', '\n']), "{why}");
    }
}
