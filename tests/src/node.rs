//! A real node of a real control plane: containerd, runc and the kubelet, on a machine of its own ([`Machine`]).
//!
//! [`Node::start`] is the entry point. Several nodes on one machine do not interfere: each has its own control plane,
//! bridge, containerd and control group.

mod kubelet;
mod machine;
mod packages;
mod runtime;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1;
use kube::Api;
use kube::runtime::wait::await_condition;
use tempfile::TempDir;

pub use machine::{Input, Machine, is_inside};

use crate::control_plane::{Cluster, NODE, Network, Options, Supervised, kubeconfig, private_folder, progress};
use crate::image::{Image, Layout, Named};
use machine::Group;
use packages::Packages;
use runtime::Runtime;

/// The deadline for a node to become ready.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A cluster with one node. Dropping it ends its processes, and its containers.
#[derive(Debug)]
pub struct Node {
    // Fields are dropped in this order: clients end before their servers.
    kubelet: Supervised,
    runtime: Runtime,
    #[expect(dead_code, reason = "held for its drop")]
    pods: Group,
    cluster: Cluster,
    busybox: Named,
    ready_in: Duration,
    #[expect(dead_code, reason = "held for its drop")]
    folder: TempDir,
}

impl Node {
    /// Starts a control plane and a node of it, and waits until pods can run. The chart is not installed. The node has
    /// the image `busybox:1.36`, and pulls none.
    ///
    /// # Errors
    /// This process does not run on a machine of [`Machine::inside`]. Or a program is missing, ends early or is not
    /// ready in time; the error has the end of its log.
    pub async fn start() -> Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// Starts a node as [`Self::start`] does, with further settings of the control plane, except for its network.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(options: Options) -> Result<Self> {
        static STARTED: AtomicU8 = AtomicU8::new(0);
        let started = Instant::now();
        let number = STARTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| number.checked_add(1));
        let number = number.ok().context("a machine has numbers for 255 nodes, and all have been used")?;
        let (pods, network) = (Group::make(number)?, Network::numbered(number));
        let packages = tokio::task::spawn_blocking(Packages::find).await??;
        create_bridge(&packages, network)?;
        // On a file system in memory, which the kernel removes with the machine even while parts of it are mounted.
        let folder = private_folder("signoff-node-", Path::new("/dev/shm"))?;
        let runtime = async {
            let runtime = Runtime::start(&packages, network, folder.path()).await?;
            runtime::import_pause_image(&runtime, &packages).await?;
            let image = busybox_image(&packages.busybox)?.layout("docker.io/library/busybox:1.36")?;
            let busybox = runtime.take_in(&image).await?;
            Ok((runtime, busybox))
        };
        let plane = Cluster::own_with(Options { network: Some(network), ..options });
        let (cluster, (runtime, busybox)) = tokio::try_join!(plane, runtime)?;

        let plane = cluster.plane().context("a control plane of our own")?;
        let (_, program) = plane.programs().needed_by_pods()?;
        let kubelet = kubelet::start(&kubelet::KubeletSettings {
            program,
            kubeconfig: &kubeconfig::write_login(cluster.kubeconfig(), NODE.name)?,
            network,
            runtime: &runtime.endpoint(),
            cgroup: pods.path(),
            folder: folder.path(),
            logs: &cluster.logs(),
        })?;
        let mut node = Self { kubelet, runtime, pods, cluster, busybox, ready_in: Duration::ZERO, folder };
        node.until_ready().await?;
        node.ready_in = started.elapsed();
        progress(&format!("node {number} is ready after {:.1} s", node.ready_in.as_secs_f64()));
        Ok(node)
    }

    /// Returns the cluster: clients, kubectl, helm, [`Cluster::install`].
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the image `docker.io/library/busybox:1.36`, built from this machine's busybox, with the applets in
    /// `/bin`.
    #[must_use]
    pub fn busybox(&self) -> &Named {
        &self.busybox
    }

    /// Adds an image to the node, under its name and its digest.
    ///
    /// # Errors
    /// containerd's error.
    pub async fn take_in(&self, image: &Layout) -> Result<Named> {
        self.runtime.take_in(image).await
    }

    /// Returns the duration from the start until the node was ready, without building programs.
    #[must_use]
    pub fn ready_in(&self) -> Duration {
        self.ready_in
    }

    async fn until_ready(&mut self) -> Result<()> {
        let nodes: Api<v1::Node> = Api::all(self.cluster.admin().await?);
        let ready = await_condition(nodes, kubelet::NAME, |node: Option<&v1::Node>| {
            // The taint of a node that is not ready is removed a moment later, and pods with it.
            let is_schedulable = node.and_then(|node| node.spec.as_ref()).is_some_and(|spec| spec.taints.is_none());
            let conditions = node.and_then(|node| node.status.as_ref()).and_then(|status| status.conditions.as_ref());
            let is_ready = |condition: &v1::NodeCondition| condition.type_ == "Ready" && condition.status == "True";
            is_schedulable && conditions.is_some_and(|conditions| conditions.iter().any(is_ready))
        });
        let waited = tokio::time::timeout(TIMEOUT, ready).await;
        waited.with_context(|| {
            format!("the node is not ready after {TIMEOUT:?}; the kubelet's log ends:\n{}", self.kubelet.log_tail(30))
        })??;
        Ok(())
    }
}

/// Creates the bridge, with the addresses on which pods and the API server connect.
fn create_bridge(packages: &Packages, network: Network) -> Result<()> {
    let (bridge, node, api) = (network.bridge(), network.node(), network.api());
    for arguments in [
        format!("link add {bridge} type bridge"),
        format!("addr add {node}/24 dev {bridge}"),
        format!("addr add {api}/32 dev {bridge}"),
        format!("link set {bridge} up"),
    ] {
        let output = Command::new(&packages.busybox).arg("ip").args(arguments.split(' ')).output()?;
        ensure!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Returns an image with the programs that public examples expect in an image of this name.
fn busybox_image(program: &Path) -> Result<Image> {
    let list = Command::new(program).arg("--list").output()?;
    ensure!(list.status.success(), "busybox --list: {}", String::from_utf8_lossy(&list.stderr));
    let mut image = Image::default()
        .program("bin/busybox", program)?
        .folder("tmp", 0o1777)?
        .folder("home", 0o755)?
        .folder("root", 0o700)?
        .text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n")?
        .text("etc/group", "root:x:0:\nnobody:x:65534:\n")?
        .link("usr/bin/env", "../../bin/busybox")?
        .environment(&["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
        .runs(&[], &["sh"]);
    for applet in String::from_utf8_lossy(&list.stdout).lines() {
        image = image.link(&format!("bin/{applet}"), "busybox")?;
    }
    Ok(image)
}
