//! What the story is played on: a cluster with Signoff, its operator, a namespace, and the letter box.
//! It may not touch a cluster that was not named, nor one on which Signoff is installed already.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use signoff_engine::language::text::display;
use signoff_tests::control_plane::{
    Cluster, Finished, Invocation, Namespace, OPERATOR_NAMESPACE, OperatorIdentity, OperatorOptions, OperatorProcess,
};
use signoff_tests::quickstart::{self, Letterbox};
use url::Url;

use super::show;
use crate::say;

/// A real model in the script's place.
pub(super) struct Model {
    /// Up to and without `/chat/completions`.
    pub(super) url: Url,
    pub(super) name: String,
    pub(super) key: Option<String>,
}

/// The stage, set.
pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) namespace: Namespace,
    pub(super) letterbox: Letterbox,
    /// The folder with the plugin.
    pub(super) programs: PathBuf,
    /// What is applied: the example itself, or a copy with this run's addresses.
    pub(super) manifest: PathBuf,
    operator: OperatorProcess,
    identity: OperatorIdentity,
    named: bool,
}

impl Stage {
    /// Starts or takes the cluster, installs the chart, lets people in, and starts the operator as its service account.
    pub(super) async fn set(
        named: Option<(PathBuf, String)>,
        model: Option<Model>,
        programs: &Path,
        started: Instant,
    ) -> Result<Self> {
        let step = |text: &str| say::step(&format!("{:4.1} s  {text}", started.elapsed().as_secs_f64()));
        let on_named = named.is_some();
        let cluster = match named {
            None => {
                step("starting a control plane: etcd, API server, controller manager");
                Cluster::own().await?
            }
            Some((file, context)) => {
                step(&format!("using the context {context} of {}", file.display()));
                vacant(Cluster::existing(&file, &context).await?).await?
            }
        };
        step("installing Signoff by its chart, and waiting until its admission policies are in force");
        let ((), namespace) = tokio::try_join!(cluster.install(&[]), cluster.namespace("letters"))?;
        let (mut manifest, mut changed) = (quickstart::manifest()?, false);
        let letterbox = open_letterbox(&mut manifest, &mut changed).await?;

        step("letting people in, and starting the operator as its own service account");
        let options = OperatorOptions::default();
        let identity = cluster.operator_identity(&options.identity).await?;
        let mut arguments = vec!["--allow-address".to_owned(), letterbox.address().to_string()];
        if let Some(model) = &model {
            // Who typed the address wants it reached, wherever it is.
            arguments.extend(["--allow-address".to_owned(), model.address()?]);
            model.put_into(&mut manifest)?;
            model.give_key(&cluster, &namespace).await?;
            changed = true;
        }
        let program = Some(programs.join("signoff-operator"));
        let (operator, (), ()) = tokio::try_join!(
            OperatorProcess::start(&cluster, OperatorOptions { program, arguments, ..options }),
            // dana may decide, and reads Events: that she asks herself is all that keeps her from approving.
            namespace.bind("signoff-approver", "dana@example.com"),
            namespace.bind("view", "dana@example.com"),
        )?;
        let manifest =
            if changed { write(&cluster, &manifest)? } else { PathBuf::from("examples/quickstart/workflow.yaml") };
        let programs = programs.to_owned();
        Ok(Self { cluster, namespace, letterbox, programs, manifest, operator, identity, named: on_named })
    }

    /// `kubectl` as one of the people, shown and run.
    pub(super) async fn kubectl(&self, person: &str, words: &[&str]) -> Result<Finished> {
        let before = ["--context", person, "-n", &self.namespace.name];
        self.shown(&[&before, words].concat()).await
    }

    /// `kubectl approve` as one of the people, shown and run; kubectl takes no flags before a plugin's name.
    pub(super) async fn approve(&self, person: &str, words: &[&str]) -> Result<Finished> {
        let after = ["--context", person, "-n", &self.namespace.name];
        self.shown(&[&["approve"], words, &after].concat()).await
    }

    async fn shown(&self, words: &[&str]) -> Result<Finished> {
        show::command(&show::shell(&[&["kubectl"], words].concat()));
        let finished = self.invocation(words).run().await?;
        show::printed(&finished);
        Ok(finished)
    }

    /// `kubectl` as one of the people, not shown: for what the story needs to know.
    pub(super) async fn read(&self, person: &str, words: &[&str]) -> Result<String> {
        let before = ["--context", person, "-n", &self.namespace.name];
        self.invocation(&[&before, words].concat()).run().await?.ok()
    }

    /// `kubectl` as one of the people, of which an excerpt is shown: from the line that begins with `from`.
    pub(super) async fn excerpt(&self, person: &str, words: &[&str], from: &str) -> Result<String> {
        let words = [&["--context", person, "-n", &self.namespace.name], words].concat();
        show::command(&show::shell(&[&["kubectl"], &words[..]].concat()));
        let text = self.invocation(&words).run().await?.ok()?;
        show::output(&show::excerpt(&text, from));
        Ok(text)
    }

