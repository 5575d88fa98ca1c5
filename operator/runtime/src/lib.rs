//! The outside world of a run: HTTP calls, model providers, blobs and Secrets; and [`local`], which puts them together to runs
//! without a cluster.
//!
//! It must not decide what a run does next or hold a Kubernetes client: the engine decides, and this
//! crate only does what it is told and says how it went.

pub mod address;
pub mod agent;
pub mod blobs;
pub mod calls;
pub mod clock;
mod durable;
pub mod error;
pub mod evaluator;
mod excerpt;
pub mod http;
pub mod local;
mod resolve;
pub mod secrets;

pub use address::{Allowed, Cidr, Settings as AddressSettings, Surroundings};
pub use agent::{Message, Model, ProviderConfig, Providers, Role, ScriptedReply, TurnReply, TurnRequest, Usage};
pub use blobs::{BlobStore, FolderBlobs, Owner};
pub use calls::{Caller, Outside, RunRef};
pub use clock::Clock;
pub use error::{CallError, ErrorClass};
pub use evaluator::{Evaluator, Settings as EvaluatorSettings, Stopped, Subject};
pub use http::{Http, HttpClient, HttpReply, HttpRequest};
pub use secrets::{ExposeSecret, SecretText, Secrets, host_allowed};
