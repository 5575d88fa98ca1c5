//! The cluster on which a story is played: Signoff, its operator, a namespace, and people who type commands.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::Api;
use kube::runtime::wait::await_condition;
use signoff_api::Workflow;
use signoff_expr::text::display;
use signoff_tests::control_plane::{
    Cluster, Finished, Invocation, Namespace, OPERATOR_NAMESPACE, OperatorIdentity, OperatorOptions, OperatorProcess,
};
use signoff_tests::quickstart;
use signoff_tests::say;

use super::show;

/// The time within which a run must reach its gate.
const GATE_TIMEOUT: Duration = Duration::from_secs(120);

/// A cluster with Signoff, and its operator.
pub(super) struct Harness {
    pub(super) cluster: Cluster,
    pub(super) namespace: Namespace,
    /// The folder with the plugin.
    pub(super) programs: PathBuf,
    operator: OperatorProcess,
    identity: OperatorIdentity,
    is_users_cluster: bool,
}

impl Harness {
    /// Starts the operator as its service account, on a cluster with the chart installed. `is_users_cluster`: whether
    /// everything is removed from the cluster in the end.
    pub(super) async fn open(
        cluster: Cluster,
        namespace: Namespace,
        programs: &Path,
        arguments: Vec<String>,
        is_users_cluster: bool,
    ) -> Result<Self> {
        Self::open_with(cluster, namespace, programs, (arguments, Vec::new()), is_users_cluster).await
    }

    /// Starts the operator as [`Self::open`] does, with further environment variables beside the arguments.
    pub(super) async fn open_with(
        cluster: Cluster,
        namespace: Namespace,
        programs: &Path,
        (arguments, environment): (Vec<String>, Vec<(String, String)>),
        is_users_cluster: bool,
    ) -> Result<Self> {
        let options = OperatorOptions::default();
        let identity = cluster.operator_identity(&options.identity).await?;
        let program = Some(programs.join("signoff-operator"));
        let operator =
            OperatorProcess::start(&cluster, OperatorOptions { program, arguments, environment, ..options }).await?;
        Ok(Self { cluster, namespace, programs: programs.to_owned(), operator, identity, is_users_cluster })
    }

    /// Shows and runs `kubectl` as one of the people.
    pub(super) async fn kubectl(&self, person: &str, words: &[&str]) -> Result<Finished> {
        let before = ["--context", person, "-n", &self.namespace.name];
        self.show_and_run(&[&before, words].concat()).await
    }

    /// Shows and runs `kubectl approve` as one of the people; kubectl takes no flags before a plugin's name.
    pub(super) async fn approve(&self, person: &str, words: &[&str]) -> Result<Finished> {
        let after = ["--context", person, "-n", &self.namespace.name];
        self.show_and_run(&[&["approve"], words, &after].concat()).await
    }

    async fn show_and_run(&self, words: &[&str]) -> Result<Finished> {
        show::command(&show::shell(&[&["kubectl"], words].concat()));
        let finished = self.invocation(words).run().await?;
        show::print_finished(&finished);
        Ok(finished)
    }

    /// Runs `kubectl` as one of the people without showing it, for the needs of the story.
    pub(super) async fn read(&self, person: &str, words: &[&str]) -> Result<String> {
        let before = ["--context", person, "-n", &self.namespace.name];
        self.invocation(&[&before, words].concat()).run().await?.ok()
    }

    /// Runs `kubectl` as one of the people and shows an excerpt: from the line that begins with `from`.
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

    /// Waits until a run waits for an Approval that is not in `before`, and until the Approval exists. Returns the
    /// name of the Approval.
    pub(super) async fn wait_for_approval(&self, run: &str, before: &[&str]) -> Result<String> {
        let api = Api::<Workflow>::namespaced(self.cluster.admin().await?, &self.namespace.name);
        let next_approval = |run: &Workflow| {
            let pending = &run.status.as_ref()?.pending;
            pending.iter().find(|name| !before.contains(&name.as_str())).cloned()
        };
        let waiting = await_condition(api, run, |run: Option<&Workflow>| run.and_then(next_approval).is_some());
        let run = tokio::time::timeout(GATE_TIMEOUT, waiting).await.context("the run asks nobody")??;
        let approval = run.as_ref().and_then(next_approval).context("the run waits for no Approval")?;
        // The run's status is written first, so the Approval may be created a moment later.
        self.read("dana", &["wait", "--for=create", &format!("approval/{approval}"), "--timeout=60s"]).await?;
        Ok(approval)
    }

    /// Waits until an Event with this reason has been written about the object.
    pub(super) async fn wait_for_event(&self, name: &str, reason: &str) -> Result<String> {
        quickstart::told(self.cluster.admin().await?, &self.namespace.name, name, reason).await
    }

    /// Returns the operator's log.
    pub(super) fn log(&self) -> &Path {
        self.operator.log()
    }

    /// Renews the operator's token.
    pub(super) async fn renew(&self) -> Result<()> {
        self.identity.renew().await
    }

    /// Prints the end of the operator's log, and keeps the logs, after an error.
    pub(super) async fn report_failure(&mut self) {
        let log = std::fs::read_to_string(self.operator.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        say::problem(&format!("the end of the operator's log:\n{}\n", display(&tail, 8000)));
        match self.cluster.plane_mut() {
            Some(plane) => plane.keep_logs(),
            None if self.is_users_cluster => say::problem(&format!(
                "namespace {} and the release signoff were left as they are",
                self.namespace.name
            )),
            None => {}
        }
    }

    /// Stops the operator gracefully, and removes everything from a cluster of the user.
    pub(super) async fn clear(self) -> Result<()> {
        self.operator.stop().await?;
        if self.is_users_cluster {
            say::step(&format!(
                "removing namespace {} and Signoff; its CRDs stay, as with every uninstall",
                self.namespace.name
            ));
            // First the Approvals, while the policies that let the namespace controller delete them exist.
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
