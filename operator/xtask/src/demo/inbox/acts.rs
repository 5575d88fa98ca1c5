//! The story of the inbox, act by act: each announces what is to happen, does it in a browser, and checks the result on
//! the page.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use signoff_tests::browser::{css, role, text};

use super::super::show;
use super::seat::{Pictures, Seat};
use super::stage::{ALL, CONTRACT, FORM, HOSTILE, LETTER, OVERDUE, PAYMENT, PAYOUT, Stage};

/// Plays all acts; screenshots go into the folder.
pub(super) async fn play(stage: &Stage, folder: &Path) -> Result<()> {
    let pictures = Pictures::new(folder);
    let alice = sign_in(stage, &pictures).await?;
    read_contract(&alice).await?;
    approve(&alice).await?;
    modify(&alice).await?;
    respond(&alice).await?;
    reject(&alice).await?;
    agree(&alice, &pictures).await?;
    show_run(&alice).await?;
    show_history(&alice).await?;
    alice.check_scripts().await
}

async fn sign_in<'a>(stage: &'a Stage, pictures: &'a Pictures<'a>) -> Result<Seat<'a>> {
    show::act(
        "1. alice signs in",
        "At the issuer, as everywhere else. The page passes her own token on to the API server, and has no rights of its own.",
    );
    let alice = Seat::sign_in_at_issuer(stage, "alice", pictures).await?;
    let waiting = format!("{} requests wait for your decision", ALL.len());
    let words = [&[waiting.as_str(), "late", "your decision is enough", "0 of 2 so far"], &ALL[..]].concat();
    alice.check_words("main", &words).await?;
    alice.print_elements("main .lead, .request", &ALL).await?;
    let first = alice.page.text(css(".request").nth(0)).await?;
    ensure!(first.contains(OVERDUE), "the overdue request should stand first, and the first is:\n{first}");
    alice.page.click(css(".request a.what").nth(1)).await?;
    alice.page.wait(text("If you approve").inside(css("#pane"))).await?;
    alice.take_picture("inbox").await?;
    Ok(alice)
}

async fn read_contract(alice: &Seat<'_>) -> Result<()> {
    show::act(
        "2. alice reads a long contract",
        "An Approval holds its beginning; the whole is in a Blob. The page shows the whole, and has compared its digest.",
    );
    alice.open_request(CONTRACT).await?;
    alice.check_words("section[aria-labelledby=what]", &["Unchanged since it was asked", ", whole", "§ 1.1 "]).await?;
    alice.take_picture("contract").await?;
    alice.page.click(text("All of it, with").inside(css("section[aria-labelledby=what]"))).await?;
    alice.page.wait_url("/text/reviewed").await?;
    let shown = alice.check_words("main", &[", whole", "§ 1.1 ", "§ 13 "]).await?;
    let clauses: Vec<_> = shown.lines().filter(|line| line.starts_with('§')).collect();
    let [first, .., last] = clauses.as_slice() else { anyhow::bail!("the page shows no contract:\n{shown}") };
    ensure!(clauses.len() == 145, "the contract has 145 clauses, and the page shows {}", clauses.len());
    show::output(&format!("  {first}\n  […]\n  {last}"));
    alice.open_request(CONTRACT).await?;
    alice.check_words("#state", &["alice@example.com, one of the approvers", "group finance"]).await?;
    Ok(())
}

async fn approve(alice: &Seat<'_>) -> Result<()> {
    show::act(
        "3. alice approves a request before it is sent",
        "She sees exactly what will be sent. Her decision counts for this request and no other.",
    );
    alice.open_request(PAYOUT).await?;
    let call = format!("{}/payouts", alice.stage.letterbox.url());
    alice.check_words("section[aria-labelledby=what]", &["Unchanged since it was asked"]).await?;
    alice.check_words("section[aria-labelledby=if-Approve]", &["POST", "then the run ends"]).await?;
    alice.print_words("section[aria-labelledby=what] pre", &["POST", &call, "980"]).await?;
    alice.take_picture("request").await?;
    alice.page.fill(css("#reason"), "the invoice is there").await?;
    alice.page.click(role("button", "Approve")).await?;
    alice
        .confirm(PAYOUT, "Approve", &["POST", "the invoice is there", "the run goes on", "A decision is final"])
        .await?;
    alice.check_outcome(PAYOUT, "Approved", &["alice@example.com"]).await?;
    alice.stage.wait_for_end(PAYOUT, "Complete").await?;
    let sent = posted_body(alice, "/payouts")?;
    ensure!(sent["amount"] == 980, "what was sent is not what was approved: {sent}");
    show::words(&format!("{call} received {sent}\n"));
    Ok(())
}

