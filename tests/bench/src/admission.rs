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

/// The numbers of votes in an Approval, the measured vote included.
const RECORDED: [usize; 5] = [1, 4, 16, 32, 64];
/// The rounds with and without policies alternate, so that a machine whose speed changes affects both.
const ROUNDS: usize = 2;

/// The measured votes with or without the policies.
#[derive(Default)]
struct Votes {
    times: Vec<Duration>,
    cpu: Duration,
}

/// The figures of one vote, in milliseconds.
struct VoteFigures {
    median_ms: f64,
    p99_ms: f64,
    /// The API server's processor time.
    cpu_ms: f64,
}

impl Votes {
    fn figures(&self) -> VoteFigures {
        let percentile_ms = |share| crowd::percentile(&self.times, share).as_secs_f64() * 1000.0;
        VoteFigures {
            median_ms: percentile_ms(0.5),
            p99_ms: percentile_ms(0.99),
            cpu_ms: self.cpu.as_secs_f64() * 1000.0 / self.times.len().max(1) as f64,
        }
    }
}

/// The measurements at one number of recorded votes, which counts the measured vote.
#[derive(Default)]
pub(super) struct Level {
    recorded: usize,
    with_policies: Votes,
    without_policies: Votes,
}

/// Measures `votes` votes with the policies and as many without, at each number of recorded votes.
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
    let mut levels: Vec<_> = RECORDED.map(|recorded| Level { recorded, ..Level::default() }).into();
    let votes_in_round = votes.div_ceil(ROUNDS);
    for round in 1..=ROUNDS {
        bench.remove_bindings().await?;
        say::step(&format!("round {round} of {ROUNDS}: making Approvals, and voting without the policies"));
        let mut approvals = Vec::new();
        for level in &levels {
            approvals.push((
                bench.create_approvals(level.recorded - 1, votes_in_round).await?,
                bench.create_approvals(level.recorded - 1, votes_in_round).await?,
            ));
        }
        for (level, (first, _)) in levels.iter_mut().zip(&approvals) {
            bench.vote(first, &mut level.without_policies).await?;
        }
        bindings::restore_all(&bench.cluster).await?;
        say::step(&format!("round {round} of {ROUNDS}: voting with the policies"));
        for (level, (_, second)) in levels.iter_mut().zip(&approvals) {
            bench.vote(second, &mut level.with_policies).await?;
        }
    }
    Ok(levels)
}

/// Renders the table of all levels, a line for each.
pub(super) fn render(levels: &[Level]) -> String {
    let mut text = String::from(
        "\na vote, one client      without policies, ms          with policies, ms             more\n\
         recorded with it       p50     p99     CPU       p50     p99     CPU       p50     CPU\n",
    );
    for Level { recorded, with_policies, without_policies } in levels {
        let (without, with) = (without_policies.figures(), with_policies.figures());
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{recorded:>16}    {:>6.1}  {:>6.1}  {:>6.2}    {:>6.1}  {:>6.1}  {:>6.2}    {:>5.2}×  {:>5.2}×",
            without.median_ms,
            without.p99_ms,
            without.cpu_ms,
            with.median_ms,
            with.p99_ms,
            with.cpu_ms,
            with.median_ms / without.median_ms,
            with.cpu_ms / without.cpu_ms
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

    /// Creates Approvals with this number of other people's votes, and returns their paths. Only while the policies are
    /// removed can an Approval be created with votes.
    async fn create_approvals(&self, recorded: usize, count: usize) -> Result<Vec<String>> {
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

    /// Sends one vote after another, and adds the time of each and the processor time of all.
    async fn vote(&self, approvals: &[String], votes: &mut Votes) -> Result<()> {
        let body = serde_json::to_vec(&json!({"spec": {"decisions": {
            approver_user()?: {"verdict": "Approve", "reason": "read and understood"},
        }}}))?;
        let before = self.cpu()?;
        for path in approvals {
            let start = Instant::now();
            crowd::patch(&self.approver, path, body.clone()).await?;
            votes.times.push(start.elapsed());
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
    async fn remove_bindings(&self) -> Result<()> {
        bindings::remove_all(&self.cluster, &self.collection(), serde_json::to_vec(&approval()?)?).await
    }
}

fn voter(index: usize) -> String {
    format!("voter-{index}@example.com")
}

/// Returns an Approval of a run of its own, with 64 approvers, among them the approver whose vote is measured.
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
