//! Sessions: a folder for each run, with the Workflow, its Approvals and its large values as files.
//!
//! **Invariant:** a session changes only while its lock is held.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use signoff_api::{Approval, Workflow, WorkflowStatus, names};

use super::{error::Error, object};
use crate::blobs::FolderBlobs;
use signoff_executor::Owner;

const WORKFLOW: &str = "workflow.yaml";
const APPROVALS: &str = "approvals";
const BLOBS: &str = "blobs";
const LOCK: &str = "lock";

/// The endings of hidden names: of sessions not complete yet, and of sessions being deleted.
const NEW: &str = ".new";
const GONE: &str = ".deleted";

/// Sessions hold what models and people said: they are nobody else's to read.
const PRIVATE: u32 = 0o700;

/// The characters of an id's suffix: no letters that look like digits.
const LETTERS: &[u8] = b"bcdfghjkmnpqrstvwxz23456789";

/// A folder of sessions.
#[derive(Clone, Debug)]
pub struct Sessions {
    root: PathBuf,
}

/// The content of a session, read without its lock: complete objects, the newest there are.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// The Workflow with its status.
    pub workflow: Workflow,
    /// The Approvals of its gates, in the order in which they were asked.
    pub approvals: Vec<Approval>,
}

impl Sessions {
    /// The sessions in a folder, which is made when the first one is.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The ids of all sessions, sorted.
    ///
    /// # Errors
    /// The folder is there and cannot be read.
    pub fn ids(&self) -> Result<Vec<String>, Error> {
        // Whatever has no name that a session could have is none of ours.
        let mut ids = self.names()?;
        ids.retain(|id| is_plain(id) && self.root.join(id).is_dir());
        ids.sort();
        Ok(ids)
    }

    /// Returns the names of all entries of the folder.
    fn names(&self) -> Result<Vec<String>, Error> {
        let failed = || Error::file("cannot read", &self.root);
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(failed()(cause)),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry.map_err(failed())?.file_name().into_string());
        }
        Ok(names)
    }

    /// Returns the content of a session.
    ///
    /// # Errors
    /// There is no such session, or a file of it is damaged.
    pub fn read(&self, id: &str) -> Result<Snapshot, Error> {
        let folder = self.folder(id)?;
        let workflow = workflow(&folder)?.ok_or_else(|| self.missing(id))?;
        let approvals = approvals(&folder, &workflow)?;
        Ok(Snapshot { id: id.to_owned(), workflow, approvals })
    }

    /// Removes a session for good.
    ///
    /// # Errors
    /// There is no such session, or a process has it.
    pub fn delete(&self, id: &str) -> Result<(), Error> {
        let folder = self.folder(id)?;
        let _lock = lock(id, &folder)?;
        // Out of sight first: what is removed half is no session any more.
        let gone = self.root.join(format!(".{id}{GONE}"));
        fs::rename(&folder, &gone).map_err(Error::file("cannot remove", &folder))?;
        fs::remove_dir_all(&gone).map_err(Error::file("cannot remove", &gone))
    }

    /// Removes what processes left that died while they made or removed a session. Returns how many there were.
    ///
    /// # Errors
    /// The file system says no.
    pub fn sweep(&self) -> Result<usize, Error> {
        let mut swept = 0;
        for name in self.names()? {
            let is_left = |end: &str| name.strip_prefix('.').and_then(|n| n.strip_suffix(end)).is_some_and(is_plain);
            let folder = self.root.join(&name);
            if !(is_left(GONE) || is_left(NEW)) || !folder.is_dir() {
                continue;
            }
            // Whoever is about to make or to remove it has its lock.
            match fs::File::open(folder.join(LOCK)).map(|file| file.try_lock().is_err()) {
                Ok(true) => continue,
                Err(_) if is_left(NEW) => continue,
                _ => {}
            }
            fs::remove_dir_all(&folder).map_err(Error::file("cannot remove", &folder))?;
            swept += 1;
        }
        Ok(swept)
    }

    /// Returns the folder of the large values of a session.
    ///
    /// # Errors
    /// There is no such session.
    pub fn blobs(&self, id: &str) -> Result<FolderBlobs, Error> {
        Ok(FolderBlobs::new(self.folder(id)?.join(BLOBS)))
    }

    /// Makes a session of a Workflow that has a name, a namespace and a uid: whole, or not at all.
    pub(super) fn create(&self, workflow: Workflow) -> Result<Session, Error> {
        let name = workflow.metadata.name.clone().unwrap_or_default();
        if !is_plain(&name) || name.len() > names::MAX_WORKFLOW_NAME {
            let rule = "1 to 63 lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit";
            return Err(Error::invalid("metadata.name", format!("{name:?} is not a valid name: {rule}")));
        }
        let namespace = workflow.metadata.namespace.as_deref().unwrap_or_default();
        if !names::is_label(namespace) {
            let rule = "1 to 63 lower-case letters, digits and `-`, beginning and ending with a letter or digit";
            return Err(Error::invalid(
                "metadata.namespace",
                format!("{namespace:?} is not a valid namespace: {rule}"),
            ));
        }
        self.make_root()?;
        loop {
            let id = format!("{}-{}", names::cut(&name, 32), random(6));
            let (hidden, folder) = (self.root.join(format!(".{id}{NEW}")), self.root.join(&id));
            if folder.exists() {
                continue;
            }
            match fs::DirBuilder::new().mode(PRIVATE).create(&hidden) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(cause) => return Err(Error::file("cannot create", hidden)(cause)),
            }
            let made = (|| {
                let lock = lock(&id, &hidden)?;
                object::write(&hidden.join(WORKFLOW), &workflow)?;
                fs::rename(&hidden, &folder)
                    .and_then(|()| fs::File::open(&self.root)?.sync_all())
                    .map_err(Error::file("cannot create", &folder))?;
                Ok(lock)
            })();
            return match made {
                Ok(lock) => Ok(Session { id, folder, workflow, approvals: BTreeMap::new(), _lock: lock }),
                Err(error) => {
                    // Best effort: the first error is the one to tell.
                    let _ = fs::remove_dir_all(&hidden);
                    Err(error)
                }
            };
        }
    }

    /// Makes the folder, if it is not there.
    pub(super) fn make_root(&self) -> Result<(), Error> {
        let made = fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(&self.root);
        made.map_err(Error::file("cannot create", &self.root))
    }

    /// Opens a session for this process alone.
    pub(super) fn open(&self, id: &str) -> Result<Session, Error> {
        let folder = self.folder(id)?;
        let lock = lock(id, &folder)?;
        let workflow = workflow(&folder)?.ok_or_else(|| self.missing(id))?;
        let approvals = approvals(&folder, &workflow)?;
        let approvals = approvals.into_iter().map(|a| (a.metadata.name.clone().unwrap_or_default(), a)).collect();
        Ok(Session { id: id.to_owned(), folder, workflow, approvals, _lock: lock })
    }

    fn folder(&self, id: &str) -> Result<PathBuf, Error> {
        let folder = self.root.join(id);
        if is_plain(id) && folder.is_dir() { Ok(folder) } else { Err(self.missing(id)) }
    }

    fn missing(&self, id: &str) -> Error {
        let id = id.chars().filter(|c| !c.is_control()).take(100).collect();
        Error::Missing { id, root: self.root.clone() }
    }
}

