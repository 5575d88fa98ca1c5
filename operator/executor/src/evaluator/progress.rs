//! The parts of one evaluation and their times, to find the part that caused a stop.
//!
//! Times are those of the wall clock, which is cheap to read. Only their order matters.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use signoff_engine::evaluation::{Observer, Part};

/// A callback that writes the current part into the mark of its evaluation.
pub(super) type PartCallback = Box<dyn Fn(Option<&Part>) + Send + Sync>;

/// The parts of one evaluation.
#[derive(Default)]
pub(super) struct Progress {
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    began: Option<Instant>,
    current: Option<(Part, Instant)>,
    longest: Option<(Part, Duration)>,
    /// The longest part that read text which the author did not write.
    longest_foreign: Option<(Part, Duration)>,
    /// The time of all parts together that read such text.
    foreign: Duration,
    note: Option<Arc<PartCallback>>,
}

impl Progress {
    /// Begins the evaluation.
    pub(super) fn begin(&self, note: Option<PartCallback>) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        (parts.began, parts.note) = (Some(Instant::now()), note.map(Arc::new));
    }

    /// Returns the part that caused a stop: the longest part, if it took an eighth of the time. If the parts that read
    /// text of others took half of the time together, the longest of these parts is returned, even if it was short. A
    /// vote is always returned.
    pub(super) fn find_culprit(&self) -> Option<Part> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let total = parts.began?.elapsed();
        let current = parts.current.as_ref().map(|(part, since)| (part, since.elapsed()));
        let ended = |part: &'_ Option<(Part, Duration)>| part.as_ref().map(|(part, took)| (part.clone(), *took));
        let longest = |ended: Option<(Part, Duration)>, current: Option<(&Part, Duration)>| {
            let current = current.map(|(part, took)| (part.clone(), took));
            [current, ended].into_iter().flatten().max_by_key(|(_, took)| *took)
        };
        let (part, took) = longest(ended(&parts.longest), current)?;
        // In a long run of many equal steps no single part is the cause. A vote always is, because the others count
        // without it.
        let is_clear = matches!(part, Part::Vote(_)) || took >= total / 8;
        if is_clear && part.is_foreign() {
            return Some(part);
        }
        let current = current.filter(|(part, _)| part.is_foreign());
        let foreign = parts.foreign.saturating_add(current.map_or(Duration::ZERO, |(_, took)| took));
        if foreign >= total / 2 {
            return longest(ended(&parts.longest_foreign), current).map(|(part, _)| part);
        }
        is_clear.then_some(part)
    }
}

impl Observer for Progress {
    fn enter(&self, part: Part) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let note = parts.note.clone();
        if let Some(note) = &note {
            note(Some(&part));
        }
        parts.current = Some((part, Instant::now()));
    }

    fn record_foreign_text(&self) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let note = parts.note.clone();
        let Some((Part::Step { is_foreign, .. }, _)) = &mut parts.current else { return };
        if !std::mem::replace(is_foreign, true)
            && let Some(note) = note
        {
            note(parts.current.as_ref().map(|(part, _)| part));
        }
    }

    fn leave(&self) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(note) = parts.note.clone() {
            note(None);
        }
        let Some((part, since)) = parts.current.take() else { return };
        parts.record(part, if std::thread::panicking() { Duration::MAX } else { since.elapsed() });
    }
}

impl Parts {
    /// Records the time of a part that has ended.
    fn record(&mut self, part: Part, took: Duration) {
        let is_longer = |known: &Option<(Part, Duration)>| known.as_ref().is_none_or(|(_, longest)| took > *longest);
        if part.is_foreign() {
            self.foreign = self.foreign.saturating_add(took);
            if is_longer(&self.longest_foreign) {
                self.longest_foreign = Some((part.clone(), took));
            }
        }
        if is_longer(&self.longest) {
            self.longest = Some((part, took));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn step(number: usize, is_foreign: bool) -> Part {
        Part::Step { path: format!("s{number}"), attempt: 1, is_foreign }
    }

    /// Returns the culprit of an evaluation. `parts` has the seconds of each part, and whether it read text of others.
    fn culprit_of(parts: &[(u64, bool)]) -> Option<Part> {
        let progress = Progress::default();
        let mut known = progress.parts.lock().unwrap();
        for (number, (took, is_foreign)) in parts.iter().enumerate() {
            known.record(step(number, *is_foreign), Duration::from_secs(*took));
        }
        let total = parts.iter().map(|(took, _)| *took).sum();
        known.began = Instant::now().checked_sub(Duration::from_secs(total));
        drop(known);
        progress.find_culprit()
    }

    #[test]
    fn the_longest_of_many_foreign_parts_is_the_culprit() {
        let mut parts = vec![(10, true); 100];
        parts[13].0 = 11;
        assert_eq!(culprit_of(&parts), Some(step(13, true)));
        parts.iter_mut().for_each(|(_, is_foreign)| *is_foreign = false);
        assert_eq!(culprit_of(&parts), None, "equal parts of the author are the fault of none");
        parts.iter_mut().skip(40).for_each(|(_, is_foreign)| *is_foreign = true);
        assert_eq!(culprit_of(&parts), Some(step(40, true)), "the author's are no longer than the others");
    }

    #[test]
    fn a_costly_part_of_the_author_is_the_culprit() {
        assert_eq!(culprit_of(&[(5, true), (100, false), (5, true)]), Some(step(1, false)));
        assert_eq!(culprit_of(&[(50, true), (10, false), (10, false)]), Some(step(0, true)));
    }

    #[test]
    fn a_part_is_foreign_after_it_reads_text_of_others() {
        let progress = Progress::default();
        // The part takes all of the evaluation's time.
        progress.enter(Part::step("s1", 1));
        progress.begin(None);
        progress.record_foreign_text();
        assert_eq!(progress.find_culprit(), Some(step(1, true)));
        progress.leave();
        progress.record_foreign_text();
    }

    #[test]
    fn a_vote_is_always_the_culprit() {
        let progress = Progress::default();
        progress.parts.lock().unwrap().began = Instant::now().checked_sub(Duration::from_secs(9));
        progress.enter(Part::Vote("alice".to_owned()));
        progress.leave();
        assert_eq!(progress.find_culprit(), Some(Part::Vote("alice".to_owned())));
    }
}
