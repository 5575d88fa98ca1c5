//! `cargo xtask demo --agents`: an agent with tools and people who decide on its calls, from its question to its
//! letter. Every act is compared with the log of the tools.

mod servers;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use signoff_tests::chat_completions::Told;
use signoff_tests::control_plane::{Cluster, binary};
use signoff_tests::crm::Crm;
use signoff_tests::loopback::Loopback;
use signoff_tests::say;

use super::harness::Harness;
use super::person;
use super::play::expect;
use super::show;
use servers::{LETTER, QUESTION};

const RUN: &str = "acme";
const WORKFLOW: &str = include_str!("agents/workflow.yaml");
const CUSTOMER: &str = r#"get_customer {"name":"ACME"}"#;
const REFUND: &str = r#"refund {"amount":380,"order":"4711"}"#;

/// The environment of the story: the cluster, the model, the tools and the CRM.
struct AgentDemo {
    harness: Harness,
    model: Loopback,
    tools: Loopback,
    /// An MCP server.
    crm: Crm,
    /// Whether a person at the terminal starts each act.
    is_manned: bool,
}

/// Builds the programs, and plays the story on a control plane of its own, which is kept until Ctrl-C on request.
pub(super) fn run(is_manned: bool, is_kept: bool) -> Result<ExitCode> {
    let programs = super::build()?;
    // Builds the control plane if it is missing.
    drop(binary()?);
    let started = Instant::now();
    tokio::runtime::Runtime::new()?.block_on(async {
        let outcome = tokio::select! {
            outcome = play(&programs, is_manned, started) => outcome,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; everything that was started has been stopped"),
        };
        let stage = outcome?;
        if is_kept {
            let [model, tools, crm] = [stage.model.url(), stage.tools.url(), stage.crm.url()];
            let servers = format!("The model answers at {model}, the tools at {tools}, the MCP server at {crm}");
            show::print_contexts(&stage.harness, "examples/tools/refund.yaml", &servers);
            super::keep_running(&stage.harness).await?;
        }
        stage.harness.clear().await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Starts the environment and plays all acts. After an error, prints the end of the operator's log.
async fn play(programs: &Path, is_manned: bool, started: Instant) -> Result<AgentDemo> {
    let step = |text: &str| say::step(&format!("{:4.1} s  {text}", started.elapsed().as_secs_f64()));
    step("starting a control plane, a model that speaks OpenAI's protocol, two tools, and a CRM that speaks MCP");
    let (cluster, model, tools, crm) =
        tokio::try_join!(Cluster::own(), servers::start_model(), servers::start_tools(), Crm::start())?;
    step("installing Signoff by its chart, letting people in, and starting the operator as its own service account");
    let ((), namespace) = tokio::try_join!(cluster.install(&[]), cluster.namespace("agents"))?;
    let addresses = [model.address(), tools.address(), crm.address()];
    let allowed = addresses.map(|address| ["--allow-address".to_owned(), address.to_string()]);
    let harness = Harness::open(cluster, namespace, programs, allowed.concat(), false).await?;
    step("ready");
    let mut stage = AgentDemo { harness, model, tools, crm, is_manned };
    if let Err(error) = play_acts(&stage).await {
        stage.harness.report_failure().await;
        return Err(error);
    }
    Ok(stage)
}

async fn play_acts(stage: &AgentDemo) -> Result<()> {
    show::print_exports(&stage.harness);
    let question = start_run(stage).await?;
    let refund = answer_question(stage, &question).await?;
    let edited = edit_refund(stage, &refund).await?;
    let late = approve_refund(stage, &refund, &edited).await?;
    let letter = reject_refund(stage, &late).await?;
    send_letter(stage, &letter).await?;
    show_run(stage).await?;
    show_results(stage)?;
    show::words("That was the story: every act turned out as told.");
    Ok(())
}

async fn start_run(stage: &AgentDemo) -> Result<String> {
    show::act(
        "1. dana asks, and the agent works",
        "An agent answers a customer. It may look orders up, use the tools of a CRM, write letters, and ask people. It is called by\n\
         its model, which is played by a server on loopback; so are its tools, and the CRM, which speaks MCP. People stand in front\n\
         of refunds and letters. What the CRM lists is recorded once, and only what the author calls reading runs unasked.",
    );
    let mut manifest: Value = serde_saphyr::from_str(WORKFLOW)?;
    manifest["spec"]["providers"][0]["openai"]["baseURL"] = format!("{}/v1", stage.model.url()).into();
    manifest["spec"]["inputs"][0]["value"] = stage.tools.url().into();
    manifest["spec"]["servers"][0]["url"] = stage.crm.url().into();
    let spec = &manifest["spec"];
    let shown = json!({"servers": spec["servers"], "agents": spec["agents"], "gates": spec["gates"]});
    show::output(&serde_saphyr::to_string(&shown)?);
    let file = stage.harness.cluster.folder().join("acme.yaml");
    std::fs::write(&file, serde_saphyr::to_string(&manifest)?)?;
    let applied = stage.harness.kubectl("dana", &["apply", "-f", &file.display().to_string()]).await?;
    expect(&applied, true, &["workflow.signoff.dev/acme created"])?;
    let question = stage.harness.wait_for_approval(RUN, &[]).await?;
    stage.expect_requests(&["GET /orders/4711"])?;
    Ok(question)
}

async fn answer_question(stage: &AgentDemo, question: &str) -> Result<String> {
    show::act(
        "2. The agent asks a question, and alice answers",
        "The two lookups only read, so they ran at once. The answer to a question goes to the agent and approves nothing.",
    );
    let shown = stage.harness.approve("alice", &["show", question]).await?;
    expect(
        &shown,
        true,
        &["This answers the agent; it approves nothing. Do not enter secrets.", QUESTION, "A refund"],
    )?;
    stage.wait_for_enter().await?;
    let answered = stage.harness.approve("alice", &["respond", question, "--choose", "q1=o1"]).await?;
    expect(&answered, true, &["answered"])?;
    let refund = stage.harness.wait_for_approval(RUN, &[question]).await?;
    stage.expect_result("call_0", "ACME: a customer since 2019, with two orders")?;
    stage.expect_result("call_2", "A refund")?;
    stage.expect_crm_calls(&[CUSTOMER])?;
    Ok(refund)
}

async fn edit_refund(stage: &AgentDemo, refund: &str) -> Result<String> {
    show::act(
        "3. The agent refunds too much, and alice edits the call",
        "The request shows the call as it would be sent: the tool, its target, and its arguments. Then the agent's own words, as such.\n\
         Edited arguments are another call.",
    );
    let shown = stage.harness.approve("alice", &["show", refund]).await?;
    let target = format!("tool refund at {}", stage.crm.url());
    expect(
        &shown,
        true,
        &["Refund this amount?", &target, "\"amount\": 420", "crm.refund is listed", "Finance will surely agree."],
    )?;
    stage.wait_for_enter().await?;
    let edit = ["modify", refund, "--set", r#"arguments={"amount":380,"order":"4711"}"#, "--reason", "used for a week"];
    expect(&stage.harness.approve("alice", &edit).await?, true, &["modified"])?;
    let edited = stage.harness.wait_for_approval(RUN, &[refund]).await?;
    stage.expect_crm_calls(&[CUSTOMER])?;
    Ok(edited)
}

async fn approve_refund(stage: &AgentDemo, before: &str, edited: &str) -> Result<String> {
    show::act(
        "4. The gate asks somebody else about the edited call",
        "Who edited a call does not approve it. bob approves 380. The CRM is asked whether the tool is still what bob saw, and 380\n\
         are refunded, once.",
    );
    let refused = stage.harness.approve("alice", &["approve", edited]).await?;
    expect(&refused, false, &["alice@example.com"])?;
    let shown = stage.harness.approve("bob", &["show", edited]).await?;
    expect(&shown, true, &["\"amount\": 380"])?;
    stage.wait_for_enter().await?;
    let approved = stage.harness.approve("bob", &["approve", edited, "--reason", "that is its value"]).await?;
    expect(&approved, true, &["approved"])?;
    let late = stage.harness.wait_for_approval(RUN, &[before, edited]).await?;
    stage.expect_crm_calls(&[CUSTOMER, REFUND])?;
    let result = "A human changed the arguments. This ran: {\"amount\":380,\"order\":\"4711\"}\nrefund 1 is on its way";
    stage.expect_result("call_3", result)?;
    Ok(late)
}

async fn reject_refund(stage: &AgentDemo, late: &str) -> Result<String> {
    show::act(
        "5. A second refund is rejected, and the agent tries it again",
        "The agent is told the reason. The same call is refused without asking: the next request is about the letter.",
    );
    let shown = stage.harness.approve("bob", &["show", late]).await?;
    expect(&shown, true, &["\"order\": \"4712\"", "\"amount\": 80"])?;
    stage.wait_for_enter().await?;
    let rejected = stage.harness.approve("bob", &["reject", late, "--reason", "order 4712 is on time"]).await?;
    expect(&rejected, true, &["rejected"])?;
    let letter = stage.harness.wait_for_approval(RUN, &[late]).await?;
    stage.expect_result("call_4", "Denied by a human: order 4712 is on time")?;
    let waiting = stage.harness.approve("alice", &["list", "--run", RUN]).await?;
    expect(&waiting, true, &[&letter])?;
    ensure!(!waiting.stdout.contains("crm.refund"), "the rejected refund is asked about again");
    Ok(letter)
}

async fn send_letter(stage: &AgentDemo, letter: &str) -> Result<()> {
    show::act("6. alice reads the letter, and it is sent", "It is approved with exactly this text.");
    let shown = stage.harness.approve("alice", &["show", letter]).await?;
    expect(&shown, true, &["Send this letter?", LETTER, "post"])?;
    stage.wait_for_enter().await?;
    expect(&stage.harness.approve("alice", &["approve", letter]).await?, true, &["approved"])
}

async fn show_run(stage: &AgentDemo) -> Result<()> {
    show::act("7. The run", "Every turn, call and decision stands in it.");
    let wait = ["wait", "--for=condition=Complete", "workflow/acme", "--timeout=60s"];
    expect(&stage.harness.kubectl("dana", &wait).await?, true, &["condition met"])?;
    let outputs = stage.harness.kubectl("dana", &["get", "workflow", RUN, "-o", "jsonpath={.status.outputs}"]).await?;
    expect(&outputs, true, &["ACME has a refund for order 4711 and a letter."])?;
    let approvals = stage.harness.kubectl("dana", &["get", "approvals"]).await?;
    expect(&approvals, true, &["Responded", "Modified", "Rejected", "Approved"])?;
    ensure!(approvals.stdout.lines().count() == 1 + 5, "people should have been asked five times");
    Ok(())
}

/// Checks which requests the tools got and which results the model got.
fn show_results(stage: &AgentDemo) -> Result<()> {
    show::act(
        "8. What the tools got, and what the model was told",
        "Each effect once, and one result for each call, under its id and in the model's order.",
    );
    let letter = format!("POST /letters {LETTER}");
    stage.expect_requests(&["GET /orders/4711", &letter])?;
    stage.expect_crm_calls(&[CUSTOMER, REFUND])?;
    let calls = stage.crm.calls().into_iter().map(|call| format!("crm: {call}"));
    show::output(&stage.log().into_iter().chain(calls).map(|line| format!("  {line}\n")).collect::<String>());
    let results = servers::read_last_calls(&stage.model)?;
    let line = |call: &Told| format!("  {} {}: {}\n", call.id, call.tool, call.result.replace('\n', "\n      "));
    show::output(&results.iter().map(line).collect::<String>());
    let ids: Vec<_> = results.iter().map(|call| call.id.as_str()).collect();
    let expected = ["call_0", "call_1", "call_2", "call_3", "call_4", "call_5", "call_6"];
    ensure!(ids == expected, "the model was told of {ids:?}");
    stage.expect_result("call_1", "order 4711: 420 EUR, delivered on Monday")?;
    stage.expect_result("call_5", "Already refused by a human: order 4712 is on time")?;
    stage.expect_result("call_6", "the letter is sent")
}

impl AgentDemo {
    /// Returns the requests that the HTTP tools got, a line each.
    fn log(&self) -> Vec<String> {
        let line = |what: &str, body: &str| format!("{what} {body}").trim_end().to_owned();
        self.tools.received().iter().map(|got| line(&got.what, &got.body)).collect()
    }

    /// Fails unless the CRM got exactly these calls so far.
    fn expect_crm_calls(&self, expected: &[&str]) -> Result<()> {
        let calls = self.crm.calls();
        ensure!(calls == expected, "the CRM should have got {expected:?}, and got {calls:?}");
        Ok(())
    }

    /// Fails unless the HTTP tools got exactly these requests so far.
    fn expect_requests(&self, expected: &[&str]) -> Result<()> {
        let log = self.log();
        ensure!(log == expected, "the tools should have got {expected:?}, and got {log:?}");
        Ok(())
    }

    /// Fails unless the model got this result for a call.
    fn expect_result(&self, id: &str, expected: &str) -> Result<()> {
        let results = servers::read_last_calls(&self.model)?;
        let result = results.iter().find(|call| call.id == id).map(|call| call.result.as_str());
        ensure!(result == Some(expected), "of {id} the model should be told {expected:?}, and was told {result:?}");
        Ok(())
    }

    /// Waits for the person at the terminal, if there is one.
    async fn wait_for_enter(&self) -> Result<()> {
        if self.is_manned {
            person::wait_for_enter().await?;
        }
        Ok(())
    }
}
