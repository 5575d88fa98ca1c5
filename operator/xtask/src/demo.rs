//! `cargo xtask demo`: plays the quickstart example from an empty machine to a posted letter.
//!
//! `--pods` plays an agent whose steps are containers on a real node, `--agents` an agent with tools and people who
//! decide on its calls, and `--inbox` the page on which people decide. Every command that is shown is run, and an act
//! with an unexpected result ends the demo.

mod agents;
mod harness;
mod inbox;
mod letters;
mod person;
mod play;
mod pods;
mod show;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use signoff_tests::cargo::{cargo, metadata, succeeds};
use signoff_tests::control_plane::{binary, clients};
use signoff_tests::say;
use url::Url;

use harness::Harness;
use letters::{Letters, Model};

pub(crate) use show::exports;

/// The environment variable with the key of the model's provider; every user of the machine can read command lines.
const KEY: &str = "SIGNOFF_MODEL_KEY";
/// The interval at which tokens, which are valid for half a day, are renewed.
const RENEW_EVERY: Duration = Duration::from_secs(3 * 3600);

/// The arguments of `cargo xtask demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// Play the demo of pod steps instead, on a real node in Linux namespaces of its own (Linux, root)
    #[arg(long, conflicts_with_all = ["keep", "kubeconfig", "context", "model_url", "model"])]
    pods: bool,
    /// Play the demo of an agent with tools instead, some of an MCP server: it asks a question, its refund is edited, a
    /// second one is rejected, and its letter is sent. On a terminal, Enter goes on with each decision
    #[arg(long, conflicts_with_all = ["pods", "inbox", "kubeconfig", "context", "model_url", "model"])]
    agents: bool,
    /// Start the inbox instead, with seven runs that wait for you, and keep it until Ctrl-C. With --script, a real
    /// browser plays everybody and keeps pictures (Node.js and Chromium). People are told by mail too, where there is
    /// Python: the mails are in inbox-mails of the target folder
    #[arg(long, conflicts_with_all = ["pods", "keep", "kubeconfig", "context", "model_url", "model"])]
    inbox: bool,
    /// The folder for the pictures. Default: inbox-pictures in the target folder
    #[arg(long, value_name = "DIR", requires_all = ["inbox", "script"])]
    pictures: Option<PathBuf>,
    /// Play all people without asking, also on a terminal
    #[arg(long)]
    script: bool,
    /// Keep everything running until Ctrl-C, and print how to use kubectl with it
    #[arg(long)]
    keep: bool,
    /// Use your own cluster instead of a new one. People are impersonated, so the context needs that right
    #[arg(long, value_name = "FILE", requires = "context")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig file; no other context is used
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// The base URL (up to /v1) of a server with OpenAI's chat completions, instead of a scripted model. Its key is
    /// read from the environment variable SIGNOFF_MODEL_KEY
    #[arg(long, value_name = "URL", requires = "model")]
    model_url: Option<Url>,
    /// The name of the model on that server
    #[arg(long, value_name = "NAME", requires = "model_url")]
    model: Option<String>,
}

/// Plays the demo of these options. An act with an unexpected result is an error.
pub(crate) fn run(options: DemoOptions) -> Result<ExitCode> {
    let is_manned = !options.script && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if options.pods {
        return pods::run(is_manned);
    }
    if options.agents {
        return agents::run(is_manned, options.keep);
    }
    if options.inbox {
        return inbox::run(options.script, options.pictures);
    }
    let programs = build()?;
    let user_cluster = options.kubeconfig.zip(options.context);
    // Builds the control plane or the clients if they are missing.
    match user_cluster {
        None => drop(binary()?),
        Some(_) => drop(clients()?),
    }
    let key = std::env::var(KEY).ok().filter(|key| !key.is_empty());
    let model = options.model_url.zip(options.model).map(|(url, name)| Model { url, name, key });
    let started = Instant::now();
    tokio::runtime::Runtime::new()?.block_on(async {
        let outcome = tokio::select! {
            outcome = play_quickstart(user_cluster, model, programs, is_manned, started) => outcome,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; everything that was started has been stopped"),
        };
        let letters = outcome?;
        if options.keep {
            let letterbox = format!("The letter box is {}", letters.letterbox.url());
            show::print_contexts(&letters.harness, "examples/gates/quorum.yaml", &letterbox);
            keep_running(&letters.harness).await?;
        }
        letters.harness.clear().await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Builds all programs, and returns their folder.
fn build() -> Result<PathBuf> {
    say::step("building the programs (minutes the first time, seconds afterwards)");
    if !succeeds(&mut cargo(&["build", "--workspace", "--bins"]))? {
        bail!("the programs do not build");
    }
    Ok(metadata()?.target_directory.join("debug"))
}

/// Starts the quickstart on a cluster, and plays its acts. After an error, prints the end of the operator's log.
async fn play_quickstart(
    user_cluster: Option<(PathBuf, String)>,
    model: Option<Model>,
    programs: PathBuf,
    is_manned: bool,
    started: Instant,
) -> Result<Letters> {
    let mut letters = Letters::start(user_cluster, model, &programs, started).await?;
    match play::play(&letters, is_manned, started).await {
        Ok(()) => Ok(letters),
        Err(error) => {
            letters.harness.report_failure().await;
            Err(error)
        }
    }
}

/// Renews the operator's token regularly until Ctrl-C.
async fn keep_running(harness: &Harness) -> Result<()> {
    loop {
        tokio::select! {
            ended = tokio::signal::ctrl_c() => return Ok(ended?),
            () = tokio::time::sleep(RENEW_EVERY) => harness.renew().await?,
        }
    }
}
