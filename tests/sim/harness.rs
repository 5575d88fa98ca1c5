//! The harness of every simulation: a simulated API server, a world of effects, and the real operator between them.
//! Only the operator's clock is the simulation's.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use signoff_api::{
    Approval, Workflow,
    announce::{Announcement, Listener, TypedEvent},
    journal::{FACT_CALLS, FACT_CHANGED, Usage},
    names,
    turn::TurnCalls,
};
use signoff_cluster::ServerClock;
use signoff_controller::{
    AnswerRoom, Caller, Config, Evaluator, GuardMode, LeaseSettings, MemoryLimits, Operator, PodSettings, Probe,
    RunRef, ValueSettings, metrics::SharedMetrics,
};
use signoff_engine::{
    JournalLimits, Settings,
    transition::{Call, CallContent, Failure, McpCall, McpRequest, Reply},
};
use signoff_tests::sim::{ApiServer, EffectKey, Entry, Incarnation, Kubelet, Resource, Seat, World};
use tokio::task::JoinHandle;

use crate::{
    ending::list,
    people::People,
    receivers::{OPERATORS_NAMESPACE, Receivers},
    scenarios::RUN,
};

/// The only operator of most simulations.
pub const OPERATOR: &str = "operator";
/// The namespace of every Workflow here.
pub const NAMESPACE: &str = "default";
/// The time that a test waits after the end of a run; in its second half nothing may happen.
pub const QUIET: Duration = Duration::from_secs(300);
/// The limit of any simulation, in virtual time.
const LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The API server and the world of one simulation; clones are the same harness.
#[derive(Clone)]
pub struct Harness {
    pub server: ApiServer,
    pub world: World,
    pub kubelet: Kubelet,
    pub pods: PodSettings,
    pub lease: bool,
    /// The evaluator, inline, so that virtual time does not pass during an evaluation.
    pub evaluator: Evaluator,
    pub guard: GuardMode,
    /// The limits of the journal in a Workflow.
    pub room: JournalLimits,
    pub settings: Settings,
    /// The limits on the bytes of long values.
    pub values: ValueSettings,
    /// The limits on the memory of an operator, one for each use.
    pub memory: MemoryLimits,
    /// The probe of the operator that began last.
    pub probe: Arc<Mutex<Option<Probe>>>,
    /// The typed events that operators announced.
    pub announced: Announced,
    /// The receivers of notices; `None` without notices.
    pub receivers: Option<Receivers>,
}

/// Returns the kind `Workflow`, as a resource.
pub fn workflows() -> Resource {
    Resource::of::<Workflow>()
}

/// Returns the kind `Approval`, as a resource.
pub fn approvals() -> Resource {
    Resource::of::<Approval>()
}

impl Harness {
    pub fn new() -> Self {
        let server = ApiServer::new();
        let world = World::new(server.clock());
        let kubelet = Kubelet::start(&server, &world, container);
        let guard = GuardMode::Assumed("epoch-1".to_owned());
        Self {
            server,
            world,
            kubelet,
            pods: PodSettings::default(),
            lease: false,
            guard,
            room: JournalLimits::default(),
            settings: Settings::default(),
            values: ValueSettings::default(),
            memory: MemoryLimits::default(),
            probe: Arc::default(),
            announced: Announced::default(),
            receivers: None,
            evaluator: Evaluator::inline(),
        }
    }

    /// Returns a harness in which the administrator has configured notices, with routes to these channels: see
    /// [`Receivers::new`].
    pub fn with_notices(channels: &[&str]) -> Self {
        let harness = Self::new();
        let receivers = Some(Receivers::new(harness.server.clock(), channels));
        Self { receivers, ..harness }
    }

    pub fn receivers(&self) -> &Receivers {
        self.receivers.as_ref().unwrap()
    }

    /// Applies a Workflow in [`NAMESPACE`].
    pub fn apply(&self, name: &str, spec: &Value) -> Value {
        self.apply_in(NAMESPACE, name, spec)
    }

