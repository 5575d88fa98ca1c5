//! The Approval that asks the same again after its predecessor was superseded.

use signoff_api::{Approval, RecordPath};

/// Returns the latest Approval of `among` that asks the same again as `approval`: a later visit of the same gate of the
/// same run.
pub fn last<'a>(approval: &Approval, among: impl Iterator<Item = &'a Approval>) -> Option<&'a Approval> {
    among.filter(|other| asks_again(other, approval)).max_by_key(|other| other.spec.request.gate.visit)
}

fn asks_again(other: &Approval, approval: &Approval) -> bool {
    let (later, earlier) = (&other.spec.request, &approval.spec.request);
    later.workflow.uid == earlier.workflow.uid
        && gate_of(&later.gate.path) == gate_of(&earlier.gate.path)
        && later.gate.visit > earlier.gate.visit
}

/// Returns the path of a gate without the number of its visit: `review` for `review#2`.
fn gate_of(path: &str) -> RecordPath<'_> {
    RecordPath::new(path).without_last_visit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_later_visit_of_the_same_gate_asks_again() {
        let earlier = sample::approval();
        let mut later = sample::approval();
        later.spec.request.gate.path = "review#2".into();
        later.spec.request.gate.visit = 2;
        assert!(asks_again(&later, &earlier) && !asks_again(&earlier, &later));
        later.spec.request.gate.path = "other#2".into();
        assert!(!asks_again(&later, &earlier));
        assert_eq!(gate_of("loop#2/review").as_str(), "loop#2/review");
    }
}
