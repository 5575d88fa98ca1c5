//! `cargo xtask image`: writes the image of the operator and of the page as a folder in the OCI layout, without a
//! registry. `signoff_tests::image` defines its content, also for the tests on a node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use signoff_tests::cargo::{cargo, metadata, shown, succeeds};
use signoff_tests::image::{Layout, OPERATOR_IMAGE, operator_image};
use signoff_tests::say;

use crate::release::{self, OPERATOR, PAGE, Platform, megabytes};

/// The arguments of `cargo xtask image`.
#[derive(Args, Debug)]
pub(crate) struct ImageOptions {
    /// The folder to write. Default: `image` in cargo's target folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Use the debug programs and their shared libraries. After a test run, this takes seconds
    #[arg(long)]
    debug_build: bool,
}

/// Builds the programs and writes the image.
pub(crate) fn run(options: &ImageOptions) -> Result<ExitCode> {
    let started = Instant::now();
    let target = metadata()?.target_directory;
    let out = options.out.clone().unwrap_or_else(|| target.join("image"));
    let layout = if options.debug_build {
        say::step("building the debug program");
        if !succeeds(&mut cargo(&["build", "--workspace", "--bins"]))? {
            bail!("the programs do not build");
        }
        let debug = target.join("debug");
        operator_image(&debug.join(OPERATOR.name), &debug.join(PAGE.name))?.layout(OPERATOR_IMAGE)?
    } else {
        let platform = Platform::host()?;
        say::step("building the release programs (minutes the first time)");
        let folder = target.join("shipped").join(platform.name());
        let (operator, page) = (OPERATOR.build(&platform, &folder)?, PAGE.build(&platform, &folder)?);
        say::step(&format!("their symbols are in {}", shown(&folder)));
        release_layout(&operator, &page, &release::licences()?)?
    };
    replace_folder(&out, "oci-layout", |folder| layout.write(folder))?;
    let (size, named) = (megabytes(layout.bytes()), layout.named());
    say::step(&format!("{size} MB in {:.0} s", started.elapsed().as_secs_f64()));
    say::result(&format!("{} {} {}", shown(&out), named.name, named.digest));
    Ok(ExitCode::SUCCESS)
}

/// Returns the image of the release programs, with the texts of the licences of its parts.
pub(crate) fn release_layout(operator: &Path, page: &Path, licences: &str) -> Result<Layout> {
    operator_image(operator, page)?.text("LICENSES.txt", licences)?.gzipped().layout(OPERATOR_IMAGE)
}

/// Writes a folder again, and replaces an earlier folder only after `write` has succeeded.
///
/// # Errors
/// The folder has content, but no file `mark` of an earlier run, or it cannot be written.
pub(crate) fn replace_folder(folder: &Path, mark: &str, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let is_empty = !folder.exists() || fs::read_dir(folder)?.next().is_none();
    ensure!(
        is_empty || folder.join(mark).is_file(),
        "{} is neither empty nor from an earlier run (it has no {mark}): name another folder",
        folder.display()
    );
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    let unfinished = tempfile::Builder::new().prefix(".unfinished-").tempdir_in(parent)?;
    let written = unfinished.path().join("written");
    fs::create_dir(&written)?;
    write(&written)?;
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::rename(&written, folder).with_context(|| format!("writing {}", folder.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::replace_folder;

    #[test]
    fn a_folder_of_an_earlier_run_is_replaced_and_any_other_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("deep/out");
        let write = |name: &'static str| replace_folder(&folder, "mark", move |at| Ok(fs::write(at.join(name), "")?));
        write("mark").unwrap();
        write("other").unwrap();
        assert!(!folder.join("mark").exists() && folder.join("other").exists());
        assert!(write("mark").unwrap_err().to_string().contains("name another folder"));
        assert!(folder.join("other").exists());
        assert_eq!(fs::read_dir(folder.parent().unwrap()).unwrap().count(), 1, "nothing unfinished is left");
    }
}
