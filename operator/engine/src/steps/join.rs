//! Several futures at once, polled in their order until nothing moves any more.
//!
//! No runtime and no wakers: a transition ends when a pass over all of them finishes none. The number of calls in
//! flight is bounded where calls begin, not here.

use std::{future::poll_fn, pin::Pin, task::Poll};

use super::flow::EarlyEnd;

/// A member of a group.
pub(crate) type Member<'f, T> = Pin<Box<dyn Future<Output = Result<T, EarlyEnd>> + 'f>>;

/// Runs all of them and returns what each came to, in their order.
///
/// A person's no ends all of them at once. So does a failure where `fail_fast`; else it counts once all have ended, the
/// first in order where there are several.
pub(crate) async fn join_all<T>(mut members: Vec<Member<'_, T>>, fail_fast: bool) -> Result<Vec<T>, EarlyEnd> {
    let mut ended: Vec<Option<Result<T, EarlyEnd>>> = members.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut moved = true;
        while moved {
            moved = false;
            for (member, end) in members.iter_mut().zip(&mut ended).filter(|(_, end)| end.is_none()) {
                if let Poll::Ready(result) = member.as_mut().poll(context) {
                    match result {
                        Err(stop) if fail_fast || !matches!(stop, EarlyEnd::Failed(_)) => {
                            return Poll::Ready(Err(stop));
                        }
                        result => *end = Some(result),
                    }
                    moved = true;
                }
            }
        }
        if ended.iter().all(Option::is_some) { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await?;
    ended.into_iter().flatten().collect()
}
