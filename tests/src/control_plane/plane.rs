//! etcd, kube-apiserver and kube-controller-manager on free loopback ports: a real control plane without nodes. With a
//! network that pods can use it also has a scheduler.
//!
//! **Invariant:** no process outlives the process that started it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, WatchEvent, WatchParams};
use tempfile::TempDir;

use super::binary::{self, Programs};
use super::network::Network;
use super::people::{self, CAST, NODE, Person, SCHEDULER};
use super::supervised::Supervised;
use super::{connect, keys, kubeconfig, ports, progress};

/// The deadline for a component to answer; each takes about two seconds on two idle cores.
const TIMEOUT: Duration = Duration::from_secs(90);
/// The pause between two requests to a component that does not announce that it is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// The settings of a control plane.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Further arguments of kube-apiserver, such as `--audit-log-path=…`.
    pub apiserver: Vec<String>,
    /// Further arguments of kube-controller-manager.
    pub controller_manager: Vec<String>,
    /// The network of pods, for a control plane with a node; its addresses must exist already.
    pub network: Option<Network>,
    /// Whether logs, certificates and kubeconfigs are always kept.
    pub keep_logs: bool,
}

/// A running control plane. Dropping it ends its processes and removes its files; after a panic its logs are kept.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: clients end before their servers.
    scheduler: Option<Supervised>,
    controller_manager: Option<Supervised>,
    apiserver: Option<Supervised>,
    etcd: Option<Supervised>,
    folder: Option<TempDir>,
    keep_logs: bool,
    url: String,
    programs: Programs,
    ready_in: Duration,
}

impl ControlPlane {
    /// Starts a control plane and waits until it answers, has its RBAC and has created the first service account: about
    /// five seconds.
    ///
    /// # Errors
    /// A program is missing, ends early or is not ready in time; the error has the end of its log and the folder that
    /// keeps it.
    pub async fn start(options: Options) -> Result<Self> {
        super::install_tls();
        let programs = tokio::task::spawn_blocking(binary::binary).await??;
        let mut attempt = 1;
        loop {
            match Self::start_once(&programs, &options).await {
                // Ports cannot be reserved for another program, so another process may have taken one.
                Err(error) if attempt < 3 && format!("{error:#}").contains("address already in use") => attempt += 1,
                other => return other,
            }
        }
    }

    async fn start_once(programs: &Programs, options: &Options) -> Result<Self> {
        let started = Instant::now();
        let folder = private_folder("signoff-control-plane-", &std::env::temp_dir())?;
        fs::create_dir(folder.path().join("logs"))?;
        let mut plane = Self {
            scheduler: None,
            controller_manager: None,
            apiserver: None,
            etcd: None,
            folder: Some(folder),
            keep_logs: options.keep_logs,
            url: String::new(),
            programs: programs.clone(),
            ready_in: Duration::ZERO,
        };
        if let Err(error) = plane.start_components(options).await {
            plane.keep_logs = true;
            return Err(error)
                .with_context(|| format!("starting a control plane (its logs: {})", plane.logs().display()));
        }
        plane.ready_in = started.elapsed();
        Ok(plane)
    }

    async fn start_components(&mut self, options: &Options) -> Result<()> {
        let components = options.network.as_ref().map_or(&[][..], |_| &[NODE, SCHEDULER]);
        let users = CAST.iter().chain(components);
        let tokens: Vec<(&Person, String)> =
            users.map(|person| Ok((person, people::fresh_token()?))).collect::<Result<_>>()?;
        fs::write(self.file("tokens.csv"), people::token_file(&tokens))?;
        keys::write(&self.file("service-accounts.key"), &self.file("service-accounts.pub"))?;

        let etcd_url = self.start_etcd().await?;
        self.start_apiserver(options, &etcd_url, &tokens).await?;
        self.start_controller_manager(options).await?;
        if options.network.is_some() {
            self.start_scheduler()?;
        }
        Ok(())
    }

    /// Starts etcd, waits until it is healthy, and returns its URL for clients.
    async fn start_etcd(&mut self) -> Result<String> {
        let (client_port, peer_port) = (ports::free()?, ports::free()?);
        let client_url = format!("http://127.0.0.1:{client_port}");
        self.etcd = Some(self.run_etcd(&client_url, &format!("http://127.0.0.1:{peer_port}"))?);
        let health = reqwest::Client::builder().no_proxy().build()?;
        until_ready(&mut self.etcd, async || {
            let answer = health.get(format!("{client_url}/health")).send().await?.error_for_status()?;
            answer.text().await?.contains("true").then_some(()).context("unhealthy")
        })
        .await?;
        Ok(client_url)
    }

