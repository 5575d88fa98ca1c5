//! The parts of the operator's memory that runs can use at once, computed from its memory limit.
//!
//! Idle objects and connections are not in these parts. [`signoff_cluster::fair_budget`] and the caches count the bytes
//! in use.

/// The parts of the memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The bytes that each call in flight has of its own, for its request and its answer.
    pub own_of_call: usize,
    /// All further bytes of calls: long requests, long answers, logs and uncommitted results.
    pub calls: usize,
    /// The long values and journals that transitions read.
    pub values: usize,
    /// The long values that are cached for the next transition of a busy run.
    pub kept_values: usize,
    /// The cached segments of journals, in stored bytes.
    pub segments: usize,
    /// The decoded objects that are being reconciled.
    pub reconciles: usize,
}

impl MemoryLimits {
    /// The least memory in bytes from which the parts are computed, even if the limit is lower.
    const LEAST: usize = 256 * 1024 * 1024;
    const MOST_OWN_OF_CALL: usize = 1024 * 1024;

    /// Returns the parts of `limit` bytes. At most a quarter is divided among `max_calls` calls as their own bytes.
    #[must_use]
    pub fn of(limit: usize, max_calls: usize) -> Self {
        let limit = limit.max(Self::LEAST);
        Self {
            own_of_call: (limit / 4 / max_calls.max(1)).min(Self::MOST_OWN_OF_CALL),
            calls: limit / 8,
            values: limit / 8,
            kept_values: limit / 16,
            segments: limit / 16,
            reconciles: limit / 16,
        }
    }
}

impl Default for MemoryLimits {
    /// Returns the parts of 512 MiB, the default of the chart, for 64 calls at once.
    fn default() -> Self {
        Self::of(512 * 1024 * 1024, 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_together_leave_half_of_the_memory_free() {
        for (limit, max_calls) in [(256_usize << 20, 64), (512 << 20, 64), (512 << 20, 1000), (8 << 30, 64)] {
            let parts = MemoryLimits::of(limit, max_calls);
            let MemoryLimits { own_of_call, calls, values, kept_values, segments, reconciles } = parts;
            let own = own_of_call * max_calls;
            assert!(own <= limit / 4, "{parts:?}");
            // A segment takes about twice its stored bytes in memory, and a reconcile takes more than its object.
            assert!(calls + values + kept_values + 2 * segments + reconciles <= limit / 2, "{parts:?}");
        }
    }

    #[test]
    fn a_limit_below_the_least_memory_counts_as_the_least() {
        assert_eq!(MemoryLimits::of(64 << 20, 64), MemoryLimits::of(256 << 20, 64));
        assert_eq!(MemoryLimits::default().own_of_call, 1 << 20);
        assert_eq!(MemoryLimits::of(512 << 20, 256).own_of_call, 1 << 19);
    }
}
