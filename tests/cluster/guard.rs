//! The guard on a real API server: rules that are lifted and put back, other people's webhooks, an API served
//! elsewhere, and what people are told of it. One after the other, on a control plane of their own.
//! These tests must not touch the rules of the clusters on which others run.

mod elsewhere;
mod foreign;
mod harness;
mod probes;
mod told;
mod voided;
mod windows;
