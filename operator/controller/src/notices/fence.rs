//! The fence around the task of notices: nothing is sent or stored while another operator may act.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use tokio::time::{Instant, sleep};

/// The time between two checks while this operator must not act. The Lease is renewed about as often.
const BETWEEN_CHECKS: Duration = Duration::from_secs(1);

/// Polls `work` only while this operator may act. Otherwise requests in flight are neither continued nor cancelled.
pub(crate) async fn only_while(may_act: impl Fn() -> bool, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    let mut pause = pin!(sleep(Duration::ZERO));
    poll_fn(|context| {
        if may_act() {
            return work.as_mut().poll(context);
        }
        pause.as_mut().reset(Instant::now() + BETWEEN_CHECKS);
        if pause.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_stops_while_another_operator_may_act_and_goes_on_afterwards() {
        let (may_act, done) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (fence, count) = (Arc::clone(&may_act), Arc::clone(&done));
        let work = async move {
            for _ in 0..1000 {
                count.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_secs(10)).await;
            }
        };
        let task = tokio::spawn(only_while(move || fence.load(Ordering::Relaxed), work));
        let done_after = async |seconds| {
            sleep(Duration::from_secs(seconds)).await;
            done.load(Ordering::Relaxed)
        };
        assert_eq!(done_after(15).await, 2);
        may_act.store(false, Ordering::Relaxed);
        assert_eq!(done_after(600).await, 2);
        may_act.store(true, Ordering::Relaxed);
        assert_eq!(done_after(5).await, 3);
        task.abort();
    }
}
