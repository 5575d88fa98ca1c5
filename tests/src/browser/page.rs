//! One page of the browser. A failure names the target and adds a screenshot. No method retries: the browser itself
//! waits until a target exists and can be used.

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use super::driver::Driver;
use super::look::Look;
use super::target::Target;

/// A tab of the browser. Dropping a page closes the tab; the last tab closes its context.
pub struct Page {
    driver: &'static Driver,
    number: u64,
}

impl Page {
    /// Opens an empty tab with a context of its own, in which no user is signed in.
    ///
    /// # Errors
    /// There is no browser.
    pub async fn open(look: &Look) -> Result<Self> {
        let driver = Driver::of_this_process().await?;
        let mut command = serde_json::to_value(look)?;
        command["do"] = json!("open");
        let number = driver.ask(command).await?.as_u64().context("the driver named no page")?;
        Ok(Self { driver, number })
    }

    /// Opens a second tab of the same user: the tabs share cookies.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn tab(&self) -> Result<Self> {
        let number = self.ask("tab", json!({})).await?.as_u64().context("the driver named no page")?;
        Ok(Self { driver: self.driver, number })
    }

    /// Closes the tab, and waits until it is closed.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn close(self) -> Result<()> {
        self.ask("close", json!({})).await.map(drop)
    }

    /// Goes to an address and returns the status of the answer.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn goto(&self, url: &str) -> Result<u16> {
        status(&self.act(&format!("going to {url}"), "goto", json!({ "url": url })).await?)
    }

    /// Loads the page again and returns the status of the answer.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn reload(&self) -> Result<u16> {
        status(&self.act("loading the page again", "reload", json!({})).await?)
    }

    /// Goes back, as the browser's button Back does, and returns the status of the answer.
    ///
    /// # Errors
    /// There is no earlier page.
    pub async fn back(&self) -> Result<u16> {
        status(&self.act("going back", "back", json!({})).await?)
    }

    /// Clicks a target once it exists, is visible and does not move.
    ///
    /// # Errors
    /// The target does not exist, is hidden, or is not unique.
    pub async fn click(&self, target: impl Into<Target>) -> Result<()> {
        self.on("clicking", "click", target, json!({})).await.map(drop)
    }

    /// Puts the mouse over a target.
    ///
    /// # Errors
    /// As [`Self::click`].
    pub async fn hover(&self, target: impl Into<Target>) -> Result<()> {
        self.on("pointing at", "hover", target, json!({})).await.map(drop)
    }

    /// Gives a target the focus.
    ///
    /// # Errors
    /// As [`Self::click`].
    pub async fn focus(&self, target: impl Into<Target>) -> Result<()> {
        self.on("focusing", "focus", target, json!({})).await.map(drop)
    }

    /// Replaces the value of a field.
    ///
    /// # Errors
    /// As [`Self::click`].
    pub async fn fill(&self, target: impl Into<Target>, value: &str) -> Result<()> {
        self.on("filling", "fill", target, json!({ "value": value })).await.map(drop)
    }

    /// Checks a box or a radio button, or unchecks it when `on` is false.
    ///
    /// # Errors
    /// As [`Self::click`].
    pub async fn check(&self, target: impl Into<Target>, on: bool) -> Result<()> {
        self.on("ticking", "check", target, json!({ "on": on })).await.map(drop)
    }

    /// Chooses an option of a list by its value or label.
    ///
    /// # Errors
    /// As [`Self::click`].
    pub async fn select(&self, target: impl Into<Target>, value: &str) -> Result<()> {
        self.on("choosing in", "select", target, json!({ "value": value })).await.map(drop)
    }

    /// Presses a key, such as `Tab`, `Shift+Tab`, `Enter` or `Control+A`, where the focus is.
    ///
    /// # Errors
    /// The browser does not know the key.
    pub async fn press(&self, key: &str) -> Result<()> {
        self.act(&format!("pressing {key}"), "press", json!({ "key": key })).await.map(drop)
    }

    /// Types a text where the focus is, key by key.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn keys(&self, text: &str) -> Result<()> {
        self.act("typing", "type", json!({ "value": text })).await.map(drop)
    }

    /// Returns the element that has the focus, with its accessible name: `button Approve`.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn focused(&self) -> Result<String> {
        string(&self.ask("focused", json!({})).await?)
    }

    /// Presses Tab until the element `what` has the focus, at most `most` times.
    ///
    /// # Errors
    /// The elements that had the focus instead, in order.
    pub async fn tab_to(&self, what: &str, most: usize) -> Result<()> {
        let mut seen = Vec::new();
        for _ in 0..most {
            self.press("Tab").await?;
            let focused = self.focused().await?;
            if focused == what {
                return Ok(());
            }
            seen.push(focused);
        }
        Err(self.with_picture(anyhow!("{most} times Tab do not reach {what:?}; they reach {}", seen.join(", "))).await)
    }

    /// Returns the visible text of a target.
    ///
    /// # Errors
    /// As [`Self::click`].
    pub async fn text(&self, target: impl Into<Target>) -> Result<String> {
        string(&self.on("reading", "text", target, json!({})).await?)
    }

    /// Returns the value of a field.
    ///
    /// # Errors
    /// As [`Self::click`].
    pub async fn value(&self, target: impl Into<Target>) -> Result<String> {
        string(&self.on("reading", "value", target, json!({})).await?)
    }

    /// Returns an attribute of a target, or `None`.
    ///
    /// # Errors
    /// As [`Self::click`].
    pub async fn attribute(&self, target: impl Into<Target>, name: &str) -> Result<Option<String>> {
        let value = self.on("reading an attribute of", "attribute", target, json!({ "name": name })).await?;
        Ok(value.as_str().map(str::to_owned))
    }

    /// Returns the number of matching elements now, without waiting.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn count(&self, target: impl Into<Target>) -> Result<usize> {
        let count = self.on("counting", "count", target, json!({})).await?;
        Ok(usize::try_from(count.as_u64().context("no number")?)?)
    }

    /// Returns whether a target exists and is visible now, without waiting.
    ///
    /// # Errors
    /// The target is not unique.
    pub async fn visible(&self, target: impl Into<Target>) -> Result<bool> {
        Ok(self.on("looking at", "visible", target, json!({})).await? == json!(true))
    }

    /// Waits until a target is visible.
    ///
    /// # Errors
    /// The target is not visible after 15 seconds.
    pub async fn wait(&self, target: impl Into<Target>) -> Result<()> {
        self.on("waiting for", "wait", target, json!({ "state": "visible" })).await.map(drop)
    }

    /// Waits until a target is gone or hidden.
    ///
    /// # Errors
    /// The target is still visible after 15 seconds.
    pub async fn wait_gone(&self, target: impl Into<Target>) -> Result<()> {
        self.on("waiting for the end of", "wait", target, json!({ "state": "hidden" })).await.map(drop)
    }

    /// Waits until the address contains `part`.
    ///
    /// # Errors
    /// The address does not contain it after 15 seconds.
    pub async fn wait_url(&self, part: &str) -> Result<()> {
        self.act(&format!("waiting for an address with {part:?}"), "wait_url", json!({ "part": part })).await.map(drop)
    }

    /// Waits until the title contains `part`.
    ///
    /// # Errors
    /// The title does not contain it after 15 seconds.
    pub async fn wait_title(&self, part: &str) -> Result<()> {
        self.act(&format!("waiting for a title with {part:?}"), "wait_title", json!({ "part": part })).await.map(drop)
    }

    /// Returns the page's source as it is now.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn html(&self) -> Result<String> {
        string(&self.ask("html", json!({})).await?)
    }

    /// Returns the title.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn title(&self) -> Result<String> {
        string(&self.ask("title", json!({})).await?)
    }

    /// Returns the address.
    ///
    /// # Errors
    /// The browser has ended.
    pub async fn url(&self) -> Result<String> {
        string(&self.ask("url", json!({})).await?)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.driver.tell(&json!({ "do": "close", "page": self.number }));
    }
}

/// Sending of commands.
impl Page {
    /// Sends a command that fails only with the browser.
    pub(super) async fn ask(&self, command: &str, mut parameters: Value) -> Result<Value> {
        parameters["do"] = json!(command);
        parameters["page"] = json!(self.number);
        self.driver.ask(parameters).await.with_context(|| format!("the browser, asked for {command}"))
    }

    /// Sends a command whose failure gets a screenshot.
    pub(super) async fn act(&self, what: &str, command: &str, parameters: Value) -> Result<Value> {
        match self.ask(command, parameters).await {
            Ok(value) => Ok(value),
            Err(error) => Err(self.with_picture(error.context(what.to_owned())).await),
        }
    }

    /// Sends a command about a target, as [`Self::act`] does.
    pub(super) async fn on(
        &self,
        what: &str,
        command: &str,
        target: impl Into<Target>,
        mut parameters: Value,
    ) -> Result<Value> {
        let target = target.into();
        parameters["target"] = serde_json::to_value(&target)?;
        self.act(&format!("{what} {target}"), command, parameters).await
    }
}

fn status(value: &Value) -> Result<u16> {
    Ok(u16::try_from(value.as_u64().context("no status")?)?)
}

pub(super) fn string(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).context("no text")
}
