//! The operator's own counters, read from its `/metrics`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use signoff_tests::control_plane::OperatorProcess;
use tokio::time::{Instant, interval};

/// The pause between two readings of counters, of which no event tells that they have stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The number of equal readings in a row after which the operator is at rest.
const EQUAL_READINGS: u32 = 4;
/// The deadline for the operator to come to rest.
const TIMEOUT: Duration = Duration::from_secs(120);

/// All samples of one reading, by name with labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters(BTreeMap<String, f64>);

/// The operator's requests to the API server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    /// Creates of objects that hold state.
    pub(super) creates: f64,
    /// Writes of an Approval's status.
    pub(super) approval_status: f64,
    /// Writes of a Workflow's status.
    pub(super) workflow_status: f64,
    /// State writes that were refused, lost or in conflict, and deletions.
    pub(super) other_writes: f64,
    /// Written Events.
    pub(super) events: f64,
    /// Events that were sent and not written, because they existed already or were refused.
    pub(super) events_failed: f64,
    /// Events that were not sent, because too many were waiting.
    pub(super) events_dropped: f64,
    /// Requests that read, except for reads of the Lease.
    pub(super) reads: f64,
}

impl Requests {
    /// Returns the number of state writes, successful or not.
    pub(super) fn state_writes(&self) -> f64 {
        self.creates + self.approval_status + self.workflow_status + self.other_writes
    }
}

impl Counters {
    /// Reads the counters once.
    pub(super) async fn read(operator: &OperatorProcess) -> Result<Self> {
        Ok(Self::parse(&operator.get("/metrics").await.context("the operator's /metrics")?))
    }

    /// Reads the counters until they no longer change.
    pub(super) async fn read_at_rest(operator: &OperatorProcess) -> Result<Self> {
        Ok(Self::read_at_rest_with(operator, || Ok(())).await?.0)
    }

    /// Reads the counters until they no longer change; also returns the result of `note` right after the last change.
    pub(super) async fn read_at_rest_with<T>(
        operator: &OperatorProcess,
        mut note: impl FnMut() -> Result<T>,
    ) -> Result<(Self, T)> {
        let deadline = Instant::now() + TIMEOUT;
        let mut ticks = interval(POLL_INTERVAL);
        let (mut last, mut equal) = (Self::read(operator).await?, 0);
        let mut noted = note()?;
        while equal < EQUAL_READINGS {
            if Instant::now() > deadline {
                bail!("the operator is not at rest after {TIMEOUT:?}");
            }
            ticks.tick().await;
            let now = Self::read(operator).await?;
            if now.work() == last.work() {
                equal += 1;
            } else {
                (equal, noted) = (0, note()?);
            }
            last = now;
        }
        Ok((last, noted))
    }

    /// Reads the text format of Prometheus; lines that are no samples are skipped.
    pub(super) fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(samples.collect())
    }

    /// Returns the sum of all samples of a name whose labels contain each of `labels`, such as `kind="Workflow"`.
    pub(super) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.0
            .iter()
            .filter(|(sample, _)| sample.split('{').next() == Some(name) && labels.iter().all(|l| sample.contains(l)))
            .map(|(_, value)| value)
            .sum()
    }

    fn work(&self) -> [f64; 3] {
        ["signoff_writes_total", "signoff_reads_total", "signoff_events_total"].map(|name| self.sum(name, &[]))
    }

    /// Returns all requests since the operator's start.
    pub(super) fn requests(&self) -> Requests {
        let writes = |labels: &[&str]| self.sum("signoff_writes_total", labels);
        let ok = r#"result="ok""#;
        let status = |kind| writes(&[kind, r#"verb="replace""#, ok]) + writes(&[kind, r#"verb="patch""#, ok]);
        let creates = writes(&[r#"verb="create""#, ok]);
        let (approval_status, workflow_status) = (status(r#"kind="Approval""#), status(r#"kind="Workflow""#));
        let events = self.sum("signoff_events_total", &[r#"result="written""#]);
        let events_dropped = self.sum("signoff_events_total", &[r#"result="dropped""#]);
        Requests {
            creates,
            approval_status,
            workflow_status,
            other_writes: writes(&[]) - creates - approval_status - workflow_status,
            events,
            events_failed: self.sum("signoff_events_total", &[]) - events - events_dropped,
            events_dropped,
            // Requests for the Lease are not counted, as in the audit log.
            reads: self.sum("signoff_reads_total", &[]) - self.sum("signoff_reads_total", &[r#"resource="leases""#]),
        }
    }
}

impl std::ops::Sub for Requests {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            creates: self.creates - before.creates,
            approval_status: self.approval_status - before.approval_status,
            workflow_status: self.workflow_status - before.workflow_status,
            other_writes: self.other_writes - before.other_writes,
            events: self.events - before.events,
            events_failed: self.events_failed - before.events_failed,
            events_dropped: self.events_dropped - before.events_dropped,
            reads: self.reads - before.reads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;

    const TEXT: &str = "# HELP signoff_writes State written.\n\
        signoff_writes_total{kind=\"Approval\",verb=\"create\",result=\"ok\"} 5\n\
        signoff_writes_total{kind=\"Approval\",verb=\"replace\",result=\"ok\"} 4\n\
        signoff_writes_total{kind=\"Workflow\",verb=\"replace\",result=\"ok\"} 9\n\
        signoff_writes_total{kind=\"Workflow\",verb=\"patch\",result=\"ok\"} 1\n\
        signoff_writes_total{kind=\"Workflow\",verb=\"replace\",result=\"conflict\"} 2\n\
        signoff_events_total{result=\"written\"} 7\n\
        signoff_events_total{result=\"dropped\"} 1\n\
        signoff_events_total{result=\"repeated\"} 2\n\
        signoff_reads_total{resource=\"workflows\",verb=\"list\"} 6\n\
        signoff_reads_total{resource=\"leases\",verb=\"get\"} 3\n\
        signoff_approvals_pending 3\n# EOF\n";

    #[test]
    fn writes_are_counted_by_kind_and_result() {
        let requests = Counters::parse(TEXT).requests();
        assert_eq!([requests.creates, requests.approval_status, requests.workflow_status], [5.0, 4.0, 10.0]);
        assert_eq!([requests.other_writes, requests.state_writes()], [2.0, 21.0]);
        assert_eq!([requests.events, requests.events_failed, requests.events_dropped], [7.0, 2.0, 1.0]);
    }

    #[test]
    fn reads_of_the_lease_are_not_counted() {
        assert_eq!(Counters::parse(TEXT).requests().reads, 6.0);
    }

    #[test]
    fn a_sample_without_labels_is_found() {
        assert_eq!(Counters::parse(TEXT).sum("signoff_approvals_pending", &[]), 3.0);
    }
}