    /// Applies a Workflow in any namespace, which is created if it is missing.
    pub fn apply_in(&self, namespace: &str, name: &str, spec: &Value) -> Value {
        if self.server.value(&Resource::new("", "namespaces"), "", namespace).is_none() {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            self.server.insert(object).unwrap();
        }
        let workflow = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        self.server.insert(workflow).unwrap()
    }

    /// Returns the people who decide the gates of this harness.
    pub fn people(&self) -> People {
        People::new(self.clone())
    }

    pub fn workflow(&self, name: &str) -> Value {
        self.server.value(&workflows(), NAMESPACE, name).unwrap_or_default()
    }

    pub fn approvals(&self) -> Vec<Value> {
        self.server.values(&approvals(), Some(NAMESPACE))
    }

    /// Returns the Pods of all runs.
    pub fn all_pods(&self) -> Vec<Value> {
        self.server.values(&Resource::new("", "pods"), Some(NAMESPACE))
    }

    /// Returns the Pods of the run with this uid.
    pub fn pods_of(&self, uid: &Value) -> Vec<Value> {
        self.all_pods().into_iter().filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == *uid).collect()
    }

    /// Deletes a Pod, as kubectl does; `grace`: the seconds that it gets to end.
    pub async fn delete_pod(&self, user: &str, pod: &str, grace: Option<u32>) {
        let pods: kube::Api<Pod> = kube::Api::namespaced(self.server.as_person(user).client(), NAMESPACE);
        let params = kube::api::DeleteParams { grace_period_seconds: grace, ..kube::api::DeleteParams::default() };
        pods.delete(pod, &params).await.unwrap();
    }

    /// Returns a life of the real operator that ends only when the simulation kills it.
    pub fn operator(&self, life: &Incarnation) -> BoxFuture<'static, ()> {
        self.operator_until(life, std::future::pending())
    }

    /// Returns a life of the real operator that is asked to end when `shutdown` is ready.
    pub fn operator_until(
        &self,
        life: &Incarnation,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let operator = self.operator_of(life);
        Box::pin(async move {
            // The next life shows whether this one ended well.
            let _ = operator.run(shutdown).await;
        })
    }

    /// Returns the operator of one life, not started yet.
    pub fn operator_of(&self, life: &Incarnation) -> Operator {
        let clock = ServerClock::new(self.server.machine_clock());
        let caller = Arc::new(Hand(self.world.seat(life)));
        let client = signoff_cluster::connect_service_with_clock(self.server.connection(life), "default", &clock);
        let metrics = SharedMetrics::default();
        let receivers = self.receivers.as_ref();
        let notices = receivers.map(|receivers| receivers.notices(life, client.clone(), &clock, &metrics));
        let config = Config {
            notices,
            metrics,
            guard: self.guard.clone(),
            journal_limits: self.room,
            pods: self.pods.clone(),
            settings: self.settings.clone(),
            values: self.values,
            memory: self.memory,
            evaluator: self.evaluator.clone(),
            listeners: vec![Arc::new(self.announced.clone())],
            lease: self.lease.then(|| LeaseSettings::in_namespace(OPERATORS_NAMESPACE)),
            ..Config::new(client, clock, caller, &life.to_string())
        };
        let operator = Operator::new(config);
        *self.probe.lock().unwrap() = Some(operator.probe());
        operator
    }

    /// Starts a new life of each operator that dies, until `scenario` has ended. Returns the result of `scenario` and
    /// the number of deaths.
    pub async fn keep_alive<T>(&self, actors: &[&str], scenario: impl Future<Output = T>) -> (T, usize) {
        let lives = std::cell::Cell::new(0);
        let start = |life: Incarnation| {
            lives.set(lives.get() + 1);
            self.operator(&life)
        };
        let result = tokio::select! {
            biased;
            result = scenario => result,
            ended = self.server.keep_alive(actors, LIMIT, start, |_| false) => {
                panic!("the story was not told to its end: {}", ended.expect_err("nothing is ever done"))
            }
        };
        (result, lives.get() - actors.len())
    }

    /// Begins a life of an operator that the test itself ends.
    pub fn begin(&self, actor: &str) -> Life {
        let life = self.server.incarnation(actor);
        let process = tokio::spawn(self.operator(&life));
        Life { life, process }
    }

    /// Begins an operator, and waits until it is at rest.
    pub async fn begin_and_settle(&self, actor: &str) -> Life {
        let life = self.begin(actor);
        self.pass(1).await;
        life
    }

    /// Returns the metrics of the operator that began last.
    pub fn metrics(&self) -> String {
        self.probe.lock().unwrap().as_ref().unwrap().metrics().unwrap()
    }

    /// Returns a number of the operator that began last.
    pub fn metric(&self, name: &str) -> i64 {
        let text = self.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("there is no {name} in {text}")).parse().unwrap()
    }

    /// Lets this many seconds pass.
    pub async fn pass(&self, seconds: u64) {
        self.server.clock().pass(Duration::from_secs(seconds)).await;
    }

    /// Returns the only Approval.
    pub fn approval(&self) -> Value {
        let [approval] = &self.approvals()[..] else { panic!("there is not one Approval:\n{}", self.server.story()) };
        approval.clone()
    }

    /// Waits until a Workflow has ended.
    pub async fn wait_for_end(&self, name: &str) -> Value {
        let ended = |workflow: &Value| workflow["status"]["finishedAt"].is_string();
        self.server.until(&workflows(), NAMESPACE, name, ended).await
    }

    /// Waits until a Workflow is in a phase.
    pub async fn wait_for_phase(&self, name: &str, phase: &str) -> Value {
        self.server.until(&workflows(), NAMESPACE, name, |workflow| workflow["status"]["phase"] == phase).await
    }

    /// Returns the Events with this reason, in the order of their times.
    pub fn events(&self, reason: &str) -> Vec<Value> {
        let events = self.server.values(&Resource::new("events.k8s.io", "events"), Some(NAMESPACE));
        let mut events: Vec<Value> = events.into_iter().filter(|event| event["reason"] == reason).collect();
        events.sort_by_key(|event| event["eventTime"].to_string());
        events
    }

    /// Returns the status of one of the Workflow's conditions, and its reason.
    pub fn condition(&self, kind: &str) -> (String, String) {
        condition(&self.workflow(RUN), kind)
    }

    /// Returns the writes of operators that took effect, without those of Leases.
    pub fn operators_writes(&self) -> Vec<Entry> {
        let by_operators = |entry: &Entry| entry.actor.starts_with(OPERATOR) && entry.resource.plural != "leases";
        self.server.writes().into_iter().filter(by_operators).filter(Entry::took_effect).collect()
    }
}

