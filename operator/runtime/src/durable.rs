//! Files that are whole or absent, whatever happens while they are written: a crash, a kill, a full disk.
//!
//! It may not decide what a file holds or where it lies.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file beside its place, to disk, then renames it into its place; folders are made where they are missing.
/// After an error the file is what it was before.
///
/// # Errors
/// Those of the file system.
pub(crate) fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let folder = file.parent().ok_or_else(|| io::Error::other("a file has no folder"))?;
    fs::create_dir_all(folder)?;
    // Two writers of one file each have a part of their own; the later rename wins as a whole.
    let part = folder.join(format!(".{}-{}.part", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    let written = (|| {
        #[cfg(test)]
        full_disk::spend()?;
        let mut open = fs::OpenOptions::new().write(true).create_new(true).open(&part)?;
        open.write_all(bytes)?;
        open.sync_all()?;
        fs::rename(&part, file)?;
        // The rename itself is durable only once the folder is.
        fs::File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        // Best effort: the first error is the one to tell.
        let _ = fs::remove_file(&part);
    }
    written
}

/// A disk that is full after so many writes of a test's thread.
#[cfg(test)]
pub(crate) mod full_disk {
    use std::{cell::Cell, io};

    thread_local! {
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    pub(crate) fn after(writes: usize) {
        LEFT.set(writes);
    }

    pub(super) fn spend() -> io::Result<()> {
        let left = LEFT.get().checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        LEFT.set(left);
        Ok(())
    }
}
