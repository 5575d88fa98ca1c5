//! Several clients at once, each of which sends its next request after the answer to the last.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use http::Request;
use kube::Client;

/// Runs `act` for the numbers below `count` in order, `clients` at a time. The results are in no order.
pub(super) async fn each<T>(clients: usize, count: usize, act: impl AsyncFn(usize) -> Result<T>) -> Result<Vec<T>> {
    futures::stream::iter(0..count).map(|index| act(index)).buffer_unordered(clients).try_collect().await
}

/// Runs `act` as [`each`] does, but begins no further run after `timeout`.
pub(super) async fn each_within<T>(
    clients: usize,
    count: usize,
    timeout: Duration,
    act: impl AsyncFn(usize) -> Result<T>,
) -> Result<Vec<T>> {
    let end = Instant::now() + timeout;
    let begun = futures::stream::iter((0..count).take_while(|_| Instant::now() < end));
    begun.map(|index| act(index)).buffer_unordered(clients).try_collect().await
}

/// Creates an object.
pub(super) async fn post(client: &Client, path: &str, body: Vec<u8>) -> Result<String> {
    send(client, Request::post(path).header("content-type", "application/json").body(body)?).await
}

/// Replaces an object.
pub(super) async fn put(client: &Client, path: &str, body: Vec<u8>) -> Result<String> {
    send(client, Request::put(path).header("content-type", "application/json").body(body)?).await
}

/// Applies a merge patch.
pub(super) async fn patch(client: &Client, path: &str, body: Vec<u8>) -> Result<String> {
    send(client, Request::patch(path).header("content-type", "application/merge-patch+json").body(body)?).await
}

/// Deletes an object.
pub(super) async fn delete(client: &Client, path: &str) -> Result<String> {
    send(client, Request::delete(path).body(Vec::new())?).await
}

/// Reads an object or a list.
pub(super) async fn get(client: &Client, path: &str) -> Result<String> {
    send(client, Request::get(path).body(Vec::new())?).await
}

async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<String> {
    let what = format!("{} {}", request.method(), request.uri());
    client.request_text(request).await.context(what)
}

/// Returns a percentile: the smallest time that at least `share` of all times do not exceed; zero without times.
pub(super) fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    // The nearest-rank method, which returns a time that occurred.
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).or(sorted.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;
    use std::time::Duration;

    use super::{each, percentile};

    #[test]
    fn percentiles_are_values_that_occurred() {
        let times: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 0.5), Duration::from_millis(50));
        assert_eq!(percentile(&times, 0.99), Duration::from_millis(99));
        assert_eq!(percentile(&times[..1], 0.99), Duration::from_millis(100));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }

    #[tokio::test]
    async fn at_most_as_many_acts_run_as_there_are_clients() {
        let (busy, most) = (Cell::new(0), Cell::new(0));
        let done = each(3, 20, async |index| {
            busy.set(busy.get() + 1);
            most.set(most.get().max(busy.get()));
            tokio::task::yield_now().await;
            busy.set(busy.get() - 1);
            Ok(index)
        })
        .await
        .unwrap();
        assert_eq!((done.len(), most.get()), (20, 3));
    }
}