/// A record of the typed events that operators announce.
#[derive(Clone, Default)]
pub struct Announced(Arc<Mutex<Vec<TypedEvent>>>);

impl Announced {
    /// Returns all announced events, in their order.
    pub fn all(&self) -> Vec<TypedEvent> {
        self.0.lock().unwrap().clone()
    }
}

impl Listener for Announced {
    fn on_announcement(&self, announcement: &Announcement<'_>) {
        self.0.lock().unwrap().extend(announcement.event.clone());
    }
}

/// Returns whether a request wrote the status of a Workflow.
pub fn is_status_write(entry: &Entry) -> bool {
    entry.verb.writes() && entry.resource == workflows() && entry.subresource.is_some() && entry.took_effect()
}

/// Returns the effect of a Pod's container: of a step of a run, or of a foreign Pod.
fn container(pod: &Value) -> EffectKey {
    let metadata = &pod["metadata"];
    let owner = &metadata["ownerReferences"][0];
    let [workflow, uid] = ["name", "uid"].map(|field| owner[field].as_str().unwrap_or_default());
    let path = metadata["annotations"][names::ANNOTATION_PATH].as_str().unwrap_or_default();
    let attempt = (1..=20).find(|attempt| metadata["name"] == names::pod(workflow, uid, path, *attempt));
    match attempt {
        Some(attempt) => EffectKey::new(format!("{workflow}/{path}"), attempt.unsigned_abs()),
        None => EffectKey::new(format!("somebody/{}", metadata["name"].as_str().unwrap_or_default()), 1),
    }
}

