//! Runs without a cluster: the engine and the calls of an operator over a folder of files.
//!
//! A session is a folder with a Workflow, its Approvals and its large values as files. A transition is written before
//! any of its commands runs. Finished calls and decisions lead to the next transition, and nothing is polled. The
//! identity of people is not verified: every user who can write the folder can decide.
//!
//! Gates are answered by a [`Handler`], which may be a closure:
//!
//! ```
//! use signoff_api::{Decision, Verdict};
//! use signoff_engine::End;
//! use signoff_local::{RunOutcome, Local, Sessions, from_yaml};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # let folder = tempfile::tempdir()?;
//! let workflow = from_yaml(
//!     "{apiVersion: signoff.dev/v1alpha1, kind: Workflow, metadata: {name: greeting}, spec: {steps: [
//!         {name: draft, set: {value: Dear all}},
//!         {name: review, hitl: {prompt: Send it?, approvers: [{kind: User, name: dana}]}},
//!     ]}}",
//!     "dana",
//! )?;
//! let local = Local::new(Sessions::new(folder.path()), "dana")?
//!     .handler(|request: &signoff_api::ApprovalRequest| {
//!         (request.prompt == "Send it?").then(|| Decision::new(Verdict::Approve))
//!     });
//! let ended = runtime.block_on(async { local.begin(workflow)?.go().await })?;
//! assert_eq!(ended, RunOutcome::Over(End::Succeeded("approved".into())));
//! # Ok(())
//! # }
//! ```
//!
//! Without an answer the run pauses, and any process can resume it later:
//!
//! ```
//! # use signoff_api::{Decision, Verdict};
//! # use signoff_local::{RunOutcome, Local, Sessions, from_yaml};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # let folder = tempfile::tempdir()?;
//! # let workflow = from_yaml("{kind: Workflow, metadata: {name: ask}, spec: {steps: [
//! #     {name: ask, hitl: {prompt: Which city?, approvers: [{kind: User, name: dana}]}}]}}", "dana")?;
//! # runtime.block_on(async {
//! let local = Local::new(Sessions::new(folder.path()), "dana")?;
//! let mut run = local.begin(workflow)?;
//! assert_eq!(run.go().await?, RunOutcome::Paused);
//! let id = run.id().to_owned();
//! drop(run); // releases the session
//!
//! let mut run = local.resume(&id).await?;
//! let gate = run.pending()[0].metadata.name.clone().unwrap_or_default();
//! let lisbon = Decision { response: Some("Lisbon".into()), ..Decision::new(Verdict::Respond) };
//! run.decide(&gate, "dana", lisbon).await?;
//! assert!(matches!(run.go().await?, RunOutcome::Over(_)));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })
//! # }
//! ```

mod admission;
mod atomic_file;
mod blobs;
mod commands;
mod error;
mod handler;
mod history;
#[doc(hidden)] // for the fuzz driver of sessions
pub mod object;
mod outputs;
mod parse_answer;
mod run;
#[cfg(test)]
mod sample;
mod secrets;
mod session;
mod source;
mod stop;
mod tool_servers;
mod wait;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use signoff_api::{
    Moment, Workflow,
    journal::{self, StepKind, StepRecord},
    rules::RULES,
};
use signoff_engine::{Journal, Plan, Policies, Settings, journal::Segments, plan::spec_digest};

pub use admission::{admit, barred};
pub use commands::WorkflowCommand;
pub use error::Error;
pub use handler::{Event, GateQuestion, Handler, Pause};
pub use history::{Decided, history};
pub use outputs::{OutputError, write_outputs};
pub use parse_answer::{decision_of, mistyped};
pub use run::{DecisionError, DecisionOutcome, Run, RunOutcome};
pub use secrets::LocalSecrets;
pub use session::{Sessions, Snapshot, owner};
pub use source::{SourceError, from_yaml};
pub use stop::Stop;

use signoff_executor::{
    AddressSettings, CallError, Caller, Clock, DefaultCaller, Evaluator, Http, HttpClient, Model, Providers, Secrets,
    http::HttpSettings,
};
use signoff_mcp::McpClient;

use tool_servers::LocalToolServers;

/// The default namespace of runs.
const NAMESPACE: &str = "local";

/// The default maximum number of calls of a run in flight.
const MAX_CALLS: usize = 8;

/// The settings of local runs. Clones share them.
#[derive(Clone)]
pub struct Local {
    sessions: Sessions,
    user: String,
    decider: String,
    handler: Arc<dyn Handler>,
    /// The caller that replaces real calls. `None` for real calls.
    caller: Option<Arc<dyn Caller>>,
    clients: Clients,
    /// The confirmed commands; `None` if servers must not be commands.
    commands: Option<Vec<WorkflowCommand>>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    max_calls: usize,
    stop: Stop,
    evaluator: Evaluator,
}