    fn invocation(&self, words: &[&str]) -> Invocation {
        self.cluster.kubectl(words.iter().copied()).search(&self.programs)
    }

    /// Waits until an Event with this reason has been written about the object.
    pub(super) async fn told(&self, name: &str, reason: &str) -> Result<String> {
        quickstart::told(self.cluster.admin().await?, &self.namespace.name, name, reason).await
    }

    /// The operator's log.
    pub(super) fn log(&self) -> &Path {
        self.operator.log()
    }

    /// Draws the operator a new token.
    pub(super) async fn renew(&self) -> Result<()> {
        self.identity.renew().await
    }

    /// Says what the operator said last, and keeps the logs: something went wrong.
    pub(super) async fn lament(&mut self) {
        let log = std::fs::read_to_string(self.operator.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        say::problem(&format!("the end of the operator's log:\n{}\n", display(&tail, 8000)));
        match self.cluster.plane_mut() {
            Some(plane) => plane.keep_logs(),
            None => say::problem(&format!(
                "namespace {} and the release signoff were left as they are",
                self.namespace.name
            )),
        }
    }

    /// Stops the operator in order; takes everything from a cluster that is not ours.
    pub(super) async fn clear(self) -> Result<()> {
        self.operator.stop().await?;
        if self.named {
            say::step(&format!(
                "removing namespace {} and Signoff; its CRDs stay, as with every uninstall",
                self.namespace.name
            ));
            // First the Approvals, while the policies that let the namespace controller delete them are there.
            let run = |words: [&str; 4]| self.cluster.kubectl(words).run();
            run(["delete", "namespace", &self.namespace.name, "--wait=true"]).await?.ok()?;
            self.cluster
                .helm(["uninstall", "signoff", "--namespace", OPERATOR_NAMESPACE, "--wait"])
                .run()
                .await?
                .ok()?;
            run(["delete", "namespace", OPERATOR_NAMESPACE, "--wait=false"]).await?.ok()?;
        }
        Ok(())
    }
}

/// A cluster somebody named must not have Signoff already: this would put its operator out of work.
async fn vacant(cluster: Cluster) -> Result<Cluster> {
    // Its policies go with it when it is uninstalled; its CRDs stay, and are no sign of it.
    let words = ["get", "validatingadmissionpolicies", "signoff-approvals", "--ignore-not-found", "--output=name"];
    let there = cluster.kubectl(words).run().await?.ok()?;
    ensure!(
        there.trim().is_empty(),
        "Signoff is installed on that cluster already, and the demo would replace its operator: name another cluster, or \
         apply examples/quickstart/workflow.yaml there yourself"
    );
    Ok(cluster)
}

/// Opens the letter box where the example says it is; where that port is taken, the example is changed.
async fn open_letterbox(manifest: &mut Value, changed: &mut bool) -> Result<Letterbox> {
    let place = quickstart::input(manifest, "letterbox")?;
    let said: Url = place.as_str().unwrap_or_default().parse().context("inputs.letterbox of the quickstart example")?;
    let letterbox = Letterbox::open(said.port().unwrap_or_default()).await?;
    if Some(letterbox.address().port()) != said.port() {
        *place = letterbox.url().into();
        *changed = true;
    }
    Ok(letterbox)
}

fn write(cluster: &Cluster, manifest: &Value) -> Result<PathBuf> {
    let file = cluster.folder().join("workflow.yaml");
    std::fs::write(&file, serde_saphyr::to_string(manifest)?)?;
    Ok(file)
}

impl Model {
    /// Host and port, as the operator's setting takes them.
    fn address(&self) -> Result<String> {
        let (host, port) = (self.url.host_str(), self.url.port_or_known_default());
        let (host, port) = host.zip(port).with_context(|| format!("--model-url {} names no host", self.url))?;
        Ok(format!("{host}:{port}"))
    }

    /// The manifest's provider and agent become this model.
    fn put_into(&self, manifest: &mut Value) -> Result<()> {
        let mut openai = json!({"baseURL": self.url.as_str().trim_end_matches('/')});
        if self.key.is_some() {
            openai["keyFrom"] = json!({"name": "models", "key": "token"});
        }
        let spec = manifest.get_mut("spec").context("the quickstart example has no spec")?;
        spec["providers"] = json!([{"name": "models", "openai": openai}]);
        for agent in spec["agents"].as_array_mut().into_iter().flatten() {
            agent["model"] = self.name.clone().into();
        }
        Ok(())
    }

    /// Puts the key into a Secret that may be sent to the model's host alone, and lets dana read it: who could not read a
    /// Secret cannot use it in a Workflow either.
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
        ]);
        // By standard input, because everybody on the machine can read command lines.
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        cluster.kubectl(["create", "-f", "-"]).input(list).run().await?.ok()?;
        Ok(())
    }
}
