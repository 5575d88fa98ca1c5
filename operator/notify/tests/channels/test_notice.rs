//! Tests of the report of a channel test.

use signoff_executor::ProtectedSet;
use signoff_notify::test_notice::{ChannelTest, TestReport};

use super::*;

/// Runs a channel test. The configuration has a webhook `hook` with this URL, and a channel `mail`.
async fn tested(receiver: &Receiver, channel: &str, url: &str, allowed: &str) -> TestReport {
    let (url, key) = (receiver.secret("url", url), receiver.secret("key", "KEY"));
    let file = receiver.secret(
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
fn failed(report: &TestReport) -> String {
    let text = report.to_string();
    let line = text.lines().find_map(|line| line.strip_prefix("FAILED  ")).unwrap_or_default();
    line.split(':').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn test_names_the_failing_stage_without_a_secret() {
    let receiver = Receiver::start().await;
    receiver.answers("/SECRET", ResponseTemplate::new(204)).await;
    receiver.answers("/SECRET-gone", ResponseTemplate::new(410)).await;
    let here = receiver.server.address().to_string();
    let (url, gone) = (format!("http://{here}/SECRET"), format!("http://{here}/SECRET-gone"));
    let (here, url, gone) = (here.as_str(), url.as_str(), gone.as_str());
    let delivered = tested(&receiver, "hook", url, here).await;
    assert!(delivered.is_delivered(), "{delivered}");
    let bodies = receiver.bodies("/SECRET").await;
    let title = bodies.first().unwrap().pointer("/data/title").unwrap().as_str().unwrap().to_owned();
    assert!(title.starts_with("Test notice, no decision is needed, in"), "{title}");
    for (channel, url, allowed, stage, words) in [
        ("hoook", url, here, "configuration", "no channel \"hoook\"; there are: hook, mail"),
        ("mail", url, here, "recipient", "set smtp.to"),
        ("hook", "SECRET", here, "secrets", "no URL with a host"),
        ("hook", url, "192.0.2.1", "address", "notifications.allowedAddresses"),
        ("hook", "http://169.254.169.254/SECRET", here, "address", "notifications.allowedAddresses"),
        ("hook", gone, here, "notice", "it answered 410 (a notice would be given up)"),
    ] {
        let report = tested(&receiver, channel, url, allowed).await;
        assert_eq!(failed(&report), stage, "{report}");
        let text = report.to_string();
        assert!(text.contains(words) && !text.contains("SECRET") && !text.contains("127.0.0.1"), "{text}");
    }
}
