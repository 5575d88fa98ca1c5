//! Connections to the operator's port for probes and metrics that never send a whole request.

use std::time::{Duration, Instant};

use signoff_tests::control_plane::{Cluster, OperatorOptions, OperatorProcess, program};
use signoff_tests::half_requests::{HalfRequests, with_few_files};

/// The time limit of a step, on a loaded machine too.
const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn half_requests_end_after_ten_seconds_and_do_not_stop_probes() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let operator = program("signoff-controller", "signoff-operator").unwrap();
    let program = Some(with_few_files(&operator, cluster.folder()).unwrap());
    let operator =
        OperatorProcess::start(&cluster, OperatorOptions { program, ..OperatorOptions::default() }).await.unwrap();
    let mut half = HalfRequests::at(operator.url()).unwrap();
    for peer in 1..=6 {
        half.open(peer, 200).await.unwrap();
    }
    let opened = Instant::now();
    let open = half.at_most(128, TIMEOUT).await.unwrap();
    assert!(open > 100, "{open}");
    for page in ["/healthz", "/readyz", "/metrics"].repeat(5) {
        let answer = operator.get(page).await;
        assert!(answer.is_ok(), "{page}: {answer:?}");
    }
    // The half requests are still open, so no probe has waited for their end.
    assert!(half.is_last_open(), "{:?}", opened.elapsed());
    let answer = half.last_answer(TIMEOUT).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("not whole within 10s"), "{answer}");
    assert!(opened.elapsed() > Duration::from_secs(8), "{:?}", opened.elapsed());
    half.at_most(0, TIMEOUT).await.unwrap();
}
