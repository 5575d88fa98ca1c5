//! The image of the operator and of the page: their programs and the certificates of public authorities. The callers,
//! `cargo xtask image` and the tests on a node, build the programs.

use std::path::Path;

use anyhow::Result;

use super::Image;

/// The image name of the chart's defaults, as containerd spells it.
pub const OPERATOR_IMAGE: &str = concat!("docker.io/library/signoff-operator:", env!("CARGO_PKG_VERSION"));
/// The environment variable that names the folder of a written image for the tests on a node.
pub const IMAGE_FOLDER: &str = "SIGNOFF_IMAGE";
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Returns an image with the programs of the operator and of the page, and with their libraries unless the programs are
/// static.
///
/// # Errors
/// A program, a library, or this machine's certificates of public authorities cannot be read.
pub fn operator_image(operator: &Path, page: &Path) -> Result<Image> {
    let label = |name: &str| format!("org.opencontainers.image.{name}");
    Ok(Image::default()
        .program("signoff-operator", operator)?
        .program("signoff-web", page)?
        .file(AUTHORITIES, 0o444, Path::new(AUTHORITIES))?
        // Without this file the C library would ask name servers before it reads /etc/hosts.
        .text("etc/nsswitch.conf", "hosts: files dns\n")?
        .runs(&["/signoff-operator"], &[])
        // The same as in the chart and the Dockerfile.
        .user("65532:65532")
        .port(8080)
        .port(8081)
        .label(&label("title"), "signoff-operator")
        .label(&label("description"), "Runs Workflows that stop at human gates")
        .label(&label("version"), env!("CARGO_PKG_VERSION"))
        .label(&label("licenses"), env!("CARGO_PKG_LICENSE")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::path::{Path, PathBuf};

    use serde_json::Value;

    use super::{OPERATOR_IMAGE, operator_image};

    fn repository(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
    }

    #[test]
    fn the_image_has_the_name_that_the_chart_asks_for() {
        let yaml = |path| serde_saphyr::from_str::<Value>(&fs::read_to_string(repository(path)).unwrap()).unwrap();
        let (chart, values) = (yaml("charts/signoff/Chart.yaml"), yaml("charts/signoff/values.yaml"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        assert_eq!(text(&values["image"]["tag"]), "");
        let (repository, tag) = (text(&values["image"]["repository"]), text(&chart["appVersion"]));
        assert_eq!(OPERATOR_IMAGE, format!("docker.io/library/{repository}:{tag}"));
        assert_eq!(chart["version"], chart["appVersion"]);
    }

    #[test]
    fn the_image_runs_as_the_user_of_the_chart_and_has_no_shell() {
        let program = std::env::current_exe().unwrap();
        let image = operator_image(&program, &program).unwrap();
        for deployment in ["deployment.yaml", "web-deployment.yaml"] {
            let deployment = fs::read_to_string(repository("charts/signoff/templates").join(deployment)).unwrap();
            assert!(deployment.contains("runAsUser: 65532\n") && deployment.contains("runAsGroup: 65532\n"));
        }
        assert_eq!(image.config["User"], "65532:65532");
        assert_eq!(image.config["ExposedPorts"], serde_json::json!({"8080/tcp": {}, "8081/tcp": {}}));
        let layer = image.layer.finish().unwrap();
        let mut layer = tar::Archive::new(&*layer);
        let paths: Vec<_> = layer.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
        for path in ["signoff-operator", "signoff-web", "etc/ssl/certs/ca-certificates.crt", "etc/nsswitch.conf"] {
            assert!(paths.contains(&path.into()), "{path}: {paths:?}");
        }
        assert!(!paths.iter().any(|path| path.starts_with("bin") || path.ends_with("sh")), "{paths:?}");
    }
}
