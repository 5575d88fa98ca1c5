//! Closed loop: a client decides a gate, waits for the watch event of its Workflow `Succeeded`, and only then decides
//! its next. This measures latency. All gates are open and the operator is at rest before the first decision.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join;
use signoff_tests::control_plane::OperatorProcess;
use tokio::sync::oneshot;

use super::runs::{self, Decisions, Gate};
use crate::ceiling::CLIENTS;
use crate::counters::Counters;
use crate::crowd;
use crate::harness::Harness;
use crate::processors::{Reading, Used};

/// The pause of a client that decides as a person does: one decision after another, none within the API server's
/// interval of 100 ms for consistent lists.
const PAUSE: Duration = Duration::from_millis(150);
/// The number of decisions with pauses.
const PACED: usize = 100;

/// One measured run.
pub(super) struct ClosedLoop {
    pub(super) clients: usize,
    /// The pause of each client before a decision.
    pub(super) pause: Duration,
    pub(super) latencies: Latencies,
    pub(super) used: Used,
}

/// The latencies of some decisions.
pub(super) struct Latencies {
    /// The duration from the first decision sent to the last watch event of a Workflow `Succeeded`.
    pub(super) took: Duration,
    /// The durations from a decision sent to the arrival of the watch event.
    pub(super) from_sent: Vec<Duration>,
    /// The durations from the answer to a decision to the arrival of the watch event; zero if the event came first.
    pub(super) from_answer: Vec<Duration>,
}

impl ClosedLoop {
    /// Opens this number of gates with an operator of its own, and decides them by `clients` that wait for each
    /// Workflow.
    pub(super) async fn measure(harness: &Harness, clients: usize, workflows: usize) -> Result<Self> {
        Self::measure_with_pauses(harness, clients, workflows, Duration::ZERO).await
    }

    /// Measures one client that pauses before each decision, with at most [`PACED`] gates.
    pub(super) async fn measure_paced(harness: &Harness, workflows: usize) -> Result<Self> {
        Self::measure_with_pauses(harness, 1, workflows.min(PACED), PAUSE).await
    }

    async fn measure_with_pauses(harness: &Harness, clients: usize, workflows: usize, pause: Duration) -> Result<Self> {
        let operator = harness.operator().await?;
        let namespace = harness.namespace().await?;
        let (gates, _) = runs::open(harness, &operator, &namespace, CLIENTS, workflows).await?;
        Counters::read_at_rest(&operator).await?;
        let before = Reading::take(harness, Some(&operator))?;
        let latencies = decide(harness, &operator, &namespace, clients, pause, &gates).await?;
        let used = Reading::take(harness, Some(&operator))?.since(&before);
        operator.stop().await?;
        Ok(Self { clients, pause, latencies, used })
    }
}

/// Approves every gate by `clients`, each of which pauses, decides, and waits for the watch event of the gate's
/// Workflow `Succeeded`.
pub(super) async fn decide(
    harness: &Harness,
    operator: &OperatorProcess,
    namespace: &str,
    clients: usize,
    pause: Duration,
    gates: &[Gate],
) -> Result<Latencies> {
    let decisions = Decisions::new(harness, namespace)?;
    let mut senders = BTreeMap::new();
    let mut receivers = Vec::with_capacity(gates.len());
    for gate in gates {
        let (sender, receiver) = oneshot::channel::<Instant>();
        senders.insert(gate.workflow.clone(), sender);
        receivers.push(Mutex::new(Some(receiver)));
    }
    let watch = runs::watch_ends(harness, namespace).await?;
    let began = Instant::now();
    let watching = runs::for_each_end(watch, gates.len(), |workflow, at| {
        if let Some(sender) = senders.remove(workflow) {
            // A client that gave up has returned its own error.
            let _ = sender.send(at);
        }
    });
    let deciding = crowd::each(clients, gates.len(), async |index| {
        let receiver = receivers[index].lock().ok().and_then(|mut receiver| receiver.take());
        let receiver = receiver.context("two clients decide one gate")?;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let sent = Instant::now();
        decisions.send(&gates[index]).await?;
        let answered = Instant::now();
        let seen = receiver.await.context("the watch of Workflows ended")?;
        Ok((seen.saturating_duration_since(sent), seen.saturating_duration_since(answered)))
    });
    let ((), times) = runs::with_limit_for_gates(gates.len(), operator, "closed", try_join(watching, deciding)).await?;
    let took = began.elapsed();
    let (from_sent, from_answer) = times.into_iter().unzip();
    Ok(Latencies { took, from_sent, from_answer })
}
