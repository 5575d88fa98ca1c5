//! The receiver of notices: a webhook on loopback that answers at once, and the administrator's file that names it. It
//! keeps only the arrival of each notice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use signoff_tests::loopback::{Loopback, text};
use tempfile::TempDir;

/// The address of the page, which is never opened here.
pub(super) const INBOX: &str = "https://signoff.example.com";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The notices that arrived.
#[derive(Default)]
struct Arrived {
    /// The arrival of the first notice that asks for a decision, by Approval.
    asked: BTreeMap<String, Instant>,
    all: usize,
}

/// A running receiver. Dropping it ends it.
pub(super) struct Receiver {
    arrived: Arc<Mutex<Arrived>>,
    file: String,
    _folder: TempDir,
    _server: Loopback,
}

impl Receiver {
    pub(super) async fn start() -> Result<Self> {
        let arrived = Arc::<Mutex<Arrived>>::default();
        let noting = Arc::clone(&arrived);
        let server = Loopback::start(move |_, received| {
            let at = Instant::now();
            let notice: Value = serde_json::from_str(&received.body).unwrap_or_default();
            let mut arrived = noting.lock().unwrap_or_else(PoisonError::into_inner);
            arrived.all += 1;
            if notice["type"] == "dev.signoff.approval.asked" {
                let approval = notice["data"]["approval"].as_str().unwrap_or_default().to_owned();
                arrived.asked.entry(approval).or_insert(at);
            }
            text(204, "")
        })
        .await?;
        let folder = tempfile::tempdir()?;
        let (url, file) = (folder.path().join("url"), folder.path().join("notifications.yaml"));
        std::fs::write(&url, format!("{}/hook", server.url()))?;
        let config = format!(
            "inbox: {INBOX}\nallowedAddresses: [\"{}\"]\n\
             channels: [{{name: hook, webhook: {{urlFile: {}, format: cloudevents}}}}]\nroutes: [{{to: [hook]}}]\n",
            server.address(),
            url.display()
        );
        std::fs::write(&file, config)?;
        let file = file.to_str().context("a folder of temporary files whose name is no text")?.to_owned();
        Ok(Self { arrived, file, _folder: folder, _server: server })
    }

    /// Returns the path of the administrator's file.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Returns the arrival of the notice that asks for a decision, by Approval.
    pub(super) fn asked(&self) -> BTreeMap<String, Instant> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }

    /// Waits until `count` notices have arrived.
    pub(super) async fn until(&self, count: usize) -> Result<()> {
        while self.arrived.lock().unwrap_or_else(PoisonError::into_inner).all < count {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}
