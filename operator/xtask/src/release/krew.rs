//! The manifest with which Krew installs the plugin. The caller passes digests and addresses.

use anyhow::Result;
use serde_json::json;
use url::Url;

use super::programs::{PLUGIN, Platform};

/// The program with which kubectl completes the plugin, as `kubectl approve completion` prints it.
pub(super) const COMPLETION: &str = "kubectl_complete-approve";

/// The caveats: Krew links one program into its folder, and the user has to put the other on `PATH`.
const CAVEATS: &str = "To complete commands, flags and names, put kubectl_complete-approve on PATH:\n  \
    ln -s \"${KREW_ROOT:-$HOME/.krew}/store/approve/VERSION/kubectl_complete-approve\" \"${KREW_ROOT:-$HOME/.krew}/bin/\"\n\
    and let your shell complete kubectl (kubectl completion --help).\n";

/// The archive of the plugin for one platform.
pub(super) struct Plugin {
    pub(super) platform: Platform,
    /// The name of the file.
    pub(super) archive: String,
    /// The digest, such as `sha256:…`.
    pub(super) digest: String,
}

/// Returns the manifest as YAML. `url` is the folder of the archives.
pub(super) fn render_manifest(version: &str, url: &Url, plugins: &[Plugin]) -> Result<String> {
    let platforms: Vec<_> = plugins
        .iter()
        .map(|plugin| {
            json!({
                "selector": {"matchLabels": {"os": plugin.platform.os, "arch": plugin.platform.arch}},
                "uri": format!("{}/{}", url.as_str().trim_end_matches('/'), plugin.archive),
                "sha256": plugin.digest.trim_start_matches("sha256:"),
                "bin": PLUGIN.name,
                "files": [
                    {"from": PLUGIN.name, "to": "."},
                    {"from": COMPLETION, "to": "."},
                    {"from": "LICENSE", "to": "."},
                ],
            })
        })
        .collect();
    let manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "approve"},
        "spec": {
            "version": format!("v{version}"),
            "homepage": url.as_str(),
            "shortDescription": "Decide what Signoff's workflows ask people",
            "description": "Lists, shows and decides Approvals of Signoff, an operator that stops workflows of agents at \
                            human gates. The operator must be installed in the cluster.",
            "caveats": CAVEATS.replace("VERSION", &format!("v{version}")),
            "platforms": platforms,
        },
    });
    Ok(serde_saphyr::to_string(&manifest)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::Value;

    use super::{Plugin, render_manifest};
    use crate::release::programs::Platform;

    #[test]
    fn the_manifest_names_each_archive_with_its_address_and_digest() {
        let platform = Platform::host().unwrap();
        let arch = platform.arch;
        let plugins = [Plugin { platform, archive: "plugin.tar.gz".into(), digest: "sha256:0123".into() }];
        for url in ["https://example.com/v1", "https://example.com/v1/"] {
            let yaml = render_manifest("1.2.3", &url.parse().unwrap(), &plugins).unwrap();
            let manifest: Value = serde_saphyr::from_str(&yaml).unwrap();
            assert_eq!(manifest["metadata"]["name"], "approve");
            assert_eq!(manifest["spec"]["version"], "v1.2.3");
            let platform = &manifest["spec"]["platforms"][0];
            assert_eq!(platform["uri"], "https://example.com/v1/plugin.tar.gz");
            assert_eq!(platform["sha256"], "0123");
            assert_eq!(platform["bin"], "kubectl-approve");
            let files: Vec<_> = platform["files"].as_array().unwrap().iter().map(|file| &file["from"]).collect();
            assert_eq!(files, ["kubectl-approve", "kubectl_complete-approve", "LICENSE"]);
            assert_eq!(manifest["spec"]["homepage"], url);
            let caveats = manifest["spec"]["caveats"].as_str().unwrap();
            assert!(caveats.contains("store/approve/v1.2.3/kubectl_complete-approve"), "{caveats}");
            assert_eq!(platform["selector"]["matchLabels"]["arch"], arch);
        }
    }
}
