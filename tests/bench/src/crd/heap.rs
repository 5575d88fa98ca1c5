//! The memory of the CRDs in the API server: its heap after a garbage collection, without our CRDs, with them, and with
//! the policies too. The control plane does nothing else, and a heap that still grows is not measured.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use signoff_admission::policies::{Identity, PolicyObject, objects};
use signoff_tests::control_plane::{Cluster, Options};
use tokio::time::{Instant, interval};

use super::crowd;

/// The goal for all CRDs together, in MiB.
const GOAL: f64 = 40.0;
const MIB: f64 = 1024.0 * 1024.0;
/// The pause between two readings.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The number of readings in a row after which the heap is at rest if they differ by no more than [`STEADY`].
const EQUAL_READINGS: usize = 4;
/// The difference between readings at rest, in MiB.
const STEADY: f64 = 1.0;
const TIMEOUT: Duration = Duration::from_secs(180);

/// The heap after a garbage collection, in MiB.
#[derive(Clone, Copy, Debug)]
struct Heap {
    /// The objects that are in use.
    live: f64,
    /// The spans of those objects, with the free parts of the spans.
    in_use: f64,
}

/// All figures.
#[derive(Debug)]
pub(super) struct Heaps {
    rows: Vec<(&'static str, Heap)>,
}

/// Measures a control plane of its own, on which the chart is not installed.
pub(super) async fn measure() -> Result<Heaps> {
    let cluster = Cluster::own_with(Options::default()).await?;
    let admin = cluster.admin().await?;
    let mut rows = vec![("no CRD of ours", read_at_rest(&admin).await?)];
    let crds = signoff_api::crds::all();
    for crd in &crds {
        create(&admin, crd).await?;
    }
    for crd in &crds {
        let api: Api<CustomResourceDefinition> = Api::all(admin.clone());
        let name = crd.name_any();
        let established = await_condition(api, &name, conditions::is_crd_established());
        tokio::time::timeout(TIMEOUT, established).await.with_context(|| format!("{name} is served"))??;
        // The API server creates the handlers of a kind at the first request for it.
        let path = format!("/apis/signoff.dev/v1alpha1/{}", crd.spec.names.plural);
        crowd::get(&admin, &path).await.with_context(|| path.clone())?;
    }
    rows.push(("the CRDs", read_at_rest(&admin).await?));
    for object in objects(&Identity::default())? {
        match object {
            PolicyObject::Validating(policy) => create::<ValidatingAdmissionPolicy>(&admin, &policy).await?,
            PolicyObject::ValidatingBinding(binding) => {
                create::<ValidatingAdmissionPolicyBinding>(&admin, &binding).await?
            }
            PolicyObject::Mutating(policy) => create::<MutatingAdmissionPolicy>(&admin, &policy).await?,
            PolicyObject::MutatingBinding(binding) => {
                create::<MutatingAdmissionPolicyBinding>(&admin, &binding).await?
            }
        }
    }
    rows.push(("the CRDs and the policies", read_at_rest(&admin).await?));
    Ok(Heaps { rows })
}

async fn create<K>(admin: &Client, object: &K) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    Api::<K>::all(admin.clone()).create(&PostParams::default(), object).await?;
    Ok(())
}

/// Reads the heap until it no longer changes. The documents of the whole API are requested each time, as clients do,
/// because a change of a CRD makes the API server build them again and keep them.
async fn read_at_rest(admin: &Client) -> Result<Heap> {
    let deadline = Instant::now() + TIMEOUT;
    let mut ticks = interval(POLL_INTERVAL);
    let mut readings: Vec<Heap> = Vec::new();
    loop {
        ticks.tick().await;
        for document in ["/openapi/v2", "/openapi/v3/apis/signoff.dev/v1alpha1"] {
            // Without CRDs the second document does not exist.
            let _ = crowd::get(admin, document).await;
        }
        readings.push(read_after_collection(admin).await?);
        let last = &readings[readings.len().saturating_sub(EQUAL_READINGS)..];
        let of = |pick: fn(f64, f64) -> f64| last.iter().map(|heap| heap.live).reduce(pick).unwrap_or_default();
        if last.len() == EQUAL_READINGS && of(f64::max) - of(f64::min) <= STEADY {
            let count = last.len() as f64;
            let mean = |part: fn(&Heap) -> f64| last.iter().map(part).sum::<f64>() / count;
            return Ok(Heap { live: mean(|heap| heap.live), in_use: mean(|heap| heap.in_use) });
        }
        if Instant::now() > deadline {
            bail!("the API server's heap still changes after {TIMEOUT:?}: {last:?}");
        }
    }
}

/// Reads the heap right after a garbage collection.
async fn read_after_collection(admin: &Client) -> Result<Heap> {
    let profile = crowd::get(admin, "/debug/pprof/heap?gc=1&debug=1").await.context("the API server's heap profile")?;
    let field = |name: &str| {
        let line = profile.lines().find_map(|line| line.strip_prefix(&format!("# {name} = ")));
        let bytes = line.with_context(|| format!("the API server's heap profile has no {name}"))?;
        Ok::<f64, anyhow::Error>(bytes.trim().parse::<f64>()? / MIB)
    };
    Ok(Heap { live: field("HeapAlloc")?, in_use: field("HeapInuse")? })
}

impl fmt::Display for Heaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nheap of an API server at rest, after a garbage collection, MiB")?;
        writeln!(f, "{:<32}{:>9}{:>9}{:>9}{:>9}{:>9}", "", "live", "more", "in use", "more", "goal")?;
        let Some((_, first)) = self.rows.first() else { return Ok(()) };
        for (index, (name, heap)) in self.rows.iter().enumerate() {
            let goal = if index == 1 { format!("{GOAL:.0}") } else { String::new() };
            let more = [heap.live - first.live, heap.in_use - first.in_use];
            writeln!(f, "{name:<32}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{goal:>9}", heap.live, more[0], heap.in_use, more[1])?;
        }
        Ok(())
    }
}
