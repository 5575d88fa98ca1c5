//! The parts of one evaluation and what each of them took, to find the one to blame.
//!
//! Parts are compared by the wall clock, which is cheap to read: only their order matters.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use signoff_engine::evaluation::{Observer, Part};

/// Writes the part at work into the mark of its evaluation.
pub(super) type Note = Box<dyn Fn(Option<&Part>) + Send + Sync>;

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
    note: Option<Arc<Note>>,
}

impl Progress {
    /// The evaluation begins.
    pub(super) fn begin(&self, note: Option<Note>) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        (parts.began, parts.note) = (Some(Instant::now()), note.map(Arc::new));
    }

    /// The part to blame: the vote that took longest, or the step that took longest and an eighth of the time.
    pub(super) fn culprit(&self) -> Option<Part> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let total = parts.began?.elapsed();
        let current = parts.current.as_ref().map(|(part, since)| (part, since.elapsed()));
        let longest = parts.longest.as_ref().map(|(part, took)| (part, *took));
        let (part, took) = [current, longest].into_iter().flatten().max_by_key(|(_, took)| *took)?;
        // A long run of many equal steps is not the fault of any. A vote is always blamed: the others count without it.
        (matches!(part, Part::Vote(_)) || took >= total / 8).then(|| part.clone())
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

    fn leave(&self) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(note) = parts.note.clone() {
            note(None);
        }
        let Some((part, since)) = parts.current.take() else { return };
        let took = if std::thread::panicking() { Duration::MAX } else { since.elapsed() };
        if parts.longest.as_ref().is_none_or(|(_, longest)| took > *longest) {
            parts.longest = Some((part, took));
        }
    }
}
