//! Runs of one Pod between two other steps, and bare Pods of the same spec: created, and watched to their ends. All
//! times are those of the watch events here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join;
use serde_json::{Value, json};
use signoff_api::names::LABEL_WORKFLOW;
use signoff_api::pod::CONTAINER;
use signoff_tests::control_plane::{OperatorProcess, named};
use tokio::sync::Notify;

use crate::harness::{Harness, REQUESTER};
use crate::watch::{Seen, Watch};
use crate::{crowd, gates, sample};

/// Pods that are created before the measurement, one after another: they fill caches, and the last is copied.
const WARM_UP: usize = 3;
/// The deadline of one Pod, which takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The durations of the parts of each Pod.
#[derive(Default)]
pub(super) struct Times {
    /// Until the Pod was seen: in a run since the step before it was seen recorded, else since its create was sent.
    pub(super) made: Vec<Duration>,
    /// From there until its container was seen to have ended: scheduler, kubelet and runtime.
    pub(super) ran: Vec<Duration>,
    /// From there until the next step of the run was seen recorded, or until the log of the bare Pod was read.
    pub(super) noted: Vec<Duration>,
    /// The whole duration since the create of the Workflow or the Pod was sent.
    pub(super) all: Vec<Duration>,
}

/// The first arrivals of the events of one run or one bare Pod.
#[derive(Clone, Copy, Default)]
struct Sight {
    before: Option<Instant>,
    made: Option<Instant>,
    ended: Option<Instant>,
    after: Option<Instant>,
}

/// The arrivals of watch events, by the name of the run or of the bare Pod.
#[derive(Default)]
struct Sights {
    seen: RefCell<BTreeMap<String, Sight>>,
    news: Notify,
}

/// Runs, as a requester applies them.
pub(super) struct Run<'a> {
    pub(super) harness: &'a Harness,
    pub(super) operator: &'a OperatorProcess,
    pub(super) clients: usize,
    pub(super) count: usize,
    /// Whether the runs have the Pod between the other two steps.
    pub(super) with_pod: bool,
}

impl Run<'_> {
    /// Lets each client apply a Workflow, wait until the Workflow has succeeded, and then apply the next Workflow.
    pub(super) async fn run_to_end(&self, times: &mut Times) -> Result<()> {
        let namespace = namespace(self.harness).await?;
        let workflows = sample::path(&namespace, "workflows");
        let sights = Sights::default();
        let acting = crowd::each(self.clients, self.count, async |index| {
            let name = format!("run-{index:04}");
            let asked = Instant::now();
            crowd::post(&self.harness.requester, &workflows, serde_json::to_vec(&workflow(&name, self.with_pod))?)
                .await?;
            Ok((asked, sights.wait_until(&name, |sight| sight.after).await))
        });
        let acting = sights.run_while_watching(self.harness, &namespace, acting);
        let done =
            gates::with_time_limit(time_limit(self.count), self.operator, "not all runs have ended", acting).await?;
        for (asked, sight) in done.into_iter().filter(|_| self.with_pod) {
            times.add(asked, sight.before, sight, sight.after)?;
        }
        Ok(())
    }
}

/// Lets each client create a Pod, watch the Pod to its end, read its log and delete it, and then create the next Pod.
pub(super) async fn measure_bare_pods(
    harness: &Harness,
    clients: usize,
    count: usize,
    sample: &Value,
    times: &mut Times,
) -> Result<()> {
    let namespace = namespace(harness).await?;
    let pods = pods(&namespace);
    let sights = Sights::default();
    let acting = crowd::each(clients, count, async |index| {
        let name = format!("bare-{index:04}");
        let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": sample});
        let asked = Instant::now();
        crowd::post(&harness.requester, &pods, serde_json::to_vec(&body)?).await?;
        let sight = sights.wait_until(&name, |sight| sight.ended).await;
        crowd::get(&harness.requester, &format!("{pods}/{name}/log?container={CONTAINER}")).await?;
        let read = Instant::now();
        crowd::delete(&harness.requester, &format!("{pods}/{name}")).await?;
        Ok((asked, sight, read))
    });
    let acting = sights.run_while_watching(harness, &namespace, acting);
    let limit = time_limit(count);
    let Ok(done) = tokio::time::timeout(limit, acting).await else {
        bail!("not all of {count} bare Pods have ended after {limit:?}");
    };
    for (asked, sight, read) in done? {
        times.add(asked, Some(asked), sight, Some(read))?;
    }
    Ok(())
}

/// Returns the spec of a Pod as the operator creates it, for the bare Pods.
pub(super) async fn sample(harness: &Harness) -> Result<Value> {
    let namespace = namespace(harness).await?;
    let sights = Sights::default();
    let workflows = sample::path(&namespace, "workflows");
    let acting = crowd::each(1, WARM_UP, async |index| {
        let mut workflow = workflow(&format!("warm-{index}"), true);
        workflow["spec"]["podGC"] = json!("Never");
        crowd::post(&harness.requester, &workflows, serde_json::to_vec(&workflow)?).await?;
        Ok(sights.wait_until(&format!("warm-{index}"), |sight| sight.after).await)
    });
    let acting = sights.run_while_watching(harness, &namespace, acting);
    tokio::time::timeout(time_limit(WARM_UP), acting).await.context("the first Pods do not end")??;
    let listed: Value = serde_json::from_str(&crowd::get(&harness.admin, &pods(&namespace)).await?)?;
    let mut spec = listed.pointer("/items/0/spec").context("no Pod is left of the first runs")?.clone();
    // The scheduler has to find the node again.
    spec.as_object_mut().context("a Pod without a spec")?.remove("nodeName");
    Ok(spec)
}

