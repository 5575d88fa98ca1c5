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

/// The suffixes of hidden names: of incomplete sessions, and of sessions that are being deleted.
const NEW: &str = ".new";
const GONE: &str = ".deleted";

/// Sessions contain text of models and people, so only their user can read them.
const PRIVATE: u32 = 0o700;

/// The letters and digits of suffixes, without letters that look like digits.
const LETTERS: &[u8] = b"bcdfghjkmnpqrstvwxz23456789";

/// The most characters of an id that are the name of the Workflow.
const ID_NAME: usize = 32;

/// The number of random characters at the end of an id.
const ID_SUFFIX: usize = 6;

/// A folder of sessions.
#[derive(Clone, Debug)]
pub struct Sessions {
    root: PathBuf,
}

/// The content of a session, read without its lock: the newest complete objects.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The id of the session.
    pub id: String,
    /// The Workflow with its status.
    pub workflow: Workflow,
    /// The Approvals of the run's gates, in the order in which they asked.
    pub approvals: Vec<Approval>,
}

impl Sessions {
    /// Returns the sessions in a folder, which is created with the first one.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the ids of all sessions, sorted.
    ///
    /// # Errors
    /// The folder exists and cannot be read.
    pub fn ids(&self) -> Result<Vec<String>, Error> {
        // Entries whose names are not valid ids are ignored.
        let mut ids = self.entry_names()?;
        ids.retain(|id| is_plain(id) && self.root.join(id).is_dir());
        ids.sort();
        Ok(ids)
    }

    /// Returns the names of all entries of the folder.
    fn entry_names(&self) -> Result<Vec<String>, Error> {
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
    /// The session does not exist, or one of its files is damaged.
    pub fn read(&self, id: &str) -> Result<Snapshot, Error> {
        let folder = self.folder(id)?;
        let workflow = read_workflow(&folder)?.ok_or_else(|| self.missing_error(id))?;
        let approvals = read_approvals(&folder, &workflow)?;
        Ok(Snapshot { id: id.to_owned(), workflow, approvals })
    }

    /// Deletes a session.
    ///
    /// # Errors
    /// The session does not exist, or a process has its lock.
    pub fn delete(&self, id: &str) -> Result<(), Error> {
        let folder = self.folder(id)?;
        let _lock = lock(id, &folder)?;
        // The folder is hidden first, so that a partly deleted folder is not a session any more.
        let gone = self.root.join(format!(".{id}{GONE}"));
        fs::rename(&folder, &gone).map_err(Error::file("cannot remove", &folder))?;
        fs::remove_dir_all(&gone).map_err(Error::file("cannot remove", &gone))
    }

    /// Removes the leftovers of processes that crashed while they created or deleted a session. Returns their number.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn sweep(&self) -> Result<usize, Error> {
        let mut count = 0;
        for name in self.entry_names()? {
            let is_leftover =
                |end: &str| name.strip_prefix('.').and_then(|n| n.strip_suffix(end)).is_some_and(is_plain);
            let folder = self.root.join(&name);
            if !(is_leftover(GONE) || is_leftover(NEW)) || !folder.is_dir() {
                continue;
            }
            // A process that creates or deletes the session has its lock.
            match fs::File::open(folder.join(LOCK)).map(|file| file.try_lock().is_err()) {
                Ok(true) => continue,
                Err(_) if is_leftover(NEW) => continue,
                _ => {}
            }
            fs::remove_dir_all(&folder).map_err(Error::file("cannot remove", &folder))?;
            count += 1;
        }
        Ok(count)
    }

    /// Returns the folder of the large values of a session.
    ///
    /// # Errors
    /// The session does not exist.
    pub fn blobs(&self, id: &str) -> Result<FolderBlobs, Error> {
        Ok(FolderBlobs::new(self.folder(id)?.join(BLOBS)))
    }

