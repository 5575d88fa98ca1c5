//! `cargo xtask demo --inbox`: runs of every kind that wait, and the page on which people decide on them. With
//! `--script` a real browser plays all people. People also get mails, which stay in a folder. An act with an unexpected
//! result ends the demo.

mod acts;
mod mails;
mod seat;
mod stage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use signoff_tests::browser::{Node, chromium};
use signoff_tests::cargo::metadata;
use signoff_tests::control_plane::{binary, named};
use signoff_tests::say;

use super::{RENEW_EVERY, show};
use stage::Stage;

/// The people, and what to try as each of them.
const PEOPLE: [(&str, &str); 4] = [
    ("alice", "of finance and finance-leads: decides everything here"),
    ("bob", "of finance: gives the second of two votes"),
    ("carol", "of finance too"),
    ("dana", "asked for all of it: what she may not decide says why"),
];

/// Starts the demo. With `is_script` a browser plays all people, and its screenshots go into `pictures`. Otherwise the
/// page runs until Ctrl-C.
pub(super) fn run(is_script: bool, pictures: Option<PathBuf>) -> Result<ExitCode> {
    let programs = super::build()?;
    // Builds the control plane if it is missing.
    binary()?;
    let pictures = if is_script {
        // A missing program fails the demo before anything is started.
        Node::find()?;
        chromium()?;
        let folder = pictures.map_or_else(|| Ok(metadata()?.target_directory.join("inbox-pictures")), anyhow::Ok)?;
        let folder = std::path::absolute(folder)?;
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Some(folder)
    } else {
        None
    };
    let mails = mails::create_folder()?;
    let started = Instant::now();
    tokio::runtime::Runtime::new()?.block_on(async {
        tokio::select! {
            outcome = play(&programs, (pictures.as_deref(), &mails), started) => outcome,
            _ = tokio::signal::ctrl_c(), if is_script => bail!("interrupted; everything that was started has been stopped"),
            ended = tokio::signal::ctrl_c(), if !is_script => Ok(ended.map(|()| ExitCode::SUCCESS)?),
        }
    })
}

async fn play(programs: &Path, (pictures, mails): (Option<&Path>, &Path), started: Instant) -> Result<ExitCode> {
    let mut stage = Stage::start(programs, pictures.is_some(), mails, started).await?;
    let outcome = match (mails::show_first(&stage).await, pictures) {
        (Err(error), _) => Err(error),
        (Ok(()), Some(folder)) => acts::play(&stage, folder).await,
        (Ok(()), None) => keep_running(&stage).await,
    };
    if let Err(error) = outcome {
        stage.report_failure().await;
        return Err(error);
    }
    if let Some(folder) = pictures {
        show::words(&format!(
            "That was the story: every act turned out as told. The pictures are in {}",
            folder.display()
        ));
    }
    stage.clear().await?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the address of the page and the people who can sign in, and renews the operator's token until Ctrl-C.
async fn keep_running(stage: &Stage) -> Result<()> {
    show::act("The inbox", "Seven runs wait, all asked for by dana. Everything stays as it is until Ctrl-C.");
    show::words(&format!("{}\n", stage.web.url()));
    match &stage.issuer {
        Some(issuer) => show::words(&format!(
            "Sign in with the issuer: it takes everybody at their word, by one of these addresses. It is {}, with\n\
             a certificate that was made for this run, so your browser asks whether you trust it.\n",
            issuer.issuer().url
        )),
        None => show::words("There is no issuer, because Node.js is missing: sign in with a token.\n"),
    }
    for (name, what) in PEOPLE {
        show::words(&format!("{:<18} {what}", named(name)?.user));
    }
    show::words(
        "\nOr paste a token. These are test tokens of this throw-away cluster, and good for nothing once it has ended:\n",
    );
    for (name, _) in PEOPLE {
        show::words(&format!("{name:<6} {}", stage.token(name)?));
    }
    show::words(&format!(
        "\nThe letter box is {}; the logs are in {}",
        stage.letterbox.url(),
        stage.harness.cluster.logs().display()
    ));
    show::words(&format!(
        "\nIn another terminal, for kubectl and the plugin:\n{}export SIGNOFF_WEB={}\nkubectl approve list --context alice -n {}",
        show::exports_of(&stage.harness),
        stage.web.url(),
        stage.harness.namespace.name
    ));
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        say::step("a new token for the operator");
        stage.harness.renew().await?;
    }
}
