//! The page's own binary as a process beside the cluster, one replica or several behind one address. Tests reach it by
//! arguments, HTTP requests, signals and the log only.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, Kubeconfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::cluster::Cluster;
use super::oidc::{CLIENT, Issuer};
use super::operator::program;
use super::plane::until_ready;
use super::supervised::{Signal, Supervised};
use super::{kubeconfig, people, ports};

/// The settings of a page process.
#[derive(Clone, Debug, Default)]
pub struct WebOptions {
    /// The program; if `None`, it is found or built.
    pub program: Option<PathBuf>,
    /// The kubeconfig with the API server's address and the page's own login: see
    /// [`Witness::kubeconfig`](super::Witness::kubeconfig).
    pub kubeconfig: PathBuf,
    /// The issuer with which users sign in; without one they paste tokens.
    pub issuer: Option<Issuer>,
    /// The public address, if it is not the page's own: [`Front::url`].
    pub url: Option<String>,
    /// The key that replicas share: [`Cluster::cookie_key`].
    pub cookie_key: Option<PathBuf>,
    /// Further arguments, such as `--auth=impersonation`.
    pub arguments: Vec<String>,
    /// Further environment variables.
    pub environment: Vec<(String, String)>,
    /// Whether to return before `/readyz` succeeds, for a page without an API server.
    pub at_once: bool,
}

/// A running page. Dropping it kills it, as a crash would.
#[derive(Debug)]
pub struct WebProcess {
    process: Option<Supervised>,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    url: String,
    own_url: String,
    health: String,
}

impl WebProcess {
    /// Starts `signoff-web`, and waits until it is ready.
    ///
    /// # Errors
    /// The program cannot be built, or is not ready within a minute and a half; then the error has the end of its log.
    pub async fn start(cluster: &Cluster, options: WebOptions) -> Result<Self> {
        super::install_tls();
        let program = match options.program {
            Some(program) => program,
            None => tokio::task::spawn_blocking(|| program("signoff-web", "signoff-web")).await??,
        };
        let (port, health) = (ports::free()?, ports::free()?);
        let own_url = format!("http://127.0.0.1:{port}");
        let url = options.url.unwrap_or_else(|| own_url.clone());
        let mut arguments = vec![
            format!("--listen=127.0.0.1:{port}"),
            format!("--health-listen=127.0.0.1:{health}"),
            format!("--url={url}"),
            format!("--kubeconfig={}", options.kubeconfig.display()),
        ];
        arguments.extend(options.issuer.iter().flat_map(Issuer::web_arguments));
        arguments.extend(options.cookie_key.map(|file| format!("--cookie-key-file={}", file.display())));
        arguments.extend(options.arguments);
        let log = cluster.logs().join(format!("signoff-web-{port}.log"));
        let health = format!("http://127.0.0.1:{health}");
        let environment = options.environment;
        let mut page = Self { process: None, program, arguments, environment, log, url, own_url, health };
        page.start_again()?;
        if !options.at_once {
            page.until_ready().await?;
        }
        Ok(page)
    }

    /// Starts the page again after [`Self::kill`], with the same arguments, at the same address. Does not wait until it
    /// is ready.
    ///
    /// # Errors
    /// The page runs already, or `sh` is missing.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "signoff-web runs already");
        let environment: Vec<_> =
            self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.process = Some(Supervised::start("signoff-web", &self.program, &self.arguments, &environment, &self.log)?);
        Ok(())
    }

    /// Waits until `/readyz` succeeds.
    ///
    /// # Errors
    /// The process ends first or takes longer than a minute and a half; the error has the end of its log.
    pub async fn until_ready(&mut self) -> Result<()> {
        let (client, url) = (client()?, format!("{}/readyz", self.health));
        until_ready(&mut self.process, async || {
            client.get(&url).send().await?.error_for_status()?;
            Ok(())
        })
        .await
    }

    /// Returns the status and body of a page for users who are not signed in, such as `/sign-in`; redirects are not
    /// followed.
    ///
    /// # Errors
    /// The page does not answer.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        // The page answers only requests for the host of its public address.
        let host = self.url.split_once("://").map_or(self.url.as_str(), |(_, host)| host);
        let answer = client()?.get(format!("{}{path}", self.own_url)).header("host", host).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Returns the status and body of `/healthz` or `/readyz`.
    ///
    /// # Errors
    /// The page does not answer.
    pub async fn health(&self, path: &str) -> Result<(u16, String)> {
        let answer = client()?.get(format!("{}{path}", self.health)).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Returns the address that people open.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address at which this replica itself listens.
    #[must_use]
    pub fn own_url(&self) -> &str {
        &self.own_url
    }

    /// Returns the process id, for measuring; `None` after [`Self::kill`].
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Supervised::pid)
    }

    /// Returns the text of the log, which the restarts of this process share.
    ///
    /// # Errors
    /// The page has not written a log yet.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))
    }

    /// Sends a signal to the process, such as to freeze it or to let it continue.
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.as_mut().context("signoff-web does not run")?.signal(signal)
    }

    /// Kills the process, as a crash would; [`Self::start_again`] starts the page again.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Asks the page to end and waits until it has ended.
    ///
    /// # Errors
    /// The page takes longer than 20 seconds, or exits with an error.
    pub async fn stop(mut self) -> Result<()> {
        let process = self.process.take().context("signoff-web does not run")?;
        let status = process.terminate(Duration::from_secs(20)).await?;
        ensure!(status.success(), "signoff-web ended with {status} when asked to stop");
        Ok(())
    }
}

