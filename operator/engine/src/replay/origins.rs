//! The origins of rendered values: the edits of people, the cut answers, and the texts (`set`), that a template read.
//!
//! Every value of a run that a template sees comes from the view of a record or from a variable of a pattern, and both
//! note their origins here while a scope is built. A text stands for what it was rendered from itself:
//! `scope/editors.rs` follows it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use signoff_api::{Digest, approval::Edit};

use super::call_history::RecordKey;

/// The edits of people, the cut answers, and the records of the texts, that a value was rendered from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    /// By the path of the record of the gate.
    edits: BTreeMap<String, Edit>,
    /// The paths of the steps whose answers were cut.
    cut: BTreeSet<String>,
    texts: BTreeSet<RecordKey>,
}

/// The origins that are noted at the moment.
#[derive(Default)]
pub(crate) struct OriginNotes(RefCell<Noting>);

#[derive(Default)]
enum Noting {
    #[default]
    Nothing,
    /// While values are read.
    Beside(Origins),
    /// Instead of values: nothing is read, and every value is null.
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
    /// The origins of a value that is what a person wrote in place of another one.
    pub(crate) fn of(edit: Edit) -> Self {
        Self { edits: BTreeMap::from([(edit.path.clone(), edit)]), ..Self::default() }
    }

    /// These origins and others.
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
        // A gate that is read by its decision only does not know the text before.
        let is_known = self.edits.get(&edit.path).is_some_and(|known| known.original != no_original());
        if !is_known {
            self.edits.insert(edit.path.clone(), edit);
        }
    }

    pub(crate) fn add_text(&mut self, text: RecordKey) {
        self.texts.insert(text);
    }

    /// Adds the step at a path, whose answer was cut.
    pub(crate) fn add_cut(&mut self, path: &str) {
        self.cut.insert(path.to_owned());
    }

    /// Takes the records of the texts out.
    pub(crate) fn take_texts(&mut self) -> BTreeSet<RecordKey> {
        std::mem::take(&mut self.texts)
    }

    /// Returns the edits, and the paths of the steps whose answers were cut.
    pub(crate) fn into_edits_and_cut(self) -> (Vec<Edit>, BTreeSet<String>) {
        (self.edits.into_values().collect(), self.cut)
    }
}

/// The original of an edit that replaced no text, or none that is known.
pub(crate) fn no_original() -> Digest {
    Digest::of_bytes(b"")
}

impl OriginNotes {
    /// Renders, and returns the origins of what was rendered.
    pub(crate) fn collect<T>(&self, render: impl FnOnce() -> T) -> (T, Origins) {
        let (rendered, noted) = self.noting(Noting::Beside(Origins::default()), render);
        let origins = noted.into_origins();
        self.note(&origins);
        (rendered, origins)
    }

    /// Returns the origins of what a function reads, which reads nothing: every value is null to it.
    pub(crate) fn collect_only<T, E>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<Origins, E> {
        let (read, noted) = self.noting(Noting::Only(Origins::default()), read);
        read.map(|_| noted.into_origins())
    }

    /// Reads without a note of it.
    pub(crate) fn ignore<T>(&self, read: impl FnOnce() -> T) -> T {
        self.noting(Noting::Nothing, read).0
    }

    /// Reads, with a note of it only if `is_read`: what a template does not name is read for nothing.
    pub(crate) fn note_if<T>(&self, is_read: bool, read: impl FnOnce() -> T) -> T {
        match is_read {
            true => read(),
            false if self.are_only_noted() => self.noting(Noting::Only(Origins::default()), read).0,
            false => self.ignore(read),
        }
    }

    fn noting<T>(&self, own: Noting, act: impl FnOnce() -> T) -> (T, Noting) {
        let before = self.0.replace(own);
        let done = act();
        (done, self.0.replace(before))
    }

    /// Whether origins are noted.
    pub(crate) fn are_noted(&self) -> bool {
        !matches!(*self.0.borrow(), Noting::Nothing)
    }

    /// Whether origins are noted, and no value is read.
    pub(crate) fn are_only_noted(&self) -> bool {
        matches!(*self.0.borrow(), Noting::Only(_))
    }

    /// Notes origins of what is rendered at the moment.
    pub(crate) fn note(&self, more: &Origins) {
        self.add_note(|origins| origins.extend(more));
    }

    /// Notes edits of what is rendered at the moment.
    pub(crate) fn note_edits(&self, edits: &[Edit]) {
        self.add_note(|origins| edits.iter().for_each(|edit| origins.add_edit(edit.clone())));
    }

    /// Notes that what is rendered at the moment reads a text.
    pub(crate) fn note_text(&self, text: RecordKey) {
        self.add_note(|origins| origins.add_text(text));
    }

    /// Notes that what is rendered at the moment reads the answer of the step at a path, which was cut.
    pub(crate) fn note_cut(&self, path: &str) {
        self.add_note(|origins| origins.add_cut(path));
    }

    fn add_note(&self, add: impl FnOnce(&mut Origins)) {
        if let Noting::Beside(origins) | Noting::Only(origins) = &mut *self.0.borrow_mut() {
            add(origins);
        }
    }
}
