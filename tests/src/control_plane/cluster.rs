//! One cluster as its users see it: clients by person, kubeconfig files, kubectl and helm. The cluster is our own
//! control plane, the suite's, or one that was named.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use kube::Client;
use kube::config::Kubeconfig;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use super::binary::{self, Clients};
use super::command::Invocation;
use super::people::{self, CAST};
use super::plane::{ControlPlane, Options};
use super::{Disguise, connect, kubeconfig};

/// The environment variable by which `cargo xtask test` passes its control plane to the test processes: the path of a
/// file written by [`Cluster::hand_over`].
pub const SHARED: &str = "SIGNOFF_TEST_CLUSTER";

/// The environment variable of the second control plane, on which an operator runs.
pub const OPERATED: &str = "SIGNOFF_TEST_OPERATED_CLUSTER";

/// The environment variable of the third control plane, whose rules tests may change.
pub const LIFTABLE: &str = "SIGNOFF_TEST_LIFTABLE_CLUSTER";

/// The environment variable of the fourth control plane, for tests of the inbox. The API server accepts the tokens of
/// an issuer, and an operator runs on the cluster.
pub const WEB: &str = "SIGNOFF_TEST_WEB_CLUSTER";

/// The lock of the third control plane, which one test uses at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A cluster to act on. Clones are the same cluster; our own control plane ends with the last clone.
#[derive(Clone, Debug)]
pub struct Cluster {
    access: Access,
    owner: Owner,
}

/// The data that another process needs to use the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Access {
    kubeconfig: PathBuf,
    folder: PathBuf,
    clients: Clients,
}

#[derive(Clone, Debug)]
enum Owner {
    Plane(Arc<ControlPlane>),
    /// An existing cluster, of which only the folder with our files is dropped.
    Folder(#[expect(dead_code, reason = "held for its drop")] Arc<TempDir>),
    /// A cluster of another process, which handed it over.
    Elsewhere,
}

impl Cluster {
    /// Starts a control plane for this caller alone, which takes about five seconds. The chart is not installed.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn own() -> Result<Self> {
        Self::own_with(Options::default()).await
    }