/// Creates a namespace in which the requester can create Pods.
async fn namespace(harness: &Harness) -> Result<String> {
    let namespace = harness.cluster.namespace("bench").await?;
    namespace.bind("edit", named(REQUESTER)?.user).await?;
    Ok(namespace.name)
}

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Returns a Workflow with the steps set → pod → set, as a requester would apply it, or without the Pod.
fn workflow(name: &str, with_pod: bool) -> Value {
    let mut steps = vec![
        json!({"name": "before", "set": {"value": "a letter"}}),
        json!({"name": "work", "pod": {
            "image": "busybox:1.36",
            "command": ["sh", "-c", "echo working; printf done >/dev/termination-log"],
            "securityContext": {"runAsUser": 65534},
        }}),
        json!({"name": "after", "set": {"value": "it is done"}}),
    ];
    if !with_pod {
        steps.remove(1);
    }
    json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name},
        // Admission stamps the requester if the name is empty.
        "spec": {"requestedBy": "", "steps": steps},
    })
}

/// Returns a deadline longer than `count` Pods take one after another.
fn time_limit(count: usize) -> Duration {
    TIMEOUT + TIMEOUT / 6 * u32::try_from(count).unwrap_or(u32::MAX)
}

impl Times {
    fn add(&mut self, asked: Instant, from: Option<Instant>, sight: Sight, until: Option<Instant>) -> Result<()> {
        let (from, until) = from.zip(until).context("a run whose records were not seen")?;
        let (made, ended) = sight.made.zip(sight.ended).context("a Pod that was not seen to its end")?;
        // Two watches may deliver two events in the other order if hardly any time is between them.
        self.made.push(made.saturating_duration_since(from));
        self.ran.push(ended.saturating_duration_since(made));
        self.noted.push(until.saturating_duration_since(ended));
        self.all.push(until.saturating_duration_since(asked));
        Ok(())
    }
}

impl Sights {
    fn note(&self, name: String, what: impl FnOnce(&mut Sight)) {
        what(self.seen.borrow_mut().entry(name).or_default());
        self.news.notify_waiters();
    }

    /// Waits until `what` was seen of this run or Pod, and returns its arrivals.
    async fn wait_until(&self, name: &str, what: impl Fn(&Sight) -> Option<Instant>) -> Sight {
        loop {
            let mut news = std::pin::pin!(self.news.notified());
            news.as_mut().enable();
            if let Some(sight) = self.seen.borrow().get(name).filter(|sight| what(sight).is_some()) {
                return *sight;
            }
            news.await;
        }
    }

    /// Runs `acting` while both watches are open.
    async fn run_while_watching<T>(
        &self,
        harness: &Harness,
        namespace: &str,
        acting: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let runs = Watch::open(&harness.admin, &sample::path(namespace, "workflows"), "").await?;
        let pods = Watch::open(&harness.admin, &pods(namespace), "").await?;
        let watching = try_join(runs.until(|seen| self.run(seen)), pods.until(|seen| self.pod(seen)));
        tokio::select! {
            done = acting => done,
            ended = watching => { ended?; bail!("the watches ended") }
        }
    }

    fn run(&self, Seen { object, at }: Seen) -> Result<bool> {
        let (name, status) = (object.metadata.name, object.status);
        let goes_well = ["", "Pending", "Running", "Waiting", "Succeeded"].contains(&status.phase.as_str());
        ensure!(goes_well, "Workflow {name} ended {}: {}", status.phase, status.message.unwrap_or_default());
        let recorded = |path: &str| status.steps.iter().any(|step| step.path == path && step.phase == "Succeeded");
        self.note(name, |sight| {
            if recorded("before") {
                sight.before.get_or_insert(at);
            }
            if recorded("after") {
                sight.after.get_or_insert(at);
            }
        });
        Ok(false)
    }

    fn pod(&self, Seen { object, at }: Seen) -> Result<bool> {
        let (metadata, status) = (object.metadata, object.status);
        ensure!(status.phase != "Failed", "Pod {} failed: {}", metadata.name, status.message.unwrap_or_default());
        let run = metadata.labels.get(LABEL_WORKFLOW).cloned();
        self.note(run.unwrap_or(metadata.name), |sight| {
            sight.made.get_or_insert(at);
            if status.container_statuses.iter().any(|container| container.has_ended()) {
                sight.ended.get_or_insert(at);
            }
        });
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_measured_workflow_can_be_read_by_the_types() {
        for (with_pod, names) in [(true, vec!["before", "work", "after"]), (false, vec!["before", "after"])] {
            let workflow: signoff_api::Workflow = serde_json::from_value(workflow("w", with_pod)).unwrap();
            let steps = workflow.spec.steps;
            assert_eq!(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), names);
        }
    }

    #[tokio::test]
    async fn the_first_sight_counts_and_wakes_whoever_waits_for_it() {
        let sights = Sights::default();
        let line = r#"{"metadata": {"name": "p", "labels": {"signoff.dev/workflow": "run"}},
            "status": {"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}}"#;
        let (first, second) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let pod = |at| sights.pod(Seen { object: serde_json::from_str(line).unwrap(), at }).unwrap();
        let (sight, _) =
            tokio::join!(sights.wait_until("run", |sight| sight.ended), async { (pod(first), pod(second)) });
        assert_eq!((sight.made, sight.ended), (Some(first), Some(first)));
    }
}
