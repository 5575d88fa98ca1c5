//! Reads the administrator's files again, and gives each channel of a changed configuration its queue and ledger.

use std::{collections::BTreeMap, sync::Arc};

use signoff_api::Moment;

use super::{Inner, Line, Notices};
use crate::{
    channel::Channel,
    config::{Config, ConfigError, LoadedConfig, NamespaceLabels},
    failures::Failures,
    queue::{Limits, Queue},
    state::Ledger,
};

/// The channels of a configuration, by their names.
type Channels = BTreeMap<String, Arc<dyn Channel>>;

impl Notices {
    /// Reads the administrator's files again, and applies a changed configuration.
    pub(super) fn refresh(&self) {
        let now = self.now();
        let refreshed = self.lock_file().refresh(now, |loaded| self.build_channels(loaded));
        let Some((loaded, channels)) = refreshed else { return };
        let mut inner = self.lock();
        inner.configure(loaded, channels, now);
        inner.catch_up(now, &*self.parts.count);
        drop(inner);
        self.news.notify_one();
        self.changed.notify_one();
        self.standings.notify_one();
    }

    /// Builds all channels of a configuration, or returns the first error.
    fn build_channels(&self, loaded: &LoadedConfig) -> Result<Channels, ConfigError> {
        let configs = loaded.config.channels.iter().enumerate();
        let channels = configs.map(|(index, config)| {
            let channel = (self.parts.build)(config, &loaded.config);
            channel
                .map(|channel| (config.name.clone(), channel))
                .map_err(|why| ConfigError::new(format!("channels[{index}]"), why))
        });
        channels.collect()
    }
}

impl Inner {
    /// Applies a configuration. A channel that was configured before keeps its queue and its ledger. A new channel
    /// continues its stored state, or starts without a state.
    fn configure(&mut self, loaded: Arc<LoadedConfig>, channels: Channels, now: Moment) {
        self.remove_lines(&channels);
        for (name, channel) in channels {
            let folds = folds(&loaded.config, &name);
            match self.lines.get_mut(&name) {
                Some(line) => {
                    line.channel = channel;
                    line.queue.set_folds(folds);
                    if detail_namespaces(&self.loaded.config, &name) != detail_namespaces(&loaded.config, &name) {
                        line.queue.drop_details();
                    }
                    // Storing the mark advances the watermark. Otherwise the next process would send old events of
                    // which this channel got no notice under the configuration before.
                    line.ledger.mark_changed();
                }
                None => {
                    let ledger = self.stored.remove(&name).map_or_else(|| Ledger::begin(now), Ledger::restore);
                    let queue = Queue::new(Limits::default(), folds);
                    let failures = Failures::default();
                    self.lines.insert(name, Line { channel, queue, ledger, failures, failing_since: None });
                }
            }
        }
        // A channel that is configured again later starts without a state.
        self.stored.clear();
        self.loaded = loaded;
        self.is_configured = true;
        self.changed.is_reloaded = true;
    }

    /// Removes the lines of all channels except `channels`. Their waiting notices are not sent.
    fn remove_lines(&mut self, channels: &Channels) {
        self.lines.retain(|name, line| {
            let is_kept = channels.contains_key(name);
            if !is_kept && line.ledger.waiting() > 0 {
                tracing::warn!(channel = name, waiting = line.ledger.waiting(), "the channel is no longer configured");
            }
            is_kept
        });
    }
}

/// Returns `Some` if a channel folds notices, with the URL of the inbox if there is one.
fn folds(config: &Config, name: &str) -> Option<Option<String>> {
    let channel = config.channels.iter().find(|channel| channel.name == name)?;
    channel.folds().then(|| config.inbox.as_ref().map(|inbox| inbox.to_string()))
}

/// Returns the labels of the namespaces whose details a channel shows, or `None` if it shows no details.
fn detail_namespaces<'c>(config: &'c Config, name: &str) -> Option<&'c NamespaceLabels> {
    let channel = config.channels.iter().find(|channel| channel.name == name)?;
    channel.has_details.then_some(&channel.namespaces)
}
