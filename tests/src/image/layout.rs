//! An image as a folder or an archive in the OCI image layout: `oci-layout`, `index.json` and `blobs/sha256/…`. The
//! same image has the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Archive, Named, sha256};

const INDEX: &str = "index.json";
/// The file that marks a folder as a layout.
const MARK: &str = "oci-layout";
/// The annotation with the name under which containerd imports an image.
const NAME: &str = "io.containerd.image.name";
/// The annotation with the tag by which other tools find an image in a layout.
const TAG: &str = "org.opencontainers.image.ref.name";

/// One image with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    named: Named,
    /// The files, by their paths in the layout.
    files: BTreeMap<String, Vec<u8>>,
}

impl Layout {
    pub(super) fn new(name: &str, config: Vec<u8>, layer: Vec<u8>, layer_media: &str) -> Result<Self> {
        let media = |what: &str| format!("application/vnd.oci.image.{what}");
        let descriptor =
            |what: &str, bytes: &[u8]| json!({"mediaType": media(what), "digest": sha256(bytes), "size": bytes.len()});
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": media("manifest.v1+json"),
            "config": descriptor("config.v1+json", &config),
            "layers": [descriptor(layer_media, &layer)],
        }))?;
        let named = Named { name: name.to_owned(), digest: sha256(&manifest) };
        let mut entry = descriptor("manifest.v1+json", &manifest);
        let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        entry["annotations"] = json!({NAME: name, TAG: tag});
        let index = json!({"schemaVersion": 2, "mediaType": media("index.v1+json"), "manifests": [entry]});
        let mut files = BTreeMap::from([
            (MARK.to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            (INDEX.to_owned(), serde_json::to_vec(&index)?),
        ]);
        files.extend([config, layer, manifest].map(|bytes| (path(&sha256(&bytes)), bytes)));
        Ok(Self { named, files })
    }

    /// Reads a folder that [`Self::write`] wrote.
    ///
    /// # Errors
    /// A file is missing or has another digest, or there is not exactly one image with a name.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut read = |path: &str| {
            let file = folder.join(path);
            let bytes = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
            files.insert(path.to_owned(), bytes.clone());
            anyhow::Ok(bytes)
        };
        read(MARK)?;
        let index: Value = serde_json::from_slice(&read(INDEX)?)?;
        let mut read_blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().context("a blob without a digest")?;
            let bytes = read(&path(digest))?;
            ensure!(sha256(&bytes) == digest, "{}: the blob {digest} is damaged", folder.display());
            anyhow::Ok((digest.to_owned(), bytes))
        };
        let manifests = index["manifests"].as_array().map(Vec::as_slice);
        let Some([descriptor]) = manifests else { anyhow::bail!("{}: not exactly one image", folder.display()) };
        let name = descriptor["annotations"][NAME].as_str().context("an image without a name for containerd")?;
        let (digest, manifest) = read_blob(descriptor)?;
        let manifest: Value = serde_json::from_slice(&manifest)?;
        read_blob(&manifest["config"])?;
        for layer in manifest["layers"].as_array().into_iter().flatten() {
            read_blob(layer)?;
        }
        Ok(Self { named: Named { name: name.to_owned(), digest }, files })
    }

    /// Returns the name and the digest, with which a Pod can refer to the image.
    #[must_use]
    pub fn named(&self) -> &Named {
        &self.named
    }

    /// Returns the size of all files, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// Writes the layout into a folder.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (path, bytes) in &self.files {
            let file = folder.join(path);
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
            }
            fs::write(&file, bytes).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }

    /// Returns the layout as an archive, as `ctr images import` reads it.
    ///
    /// # Errors
    /// None: the archive is in memory, where a write cannot fail.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        for (path, bytes) in &self.files {
            archive.file(path, 0o644, bytes)?;
        }
        archive.finish()
    }
}

/// Returns the path of a blob in a layout.
fn path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use serde_json::Value;

    use super::Layout;
    use crate::image::Image;

    const NAME: &str = "example.com:5000/one:two";

    fn image() -> Image {
        let image = Image::default().text("etc/deep/file", "text").unwrap().link("etc/link", "deep/file").unwrap();
        image.runs(&["/bin/sh"], &[])
    }

    fn layout() -> Layout {
        image().layout(NAME).unwrap()
    }

    fn json(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_layout_leads_from_its_index_to_files_in_the_order_of_folders() {
        let layout = layout();
        let blob = |described: &Value| &layout.files[&super::path(described["digest"].as_str().unwrap())];
        let index = json(&layout.files["index.json"]);
        assert_eq!(index["manifests"][0]["digest"], *layout.named.digest);
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], NAME);
        assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "two");
        let manifest = json(blob(&index["manifests"][0]));
        assert_eq!(json(blob(&manifest["config"]))["config"]["Entrypoint"][0], "/bin/sh");
        let mut layer = tar::Archive::new(&**blob(&manifest["layers"][0]));
        let paths = layer.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
        assert_eq!(paths.collect::<Vec<_>>(), ["etc", "etc/deep", "etc/deep/file", "etc/link"]);
    }

    #[test]
    fn an_image_of_the_same_files_is_the_same_and_keeps_its_registry() {
        let one = layout();
        assert_eq!(one, layout());
        assert_eq!(one.archive().unwrap(), layout().archive().unwrap());
        assert_eq!(one.named().by_digest(), format!("example.com:5000/one@{}", one.named().digest));
        let zipped = || image().gzipped().layout(NAME).unwrap();
        assert_eq!(zipped(), zipped());
        let unpacked = |layout: &Layout| {
            let configs = layout.files.values().filter_map(|bytes| serde_json::from_slice::<Value>(bytes).ok());
            configs.map(|config| config["rootfs"]["diff_ids"][0].clone()).find(Value::is_string).unwrap()
        };
        assert_eq!(unpacked(&one), unpacked(&zipped()), "a layer is the same, compressed or not");
    }

    #[test]
    fn a_layout_is_read_as_it_was_written_unless_it_is_damaged() {
        let (folder, layout) = (tempfile::tempdir().unwrap(), layout());
        layout.write(folder.path()).unwrap();
        assert_eq!(Layout::read(folder.path()).unwrap(), layout);
        let (blob, _) = layout.files.iter().find(|(path, _)| path.starts_with("blobs/")).unwrap();
        fs::write(folder.path().join(blob), "{}").unwrap();
        assert!(Layout::read(folder.path()).unwrap_err().to_string().contains("is damaged"));
    }
}
