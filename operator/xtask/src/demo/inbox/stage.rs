//! The cluster and servers of the demo of the inbox: a control plane, an issuer, the operator, the page, and runs that
//! wait.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use signoff_tests::browser::Node;
use signoff_tests::control_plane::{Cluster, IssuerOptions, IssuerProcess, Options, WebOptions, WebProcess};
use signoff_tests::mail_server::MailServer;
use signoff_tests::quickstart::{self, Letterbox};
use signoff_tests::say;

use super::super::harness::Harness;
use super::super::letters::{open_letterbox, write};
use super::super::play::expect;
use super::super::show;
use super::mails;

/// The runs besides the letter.
const RUNS: &str = "operator/xtask/src/demo/inbox/runs.yaml";
/// The address at which the runs expect the letter box.
const LETTERBOX: &str = "http://127.0.0.1:18025";
/// The lifetime of id_tokens: the length of the longest session.
const SESSION_LENGTH: Duration = Duration::from_secs(8 * 3600);

/// The run with a letter that a model drafted.
pub(super) const LETTER: &str = "refund-4711";
/// The run with a form.
pub(super) const FORM: &str = "refund-4712";
/// The run with a request that waits before it is sent.
pub(super) const PAYOUT: &str = "payout-4713";
/// The run in which two people must agree.
pub(super) const PAYMENT: &str = "payment-12000";
/// The run whose deadline has passed.
pub(super) const OVERDUE: &str = "close-books";
/// The run with a text that is too long for an Approval.
pub(super) const CONTRACT: &str = "contract-88";
/// The run whose prompt contains markup and control characters.
pub(super) const HOSTILE: &str = "complaint-9";
/// All runs.
pub(super) const ALL: [&str; 7] = [LETTER, FORM, PAYOUT, PAYMENT, OVERDUE, CONTRACT, HOSTILE];

/// The running programs and runs of the demo.
pub(super) struct Stage {
    pub(super) harness: Harness,
    pub(super) web: WebProcess,
    pub(super) letterbox: Letterbox,
    /// The issuer; without Node.js there is none, and people paste tokens.
    pub(super) issuer: Option<IssuerProcess>,
    /// The mail server; without Python there is none, and no mail is sent.
    pub(super) mail: Option<MailServer>,
    /// The Approval that each run waits for.
    approvals: BTreeMap<&'static str, String>,
}

impl Stage {
    /// Starts everything, and starts dana's runs. `needs_issuer`: fails without an issuer. `mails`: the folder for
    /// mails.
    pub(super) async fn start(programs: &Path, needs_issuer: bool, mails: &Path, started: Instant) -> Result<Self> {
        let step = |text: &str| say::step(&format!("{:4.1} s  {text}", started.elapsed().as_secs_f64()));
        step("starting a control plane and an issuer, and installing Signoff by its chart");
        let (cluster, issuer) = start_cluster(needs_issuer).await?;
        let namespace = cluster.namespace("inbox").await?;
        let (mut letter, mut is_changed) = (quickstart::manifest()?, false);
        let letterbox = open_letterbox(&mut letter, &mut is_changed).await?;
        step("letting people in, and starting the operator as its own service account and the page as nobody");
        let page = WebOptions {
            program: Some(programs.join("signoff-web")),
            kubeconfig: cluster.kubeconfig_of_nobody()?,
            issuer: issuer.as_ref().map(|process| process.issuer().clone()),
            arguments: vec![format!("--namespace={}", namespace.name)],
            ..WebOptions::default()
        };
        let (mail, web, ()) = tokio::try_join!(
            mails::start_server(&cluster, mails),
            WebProcess::start(&cluster, page),
            // dana is an approver too, so only her being the requester keeps her from deciding.
            namespace.bind("signoff-approver", "dana@example.com"),
        )?;
        let mut operator = (vec!["--allow-address".to_owned(), letterbox.address().to_string()], Vec::new());
        if let Some(mail) = &mail {
            operator.0.extend(["--notifications".to_owned(), mails::configure(&cluster, mail, web.url())?]);
            operator.1.push(("SSL_CERT_FILE".to_owned(), mail.authority().display().to_string()));
        }
        let harness = Harness::open_with(cluster, namespace, programs, operator, false).await?;
        let mut stage = Self { harness, web, letterbox, issuer, mail, approvals: BTreeMap::new() };
        step("ready");
        if let Err(error) = stage.start_runs(letter, is_changed).await {
            stage.report_failure().await;
            return Err(error);
        }
        Ok(stage)
    }

