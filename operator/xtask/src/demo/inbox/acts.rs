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
    alice.is_quiet().await
}

async fn sign_in<'a>(stage: &'a Stage, pictures: &'a Pictures<'a>) -> Result<Seat<'a>> {
    show::act(
        "1. alice signs in",
        "At the issuer, as everywhere else. The page passes her own token on to the API server, and has no rights of its own.",
    );
    let alice = Seat::by_issuer(stage, "alice", pictures).await?;
    let waiting = format!("{} requests wait for your decision", ALL.len());
    let words = [&[waiting.as_str(), "late", "your decision is enough", "0 of 2 so far"], &ALL[..]].concat();
    alice.says("main", &words).await?;
    alice.lists("main .lead, .request", &ALL).await?;
    let first = alice.page.text(css(".request").nth(0)).await?;
    ensure!(first.contains(OVERDUE), "the overdue request should stand first, and the first is:\n{first}");
    alice.page.click(css(".request a.what").nth(1)).await?;
    alice.page.wait(text("If you approve").inside(css("#pane"))).await?;
    alice.picture("inbox").await?;
    Ok(alice)
}

async fn read_contract(alice: &Seat<'_>) -> Result<()> {
    show::act(
        "2. alice reads a long contract",
        "An Approval holds its beginning; the whole is in a Blob. The page shows the whole, and has compared its digest.",
    );
    alice.reads(CONTRACT).await?;
    alice.says("section[aria-labelledby=what]", &["Unchanged since it was asked", ", whole", "§ 1.1 "]).await?;
    alice.picture("contract").await?;
    alice.page.click(text("All of it, with").inside(css("section[aria-labelledby=what]"))).await?;
    alice.page.wait_url("/text/reviewed").await?;
    let shown = alice.says("main", &[", whole", "§ 1.1 ", "§ 13 "]).await?;
    let clauses: Vec<_> = shown.lines().filter(|line| line.starts_with('§')).collect();
    let [first, .., last] = clauses.as_slice() else { anyhow::bail!("the page shows no contract:\n{shown}") };
    ensure!(clauses.len() == 145, "the contract has 145 clauses, and the page shows {}", clauses.len());
    show::output(&format!("  {first}\n  […]\n  {last}"));
    alice.reads(CONTRACT).await?;
    alice.says("#state", &["alice@example.com, one of the approvers", "group finance"]).await?;
    Ok(())
}

async fn approve(alice: &Seat<'_>) -> Result<()> {
    show::act(
        "3. alice approves a request before it is sent",
        "She sees exactly what will be sent. Her decision counts for this request and no other.",
    );
    alice.reads(PAYOUT).await?;
    let call = format!("{}/payouts", alice.stage.letterbox.url());
    alice.says("section[aria-labelledby=what]", &["Unchanged since it was asked"]).await?;
    alice.says("section[aria-labelledby=if-Approve]", &["POST", "then the run ends"]).await?;
    alice.shows("section[aria-labelledby=what] pre", &["POST", &call, "980"]).await?;
    alice.picture("request").await?;
    alice.page.fill(css("#reason"), "the invoice is there").await?;
    alice.page.click(role("button", "Approve")).await?;
    alice
        .confirms(PAYOUT, "Approve", &["POST", "the invoice is there", "the run goes on", "A decision is final"])
        .await?;
    alice.learns(PAYOUT, "Approved", &["alice@example.com"]).await?;
    alice.stage.ended(PAYOUT, "Complete").await?;
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
    alice.reads(LETTER).await?;
    alice.unfolds("Change…").await?;
    let field = "#modify-response";
    let draft = alice.page.value(css(field)).await?;
    let letter = draft.replace("arrived damaged", "arrived late and damaged");
    ensure!(draft != letter, "the letter of the quickstart should be about damage:\n{draft}");
    alice.page.fill(css(field), &letter).await?;
    alice.page.click(role("button", "See the difference")).await?;
    alice.page.wait(css(".difference .new")).await?;
    for (class, has) in [("gone", "arrived damaged"), ("new", "arrived late and damaged")] {
        alice.says(&format!(".difference .{class}"), &[has]).await?;
    }
    alice.confirms(LETTER, "Modify", &["the run goes on"]).await?;
    alice.learns(LETTER, "Modified", &["alice@example.com"]).await?;
    alice.stage.ended(LETTER, "Complete").await?;
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
    alice.reads(FORM).await?;
    let ticket = css("textarea[aria-label=\"ticket: text\"]");
    alice.page.check(css("input[value=voucher]"), true).await?;
    alice.page.fill(&ticket, "4712").await?;
    alice.page.click(role("button", "Respond")).await?;
    alice.page.wait(text("a ticket looks like RF-4711").inside(css(".problem"))).await?;
    ensure!(alice.page.value(&ticket).await? == "4712", "what she typed is lost");
    show::words("The page says at the field: a ticket looks like RF-4711\n");
    alice.picture("form").await?;
    alice.page.fill(&ticket, "RF-4712").await?;
    alice.page.click(role("button", "Respond")).await?;
    alice.confirms(FORM, "Respond", &["voucher", "RF-4712"]).await?;
    alice.learns(FORM, "Responded", &["alice@example.com"]).await
}

