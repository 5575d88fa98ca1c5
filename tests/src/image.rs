//! Images in the OCI layout from files of this machine: one layer, with the same bytes for the same files. No image is
//! fetched or run.
//!
//! `cargo xtask image` writes the operator's image, which the tests on a node install by the chart. The tests' other
//! images are written the same way.

mod archive;
mod layout;
mod operator;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};

pub use archive::{Archive, gzip};
pub use layout::Layout;
pub use operator::{IMAGE_FOLDER, OPERATOR_IMAGE, operator_image};

/// An image under construction. Its paths have no leading `/`.
pub struct Image {
    layer: Archive,
    config: Value,
    gzipped: bool,
}

/// The name and the digest of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name with the tag, such as `docker.io/library/busybox:1.36`.
    pub name: String,
    /// The digest of the manifest, such as `sha256:…`.
    pub digest: String,
}

impl Named {
    /// Returns the name that cannot be given to another image: `docker.io/library/busybox@sha256:…`.
    #[must_use]
    pub fn by_digest(&self) -> String {
        let repository = self.name.rsplit_once(':').map_or(&*self.name, |(repository, _)| repository);
        format!("{repository}@{}", self.digest)
    }
}

impl Default for Image {
    fn default() -> Self {
        Self { layer: Archive::default(), config: json!({}), gzipped: false }
    }
}

impl Image {
    /// Adds a program of this machine, with its libraries and its loader at the paths that it names.
    ///
    /// # Errors
    /// The program or one of its libraries cannot be read.
    pub fn program(mut self, path: &str, program: &Path) -> Result<Self> {
        for library in libraries(program)? {
            self = self.file(&library.display().to_string(), 0o755, &library)?;
        }
        self.file(path, 0o755, program)
    }

    /// Adds a file of this machine.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn file(mut self, path: &str, mode: u32, from: &Path) -> Result<Self> {
        let bytes = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.layer.file(path, mode, &bytes)?;
        Ok(self)
    }

    /// Adds a folder.
    ///
    /// # Errors
    /// The path is too long for an archive.
    pub fn folder(mut self, path: &str, mode: u32) -> Result<Self> {
        self.layer.folder(path, mode)?;
        Ok(self)
    }

    /// Adds a file with this text, which every user can read.
    ///
    /// # Errors
    /// As [`Self::folder`].
    pub fn text(mut self, path: &str, text: &str) -> Result<Self> {
        self.layer.file(path, 0o644, text.as_bytes())?;
        Ok(self)
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// As [`Self::folder`].
    pub fn link(mut self, path: &str, target: &str) -> Result<Self> {
        self.layer.link(path, target)?;
        Ok(self)
    }

    /// Sets the default command of containers, as `Entrypoint` and `Cmd`.
    #[must_use]
    pub fn runs(mut self, entrypoint: &[&str], arguments: &[&str]) -> Self {
        self.config["Entrypoint"] = json!(entrypoint);
        self.config["Cmd"] = json!(arguments);
        self
    }

    /// Sets the environment variables, each `NAME=value`.
    #[must_use]
    pub fn environment(mut self, variables: &[&str]) -> Self {
        self.config["Env"] = json!(variables);
        self
    }

    /// Sets the user and group of the process, such as `65532:65532`.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.config["User"] = json!(user);
        self
    }

    /// Adds a TCP port on which the program listens.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.config["ExposedPorts"][format!("{port}/tcp")] = json!({});
        self
    }

    /// Adds a label, such as `org.opencontainers.image.version`.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.config["Labels"][name] = json!(value);
        self
    }

    /// Compresses the layer, which takes longer and has a third of the size.
    #[must_use]
    pub fn gzipped(mut self) -> Self {
        self.gzipped = true;
        self
    }

    /// Returns the image under this name.
    ///
    /// # Errors
    /// None: the archive is in memory, where a write cannot fail.
    pub fn layout(self, name: &str) -> Result<Layout> {
        let layer = self.layer.finish()?;
        let unpacked = sha256(&layer);
        let config = serde_json::to_vec(&json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [unpacked]},
        }))?;
        let (layer, media) = match self.gzipped {
            true => (gzip(&layer), "layer.v1.tar+gzip"),
            false => (layer, "layer.v1.tar"),
        };
        Layout::new(name, config, layer, media)
    }
}

/// Returns the digest of `bytes` as images write it: `sha256:` and hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(digest(&SHA256, bytes)))
}

/// Returns the paths of the libraries and the loader that a program names; a static program has none.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("running `ldd`")?;
    // Lines are `name => /path (address)` or `/path (address)`; for a static program there is a sentence instead.
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(printed
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(|path| path.trim_end_matches(':').into())
        .collect())
}