    /// Creates a session of a Workflow with a name, a namespace and a uid, atomically.
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
        self.create_root()?;
        loop {
            let id = format!("{}-{}", names::cut(&name, ID_NAME), random_suffix(ID_SUFFIX));
            let (hidden, folder) = (self.root.join(format!(".{id}{NEW}")), self.root.join(&id));
            if folder.exists() {
                continue;
            }
            match fs::DirBuilder::new().mode(PRIVATE).create(&hidden) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(cause) => return Err(Error::file("cannot create", hidden)(cause)),
            }
            let created = (|| {
                let lock = lock(&id, &hidden)?;
                object::write(&hidden.join(WORKFLOW), &workflow)?;
                fs::rename(&hidden, &folder)
                    .and_then(|()| fs::File::open(&self.root)?.sync_all())
                    .map_err(Error::file("cannot create", &folder))?;
                Ok(lock)
            })();
            return match created {
                Ok(lock) => Ok(Session { id, folder, workflow, approvals: BTreeMap::new(), _lock: lock }),
                Err(error) => {
                    // Best effort: the first error is the one to report.
                    let _ = fs::remove_dir_all(&hidden);
                    Err(error)
                }
            };
        }
    }

    /// Creates the folder, if it does not exist.
    pub(super) fn create_root(&self) -> Result<(), Error> {
        let created = fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(&self.root);
        created.map_err(Error::file("cannot create", &self.root))
    }

    /// Opens a session and locks it.
    pub(super) fn open(&self, id: &str) -> Result<Session, Error> {
        let folder = self.folder(id)?;
        let lock = lock(id, &folder)?;
        let workflow = read_workflow(&folder)?.ok_or_else(|| self.missing_error(id))?;
        let approvals = read_approvals(&folder, &workflow)?;
        let approvals = approvals.into_iter().map(|a| (a.metadata.name.clone().unwrap_or_default(), a)).collect();
        Ok(Session { id: id.to_owned(), folder, workflow, approvals, _lock: lock })
    }

    /// Returns the folder of a session, if it exists.
    fn folder(&self, id: &str) -> Result<PathBuf, Error> {
        let folder = self.root.join(id);
        if is_plain(id) && folder.is_dir() { Ok(folder) } else { Err(self.missing_error(id)) }
    }

    fn missing_error(&self, id: &str) -> Error {
        let id = id.chars().filter(|c| !c.is_control()).take(100).collect();
        Error::Missing { id, root: self.root.clone() }
    }
}

/// A session whose lock this process has.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    folder: PathBuf,
    pub(super) workflow: Workflow,
    pub(super) approvals: BTreeMap<String, Approval>,
    /// Released by the operating system when the process ends.
    _lock: fs::File,
}

impl Session {
    /// Writes a new status of the Workflow. The object in memory changes only after the write.
    pub(super) fn commit(&mut self, status: WorkflowStatus) -> Result<(), Error> {
        let next = Workflow { status: Some(status), ..self.workflow.clone() };
        object::write(&self.folder.join(WORKFLOW), &next)?;
        self.workflow = next;
        Ok(())
    }

    /// Writes an Approval.
    pub(super) fn put(&mut self, approval: Approval) -> Result<(), Error> {
        let name = approval.metadata.name.clone().unwrap_or_default();
        object::write(&self.folder.join(APPROVALS).join(approval_file_name(&name)?), &approval)?;
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

fn read_workflow(folder: &Path) -> Result<Option<Workflow>, Error> {
    object::read(&folder.join(WORKFLOW))
}

/// Reads the Approvals that the journal names. A missing Approval was not created yet, so its gate asks again.
fn read_approvals(folder: &Path, workflow: &Workflow) -> Result<Vec<Approval>, Error> {
    let mut found: Vec<Approval> = Vec::new();
    for name in workflow.status.iter().flat_map(|status| &status.steps).filter_map(|record| record.object.as_ref()) {
        if let Some(approval) = object::read::<Approval>(&folder.join(APPROVALS).join(approval_file_name(name)?))? {
            found.push(approval);
        }
    }
    Ok(found)
}

fn approval_file_name(approval: &str) -> Result<String, Error> {
    if is_plain(approval) {
        return Ok(format!("{approval}.yaml"));
    }
    Err(Error::invalid("spec.steps", format!("{approval:?} cannot be the name of an Approval: steps are DNS labels")))
}

/// Locks a session, and writes the id of this process into the lock file. The operating system releases the lock when
/// this process ends.
fn lock(id: &str, folder: &Path) -> Result<fs::File, Error> {
    let path = folder.join(LOCK);
    let open = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = open.map_err(Error::file("cannot open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the message: nothing depends on the id of the process.
            let _ = (&mut file).take(16).read_to_string(&mut holder);
            let by =
                if holder.is_empty() { "another process".to_owned() } else { format!("process {}", holder.trim()) };
            return Err(Error::Busy { id: id.to_owned(), by });
        }
        Err(fs::TryLockError::Error(cause)) => return Err(Error::file("cannot lock", path)(cause)),
    }
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

/// Whether a name is a single segment of a path and one word of a shell.
fn is_plain(name: &str) -> bool {
    let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    name.len() <= 253
        && name.bytes().all(is_allowed)
        && is_edge(name.bytes().next())
        && is_edge(name.bytes().next_back())
        && !name.contains("..")
}

/// Returns a text of `letters` random letters and digits.
pub(super) fn random_suffix(letters: usize) -> String {
    (0..letters).filter_map(|_| LETTERS.get(fastrand::usize(..LETTERS.len()))).map(|byte| char::from(*byte)).collect()
}
