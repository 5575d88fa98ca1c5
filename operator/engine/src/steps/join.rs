//! Several futures at once, polled in their order until none of them makes progress.
//!
//! Without a runtime and wakers: a transition ends when a pass over all futures finishes none. The number of calls in
//! flight is limited where calls begin.

use std::{future::poll_fn, pin::Pin, task::Poll};

use super::flow::EarlyEnd;

/// A member of a group.
pub(crate) type Member<'f, T> = Pin<Box<dyn Future<Output = Result<T, EarlyEnd>> + 'f>>;

/// Runs all members and returns their results in order.
///
/// Every early end but a failure ends all members at once, and so does a failure with `fail_fast`. Without `fail_fast`
/// the first failure in the order of the members is returned after all members have ended.
pub(crate) async fn join_all<T>(mut members: Vec<Member<'_, T>>, fail_fast: bool) -> Result<Vec<T>, EarlyEnd> {
    let mut ended: Vec<Option<Result<T, EarlyEnd>>> = members.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut has_progress = true;
        while has_progress {
            has_progress = false;
            for (member, end) in members.iter_mut().zip(&mut ended).filter(|(_, end)| end.is_none()) {
                if let Poll::Ready(result) = member.as_mut().poll(context) {
                    match result {
                        Err(stop) if fail_fast || !matches!(stop, EarlyEnd::Failed(_)) => {
                            return Poll::Ready(Err(stop));
                        }
                        result => *end = Some(result),
                    }
                    has_progress = true;
                }
            }
        }
        if ended.iter().all(Option::is_some) { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await?;
    ended.into_iter().flatten().collect()
}