    /// Starts kube-apiserver, writes the kubeconfig of the users with `tokens`, and waits until `admin` can connect.
    async fn start_apiserver(&mut self, options: &Options, etcd_url: &str, tokens: &[(&Person, String)]) -> Result<()> {
        let api_address = match &options.network {
            // The service `kubernetes` has this port, and there is no proxy between the service and the API server.
            Some(network) => SocketAddrV4::new(network.api(), 443),
            None => SocketAddrV4::new(Ipv4Addr::LOCALHOST, ports::free()?),
        };
        self.url = format!("https://{api_address}");
        let mut arguments = self.apiserver_arguments(etcd_url, api_address, options.network.as_ref());
        arguments.extend(options.apiserver.iter().cloned());
        self.apiserver = Some(self.run("kube-apiserver", &self.programs.kube_apiserver, arguments)?);
        let config = kubeconfig::for_cast(&self.url, &self.file("certificates/apiserver.crt"), tokens);
        let kubeconfig = self.kubeconfig();
        kubeconfig::write(&kubeconfig, &config)?;
        until_ready(&mut self.apiserver, async || {
            // A new client every time: it reads the certificate, which the API server itself writes.
            let admin = connect(&kubeconfig, "admin", None).await?;
            admin.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
            Ok(())
        })
        .await
    }

    /// Starts kube-scheduler, and does not wait for it.
    fn start_scheduler(&mut self) -> Result<()> {
        let (scheduler, _) = self.programs.needed_by_pods()?;
        self.scheduler = Some(self.run("kube-scheduler", scheduler, self.scheduler_arguments()?)?);
        Ok(())
    }

    /// Starts kube-controller-manager and waits until it works.
    async fn start_controller_manager(&mut self, options: &Options) -> Result<()> {
        let mut arguments = self.controller_manager_arguments();
        arguments.extend(options.controller_manager.iter().cloned());
        self.controller_manager =
            Some(self.run("kube-controller-manager", &self.programs.kube_controller_manager, arguments)?);
        let admin = connect(&self.kubeconfig(), "admin", None).await?;
        // The controller manager has no endpoint for its health. Its first visible work is a service account in every
        // namespace.
        let wait = tokio::time::timeout(TIMEOUT, wait_for_default_service_account(&admin, "default")).await;
        match wait {
            Ok(created) => created?,
            Err(_) => bail!(
                "kube-controller-manager did no work within {TIMEOUT:?}; its log ends:\n{}",
                tail(self.controller_manager.as_ref())
            ),
        }
        Ok(())
    }

    /// Starts a component whose log is the file `NAME.log`.
    fn run(&self, name: &str, program: &Path, arguments: Vec<String>) -> Result<Supervised> {
        Supervised::start(name, program, arguments, &[], &self.logs().join(format!("{name}.log")))
    }

    /// Starts etcd. Its data is in memory if the machine has a file system for that, because the data is temporary.
    fn run_etcd(&self, client: &str, peer: &str) -> Result<Supervised> {
        let in_memory = Path::new("/dev/shm");
        let data = private_folder("signoff-etcd-", if in_memory.is_dir() { in_memory } else { self.folder() })?.keep();
        let arguments = self.etcd_arguments(&data.display().to_string(), client, peer);
        let log = self.logs().join("etcd.log");
        Supervised::start_with_data("etcd", &self.programs.etcd, arguments, &[], &log, Some(&data))
    }

    fn etcd_arguments(&self, data: &str, client: &str, peer: &str) -> Vec<String> {
        if self.programs.embedded_etcd {
            return vec![data.into(), client.into(), peer.into()];
        }
        [
            format!("--data-dir={data}"),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".into(),
            "--log-level=error".into(),
        ]
        .into()
    }

    fn apiserver_arguments(&self, etcd: &str, address: SocketAddrV4, network: Option<&Network>) -> Vec<String> {
        let file = |name| self.file(name).display().to_string();
        // An endpoint must not be on loopback, so only an address that pods can reach is published.
        let (services, reconciler) = match network {
            Some(network) => (network.services(), "lease"),
            None => ("10.96.0.0/16".to_owned(), "none"),
        };
        [
            format!("--etcd-servers={etcd}"),
            format!("--bind-address={}", address.ip()),
            format!("--secure-port={}", address.port()),
            format!("--advertise-address={}", address.ip()),
            format!("--endpoint-reconciler-type={reconciler}"),
            format!("--cert-dir={}", file("certificates")),
            format!("--service-cluster-ip-range={services}"),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-signing-key-file={}", file("service-accounts.key")),
            format!("--service-account-key-file={}", file("service-accounts.pub")),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--allow-privileged=true".into(),
            "--kubelet-preferred-address-types=InternalIP".into(),
        ]
        .into()
    }

