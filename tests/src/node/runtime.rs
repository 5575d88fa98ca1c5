//! A containerd with a folder of its own, and the import of images into it. No other containerd is used.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::packages::Packages;
use crate::control_plane::{Network, Supervised, until_ready};
use crate::image::{Image, Layout, Named};

/// The containerd namespace that the kubelet uses.
const NAMESPACE: &str = "k8s.io";
/// The image of every pod's first container, which holds the pod's Linux namespaces.
const PAUSE: &str = "signoff.dev/pause:1";

/// A running containerd.
#[derive(Debug)]
pub(super) struct Runtime {
    #[expect(dead_code, reason = "held for its drop")]
    process: Option<Supervised>,
    ctr: Ctr,
    folder: PathBuf,
}

/// The command line of containerd.
#[derive(Debug)]
struct Ctr {
    program: PathBuf,
    socket: PathBuf,
}

impl Runtime {
    /// Starts containerd and waits until it answers.
    ///
    /// # Errors
    /// containerd ends early or does not answer in time; the error has the end of its log.
    pub(super) async fn start(packages: &Packages, network: Network, folder: &Path) -> Result<Self> {
        let cni = folder.join("cni");
        fs::create_dir_all(&cni)?;
        fs::write(cni.join("pods.conflist"), conflist(network, folder)?)?;
        let file = folder.join("containerd.toml");
        fs::write(&file, configuration(packages, folder))?;
        let arguments = ["--config".to_owned(), file.display().to_string()];
        let log = std::env::temp_dir().join(format!("containerd-{}.log", network.bridge()));
        let mut process = Some(Supervised::start("containerd", &packages.containerd, arguments, &[], &log)?);
        let ctr = Ctr { program: packages.ctr.clone(), socket: socket(folder) };
        until_ready(&mut process, async || ctr.run(&["version"]).await).await?;
        Ok(Self { process, ctr, folder: folder.to_owned() })
    }

    /// Returns the address at which the kubelet connects to containerd.
    pub(super) fn endpoint(&self) -> String {
        format!("unix://{}", self.ctr.socket.display())
    }

    /// Imports an image under its name and its digest.
    ///
    /// # Errors
    /// containerd's error.
    pub(super) async fn take_in(&self, image: &Layout) -> Result<Named> {
        let archive = tempfile::Builder::new().prefix("image-").tempfile_in(&self.folder)?;
        fs::write(archive.path(), image.archive()?)?;
        let named = image.named();
        self.ctr.run(&["images", "import", &archive.path().display().to_string()]).await?;
        self.ctr.run(&["images", "tag", &named.name, &named.by_digest()]).await?;
        Ok(named.clone())
    }
}

impl Ctr {
    async fn run(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("--address").arg(&self.socket).args(["--namespace", NAMESPACE]).args(arguments);
        let output = command.kill_on_drop(true).output().await.context("running ctr")?;
        ensure!(output.status.success(), "ctr {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

/// Imports the image of every pod's first container, which sleeps.
pub(super) async fn import_pause_image(runtime: &Runtime, packages: &Packages) -> Result<()> {
    // The longest duration that the program accepts: 68 years.
    let image =
        Image::default().program("bin/busybox", &packages.busybox)?.runs(&["/bin/busybox", "sleep", "2147483647"], &[]);
    runtime.take_in(&image.layout(PAUSE)?).await?;
    Ok(())
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("containerd.sock")
}

/// Returns containerd's configuration. Without CAP_SYS_RESOURCE, runc fails when a container has a lower score than
/// runc itself, hence `restrict_oom_score_adj`.
fn configuration(packages: &Packages, folder: &Path) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    format!(
        r#"version = 2
root = "{root}"
state = "{state}"
[grpc]
address = "{socket}"
[ttrpc]
address = "{socket}.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{bin}"
conf_dir = "{conf}"
"#,
        root = path("root"),
        state = path("state"),
        socket = socket(folder).display(),
        runc = packages.runc.display(),
        bin = packages.cni.display(),
        conf = path("cni"),
    )
}

fn conflist(network: Network, folder: &Path) -> Result<String> {
    let conflist = serde_json::json!({"cniVersion": "1.0.0", "name": network.bridge(), "plugins": [{
        "type": "bridge",
        "bridge": network.bridge(),
        "isGateway": true,
        "isDefaultGateway": true,
        "ipMasq": false,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": network.pods(), "gateway": network.node().to_string()}]],
            "dataDir": folder.join("addresses").display().to_string(),
        },
    }]});
    Ok(serde_json::to_string_pretty(&conflist)?)
}
