//! Tests of local runs from begin to end, in one process or in several. Calls are made by a caller of the tests,
//! without a network.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod gates;
mod sessions;
mod stops;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use signoff_api::{Decision, Verdict, Workflow};
use signoff_engine::{
    End,
    transition::{Call, CallContent, Failure, Reply},
};
use tempfile::TempDir;

use super::*;
use signoff_executor::{AnswerRoom, RunRef};

/// A caller that counts calls, answers with their input, and hangs on demand.
#[derive(Clone, Default)]
pub(super) struct Echo {
    calls: Arc<AtomicUsize>,
    inputs: Arc<Mutex<Vec<String>>>,
    began: Arc<tokio::sync::Notify>,
    hangs: bool,
}

impl Echo {
    fn hanging() -> Self {
        Self { hangs: true, ..Self::default() }
    }

    fn count(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Waits until a call has begun.
    async fn began(&self) {
        self.began.notified().await;
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.lock().unwrap().clone()
    }
}

#[async_trait]
impl Caller for Echo {
    async fn call(&self, _: &RunRef, call: Call, _: &dyn AnswerRoom) -> Result<Reply, Failure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let answer = match call.content {
            CallContent::Http(http) => format!("{} {}", http.method, http.body.unwrap_or_default()),
            CallContent::Agent(agent) => agent.messages.last().map(|m| m.text.clone()).unwrap_or_default(),
            CallContent::Mcp(mcp) => panic!("{} is not asked here", mcp.server),
            CallContent::Pod(pod) => panic!("{} runs on a cluster only", pod.name),
        };
        self.inputs.lock().unwrap().push(answer.clone());
        self.began.notify_one();
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(Reply { response: answer.into(), ..Reply::default() })
    }
}

/// Returns a Workflow with a chain of these steps, in YAML's flow style.
pub(super) fn chain(steps: &str) -> Workflow {
    let text = format!("{{kind: Workflow, metadata: {{name: w}}, spec: {{steps: [{steps}]}}}}");
    from_yaml(&text, "dana").unwrap()
}

pub(super) const GATE: &str = "{name: review, hitl: {prompt: Go on?, approvers: [{kind: Group, name: finance}]}}";

pub(super) fn local(folder: &TempDir) -> Local {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Local::new(Sessions::new(folder.path()), "dana").unwrap().caller(Echo::default())
}

pub(super) fn approve() -> Decision {
    Decision::new(Verdict::Approve)
}

/// Begins a run and waits until it pauses. Returns its id and the name of its first gate.
pub(super) async fn begin_until_paused(local: &Local, workflow: Workflow) -> (String, String) {
    let mut run = local.begin(workflow).unwrap();
    assert_eq!(run.go().await.unwrap(), RunOutcome::Paused);
    let gate = run.pending()[0].metadata.name.clone().unwrap();
    (run.id().to_owned(), gate)
}

pub(super) fn succeeded(text: &str) -> RunOutcome {
    RunOutcome::Over(End::Succeeded(text.to_owned()))
}
