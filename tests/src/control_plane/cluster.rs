//! One cluster as its users see it: clients by person, kubeconfig files, kubectl and helm.
//! It must not choose a cluster by itself: it is our own control plane, the suite's, or one that was named.

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

/// The environment variable by which `cargo xtask test` hands its control plane to the test processes: the path of a
/// file written by [`Cluster::hand_over`].
pub const SHARED: &str = "SIGNOFF_TEST_CLUSTER";

/// The same for a second control plane, on which one operator runs.
pub const OPERATED: &str = "SIGNOFF_TEST_OPERATED_CLUSTER";

/// The same for a third control plane, whose rules tests may change.
pub const LIFTABLE: &str = "SIGNOFF_TEST_LIFTABLE_CLUSTER";

/// The same for a fourth control plane, which takes the tokens of an issuer, and on which an operator runs: for tests
/// of the inbox.
pub const WEB: &str = "SIGNOFF_TEST_WEB_CLUSTER";

/// Who has the third control plane for themselves now.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A cluster to act on. Clones are the same cluster; our own control plane ends with the last of them.
#[derive(Clone, Debug)]
pub struct Cluster {
    access: Access,
    owner: Owner,
}

/// All that another process needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Access {
    kubeconfig: PathBuf,
    folder: PathBuf,
    clients: Clients,
}

#[derive(Clone, Debug)]
enum Owner {
    Plane(Arc<ControlPlane>),
    /// An existing cluster: only the folder with our files is ours.
    Folder(#[expect(dead_code, reason = "held for its drop")] Arc<TempDir>),
    /// Somebody else's: the process that handed it over.
    Elsewhere,
}

impl Cluster {
    /// A control plane for this caller alone, about five seconds away; nothing is installed.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn own() -> Result<Self> {
        Self::own_with(Options::default()).await
    }

    /// As [`Self::own`], with options.
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

    /// The control plane of this test suite with the chart installed and *no* operator running: tests may play the
    /// operator themselves.
    ///
    /// # Errors
    /// When the suite was not started by `cargo xtask test cluster`.
    pub fn shared() -> Result<Self> {
        Self::handed_over(SHARED)
    }

    /// The control plane of this test suite on which an operator runs, the same one for all tests: whoever wants to
    /// stop it needs a cluster of their own.
    ///
    /// # Errors
    /// When the suite was not started by `cargo xtask test cluster`, or the operator did not start.
    pub fn operated() -> Result<Self> {
        Self::handed_over(OPERATED)
    }

    /// The control plane of this test suite whose admission policies and CRDs tests may lift and break, one test at a
    /// time; no operator runs on it. The chart was installed again just now.
    ///
    /// # Errors
    /// When the suite was not started by `cargo xtask test cluster`, or helm fails.
    pub async fn alone() -> Result<(Self, MutexGuard<'static, ()>)> {
        let turn = ALONE.lock().await;
        let cluster = Self::handed_over(LIFTABLE)?;
        // Whatever the one before has left behind.
        cluster.install(&[]).await?;
        Ok((cluster, turn))
    }

    /// The control plane of this test suite that takes the tokens of [`Issuer::of`](super::Issuer::of) it; an operator
    /// runs on it, the same one for all tests.
    ///
    /// # Errors
    /// When the suite was not started by `cargo xtask test web`, or the operator did not start.
    pub fn web() -> Result<Self> {
        Self::handed_over(WEB)
    }

    fn handed_over(variable: &str) -> Result<Self> {
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

    /// A cluster that somebody named: that context's own login is `admin`, and the cast is impersonated through it, so
    /// it needs the right to impersonate.
    ///
    /// # Errors
    /// When the file has no such context, or kubectl and helm cannot be found.
    pub async fn existing(file: &Path, context: &str) -> Result<Self> {
        let clients = tokio::task::spawn_blocking(binary::clients).await??;
        let folder = TempDir::with_prefix("signoff-existing-")?;
        let access =
            Access { kubeconfig: folder.path().join("kubeconfig.yaml"), folder: folder.path().to_owned(), clients };
        kubeconfig::write(&access.kubeconfig, &kubeconfig::for_existing(file, context)?)?;
        write_people(&access)?;
        Ok(Self { access, owner: Owner::Folder(Arc::new(folder)) })
    }

    /// Writes the file that [`Self::shared`] and [`Self::operated`] read; the cluster lives as long as `self`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn hand_over(&self, file: &Path) -> Result<()> {
        kubeconfig::write_private(file, &serde_json::to_string_pretty(&self.access)?)
    }

