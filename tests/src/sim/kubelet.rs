//! A scheduler and a kubelet: they run the containers of Pods as the world answers, and report it in the Pods'
//! statuses. An operator learns of it only from the server. Each start of a container is an effect in the world, whose
//! ledger counts the starts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::store::{Key, Resource};
use super::{ApiServer, EffectKey, World};

/// The actor that starts containers, in the world's ledger.
pub const KUBELET: &str = "kubelet";

/// The duration from a Pod's creation until it has a node.
const TO_SCHEDULE: Duration = Duration::from_millis(100);
/// The duration from the node until the container runs, or until the status has the reason why not.
const TO_START: Duration = Duration::from_millis(400);
/// The duration in which a container ends after it was asked to end.
const TO_STOP: Duration = Duration::from_secs(1);
/// The duration from the end of a container until its deleted Pod is gone.
const TO_GO: Duration = Duration::from_millis(100);

/// The result of a container. The world answers an [`EffectKey`] with a result as JSON or with a text, which is the
/// message. The time until the answer is the time for which the container runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerResult {
    exit_code: i32,
    message: String,
    /// A reason such as `OOMKilled`; `None` derives it from the exit code.
    reason: Option<String>,
    log: String,
    /// The exit code of a container that is asked to end; `None` if the container is killed.
    exit_code_when_asked: Option<i32>,
    /// The waiting state of a container that never runs.
    waiting: Option<Value>,
    /// The reason why the Pod never gets a node.
    unschedulable: Option<String>,
    /// Whether no scheduler handles the Pod.
    unseen: bool,
}

/// An event in the life of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The Pod got a node.
    Bound,
    /// Its container started.
    Started,
    /// Its container ended.
    Ended,
    /// The Pod was removed after its container had ended.
    Gone,
}

/// The stage of a Pod.
#[derive(Clone, Copy, Debug)]
enum Stage {
    New,
    Bound,
    /// The Pod waits, and its status has the reason.
    Stuck,
    Running(Instant),
    Ended,
}

struct PodRecord {
    stage: Stage,
    /// The time at which the stage began.
    since: Instant,
    /// The time at which the Pod was marked for deletion.
    deleted_at: Option<Instant>,
    key: EffectKey,
    course: ContainerResult,
    runs: Duration,
}

/// The next action for a Pod.
enum PodAction {
    Bind,
    Start,
    /// Writes the reason why the Pod waits into its status.
    WriteReason,
    /// Ends the container: by itself, or with a reason and a message of the cluster, such as `Evicted`.
    End(Option<(&'static str, &'static str)>),
    Remove,
}

type Naming = dyn Fn(&Value) -> EffectKey + Send + Sync;
type Hook = Box<dyn FnMut(&ApiServer) + Send>;

/// The one node and its scheduler; clones are the same node.
#[derive(Clone)]
pub struct Kubelet {
    server: ApiServer,
    world: World,
    naming: Arc<Naming>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    pods: BTreeMap<String, PodRecord>,
    evicted: Vec<String>,
    hooks: Vec<(Turn, u64, Hook)>,
    most: BTreeMap<Option<String>, usize>,
    /// The duration in which a container ends after it was asked to, if it is not [`TO_STOP`].
    to_stop: Option<Duration>,
}

impl Kubelet {
    /// Starts handling the Pods of a server. `naming` returns the effect of a Pod's container.
    pub fn start(
        server: &ApiServer,
        world: &World,
        naming: impl Fn(&Value) -> EffectKey + Send + Sync + 'static,
    ) -> Self {
        let kubelet =
            Self { server: server.clone(), world: world.clone(), naming: Arc::new(naming), inner: Arc::default() };
        tokio::spawn(kubelet.clone().run());
        kubelet
    }

    /// Evicts the Pod of this name: its container ends, and its status has the reason `Evicted`.
    pub fn evict(&self, pod: &str) {
        self.lock().evicted.push(pod.to_owned());
        self.server.change(|_| {});
    }

    /// Sets the duration in which every container ends after it was asked to end.
    pub fn slow_to_stop(&self, takes: Duration) {
        self.lock().to_stop = Some(takes);
    }

    /// Runs `act` when this event happens to a Pod for the n-th time from now.
    pub fn when(&self, turn: Turn, n: u64, act: impl FnMut(&ApiServer) + Send + 'static) {
        self.lock().hooks.push((turn, n, Box::new(act)));
    }

    /// Returns the largest number of containers that ran at once. With `first`, counts only the containers whose
    /// effects' paths have this first part.
    pub fn most_at_once(&self, first: Option<&str>) -> usize {
        self.lock().most.get(&first.map(str::to_owned)).copied().unwrap_or_default()
    }

