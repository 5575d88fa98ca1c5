//! The origins of rendered values: the edits of people, the cut answers, and the rendered texts (`set`) that a template
//! read.
//!
//! Every value of a run that a template sees comes from the view of a record or from a variable of a pattern. Both note
//! their origins here while a scope is built. For the origins of a rendered text itself, `scope/editors.rs` follows the
//! text.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use signoff_api::{Digest, approval::Edit};

use super::call_history::RecordKey;

/// The origins of a value: the edits of people, the cut answers, and the records of rendered texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    /// By the path of the record of the gate.
    edits: BTreeMap<String, Edit>,
    /// The paths of the steps whose answers were cut.
    cut: BTreeSet<String>,
    texts: BTreeSet<RecordKey>,
}

/// The origins of the current rendering, noted while its values are read.
#[derive(Default)]
pub(crate) struct OriginNotes(RefCell<Noting>);

#[derive(Default)]
enum Noting {
    #[default]
    Nothing,
    /// Origins are noted while values are read.
    Beside(Origins),
    /// Only origins are noted: no value is read, and every value is null.
    Only(Origins),
}

impl Noting {
    fn into_origins(self) -> Origins {
        match self {
            Self::Nothing => Origins::default(),
            Self::Beside(origins) | Self::Only(origins) => origins,
        }
    }
}

impl Origins {
    /// Returns the origins of a text by which a person replaced another one.
    pub(crate) fn of(edit: Edit) -> Self {
        Self { edits: BTreeMap::from([(edit.path.clone(), edit)]), ..Self::default() }
    }

    /// Returns the origins of both values.
    pub(crate) fn and(mut self, more: &Self) -> Self {
        self.extend(more);
        self
    }

    pub(crate) fn extend(&mut self, more: &Self) {
        more.edits.values().for_each(|edit| self.add_edit(edit.clone()));
        self.cut.extend(more.cut.iter().cloned());
        self.texts.extend(more.texts.iter().cloned());
    }

    pub(crate) fn add_edit(&mut self, edit: Edit) {
        // A gate of which only the decision is read lacks the digest of the original text.
        let is_known = self.edits.get(&edit.path).is_some_and(|known| known.original != no_original());
        if !is_known {
            self.edits.insert(edit.path.clone(), edit);
        }
    }

    pub(crate) fn add_text(&mut self, text: RecordKey) {
        self.texts.insert(text);
    }

    /// Adds the path of a step whose answer was cut.
    pub(crate) fn add_cut(&mut self, path: &str) {
        self.cut.insert(path.to_owned());
    }

    /// Removes and returns the records of the rendered texts.
    pub(crate) fn take_texts(&mut self) -> BTreeSet<RecordKey> {
        std::mem::take(&mut self.texts)
    }

    /// Returns the edits, and the paths of the steps whose answers were cut.
    pub(crate) fn into_edits_and_cut(self) -> (Vec<Edit>, BTreeSet<String>) {
        (self.edits.into_values().collect(), self.cut)
    }
}

/// Returns the digest that stands for an unknown or a missing original text.
pub(crate) fn no_original() -> Digest {
    Digest::of_bytes(b"")
}

impl OriginNotes {
    /// Runs `render`, and returns its result with the origins of the values that it read.
    pub(crate) fn collect<T>(&self, render: impl FnOnce() -> T) -> (T, Origins) {
        let (rendered, noted) = self.run_noting(Noting::Beside(Origins::default()), render);
        let origins = noted.into_origins();
        self.note(&origins);
        (rendered, origins)
    }

    /// Returns the origins of the values that a function reads, without reading them: every value is null.
    pub(crate) fn collect_only<T, E>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<Origins, E> {
        let (read, noted) = self.run_noting(Noting::Only(Origins::default()), read);
        read.map(|_| noted.into_origins())
    }

    /// Runs `read` without noting origins.
    pub(crate) fn ignore<T>(&self, read: impl FnOnce() -> T) -> T {
        self.run_noting(Noting::Nothing, read).0
    }

    /// Runs `read`, and notes origins only if `is_read`. A value that no template names has no origins to note.
    pub(crate) fn note_if<T>(&self, is_read: bool, read: impl FnOnce() -> T) -> T {
        match is_read {
            true => read(),
            false if self.are_only_noted() => self.run_noting(Noting::Only(Origins::default()), read).0,
            false => self.ignore(read),
        }
    }

    /// Runs `read` with another mode of noting, and returns its result with the noted origins.
    fn run_noting<T>(&self, noting: Noting, read: impl FnOnce() -> T) -> (T, Noting) {
        let before = self.0.replace(noting);
        let result = read();
        (result, self.0.replace(before))
    }

    /// Whether origins are noted.
    pub(crate) fn are_noted(&self) -> bool {
        !matches!(*self.0.borrow(), Noting::Nothing)
    }

    /// Whether only origins are noted, and no value is read.
    pub(crate) fn are_only_noted(&self) -> bool {
        matches!(*self.0.borrow(), Noting::Only(_))
    }

    /// Adds origins to the current rendering.
    pub(crate) fn note(&self, more: &Origins) {
        self.add_note(|origins| origins.extend(more));
    }

    /// Adds edits to the origins of the current rendering.
    pub(crate) fn note_edits(&self, edits: &[Edit]) {
        self.add_note(|origins| edits.iter().for_each(|edit| origins.add_edit(edit.clone())));
    }

    /// Adds a rendered text to the origins of the current rendering.
    pub(crate) fn note_text(&self, text: RecordKey) {
        self.add_note(|origins| origins.add_text(text));
    }

    /// Adds the cut answer of the step at a path to the origins of the current rendering.
    pub(crate) fn note_cut(&self, path: &str) {
        self.add_note(|origins| origins.add_cut(path));
    }

    fn add_note(&self, add: impl FnOnce(&mut Origins)) {
        if let Noting::Beside(origins) | Noting::Only(origins) = &mut *self.0.borrow_mut() {
            add(origins);
        }
    }
}
