//! Images of our own as archives in the OCI layout, of files of this machine: one layer, the same bytes for the same files.
//! It may not fetch anything, and knows nothing of who runs them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

/// An image in the making. Paths in it have no `/` before them.
pub struct Image {
    layer: Builder<Vec<u8>>,
    there: BTreeSet<PathBuf>,
    config: Value,
}

/// An image that a node has.
#[derive(Clone, Debug)]
pub struct Named {
    /// With its tag, such as `docker.io/library/busybox:1.36`.
    pub name: String,
    /// Of its manifest, such as `sha256:…`.
    pub digest: String,
}

impl Named {
    /// The name that nobody can give to something else: `docker.io/library/busybox@sha256:…`.
    #[must_use]
    pub fn by_digest(&self) -> String {
        let repository = self.name.rsplit_once(':').map_or(&*self.name, |(repository, _)| repository);
        format!("{repository}@{}", self.digest)
    }
}

impl Default for Image {
    fn default() -> Self {
        Self { layer: Builder::new(Vec::new()), there: BTreeSet::new(), config: json!({}) }
    }
}

impl Image {
    /// With a program of this machine, and the libraries and the loader it names, each where it looks for it.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn program(mut self, path: &str, program: &Path) -> Result<Self> {
        for library in libraries(program)? {
            self = self.file(&library.display().to_string(), &library)?;
        }
        self.file(path, program)
    }

    /// With a file of this machine, which may be run.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(mut self, path: &str, from: &Path) -> Result<Self> {
        let bytes = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.append(EntryType::Regular, path, 0o755, None, &bytes)?;
        Ok(self)
    }

    /// With a folder.
    ///
    /// # Errors
    /// When the path is too long for an archive.
    pub fn folder(mut self, path: &str, mode: u32) -> Result<Self> {
        self.append(EntryType::Directory, path, mode, None, &[])?;
        Ok(self)
    }

    /// With a file of this text.
    ///
    /// # Errors
    /// As [`Self::folder`].
    pub fn text(mut self, path: &str, text: &str) -> Result<Self> {
        self.append(EntryType::Regular, path, 0o644, None, text.as_bytes())?;
        Ok(self)
    }

    /// With a link.
    ///
    /// # Errors
    /// As [`Self::folder`].
    pub fn link(mut self, path: &str, target: &str) -> Result<Self> {
        self.append(EntryType::Symlink, path, 0o777, Some(target), &[])?;
        Ok(self)
    }

    /// What is run where a container does not say, as `Entrypoint` and `Cmd`.
    #[must_use]
    pub fn runs(mut self, entrypoint: &[&str], arguments: &[&str]) -> Self {
        self.config["Entrypoint"] = json!(entrypoint);
        self.config["Cmd"] = json!(arguments);
        self
    }

    /// With an environment variable, `NAME=value`.
    #[must_use]
    pub fn environment(mut self, variables: &[&str]) -> Self {
        self.config["Env"] = json!(variables);
        self
    }

    fn append(&mut self, kind: EntryType, path: &str, mode: u32, target: Option<&str>, bytes: &[u8]) -> Result<()> {
        let path = Path::new(path.trim_start_matches('/'));
        if let Some(parent) =
            path.parent().filter(|parent| !parent.as_os_str().is_empty() && !self.there.contains(*parent))
        {
            self.append(EntryType::Directory, &parent.display().to_string(), 0o755, None, &[])?;
        }
        if !self.there.insert(path.to_owned()) {
            return Ok(());
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len().try_into()?);
        match target {
            Some(target) => self.layer.append_link(&mut header, path, target)?,
            None => self.layer.append_data(&mut header, path, bytes)?,
        }
        Ok(())
    }

    /// Writes the archive for `ctr images import`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(self, name: &str, to: &Path) -> Result<Named> {
        let layer = self.layer.into_inner()?;
        let unpacked = sha256(&layer);
        let config = serde_json::to_vec(&json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [unpacked]},
        }))?;
        let kind = |what: &str| format!("application/vnd.oci.image.{what}");
        let blob =
            |media: String, bytes: &[u8]| json!({"mediaType": media, "digest": sha256(bytes), "size": bytes.len()});
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": kind("manifest.v1+json"),
            "config": blob(kind("config.v1+json"), &config),
            "layers": [blob(kind("layer.v1.tar"), &layer)],
        }))?;
        let mut described = blob(kind("manifest.v1+json"), &manifest);
        described["annotations"] = json!({"io.containerd.image.name": name});
        let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [described]}))?;

        let mut archive = Builder::new(File::create(to).with_context(|| format!("writing {}", to.display()))?);
        let mut put = |path: &str, bytes: &[u8]| {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path, bytes)
        };
        put("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        for bytes in [&config, &layer, &manifest] {
            put(&format!("blobs/{}", sha256(bytes).replace(':', "/")), bytes)?;
        }
        put("index.json", &index)?;
        archive.into_inner()?.flush()?;
        Ok(Named { name: name.to_owned(), digest: sha256(&manifest) })
    }
}

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(digest(&SHA256, bytes)))
}

/// The libraries and the loader that a program names, by their paths; none for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("running `ldd`")?;
    // `name => /path (address)` or `/path (address)`; a static program is told in words.
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(|path| path.trim_end_matches(':').into())
        .collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;
    use std::io::Read;

    use serde_json::Value;

    use super::{Image, Named};

    fn written() -> (Named, BTreeMap<String, Vec<u8>>) {
        let folder = tempfile::tempdir().unwrap();
        let image = Image::default().text("etc/deep/file", "text").unwrap().link("etc/link", "deep/file").unwrap();
        let file = folder.path().join("image.tar");
        let named = image.runs(&["/bin/sh"], &[]).write("example.com:5000/one:two", &file).unwrap();
        let mut archive = tar::Archive::new(std::fs::File::open(file).unwrap());
        let files = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().display().to_string(), bytes)
        });
        (named, files.collect())
    }

    #[test]
    fn an_image_is_found_from_its_index_to_its_files_and_a_folder_comes_before_what_is_in_it() {
        let (named, files) = written();
        let blob = |described: &Value| {
            let digest = described["digest"].as_str().unwrap().replace(':', "/");
            files[&format!("blobs/{digest}")].clone()
        };
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let index = json(&files["index.json"]);
        assert_eq!(index["manifests"][0]["digest"], *named.digest);
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], *named.name);
        let manifest = json(&blob(&index["manifests"][0]));
        assert_eq!(json(&blob(&manifest["config"]))["config"]["Entrypoint"][0], "/bin/sh");
        let layer = blob(&manifest["layers"][0]);
        let mut layer = tar::Archive::new(&*layer);
        let paths = layer.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
        assert_eq!(paths.collect::<Vec<_>>(), ["etc", "etc/deep", "etc/deep/file", "etc/link"]);
    }

    #[test]
    fn the_same_files_are_the_same_image_and_its_name_by_digest_keeps_the_port_of_its_registry() {
        let (one, other) = (written().0, written().0);
        assert_eq!(one.digest, other.digest);
        assert_eq!(one.by_digest(), format!("example.com:5000/one@{}", one.digest));
    }
}
