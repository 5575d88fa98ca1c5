//! Connections to the operator's port for probes and metrics that never send a whole request.

use std::time::{Duration, Instant};

use signoff_tests::control_plane::{Cluster, OperatorOptions, OperatorProcess, program};
use signoff_tests::half_requests::{HalfRequests, with_few_files};
use tokio::time::timeout;

/// How long the kubelet waits for a probe.
const PROBE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn half_requests_at_the_operators_port_do_not_stop_its_probes_and_end_after_ten_seconds() {
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
    for page in ["/healthz", "/readyz", "/metrics"].repeat(5) {
        let answer = timeout(PROBE, operator.get(page)).await.unwrap_or_else(|_| panic!("{page} waits"));
        assert!(answer.is_ok(), "{page}: {answer:?}");
    }
    let open = half.at_most(128, Duration::from_secs(5)).await.unwrap();
    assert!(open > 100, "{open}");
    let answer = half.last_answer(Duration::from_secs(15)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("not whole within 10s"), "{answer}");
    assert!(opened.elapsed() > Duration::from_secs(8), "{:?}", opened.elapsed());
    half.at_most(0, Duration::from_secs(5)).await.unwrap();
}
