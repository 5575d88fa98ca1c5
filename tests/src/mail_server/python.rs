//! Python with the packages of `tests/mail`: Python is that of this machine, and pip fetches the packages once.
//!
//! **Invariant:** no package is identified by its name alone: each file has a known hash. A package that cannot be
//! found is an error that says how to get it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::cargo::root;
use crate::control_plane::{cache, on_path, progress};

/// The packages, with their hashes.
const REQUIREMENTS: &str = "requirements.txt";
const REMEDY: &str = "install Python 3.10 or later with venv (Debian: python3-venv)";

/// Returns the program of Python that has the packages, which are installed into the cache if they are missing. That
/// happens once for each list of packages and each version of Python.
///
/// # Errors
/// The missing part, and the way to install it.
pub(super) fn find() -> Result<PathBuf> {
    let python = on_path("python3").with_context(|| {
        format!("tests with a mail server need Python, and there is no `python3` on PATH: {REMEDY}")
    })?;
    let file = source().join(REQUIREMENTS);
    let requirements = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    // A virtual environment belongs to one version of Python.
    let version = output(Command::new(&python).arg("--version"))?;
    let mut hash = Sha256::new();
    hash.update(&requirements);
    hash.update(version.as_bytes());
    let parent = cache()?.join("python");
    let folder = parent.join(&hex::encode(hash.finalize())[..12]);
    let program = folder.join("bin/python");
    let done = folder.join("done");
    if done.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&parent).with_context(|| format!("making {}", parent.display()))?;
    let _lock = lock_installation(&parent.join("lock"))?;
    if done.is_file() {
        return Ok(program);
    }
    progress("fetching the packages of tests/mail by pip (200 kB), once for this list");
    install(&python, &file, &folder)?;
    fs::write(&done, "").with_context(|| format!("writing {}", done.display()))?;
    Ok(program)
}

/// Creates a virtual environment in `folder` and installs the packages of the list `requirements` there.
fn install(python: &Path, requirements: &Path, folder: &Path) -> Result<()> {
    // A virtual environment cannot be moved, so it is created in place, and is complete once the file `done` exists.
    if folder.is_dir() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    output(Command::new(python).args(["-m", "venv"]).arg(folder))
        .with_context(|| format!("tests with a mail server need a virtual environment: {REMEDY}"))?;
    let arguments =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--require-hashes"];
    let mut command = Command::new(folder.join("bin/python"));
    command.args(arguments).args(["--only-binary", ":all:", "--requirement"]).arg(requirements);
    output(&mut command).context(
        "pip cannot fetch the packages of tests/mail: it needs the index of packages once, and then never again",
    )?;
    Ok(())
}

/// Returns the folder of the server and its packages.
pub(super) fn source() -> PathBuf {
    root().join("tests/mail")
}

/// Takes the lock of an installation, so that other processes wait. The lock ends with the process that holds it.
fn lock_installation(file: &Path) -> Result<File> {
    let lock = File::create(file).with_context(|| format!("making {}", file.display()))?;
    lock.lock().with_context(|| format!("locking {}", file.display()))?;
    Ok(lock)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
