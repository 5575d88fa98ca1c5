//! The cost of the admission policies for a vote: the same merge patches with them and without, on Approvals with a
//! growing number of recorded votes. The bindings of the policies are removed on a cluster of its own, and restored.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kube::Client;
use serde_json::{Value, json};
use signoff_api::{Approval, ApprovalRequest, ApprovalSpec, names};
use signoff_tests::control_plane::Cluster;
use signoff_tests::say;

use super::harness::{APPROVER, approver_user};
use super::{bindings, crowd, process};

/// The numbers of votes in an Approval, the measured one included.
const RECORDED: [usize; 5] = [1, 4, 16, 32, 64];
/// The rounds with and without policies alternate, so that a machine whose speed changes affects both.
const ROUNDS: usize = 2;

/// Votes of one kind.
#[derive(Default)]
struct Votes {
    times: Vec<Duration>,
    cpu: Duration,
}

/// The votes at one number of recorded votes, of which the last one is measured.
pub(super) struct Level {
    recorded: usize,
    with: Votes,
    without: Votes,
}

/// Measures `votes` of each kind on each level.
pub(super) async fn measure(votes: usize) -> Result<Vec<Level>> {
    say::step("starting a control plane and installing the chart");
    let cluster = Cluster::own().await?;
    cluster.install(&[]).await?;
    let bench = Bench {
        namespace: cluster.namespace("bench").await?.name,
        approver: cluster.token_client(APPROVER).await?,
        admin: cluster.admin().await?,
        cluster,
    };
    let mut levels: Vec<_> =
        RECORDED.map(|recorded| Level { recorded, with: Votes::default(), without: Votes::default() }).into();
    let each = votes.div_ceil(ROUNDS);
    for round in 1..=ROUNDS {
        bench.lift().await?;
        say::step(&format!("round {round} of {ROUNDS}: making Approvals, and voting without the policies"));
        let mut made = Vec::new();
        for level in &levels {
            made.push((
                bench.approvals(level.recorded - 1, each).await?,
                bench.approvals(level.recorded - 1, each).await?,
            ));
        }
        for (level, (here, _)) in levels.iter_mut().zip(&made) {
            bench.vote(here, &mut level.without).await?;
        }
        bindings::restore(&bench.cluster).await?;
        say::step(&format!("round {round} of {ROUNDS}: voting with the policies"));
        for (level, (_, here)) in levels.iter_mut().zip(&made) {
            bench.vote(here, &mut level.with).await?;
        }
    }
    Ok(levels)
}

/// Renders the table.
pub(super) fn render(levels: &[Level]) -> String {
    let mut text = String::from(
        "\na vote, one client      without policies, ms          with policies, ms             more\n\
         recorded with it       p50     p99     CPU       p50     p99     CPU       p50     CPU\n",
    );
    for Level { recorded, with, without } in levels {
        let of = |votes: &Votes| {
            let at = |share| crowd::percentile(&votes.times, share).as_secs_f64() * 1000.0;
            (at(0.5), at(0.99), votes.cpu.as_secs_f64() * 1000.0 / votes.times.len().max(1) as f64)
        };
        let (a, b) = (of(without), of(with));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{recorded:>16}    {:>6.1}  {:>6.1}  {:>6.2}    {:>6.1}  {:>6.1}  {:>6.2}    {:>5.2}×  {:>5.2}×",
            a.0,
            a.1,
            a.2,
            b.0,
            b.1,
            b.2,
            b.0 / a.0,
            b.2 / a.2
        );
    }
    text
}

struct Bench {
    cluster: Cluster,
    namespace: String,
    approver: Client,
    admin: Client,
}

impl Bench {
    fn collection(&self) -> String {
        format!("/apis/signoff.dev/v1alpha1/namespaces/{}/approvals", self.namespace)
    }

    /// Creates Approvals with this number of other people's votes, and returns their paths. Only without the policies
    /// can they be created at once.
    async fn approvals(&self, recorded: usize, count: usize) -> Result<Vec<String>> {
        let collection = self.collection();
        crowd::each(4, count, async |_| {
            let mut object = serde_json::to_value(approval()?)?;
            let votes =
                (0..recorded).map(|n| (voter(n), json!({"verdict": "Approve", "reason": "read and understood"})));
            object["spec"]["decisions"] = Value::Object(votes.collect());
            let answer = crowd::post(&self.admin, &collection, serde_json::to_vec(&object)?).await?;
            Ok(format!("{collection}/{}", super::sample::name_of(&answer)?))
        })
        .await
    }

    /// Sends one vote after another, each timed.
    async fn vote(&self, approvals: &[String], votes: &mut Votes) -> Result<()> {
        let body = serde_json::to_vec(&json!({"spec": {"decisions": {
            approver_user()?: {"verdict": "Approve", "reason": "read and understood"},
        }}}))?;
        let before = self.cpu()?;
        for path in approvals {
            let began = Instant::now();
            crowd::patch(&self.approver, path, body.clone()).await?;
            votes.times.push(began.elapsed());
        }
        votes.cpu += self.cpu()?.saturating_sub(before);
        Ok(())
    }

    fn cpu(&self) -> Result<Duration> {
        let pids = self.cluster.plane().map(|plane| plane.pids()).unwrap_or_default();
        let apiserver = pids.into_iter().find(|(name, _)| *name == "kube-apiserver");
        process::cpu(apiserver.context("this control plane has no kube-apiserver")?.1)
    }

    /// Removes the bindings of the policies.
    async fn lift(&self) -> Result<()> {
        bindings::lift(&self.cluster, &self.collection(), serde_json::to_vec(&approval()?)?).await
    }
}

fn voter(index: usize) -> String {
    format!("voter-{index}@example.com")
}

/// Returns an Approval of a run of its own, with 64 approvers, the measured one included.
fn approval() -> Result<Approval> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut approvers: Vec<_> = (0..63).map(|n| json!({"kind": "User", "name": voter(n)})).collect();
    approvers.push(json!({"kind": "User", "name": approver_user()?}));
    let digest = format!("sha256:{}", "0".repeat(64));
    let mut request: ApprovalRequest = serde_json::from_value(json!({
        "workflow": {"name": "bench", "uid": format!("00000000-0000-4000-8000-{number:012}")},
        "gate": {"name": "review", "type": "step", "path": "review", "visit": 1},
        "specDigest": digest, "digest": digest, "guardEpoch": "bench",
        "deadline": "2100-01-01T00:00:00Z", "closesAt": "2100-01-01T00:00:00Z",
        "prompt": "Go on?", "allowedVerdicts": ["Approve", "Reject"],
        "quorums": [{"source": "gate review", "approvers": approvers, "threshold": 64}], "requestedBy": "dana@example.com",
        "timeout": {"after": "24h", "action": "Reject"},
    }))?;
    request.digest = request.digest_of_the_rest()?;
    let name = names::approval("bench", "review", &request.digest);
    Ok(Approval::new(&name, ApprovalSpec { request, decisions: Default::default() }))
}