    /// Starts a control plane as [`Self::own`] does, with further arguments, a network or kept logs.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn own_with(options: Options) -> Result<Self> {
        let plane = ControlPlane::start(options).await?;
        let access = Access {
            kubeconfig: plane.kubeconfig(),
            folder: plane.folder().to_owned(),
            clients: Clients::from(plane.programs()),
        };
        write_people(&access)?;
        Ok(Self { access, owner: Owner::Plane(Arc::new(plane)) })
    }

    /// Returns the control plane of this test suite with the chart installed and *no* operator running: tests may act
    /// as the operator.
    ///
    /// # Errors
    /// The suite was not started by `cargo xtask test cluster`.
    pub fn shared() -> Result<Self> {
        Self::load_handed_over(SHARED)
    }

    /// Returns the control plane of this test suite on which an operator runs, the same for all tests. A test that
    /// stops the operator needs a cluster of its own.
    ///
    /// # Errors
    /// The suite was not started by `cargo xtask test cluster`, or the operator did not start.
    pub fn operated() -> Result<Self> {
        Self::load_handed_over(OPERATED)
    }

    /// Returns the control plane of this test suite whose admission policies and CRDs tests may remove and break, one
    /// test at a time. No operator runs on it, and the chart is installed again before it is returned.
    ///
    /// # Errors
    /// The suite was not started by `cargo xtask test cluster`, or helm fails.
    pub async fn alone() -> Result<(Self, MutexGuard<'static, ()>)> {
        let turn = ALONE.lock().await;
        let cluster = Self::load_handed_over(LIFTABLE)?;
        // Repairs the changes of the previous test.
        cluster.install(&[]).await?;
        Ok((cluster, turn))
    }

    /// Returns the control plane of this test suite that accepts the tokens of its [`Issuer::of`](super::Issuer::of);
    /// an operator runs on it, the same for all tests.
    ///
    /// # Errors
    /// The suite was not started by `cargo xtask test web`, or the operator did not start.
    pub fn web() -> Result<Self> {
        Self::load_handed_over(WEB)
    }

    /// Returns the cluster that [`Self::hand_over`] wrote into the file that an environment variable names.
    fn load_handed_over(variable: &str) -> Result<Self> {
        let file = std::env::var_os(variable).with_context(|| {
            let part = if variable == WEB { "web" } else { "cluster" };
            format!(
                "this test needs the suite's control plane and {variable} is not set: run `cargo xtask test {part}`"
            )
        })?;
        let file = PathBuf::from(file);
        let text = std::fs::read_to_string(&file).with_context(|| format!("{variable}={}", file.display()))?;
        let access = serde_json::from_str(&text)
            .with_context(|| format!("{variable}={} is of another version", file.display()))?;
        Ok(Self { access, owner: Owner::Elsewhere })
    }

    /// Returns a cluster that was named. The context's own login is `admin`, and the cast is impersonated through it,
    /// so the login needs the right to impersonate.
    ///
    /// # Errors
    /// The file has no such context, or kubectl and helm cannot be found.
    pub async fn existing(file: &Path, context: &str) -> Result<Self> {
        let clients = tokio::task::spawn_blocking(binary::clients).await??;
        let folder = TempDir::with_prefix("signoff-existing-")?;
        let access =
            Access { kubeconfig: folder.path().join("kubeconfig.yaml"), folder: folder.path().to_owned(), clients };
        kubeconfig::write(&access.kubeconfig, &kubeconfig::for_existing(file, context)?)?;
        write_people(&access)?;
        Ok(Self { access, owner: Owner::Folder(Arc::new(folder)) })
    }

    /// Writes the file that [`Self::shared`] and [`Self::operated`] read. The cluster ends with `self`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn hand_over(&self, file: &Path) -> Result<()> {
        kubeconfig::write_private(file, &serde_json::to_string_pretty(&self.access)?)
    }

    /// Returns our own control plane, or `None` if this process did not start it.
    #[must_use]
    pub fn plane(&self) -> Option<&ControlPlane> {
        match &self.owner {
            Owner::Plane(plane) => Some(plane),
            Owner::Folder(_) | Owner::Elsewhere => None,
        }
    }

    /// Returns the control plane itself, to keep its logs; `None` while clones exist.
    pub fn plane_mut(&mut self) -> Option<&mut ControlPlane> {
        match &mut self.owner {
            Owner::Plane(plane) => Arc::get_mut(plane),
            Owner::Folder(_) | Owner::Elsewhere => None,
        }
    }

    /// Returns a folder for files that live as long as the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.access.folder
    }

    /// Returns the folder of logs of programs beside the cluster; the logs are shown and kept when a suite fails.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.access.folder.join("logs")
    }

    /// Returns a kubeconfig with one context for each person, by their short names; the current one is `admin`.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.access.kubeconfig
    }

    /// Returns a kubeconfig whose current context is this person's.
    ///
    /// # Errors
    /// The cast has no person of this name.
    pub fn kubeconfig_of(&self, name: &str) -> Result<PathBuf> {
        Ok(person_file(&self.access.folder, people::named(name)?.name))
    }

    /// Returns a client for the administrator.
    ///
    /// # Errors
    /// The kubeconfig cannot be used.
    pub async fn admin(&self) -> Result<Client> {
        self.token_client("admin").await
    }

    /// Returns a client for a person of the cast with their own token (on an existing cluster: impersonated).
    ///
    /// # Errors
    /// The cast has no person of this name.
    pub async fn token_client(&self, name: &str) -> Result<Client> {
        connect(&self.access.kubeconfig, people::named(name)?.name, None).await
    }

    /// Returns a client for any user with any groups, impersonated by the administrator.
    ///
    /// # Errors
    /// The names cannot be sent as headers.
    pub async fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        self.disguised(Disguise { user: user.to_owned(), groups, extra: Vec::new() }).await
    }

    /// Returns a client as [`Self::client`] does, with extra attributes too.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub async fn disguised(&self, disguise: Disguise) -> Result<Client> {
        connect(&self.access.kubeconfig, "admin", Some(disguise)).await
    }

    /// Returns a call of the real kubectl, as `admin` by default.
    pub fn kubectl<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Invocation {
        self.invocation(&self.access.clients.kubectl, arguments)
    }

    /// Returns a call of the real helm, as `admin` by default; its own files go into [`Self::folder`].
    pub fn helm<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Invocation {
        let home = self.access.folder.join("helm");
        self.invocation(&self.access.clients.helm, arguments)
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
    }

    /// Returns a call of any other program, such as a plugin by its path, with this cluster's kubeconfig, as `admin` by
    /// default.
    pub fn run<A: AsRef<OsStr>>(&self, program: &Path, arguments: impl IntoIterator<Item = A>) -> Invocation {
        self.invocation(program, arguments)
    }

    /// Returns the programs, to show a person how to call them.
    #[must_use]
    pub fn clients(&self) -> &Clients {
        &self.access.clients
    }

    fn invocation<A: AsRef<OsStr>>(&self, program: &Path, arguments: impl IntoIterator<Item = A>) -> Invocation {
        // The discovery cache would otherwise fill the home folder with clusters that no longer exist.
        Invocation::new(program, &self.access.folder, &self.access.kubeconfig, arguments)
            .env("KUBECACHEDIR", self.access.folder.join("kubectl-cache"))
    }
}

fn person_file(folder: &Path, name: &str) -> PathBuf {
    folder.join("people").join(format!("{name}.yaml"))
}

/// Writes one kubeconfig for each person: plugins and helm use the current context.
fn write_people(access: &Access) -> Result<()> {
    std::fs::create_dir_all(access.folder.join("people"))?;
    std::fs::create_dir_all(access.folder.join("logs"))?;
    let everybody = Kubeconfig::read_from(&access.kubeconfig)?;
    for person in CAST {
        let mut config = everybody.clone();
        config.current_context = Some(person.name.to_owned());
        kubeconfig::write(&person_file(&access.folder, person.name), &config)?;
    }
    Ok(())
}
