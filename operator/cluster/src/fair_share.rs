//! The shares of namespaces in a scarce amount, such as slots or bytes *(pure)*.
//!
//! A namespace alone can have a part of the amount. Beside others it can have less, in proportion to the free rest
//! (dynamic thresholds of Choudhury and Hahne). The last part is kept for namespaces that have none.

/// An amount that namespaces share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairShare {
    /// The whole amount.
    most: usize,
    /// The most that one namespace can have alone.
    alone: usize,
    /// The part that is kept for namespaces that have none.
    kept: usize,
}

impl FairShare {
    /// Returns the shares of `most`. A namespace alone can have `alone`, and `kept` is kept for namespaces that have
    /// none.
    #[must_use]
    pub fn new(most: usize, alone: usize, kept: usize) -> Self {
        let alone = alone.min(most);
        Self { most, alone, kept: kept.min(most - alone) }
    }

    /// Returns the most that one namespace can have alone.
    #[must_use]
    pub fn alone(self) -> usize {
        self.alone
    }

    /// Whether a namespace that has `own` can have `more`, while all namespaces together have `taken`.
    #[must_use]
    pub fn has_room(self, own: usize, taken: usize, more: usize) -> bool {
        if self.is_for_newcomers(own, more) {
            return taken.saturating_add(more) <= self.most;
        }
        self.is_below_share(own, taken) && taken.saturating_add(more) <= self.shared_part()
    }

    /// Whether `more` can come from the part that is kept for namespaces that have none. One newcomer cannot take all
    /// of it.
    #[must_use]
    pub fn is_for_newcomers(self, own: usize, more: usize) -> bool {
        own == 0 && self.is_little(more)
    }

    /// Whether an amount is at most the part that one newcomer can have of the kept part.
    #[must_use]
    pub fn is_little(self, own: usize) -> bool {
        own <= (self.kept / 8).max(1)
    }

    /// Whether a namespace has less than its share.
    #[must_use]
    pub fn is_below_share(self, own: usize, taken: usize) -> bool {
        let shared = self.shared_part();
        own == 0 || own * (shared - self.alone) < self.alone * shared.saturating_sub(taken)
    }

    /// Returns the part that is not kept for namespaces that have none.
    fn shared_part(self) -> usize {
        self.most - self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the amount of each namespace after all of them have taken all they can, one unit in turn.
    fn shares(share: FairShare, namespaces: usize) -> Vec<usize> {
        let mut owns = vec![0; namespaces];
        loop {
            let before = owns.clone();
            for namespace in 0..namespaces {
                let taken = owns.iter().sum();
                owns[namespace] += usize::from(share.has_room(owns[namespace], taken, 1));
            }
            if owns == before {
                return owns;
            }
        }
    }

    #[test]
    fn namespaces_get_equal_shares_and_leave_the_kept_part_to_newcomers() {
        let share = FairShare::new(640, 320, 160);
        assert_eq!(shares(share, 1), [320]);
        for namespaces in [2, 3, 10, 50] {
            let shares = shares(share, namespaces);
            let (least, most) = (shares.iter().min(), shares.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{shares:?}");
            let taken: usize = shares.iter().sum();
            assert!(taken <= 480, "{namespaces}: {taken}");
            assert!(share.has_room(0, taken, 20), "a newcomer has room beside {namespaces}");
            assert!(!share.has_room(0, taken, 161), "but not for more than is kept");
        }
    }

    #[test]
    fn one_newcomer_cannot_take_the_whole_kept_part() {
        let share = FairShare::new(640, 320, 160);
        assert!(share.has_room(0, 480, 20));
        assert!(!share.has_room(0, 480, 21));
        assert!(share.has_room(0, 0, 320), "where nobody has any, it takes what it needs");
    }
}
