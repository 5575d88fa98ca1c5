//! Finds the programs of a control plane, or builds them once with the ordinary Go client into a cache outside the
//! tree.
//!
//! **Invariant:** no program is downloaded by other means, and no cluster is taken from the environment.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::going::ProgressLine;
use super::progress;

const BINARY: &str = "control-plane";
const NAMES: [&str; 7] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "helm"];

/// The programs of a control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Programs {
    /// etcd, or the `etcd` of our own program, which takes other arguments: see [`Self::embedded_etcd`].
    pub etcd: PathBuf,
    /// kube-apiserver, which stores objects in etcd.
    pub kube_apiserver: PathBuf,
    /// The controller manager, for garbage collection, namespaces and service accounts.
    pub kube_controller_manager: PathBuf,
    /// The scheduler; only a control plane with a node needs it: [`Self::needed_by_pods`].
    pub kube_scheduler: Option<PathBuf>,
    /// The kubelet; only a control plane with a node needs it.
    pub kubelet: Option<PathBuf>,
    /// kubectl, the command line of Kubernetes.
    pub kubectl: PathBuf,
    /// helm, which installs charts.
    pub helm: PathBuf,
    /// Whether `etcd` is that of our own program: `etcd DATA_DIR CLIENT_URL PEER_URL`.
    pub embedded_etcd: bool,
}

impl Programs {
    /// Returns kube-scheduler and kubelet.
    ///
    /// # Errors
    /// The program that `KUBEBUILDER_ASSETS` lacks.
    pub fn needed_by_pods(&self) -> Result<(&Path, &Path)> {
        match (&self.kube_scheduler, &self.kubelet) {
            (Some(scheduler), Some(kubelet)) => Ok((scheduler, kubelet)),
            (scheduler, _) => bail!(
                "pods need kube-scheduler and kubelet, and there is no {} in KUBEBUILDER_ASSETS nor on PATH (the envtest \
                 archives carry neither). Add them there, or unset KUBEBUILDER_ASSETS to have everything built by Go",
                if scheduler.is_none() { "kube-scheduler" } else { "kubelet" },
            ),
        }
    }
}

/// kubectl and helm, for an existing cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Clients {
    /// kubectl, the command line of Kubernetes.
    pub kubectl: PathBuf,
    /// helm, which installs charts.
    pub helm: PathBuf,
}

impl From<&Programs> for Clients {
    fn from(programs: &Programs) -> Self {
        Self { kubectl: programs.kubectl.clone(), helm: programs.helm.clone() }
    }
}

/// Returns the programs of a control plane: from `KUBEBUILDER_ASSETS` if it is set, or else built from the Go module of
/// this repository. The first build takes minutes and is announced on standard error.
///
/// # Errors
/// The missing program or compiler and the way to install it, or the compiler's own message.
pub fn binary() -> Result<Programs> {
    match std::env::var_os("KUBEBUILDER_ASSETS") {
        Some(folder) => from_assets(Path::new(&folder)),
        None => {
            let folder = build_if_missing()?;
            Ok(programs(|name| folder.join(name), true))
        }
    }
}

/// Returns kubectl and helm: from `KUBEBUILDER_ASSETS`, else both from `PATH`, else as [`binary`] does.
///
/// # Errors
/// As [`binary`].
pub fn clients() -> Result<Clients> {
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none()
        && let (Some(kubectl), Some(helm)) = (on_path("kubectl"), on_path("helm"))
    {
        return Ok(Clients { kubectl, helm });
    }
    Ok(Clients::from(&binary()?))
}

/// Returns the folder for files that outlive a checkout: `$SIGNOFF_CACHE`, `$XDG_CACHE_HOME/signoff` or
/// `$HOME/.cache/signoff`.
///
/// # Errors
/// None of the three variables is set.
pub fn cache() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("SIGNOFF_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("signoff")))
        .or_else(|| variable("HOME").map(|folder| folder.join(".cache/signoff")))
        .context("no place for the cache: set SIGNOFF_CACHE, XDG_CACHE_HOME or HOME")
}

fn programs(find: impl Fn(&str) -> PathBuf, embedded_etcd: bool) -> Programs {
    Programs {
        etcd: find("etcd"),
        kube_apiserver: find("kube-apiserver"),
        kube_controller_manager: find("kube-controller-manager"),
        kube_scheduler: Some(find("kube-scheduler")),
        kubelet: Some(find("kubelet")),
        kubectl: find("kubectl"),
        helm: find("helm"),
        embedded_etcd,
    }
}

fn from_assets(folder: &Path) -> Result<Programs> {
    let find = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
    let mut missing: Vec<_> =
        ["etcd", "kube-apiserver", "kubectl"].into_iter().filter(|name| find(name).is_none()).collect();
    // The envtest archives contain neither kube-controller-manager nor helm.
    let find_anywhere = |name: &str| find(name).or_else(|| on_path(name));
    missing.extend(["kube-controller-manager", "helm"].into_iter().filter(|name| find_anywhere(name).is_none()));
    ensure!(
        missing.is_empty(),
        "KUBEBUILDER_ASSETS={} lacks {} (kube-controller-manager and helm may also be on PATH). \
         Add them there, or unset KUBEBUILDER_ASSETS to have everything built by Go",
        folder.display(),
        missing.join(", "),
    );
    let etcd = folder.join("etcd").canonicalize()?;
    let embedded = etcd.file_name().is_some_and(|name| name == BINARY);
    Ok(Programs {
        kube_scheduler: find_anywhere("kube-scheduler"),
        kubelet: find_anywhere("kubelet"),
        ..programs(|name| find_anywhere(name).unwrap_or_else(|| folder.join(name)), embedded)
    })
}