/// The clients of real calls, which all runs share.
#[derive(Clone)]
struct Clients {
    http: Arc<dyn Http>,
    models: Arc<dyn Model>,
    secrets: Arc<dyn Secrets>,
    servers: Arc<McpClient>,
    clock: Arc<dyn Clock>,
}

impl Local {
    /// Returns the settings of local runs of a user, with sessions in a folder. Calls can reach this machine and its
    /// network. Secrets come from the environment, and every gate pauses.
    ///
    /// # Errors
    /// Calls are impossible, because this machine has no CA certificates.
    pub fn new(sessions: Sessions, user: &str) -> Result<Self, CallError> {
        Self::with_secrets(sessions, user, LocalSecrets::default())
    }

    /// Returns the settings of [`Local::new`] with other secrets.
    ///
    /// # Errors
    /// As [`Local::new`].
    pub fn with_secrets(sessions: Sessions, user: &str, secrets: LocalSecrets) -> Result<Self, CallError> {
        let addresses = AddressSettings::default().with_loopback();
        let http = HttpClient::new(HttpSettings { addresses, ..HttpSettings::default() })?;
        let clock: Arc<dyn Clock> = Arc::new(jiff::Timestamp::now);
        let clients = Clients {
            models: Arc::new(Providers::new(http.clone())),
            servers: Arc::new(McpClient::new(http.clone())),
            http: Arc::new(http),
            secrets: Arc::new(secrets),
            clock: Arc::clone(&clock),
        };
        Ok(Self {
            sessions,
            user: user.to_owned(),
            decider: user.to_owned(),
            handler: Arc::new(Pause),
            caller: None,
            clients,
            commands: None,
            clock,
            settings: Settings::default(),
            max_calls: MAX_CALLS,
            stop: Stop::default(),
            evaluator: Evaluator::inline(),
        })
    }

    /// Sets the handler, which answers gates and is notified of events.
    #[must_use]
    pub fn handler(mut self, handler: impl Handler + 'static) -> Self {
        self.handler = Arc::new(handler);
        self
    }

    /// Sets the user in whose name the handler decides. Default: the requester. The name is not verified.
    #[must_use]
    pub fn decider(mut self, user: &str) -> Self {
        user.clone_into(&mut self.decider);
        self
    }

    /// Sets the caller that replaces real calls.
    #[must_use]
    pub fn caller(mut self, caller: impl Caller + 'static) -> Self {
        self.caller = Some(Arc::new(caller));
        self
    }

    /// Allows servers of Workflows that are one of these commands, which a person has confirmed. Each run starts its
    /// own servers, which end with it.
    #[must_use]
    pub fn commands(mut self, confirmed: Vec<WorkflowCommand>) -> Self {
        self.commands = Some(confirmed);
        self
    }

    /// Waits until servers of tools were notified of the end of each session, for a few seconds at most. A program
    /// calls this before it ends.
    pub async fn settled(&self) {
        self.clients.servers.settled().await;
    }

    /// Sets the clock for times in objects and for deadlines. Default: this machine's clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the default timeout of gates, and the maximum number of calls in flight.
    #[must_use]
    pub fn limits(mut self, settings: Settings, max_calls: usize) -> Self {
        (self.settings, self.max_calls) = (settings, max_calls.max(1));
        self
    }

    /// Sets the default timeout of gates before calls of tools.
    #[must_use]
    pub fn call_gate_timeout(mut self, timeout: Duration) -> Self {
        self.settings.default_call_gate_timeout = timeout;
        self
    }

    /// Sets the evaluator for text of Workflows and answers. With an evaluator of its own threads, a run that is asked
    /// to pause during an evaluation ends immediately.
    #[must_use]
    pub fn evaluator(mut self, evaluator: Evaluator) -> Self {
        self.evaluator = evaluator;
        self
    }

