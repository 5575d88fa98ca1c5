//! The guard on a real API server: rules that are removed and restored, foreign webhooks, an API that another server
//! serves, and the reports to people. The tests run one after the other, on a control plane of their own.

mod elsewhere;
mod foreign;
mod harness;
mod probes;
mod told;
mod voided;
mod windows;
