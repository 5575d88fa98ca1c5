//! The story, act by act: each announces what is to happen, does it, and checks the result.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use signoff_expr::text::clean;
use signoff_tests::control_plane::Finished;

use super::letters::Letters;
use super::person::{self, GateOutcome};
use super::show;

const WORKFLOW: &str = "refund-4711";

/// Plays all acts. `started` is the time after all builds, from which durations are shown.
pub(super) async fn play(harness: &Letters, is_manned: bool, started: Instant) -> Result<()> {
    show::print_exports(harness);
    let approval = start_run(harness, started).await?;
    refuse_outsiders(harness, &approval).await?;
    refuse_requester(harness, &approval).await?;
    let draft = harness
        .read("alice", &["get", "approval", &approval, "-o", "jsonpath={.spec.request.reviews.response}"])
        .await?;
    match decide(harness, &approval, &draft, is_manned).await? {
        GateOutcome::Nothing => {
            show::words("Nothing was decided, so nothing was sent: the run would wait until its deadline.");
            return Ok(());
        }
        GateOutcome::Rejected => show_rejection(harness, &approval).await?,
        decided => {
            show_progress(harness, &approval).await?;
            check_letter(harness, &decided, &draft).await?;
        }
    }
    show::words("That was the story: every act turned out as told.");
    Ok(())
}

/// Checks that a command succeeded or failed as expected, and that the output has the expected words.
pub(super) fn expect(finished: &Finished, succeeds: bool, expected: &[&str]) -> Result<()> {
    let output = format!("{}{}", finished.stdout, finished.stderr);
    let should = if succeeds { "succeed" } else { "be refused" };
    ensure!(
        (finished.code == 0) == succeeds,
        "the last command should {should}, and ended with code {}",
        finished.code
    );
    for words in expected {
        ensure!(output.contains(words), "the last command should have said {words:?}");
    }
    Ok(())
}

async fn start_run(harness: &Letters, started: Instant) -> Result<String> {
    show::act(
        "1. dana asks",
        "A model drafts a letter, which is sent only after a second person has read it. dana can only create Workflows.",
    );
    let manifest = harness.manifest.display().to_string();
    expect(
        &harness.kubectl("dana", &["apply", "-f", &manifest]).await?,
        true,
        &["workflow.signoff.dev/refund-4711 created"],
    )?;
    let workflow = format!("workflow/{WORKFLOW}");
    let wait = ["wait", "--for=condition=Waiting", &workflow, "--timeout=60s"];
    expect(&harness.kubectl("dana", &wait).await?, true, &["condition met"])?;
    let approval = harness.read("dana", &["get", &workflow, "-o", "jsonpath={.status.pending[0]}"]).await?;
    ensure!(!approval.is_empty(), "the Workflow waits for no Approval");
    // The run's status is written first, so the Approval may be created a moment later.
    harness.read("dana", &["wait", "--for=create", &format!("approval/{approval}"), "--timeout=60s"]).await?;
    show::words(&format!("(first pending Approval {:.1} s after the start)\n", started.elapsed().as_secs_f64()));
    let got = harness.kubectl("dana", &["get", "workflows,approvals"]).await?;
    expect(&got, true, &["Waiting", "Pending", "dana@example.com", &approval])?;
    Ok(approval)
}