/// Returns the status of one of an object's conditions, and its reason.
pub fn condition(object: &Value, kind: &str) -> (String, String) {
    let condition = list(&object["status"]["conditions"]).find(|condition| condition["type"] == kind);
    let text = |field: &str| condition.and_then(|c| c[field].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

/// An operator that runs until the test ends it.
pub struct Life {
    life: Incarnation,
    process: JoinHandle<()>,
}

impl Life {
    /// Returns whether its process runs.
    pub fn is_alive(&self) -> bool {
        !self.process.is_finished()
    }

    /// Kills the operator: it sends nothing more, and releases nothing.
    pub async fn crash(self) {
        self.life.kill();
        self.process.abort();
        // The task was aborted, so its result is an error.
        let _ = self.process.await;
    }
}

/// The failure class of a call whose answer does not fit into memory.
pub const NO_ROOM: &str = "NoRoom";

/// The only connection of an operator to the world.
struct Hand(Seat);

#[async_trait]
impl Caller for Hand {
    async fn call(&self, run: &RunRef, call: Call, _: &dyn AnswerRoom) -> Result<Reply, Failure> {
        let attempt = u32::try_from(call.attempt).unwrap();
        let key = EffectKey::new(format!("{}/{}", run.workflow, call.path), attempt);
        let what = match &call.content {
            CallContent::Agent(agent) => serde_json::to_value(agent).unwrap(),
            CallContent::Http(http) => serde_json::to_value(http).unwrap(),
            CallContent::Mcp(mcp) => request_to_server(mcp),
            CallContent::Pod(pod) => panic!("the Pod {} is made, not called", pod.name),
        };
        let input = json!({"idempotent": call.idempotent, "of": run.uid, "what": what});
        match self.0.call(&key, &input).await {
            Ok(response) => {
                // A turn that calls tools, as the executor records it.
                let calls = response["calls"].as_array().map(|calls| (FACT_CALLS.to_owned(), calls.len().to_string()));
                let response = match serde_json::from_value::<TurnCalls>(response.clone()) {
                    Ok(turn) if calls.is_some() => {
                        json!(TurnCalls::recorded(turn.text, turn.calls, turn.truncated, turn.dropped))
                    }
                    _ => response,
                };
                // The facts that models report, for an agent's turn and no other call.
                let is_turn = matches!(call.content, CallContent::Agent(_));
                let usage = is_turn.then_some(Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() });
                Ok(Reply { facts: calls.into_iter().collect(), response, usage, ..Reply::default() })
            }
            Err(failure) => {
                // A class such as `Status503` is an answer with this status.
                let status = failure.class.strip_prefix("Status").map(str::to_owned);
                // The new definition of the tool, for a call that was not sent because its tool has changed.
                let changed =
                    (failure.class == "ToolChanged").then(|| (FACT_CHANGED.to_owned(), failure.message.clone()));
                Err(Failure {
                    retryable: matches!(failure.class.as_str(), "Unreachable" | NO_ROOM)
                        || (failure.class == "Timeout" && call.idempotent)
                        || status.as_deref() == Some("503"),
                    unknown: failure.class == "Timeout" && !call.idempotent,
                    class: match failure.class.as_str() {
                        _ if status.is_some() => "Status".to_owned(),
                        NO_ROOM => "TooLarge".to_owned(),
                        _ => failure.class,
                    },
                    message: failure.message,
                    not_before: None,
                    facts: status.map(|status| ("statusCode".to_owned(), status)).into_iter().chain(changed).collect(),
                    log: None,
                })
            }
        }
    }
}

/// Returns a request to a server of tools, and whether the definition is compared right before.
fn request_to_server(mcp: &McpCall) -> Value {
    let mut what = serde_json::to_value(mcp).unwrap();
    if let McpRequest::Call(call) = &mcp.request {
        what["isCompared"] = json!(call.is_compared);
    }
    what
}
