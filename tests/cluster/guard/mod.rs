//! The guard on a real API server: rules that are lifted and put back, other people's webhooks, an API served
//! elsewhere, and what people are told of it. Each on a control plane of its own, because the rules are everybody's.
//! These tests may not use the suite's clusters.

mod elsewhere;
mod foreign;
mod stage;
mod told;
mod windows;
