//! Atomic files: a file is whole or absent after a crash, a kill or a full disk during the write.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Writes a temporary file beside the target, syncs it, and renames it to the target. Missing folders are created.
/// After an error the target is unchanged.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().ok_or_else(|| io::Error::other("the path has no parent folder"))?;
    fs::create_dir_all(folder)?;
    #[cfg(test)]
    full_disk::count_write()?;
    let (part, mut open) = create_part(folder)?;
    let written = (|| {
        open.write_all(bytes)?;
        open.sync_all()?;
        fs::rename(&part, file)?;
        // The rename itself is durable only after the folder is synced.
        fs::File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        // Best effort: the first error is the one to report.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Creates a temporary file whose name no other writer uses, running or crashed. The name is random: a process id is
/// not unique, because it is always 1 in a container.
fn create_part(folder: &Path) -> io::Result<(PathBuf, fs::File)> {
    loop {
        let part = folder.join(format!(".{:016x}.part", fastrand::u64(..)));
        match fs::OpenOptions::new().write(true).create_new(true).open(&part) {
            Ok(open) => return Ok((part, open)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// A disk that is full after a number of writes of a test's thread.
#[cfg(test)]
pub(crate) mod full_disk {
    use std::{cell::Cell, io};

    thread_local! {
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    pub(crate) fn fill_after(writes: usize) {
        LEFT.set(writes);
    }

    pub(super) fn count_write() -> io::Result<()> {
        let left = LEFT.get().checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        LEFT.set(left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_temporary_file_of_another_writer_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        // Two processes with the same id and the same random numbers.
        fastrand::seed(7);
        let (left, _) = create_part(folder.path()).unwrap();
        fs::write(&left, "left").unwrap();
        fastrand::seed(7);
        write(&folder.path().join("file"), b"whole").unwrap();
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"whole");
        // The same if writing fails: the target is a folder.
        fastrand::seed(7);
        fs::create_dir(folder.path().join("taken")).unwrap();
        write(&folder.path().join("taken"), b"whole").unwrap_err();
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(names, [left.clone(), folder.path().join("file"), folder.path().join("taken")]);
        assert_eq!(fs::read(left).unwrap(), b"left");
    }
}
