//! Long runs: the cost of a step for the API server in a run of ten steps and in one of a thousand, a loop of two. Each
//! step calls an address, so that the operator commits after each of them.
//!
//! **Invariant:** nothing is called but the service that it starts itself, on a loopback address.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use signoff_tests::control_plane::OperatorProcess;
use signoff_tests::say;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::runs;
use crate::counters::Counters;
use crate::crowd;
use crate::harness::Harness;
use crate::processors::{API_SERVER, Reading, Used};
use crate::sample;

/// Steps of a short run.
const SHORT: usize = 10;
/// Characters of an answer.
const ANSWER: usize = 200;
/// The service's address: the API server is at 127.0.0.1, which no run may call.
const ADDRESS: &str = "127.0.0.6";

/// All figures.
pub(super) struct LongRuns {
    /// Chains of ten steps.
    pub(super) short: Steps,
    /// A loop of two steps, with as many visits as all short runs have steps.
    pub(super) looped: Steps,
}

/// The shape of a run's steps.
#[derive(Clone, Copy)]
enum Shape {
    Chain,
    Loop,
}

/// Runs of the same length, one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    /// Steps of one run.
    pub(super) a_run: usize,
    /// Steps of all runs.
    pub(super) all: usize,
    pub(super) took: Duration,
    pub(super) state_writes: f64,
    pub(super) used: Used,
}

impl Steps {
    /// Returns the API server's processor time per step, in milliseconds.
    pub(super) fn api_server_ms(&self) -> f64 {
        self.used.cpu(API_SERVER).as_secs_f64() * 1000.0 / self.all as f64
    }
}

impl LongRuns {
    /// Measures short runs, a long loop, and short runs again: as many steps in short runs as in the loop.
    pub(super) async fn measure(harness: &Harness, steps: usize) -> Result<Self> {
        let service = Service::start().await?;
        let operator = harness.operator_with_arguments(&["--allow-address", "127.0.0.0/8"]).await?;
        let half = (steps / SHORT).div_ceil(2);
        say::step(&format!("{half} runs of {SHORT} steps"));
        let before = measure(harness, &operator, &service, Shape::Chain, SHORT, half).await?;
        say::step(&format!("a run of {steps} steps in a loop"));
        let looped = measure(harness, &operator, &service, Shape::Loop, steps, 1).await?;
        say::step(&format!("{half} runs of {SHORT} steps again"));
        let after = measure(harness, &operator, &service, Shape::Chain, SHORT, half).await?;
        operator.stop().await?;
        let short = Steps {
            a_run: SHORT,
            all: before.all + after.all,
            took: before.took + after.took,
            state_writes: before.state_writes + after.state_writes,
            used: before.used + after.used,
        };
        Ok(Self { short, looped })
    }

    /// Returns the API server's processor time per step of the long loop, divided by the time per step of a short run.
    pub(super) fn ratio_of_the_loop(&self) -> f64 {
        self.looped.api_server_ms() / self.short.api_server_ms()
    }
}

/// Runs `count` runs of this number of steps to their end, one after the other.
async fn measure(
    harness: &Harness,
    operator: &OperatorProcess,
    service: &Service,
    shape: Shape,
    steps: usize,
    count: usize,
) -> Result<Steps> {
    let namespace = harness.namespace().await?;
    let workflows = sample::path(&namespace, "workflows");
    let idle = Counters::read_at_rest(operator).await?.requests();
    let before = Reading::take(harness, Some(operator))?;
    let began = Instant::now();
    let limit = Duration::from_secs(60) + Duration::from_secs(1) * u32::try_from(steps)?;
    for index in 0..count {
        let name = sample::name(index);
        let body = serde_json::to_vec(&workflow(&name, shape.spec(&service.url(), steps)))?;
        crowd::post(&harness.requester, &workflows, body).await?;
        let watch = runs::watch_ends(harness, &namespace).await?;
        let ending = runs::wait_for_ends(watch, index + 1);
        runs::with_time_limit(limit, operator, &format!("the run {name} of {steps} steps has not ended"), ending)
            .await?;
    }
    let took = began.elapsed();
    let (rest, after) = Counters::read_at_rest_with(operator, || Reading::take(harness, Some(operator))).await?;
    let state_writes = (rest.requests() - idle).state_writes();
    Ok(Steps { a_run: steps, all: steps * count, took, state_writes, used: after.since(&before) })
}

