//! The real kubelet, with its pods in a control group of their own.
//! It must not change settings of the machine: on a machine of its own it finds copies of them.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::control_plane::{Network, Supervised};

/// The node's name.
pub(super) const NAME: &str = "node";

/// What one kubelet is told.
pub(super) struct Told<'a> {
    /// Its program.
    pub program: &'a Path,
    /// With the login of the node.
    pub kubeconfig: &'a Path,
    /// Where it listens, and its pods are.
    pub network: Network,
    /// containerd's socket.
    pub runtime: &'a str,
    /// The control group under which its pods are to run; it exists.
    pub cgroup: &'a str,
    /// For volumes and certificates; quick, and short-lived.
    pub folder: &'a Path,
    /// For its own log and for those of containers.
    pub logs: &'a Path,
}

/// Starts it; it is of use when its node is ready.
///
/// # Errors
/// When its files cannot be written.
pub(super) fn start(told: &Told) -> Result<Supervised> {
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": told.network.node().to_string(),
        "healthzPort": 0,
        // Nobody from elsewhere reaches this address.
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": told.runtime,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": told.cgroup,
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": false,
        "failSwapOn": false,
        // How full this machine's disk is, is not the tests' business.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "podLogsDir": told.logs.join("pods").display().to_string(),
        // There are no names to resolve; without this, every pod would have an Event about it.
        "clusterDNS": [told.network.api().to_string()],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        // Its usual 50 requests a second would make fifty pods at once wait for it.
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 500,
    });
    let file = told.folder.join("kubelet.json");
    fs::write(&file, serde_json::to_string_pretty(&configuration)?)?;
    let own = |name: &str| told.folder.join(name).display().to_string();
    let arguments = [
        format!("--config={}", file.display()),
        format!("--kubeconfig={}", told.kubeconfig.display()),
        format!("--hostname-override={NAME}"),
        format!("--node-ip={}", told.network.node()),
        format!("--root-dir={}", own("kubelet")),
        format!("--cert-dir={}", own("certificates")),
    ];
    Supervised::start("kubelet", told.program, arguments, &[], &told.logs.join("kubelet.log"))
}
