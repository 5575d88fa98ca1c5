//! Which steps of a run wait for their Pods, and why, in the words of whoever keeps them waiting.
//!
//! It may not speak of a Pod that runs.

use signoff_engine::Turn;

use super::{claim::Claims, observe::Seen};
use crate::context::Context;

/// A reason and a sentence for the condition; none where nothing waits.
pub(super) fn of(context: &Context, seen: &Seen, turn: &Turn, claims: &Claims) -> Option<(String, String)> {
    if turn.end.is_some() {
        return None;
    }
    let step = |pod: &str| {
        let record = turn.journal.records().iter().find(|r| !r.phase.is_end() && r.object.as_deref() == Some(pod));
        record.map(|record| record.path.clone())
    };
    let troubles = context.pods.troubles(&seen.uid);
    let mut troubled = troubles.iter().filter_map(|(pod, trouble)| Some((step(&pod.name)?, pod, trouble)));
    if let Some((path, pod, trouble)) = troubled.next() {
        let more = troubled.count() + claims.wait.len();
        let more = if more > 0 { format!(" ({more} more wait)") } else { String::new() };
        return Some((trouble.reason.clone(), format!("step {path}, Pod {}: {}{more}", pod.name, trouble.message)));
    }
    let (path, wait) = claims.wait.first()?;
    let (reason, why) = wait.words(&seen.name.namespace);
    let more = claims.wait.len() - 1;
    let more = if more > 0 { format!("; {more} more of its steps wait behind it") } else { String::new() };
    Some((reason.to_owned(), format!("step {path}: {why}{more}")))
}
