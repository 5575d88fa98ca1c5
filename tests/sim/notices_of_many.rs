//! Notices of many runs at once, of which a part fails: each arrives once and in order, and the stored state is
//! bounded. Nothing here crashes; crashes are tested in `notices`.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::Entry;

use crate::{
    harness::{Harness, OPERATOR},
    receivers::Reception,
    scenarios::{chain, gate, set},
};

/// The number of runs. Each has notices of a question, 17 reminders, its outcome and its end.
const RUNS: usize = 500;
const NOTICES: usize = RUNS * 20;
/// The most bytes of the object with the marks of one channel: two lists of 500 keys.
const MARKS: usize = 64 * 1024;

fn reminding() -> Value {
    let timeout = json!({"after": "3h", "action": "Skip", "reminderInterval": "10m", "maxReminders": 17});
    chain(json!([gate("review", json!({"timeout": timeout})), set("send", "sent")]))
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_notices_arrive_once_and_in_order_when_a_third_fails() {
    let harness = Harness::with_notices(&["hook"]);
    let mut dice = fastrand::Rng::with_seed(43);
    harness.receivers().answer(move |_| if dice.u8(0..100) < 30 { Reception::Busy } else { Reception::Taken });
    let life = harness.begin(OPERATOR);
    for number in 0..RUNS {
        harness.apply_in(&format!("n{}", number % 7), &format!("r{number}"), &reminding());
    }
    let mut most_waiting = 0;
    for _ in 0..3 * 60 {
        harness.pass(60).await;
        most_waiting = most_waiting.max(harness.metric("signoff_notices_waiting{channel=\"hook\"}"));
    }
    harness.pass(2 * 3600).await;
    harness.receivers().check("a third fails");
    let arrived = harness.receivers().arrived();
    assert_eq!(arrived.len(), NOTICES, "each once");
    let failed = harness.receivers().attempts() - NOTICES;
    assert!(failed > NOTICES / 4, "{failed} attempts failed");
    assert!(usize::try_from(most_waiting).unwrap() <= 4 * RUNS, "{most_waiting} waited at once");
    assert_eq!(harness.metric("signoff_notices_waiting{channel=\"hook\"}"), 0);
    assert_eq!(harness.metric("signoff_notices_total{channel=\"hook\",result=\"delivered\"}"), 10_000);
    let marks: Vec<Entry> =
        harness.server.writes().into_iter().filter(|entry| entry.resource.plural == "configmaps").collect();
    let largest = marks.iter().map(|entry| entry.body.len()).max().unwrap_or_default();
    assert!(largest <= MARKS, "{largest} bytes of marks");
    // The creation is a second request of the first write.
    let times: Vec<_> = marks.iter().skip(1).map(|entry| entry.at).collect();
    let least = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).min().unwrap();
    assert!(least >= jiff::SignedDuration::from_secs(1), "{least:#} between two writes of marks");
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_the_newest_notices_of_the_largest_namespace() {
    let harness = Harness::with_notices(&["hook"]);
    harness.receivers().answer(|_| Reception::Busy);
    let life = harness.begin(OPERATOR);
    harness.apply_in("small", "one", &reminding());
    for number in 0..900 {
        harness.apply_in("large", &format!("r{number}"), &reminding());
    }
    // 900 runs of 20 notices are more than the queue of a channel holds.
    harness.pass(4 * 3600).await;
    let waiting = harness.metric("signoff_notices_waiting{channel=\"hook\"}");
    assert!(waiting <= 16_384, "{waiting} wait");
    assert!(harness.metric("signoff_notices_total{channel=\"hook\",result=\"dropped\"}") > 0);
    harness.receivers().heal();
    harness.server.clock().pass(Duration::from_secs(3 * 3600)).await;
    harness.receivers().check("a full queue");
    let of_small = harness.receivers().arrived().iter().filter(|arrival| arrival.notice.namespace == "small").count();
    assert_eq!(of_small, 20, "nothing of the small namespace is dropped");
    life.crash().await;
}
