//! The writer of a run's output files: below one folder and nowhere else.
//!
//! **Invariant:** no path leaves the folder. A file is replaced only if the caller allows it.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Component, Path, PathBuf},
};

use cap_std::{ambient_authority, fs::Dir, fs::OpenOptions};

use super::session::random_suffix;

const MAX_NAME_BYTES: usize = 255;

/// The error of a file that was not written. Earlier files may have been written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The path could leave the folder.
    #[error(
        "artifact {0:?}: its path must be relative, in plain names joined by `/`, without `..`; give it another path"
    )]
    Path(String),
    /// Two files have the same path.
    #[error("duplicate artifact {0:?}: give each a path of its own")]
    Twice(String),
    /// The file exists, and the caller does not allow replacing files.
    #[error("{} exists: choose another folder with --out, or replace it with --force", .0.display())]
    Exists(PathBuf),
    /// An error of the file system, also for a link that leads out of the folder.
    #[error("cannot write {}: {cause}", .file.display())]
    File {
        /// The file that was not written.
        file: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
}

/// Writes files, each a relative path and its text, below a folder, which is created if it is missing. Returns their
/// paths.
///
/// # Errors
/// The first file that cannot be written. Paths are checked before any file is written, and so are existing files if
/// none may be replaced.
pub fn write_outputs(out: &Path, files: &[(String, String)], replace: bool) -> Result<Vec<PathBuf>, OutputError> {
    let mut paths = BTreeSet::new();
    for (path, _) in files {
        if !paths.insert(check_path(path)?) {
            return Err(OutputError::Twice(path.clone()));
        }
    }
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |cause| OutputError::File { file, cause }
    };
    fs::create_dir_all(out).map_err(failed(out))?;
    let folder = Dir::open_ambient_dir(out, ambient_authority()).map_err(failed(out))?;
    if !replace && let Some(path) = paths.iter().find(|path| folder.symlink_metadata(path).is_ok()) {
        return Err(OutputError::Exists(out.join(path)));
    }
    let mut written = Vec::new();
    for (path, text) in files {
        let path = check_path(path)?;
        let file = out.join(&path);
        match write_atomically(&folder, &path, text, replace) {
            Ok(()) => written.push(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !replace => {
                return Err(OutputError::Exists(file));
            }
            Err(cause) => return Err(OutputError::File { file, cause }),
        }
    }
    Ok(written)
}

/// Returns a path if it is relative and has only plain names.
fn check_path(path: &str) -> Result<PathBuf, OutputError> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_safe = !path.is_empty()
        && path.split('/').all(|part| !part.is_empty() && part != "." && part.len() <= MAX_NAME_BYTES)
        && !path.chars().any(|c| c.is_control() || c == '\\')
        && Path::new(path).components().all(is_plain);
    if is_safe { Ok(PathBuf::from(path)) } else { Err(OutputError::Path(path.to_owned())) }
}

/// Writes one file atomically. `folder` resolves every part of the path below itself.
fn write_atomically(folder: &Dir, path: &Path, text: &str, replace: bool) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        folder.create_dir_all(parent)?;
    }
    // A replaced file stays until the new one is complete. A new file is created at its path immediately, so that two
    // programs cannot both create it.
    let target = if replace { path.with_file_name(format!(".{}.part", random_suffix(12))) } else { path.to_owned() };
    let written = (|| {
        let mut file = folder.open_with(&target, OpenOptions::new().write(true).create_new(true))?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()?;
        if replace { folder.rename(&target, folder, path) } else { Ok(()) }
    })();
    if let Err(error) = &written
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        // Best effort: the first error is the one to report.
        let _ = folder.remove_file(&target);
    }
    written
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    fn write_one(out: &Path, path: &str, replace: bool) -> Result<Vec<PathBuf>, OutputError> {
        write_outputs(out, &[(path.to_owned(), "text".to_owned())], replace)
    }

    #[test]
    fn files_are_written_below_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("made/for/it");
        let files = [("letter.md".to_owned(), "Dear all".to_owned()), ("a/b/c.txt".to_owned(), String::new())];
        let written = write_outputs(&out, &files, false).unwrap();
        assert_eq!(written, [out.join("letter.md"), out.join("a/b/c.txt")]);
        assert_eq!(fs::read_to_string(out.join("letter.md")).unwrap(), "Dear all");
    }

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["", "/etc/x", "..", "../x", "a/../../x", "a/./b", "a//b", "a/", "a\\b", "a\0b", "a\nb", "."] {
            let refused = write_one(folder.path(), path, true).unwrap_err();
            assert!(matches!(refused, OutputError::Path(_)), "{path:?}: {refused}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_link_leads_out_of_the_folder() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("x"), "mine").unwrap();
        symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        symlink(elsewhere.path().join("x"), folder.path().join("file")).unwrap();
        symlink(elsewhere.path().join("new"), folder.path().join("dangling")).unwrap();
        for replace in [false, true] {
            assert!(write_one(folder.path(), "link/x", replace).is_err());
            assert!(write_one(folder.path(), "link/new/y", replace).is_err());
        }
        assert!(write_one(folder.path(), "file", false).is_err());
        assert!(write_one(folder.path(), "dangling", false).is_err());
        // Replacing a link does not change its target.
        write_one(folder.path(), "file", true).unwrap();
        assert_eq!(fs::read_to_string(elsewhere.path().join("x")).unwrap(), "mine");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    }

    #[test]
    fn existing_files_are_replaced_only_on_demand_and_completely() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b"), "old").unwrap();
        let files = [("a".to_owned(), "new".to_owned()), ("b".to_owned(), "new".to_owned())];
        let refused = write_outputs(folder.path(), &files, false).unwrap_err();
        assert!(refused.to_string().contains("--force"), "{refused}");
        assert!(!folder.path().join("a").exists(), "nothing is written where something cannot be");
        write_outputs(folder.path(), &files, true).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("b")).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn two_files_never_have_one_path() {
        let folder = tempfile::tempdir().unwrap();
        let files = [("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];
        assert!(matches!(write_outputs(folder.path(), &files, true), Err(OutputError::Twice(_))));
    }
}
