//! Notices: people are told where they are.
//!
//! ```text
//! occasion -> routes (pure) -> queue (pure) -> a channel (I/O) -> ledger (pure) -> the stored state (I/O)
//! ```
//!
//! **Invariant:** nothing of a run waits for a notice. What is not delivered is known by its id in one object, and told
//! again from the stored objects after a crash.
//!
//! * [`notice`], [`channel`]: what is sent, and by what
//! * [`config`], [`people`]: the administrator's files
//! * [`routes`]: which channels and recipients an event reaches
//! * [`queue`]: what waits to be sent, and in which order
//! * [`state`]: what is remembered beyond this process
//! * [`delivery`]: the task that sends
//! * [`failures`]: what failed, for the conditions of Approvals
//! * [`test_notice`]: one test through a channel, and its report
//! * [`slack`], [`mail`], [`pagerduty`], [`webhook`]: the channels, which [`build_channel`] makes
//!
//! **Invariant:** text of others leaves this crate only as `text.rs` makes it, and no error has a token, the address of
//! a webhook or the address of a person.

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
