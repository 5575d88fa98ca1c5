//! Builds channels from their configuration.

use std::sync::Arc;

use signoff_executor::http::HttpSettings;
use signoff_executor::{AddressSettings, Clock, Http, HttpClient, ProtectedSet};

use crate::channel::Channel;
use crate::config::{ChannelConfig, ChannelKind, Config};
use crate::mail::MailChannel;
use crate::pagerduty::PagerDutyChannel;
use crate::slack::SlackChannel;
use crate::webhook::WebhookChannel;

/// The most bytes of an answer. Slack repeats the whole message in its answer.
const ANSWER_BYTES: usize = 256 * 1024;

/// Returns a channel with an HTTP or mail client of its own. The client also reaches the addresses in
/// `allowedAddresses`, and none of the `protected` ones.
///
/// # Errors
/// A setting is invalid, or TLS cannot be set up; with the remedy.
pub fn build_channel(
    channel: &ChannelConfig,
    config: &Config,
    protected: &ProtectedSet,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Channel>, String> {
    let addresses = reachable_addresses(config, protected);
    let http = || -> Result<Arc<dyn Http>, String> {
        let settings =
            HttpSettings { addresses: addresses.clone(), max_response: ANSWER_BYTES, ..HttpSettings::default() };
        Ok(Arc::new(HttpClient::new(settings).map_err(|error| error.to_string())?))
    };
    let built: Arc<dyn Channel> = match &channel.kind {
        ChannelKind::Slack(slack) => Arc::new(SlackChannel::new(slack.clone(), http()?)),
        ChannelKind::Webhook(hook) => Arc::new(WebhookChannel::new(hook.clone(), http()?, Arc::clone(clock))),
        ChannelKind::PagerDuty(pagerduty) => Arc::new(PagerDutyChannel::new(pagerduty.clone(), http()?)),
        ChannelKind::Smtp(smtp) => {
            Arc::new(MailChannel::new(smtp.clone(), addresses.clone()).map_err(|error| error.to_string())?)
        }
    };
    Ok(built)
}

/// Returns the addresses that channels may reach: those that the configuration allows, and never metadata services.
pub(crate) fn reachable_addresses(config: &Config, protected: &ProtectedSet) -> AddressSettings {
    let allow = config.allowed_addresses.clone();
    AddressSettings { allow, protected: protected.clone(), is_metadata_closed: true }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::channel::Recipient;
    use crate::notice::{Notice, NoticeEvent};

    use super::*;

    /// Sends a test notice through a channel while `exception` is in `allowedAddresses`, and returns the failure.
    async fn failure(exception: &str, channel: &str) -> String {
        let text = format!("allowedAddresses: [\"{exception}\"]\nchannels: [{{name: a, {channel}}}]");
        let config = Config::parse(&text).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(jiff::Timestamp::now);
        let only = config.channels.first().unwrap();
        let built = build_channel(only, &config, &ProtectedSet::default(), &clock).unwrap();
        let notice = Notice {
            id: "n1".into(),
            event: NoticeEvent::Asked,
            correlation: "c1".into(),
            namespace: "prod".into(),
            run: "refund-7".into(),
            approval: None,
            gate: None,
            kind: None,
            requester: "alice".into(),
            deadline: None,
            then: None,
            outcome: None,
            details: None,
            link: None,
            at: clock.now().into(),
        };
        format!("{:?}", built.send(&notice, &Recipient::Channel, None).await.unwrap_err())
    }

    #[tokio::test]
    async fn no_channel_reaches_a_metadata_service_however_it_is_opened_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        for host in
            ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]"]
        {
            std::fs::write(&file, format!("http://{host}/")).unwrap();
            let exception = if host.starts_with('[') { "::/0" } else { "0.0.0.0/0" };
            let hook = format!("webhook: {{urlFile: \"{}\", format: teams}}", file.display());
            let mail = format!("smtp: {{url: \"smtps://{host}\", from: a@example.com, to: b@example.com}}");
            for channel in [hook, mail] {
                let failure = failure(exception, &channel).await;
                assert!(failure.contains("address") && failure.contains("is refused"), "{channel}: {failure}");
            }
        }
    }
}
