//! The deadline of a call.

use std::time::Duration;

use signoff_executor::CallError;
use tokio::time::Instant;

/// Returns the moment at which a call with this timeout, which begins now, must have ended.
///
/// # Errors
/// The timeout is longer than the clock can count.
pub fn deadline_after(timeout: Duration) -> Result<Instant, CallError> {
    let deadline = Instant::now().checked_add(timeout);
    deadline.ok_or_else(|| CallError::invalid("the call's timeout is too long: give a shorter one"))
}
