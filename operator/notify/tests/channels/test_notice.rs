//! Tests of the report of a channel test.

use signoff_executor::ProtectedSet;
use signoff_notify::test_notice::{ChannelTest, TestReport};

use super::*;

/// Tests the channel `channel` of a configuration with two channels: `hook`, a webhook with this URL, and `mail`.
/// `allowed`: the entry of `allowedAddresses`.
async fn run_channel_test(receiver: &Receiver, channel: &str, url: &str, allowed: &str) -> TestReport {
    let (url, key) = (receiver.write_secret("url", url), receiver.write_secret("key", "KEY"));
    let file = receiver.write_secret(
        "notifications.yaml",
        &format!(
            "allowedAddresses: [{allowed}]\nchannels:\n- {{name: hook, webhook: {{urlFile: {}, format: cloudevents}}}}\n\
             - {{name: mail, smtp: {{url: \"smtps://192.0.2.1\", userFile: {}, passwordFile: {}, from: a@example.com}}}}\n\
             routes: [{{to: [hook]}}]",
            url.display(),
            key.display(),
            key.display()
        ),
    );
    let test = ChannelTest {
        file,
        channel: channel.to_owned(),
        user: None,
        namespace: "signoff-system".to_owned(),
        protected: ProtectedSet::default(),
        clock: Arc::new(jiff::Timestamp::now),
    };
    test.run().await
}

/// Returns the name of the failed stage, or an empty text.
fn failed_stage(report: &TestReport) -> String {
    let text = report.to_string();
    let line = text.lines().find_map(|line| line.strip_prefix("FAILED  ")).unwrap_or_default();
    line.split(':').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn test_names_the_failing_stage_without_a_secret() {
    let receiver = Receiver::start().await;
    receiver.set_answer("/SECRET", ResponseTemplate::new(204)).await;
    receiver.set_answer("/SECRET-gone", ResponseTemplate::new(410)).await;
    let address = receiver.server.address().to_string();
    let (url, gone) = (format!("http://{address}/SECRET"), format!("http://{address}/SECRET-gone"));
    let (address, url, gone) = (address.as_str(), url.as_str(), gone.as_str());
    let report = run_channel_test(&receiver, "hook", url, address).await;
    assert!(report.is_delivered(), "{report}");
    let bodies = receiver.bodies("/SECRET").await;
    let title = bodies.first().unwrap().pointer("/data/title").unwrap().as_str().unwrap().to_owned();
    assert!(title.starts_with("Test notice, no decision is needed, in"), "{title}");
    for (channel, url, allowed, stage, message) in [
        ("hoook", url, address, "configuration", "no channel \"hoook\"; there are: hook, mail"),
        ("mail", url, address, "recipient", "set smtp.to"),
        ("hook", "SECRET", address, "secrets", "no URL with a host"),
        ("hook", url, "192.0.2.1", "address", "notifications.allowedAddresses"),
        ("hook", "http://169.254.169.254/SECRET", address, "address", "notifications.allowedAddresses"),
        ("hook", gone, address, "notice", "it answered 410 (a notice would be given up)"),
    ] {
        let report = run_channel_test(&receiver, channel, url, allowed).await;
        assert_eq!(failed_stage(&report), stage, "{report}");
        let text = report.to_string();
        assert!(text.contains(message) && !text.contains("SECRET") && !text.contains("127.0.0.1"), "{text}");
    }
}
