//! The same agents without an operator: a loop in memory that asks the provider, calls the tool, and asks again. It is
//! the baseline, with no journal, no gates and no recovery.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Load;
use crate::server::{ANSWER, Server};
use crate::{crowd, process};

/// Many agents in a bare loop, at once.
pub(super) struct BareLoop {
    pub(super) took: Duration,
    /// Processors that other processes used at the same time.
    pub(super) others: f64,
}

impl BareLoop {
    pub(super) async fn measure(server: &Server, load: Load) -> Result<Self> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let own = || process::cpu(std::process::id());
        let (began, machine, before) = (Instant::now(), process::machine()?, own()?);
        let made = crowd::each(load.agents, load.agents, async |_| run_agent(&client, server).await).await?;
        let took = began.elapsed();
        ensure!(made.iter().all(|turns| *turns == load.turns), "an agent of the bare loop made {made:?} turns");
        let used = process::machine()?.saturating_sub(machine).saturating_sub(own()?.saturating_sub(before));
        Ok(Self { took, others: used.as_secs_f64() / took.as_secs_f64() })
    }

    pub(super) fn turns_per_second(&self, load: Load) -> f64 {
        load.turns() as f64 / self.took.as_secs_f64()
    }
}

/// Runs one agent to its answer. Returns its turns with calls.
async fn run_agent(client: &reqwest::Client, server: &Server) -> Result<usize> {
    let url = format!("{}/chat/completions", server.provider());
    let mut messages = vec![json!({"role": "user", "content": "help"})];
    for turns in 0.. {
        let body = json!({"model": "m", "messages": messages});
        let answer: Value = client.post(&url).json(&body).send().await?.error_for_status()?.json().await?;
        let message = &answer["choices"][0]["message"];
        if message["content"] == ANSWER {
            return Ok(turns);
        }
        messages.push(message.clone());
        let calls = message["tool_calls"].as_array().context("a turn with neither calls nor the answer")?;
        let results = futures::future::try_join_all(calls.iter().map(|call| call_tool(client, server, call))).await?;
        messages.extend(results);
    }
    Ok(0)
}

/// Makes one call of the tool, and returns its result as a message.
async fn call_tool(client: &reqwest::Client, server: &Server, call: &Value) -> Result<Value> {
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap_or_default())?;
    let url = format!("{}{}", server.tool(), arguments["id"]);
    let text = client.get(url).send().await?.error_for_status()?.text().await?;
    Ok(json!({"role": "tool", "tool_call_id": call["id"], "content": text}))
}