impl Shape {
    /// Returns a spec of this number of steps; a loop has at most 1,000.
    fn spec(self, url: &str, steps: usize) -> Value {
        match self {
            Self::Chain => chain(url, steps),
            Self::Loop => two_in_a_loop(url, steps),
        }
    }
}

/// Returns a chain of calls, each of which renders a part of the answer before it.
fn chain(url: &str, steps: usize) -> Value {
    let step = |index: usize| {
        let newest = if index == 0 { "" } else { "{{ last_response[:9] }}" };
        json!({"name": format!("step-{index}"), "http": {"method": "GET", "url": format!("{url}{newest}")}})
    };
    json!({"steps": (0..steps).map(step).collect::<Vec<_>>()})
}

/// Returns two calls that follow each other until this number of steps is done; the last step is no call.
fn two_in_a_loop(url: &str, steps: usize) -> Value {
    let each = (steps - 1) / 2;
    let call = |name| json!({"name": name, "http": {"method": "GET", "url": url}});
    json!({
        "pattern": {"graph": {"maxIterations": each, "maxSteps": steps, "edges": [
            {"from": "ping", "to": "pong"},
            {"from": "pong", "choose": [
                {"when": format!("size(steps.pong.visits) < {each}"), "to": "ping"},
                {"when": "else", "to": "end"},
            ]},
        ]}},
        "steps": [call("ping"), call("pong"), {"name": "end", "set": {"value": "done"}}],
    })
}

fn workflow(name: &str, mut spec: Value) -> Value {
    // Admission stamps the requester where the name is empty.
    spec["requestedBy"] = json!("");
    json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec})
}

/// An HTTP service that gives every request the same answer. It ends when it is dropped.
struct Service {
    port: u16,
    _tasks: JoinSet<()>,
}

impl Service {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind((ADDRESS, 0)).await?;
        let port = listener.local_addr()?.port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                // The caller reports a connection that breaks: its step fails.
                connections.spawn(async move { drop(answer(connection).await) });
            }
        });
        Ok(Self { port, _tasks: tasks })
    }

    fn url(&self) -> String {
        format!("http://{ADDRESS}:{}/", self.port)
    }
}

/// Answers the requests of one connection, which must have no bodies, until the caller closes it.
async fn answer(connection: TcpStream) -> std::io::Result<()> {
    let mut connection = BufReader::new(connection);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {ANSWER}\r\n\r\n{}",
        "x".repeat(ANSWER)
    );
    let mut line = String::new();
    loop {
        line.clear();
        if connection.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        // An empty line ends the head.
        if line == "\r\n" {
            connection.write_all(answer.as_bytes()).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn the_chain_is_a_workflow_that_the_types_know() {
        let spec = Shape::Chain.spec("http://x/", SHORT);
        let workflow: signoff_api::Workflow = serde_json::from_value(workflow("w", spec)).unwrap();
        assert_eq!(workflow.spec.steps.len(), SHORT);
        assert!(workflow.spec.steps.iter().all(|step| step.http.is_some()));
    }

    #[test]
    fn the_long_loop_is_one_that_can_be_planned() {
        let mut object = workflow("w", Shape::Loop.spec("http://x/", 1000));
        object["metadata"]["uid"] = json!("u");
        // Admission sets the requester.
        object["spec"]["requestedBy"] = json!("dana");
        let workflow: signoff_api::Workflow = serde_json::from_value(object).unwrap();
        let policies = std::sync::Arc::default();
        signoff_engine::Plan::of(&workflow, &signoff_engine::Settings::default(), &policies).unwrap();
    }

    #[tokio::test]
    async fn the_service_answers_each_request_of_a_connection() {
        let service = Service::start().await.unwrap();
        let mut connection = TcpStream::connect((ADDRESS, service.port)).await.unwrap();
        for _ in 0..2 {
            connection.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut answer = vec![0; 300];
            let mut read = 0;
            while !answer[..read].ends_with(&[b'x'; ANSWER]) {
                read += connection.read(&mut answer[read..]).await.unwrap();
            }
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        }
    }

    #[test]
    fn the_ratio_is_that_of_a_steps_processor_time() {
        let steps = |all, seconds| Steps {
            all,
            used: Used::of_one(API_SERVER, Duration::from_secs(seconds)),
            ..Steps::default()
        };
        let runs = LongRuns { short: steps(100, 1), looped: steps(1000, 15) };
        assert!((runs.ratio_of_the_loop() - 1.5).abs() < 1e-9);
    }
}
