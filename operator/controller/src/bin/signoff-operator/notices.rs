//! The notices of this process, and the command `signoff-operator notify test`, which sends a test notice and prints a
//! report *(I/O)*.

use std::{io::Write, process::ExitCode, sync::Arc};

use anyhow::Context;
use kube::Client;
use signoff_cluster::ServerClock;
use signoff_controller::{
    Clock, ProtectedAddresses, metrics::SharedMetrics, notices::ConfigMapStore, protected_addresses,
};
use signoff_executor::ProtectedSet;
use signoff_notify::{
    Notices, build_channel,
    delivery::NoticeParts,
    test_notice::{ChannelTest, claim_test},
};

use crate::{
    arguments::Arguments,
    cluster::{self, Connection},
};

/// The file in the state folder with the time of the last test.
const LAST_TEST: &str = "notify-test";

/// Returns the notices of an operator, or `None` if the administrator has configured none.
pub fn build_notices(
    arguments: &Arguments,
    client: &Client,
    namespace: &str,
    (clock, protected, metrics): (&ServerClock, &ProtectedSet, &SharedMetrics),
) -> Option<Arc<Notices>> {
    let file = arguments.notifications.clone()?;
    let (clock, protected, metrics) = (clock_of(clock), protected.clone(), SharedMetrics::clone(metrics));
    let channel_clock = Arc::clone(&clock);
    Some(Arc::new(Notices::new(NoticeParts {
        file,
        clock,
        store: Arc::new(ConfigMapStore::new(client.clone(), namespace)),
        build: Arc::new(move |channel, config| build_channel(channel, config, &protected, &channel_clock)),
        count: Arc::new(move |channel, result| metrics.count_notice(channel, result)),
    })))
}

/// Sends one test notice, and prints the result of each stage.
///
/// # Errors
/// No file of notices, no API server, or another test a short time ago.
pub async fn test(arguments: &Arguments, channel: &str, user: Option<&String>) -> anyhow::Result<ExitCode> {
    let file = arguments.notifications.clone().context(
        "no notices are configured; name their file by --notifications or NOTIFICATIONS_FILE (values: notifications)",
    )?;
    let (metrics, clock) = (SharedMetrics::default(), ServerClock::new(Arc::new(jiff::Timestamp::now)));
    let Connection { client, config: connection_config, namespace } =
        cluster::connect(arguments, &metrics, &clock).await?;
    let protected = cluster::protected_set(&connection_config).await;
    let folder = arguments.state_dir.clone();
    let folder = folder.context("a test notes its time; name a folder of the operator by --state-dir or STATE_DIR")?;
    claim_test(&folder.join(LAST_TEST), jiff::Timestamp::now().into()).map_err(anyhow::Error::msg)?;
    // The same addresses are protected from channels as in the operator itself.
    let addresses = ProtectedAddresses { namespace: namespace.clone(), protected: protected.clone() };
    let address_watch = tokio::spawn(protected_addresses::watch(&client, &addresses, &metrics));
    let (channel, user, clock) = (channel.to_owned(), user.cloned(), clock_of(&clock));
    let report = ChannelTest { file, channel, user, namespace, protected, clock }.run().await;
    address_watch.abort();
    std::io::stdout().write_all(report.to_string().as_bytes()).context("printing the report")?;
    Ok(if report.is_delivered() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn clock_of(clock: &ServerClock) -> Arc<dyn Clock> {
    let clock = clock.clone();
    Arc::new(move || clock.now())
}