    async fn run(self) {
        let mut changes = self.server.listen();
        loop {
            changes.mark_seen();
            match self.run_due_actions() {
                Some(due) => tokio::select! {
                    biased;
                    () = changes.changed() => {}
                    () = sleep_until(due) => {}
                },
                None => changes.changed().await,
            }
        }
    }

    /// Runs every action that is due, and returns the time of the next action, or `None`.
    fn run_due_actions(&self) -> Option<Instant> {
        let now = Instant::now();
        let pods = self.server.values(&pods(), None);
        self.lock().pods.retain(|uid, _| pods.iter().any(|pod| pod["metadata"]["uid"] == **uid));
        let mut next: Option<Instant> = None;
        for pod in pods {
            let (action, due) = {
                let mut inner = self.lock();
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let evicted = inner.evicted.iter().any(|evicted| evicted == name);
                let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let to_stop = inner.to_stop.unwrap_or(TO_STOP);
                let record = inner.pods.entry(uid).or_insert_with(|| self.record_pod(&pod, now));
                if pod["metadata"]["deletionTimestamp"].is_string() {
                    record.deleted_at.get_or_insert(now);
                }
                let Some(plan) = record.plan(&pod, evicted, to_stop, now) else { continue };
                plan
            };
            if due <= now {
                self.run_action(&pod, &action, now);
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        next
    }

    fn record_pod(&self, pod: &Value, now: Instant) -> PodRecord {
        let key = (self.naming)(pod);
        let (answer, runs) = self.world.answer_to(&key);
        let course = match answer {
            Ok(Value::String(message)) => ContainerResult { message, ..ContainerResult::default() },
            Ok(course) => serde_json::from_value(course).unwrap_or_default(),
            Err(failure) => ContainerResult { exit_code: 1, message: failure.message, ..ContainerResult::default() },
        };
        PodRecord { stage: Stage::New, since: now, deleted_at: None, key, course, runs }
    }

    fn run_action(&self, pod: &Value, action: &PodAction, now: Instant) {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
        let Some((key, course, stage)) =
            self.lock().pods.get(&uid).map(|record| (record.key.clone(), record.course.clone(), record.stage))
        else {
            return;
        };
        let time = self.server.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let edit = |edit: &dyn Fn(&mut Value)| {
            self.server.edit(&pods(), &namespace, &name, |pod| edit(pod));
        };
        let (stage, turn) = match action {
            PodAction::Bind => {
                edit(&|pod| {
                    pod["spec"]["nodeName"] = json!("node-1");
                    pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "True"}]);
                    set_state(pod, json!({"waiting": {"reason": "ContainerCreating"}}));
                });
                (Stage::Bound, Some(Turn::Bound))
            }
            PodAction::WriteReason => {
                edit(&|pod| match (&course.unschedulable, &course.waiting) {
                    (Some(why), _) => {
                        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why});
                        pod["status"]["conditions"] = json!([condition]);
                    }
                    (None, why) => set_state(pod, json!({"waiting": why})),
                });
                (Stage::Stuck, None)
            }
            PodAction::Start => {
                let input = json!({"pod": name, "of": uid_of_owner(pod), "what": pod["spec"]["containers"]});
                self.world.witness(KUBELET, &key, &input);
                edit(&|pod| {
                    pod["status"]["phase"] = json!("Running");
                    pod["status"]["startTime"] = json!(time);
                    set_state(pod, json!({"running": {"startedAt": time}}));
                });
                (Stage::Running(now), Some(Turn::Started))
            }
            PodAction::End(why) => {
                let ran = matches!(stage, Stage::Running(_));
                self.server.write_log(&uid, if ran { &course.log } else { "" });
                let by_itself = why.is_none() && ran && now >= self.end_of_run(&uid);
                let terminated = match (ran, by_itself) {
                    // Once a Pod is marked for deletion, a container that never ran is reported like this.
                    (false, _) => json!({"exitCode": 137, "reason": "ContainerStatusUnknown",
                        "message": "The container could not be located when the pod was terminated"}),
                    (true, false) => {
                        let code = course.exit_code_when_asked.unwrap_or(137);
                        json!({"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "finishedAt": time})
                    }
                    (true, true) => {
                        let usual = if course.exit_code == 0 { "Completed" } else { "Error" };
                        let reason = course.reason.as_deref().unwrap_or(usual);
                        json!({"exitCode": course.exit_code, "reason": reason, "message": course.message, "finishedAt": time})
                    }
                };
                let good = terminated["exitCode"] == 0 && why.is_none();
                edit(&|pod| {
                    pod["status"]["phase"] = json!(if good { "Succeeded" } else { "Failed" });
                    if let Some((reason, message)) = why {
                        pod["status"]["reason"] = json!(reason);
                        pod["status"]["message"] = json!(message);
                    }
                    set_state(pod, json!({"terminated": terminated}));
                });
                (Stage::Ended, Some(Turn::Ended))
            }
            PodAction::Remove => {
                self.server.remove(&pods(), &namespace, &name);
                (Stage::Ended, Some(Turn::Gone))
            }
        };
        {
            let mut inner = self.lock();
            if let Some(record) = inner.pods.get_mut(&uid) {
                (record.stage, record.since) = (stage, now);
            }
            if turn == Some(Turn::Started) {
                inner.count_running();
            }
        }
        if let Some(turn) = turn {
            self.run_hooks(turn);
        }
    }

    fn end_of_run(&self, uid: &str) -> Instant {
        self.lock().pods.get(uid).map_or_else(Instant::now, |record| record.since + record.runs)
    }

    fn run_hooks(&self, turn: Turn) {
        let due: Vec<(Turn, u64, Hook)> = {
            let mut inner = self.lock();
            for (_, left, _) in inner.hooks.iter_mut().filter(|(on, _, _)| *on == turn) {
                *left = left.saturating_sub(1);
            }
            let (due, later) = inner.hooks.drain(..).partition(|(on, left, _)| *on == turn && *left == 0);
            inner.hooks = later;
            due
        };
        for (_, _, mut hook) in due {
            hook(&self.server);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Counts the containers that run now, in all and by the first part of their paths, and keeps the largest counts.
    fn count_running(&mut self) {
        let mut now: BTreeMap<Option<String>, usize> = BTreeMap::new();
        for record in self.pods.values().filter(|record| matches!(record.stage, Stage::Running(_))) {
            for part in [None, record.key.path.split('/').next().map(str::to_owned)] {
                *now.entry(part).or_default() += 1;
            }
        }
        for (part, now) in now {
            let most = self.most.entry(part).or_default();
            *most = now.max(*most);
        }
    }
}

impl PodRecord {
    /// Returns the next action and its time.
    fn plan(&self, pod: &Value, evicted: bool, to_stop: Duration, now: Instant) -> Option<(PodAction, Instant)> {
        match self.stage {
            Stage::New if self.course.unschedulable.is_some() => {
                Some((PodAction::WriteReason, self.since + TO_SCHEDULE))
            }
            Stage::New if self.course.unseen => self.deleted_at.map(|at| (PodAction::End(None), at + TO_GO)),
            Stage::New => Some((PodAction::Bind, self.since + TO_SCHEDULE)),
            Stage::Bound | Stage::Stuck if self.deleted_at.is_some() => {
                Some((PodAction::End(None), self.deleted_at.unwrap_or(now) + TO_GO))
            }
            Stage::Bound if self.course.waiting.is_some() => Some((PodAction::WriteReason, self.since + TO_START)),
            Stage::Bound => Some((PodAction::Start, self.since + TO_START)),
            Stage::Stuck => None,
            Stage::Running(_) if evicted => {
                Some((PodAction::End(Some(("Evicted", "The node was low on resource: memory."))), now))
            }
            Stage::Running(since) => {
                let natural = (PodAction::End(None), since + self.runs);
                let asked = self.deleted_at.map(|deleted_at| (PodAction::End(None), deleted_at + to_stop));
                let deadline = pod["spec"]["activeDeadlineSeconds"].as_u64().map(|seconds| {
                    let why = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
                    (PodAction::End(Some(why)), since + Duration::from_secs(seconds))
                });
                [Some(natural), asked, deadline].into_iter().flatten().min_by_key(|(_, due)| *due)
            }
            Stage::Ended => self.deleted_at.map(|deleted_at| (PodAction::Remove, deleted_at.max(self.since) + TO_GO)),
        }
    }
}

/// Sets the state of the step's container.
fn set_state(pod: &mut Value, state: Value) {
    pod["status"]["containerStatuses"] = json!([{"name": "step", "state": state, "ready": false, "restartCount": 0}]);
}

fn uid_of_owner(pod: &Value) -> Value {
    pod["metadata"]["ownerReferences"][0]["uid"].clone()
}

fn pods() -> Resource {
    Resource::new("", "pods")
}

/// Returns the seconds that a deleted Pod gets to end, or `None` for a Pod that has no node or has ended. `requested`
/// is the time that the deletion names.
pub(crate) fn grace_seconds(key: &Key, pod: &Value, requested: Option<i64>) -> Option<i64> {
    let has_node = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let default = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let seconds = requested.unwrap_or(default);
    (key.resource == pods() && has_node && !has_ended && seconds > 0).then_some(seconds)
}
