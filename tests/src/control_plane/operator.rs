//! The operator's own binary as a process beside the cluster, which tests start, stop, freeze and kill. Tests reach it
//! by arguments, HTTP requests, signals and the log only.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cluster::Cluster;
use super::install::{OPERATOR_ACCOUNT, OPERATOR_NAMESPACE};
use super::ports;
use super::supervised::{Signal, Supervised};

/// The environment variable with the folder of built binaries, set by `cargo xtask`. Without it they are built on
/// demand.
pub const BINARIES: &str = "SIGNOFF_BINARIES";

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The settings of an operator process.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// The program; if `None`, [`program`] finds or builds it.
    pub program: Option<PathBuf>,
    /// The name of the Pod whose identity the process has, and its `--identity`. Each of two operators needs its own.
    pub identity: String,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Further environment variables.
    pub environment: Vec<(String, String)>,
    /// Whether to wait until `/readyz` succeeds.
    pub wait: bool,
}

impl Default for OperatorOptions {
    fn default() -> Self {
        Self {
            program: None,
            identity: "signoff-operator-outside".to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            wait: true,
        }
    }
}

/// A running operator. Dropping it kills it, as a crash would.
#[derive(Debug)]
pub struct OperatorProcess {
    process: Supervised,
    url: String,
}

impl OperatorProcess {
    /// Starts `signoff-operator` against a cluster with the chart installed.
    ///
    /// # Errors
    /// The program cannot be built, or is not ready within a minute; then the error has the end of its log.
    pub async fn start(cluster: &Cluster, options: OperatorOptions) -> Result<Self> {
        let program = match options.program {
            Some(program) => program,
            None => tokio::task::spawn_blocking(|| program("signoff-controller", "signoff-operator")).await??,
        };
        let identity = cluster.operator_identity(&options.identity).await?;
        let port = ports::free()?;
        let listen = format!("127.0.0.1:{port}");
        let mut arguments = vec![
            "--kubeconfig".to_owned(),
            identity.kubeconfig().display().to_string(),
            "--namespace".to_owned(),
            OPERATOR_NAMESPACE.to_owned(),
            "--listen".to_owned(),
            listen.clone(),
            "--identity".to_owned(),
            options.identity.clone(),
        ];
        arguments.extend(options.arguments);
        // The variables that a Deployment sets by the downward API.
        let mut environment = vec![
            ("POD_NAME", identity.pod.as_str()),
            ("POD_UID", &identity.uid),
            ("POD_SERVICE_ACCOUNT", OPERATOR_ACCOUNT),
        ];
        environment.extend(options.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        // The port keeps the logs of one test's successive operators apart.
        let log = cluster.logs().join(format!("{}-{port}.log", options.identity));
        let process = Supervised::start("signoff-operator", &program, arguments, &environment, &log)?;
        let mut operator = Self { process, url: format!("http://{listen}") };
        if options.wait {
            operator.until_ready().await?;
        }
        Ok(operator)
    }

    /// Waits until `/readyz` succeeds.
    ///
    /// # Errors
    /// The process ends first or takes longer than a minute; the error has the end of its log.
    pub async fn until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let Err(error) = self.get("/readyz").await else {
                return Ok(());
            };
            if let Some(status) = self.process.exited()? {
                bail!("signoff-operator ended ({status}); its log ends:\n{}", self.process.log_tail(40));
            }
            if Instant::now() > deadline {
                bail!(
                    "signoff-operator is not ready after {TIMEOUT:?} ({error:#}); its log ends:\n{}",
                    self.process.log_tail(40)
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the body of a page that the operator serves, such as `/metrics`.
    ///
    /// # Errors
    /// The operator does not answer with success.
    pub async fn get(&self, path: &str) -> Result<String> {
        super::install_tls();
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(client.get(format!("{}{path}", self.url)).send().await?.error_for_status()?.text().await?)
    }

    /// Returns the address at which it listens, as `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the process id, for measuring.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the path of the log file.
    #[must_use]
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// Sends a signal to the process, such as to freeze it or to let it continue.
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Asks the operator to end and waits until it has ended. On its way the operator releases its Lease.
    ///
    /// # Errors
    /// The operator takes longer than 20 seconds, or exits with an error.
    pub async fn stop(self) -> Result<()> {
        let status = self.process.terminate(Duration::from_secs(20)).await?;
        ensure!(status.success(), "signoff-operator ended with {status} when asked to stop");
        Ok(())
    }

    /// Kills the process, as a crash would.
    pub fn kill(self) {
        drop(self);
    }
}

/// Returns the path of a program of the workspace: in the folder that `cargo xtask` names, or else built by cargo now.
///
/// # Errors
/// The program is not in that folder, or does not compile.
pub fn program(package: &str, name: &str) -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(BINARIES) {
        let path = PathBuf::from(folder).join(name);
        ensure!(path.is_file(), "{BINARIES} is set, but there is no {}", path.display());
        return Ok(path);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--message-format=json", "--package", package, "--bin", name, "--manifest-path"])
        .arg(manifest)
        .stdin(Stdio::null())
        .output()
        .context("running cargo")?;
    ensure!(output.status.success(), "{package} does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    // Cargo itself says where it put the program; a guess would miss a CARGO_TARGET_DIR.
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo built {package} and named no program {name}"))
}
