//! The order of the requests, the folds of requests with equal gates, and the pages of the list.
//!
//! Pure.

use std::collections::BTreeMap;

use signoff_api::Moment;

use super::filter::Sort;
use crate::live::{Row, Waiting};

/// The most requests on one page.
pub const PAGE: usize = 40;
/// The least number of requests of equal gates that are folded.
const FEWEST_FOLDED: usize = 4;
/// The most requests of one fold on a page: as many as can be decided together.
pub const MOST_FOLDED: usize = 32;

/// Requests that are listed together: one, or several of equal gates.
pub type Fold = Vec<Waiting>;

/// Sorts requests. With [`Sort::Due`] the requests of a run stay together, at the place of the nearest deadline.
pub fn sort(rows: &mut [Waiting], order: Sort) {
    match order {
        Sort::Due => {
            let mut nearest: BTreeMap<(String, String), Moment> = BTreeMap::new();
            for one in rows.iter() {
                let nearest = nearest.entry(run_key(&one.row)).or_insert(one.row.deadline);
                *nearest = one.row.deadline.min(*nearest);
            }
            rows.sort_by_cached_key(|one| {
                (nearest.get(&run_key(&one.row)).copied(), run_key(&one.row), one.row.deadline, one.row.name.clone())
            });
        }
        Sort::Newest => rows.sort_by_cached_key(|one| {
            (std::cmp::Reverse(one.row.since), one.row.namespace.clone(), one.row.name.clone())
        }),
        Sort::Run => rows.sort_by_cached_key(|one| (run_key(&one.row), one.row.deadline, one.row.name.clone())),
    }
}

fn run_key(row: &Row) -> (String, String) {
    (row.namespace.clone(), row.workflow.clone())
}

/// Folds requests of equal gates, if there are at least [`FEWEST_FOLDED`], at the position of the first of them.
#[must_use]
pub fn fold(rows: Vec<Waiting>) -> Vec<Fold> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for one in &rows {
        *counts.entry(one.row.alike.clone()).or_default() += 1;
    }
    let mut folds: Vec<Fold> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for one in rows {
        let is_folded = counts.get(&one.row.alike).is_some_and(|count| *count >= FEWEST_FOLDED);
        let place = places.get(&one.row.alike).copied().filter(|_| is_folded);
        match place.and_then(|place| folds.get_mut(place)) {
            Some(fold) => fold.push(one),
            None => {
                places.insert(one.row.alike.clone(), folds.len());
                folds.push(vec![one]);
            }
        }
    }
    folds
}

/// Splits folds into pages of at most [`PAGE`] requests. A fold stays on one page, and counts with at most
/// [`MOST_FOLDED`] requests.
#[must_use]
pub fn split_into_pages(folds: Vec<Fold>) -> Vec<Vec<Fold>> {
    let mut pages: Vec<Vec<Fold>> = Vec::new();
    let mut shown = 0;
    for fold in folds {
        let own = fold.len().min(MOST_FOLDED);
        match pages.last_mut().filter(|_| shown + own <= PAGE) {
            Some(page) => {
                page.push(fold);
                shown += own;
            }
            None => {
                pages.push(vec![fold]);
                shown = own;
            }
        }
    }
    pages
}

/// Returns the name of the gate of a fold: `invoice/ok` if the names of all its runs begin with `invoice`.
#[must_use]
pub fn gate_name(fold: &[Waiting]) -> String {
    let Some(first) = fold.first().map(|one| &one.row) else { return String::new() };
    let gate = first.tool.as_ref().unwrap_or(&first.gate);
    let runs = fold.iter().map(|one| one.row.workflow.as_str());
    let shared = runs.fold(first.workflow.as_str(), shared_beginning);
    let is_one_run = shared == first.workflow && fold.iter().all(|one| one.row.workflow == first.workflow);
    let shared = if is_one_run { shared } else { shared.trim_end_matches(|c: char| c == '-' || c.is_ascii_digit()) };
    if shared.is_empty() { gate.clone() } else { format!("{shared}/{gate}") }
}

fn shared_beginning<'a>(one: &'a str, other: &str) -> &'a str {
    let end = one.bytes().zip(other.bytes()).take_while(|(left, right)| left == right).count();
    one.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use signoff_review::sample;

    use super::*;
    use crate::live::Standing;

    fn waiting(run: &str, alike: &str, hours: u64) -> Waiting {
        let own = Row::of(&sample::approval());
        let at = sample::now();
        let row = Row {
            workflow: run.to_owned(),
            name: format!("{run}-{hours}"),
            alike: alike.to_owned(),
            deadline: at.after(Duration::from_secs(3600 * hours)),
            since: at.before(Duration::from_secs(60 * hours)),
            ..own
        };
        Waiting { row: Arc::new(row), standing: Standing::Asked, is_mine: false }
    }

    fn names(rows: &[Waiting]) -> Vec<&str> {
        rows.iter().map(|one| one.row.name.as_str()).collect()
    }

    #[test]
    fn the_run_with_the_nearest_deadline_is_first_and_its_requests_stand_together() {
        let mut rows = [waiting("b", "1", 9), waiting("a", "1", 5), waiting("b", "2", 2)];
        sort(&mut rows, Sort::Due);
        assert_eq!(names(&rows), ["b-2", "b-9", "a-5"]);
        sort(&mut rows, Sort::Run);
        assert_eq!(names(&rows), ["a-5", "b-2", "b-9"]);
        sort(&mut rows, Sort::Newest);
        assert_eq!(names(&rows), ["b-2", "a-5", "b-9"]);
    }

    #[test]
    fn requests_of_equal_gates_are_folded_from_four_on_at_the_place_of_the_first() {
        let mut rows: Vec<_> = (1..=3).map(|number| waiting(&format!("invoice-{number}"), "ok", number)).collect();
        rows.insert(1, waiting("other", "single", 2));
        assert_eq!(fold(rows.clone()).len(), 4, "three of them are not folded");
        rows.push(waiting("invoice-9", "ok", 9));
        let folds = fold(rows);
        assert_eq!(folds.iter().map(Vec::len).collect::<Vec<_>>(), [4, 1]);
        assert_eq!(gate_name(&folds[0]), "invoice/review");
        assert_eq!(gate_name(&folds[1]), "other/review");
        assert_eq!(gate_name(&[waiting("a", "x", 1), waiting("b", "x", 1)]), "review");
    }

    #[test]
    fn page_has_at_most_forty_requests_without_those_that_a_fold_hides() {
        let single = |number: u64| vec![waiting("one", &number.to_string(), number)];
        let folds: Vec<Fold> = (0..42).map(single).collect();
        assert_eq!(split_into_pages(folds).iter().map(Vec::len).collect::<Vec<_>>(), [40, 2]);
        let many: Fold = (0..1000).map(|number| waiting("many", "ok", number)).collect();
        let folds: Vec<Fold> = std::iter::once(many).chain((0..9).map(single)).collect();
        assert_eq!(split_into_pages(folds).iter().map(Vec::len).collect::<Vec<_>>(), [9, 1]);
        assert!(split_into_pages(Vec::new()).is_empty());
    }
}
