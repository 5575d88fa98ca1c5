//! The quickstart's harness: a cluster with Signoff and its operator, the letter box, and the model that drafts.
//!
//! **Invariant:** no cluster is used that was not named, and none on which Signoff is installed already.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use signoff_api::names::ROLE_SECRETS;
use signoff_tests::control_plane::{Cluster, Namespace, OPERATOR_ACCOUNT, OPERATOR_NAMESPACE};
use signoff_tests::quickstart::{self, Letterbox};
use signoff_tests::say;
use url::Url;

use super::harness::Harness;

/// A real model in place of the script.
pub(super) struct Model {
    /// The URL before `/chat/completions`.
    pub(super) url: Url,
    pub(super) name: String,
    pub(super) key: Option<String>,
}

/// The harness with the letter box.
pub(super) struct Letters {
    pub(super) harness: Harness,
    pub(super) letterbox: Letterbox,
    /// The file that is applied: the example itself, or a copy with this run's addresses.
    pub(super) manifest: PathBuf,
}

impl Deref for Letters {
    type Target = Harness;

    fn deref(&self) -> &Harness {
        &self.harness
    }
}

impl Letters {
    /// Starts a cluster or uses the user's cluster, installs the chart, binds people's roles, and starts the operator
    /// as its service account.
    pub(super) async fn start(
        user_cluster: Option<(PathBuf, String)>,
        model: Option<Model>,
        programs: &Path,
        started: Instant,
    ) -> Result<Self> {
        let step = |text: &str| say::step(&format!("{:4.1} s  {text}", started.elapsed().as_secs_f64()));
        let is_users_cluster = user_cluster.is_some();
        let cluster = match user_cluster {
            None => {
                step("starting a control plane: etcd, API server, controller manager");
                Cluster::own().await?
            }
            Some((file, context)) => {
                step(&format!("using the context {context} of {}", file.display()));
                check_vacant(Cluster::existing(&file, &context).await?).await?
            }
        };
        step("installing Signoff by its chart, and waiting until its admission policies are in force");
        let ((), namespace) = tokio::try_join!(cluster.install(&[]), cluster.namespace("letters"))?;
        let (mut manifest, mut changed) = (quickstart::manifest()?, false);
        let letterbox = open_letterbox(&mut manifest, &mut changed).await?;

        step("letting people in, and starting the operator as its own service account");
        let mut arguments = vec!["--allow-address".to_owned(), letterbox.address().to_string()];
        if let Some(model) = &model {
            // The user who typed the address wants it reached, wherever it is.
            arguments.extend(["--allow-address".to_owned(), model.address()?]);
            model.put_into(&mut manifest)?;
            model.give_key(&cluster, &namespace).await?;
            changed = true;
        }
        let (harness, (), ()) = tokio::try_join!(
            Harness::open(cluster.clone(), namespace.clone(), programs, arguments, is_users_cluster),
            // dana can decide and read Events, so only her being the requester keeps her from approving.
            namespace.bind("signoff-approver", "dana@example.com"),
            namespace.bind("view", "dana@example.com"),
        )?;
        let manifest =
            if changed { write(&cluster, &manifest)? } else { PathBuf::from("examples/quickstart/workflow.yaml") };
        Ok(Self { harness, letterbox, manifest })
    }
}

/// Returns a user's cluster. Fails if the cluster has Signoff already, because the demo would replace its operator.
async fn check_vacant(cluster: Cluster) -> Result<Cluster> {
    // The policies are removed when Signoff is uninstalled. Its CRDs stay, so they do not show that it is installed.
    let words = ["get", "validatingadmissionpolicies", "signoff-approvals", "--ignore-not-found", "--output=name"];
    let policies = cluster.kubectl(words).run().await?.ok()?;
    ensure!(
        policies.trim().is_empty(),
        "Signoff is installed on that cluster already, and the demo would replace its operator: name another cluster, or \
         apply examples/quickstart/workflow.yaml there yourself"
    );
    Ok(cluster)
}

/// Opens the letter box at the address in the example; if that port is taken, the example is changed.
pub(super) async fn open_letterbox(manifest: &mut Value, changed: &mut bool) -> Result<Letterbox> {
    let input = quickstart::input(manifest, "letterbox")?;
    let url: Url = input.as_str().unwrap_or_default().parse().context("inputs.letterbox of the quickstart example")?;
    let letterbox = Letterbox::open(url.port().unwrap_or_default()).await?;
    if Some(letterbox.address().port()) != url.port() {
        *input = letterbox.url().into();
        *changed = true;
    }
    Ok(letterbox)
}

/// Writes the changed manifest of the letter, and returns its file.
pub(super) fn write(cluster: &Cluster, manifest: &Value) -> Result<PathBuf> {
    let file = cluster.folder().join("workflow.yaml");
    std::fs::write(&file, serde_saphyr::to_string(manifest)?)?;
    Ok(file)
}

impl Model {
    /// Returns host and port, as the operator's setting takes them.
    fn address(&self) -> Result<String> {
        let (host, port) = (self.url.host_str(), self.url.port_or_known_default());
        let (host, port) = host.zip(port).with_context(|| format!("--model-url {} names no host", self.url))?;
        Ok(format!("{host}:{port}"))
    }

    /// Sets this model as the manifest's provider and its agent's model.
    fn put_into(&self, manifest: &mut Value) -> Result<()> {
        let mut openai = json!({"baseURL": self.url.as_str().trim_end_matches('/')});
        if self.key.is_some() {
            openai["key"] = json!("models");
        }
        let spec = manifest.get_mut("spec").context("the quickstart example has no spec")?;
        if self.key.is_some() {
            spec["secrets"] = json!([{"name": "models", "secret": "models", "key": "token"}]);
        }
        spec["providers"] = json!([{"name": "models", "openai": openai}]);
        for agent in spec["agents"].as_array_mut().into_iter().flatten() {
            agent["model"] = self.name.clone().into();
        }
        Ok(())
    }

    /// Puts the key into a Secret that may be sent to the model's host alone, and lets dana and the operator read it. A
    /// user who cannot read a Secret cannot use it in a Workflow either.
    async fn give_key(&self, cluster: &Cluster, namespace: &Namespace) -> Result<()> {
        let Some(key) = &self.key else { return Ok(()) };
        let rbac = "rbac.authorization.k8s.io";
        let metadata = |name: &str| json!({"name": name, "namespace": namespace.name});
        let mut secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("models"), "stringData": {"token": key}});
        secret["metadata"]["annotations"] = json!({"signoff.dev/allowed-hosts": self.address()?});
        let rules =
            json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["models"], "verbs": ["get"]}]);
        let subjects = json!([{"apiGroup": rbac, "kind": "User", "name": "dana@example.com"}]);
        let items = json!([
            secret,
            {"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata("models-key"), "rules": rules},
            {"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata("models-key"), "subjects": subjects,
             "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "models-key"}},
            {"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata(ROLE_SECRETS),
             "subjects": [{"kind": "ServiceAccount", "name": OPERATOR_ACCOUNT, "namespace": OPERATOR_NAMESPACE}],
             "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": ROLE_SECRETS}},
        ]);
        // By standard input, because every user of the machine can read command lines.
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        cluster.kubectl(["create", "-f", "-"]).input(list).run().await?.ok()?;
        Ok(())
    }
}
