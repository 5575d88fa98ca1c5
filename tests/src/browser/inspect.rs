//! Inspects a page: headers, cookies, errors in the browser, accessibility, screenshots.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::look::{Answer, Cookie, Download, Look, Request};
use super::page::{Page, string};
use super::target::Target;
use crate::cargo::metadata;

/// The environment variable with the folder for screenshots; without it they go into `web-screenshots` of the target
/// folder.
pub const SCREENSHOTS: &str = "SIGNOFF_SCREENSHOTS";

impl Page {
    /// Returns the server's answer to the last navigation after redirects, without the body.
    ///
    /// # Errors
    /// The page has loaded nothing yet.
    pub async fn response(&self) -> Result<Answer> {
        serde_json::from_value(self.ask("response", json!({})).await?).context("this page has loaded nothing yet")
    }

    /// Returns the errors of the browser so far: on its console, violations of a content security policy, scripts that
    /// failed.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn complaints(&self) -> Result<Vec<String>> {
        Ok(serde_json::from_value(self.ask("complaints", json!({})).await?)?)
    }

    /// Returns the violations of accessibility rules that axe finds, one line each.
    ///
    /// # Errors
    /// The page runs no scripts.
    pub async fn axe(&self) -> Result<Vec<String>> {
        Ok(serde_json::from_value(self.ask("axe", json!({})).await?)?)
    }

    /// Fails when [`Self::axe`] finds a violation.
    ///
    /// # Errors
    /// The violations, and a screenshot.
    pub async fn accessible(&self) -> Result<()> {
        let violations = self.axe().await?;
        if violations.is_empty() {
            return Ok(());
        }
        Err(self.with_picture(anyhow::anyhow!("breaches of accessibility:\n{}", violations.join("\n"))).await)
    }

    /// Fails when the page can be scrolled sideways.
    ///
    /// # Errors
    /// The width of the page, and a screenshot.
    pub async fn fits(&self) -> Result<()> {
        let widths =
            self.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]").await?;
        let (page, window) = (widths[0].as_u64().unwrap_or(u64::MAX), widths[1].as_u64().unwrap_or_default());
        if page <= window {
            return Ok(());
        }
        Err(self.with_picture(anyhow::anyhow!("the page is {page} pixels wide, and its window {window}")).await)
    }

    /// Returns the value of a JavaScript expression in the page.
    ///
    /// # Errors
    /// The exception of the expression.
    pub async fn evaluate(&self, script: &str) -> Result<Value> {
        self.act(&format!("evaluating {script}"), "evaluate", json!({ "script": script })).await
    }

    /// Sends a request with the page's cookies, outside of the page. Redirects are not followed.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn request(&self, request: &Request) -> Result<Answer> {
        let what = format!("{} {}", request.method, request.url);
        let mut parameters = serde_json::to_value(request)?;
        parameters["redirects"] = json!(0);
        Ok(serde_json::from_value(self.act(&what, "request", parameters).await?)?)
    }

    /// Returns the cookies of the page's context.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn cookies(&self) -> Result<Vec<Cookie>> {
        Ok(serde_json::from_value(self.ask("cookies", json!({})).await?)?)
    }

    /// Adds or replaces cookies, such as stolen or forged ones.
    ///
    /// # Errors
    /// The browser refuses a cookie.
    pub async fn set_cookies(&self, cookies: &[Cookie]) -> Result<()> {
        self.ask("set_cookies", json!({ "cookies": cookies })).await.map(drop)
    }

    /// Deletes all cookies.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn clear_cookies(&self) -> Result<()> {
        self.ask("clear_cookies", json!({})).await.map(drop)
    }

    /// Disconnects the browser from the network when `on` is true, or connects it again.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn offline(&self, on: bool) -> Result<()> {
        self.ask("offline", json!({ "on": on })).await.map(drop)
    }

    /// Shows the same page with other settings: size, colors, motion. Scripts, time zone and language stay.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn look(&self, look: &Look) -> Result<()> {
        self.ask("emulate", serde_json::to_value(look)?).await.map(drop)
    }

    /// Clicks a target, such as a link, whose content the browser saves as a file.
    ///
    /// # Errors
    /// Nothing was saved.
    pub async fn download(&self, target: impl Into<Target>) -> Result<Download> {
        Ok(serde_json::from_value(self.on("saving", "download", target, json!({})).await?)?)
    }

    /// Saves a screenshot of the whole page under this name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn screenshot(&self, name: &str) -> Result<PathBuf> {
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = tokio::task::spawn_blocking(screenshot_folder).await??.join(format!("{name}.png"));
        self.picture(&path).await?;
        Ok(path)
    }

    /// Saves a screenshot of the whole page in this file, whose folder must exist.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn picture(&self, file: &Path) -> Result<()> {
        self.ask("screenshot", json!({ "path": file, "whole": true })).await?;
        ensure!(file.is_file(), "the browser wrote no {}", file.display());
        Ok(())
    }

    /// Adds the page's address and a screenshot to an error.
    pub(super) async fn with_picture(&self, error: anyhow::Error) -> anyhow::Error {
        static FAILURES: AtomicUsize = AtomicUsize::new(0);
        let number = FAILURES.fetch_add(1, Ordering::Relaxed);
        let url = self.ask("url", json!({})).await.and_then(|url| string(&url)).unwrap_or_default();
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test").rsplit("::").next().unwrap_or_default().to_owned();
        match self.screenshot(&format!("failed-{test}-{number}")).await {
            Ok(path) => error.context(format!("at {url} (a picture: {})", path.display())),
            // The first failure says more than the failure of its screenshot.
            Err(_) => error.context(format!("at {url}")),
        }
    }
}

/// Returns the folder for screenshots, and creates it if it is missing.
fn screenshot_folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    if let Some(folder) = FOLDER.get() {
        return Ok(folder.clone());
    }
    let folder = match std::env::var_os(SCREENSHOTS) {
        Some(folder) => PathBuf::from(folder),
        None => metadata()?.target_directory.join("web-screenshots"),
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(FOLDER.get_or_init(|| folder).clone())
}