impl Issuer {
    /// Returns arguments of `signoff-web` with which the page gives users the same names as the API server does.
    #[must_use]
    pub fn web_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--oidc-issuer={}", self.url),
            format!("--oidc-client-id={CLIENT}"),
            format!("--oidc-ca-file={}", self.authority.display()),
            "--oidc-username-claim=email".to_owned(),
            "--oidc-groups-claim=groups".to_owned(),
        ];
        arguments.extend(["email", "groups"].map(|scope| format!("--oidc-scope={scope}")));
        arguments.extend((!self.public).then(|| format!("--oidc-client-secret-file={}", self.secret_file.display())));
        arguments
    }
}

impl Cluster {
    /// Writes a kubeconfig with the server and no login, for a page that passes its users' tokens on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn kubeconfig_of_nobody(&self) -> Result<PathBuf> {
        let mut config = Kubeconfig::read_from(self.kubeconfig())?;
        config.auth_infos.iter_mut().for_each(|login| login.auth_info = Some(AuthInfo::default()));
        let file = self.folder().join("nobody.yaml");
        kubeconfig::write(&file, &config)?;
        Ok(file)
    }

    /// Returns a token of a service account, valid for an hour, such as the page's own when it impersonates users.
    ///
    /// # Errors
    /// The namespace has no account of this name.
    pub async fn account_token(&self, namespace: &str, account: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        let request = accounts.create_token_request(account, &PostParams::default(), &TokenRequest::default()).await;
        let request = request.with_context(|| format!("a token of {namespace}/{account}"))?;
        request.status.and_then(|status| status.token).context("a token request without an answer")
    }

    /// Writes a file with a new key for cookies, which replicas share.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn cookie_key(&self) -> Result<PathBuf> {
        let (first, second) = (people::fresh_token()?, people::fresh_token()?);
        let file = self.folder().join(format!("cookie-{}.key", &first[..8]));
        kubeconfig::write_private(&file, &format!("{first}{second}"))?;
        Ok(file)
    }
}

/// One address before several replicas: each connection goes to the next replica that answers. It ends with the test.
pub struct Front {
    address: SocketAddr,
    replicas: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Front {
    /// Starts a front; its address is then the replicas' `url`.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let replicas = Arc::<Mutex<Vec<String>>>::default();
        let shared = Arc::clone(&replicas);
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            for turn in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                while connections.try_join_next().is_some() {}
                let mut replicas = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if !replicas.is_empty() {
                    let first = turn % replicas.len();
                    replicas.rotate_left(first);
                }
                connections.spawn(pipe_to_replica(stream, replicas));
            }
        });
        Ok(Self { address, replicas, serving })
    }

    /// Returns the address that people open.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends every new connection to one of these replicas.
    pub fn lead_to<'a>(&self, replicas: impl IntoIterator<Item = &'a WebProcess>) {
        let replicas = replicas.into_iter().map(|replica| replica.own_url.replace("http://", "")).collect();
        *self.replicas.lock().unwrap_or_else(PoisonError::into_inner) = replicas;
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Connects a stream to a replica. If no replica answers, the connection is closed, which the client notices.
async fn pipe_to_replica(mut stream: TcpStream, replicas: Vec<String>) {
    for replica in replicas {
        if let Ok(mut upstream) = TcpStream::connect(&replica).await {
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
            return;
        }
    }
}

/// Returns a client that follows no redirects, because tests check them.
fn client() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?)
}