    fn controller_manager_arguments(&self) -> Vec<String> {
        let file = |name| self.file(name).display().to_string();
        [
            format!("--kubeconfig={}", file("kubeconfig.yaml")),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            format!("--service-account-private-key-file={}", file("service-accounts.key")),
            format!("--root-ca-file={}", file("certificates/apiserver.crt")),
            // At the default of 20 requests a second, the tokens of its forty controllers alone take four seconds.
            "--kube-api-qps=500".into(),
            "--kube-api-burst=500".into(),
            // The controller manager gets no requests, so it needs no port.
            "--secure-port=0".into(),
        ]
        .into()
    }

    /// Returns the scheduler's arguments. It has its own user name, because admission lets only this user bind Pods.
    fn scheduler_arguments(&self) -> Result<Vec<String>> {
        let login = kubeconfig::write_login(&self.kubeconfig(), SCHEDULER.name)?;
        Ok([
            format!("--kubeconfig={}", login.display()),
            "--leader-elect=false".into(),
            // The defaults are too low, as for the controller manager.
            "--kube-api-qps=500".into(),
            "--kube-api-burst=500".into(),
            "--secure-port=0".into(),
        ]
        .into())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Returns the folder of kubeconfigs, certificates and logs, which is removed with the control plane.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// Returns the folder of logs, one file for each component.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.file("logs")
    }

    /// Returns a kubeconfig with one context for each person of the cast, by their short names; the current one is
    /// `admin`.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig.yaml")
    }

    /// Returns the address of the API server, as `https://ADDRESS:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the programs of the components, and kubectl and helm.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Returns the time from the start of the components until they were ready; building programs is not included.
    #[must_use]
    pub fn ready_in(&self) -> Duration {
        self.ready_in
    }

    /// Returns process ids by component name, for measuring.
    #[must_use]
    pub fn pids(&self) -> Vec<(&str, u32)> {
        [&self.etcd, &self.apiserver, &self.controller_manager, &self.scheduler]
            .into_iter()
            .flatten()
            .map(|process| (process.name(), process.pid()))
            .collect()
    }

    /// Keeps logs, certificates and kubeconfigs after the control plane has ended, for a suite that failed.
    pub fn keep_logs(&mut self) {
        self.keep_logs = true;
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if (self.keep_logs || std::thread::panicking())
            && let Some(folder) = self.folder.take()
        {
            let kept = folder.keep();
            progress(&format!("the control plane's logs are kept in {}", kept.join("logs").display()));
        }
    }
}

/// Creates a temporary folder that only this user can read, because it holds tokens and keys.
pub(crate) fn private_folder(prefix: &str, parent: &Path) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let folder = builder.prefix(prefix).permissions(fs::Permissions::from_mode(0o700)).tempdir_in(parent);
    folder.with_context(|| format!("making a folder in {}", parent.display()))
}

/// Waits until the controller manager has created the namespace's `default` service account, without which no pod is
/// admitted.
///
/// # Errors
/// The watch fails.
pub(crate) async fn wait_for_default_service_account(client: &kube::Client, namespace: &str) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    loop {
        // From version "0" the watch begins with the existing objects, so no event is lost between a list and a watch.
        let events = accounts.watch(&WatchParams::default().fields("metadata.name=default"), "0").await?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            if matches!(event?, WatchEvent::Added(_) | WatchEvent::Modified(_)) {
                return Ok(());
            }
        }
    }
}

/// Repeats `ask` until the component answers, ends or misses the deadline; for components that do not announce that
/// they are ready.
pub(crate) async fn until_ready(process: &mut Option<Supervised>, ask: impl AsyncFn() -> Result<()>) -> Result<()> {
    let process = process.as_mut().context("nothing was started")?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let Err(error) = ask().await else {
            return Ok(());
        };
        if let Some(status) = process.exited()? {
            bail!("{} ended ({status}) before it was ready; its log ends:\n{}", process.name(), process.log_tail(20));
        }
        if Instant::now() > deadline {
            bail!(
                "{} is not ready after {TIMEOUT:?} ({error:#}); its log ends:\n{}",
                process.name(),
                process.log_tail(20)
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn tail(process: Option<&Supervised>) -> String {
    process.map(|process| process.log_tail(20)).unwrap_or_default()
}