async fn reject(alice: &Seat<'_>) -> Result<()> {
    show::act(
        "6. alice rejects what a stranger wrote",
        "A customer's message has a script, markup, and characters that turn the direction of writing. It is shown as text.",
    );
    alice.reads(HOSTILE).await?;
    let words = ["<script>document.title = 'taken over'</script>", "<b>Pay</b>", "⟨U+202E⟩", "⟨U+200B⟩"];
    alice.shows("h1", &words).await?;
    alice.page.click(css("#context > summary")).await?;
    alice.says("#context", &["characters that are not visible"]).await?;
    // Each numbered line is one element of the page's own.
    let markup = alice.page.count(css("main script, h1 *, .fence *, .exact-text :not(i), .exact-text i *")).await?;
    ensure!(markup == 0, "a text of others became {markup} elements of the page");
    let title = alice.page.title().await?;
    ensure!(title.contains(HOSTILE), "the title of the page is {title:?}");
    alice.picture("hostile").await?;
    alice.page.fill(css("#reason"), "nobody here has approved this").await?;
    alice.page.click(role("button", "Reject")).await?;
    alice.confirms(HOSTILE, "Reject", &["nobody here has approved this", "the run ends"]).await?;
    alice.learns(HOSTILE, "Rejected", &["alice@example.com"]).await?;
    alice.says("#state", &["nobody here has approved this"]).await?;
    alice.stage.ended(HOSTILE, "Finished").await
}

async fn agree<'a>(alice: &Seat<'a>, pictures: &'a Pictures<'a>) -> Result<()> {
    show::act(
        "7. alice and bob agree on a payment",
        "It takes two. bob signs in with a token and looks at his inbox, while alice gives the first vote: his page says so.",
    );
    let bob = Seat::by_token(alice.stage, "bob", pictures).await?;
    bob.says("main", &[PAYMENT, "0 of 2 so far"]).await?;
    alice.reads(PAYMENT).await?;
    alice.page.click(role("button", "Approve")).await?;
    alice.confirms(PAYMENT, "Approve", &["1 of 2", "others must still decide"]).await?;
    alice.stage.until(PAYMENT, "{.status.tally.have}=1").await?;
    bob.page.wait(text("The list has changed.")).await?;
    show::words("bob's page says by itself that the list has changed; he presses Show.");
    bob.page.click(role("button", "Show")).await?;
    bob.page.wait(text("1 of 2 so far")).await?;
    bob.picture("inbox").await?;
    bob.reads(PAYMENT).await?;
    let words = ["Approve by alice@example.com", "bob@example.com, one of the approvers"];
    bob.lists("#state dt, #state .votes li", &words).await?;
    bob.page.click(role("button", "Approve")).await?;
    bob.confirms(PAYMENT, "Approve", &["the run goes on"]).await?;
    bob.learns(PAYMENT, "Approved", &["alice@example.com", "bob@example.com"]).await?;
    alice.stage.ended(PAYMENT, "Complete").await?;
    bob.is_quiet().await?;
    bob.page.close().await
}

async fn show_run(alice: &Seat<'_>) -> Result<()> {
    show::act("8. The run", "The page of the letter's run: its steps and gates, who decided, and what came of it.");
    let stage = alice.stage;
    alice.opens(&format!("{}/n/{}/w/{LETTER}", stage.web.url(), stage.harness.namespace.name)).await?;
    alice.says("main", &[LETTER, "Succeeded", "draft", "review", "send", "modified by alice@example.com"]).await?;
    let words = ["dana@example.com", "alice@example.com"];
    alice.lists("#run .run-facts dt, .outline .step-line, #run .votes li", &words).await?;
    alice.picture("run").await
}

async fn show_history(alice: &Seat<'_>) -> Result<()> {
    show::act("9. The history", "What was decided, by whom and why; the same as a file for auditors.");
    alice.opens(&format!("{}/history", alice.stage.web.url())).await?;
    let decided =
        [(LETTER, "Modified"), (FORM, "Responded"), (PAYOUT, "Approved"), (PAYMENT, "Approved"), (HOSTILE, "Rejected")];
    let lines = alice.says("main", &["5 decisions, newest first", "the invoice is there"]).await?;
    for (run, _) in decided {
        ensure!(lines.contains(run), "the history should have the run {run}");
    }
    alice.picture("history").await?;
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
    let all = alice.stage.letterbox.posted();
    let mut here = all.iter().filter(|posted| posted.what == format!("POST {path}"));
    let (Some(one), None) = (here.next(), here.next()) else {
        anyhow::bail!("exactly one request should have been sent to {path}, and the letter box got {all:?}")
    };
    serde_json::from_str(&one.body).with_context(|| format!("{path} was sent something else than JSON"))
}
