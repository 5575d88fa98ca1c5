//! Notices: messages to people and machines about requests, decisions and the end of runs.
//!
//! ```text
//! occasion -> routes (pure) -> queue (pure) -> a channel (I/O) -> ledger (pure) -> the stored state (I/O)
//! ```
//!
//! **Invariant:** no step of a run waits for a notice. The ids of undelivered notices are in one stored object; after a
//! crash these notices are derived from the stored Approvals and Workflows and sent again.
//!
//! * [`notice`], [`channel`]: the notice, and the interface of a channel
//! * [`config`], [`people`]: the administrator's files
//! * [`routes`]: the channels and recipients of an event
//! * [`queue`]: the waiting deliveries of a channel, and their order
//! * [`state`]: the state that outlives the process
//! * [`delivery`]: the task that sends notices
//! * [`failures`]: the failed deliveries, for the conditions of Approvals
//! * [`test_notice`]: one test through a channel, and its report
//! * [`slack`], [`mail`], [`pagerduty`], [`webhook`]: the channels, which [`build_channel`] builds
//!
//! **Invariant:** text of authors, models and tools leaves this crate only as `text.rs` renders it, and no error
//! contains a token, the URL of a webhook or the address of a person.

mod build_channel;
pub mod channel;
pub mod config;
pub mod delivery;
pub mod failures;
pub mod mail;
pub mod notice;
pub mod pagerduty;
pub mod people;
mod post;
pub mod queue;
pub mod routes;
mod secret_file;
pub mod slack;
pub mod state;
mod teams;
pub mod test_notice;
mod text;
pub mod webhook;
mod yaml;

pub use build_channel::build_channel;
pub use channel::{Channel, MessageHandle, Recipient, SendError};
pub use config::{ChannelConfig, ChannelKind, Config};
pub use delivery::{NoticeResult, Notices, StateStore};
pub use notice::{Notice, NoticeEvent};
pub use people::People;
pub use routes::{Occasion, Refusal};
pub use text::CUT;

#[cfg(test)]
mod simulated;
