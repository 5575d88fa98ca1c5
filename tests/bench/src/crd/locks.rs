//! The cost of the two rules that stay in the CRD of Approvals as a second lock: the writes of an Approval with both,
//! and without each. The policies are removed first, because they refuse what a lock refuses.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use signoff_tests::say;

use super::crowd;
use super::harness::Harness;
use super::sample::{self, Sample};
use super::{Meter, bodies_of_workflows, measure_approval_writes};

const CRD: &str = "approvals.signoff.dev";
/// The largest share that a lock may add to a write, in percent.
const GOAL_PERCENT: f64 = 2.0;
/// The rounds alternate between the sets of locks, so that a machine whose speed changes affects all.
const ROUNDS: usize = 2;
/// The writes of an Approval.
const WRITES: [&str; 3] = ["create", "vote", "status"];
/// The deadline for an API server to apply another schema and to be at rest afterwards.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The pause between two readings of the bytes that an API server allocates by itself.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The most KiB that an API server at rest allocates in [`POLL_INTERVAL`], three times in a row. After a change of a
/// CRD, the API server builds the documents of its API again.
const REST: f64 = 4096.0;

/// A rule of the CRD of Approvals, by the field that it locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Outcome,
    Digest,
}

/// The name of each row, and its missing locks.
const VARIANTS: [(&str, &[Lock]); 3] =
    [("both locks", &[]), ("without the outcome's", &[Lock::Outcome]), ("without the digest's", &[Lock::Digest])];

/// KiB for each write of an Approval, by variant.
#[derive(Debug)]
pub(super) struct Locks {
    kib: [[f64; WRITES.len()]; VARIANTS.len()],
}

/// Measures this number of writes of each kind with each set of locks.
pub(super) async fn measure(harness: &Harness, sample: &Sample, writes: usize) -> Result<Locks> {
    let crds: Api<CustomResourceDefinition> = Api::all(harness.admin.clone());
    let whole = serde_json::to_value(crds.get(CRD).await?)?;
    let mut kib = [[0.0; WRITES.len()]; VARIANTS.len()];
    for round in 1..=ROUNDS {
        for (variant, (name, left_out)) in VARIANTS.iter().enumerate() {
            say::step(&format!("writing Approvals, {name}, {round} of {ROUNDS}"));
            install_without(harness, sample, &crds, &whole, left_out).await?;
            let namespace = harness.namespace().await?;
            let workflows = sample::path(&namespace, "workflows");
            let mut created = Vec::with_capacity(writes);
            for body in bodies_of_workflows(sample, writes)? {
                created.push(crowd::post(&harness.requester, &workflows, body).await?);
            }
            let meter = Meter::calibrate(harness).await?;
            let costs = measure_approval_writes(&meter, sample, &namespace, &created).await?;
            for (sum, cost) in kib[variant].iter_mut().zip(costs) {
                *sum += cost.kib / ROUNDS as f64;
            }
        }
    }
    install_without(harness, sample, &crds, &whole, &[]).await?;
    Ok(Locks { kib })
}

impl Lock {
    /// Returns the JSON pointer to the field with the lock's rule, in the schema of an Approval.
    fn pointer(self) -> &'static str {
        match self {
            Self::Outcome => "",
            Self::Digest => "/properties/spec/properties/request/properties/digest",
        }
    }
}

/// Installs the CRD `whole` without the locks `left_out`, and waits until the API server applies the schema and is at
/// rest.
async fn install_without(
    harness: &Harness,
    sample: &Sample,
    crds: &Api<CustomResourceDefinition>,
    whole: &Value,
    left_out: &[Lock],
) -> Result<()> {
    let mut schema = whole["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    for lock in left_out {
        let fields = schema.pointer_mut(lock.pointer()).and_then(Value::as_object_mut);
        let rules = fields.and_then(|fields| fields.remove("x-kubernetes-validations"));
        if rules.as_ref().and_then(Value::as_array).is_none_or(|rules| rules.len() != 1) {
            bail!("the CRD of Approvals has not one rule at {:?} for the lock {lock:?}: {rules:?}", lock.pointer());
        }
    }
    let mut crd = serde_json::to_value(crds.get(CRD).await?)?;
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    crds.replace(CRD, &PostParams::default(), &serde_json::from_value(crd)?).await?;

    let metadata = &sample.approval["metadata"];
    let text = |field: &str| metadata[field].as_str().with_context(|| format!("the sample has no {field}"));
    let path = format!("{}/{}", sample::path(text("namespace")?, "approvals"), text("name")?);
    let outcome = serde_json::to_vec(&json!({"status": {"outcome": {"reason": "another"}}}))?;
    let digest = format!("sha256:{}", "f".repeat(64));
    let digest = serde_json::to_vec(&json!({"spec": {"request": {"digest": digest}}}))?;
    let deadline = Instant::now() + TIMEOUT;
    // No event tells which schema an API server applies, so the requests are repeated until the answers fit.
    for (lock, path, body) in [(Lock::Outcome, format!("{path}/status"), outcome), (Lock::Digest, path, digest)] {
        let path = format!("{path}?dryRun=All");
        loop {
            let answer = crowd::patch(&harness.admin, &path, body.clone()).await;
            if answer.is_ok() == left_out.contains(&lock) {
                break;
            }
            if Instant::now() > deadline {
                bail!("the API server does not go by the changed CRD after {TIMEOUT:?}: {lock:?}: {answer:?}");
            }
        }
    }
    wait_for_rest(harness).await
}

/// Waits until the API server allocates little by itself, three times in a row.
async fn wait_for_rest(harness: &Harness) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    let mut last = super::allocated(&super::read_counters(harness).await?);
    let mut quiet_readings = 0;
    while quiet_readings < 3 {
        ticks.tick().await;
        let now = super::allocated(&super::read_counters(harness).await?);
        quiet_readings = if (now - last) / 1024.0 < REST { quiet_readings + 1 } else { 0 };
        if Instant::now() > deadline {
            bail!("the API server is not at rest: it allocated {:.0} KiB in {POLL_INTERVAL:?}", (now - last) / 1024.0);
        }
        last = now;
    }
    Ok(())
}

impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nthe locks in the CRD of Approvals, no policy; KiB for one write, and what the locks that are left out are of it"
        )?;
        write!(f, "{:<24}", "")?;
        for name in WRITES {
            write!(f, "{name:>18}")?;
        }
        writeln!(f, "{:>9}", "goal")?;
        for ((name, left_out), kib) in VARIANTS.iter().zip(&self.kib) {
            write!(f, "{name:<24}")?;
            for (write, both) in kib.iter().zip(&self.kib[0]) {
                let share = if left_out.is_empty() {
                    String::new()
                } else {
                    format!("{:.1} %", (both - write) / write * 100.0)
                };
                write!(f, "{write:>9.0}{share:>9}")?;
            }
            let goal = if left_out.len() == 1 { format!("{GOAL_PERCENT:.0} %") } else { String::new() };
            writeln!(f, "{goal:>9}")?;
        }
        Ok(())
    }
}