async fn refuse_outsiders(harness: &Letters, approval: &str) -> Result<()> {
    show::act(
        "2. mallory and erin try to decide",
        "mallory has no rights here. erin can decide Approvals, but this one does not list her, and she cannot use alice's name.",
    );
    let vote = |user: &str| format!(r#"{{"spec":{{"decisions":{{"{user}":{{"verdict":"Approve"}}}}}}}}"#);
    let mallory = vote("mallory@example.com");
    let refused = harness.kubectl("mallory", &["patch", "approval", approval, "--type=merge", "-p", &mallory]).await?;
    expect(&refused, false, &["mallory@example.com", "forbidden"])?;
    let refused = harness.approve("erin", &["approve", approval]).await?;
    expect(&refused, false, &["erin@example.com is not an approver of this gate"])?;
    let alice = vote("alice@example.com");
    let refused = harness.kubectl("erin", &["patch", "approval", approval, "--type=merge", "-p", &alice]).await?;
    expect(&refused, false, &["denied request"])
}

async fn refuse_requester(harness: &Letters, approval: &str) -> Result<()> {
    show::act(
        "3. dana tries to approve her own request",
        "She is listed and has the right to approve, but this gate excludes its requester.",
    );
    let refused = harness.approve("dana", &["approve", approval]).await?;
    expect(&refused, false, &["the requester must not decide this gate (excludeRequester)"])
}

async fn decide(harness: &Letters, approval: &str, draft: &str, is_manned: bool) -> Result<GateOutcome> {
    show::act("4. alice reads and decides", "The plugin shows facts first, then the words of others, fenced.");
    expect(&harness.approve("alice", &["list"]).await?, true, &[approval])?;
    expect(
        &harness.approve("alice", &["show", approval]).await?,
        true,
        &["Send this letter to ACME Ltd?", "dana@example.com"],
    )?;
    if is_manned {
        return person::ask_decision(harness, approval, draft).await;
    }
    let decided = harness.approve("alice", &["approve", approval, "--reason", "the numbers are right"]).await?;
    expect(&decided, true, &["approved"])?;
    Ok(GateOutcome::Approved)
}

async fn show_progress(harness: &Letters, approval: &str) -> Result<()> {
    show::act(
        "5. The run goes on by itself",
        "The decision is the run's next event: the letter is sent, and the run ends.",
    );
    let wait = ["wait", "--for=condition=Complete", &format!("workflow/{WORKFLOW}"), "--timeout=60s"];
    expect(&harness.kubectl("dana", &wait).await?, true, &["condition met"])?;
    let got = harness.kubectl("dana", &["get", "workflows,approvals", "-o", "wide"]).await?;
    expect(&got, true, &["Succeeded", "alice@example.com"])?;
    show_records(harness, approval, "Succeeded").await
}

async fn show_rejection(harness: &Letters, approval: &str) -> Result<()> {
    show::act("5. The run ends", "After the Reject nothing is sent, and the run says who rejected.");
    let wait = ["wait", "--for=condition=Finished", &format!("workflow/{WORKFLOW}"), "--timeout=60s"];
    expect(&harness.kubectl("dana", &wait).await?, true, &["condition met"])?;
    let got = harness.kubectl("dana", &["get", "workflows,approvals", "-o", "wide"]).await?;
    expect(&got, true, &["Rejected", "alice@example.com"])?;
    show_records(harness, approval, "Rejected").await?;
    ensure!(harness.letterbox.posted().is_empty(), "a rejected letter was posted: {:?}", harness.letterbox.posted());
    show::words("The letter box got nothing.");
    Ok(())
}

/// Shows conditions, Events, and who decided what.
async fn show_records(harness: &Letters, approval: &str, phase: &str) -> Result<()> {
    show::act("6. The record", "Conditions for programs, Events for people, and who decided what.");
    let lines = r#"jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}"#;
    let conditions = harness.kubectl("dana", &["get", "workflow", WORKFLOW, "-o", lines]).await?;
    expect(&conditions, true, &["Accepted=True", &format!("Finished=True {phase}")])?;
    // Events are written in parallel to the work, so the last one may come later.
    harness.wait_for_event(WORKFLOW, phase).await?;
    let events = harness.kubectl("dana", &["events", "--for", &format!("workflow/{WORKFLOW}")]).await?;
    expect(&events, true, &["ApprovalRequested", phase])?;
    let described = harness.excerpt("dana", &["describe", "approval", approval], "Status:").await?;
    ensure!(described.contains("alice@example.com"), "the Approval should say who decided");
    Ok(())
}

async fn check_letter(harness: &Letters, decided: &GateOutcome, draft: &str) -> Result<()> {
    show::act("7. The result", "The output of the run, and the letter that was posted.");
    let outputs = ["get", "workflow", WORKFLOW, "-o", "jsonpath={.status.outputs}"];
    let word = match decided {
        GateOutcome::Modified(_) => "modified",
        GateOutcome::Answered(_) => "responded",
        _ => "approved",
    };
    let output = harness.kubectl("dana", &outputs).await?;
    expect(&output, true, &[&format!("letter 1 posted, {word} by alice@example.com")])?;

    let posted = harness.letterbox.posted();
    let [letter] = posted.as_slice() else {
        anyhow::bail!("exactly one letter should be posted, and there are {}", posted.len())
    };
    show::words(&format!("{} received one request:", harness.letterbox.url()));
    show::output(&format!("{}  content-type: {}\n{}", letter.what, letter.content_type, letter.body));
    let body: Value = serde_json::from_str(&letter.body).context("the letter box was sent something else than JSON")?;
    let text = body["letter"].as_str().unwrap_or_default();
    let shown = match decided {
        // Control characters of the person's text are dropped before it is used.
        GateOutcome::Modified(text) => clean(text),
        GateOutcome::Answered(answer) => clean(&format!("{draft}\n\nP.S. {answer}")),
        _ => draft.to_owned(),
    };
    // An Approval shows the first part of a long text, under the digest of the whole.
    let is_decided_text = if draft.len() < 4000 { text == shown } else { text.starts_with(draft) };
    ensure!(is_decided_text && letter.what == "POST /letters", "what was sent is not what was decided:\n{shown}");
    Ok(())
}
