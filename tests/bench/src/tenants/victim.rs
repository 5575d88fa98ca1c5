//! The victim: one gate after another in a namespace of its own, each decided as soon as it opens. The gate and the end
//! of its run are watch events.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signoff_api::names::LABEL_WORKFLOW;
use tokio::sync::mpsc;

use crate::crowd;
use crate::gates::{for_each_end, watch_ends};
use crate::harness::{Harness, approver_user};
use crate::sample;
use crate::watch::Watch;

/// The deadline of one gate. A gate that takes longer ends the measurement.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a request that the API server refused.
const AGAIN: Duration = Duration::from_millis(100);

/// The times of one gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    /// From the create request sent to the watch event of the Workflow `Succeeded`.
    pub(super) all: Duration,
    /// The part of it until the watch event of the Approval.
    pub(super) opened: Duration,
    /// The part of it for the victim's own two requests, create and decision, from sent to answered: the API server
    /// alone.
    pub(super) requests: Duration,
}

/// The gates of one measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates {
    pub(super) gates: Vec<Gate>,
    /// The problem that ended the measurement: a gate that missed the deadline, or a run that did not succeed.
    pub(super) problem: Option<String>,
}

impl Gates {
    /// Returns one time of each gate. A gate that missed the deadline counts with the deadline.
    pub(super) fn times(&self, of: fn(&Gate) -> Duration) -> Vec<Duration> {
        let not_done = self.problem.as_ref().map(|_| TIMEOUT);
        self.gates.iter().map(of).chain(not_done).collect()
    }
}

/// The watches and requests of the victim.
pub(super) struct Victim<'a> {
    harness: &'a Harness,
    workflows: String,
    approvals: String,
    asked: mpsc::UnboundedReceiver<(String, String, Instant)>,
    ended: mpsc::UnboundedReceiver<(String, Instant)>,
    watching: std::pin::Pin<Box<dyn Future<Output = Result<()>> + 'a>>,
    next: usize,
}

impl<'a> Victim<'a> {
    /// Creates its namespace and opens its watches.
    pub(super) async fn new(harness: &'a Harness) -> Result<Self> {
        let namespace = harness.namespace().await?;
        let [workflows, approvals] = ["workflows", "approvals"].map(|plural| sample::path(&namespace, plural));
        let gates = Watch::open(&harness.admin, &approvals, "").await?;
        let ends = watch_ends(harness, &namespace).await?;
        let (ask, asked) = mpsc::unbounded_channel();
        let (end, ended) = mpsc::unbounded_channel();
        let watching = async move {
            let gates = gates.until(|seen| {
                let mut metadata = seen.object.metadata;
                let workflow = metadata.labels.remove(LABEL_WORKFLOW);
                let workflow = workflow.with_context(|| format!("Approval {} without its label", metadata.name))?;
                // The receiver lives as long as this watch.
                let _ = ask.send((workflow, metadata.name, seen.at));
                Ok(false)
            });
            let ends = for_each_end(ends, usize::MAX, |workflow, at| {
                let _ = end.send((workflow.to_owned(), at));
            });
            tokio::try_join!(gates, ends).map(|((), ())| ())
        };
        Ok(Self { harness, workflows, approvals, asked, ended, watching: Box::pin(watching), next: 0 })
    }

    /// Runs one gate after another while `goes_on` is true for the number of finished gates. Ends at the first problem.
    pub(super) async fn run_gates(&mut self, mut goes_on: impl FnMut(usize) -> bool) -> Gates {
        let mut done = Gates::default();
        while done.problem.is_none() && goes_on(done.gates.len()) {
            match tokio::time::timeout(TIMEOUT, self.run_gate()).await {
                Ok(Ok(gate)) => done.gates.push(gate),
                Ok(Err(error)) => done.problem = Some(format!("{error:#}")),
                Err(_) => done.problem = Some(format!("a gate was not done after {} s", TIMEOUT.as_secs())),
            }
        }
        done
    }

    /// Creates a Workflow, approves its gate once the gate opens, and waits until the Workflow has succeeded.
    async fn run_gate(&mut self) -> Result<Gate> {
        let name = sample::name(self.next);
        self.next += 1;
        let approver = approver_user()?;
        let (requester, approver_client) = (&self.harness.requester, &self.harness.approver);
        let (asked, ended) = (&mut self.asked, &mut self.ended);
        let body = serde_json::to_vec(&sample::workflow(&name, approver))?;
        let decision = serde_json::to_vec(&sample::decision(approver))?;
        let acting = async {
            let began = Instant::now();
            send_until_accepted(async || crowd::post(requester, &self.workflows, body.clone()).await).await?;
            let created = began.elapsed();
            let (approval, seen) = loop {
                let (workflow, approval, seen) = asked.recv().await.context("the watch of Approvals ended")?;
                // Earlier gates change once more when they are decided.
                if workflow == name {
                    break (approval, seen);
                }
            };
            let sent = Instant::now();
            let path = format!("{}/{approval}", self.approvals);
            send_until_accepted(async || crowd::patch(approver_client, &path, decision.clone()).await).await?;
            let requests = created + sent.elapsed();
            loop {
                let (workflow, end) = ended.recv().await.context("the watch of Workflows ended")?;
                if workflow == name {
                    let [all, opened] = [end, seen].map(|at| at.saturating_duration_since(began));
                    return Ok(Gate { all, opened, requests });
                }
            }
        };
        tokio::select! {
            gate = acting => gate,
            broken = &mut self.watching => match broken {
                Ok(()) => bail!("the victim's watches ended"),
                Err(error) => Err(error),
            },
        }
    }
}

/// Sends a request until the API server accepts it, as clients do: a server that is too busy is asked again.
async fn send_until_accepted(request: impl AsyncFn() -> Result<String>) -> Result<()> {
    loop {
        let Err(error) = request().await else { return Ok(()) };
        match error.downcast_ref::<kube::Error>() {
            // It was accepted before, and the answer was lost.
            Some(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
            Some(kube::Error::Api(status)) if status.code != 429 && status.code < 500 => return Err(error),
            _ => tokio::time::sleep(AGAIN).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_missed_the_deadline_counts_with_the_deadline() {
        let second = Duration::from_secs(1);
        let gates = vec![Gate { all: second, opened: second / 2, requests: second / 4 }];
        let complete = Gates { gates: gates.clone(), problem: None };
        let with_missed_gate = Gates { gates, problem: Some("a gate was not done".to_owned()) };
        assert_eq!(complete.times(|gate| gate.all), [second]);
        assert_eq!(with_missed_gate.times(|gate| gate.all), [second, TIMEOUT]);
    }
}
