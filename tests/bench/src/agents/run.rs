//! Many agents at once with the operator, each in a Workflow of its own. A run that does not succeed is an error.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join;
use serde_json::{Value, json};
use signoff_tests::mcp::McpVersion;

use super::Load;
use crate::counters::Counters;
use crate::gates::{wait_for_ends, watch_ends, with_time_limit};
use crate::harness::Harness;
use crate::processors::{API_SERVER, OPERATOR, Reading, Used};
use crate::server::{SERVER, Server, TOOL};
use crate::{crowd, sample};

/// The way in which the tool is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CalledBy {
    Http,
    Mcp(McpVersion),
}

/// The figures of a run of several agents.
pub(super) struct Run {
    pub(super) called_by: CalledBy,
    /// The calls of each turn.
    pub(super) calls: usize,
    /// The duration from the first Workflow sent to the watch event of the end of the last.
    pub(super) took: Duration,
    pub(super) state_writes: f64,
    pub(super) reads: f64,
    pub(super) used: Used,
}

impl Run {
    pub(super) async fn measure(
        harness: &Harness,
        server: &Server,
        load: Load,
        (called_by, calls): (CalledBy, usize),
    ) -> Result<Self> {
        // More calls at once than agents: turns are measured, not the limits of calls.
        let arguments = ["--allow-address", "127.0.0.0/8", "--max-calls", "4000"];
        let operator = harness.operator_with_arguments(&arguments).await?;
        let namespace = harness.namespace().await?;
        let workflows = sample::path(&namespace, "workflows");
        let idle = Counters::read_at_rest(&operator).await?.requests();
        let watch = watch_ends(harness, &namespace).await?;
        let before = Reading::take(harness, Some(&operator))?;
        let began = Instant::now();
        let applying = crowd::each(load.agents, load.agents, async |index| {
            let mut workflow = workflow(&sample::name(index), server, load.turns, calls);
            if let CalledBy::Mcp(version) = called_by {
                call_server(&mut workflow, server, version);
            }
            let body = serde_json::to_vec(&workflow)?;
            crowd::post(&harness.requester, &workflows, body).await.map(drop)
        });
        let limit = Duration::from_secs(60) + Duration::from_millis(200) * u32::try_from(load.turns())?;
        let acting = try_join(wait_for_ends(watch, load.agents), applying);
        let (ended, _) = with_time_limit(limit, &operator, "not all agents have answered", acting).await?;
        let took = ended.values().max().copied().unwrap_or(began) - began;
        let (rest, after) = Counters::read_at_rest_with(&operator, || Reading::take(harness, Some(&operator))).await?;
        let requests = rest.requests() - idle;
        operator.stop().await?;
        let used = after.since(&before);
        Ok(Self { called_by, calls, took, state_writes: requests.state_writes(), reads: requests.reads, used })
    }

    pub(super) fn turns_per_second(&self, load: Load) -> f64 {
        load.turns() as f64 / self.took.as_secs_f64()
    }

    /// Returns the operator's processor time per turn, in milliseconds.
    pub(super) fn operator_ms(&self, load: Load) -> f64 {
        self.ms_per_turn(OPERATOR, load)
    }

    /// Returns the API server's processor time per turn, in milliseconds.
    pub(super) fn api_server_ms(&self, load: Load) -> f64 {
        self.ms_per_turn(API_SERVER, load)
    }

    fn ms_per_turn(&self, process: &str, load: Load) -> f64 {
        self.used.cpu(process).as_secs_f64() * 1000.0 / load.turns() as f64
    }
}

/// Returns a Workflow of an agent with one tool that reads, so that no person decides on its calls.
pub(crate) fn workflow(name: &str, server: &Server, turns: usize, calls: usize) -> Value {
    let parameters = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}});
    json!({
        "apiVersion": "signoff.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {
            // Admission stamps the requester where the name is empty.
            "requestedBy": "",
            "providers": [{"name": "models", "openai": {"baseURL": server.provider()}}],
            "agents": [{
                "name": "clerk", "model": "m", "tools": [TOOL],
                "limits": {"turns": turns + 1, "calls": turns * calls},
            }],
            "tools": [{
                "name": TOOL, "step": "find", "description": "Finds an order.", "effects": "read", "parameters": parameters,
            }],
            "steps": [
                {"name": "handle", "agent": {"name": "clerk", "input": "help"}},
                {"name": "find", "http": {"url": format!("{}{{{{ args.id }}}}", server.tool())}},
            ],
        },
    })
}

/// Lets the agent call the tool of the MCP server instead.
fn call_server(workflow: &mut Value, server: &Server, version: McpVersion) {
    let spec = &mut workflow["spec"];
    spec["providers"][0]["openai"]["baseURL"] = server.provider_of_server().into();
    spec["servers"] = json!([{"name": SERVER, "url": server.mcp(version), "read": [TOOL]}]);
    spec["agents"][0]["tools"] = json!([format!("{SERVER}.{TOOL}")]);
    spec["tools"] = json!([]);
    spec["steps"] = json!([spec["steps"][0]]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn the_agent_is_a_workflow_that_can_be_planned() {
        let server = Server::start(99, 4, Duration::ZERO).await.unwrap();
        for version in [None, Some(McpVersion::Stateless), Some(McpVersion::Session)] {
            let mut object = workflow("w", &server, 99, 4);
            if let Some(version) = version {
                call_server(&mut object, &server, version);
            }
            object["metadata"]["uid"] = json!("u");
            // Admission sets the requester.
            object["spec"]["requestedBy"] = json!("dana");
            let workflow: signoff_api::Workflow = serde_json::from_value(object).unwrap();
            let policies = std::sync::Arc::default();
            signoff_engine::Plan::of(&workflow, &signoff_engine::Settings::default(), &policies).unwrap();
        }
    }
}
