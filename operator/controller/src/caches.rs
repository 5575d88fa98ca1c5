//! The caches of this process for reconciles: plans, journal segments, confirmed outcomes and times of partial tallies.
//! Each is bounded, the least recently used entries leave first, and a missing entry costs time only.

mod by_bytes;
mod confirmed_outcomes;
mod partial_tallies;
mod plans;
mod segments;

pub(crate) use confirmed_outcomes::ConfirmedOutcomes;
pub(crate) use partial_tallies::PartialTallies;
pub(crate) use plans::{CachedPlan, PlanCache};
pub(crate) use segments::SegmentCache;
