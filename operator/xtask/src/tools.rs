//! Programs of cargo's registry that checks and chores need, from `PATH`, or else installed into the cache once.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use signoff_tests::cargo::{cargo, succeeds};
use signoff_tests::control_plane::cache;
use signoff_tests::say;

/// A program that `cargo install` builds.
pub(crate) struct Tool {
    /// The crate and its program.
    pub(crate) name: &'static str,
    /// Further arguments of `cargo install`.
    pub(crate) arguments: &'static [&'static str],
    /// The minutes that building it takes on two cores.
    pub(crate) minutes: u32,
}

impl Tool {
    /// Installs the program if it is missing, and returns its path.
    ///
    /// # Errors
    /// The program cannot be installed. The error names the remedy.
    pub(crate) fn ensure_installed(&self) -> Result<PathBuf> {
        let on_path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|folder| folder.join(self.name))
            .find(|file| file.is_file());
        if let Some(program) = on_path {
            return Ok(program);
        }
        let tools = cache()?.join("tools");
        let program = tools.join("bin").join(self.name);
        if !program.is_file() {
            let Self { name, arguments, minutes } = self;
            say::step(&format!("installing {name} into the cache, once: about {minutes} minutes on two cores"));
            let mut install = cargo(&["install", name, "--locked", "--root"]);
            let installed = succeeds(install.arg(&tools).args(*arguments))?;
            ensure!(installed, "{name} could not be installed; install it yourself and have it on PATH");
        }
        Ok(program)
    }
}