    /// Returns the handle to pause these runs.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Creates a session of a Workflow. The session sets status, uid and times.
    ///
    /// # Errors
    /// [`Error::Invalid`] with all errors of the Workflow, [`Error::NeedsCluster`] if a step is a container,
    /// [`Error::Unconfirmed`] if the command of a server is not confirmed; then there is no session. Failures of the
    /// file system.
    pub fn begin(&self, mut workflow: Workflow) -> Result<Run, Error> {
        workflow.status = None;
        let suffix = session::random_suffix(5);
        let metadata = &mut workflow.metadata;
        if metadata.name.is_none()
            && let Some(prefix) = metadata.generate_name.take()
        {
            metadata.name = Some(prefix + &suffix);
        }
        metadata.namespace.get_or_insert_with(|| NAMESPACE.to_owned());
        metadata.uid = Some(random_uid());
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(Time(self.clock.now()));
        workflow.spec.requested_by.clone_from(&self.user);
        let plan = self.plan_run(&workflow)?;
        let caller = self.build_caller(&plan)?;
        if workflow.spec.suspend == Some(true) {
            let why = "a local run has no way to set it to false again: leave it out; ctrl-C pauses, --resume goes on";
            return Err(Error::invalid("spec.suspend", why));
        }
        if workflow.spec.restored == Some(true) {
            let why = "a run from a backup never starts: leave the field out";
            return Err(Error::invalid("spec.restored", why));
        }
        Ok(Run::new(self.clone(), caller, self.sessions.create(workflow)?, plan, Journal::default()))
    }

    /// Opens a session. Deadlines that have passed take effect now; nothing else begins before [`Run::go`].
    ///
    /// # Errors
    /// The session does not exist, has ended, is locked by another process, or is damaged or changed.
    pub async fn resume(&self, id: &str) -> Result<Run, Error> {
        let session = self.sessions.open(id)?;
        let status = session.workflow.status.clone().unwrap_or_default();
        let id = || session.id.clone();
        if status.phase.is_end() {
            return Err(Error::Over { id: id(), phase: status.phase });
        }
        let version = status.journal_version.unwrap_or(journal::VERSION);
        if version > journal::VERSION {
            return Err(Error::TooNew { id: id(), version, most: journal::VERSION });
        }
        if let Some(rules) = status.other_rules() {
            return Err(Error::OtherRules { id: id(), rules, own: RULES });
        }
        // A file has room for every record, so a local run has no segments.
        let mut journal = Journal::of(&status, &Segments::new())
            .map_err(|why| Error::Damaged { file: session.file(), why: why.to_string() })?;
        if let Some(accepted) = status.spec_digest {
            let current = spec_digest(&session.workflow.spec).map_err(|why| Error::invalid("spec", why.to_string()))?;
            if current != accepted {
                return Err(Error::SpecChanged { id: id(), was: accepted, is: current });
            }
        }
        let plan = self.plan_run(&session.workflow)?;
        restart_open_activities(&mut journal, self.clock.now().into());
        let mut run = Run::new(self.clone(), self.build_caller(&plan)?, session, plan, journal);
        run.transition(true).await?;
        Ok(run)
    }

    /// Plans a Workflow. Fails if a step is a container, which only a cluster can run.
    fn plan_run(&self, workflow: &Workflow) -> Result<Plan, Error> {
        let settings = Settings { allow_commands: self.commands.is_some(), ..self.settings.clone() };
        let plan = Plan::of(workflow, &settings, &Arc::new(Policies::default())).map_err(Error::Invalid)?;
        let container = plan.containers().next().map(str::to_owned);
        container.map_or(Ok(plan), |step| Err(Error::NeedsCluster { step }))
    }

    /// Returns the caller of one run, with its own processes for the servers that are commands. Fails if the command of
    /// a server is not confirmed.
    fn build_caller(&self, plan: &Plan) -> Result<Arc<dyn Caller>, Error> {
        let mut commands = BTreeMap::new();
        for server in plan.commands() {
            let confirmed = self.commands.iter().flatten().find(|command| command.is_of(server));
            let confirmed = confirmed.ok_or_else(|| Error::Unconfirmed { server: server.name.clone() })?;
            commands.insert(server.name.clone(), confirmed.clone());
        }
        if let Some(caller) = &self.caller {
            return Ok(Arc::clone(caller));
        }
        let Clients { http, models, secrets, servers, clock } = self.clients.clone();
        let tool_servers = LocalToolServers::new(servers, commands);
        let caller = DefaultCaller::new(http, models, secrets, clock).with_tool_servers(Arc::new(tool_servers));
        Ok(Arc::new(caller))
    }
}

/// Restarts the times of activities that were in flight when the last process ended, because the time in between does
/// not count. Deadlines of gates stay as they are.
fn restart_open_activities(journal: &mut Journal, now: Moment) {
    let is_open = |record: &&StepRecord| !record.phase.is_end() && record.kind != StepKind::Hitl;
    let open: Vec<StepRecord> = journal.records().iter().filter(is_open).cloned().collect();
    for record in open {
        journal.put(StepRecord { at: now, ..record });
    }
}

/// Returns a random uid like those of the API server.
fn random_uid() -> String {
    let bits = fastrand::u128(..);
    let part = |from: u32, digits: u32| (bits >> from) & ((1 << (4 * digits)) - 1);
    format!("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", part(0, 8), part(32, 4), part(48, 3), part(60, 3), part(72, 12))
}