/// A session that this process has for itself.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    folder: PathBuf,
    pub(super) workflow: Workflow,
    pub(super) approvals: BTreeMap<String, Approval>,
    /// Let go by the system, however this process ends.
    _lock: fs::File,
}

impl Session {
    /// Writes what the run has come to. Nothing here changes unless it is written.
    pub(super) fn commit(&mut self, status: WorkflowStatus) -> Result<(), Error> {
        let next = Workflow { status: Some(status), ..self.workflow.clone() };
        object::write(&self.folder.join(WORKFLOW), &next)?;
        self.workflow = next;
        Ok(())
    }

    /// Writes an Approval.
    pub(super) fn put(&mut self, approval: Approval) -> Result<(), Error> {
        let name = approval.metadata.name.clone().unwrap_or_default();
        object::write(&self.folder.join(APPROVALS).join(file_of(&name)?), &approval)?;
        self.approvals.insert(name, approval);
        Ok(())
    }

    /// Returns the path of the Workflow, for messages.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join(WORKFLOW)
    }

    /// Returns the path of an Approval, for messages.
    pub(super) fn approval_file(&self, name: &str) -> PathBuf {
        self.folder.join(APPROVALS).join(format!("{name}.yaml"))
    }

    pub(super) fn blobs(&self) -> FolderBlobs {
        FolderBlobs::new(self.folder.join(BLOBS))
    }

    pub(super) fn owner(&self) -> Owner {
        owner(&self.workflow)
    }
}

/// Returns the owner of the large values of a run.
#[must_use]
pub fn owner(workflow: &Workflow) -> Owner {
    let metadata = &workflow.metadata;
    Owner {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        workflow: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

fn workflow(folder: &Path) -> Result<Option<Workflow>, Error> {
    object::read(&folder.join(WORKFLOW))
}

/// The Approvals that the journal names. One that is not there was not made yet: its gate asks again.
fn approvals(folder: &Path, workflow: &Workflow) -> Result<Vec<Approval>, Error> {
    let mut found: Vec<Approval> = Vec::new();
    for name in workflow.status.iter().flat_map(|status| &status.steps).filter_map(|record| record.object.as_ref()) {
        if let Some(approval) = object::read::<Approval>(&folder.join(APPROVALS).join(file_of(name)?))? {
            found.push(approval);
        }
    }
    Ok(found)
}

fn file_of(approval: &str) -> Result<String, Error> {
    if is_plain(approval) {
        return Ok(format!("{approval}.yaml"));
    }
    Err(Error::invalid("spec.steps", format!("{approval:?} cannot be the name of an Approval: steps are DNS labels")))
}

/// Takes the lock of a session, which the system lets go when this process ends.
fn lock(id: &str, folder: &Path) -> Result<fs::File, Error> {
    let place = folder.join(LOCK);
    let open = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&place);
    let mut file = open.map_err(Error::file("cannot open", &place))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut by = String::new();
            // Only to say who it is: nothing depends on it.
            let _ = (&mut file).take(16).read_to_string(&mut by);
            let by = if by.is_empty() { "another process".to_owned() } else { format!("process {}", by.trim()) };
            return Err(Error::Busy { id: id.to_owned(), by });
        }
        Err(fs::TryLockError::Error(cause)) => return Err(Error::file("cannot lock", place)(cause)),
    }
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

/// A name that stays one segment of a path and one word of a shell.
fn is_plain(name: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    name.len() <= 253
        && name.bytes().all(plain)
        && edge(name.bytes().next())
        && edge(name.bytes().next_back())
        && !name.contains("..")
}

pub(super) fn random(letters: usize) -> String {
    (0..letters).filter_map(|_| LETTERS.get(fastrand::usize(..LETTERS.len()))).map(|byte| char::from(*byte)).collect()
}