    /// Starts dana's runs, and waits until each has reached its gate. Remembers the Approvals for which the runs wait.
    async fn start_runs(&mut self, letter: Value, is_changed: bool) -> Result<()> {
        show::words("");
        show::act("dana asks", "Seven runs begin, and each of them stops at a question to other people.");
        let cluster = &self.harness.cluster;
        let files = if is_changed {
            let runs = std::fs::read_to_string(signoff_tests::cargo::root().join(RUNS)).context(RUNS)?;
            let file = cluster.folder().join("runs.yaml");
            std::fs::write(&file, runs.replace(LETTERBOX, &self.letterbox.url()))?;
            [write(cluster, &letter)?, file]
        } else {
            ["examples/quickstart/workflow.yaml", RUNS].map(PathBuf::from)
        };
        for file in files {
            let file = file.display().to_string();
            expect(&self.harness.kubectl("dana", &["apply", "-f", &file]).await?, true, &["created"])?;
        }
        let workflows = ALL.map(|run| format!("workflow/{run}"));
        let mut wait = vec!["wait", "--for=condition=Waiting", "--timeout=90s"];
        wait.extend(workflows.iter().map(String::as_str));
        self.harness.read("dana", &wait).await?;
        for (run, workflow) in ALL.into_iter().zip(&workflows) {
            let name = self.harness.read("dana", &["get", workflow, "-o", "jsonpath={.status.pending[0]}"]).await?;
            anyhow::ensure!(!name.is_empty(), "{workflow} waits for no Approval");
            // A run's status is written first, so the Approval may be created a moment later.
            let approval = format!("approval/{name}");
            self.harness.read("dana", &["wait", "--for=create", &approval, "--timeout=60s"]).await?;
            self.approvals.insert(run, name);
        }
        self.wait_for_field(OVERDUE, "{.status.phase}=Overdue").await?;
        let got = self.harness.kubectl("dana", &["get", "approvals"]).await?;
        expect(&got, true, &["Pending", "Overdue", self.approval(CONTRACT)?])
    }

    /// Returns the Approval that a run waits for.
    pub(super) fn approval(&self, run: &str) -> Result<&str> {
        Ok(self.approvals.get(run).with_context(|| format!("no Approval of {run} is known"))?)
    }

    /// Waits until a field of a run's Approval has a value, such as `{.status.phase}=Approved`.
    pub(super) async fn wait_for_field(&self, run: &str, value: &str) -> Result<()> {
        let (condition, approval) = (format!("--for=jsonpath={value}"), format!("approval/{}", self.approval(run)?));
        self.harness.read("dana", &["wait", &condition, &approval, "--timeout=60s"]).await.map(drop)
    }

    /// Waits until a run has ended, by its condition.
    pub(super) async fn wait_for_end(&self, run: &str, condition: &str) -> Result<()> {
        let (condition, run) = (format!("--for=condition={condition}"), format!("workflow/{run}"));
        self.harness.read("dana", &["wait", &condition, &run, "--timeout=60s"]).await.map(drop)
    }

    /// Returns the token of a person from the kubeconfig.
    pub(super) fn token(&self, person: &str) -> Result<String> {
        let text = std::fs::read_to_string(self.harness.cluster.kubeconfig())?;
        let file: Value = serde_saphyr::from_str(&text)?;
        let users = file["users"].as_array().context("a kubeconfig without users")?;
        let user = users.iter().find(|user| user["name"] == person);
        let token = user.and_then(|user| user["user"]["token"].as_str());
        token.map(str::to_owned).with_context(|| format!("{person} has no token"))
    }

    /// Returns the address of the page of a run's Approval.
    pub(super) fn request_url(&self, run: &str) -> Result<String> {
        Ok(format!("{}/n/{}/a/{}", self.web.url(), self.harness.namespace.name, self.approval(run)?))
    }

    /// Prints the end of the logs of operator and page, and keeps the logs, after an error.
    pub(super) async fn report_failure(&mut self) {
        let log = self.web.log().unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        say::problem(&format!("the end of the page's log:\n{}\n", signoff_expr::text::display(&tail, 8000)));
        self.harness.report_failure().await;
    }

    /// Stops everything gracefully.
    pub(super) async fn clear(self) -> Result<()> {
        self.web.stop().await?;
        self.harness.clear().await
    }
}

/// Starts a control plane with the chart, and with an issuer whose tokens it accepts if there is Node.js.
async fn start_cluster(needs_issuer: bool) -> Result<(Cluster, Option<IssuerProcess>)> {
    match tokio::task::spawn_blocking(Node::find).await? {
        Ok(_) => {
            let options = IssuerOptions { lifetime: SESSION_LENGTH, ..IssuerOptions::default() };
            let (cluster, issuer) = Cluster::with_issuer(Options::default(), options).await?;
            Ok((cluster, Some(issuer)))
        }
        Err(error) if needs_issuer => Err(error),
        Err(error) => {
            say::step(&format!("no issuer, people paste tokens: {error:#}"));
            let cluster = Cluster::own().await?;
            cluster.install(&[]).await?;
            Ok((cluster, None))
        }
    }
}