async fn modify(alice: &Seat<'_>) -> Result<()> {
    show::act(
        "4. alice changes the letter",
        "A model drafted it. She edits it, sees the difference, and the run goes on with her text.",
    );
    alice.open_request(LETTER).await?;
    alice.unfold("Change…").await?;
    let field = "#modify-response";
    let draft = alice.page.value(css(field)).await?;
    let letter = draft.replace("arrived damaged", "arrived late and damaged");
    ensure!(draft != letter, "the letter of the quickstart should be about damage:\n{draft}");
    alice.page.fill(css(field), &letter).await?;
    alice.page.click(role("button", "See the difference")).await?;
    alice.page.wait(css(".difference .new")).await?;
    for (class, has) in [("gone", "arrived damaged"), ("new", "arrived late and damaged")] {
        alice.check_words(&format!(".difference .{class}"), &[has]).await?;
    }
    alice.confirm(LETTER, "Modify", &["the run goes on"]).await?;
    alice.check_outcome(LETTER, "Modified", &["alice@example.com"]).await?;
    alice.stage.wait_for_end(LETTER, "Complete").await?;
    let sent = posted_body(alice, "/letters")?;
    ensure!(sent["letter"] == letter.as_str(), "what was sent is not what was confirmed: {sent}");
    show::words("The letter box received her text.\n");
    Ok(())
}

async fn respond(alice: &Seat<'_>) -> Result<()> {
    show::act(
        "5. alice answers a form",
        "What she types wrong at first stands at its field, nothing is sent, and nothing she typed is lost.",
    );
    alice.open_request(FORM).await?;
    let ticket = css("textarea[aria-label=\"ticket: text\"]");
    alice.page.check(css("input[value=voucher]"), true).await?;
    alice.page.fill(&ticket, "4712").await?;
    alice.page.click(role("button", "Respond")).await?;
    alice.page.wait(text("a ticket looks like RF-4711").inside(css(".problem"))).await?;
    ensure!(alice.page.value(&ticket).await? == "4712", "what she typed is lost");
    show::words("The page says at the field: a ticket looks like RF-4711\n");
    alice.take_picture("form").await?;
    alice.page.fill(&ticket, "RF-4712").await?;
    alice.page.click(role("button", "Respond")).await?;
    alice.confirm(FORM, "Respond", &["voucher", "RF-4712"]).await?;
    alice.check_outcome(FORM, "Responded", &["alice@example.com"]).await
}

async fn reject(alice: &Seat<'_>) -> Result<()> {
    show::act(
        "6. alice rejects what a stranger wrote",
        "A customer's message has a script, markup, and characters that turn the direction of writing. It is shown as text.",
    );
    alice.open_request(HOSTILE).await?;
    let words = ["<script>document.title = 'taken over'</script>", "<b>Pay</b>", "⟨U+202E⟩", "⟨U+200B⟩"];
    alice.print_words("h1", &words).await?;
    alice.page.click(css("#context > summary")).await?;
    alice.check_words("#context", &["characters that are not visible"]).await?;
    // Each numbered line is one element of the page's own.
    let markup = alice.page.count(css("main script, h1 *, .fence *, .exact-text :not(i), .exact-text i *")).await?;
    ensure!(markup == 0, "a text of others became {markup} elements of the page");
    let title = alice.page.title().await?;
    ensure!(title.contains(HOSTILE), "the title of the page is {title:?}");
    alice.take_picture("hostile").await?;
    alice.page.fill(css("#reason"), "nobody here has approved this").await?;
    alice.page.click(role("button", "Reject")).await?;
    alice.confirm(HOSTILE, "Reject", &["nobody here has approved this", "the run ends"]).await?;
    alice.check_outcome(HOSTILE, "Rejected", &["alice@example.com"]).await?;
    alice.check_words("#state", &["nobody here has approved this"]).await?;
    alice.stage.wait_for_end(HOSTILE, "Finished").await
}

