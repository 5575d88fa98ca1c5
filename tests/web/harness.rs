//! The environment of most tests of the inbox: the suite's cluster and issuer, a witness, and a page of the test's own,
//! on which people are signed in.

use anyhow::{Result, anyhow, ensure};
use futures::future::join_all;
use signoff_tests::browser::{Look, Page, css, label, role};
use signoff_tests::control_plane::{Cluster, Issuer, WebOptions, WebProcess, Witness, named};

use crate::runs::Runs;

/// The environment of one test. The page connects to the API server through the witness.
pub(crate) struct Harness {
    pub(crate) cluster: Cluster,
    pub(crate) issuer: Issuer,
    pub(crate) witness: Witness,
    pub(crate) web: WebProcess,
}

impl Harness {
    /// Starts a page that passes people's own tokens on.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(|_| {}).await
    }

    /// Starts a page as [`Self::start`] does, with changed options.
    pub(crate) async fn start_with(change: impl FnOnce(&mut WebOptions)) -> Result<Self> {
        let cluster = Cluster::web()?;
        let issuer = Issuer::of(&cluster)?;
        let witness = Witness::start(&cluster).await?;
        let mut options =
            WebOptions { kubeconfig: witness.kubeconfig(None)?, issuer: Some(issuer.clone()), ..WebOptions::default() };
        change(&mut options);
        let web = WebProcess::start(&cluster, options).await?;
        Ok(Self { cluster, issuer, witness, web })
    }

    /// Starts a page as [`Self::start`] does, with namespaces that the page shows.
    pub(crate) async fn with_runs<const N: usize>(prefixes: [&str; N]) -> Result<(Self, [Runs; N])> {
        let cluster = Cluster::web()?;
        let runs = join_all(prefixes.map(|prefix| Runs::create(&cluster, prefix))).await;
        let names = runs.iter().map(|runs| format!("--namespace={}", runs.name())).collect();
        let harness = Self::start_with(|options| options.arguments = names).await?;
        Ok((harness, runs.try_into().map_err(|_| anyhow!("one namespace for each prefix"))?))
    }

    /// Returns the URL of a path of the page.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.web.url())
    }

    /// Opens a browser in which a person of the cast has signed in at the issuer. The browser shows the inbox.
    pub(crate) async fn open_as(&self, person: &str, look: &Look) -> Result<Page> {
        let page = self.open_signed_out(look, "/sign-in").await?;
        self.sign_in_at_issuer(&page, person, None).await?;
        Ok(page)
    }

    /// Signs a person of the cast in: goes from the sign-in page to the issuer, and back to the inbox. `seconds`: the
    /// lifetime of the session.
    pub(crate) async fn sign_in_at_issuer(&self, page: &Page, person: &str, seconds: Option<u32>) -> Result<()> {
        page.click(css("form[action='/sign-in/start'] button")).await?;
        submit_issuer_form(page, person, seconds).await?;
        page.wait(css("body[data-user]")).await
    }

    /// Opens a browser, and signs in with a token. Returns the page that follows: the inbox or an error.
    pub(crate) async fn open_with_token(&self, token: &str, look: &Look) -> Result<Page> {
        let page = self.open_signed_out(look, "/sign-in").await?;
        page.fill(css("#token"), token).await?;
        page.click(role("button", "Sign in with a token")).await?;
        // Unlike the page of the form, the next page has a user or an error.
        page.wait(css("body[data-user], [role=alert]")).await?;
        Ok(page)
    }

    /// Fails if the browser reported an error on a page. Errors on pages of the issuer are ignored.
    pub(crate) async fn assert_no_browser_errors(&self, page: &Page) -> Result<()> {
        let issuer = &self.issuer.url;
        let errors: Vec<_> = page.complaints().await?.into_iter().filter(|error| !error.contains(issuer)).collect();
        ensure!(errors.is_empty(), "the browser complains: {}", errors.join("; "));
        Ok(())
    }

    /// Opens a browser in which no user is signed in, at this path.
    pub(crate) async fn open_signed_out(&self, look: &Look, path: &str) -> Result<Page> {
        let page = Page::open(look).await?;
        page.goto(&self.url(path)).await?;
        Ok(page)
    }
}

/// Fills and sends the issuer's form for a person of the cast. `seconds`: the lifetime of the id_token; `None`: an
/// hour.
pub(crate) async fn submit_issuer_form(page: &Page, person: &str, seconds: Option<u32>) -> Result<()> {
    page.fill(label("Email"), named(person)?.user).await?;
    if let Some(seconds) = seconds {
        page.fill(label("Seconds"), &seconds.to_string()).await?;
    }
    page.click(role("button", "Sign in")).await
}

/// Shows the page of the request that was just decided. If the page of the next waiting request has opened instead,
/// follows its link back.
pub(crate) async fn show_decided_request(page: &Page) {
    page.wait(css("[data-decided]").nth(0)).await.unwrap();
    let back = css("#after a");
    if page.count(&back).await.unwrap() > 0 {
        page.click(&back).await.unwrap();
    }
}