    /// Our own control plane, if this is one and this process started it.
    #[must_use]
    pub fn plane(&self) -> Option<&ControlPlane> {
        match &self.owner {
            Owner::Plane(plane) => Some(plane),
            Owner::Folder(_) | Owner::Elsewhere => None,
        }
    }

    /// The control plane itself, to keep its logs; `None` while clones are about.
    pub fn plane_mut(&mut self) -> Option<&mut ControlPlane> {
        match &mut self.owner {
            Owner::Plane(plane) => Arc::get_mut(plane),
            Owner::Folder(_) | Owner::Elsewhere => None,
        }
    }

    /// A folder for files that live as long as the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.access.folder
    }

    /// Where programs beside the cluster write their logs; shown and kept when a suite fails.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.access.folder.join("logs")
    }

    /// A kubeconfig with one context a person, by their short names; the current one is `admin`.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.access.kubeconfig
    }

    /// A kubeconfig whose current context is this person's.
    ///
    /// # Errors
    /// When nobody in the cast is called so.
    pub fn kubeconfig_of(&self, name: &str) -> Result<PathBuf> {
        Ok(person_file(&self.access.folder, people::named(name)?.name))
    }

    /// A client for the administrator.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn admin(&self) -> Result<Client> {
        self.token_client("admin").await
    }

    /// A client for one of the cast with their own token (on an existing cluster: impersonated).
    ///
    /// # Errors
    /// When nobody in the cast is called so.
    pub async fn token_client(&self, name: &str) -> Result<Client> {
        connect(&self.access.kubeconfig, people::named(name)?.name, None).await
    }

    /// A client for any user with any groups, impersonated by the administrator.
    ///
    /// # Errors
    /// When the names cannot be sent as headers.
    pub async fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        self.disguised(Disguise { user: user.to_owned(), groups, extra: Vec::new() }).await
    }

    /// As [`Self::client`], with extra attributes too.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub async fn disguised(&self, disguise: Disguise) -> Result<Client> {
        connect(&self.access.kubeconfig, "admin", Some(disguise)).await
    }

    /// The real kubectl, as `admin` unless told otherwise.
    pub fn kubectl<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Invocation {
        self.invocation(&self.access.clients.kubectl, arguments)
    }

    /// The real helm, as `admin` unless told otherwise; its own files go into [`Self::folder`].
    pub fn helm<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Invocation {
        let home = self.access.folder.join("helm");
        self.invocation(&self.access.clients.helm, arguments)
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
    }

    /// Any other program (a plugin by its path, say) with this cluster's kubeconfig, as `admin` unless told otherwise.
    pub fn run<A: AsRef<OsStr>>(&self, program: &Path, arguments: impl IntoIterator<Item = A>) -> Invocation {
        self.invocation(program, arguments)
    }

    /// The programs, for showing a person how to call them.
    #[must_use]
    pub fn clients(&self) -> &Clients {
        &self.access.clients
    }

    fn invocation<A: AsRef<OsStr>>(&self, program: &Path, arguments: impl IntoIterator<Item = A>) -> Invocation {
        // Its discovery cache would otherwise fill the home folder with clusters that no longer exist.
        Invocation::new(program, &self.access.folder, &self.access.kubeconfig, arguments)
            .env("KUBECACHEDIR", self.access.folder.join("kubectl-cache"))
    }
}

fn person_file(folder: &Path, name: &str) -> PathBuf {
    folder.join("people").join(format!("{name}.yaml"))
}

/// One file a person beside the one with all contexts: plugins and helm go by the current context.
fn write_people(access: &Access) -> Result<()> {
    std::fs::create_dir_all(access.folder.join("people"))?;
    std::fs::create_dir_all(access.folder.join("logs"))?;
    let everybody = Kubeconfig::read_from(&access.kubeconfig)?;
    for person in CAST {
        let mut own = everybody.clone();
        own.current_context = Some(person.name.to_owned());
        kubeconfig::write(&person_file(&access.folder, person.name), &own)?;
    }
    Ok(())
}
