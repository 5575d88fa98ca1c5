//! Marks of running evaluations on the local disk. A mark that exists when a process starts names an evaluation during
//! which the previous process ended: by an abort, a stack overflow or for lack of memory.
//!
//! Marks are not synced: they have to survive the process, not the machine.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use signoff_engine::evaluation::Part;

use super::{Subject, progress::PartCallback};

const PREFIX: &str = "evaluating-";
const SUSPECTS: &str = "suspects.json";

/// The content of a mark, and an entry of the list of suspects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Mark {
    subject: Subject,
    /// Whether nothing else was evaluated at the same time.
    alone: bool,
    /// The current part; written only if the evaluation is alone.
    part: Option<Part>,
}

/// The way in which an evaluation runs.
#[derive(Debug, PartialEq)]
pub(super) enum Suspicion {
    /// The object is evaluated at the same time as others.
    Trusted,
    /// The object is evaluated alone, when no other evaluation waits.
    Suspect,
    /// The object is not evaluated, because its evaluations ended the process twice. Has the part that was evaluated.
    Deadly(Option<Part>),
}

/// The folder of the marks.
pub(super) struct Marks {
    folder: PathBuf,
    suspects: Mutex<BTreeMap<(String, String, String), Mark>>,
}

/// The mark of one thread.
#[derive(Clone)]
pub(super) struct MarkFile(Arc<Mutex<fs::File>>);

fn key(subject: &Subject) -> (String, String, String) {
    (subject.kind.clone(), subject.namespace.clone(), subject.uid.clone())
}

/// Returns the files of the marks in a folder.
fn list_marks(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?;
        if file.file_name().to_string_lossy().starts_with(PREFIX) {
            files.push(file.path());
        }
    }
    Ok(files)
}

impl Marks {
    /// Reads the marks and the suspects of the previous process, adds the objects of the marks to the suspects, and
    /// deletes the marks.
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let known = fs::read(folder.join(SUSPECTS)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let known: Vec<Mark> = known.unwrap_or_default();
        let mut suspects: BTreeMap<_, _> = known.into_iter().map(|mark| (key(&mark.subject), mark)).collect();
        let mark_files = list_marks(&folder)?;
        for file in &mark_files {
            // An empty mark belongs to a thread without an evaluation.
            if let Some(mark) = fs::read(file).ok().and_then(|text| serde_json::from_slice::<Mark>(&text).ok()) {
                tracing::warn!(
                    kind = mark.subject.kind,
                    namespace = mark.subject.namespace,
                    name = mark.subject.name,
                    alone = mark.alone,
                    "the operator ended while it evaluated this object"
                );
                suspects.insert(key(&mark.subject), mark);
            }
        }
        let marks = Self { folder, suspects: Mutex::new(suspects) };
        marks.save()?;
        // The marks are deleted last, so that a process that ends here finds them in either place.
        for file in mark_files {
            fs::remove_file(file)?;
        }
        Ok(marks)
    }

    /// Creates the mark of a new thread.
    pub(super) fn create_file(&self, thread: usize) -> io::Result<MarkFile> {
        Ok(MarkFile(Arc::new(Mutex::new(fs::File::create(self.folder.join(format!("{PREFIX}{thread}")))?))))
    }

    /// Returns the way in which an evaluation of `subject` runs. `Deadly` is returned once: the next attempt runs
    /// alone.
    pub(super) fn suspicion_of(&self, subject: &Subject) -> Suspicion {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mark) = suspects.get_mut(&key(subject)) else { return Suspicion::Trusted };
        if mark.alone {
            mark.alone = false;
            return Suspicion::Deadly(mark.part.take());
        }
        Suspicion::Suspect
    }

    /// Whether the process ended during an evaluation of this object, and the object was not cleared since.
    pub(super) fn is_suspect(&self, subject: &Subject) -> bool {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&key(subject))
    }

    /// Removes a suspect: all its evaluations have ended and the process still runs, or the object is no longer
    /// evaluated.
    pub(super) fn clear(&self, subject: &Subject) {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(subject));
        if let Err(error) = self.save() {
            tracing::error!("{}: {error}: a suspect is tried alone once more after a restart", self.folder.display());
        }
    }

    /// Writes the list of suspects, and replaces the old list at once.
    fn save(&self) -> io::Result<()> {
        let suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        let part = self.folder.join(format!("{SUSPECTS}.part"));
        fs::write(&part, serde_json::to_vec(&suspects.values().collect::<Vec<_>>())?)?;
        fs::rename(part, self.folder.join(SUSPECTS))
    }
}

impl MarkFile {
    /// Writes the mark of an evaluation.
    pub(super) fn set(&self, subject: &Subject, alone: bool, part: Option<&Part>) {
        let mark = Mark { subject: subject.clone(), alone, part: part.cloned() };
        let written = serde_json::to_vec(&mark).map_err(io::Error::from).and_then(|text| self.write(&text));
        if let Err(error) = written {
            tracing::error!("an evaluation could not be marked on disk: {error}");
        }
    }

    /// Removes the mark after the evaluation has ended.
    pub(super) fn unset(&self) {
        let _ = self.write(b"");
    }

    /// Returns a callback that notes each part of an evaluation that runs alone.
    pub(super) fn part_callback(&self, subject: Subject) -> PartCallback {
        let file = self.clone();
        Box::new(move |part| file.set(&subject, true, part))
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(text)
    }
}
