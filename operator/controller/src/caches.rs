//! The caches of this process for reconciles: plans, journal segments, confirmed outcomes and times of partial tallies.
//! Each is bounded, and a missing entry costs only time.

mod by_bytes;
mod confirmed_outcomes;
mod partial_tallies;
mod plans;
mod segments;

use confirmed_outcomes::ConfirmedOutcomes;
use partial_tallies::PartialTallies;
use plans::PlanCache;

pub(crate) use plans::CachedPlan;
pub(crate) use segments::SegmentCache;

/// The caches of one operator.
pub(crate) struct Caches {
    pub(crate) plans: PlanCache,
    pub(crate) segments: SegmentCache,
    /// The outcomes that this process has confirmed and written.
    pub(crate) confirmed_outcomes: ConfirmedOutcomes,
    pub(crate) partial_tallies: PartialTallies,
}

impl Caches {
    /// Returns empty caches. `segment_bytes`: the most bytes of cached segments, as they are stored.
    pub(crate) fn new(segment_bytes: usize) -> Self {
        Self {
            plans: PlanCache::default(),
            segments: SegmentCache::with_max_bytes(segment_bytes),
            confirmed_outcomes: ConfirmedOutcomes::default(),
            partial_tallies: PartialTallies::default(),
        }
    }
}
