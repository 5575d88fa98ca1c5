//! `cargo xtask release`: writes all files of a release into one folder, without publishing or signing them.
//!
//! programs and symbols -> image -> archives of the plugin -> chart -> Krew manifest -> SBOM -> licences -> checksums

mod krew;
mod licences;
mod programs;
mod sbom;
mod sums;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use signoff_tests::cargo::{cargo, metadata, output, root, shown};
use signoff_tests::control_plane::clients;
use signoff_tests::image::{Archive, gzip, sha256};
use signoff_tests::say;
use url::Url;

pub(crate) use programs::{OPERATOR, PAGE, Platform};
use programs::{PLUGIN, PROGRAMS};
use sbom::Parts;

use crate::image;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The arguments of `cargo xtask release`.
#[derive(Args, Debug)]
pub(crate) struct ReleaseOptions {
    /// The folder to write. Default: `release-VERSION` in cargo's target folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The URL of the folder in which the files will be published, for the Krew manifest
    #[arg(long, value_name = "URL", default_value = "https://example.com/signoff")]
    url: Url,
}

/// Builds everything and writes the folder.
pub(crate) fn run(options: &ReleaseOptions) -> Result<ExitCode> {
    let started = Instant::now();
    let target = metadata()?.target_directory;
    let out = options.out.clone().unwrap_or_else(|| target.join(format!("release-{VERSION}")));
    // Builds helm if it is missing.
    let helm = clients()?.helm;
    image::replace_folder(&out, sums::NAME, |folder| write_release(folder, &options.url, &helm))?;
    if options.url.host_str() == Some("example.com") {
        say::step("the Krew manifest names example.com: give the address of the published files with --url");
    }
    for (path, size) in find_sizes(&out)? {
        say::result(&format!("{:8} MB  {path}", megabytes(size)));
    }
    say::step(&format!("{} in {:.0} s", shown(&out), started.elapsed().as_secs_f64()));
    Ok(ExitCode::SUCCESS)
}

/// Builds the programs for each platform, and writes all files of the release into the folder.
fn write_release(folder: &Path, url: &Url, helm: &Path) -> Result<()> {
    let host = Platform::host()?;
    let mut plugins = Vec::new();
    for platform in Platform::all()? {
        let platform_folder = folder.join(platform.name());
        for program in PROGRAMS {
            say::step(&format!("{} for {}", program.name, platform.name()));
            program.build(&platform, &platform_folder)?;
        }
        let name = format!("{}-{VERSION}-{}.tar.gz", PLUGIN.name, platform.name());
        let mut archive = Archive::default();
        archive.file(PLUGIN.name, 0o755, &read(&platform_folder.join(PLUGIN.name))?)?;
        archive.file(krew::COMPLETION, 0o755, &read(&root().join("operator/cli").join(krew::COMPLETION))?)?;
        archive.file("LICENSE", 0o644, &read(&root().join("LICENSE"))?)?;
        let bytes = gzip(&archive.finish()?);
        fs::write(folder.join(&name), &bytes)?;
        plugins.push(krew::Plugin { platform, digest: sha256(&bytes), archive: name });
    }
    say::step("image, chart, manifest, bill of materials, licences, checksums");
    let graph = read_graph()?;
    let parts = parts(&graph)?;
    let licences = licences::render_texts(&parts)?;
    let built = |program: programs::Program| folder.join(host.name()).join(program.name);
    image::release_layout(&built(OPERATOR), &built(PAGE), &licences)?.write(&folder.join("image"))?;
    fs::write(folder.join("LICENSES.txt"), licences)?;
    pack_chart(&folder.join(format!("signoff-{VERSION}.tgz")), helm)?;
    fs::write(folder.join("approve.yaml"), krew::render_manifest(VERSION, url, &plugins)?)?;
    let lock = String::from_utf8(read(&root().join("Cargo.lock"))?)?;
    let sbom = parts.render_sbom(VERSION, &PROGRAMS.map(|program| program.name), &lock, &programs::find_libraries()?);
    fs::write(folder.join(format!("signoff-{VERSION}.cdx.json")), serde_json::to_vec_pretty(&sbom)?)?;
    fs::copy(root().join("LICENSE"), folder.join("LICENSE"))?;
    // The checksums cover all other files, so they are written last.
    fs::write(folder.join(sums::NAME), sums::render_sums(folder)?)?;
    Ok(())
}

/// Returns the texts of the licences of everything that is linked into the programs.
pub(crate) fn licences() -> Result<String> {
    licences::render_texts(&parts(&read_graph()?)?)
}

/// Returns the packages of the programs for this machine, as cargo describes them.
fn read_graph() -> Result<Value> {
    let triple = Platform::host()?.triple;
    let text = output(&mut cargo(&["metadata", "--locked", "--format-version", "1", "--filter-platform", &triple]))?;
    serde_json::from_str(&text).context("reading `cargo metadata`")
}

fn parts(graph: &Value) -> Result<Parts<'_>> {
    Parts::find(graph, &["signoff-controller", "signoff-web", "signoff-cli"])
}

/// Packs the chart as `helm package` does, but without times, and checks that helm reads it.
fn pack_chart(to: &Path, helm: &Path) -> Result<()> {
    let mut archive = Archive::default();
    for (path, file) in find_files(&root().join("charts"))? {
        archive.file(&path, 0o644, &read(&file)?)?;
    }
    fs::write(to, gzip(&archive.finish()?))?;
    let rendered = output(Command::new(helm).args(["template", "signoff", "--namespace", "signoff-system"]).arg(to))?;
    ensure!(rendered.contains("kind: Deployment"), "the packed chart has no Deployment");
    Ok(())
}

/// Returns all files in a folder and below it, by their paths in it.
fn find_files(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("reading {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder)?.display().to_string(), path);
            }
        }
    }
    Ok(found)
}

fn find_sizes(folder: &Path) -> Result<BTreeMap<String, usize>> {
    let sizes = find_files(folder)?.into_iter().map(|(path, file)| Ok((path, fs::metadata(file)?.len().try_into()?)));
    sizes.collect()
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("reading {}", file.display()))
}

/// Returns a size in megabytes, with two digits after the point.
pub(crate) fn megabytes(bytes: usize) -> String {
    format!("{:.2}", bytes as f64 / 1e6)
}
