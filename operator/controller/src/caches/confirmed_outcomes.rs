//! The outcomes that this process has confirmed and written. A run that takes such an outcome needs no further check of
//! the policies. Digests are kept instead of outcomes, because an outcome can be as long as a vote.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
};

use kube::ResourceExt;
use lru::LruCache;
use signoff_api::{Approval, Digest, approval::Outcome};

const MAX_OUTCOMES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// The digests of confirmed outcomes, by uid and version of their Approval. The digest shows if another program has
/// changed an outcome.
pub(crate) struct ConfirmedOutcomes(Mutex<LruCache<(String, String), Digest>>);

impl Default for ConfirmedOutcomes {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_OUTCOMES)))
    }
}

impl ConfirmedOutcomes {
    /// Adds the confirmed outcome of an Approval. An outcome without a digest is not added, and is confirmed again
    /// later.
    pub(crate) fn add(&self, approval: &Approval, confirmed: &Outcome) {
        let Ok(digest) = Digest::of(confirmed) else { return };
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.put(key(approval), digest);
    }

    /// Whether the stored outcome of an Approval is confirmed.
    pub(crate) fn contains(&self, approval: &Approval) -> bool {
        let outcome = approval.status.as_ref().and_then(|status| status.outcome.as_ref());
        let Some(digest) = outcome.and_then(|outcome| Digest::of(outcome).ok()) else { return false };
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.peek(&key(approval)) == Some(&digest)
    }
}

fn key(approval: &Approval) -> (String, String) {
    (approval.uid().unwrap_or_default(), approval.resource_version().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn approval(version: &str, outcome: &Value) -> Approval {
        let digest = format!("sha256:{}", "0".repeat(64));
        serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": version},
            "spec": {"request": {
                "workflow": {"name": "w", "uid": "w"}, "gate": {"name": "g", "path": "g", "visit": 1, "type": "step"},
                "specDigest": digest, "guardEpoch": "e", "deadline": "2026-01-01T00:00:00Z", "prompt": "Go on?",
                "allowedVerdicts": ["Modify"], "quorums": [], "requestedBy": "dana",
                "timeout": {"action": "Reject"}, "digest": digest,
            }},
            "status": {"phase": "Modified", "outcome": outcome},
        }))
        .unwrap()
    }

    fn modified(response: &str) -> Value {
        let parameters = json!({"response": response});
        json!({"verdict": "Modify", "phase": "Modified", "source": "Human", "parameters": parameters})
    }

    #[test]
    fn an_outcome_is_confirmed_in_the_version_in_which_it_was_added() {
        let cached = ConfirmedOutcomes::default();
        let confirmed = approval("7", &modified("as it was decided"));
        cached.add(&confirmed, confirmed.status.as_ref().unwrap().outcome.as_ref().unwrap());
        assert!(cached.contains(&confirmed));
        assert!(!cached.contains(&approval("7", &modified("as another program made it"))));
        assert!(!cached.contains(&approval("8", &modified("as it was decided"))));
        assert!(!cached.contains(&approval("7", &Value::Null)));
    }

    #[test]
    fn the_cache_does_not_grow_with_the_length_of_an_outcome() {
        let cached = ConfirmedOutcomes::default();
        let long = approval("7", &modified(&"x".repeat(100_000)));
        cached.add(&long, long.status.as_ref().unwrap().outcome.as_ref().unwrap());
        assert!(cached.contains(&long));
        assert!(cached.0.lock().unwrap().iter().all(|(_, digest)| digest.as_str().len() == 71));
    }
}
