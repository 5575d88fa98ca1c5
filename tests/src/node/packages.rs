//! containerd, runc, CNI plugins and busybox: those of this machine, or else Debian's packages, fetched by apt and
//! unpacked into the cache.
//!
//! **Invariant:** no package is installed and no service is started: a containerd of this machine is left as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::control_plane::{cache, on_path, progress};

/// The environment variable that passes the folder of the unpacked packages to the inside.
const UNPACKED: &str = "SIGNOFF_NODE_PACKAGES";
const PACKAGES: [&str; 4] = ["containerd", "runc", "containernetworking-plugins", "busybox-static"];

/// The programs of a node.
#[derive(Clone, Debug)]
pub(super) struct Packages {
    /// The container runtime; its shim is beside it or on `PATH`.
    pub containerd: PathBuf,
    /// The command line of containerd.
    pub ctr: PathBuf,
    /// The program that creates containers.
    pub runc: PathBuf,
    /// The folder with the CNI plugins `bridge` and `host-local`.
    pub cni: PathBuf,
    /// busybox, which has all programs of a small image.
    pub busybox: PathBuf,
    unpacked: Option<PathBuf>,
}

impl Packages {
    /// Returns the programs of this machine if it has all of them, or else unpacked ones, which takes seconds the first
    /// time.
    ///
    /// # Errors
    /// The missing program, and the reason why it cannot be fetched.
    pub(super) fn find() -> Result<Self> {
        if let Some(folder) = std::env::var_os(UNPACKED) {
            return Self::find_unpacked(Path::new(&folder)).with_context(|| format!("{UNPACKED} lacks a program"));
        }
        match Self::find_installed() {
            Some(installed) => Ok(installed),
            None => {
                let folder = fetch_packages()?;
                Self::find_unpacked(&folder)
                    .with_context(|| format!("{} lacks a program: remove that folder", folder.display()))
            }
        }
    }

    /// Sets the environment of a command so that it and its children find the same programs.
    pub(super) fn set_environment(&self, command: &mut Command) {
        if let Some(folder) = &self.unpacked {
            command.env(UNPACKED, folder);
        }
    }

    fn find_installed() -> Option<Self> {
        let cni = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"].map(PathBuf::from);
        Some(Self {
            containerd: on_path("containerd").filter(|_| on_path("containerd-shim-runc-v2").is_some())?,
            ctr: on_path("ctr")?,
            runc: on_path("runc")?,
            cni: cni.into_iter().find(|folder| folder.join("bridge").is_file())?,
            busybox: on_path("busybox")?,
            unpacked: None,
        })
    }

    fn find_unpacked(folder: &Path) -> Option<Self> {
        let find = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
        Some(Self {
            containerd: find("usr/bin/containerd")?,
            ctr: find("usr/bin/ctr")?,
            runc: find("usr/sbin/runc").or_else(|| find("usr/bin/runc"))?,
            cni: find("usr/lib/cni")?,
            busybox: find("bin/busybox").or_else(|| find("usr/bin/busybox"))?,
            unpacked: Some(folder.to_owned()),
        })
    }
}

/// Returns the folder in the cache with the unpacked packages of this release of the distribution, and fetches them if
/// they are missing.
fn fetch_packages() -> Result<PathBuf> {
    let parent = cache()?.join("node");
    let folder = parent.join(release());
    if folder.is_dir() {
        return Ok(folder);
    }
    let names = PACKAGES.join(", ");
    let (Some(apt), Some(dpkg)) = (on_path("apt-get"), on_path("dpkg-deb")) else {
        bail!(
            "pods need containerd, runc, CNI plugins and busybox. They are not all on PATH, and there is no apt-get and \
             dpkg-deb to fetch Debian's packages ({names}) with: install them as this machine's distribution has them"
        );
    };
    fs::create_dir_all(&parent).with_context(|| format!("making {}", parent.display()))?;
    let unfinished = tempfile::Builder::new().prefix("unfinished-").tempdir_in(&parent)?;
    let download = || {
        let mut command = Command::new(&apt);
        run(command.args(["download", "--quiet"]).args(PACKAGES).current_dir(unfinished.path()))
    };
    progress(&format!("fetching Debian's {names} by apt-get (40 MB), once; they are unpacked, and not installed"));
    if download().is_err() {
        run(Command::new(&apt).args(["update", "--quiet"]))
            .and_then(|()| download())
            .with_context(|| format!("pods need {names}, and apt-get cannot fetch them"))?;
    }
    let root = unfinished.path().join("root");
    unpack_packages(&dpkg, unfinished.path(), &root)?;
    match fs::rename(&root, &folder) {
        // Another process was faster, and its packages are the same.
        Err(_) if folder.is_dir() => {}
        renamed => renamed.with_context(|| format!("making {}", folder.display()))?,
    }
    progress(&format!("unpacked into {}", folder.display()));
    Ok(folder)
}

/// Unpacks every `.deb` file of a folder into the folder `root`.
fn unpack_packages(dpkg: &Path, folder: &Path, root: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new(dpkg).arg("-x").arg(package).arg(root))?;
        }
    }
    Ok(())
}

/// Returns the release, such as `debian-12`: programs of one release need not run on another.
fn release() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or("unknown").trim_matches('"').to_owned()
    };
    format!("{}-{}", value("ID"), value("VERSION_ID"))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", errors.trim());
    Ok(())
}
