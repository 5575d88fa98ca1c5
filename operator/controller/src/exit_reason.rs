//! The reasons why an operator ends without being asked to.

/// The reason why an operator ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ExitReason {
    /// The Lease was lost, so another operator may act.
    #[error("{0}: this process ends, so that only one operator acts")]
    LeaseLost(String),
    /// Another server answered requests for objects of Signoff, so the caches may be false.
    #[error(
        "the API signoff.dev was served by another server for a time: this process exits, so that the next one starts without what was read from it"
    )]
    ForeignApiServer,
    /// Evaluations did not stop when told to, and their threads keep using the CPU.
    #[error("{0} evaluations did not stop: their objects are quarantined, and this process exits to end their threads")]
    LostThreads(usize),
    /// A task that must not end has ended.
    #[error("the operator's {0} ended: internal error; report this as a bug")]
    Task(&'static str),
}
