//! Node.js, the packages of `tests/web/node` and Chromium: those of this machine, or else fetched once by npm and apt.
//! Install scripts of packages do not run. An error names the missing tool and the way to install it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::cargo::root;
use crate::control_plane::{cache, on_path, progress};

/// The environment variable with Chromium's program, which takes precedence over `PATH`.
pub const CHROMIUM: &str = "CHROMIUM";
/// The files that define the Node.js packages.
const PACKAGE: [&str; 2] = ["package.json", "package-lock.json"];
/// The oldest version of Node.js that runs all packages.
const NODE: (u32, u32) = (20, 19);

/// Node.js with the packages that the tests use.
#[derive(Clone, Debug)]
pub struct Node {
    program: PathBuf,
    folder: PathBuf,
}

impl Node {
    /// Finds Node.js on `PATH`, and installs the packages into the cache if they are missing: this takes seconds, once
    /// for each lock file.
    ///
    /// # Errors
    /// The missing tool, and the way to install it.
    pub fn find() -> Result<Self> {
        let remedy = format!("install Node.js {}.{} or later, and npm", NODE.0, NODE.1);
        let needs = "tests with a browser, an OpenID Connect issuer or servers of npm need Node.js";
        let program = on_path("node").with_context(|| format!("{needs}, and there is no `node` on PATH: {remedy}"))?;
        let printed = output(Command::new(&program).arg("--version"))?;
        let is_new_enough = parse_version(&printed).is_some_and(|version| version >= NODE);
        ensure!(is_new_enough, "{needs}, and `node` is {}: {remedy}", printed.trim());
        let npm = on_path("npm").with_context(|| format!("{needs}, and there is no `npm` on PATH: {remedy}"))?;
        Ok(Self { program, folder: install_packages(&npm)? })
    }

    /// Returns the program of Node.js.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the arguments that run a script of `tests/web/node` in [`Self::folder`]. The script is passed as text,
    /// so that its imports are resolved in the working folder instead of the script's folder.
    ///
    /// # Errors
    /// The script cannot be read.
    pub(crate) fn arguments(&self, script: &str) -> Result<[String; 4]> {
        let file = source().join(script);
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        Ok(["--no-warnings".to_owned(), "--input-type=module".to_owned(), "--eval".to_owned(), text])
    }

    /// Returns the folder of the packages.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

fn source() -> PathBuf {
    root().join("tests/web/node")
}

/// Returns the folder in the cache with the packages of this lock file, and installs them if they are missing.
fn install_packages(npm: &Path) -> Result<PathBuf> {
    let mut hash = Sha256::new();
    for name in PACKAGE {
        hash.update(fs::read(source().join(name)).with_context(|| format!("{name} of tests/web/node"))?);
    }
    let parent = cache()?.join("npm");
    let folder = parent.join(&hex::encode(hash.finalize())[..12]);
    if folder.is_dir() {
        return Ok(folder);
    }
    fs::create_dir_all(&parent).with_context(|| format!("making {}", parent.display()))?;
    let _lock = lock_installation(&parent.join("lock"))?;
    if folder.is_dir() {
        return Ok(folder);
    }
    let unfinished = tempfile::Builder::new().prefix("unfinished-").tempdir_in(&parent)?;
    for name in PACKAGE {
        fs::copy(source().join(name), unfinished.path().join(name))?;
    }
    progress("fetching the packages of tests/web/node by npm (25 MB), once for this lock file");
    let mut command = Command::new(npm);
    command.args(["ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--engine-strict=false"]);
    output(command.current_dir(unfinished.path()))
        .context("npm cannot fetch the packages of tests/web/node: it needs the registry once, and then never again")?;
    fs::rename(unfinished.keep(), &folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// Returns Chromium's program: from `CHROMIUM`, else from `PATH`, else Debian's package, which apt installs for root.
///
/// # Errors
/// The missing tool, and the way to install it.
pub fn chromium() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os(CHROMIUM).map(PathBuf::from) {
        ensure!(
            program.is_file(),
            "{CHROMIUM}={} is no file: name the program of Chromium, or unset it",
            program.display()
        );
        return Ok(program);
    }
    let find = || ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(on_path);
    if let Some(program) = find() {
        return Ok(program);
    }
    install_chromium(find)
}

/// Installs Debian's package of Chromium by apt and returns its program, as `find` finds it.
fn install_chromium(find: impl Fn() -> Option<PathBuf>) -> Result<PathBuf> {
    let remedy = format!("install Debian's package chromium, or name the program in {CHROMIUM}");
    let Some(apt) = on_path("apt-get").filter(|_| rustix::process::geteuid().is_root()) else {
        bail!(
            "tests with a browser need Chromium, there is none on PATH, and only root can install it by apt-get: {remedy}"
        );
    };
    let cache = cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    let _lock = lock_installation(&cache.join("chromium.lock"))?;
    if let Some(program) = find() {
        return Ok(program);
    }
    progress("installing Debian's chromium by apt-get (100 MB), once");
    let install = || {
        let mut command = Command::new(&apt);
        command.args(["install", "--yes", "--quiet", "--no-install-recommends", "chromium"]);
        output(command.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    install()
        .or_else(|_| output(Command::new(&apt).args(["update", "--quiet"])).and_then(|_| install()))
        .with_context(|| format!("tests with a browser need Chromium, and apt-get cannot install it: {remedy}"))?;
    find().with_context(|| format!("apt-get installed chromium, and it is not on PATH: {remedy}"))
}

/// Takes the lock of an installation, so that other processes wait. The lock ends with the process that holds it.
fn lock_installation(file: &Path) -> Result<File> {
    let lock = File::create(file).with_context(|| format!("making {}", file.display()))?;
    lock.lock().with_context(|| format!("locking {}", file.display()))?;
    Ok(lock)
}

/// Returns the first two numbers of a version: (20, 19) of `v20.19.4`.
fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim().strip_prefix('v')?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{NODE, parse_version};

    #[test]
    fn versions_of_node_are_compared_by_number() {
        assert!(parse_version("v18.20.4\n").unwrap() < NODE);
        assert!(parse_version("v20.9.0\n").unwrap() < NODE, "by number and not by letter");
        assert!(parse_version("v20.19.0\n").unwrap() >= NODE);
        assert_eq!(parse_version("nonsense"), None);
    }
}
