//! The page's own binary as a process beside the cluster, one or several behind one address.
//! It must not reach into the page: arguments, HTTP answers, signals and the log are all there is.

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

/// How a page should run.
#[derive(Clone, Debug, Default)]
pub struct WebOptions {
    /// The program; without it it is found or built.
    pub program: Option<PathBuf>,
    /// Where the API server is, and who the page is itself: see [`Witness::kubeconfig`](super::Witness::kubeconfig).
    pub kubeconfig: PathBuf,
    /// Who signs people in; without one they paste tokens.
    pub issuer: Option<Issuer>,
    /// The public address, where it is not its own: [`Front::url`].
    pub url: Option<String>,
    /// The key that replicas share: [`Cluster::cookie_key`].
    pub cookie_key: Option<PathBuf>,
    /// Further arguments, such as `--auth=impersonation`.
    pub arguments: Vec<String>,
    /// Further environment variables.
    pub environment: Vec<(String, String)>,
    /// Do not wait until `/readyz` says yes: the API server is away.
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
    /// When it cannot be built, or is not ready within a minute and a half, with the end of its log.
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

    /// Starts it again after [`Self::kill`], with the same arguments, at the same address. It may not be ready yet.
    ///
    /// # Errors
    /// When it runs, or `sh` is missing.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "signoff-web runs already");
        let environment: Vec<_> =
            self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.process = Some(Supervised::start("signoff-web", &self.program, &self.arguments, &environment, &self.log)?);
        Ok(())
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Errors
    /// When it ends first or takes longer than a minute and a half, with the end of its log.
    pub async fn until_ready(&mut self) -> Result<()> {
        let (client, url) = (client()?, format!("{}/readyz", self.health));
        until_ready(&mut self.process, async || {
            client.get(&url).send().await?.error_for_status()?;
            Ok(())
        })
        .await
    }

    /// The status and body of a page that it serves to who is not signed in, such as `/sign-in`; redirects are not
    /// followed.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        // It answers to the host of its public address only.
        let host = self.url.split_once("://").map_or(self.url.as_str(), |(_, host)| host);
        let answer = client()?.get(format!("{}{path}", self.own_url)).header("host", host).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// The status and body of `/healthz` or `/readyz`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn health(&self, path: &str) -> Result<(u16, String)> {
        let answer = client()?.get(format!("{}{path}", self.health)).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// The address that people open.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where this replica itself listens.
    #[must_use]
    pub fn own_url(&self) -> &str {
        &self.own_url
    }

    /// Its process id while it runs, for measuring.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Supervised::pid)
    }

    /// All it has logged.
    ///
    /// # Errors
    /// When there is no log.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))
    }

    /// Sends it a signal: freeze it, let it go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.as_mut().context("signoff-web does not run")?.signal(signal)
    }

    /// Kills it, as a crash would; [`Self::start_again`] brings it back.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Asks it to end and waits until it has.
    ///
    /// # Errors
    /// When it takes longer than 20 seconds, or fails on its way out.
    pub async fn stop(mut self) -> Result<()> {
        let process = self.process.take().context("signoff-web does not run")?;
        let status = process.terminate(Duration::from_secs(20)).await?;
        ensure!(status.success(), "signoff-web ended with {status} when asked to stop");
        Ok(())
    }
}

impl Issuer {
    /// Arguments of `signoff-web`, with the names that the API server gives people.
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
    /// A kubeconfig with the server and nobody's login: all that a page needs that passes tokens through.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_of_nobody(&self) -> Result<PathBuf> {
        let mut config = Kubeconfig::read_from(self.kubeconfig())?;
        config.auth_infos.iter_mut().for_each(|login| login.auth_info = Some(AuthInfo::default()));
        let file = self.folder().join("nobody.yaml");
        kubeconfig::write(&file, &config)?;
        Ok(file)
    }

    /// An hour's token of a service account, such as the page's own where it impersonates.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn account_token(&self, namespace: &str, account: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        let request = accounts.create_token_request(account, &PostParams::default(), &TokenRequest::default()).await;
        let request = request.with_context(|| format!("a token of {namespace}/{account}"))?;
        request.status.and_then(|status| status.token).context("a token request without an answer")
    }

    /// A file with a fresh key for cookies, that replicas share.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn cookie_key(&self) -> Result<PathBuf> {
        let (one, two) = (people::fresh_token()?, people::fresh_token()?);
        let file = self.folder().join(format!("cookie-{}.key", &one[..8]));
        kubeconfig::write_private(&file, &format!("{one}{two}"))?;
        Ok(file)
    }
}

/// One address before several replicas: each connection goes to the next of them that answers. It ends with the test.
pub struct Front {
    address: SocketAddr,
    replicas: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Front {
    /// Starts one; its address is then the replicas' `url`.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let replicas = Arc::<Mutex<Vec<String>>>::default();
        let theirs = Arc::clone(&replicas);
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            for turn in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                while connections.try_join_next().is_some() {}
                let mut replicas = theirs.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if !replicas.is_empty() {
                    let first = turn % replicas.len();
                    replicas.rotate_left(first);
                }
                connections.spawn(through(stream, replicas));
            }
        });
        Ok(Self { address, replicas, serving })
    }

    /// The address that people open.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends every new connection to one of these.
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

/// Without any replica that answers, the connection is closed: who connected sees it.
async fn through(mut stream: TcpStream, replicas: Vec<String>) {
    for replica in replicas {
        if let Ok(mut upstream) = TcpStream::connect(&replica).await {
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
            return;
        }
    }
}

/// Redirects are what tests look at, so it follows none.
fn client() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?)
}
