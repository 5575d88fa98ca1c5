//! One person before the page, in a browser of their own, who signs in, reads, clicks and confirms.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use signoff_tests::browser::{Look, Page, css, label, role};
use signoff_tests::control_plane::named;

use super::super::show;
use super::stage::Stage;

/// The folder of the screenshots, which are numbered in their order.
pub(super) struct Pictures<'a> {
    folder: &'a Path,
    taken: AtomicUsize,
}

impl<'a> Pictures<'a> {
    /// Returns the screenshots of a folder.
    pub(super) fn new(folder: &'a Path) -> Self {
        Self { folder, taken: AtomicUsize::new(0) }
    }
}

/// A person with a browser that shows the page.
pub(super) struct Seat<'a> {
    pub(super) stage: &'a Stage,
    pub(super) page: Page,
    /// Their user name.
    pub(super) user: &'static str,
    name: &'static str,
    pictures: &'a Pictures<'a>,
}

impl<'a> Seat<'a> {
    /// Signs a person in at the issuer.
    pub(super) async fn sign_in_at_issuer(stage: &'a Stage, person: &str, pictures: &'a Pictures<'a>) -> Result<Self> {
        let seat = Self::open_page(stage, person, pictures).await?;
        seat.page.click(role("button", "Sign in with 127.0.0.1")).await?;
        seat.page.wait(role("heading", "Sign in to signoff")).await?;
        seat.page.fill(label("Email"), seat.user).await?;
        seat.page.click(role("button", "Sign in")).await?;
        seat.check_inbox().await
    }

    /// Signs a person in with the token of their kubeconfig.
    pub(super) async fn sign_in_by_token(stage: &'a Stage, person: &str, pictures: &'a Pictures<'a>) -> Result<Self> {
        let seat = Self::open_page(stage, person, pictures).await?;
        seat.page.fill(css("#token"), &stage.token(person)?).await?;
        seat.page.click(role("button", "Sign in with a token")).await?;
        seat.check_inbox().await
    }

    async fn open_page(stage: &'a Stage, person: &str, pictures: &'a Pictures<'a>) -> Result<Self> {
        let page = Page::open(&Look::default()).await?;
        page.goto(stage.web.url()).await?;
        page.wait(role("heading", "Sign in")).await?;
        let person = named(person)?;
        let seat = Self { stage, page, user: person.user, name: person.name, pictures };
        Ok(seat)
    }

    async fn check_inbox(self) -> Result<Self> {
        self.page.wait(role("heading", "Inbox")).await?;
        self.check_words("header.bar", &[self.user]).await?;
        Ok(self)
    }

    /// Checks that a part of the page has these words, whatever the spaces between them. Returns the text.
    pub(super) async fn check_words(&self, part: &str, words: &[&str]) -> Result<String> {
        let text = self.page.text(part).await?;
        let narrow = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in words {
            ensure!(
                narrow(&text).contains(&narrow(expected)),
                "{part} of {} should say {expected:?}, and says:\n{text}",
                self.page.url().await?
            );
        }
        Ok(text)
    }

    /// Checks the words as [`Self::check_words`] does, and prints the text.
    pub(super) async fn print_words(&self, part: &str, words: &[&str]) -> Result<()> {
        let text = self.check_words(part, words).await?;
        let lines: Vec<_> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| format!("  {line}")).collect();
        show::output(&lines.join("\n"));
        Ok(())
    }

    /// Prints all elements that a selector matches, each in a line, a term with its description. Checks that they have
    /// these words.
    pub(super) async fn print_elements(&self, selector: &str, words: &[&str]) -> Result<()> {
        let script = format!(
            "[...document.querySelectorAll({})].map(found => (found.tagName === 'DT' ? `${{found.innerText}}: ${{found.nextElementSibling.innerText}}` : found.innerText).trim().replace(/\\s*\\n\\s*/g, ' · '))",
            serde_json::to_string(selector)?
        );
        let lines: Vec<String> = serde_json::from_value(self.page.evaluate(&script).await?)?;
        let text = lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
        for expected in words {
            ensure!(text.contains(expected), "{} should say {expected:?}, and says:\n{text}", self.page.url().await?);
        }
        show::output(&text);
        Ok(())
    }

    /// Goes to a page, which must exist.
    pub(super) async fn open(&self, url: &str) -> Result<()> {
        show::words(&format!("{} opens {url}", self.name));
        let status = self.page.goto(url).await?;
        ensure!(status == 200, "{url} answers with {status}");
        Ok(())
    }

    /// Opens the request that a run waits for.
    pub(super) async fn open_request(&self, run: &str) -> Result<()> {
        self.open(&self.stage.request_url(run)?).await
    }

    /// Opens one of the folded ways to decide.
    pub(super) async fn unfold(&self, summary: &str) -> Result<()> {
        let way = css(&format!("details.way:has(summary:text-is(\"{summary}\"))"));
        if self.page.attribute(&way, "open").await?.is_none() {
            self.page.click(css("summary").inside(way)).await?;
        }
        Ok(())
    }

    /// Presses the button of the page that asks for confirmation, after checking its words and that no decision was
    /// recorded before.
    pub(super) async fn confirm(&self, run: &str, verdict: &str, words: &[&str]) -> Result<()> {
        self.page.wait(css(".confirm")).await?;
        show::words(&format!("{} sees the decision once more before it is recorded:", self.name));
        self.check_words(".confirm", words).await?;
        self.print_elements(".confirm h1, .confirm dt, .difference .gone, .difference .new", &[verdict]).await?;
        self.take_picture(&format!("confirm-{verdict}")).await?;
        let approval = self.stage.approval(run)?;
        let decisions = ["get", "approval", approval, "-o", "jsonpath={.spec.decisions}"];
        let recorded = self.stage.harness.read("dana", &decisions).await?;
        ensure!(!recorded.contains(self.user), "a decision was recorded before it was confirmed: {recorded}");
        show::words(&format!("{} presses {verdict}.", self.name));
        self.page.click(role("button", verdict).inside(css(".confirm"))).await?;
        self.page.wait(css("#state")).await
    }

    /// Waits until the operator has counted the decision, for which the page waits two seconds only, and checks the
    /// outcome.
    pub(super) async fn check_outcome(&self, run: &str, phase: &str, words: &[&str]) -> Result<()> {
        self.stage.wait_for_field(run, &format!("{{.status.phase}}={phase}")).await?;
        // The page may show the next request by now.
        self.page.goto(&self.stage.request_url(run)?).await?;
        self.check_words(".top", &[phase]).await?;
        self.print_words(".outcome", words).await
    }

    /// Keeps a screenshot.
    pub(super) async fn take_picture(&self, what: &str) -> Result<()> {
        let number = self.pictures.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let file = self.pictures.folder.join(format!("{number:02}-{}-{}.png", self.name, what.to_lowercase()));
        self.page.picture(&file).await.with_context(|| format!("a picture of {what}"))?;
        show::words(&format!("(picture: {})\n", file.file_name().unwrap_or_default().to_string_lossy()));
        Ok(())
    }

    /// Fails if the browser blocked a script, or if a script of the page failed.
    pub(super) async fn check_scripts(&self) -> Result<()> {
        let complaints = self.page.complaints().await?;
        let bad: Vec<_> =
            complaints.iter().filter(|line| line.starts_with("script:") || line.contains("Security Policy")).collect();
        ensure!(bad.is_empty(), "the browser of {} complains: {bad:?}", self.name);
        Ok(())
    }
}
