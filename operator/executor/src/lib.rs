//! The calls of a run to the outside: HTTP, models, blobs and Secrets, the addresses they may reach, and the threads on
//! which text of users is evaluated.
//!
//! **Invariant:** the crate does not decide what a run does next, and has no Kubernetes client: it makes the given
//! call, and returns the result.

pub mod address;
pub mod agent;
pub mod blobs;
pub mod calls;
pub mod clock;
pub mod error;
pub mod evaluator;
pub mod http;
mod redact;
mod resolve;
pub mod room;
pub mod secrets;
mod tls;
pub mod tool_servers;

pub use address::{AddressSettings, Allowed, Cidr, ProtectedSet};
pub use agent::{Model, Providers, TurnReply, TurnRequest};
pub use blobs::{BlobStore, Owner};
pub use calls::{Caller, DefaultCaller, RunRef};
pub use clock::Clock;
pub use error::{CallError, ErrorClass};
pub use evaluator::{Evaluator, EvaluatorSettings, Stopped, Subject};
pub use http::{HeaderSecret, Http, HttpClient, HttpReply, HttpRequest};
pub use redact::excerpt;
pub use room::{AnswerRoom, UnboundedRoom};
pub use secrets::{ExposeSecret, SecretText, Secrets, host_allowed};
pub use tls::is_tls;
pub use tool_servers::{
    Attachment, ListedTools, ServerAddress, ToolEnding, ToolOutput, ToolReply, ToolRequest, ToolServer, ToolServers,
};