async fn agree<'a>(alice: &Seat<'a>, pictures: &'a Pictures<'a>) -> Result<()> {
    show::act(
        "7. alice and bob agree on a payment",
        "It takes two. bob signs in with a token and looks at his inbox, while alice gives the first vote: his page says so.",
    );
    let bob = Seat::sign_in_by_token(alice.stage, "bob", pictures).await?;
    bob.check_words("main", &[PAYMENT, "0 of 2 so far"]).await?;
    alice.open_request(PAYMENT).await?;
    alice.page.click(role("button", "Approve")).await?;
    alice.confirm(PAYMENT, "Approve", &["1 of 2", "others must still decide"]).await?;
    alice.stage.wait_for_field(PAYMENT, "{.status.tally.have}=1").await?;
    bob.page.wait(text("The list has changed.")).await?;
    show::words("bob's page says by itself that the list has changed; he presses Show.");
    bob.page.click(role("button", "Show")).await?;
    bob.page.wait(text("1 of 2 so far")).await?;
    bob.take_picture("inbox").await?;
    bob.open_request(PAYMENT).await?;
    let words = ["Approve by alice@example.com", "bob@example.com, one of the approvers"];
    bob.print_elements("#state dt, #state .votes li", &words).await?;
    bob.page.click(role("button", "Approve")).await?;
    bob.confirm(PAYMENT, "Approve", &["the run goes on"]).await?;
    bob.check_outcome(PAYMENT, "Approved", &["alice@example.com", "bob@example.com"]).await?;
    alice.stage.wait_for_end(PAYMENT, "Complete").await?;
    bob.check_scripts().await?;
    bob.page.close().await
}

async fn show_run(alice: &Seat<'_>) -> Result<()> {
    show::act("8. The run", "The page of the letter's run: its steps and gates, who decided, and what came of it.");
    let stage = alice.stage;
    alice.open(&format!("{}/n/{}/w/{LETTER}", stage.web.url(), stage.harness.namespace.name)).await?;
    alice
        .check_words("main", &[LETTER, "Succeeded", "draft", "review", "send", "modified by alice@example.com"])
        .await?;
    let words = ["dana@example.com", "alice@example.com"];
    alice.print_elements("#run .run-facts dt, .outline .step-line, #run .votes li", &words).await?;
    alice.take_picture("run").await
}

async fn show_history(alice: &Seat<'_>) -> Result<()> {
    show::act("9. The history", "What was decided, by whom and why; the same as a file for auditors.");
    alice.open(&format!("{}/history", alice.stage.web.url())).await?;
    let decided =
        [(LETTER, "Modified"), (FORM, "Responded"), (PAYOUT, "Approved"), (PAYMENT, "Approved"), (HOSTILE, "Rejected")];
    let lines = alice.check_words("main", &["5 decisions, newest first", "the invoice is there"]).await?;
    for (run, _) in decided {
        ensure!(lines.contains(run), "the history should have the run {run}");
    }
    alice.take_picture("history").await?;
    let file = alice.page.download(role("link", "Download as CSV")).await?;
    show::words(&format!("alice downloads {}:", file.name));
    show::output(&file.text);
    let rows: Vec<_> = file.text.lines().collect();
    ensure!(rows.len() == 1 + decided.len(), "the file has {} lines", rows.len());
    for (run, phase) in decided {
        let row = rows.iter().find(|row| row.contains(&format!("\"{run}\"")));
        let row = row.with_context(|| format!("the file should have the run {run}"))?;
        ensure!(row.contains(phase) && row.contains("alice@example.com"), "the row of {run} is {row}");
        ensure!(run != PAYMENT || row.contains("bob@example.com"), "bob is missing in {row}");
    }
    Ok(())
}

/// Returns the body of the only request that the letter box got at this path.
fn posted_body(alice: &Seat<'_>, path: &str) -> Result<Value> {
    let requests = alice.stage.letterbox.posted();
    let mut matching = requests.iter().filter(|posted| posted.what == format!("POST {path}"));
    let (Some(request), None) = (matching.next(), matching.next()) else {
        anyhow::bail!("exactly one request should have been sent to {path}, and the letter box got {requests:?}")
    };
    serde_json::from_str(&request.body).with_context(|| format!("{path} was sent something else than JSON"))
}
