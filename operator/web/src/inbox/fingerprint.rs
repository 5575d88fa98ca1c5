//! The fingerprint of the requests that an inbox lists, by which a browser compares its page with the current requests.
//!
//! **Invariant:** a fingerprint does not depend on the feed, and is a hash, so it has no content of a request.

use sha2::{Digest, Sha256};

use crate::live::{Unreadable, Waiting};

/// The hex digits of a fingerprint, which are enough to distinguish two lists of one reader.
const DIGITS: usize = 16;

/// Returns the fingerprint of listed requests and of Approvals that cannot be read. Their order does not matter.
pub fn fingerprint(shown: &[Waiting], unreadable: &[Unreadable]) -> String {
    let shown = shown.iter().map(|one| format!("{}\0{}\0{:?}\n", one.row.uid, one.row.version, one.standing));
    let unreadable = unreadable.iter().map(|one| format!("{}/{}\n", one.namespace, one.name));
    let mut all: Vec<String> = shown.chain(unreadable).collect();
    all.sort_unstable();
    let mut hex = hex::encode(Sha256::digest(all.concat()));
    hex.truncate(DIGITS);
    hex
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use signoff_review::sample;

    use super::*;
    use crate::live::{Row, Standing};

    fn waiting(uid: &str, version: &str) -> Waiting {
        let row = Row { uid: uid.to_owned(), version: version.to_owned(), ..Row::of(&sample::approval()) };
        Waiting { row: Arc::new(row), standing: Standing::Asked, is_mine: false }
    }

    #[test]
    fn fingerprint_differs_with_the_list_and_not_with_its_order() {
        let (a, b) = (waiting("a", "1"), waiting("b", "1"));
        let shown = fingerprint(&[a.clone(), b.clone()], &[]);
        assert_eq!(shown.len(), DIGITS);
        assert_eq!(shown, fingerprint(&[b.clone(), waiting("a", "1")], &[]), "whatever the order");
        let odd = Unreadable { namespace: "finance".to_owned(), name: "odd".to_owned() };
        let decided = Waiting { standing: Standing::Other, ..b.clone() };
        let others = [
            fingerprint(&[], &[]),
            fingerprint(std::slice::from_ref(&a), &[]),
            fingerprint(&[a.clone(), waiting("b", "2")], &[]),
            fingerprint(&[a.clone(), decided], &[]),
            fingerprint(&[a, b], &[odd]),
        ];
        assert!(!others.contains(&shown), "{others:?}");
    }
}
