//! The real kubelet, with its pods in a control group of their own. It changes only the copies of settings that a
//! machine of its own has.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::control_plane::{Network, Supervised};

/// The name of the node, which is also its host name.
pub(super) const NAME: &str = "node";

/// The settings of a kubelet.
pub(super) struct KubeletSettings<'a> {
    /// The path of the kubelet's binary.
    pub program: &'a Path,
    /// The kubeconfig file with the login of the node.
    pub kubeconfig: &'a Path,
    /// The network on which it listens and its pods run.
    pub network: Network,
    /// containerd's socket.
    pub runtime: &'a str,
    /// The control group under which the pods run; the caller has created it.
    pub cgroup: &'a str,
    /// The folder of volumes and certificates, on a fast file system that is not kept.
    pub folder: &'a Path,
    /// The folder of its own log and of the logs of containers.
    pub logs: &'a Path,
}

/// Starts a kubelet; its node becomes ready later.
///
/// # Errors
/// When its files cannot be written.
pub(super) fn start(settings: &KubeletSettings) -> Result<Supervised> {
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": settings.network.node().to_string(),
        "healthzPort": 0,
        // No other machine reaches this address.
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": settings.runtime,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": settings.cgroup,
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": false,
        "failSwapOn": false,
        // The tests do not depend on how full this machine's disk is.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "podLogsDir": settings.logs.join("pods").display().to_string(),
        // There are no names to resolve; without this setting, every pod would have an Event about it.
        "clusterDNS": [settings.network.api().to_string()],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        // At the default of 50 requests a second, fifty pods at once would wait for it.
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 500,
    });
    let file = settings.folder.join("kubelet.json");
    fs::write(&file, serde_json::to_string_pretty(&configuration)?)?;
    let path = |name: &str| settings.folder.join(name).display().to_string();
    let arguments = [
        format!("--config={}", file.display()),
        format!("--kubeconfig={}", settings.kubeconfig.display()),
        format!("--hostname-override={NAME}"),
        format!("--node-ip={}", settings.network.node()),
        format!("--root-dir={}", path("kubelet")),
        format!("--cert-dir={}", path("certificates")),
    ];
    Supervised::start("kubelet", settings.program, arguments, &[], &settings.logs.join("kubelet.log"))
}