/// Returns the program of this name in a folder of `PATH`, or `None`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("control-plane")
}

/// Returns the key `<Kubernetes version>-<Go version>-<hash of the sources>`, and the Kubernetes version alone.
fn key(module: &Path) -> Result<(String, String)> {
    let mut hash = Sha256::new();
    for name in ["main.go", "go.mod", "go.sum"] {
        hash.update(fs::read(module.join(name)).with_context(|| format!("{name} of the control plane's Go module"))?);
    }
    let version = kubernetes_version(&fs::read_to_string(module.join("go.mod"))?)?;
    let go = Command::new("go").args(["env", "GOVERSION"]).current_dir(module).output().context(
        "the control plane is built by Go, and there is no `go` on PATH: install Go 1.26 or later, \
         or point KUBEBUILDER_ASSETS at a folder with etcd, kube-apiserver, kube-controller-manager, kubectl and helm",
    )?;
    ensure!(go.status.success(), "`go env GOVERSION`: {}", String::from_utf8_lossy(&go.stderr));
    let go = String::from_utf8_lossy(&go.stdout).trim().to_owned();
    let digest = hex::encode(hash.finalize());
    Ok((format!("{version}-{go}-{}", &digest[..12]), version))
}

fn kubernetes_version(go_mod: &str) -> Result<String> {
    go_mod
        .lines()
        .filter_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .find_map(|rest| rest.split_whitespace().next().filter(|version| version.starts_with('v')))
        .map(str::to_owned)
        .context("go.mod of the control plane requires no k8s.io/kubernetes")
}

/// Returns the folder in the cache with the program and a link to it under each component's name, and builds the
/// program if it is missing.
fn build_if_missing() -> Result<PathBuf> {
    let module = module();
    let (key, version) = key(&module)?;
    let parent = cache()?.join("control-plane");
    let folder = parent.join(&key);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let program = folder.join(BINARY);
    if !program.is_file() {
        let _lock = lock_build(&parent.join(format!("{key}.lock")))?;
        if !program.is_file() {
            build(&module, &version, &program)?;
        }
    }
    for name in NAMES {
        match std::os::unix::fs::symlink(BINARY, folder.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).context("linking the components");
            }
            _ => {}
        }
    }
    Ok(folder)
}

/// Takes the lock of a build, so that one process builds while the others wait. The lock ends with the process that
/// holds it.
fn lock_build(file: &Path) -> Result<File> {
    let lock = File::create(file)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress("another process is building the control plane; waiting for it");
            lock.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error).context("locking the control plane's build"),
    }
    Ok(lock)
}

fn build(module: &Path, version: &str, program: &Path) -> Result<()> {
    let number = version.trim_start_matches('v');
    let mut numbers = number.split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("go.mod: strange Kubernetes version {version:?}")
    };
    progress(&format!(
        "building Kubernetes {number} (etcd, API server, controller manager, scheduler, kubelet, kubectl, helm) with Go, \
         once for this version: about 7 minutes on two cores, about 20 seconds if Go has compiled it before"
    ));
    let variable = "k8s.io/component-base/version";
    let flags = format!(
        "-s -w -X {variable}.gitVersion={version} -X {variable}.gitMajor={major} -X {variable}.gitMinor={minor}"
    );
    let unfinished = program.with_extension(format!("unfinished-{}", std::process::id()));
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments).current_dir(module).env("CGO_ENABLED", "0").stdin(Stdio::null());
        go
    };
    let started = Instant::now();
    // `go list` also downloads missing modules.
    let listed = go(&["list", "-deps", "."]).output().context("running `go list`")?;
    ensure!(listed.status.success(), "`go list` failed:\n{}", String::from_utf8_lossy(&listed.stderr));
    let packages = String::from_utf8(listed.stdout)?;
    let packages: BTreeSet<&str> = packages.lines().collect();

    let mut command = go(&["build", "-v", "-trimpath", "-ldflags", &flags, "-o"]);
    command.arg(&unfinished).arg(".").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut compiler = command.spawn().context("running `go build`")?;
    let (mut progress_line, mut errors) = (ProgressLine::new(packages.len()), String::new());
    for line in compiler.stderr.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line?;
        if packages.contains(line.as_str()) {
            progress_line.count_part();
        } else {
            errors += &line;
            errors.push('\n');
        }
    }
    drop(progress_line);
    ensure!(compiler.wait()?.success(), "`go build` of the control plane failed:\n{errors}");
    // A rename is atomic, so that no process sees a half-written program.
    fs::rename(&unfinished, program)?;
    progress(&format!("built the control plane in {} s: {}", started.elapsed().as_secs(), program.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::kubernetes_version;

    #[test]
    fn the_kubernetes_version_is_that_of_the_requirement_in_go_mod() {
        let go_mod =
            "module m\n\nrequire (\n\tk8s.io/kubernetes v1.36.2\n)\n\nreplace k8s.io/api => k8s.io/api v0.36.2\n";
        assert_eq!(kubernetes_version(go_mod).unwrap(), "v1.36.2");
    }

    #[test]
    fn a_module_without_kubernetes_is_an_error() {
        assert!(kubernetes_version("module m\n").is_err());
    }
}
