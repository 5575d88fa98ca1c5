//! The edit of a text in the person's own editor.
//!
//! **Invariant:** other users cannot read the text, and it is kept only on request.

use std::{
    env, fs,
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// The editor if no environment variable names one.
const DEFAULT_EDITOR: &str = "vi";
/// The mode of the folder: only the user can enter it.
const FOLDER_MODE: u32 = 0o700;
/// The mode of the file: only the user can read and write it.
const FILE_MODE: u32 = 0o600;

/// Opens a text in the user's editor, as a file with this name. Returns the edited text, or `None` if the editor fails,
/// as with `:cq`. `variables`: the environment variables that can name the editor, in the order of their priority.
///
/// # Errors
/// The editor cannot be run, or the edited text is not UTF-8.
pub fn edit(name: &str, text: &str, variables: &[&str]) -> io::Result<Option<String>> {
    EditedFile::create(name)?.edit(text, variables)
}

/// A file for an editor, in a folder of its own that no other user can enter: the text may be confidential. File and
/// folder are deleted with this value.
#[derive(Debug)]
pub struct EditedFile {
    folder: TempDir,
    path: PathBuf,
}

impl EditedFile {
    /// Creates the folder and an empty file.
    ///
    /// # Errors
    /// The folder or the file cannot be created.
    pub fn create(name: &str) -> io::Result<Self> {
        let mode = fs::Permissions::from_mode(FOLDER_MODE);
        let folder = tempfile::Builder::new().prefix("signoff-").permissions(mode).tempdir()?;
        let path = folder.path().join(name);
        fs::OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        Ok(Self { folder, path })
    }

    /// Writes a text, opens the editor, and returns the saved text. `None` if the editor fails.
    ///
    /// # Errors
    /// The editor cannot be run, or the edited text is not UTF-8.
    pub fn edit(&self, text: &str, variables: &[&str]) -> io::Result<Option<String>> {
        let mut file =
            fs::OpenOptions::new().write(true).truncate(true).create(true).mode(FILE_MODE).open(&self.path)?;
        file.write_all(text.as_bytes())?;
        drop(file);
        if !run_editor(&self.path, variables)? {
            return Ok(None);
        }
        self.text().map(Some)
    }

    /// Returns the content of the file.
    ///
    /// # Errors
    /// The file cannot be read, or it is not UTF-8.
    pub fn text(&self) -> io::Result<String> {
        fs::read_to_string(&self.path)
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Keeps the folder and the file, and returns the path of the file.
    pub fn keep(self) -> PathBuf {
        let _folder = self.folder.keep();
        // The editor can have replaced the file by another with another mode. If the mode cannot be set, the folder
        // still protects the file.
        let _ = fs::set_permissions(&self.path, fs::Permissions::from_mode(FILE_MODE));
        self.path
    }
}

/// Runs the editor with the file. Returns whether the editor succeeds.
fn run_editor(file: &Path, variables: &[&str]) -> io::Result<bool> {
    let mut editors = variables.iter().filter_map(|name| env::var(name).ok());
    let editor = editors.find(|editor| !editor.trim().is_empty()).unwrap_or_else(|| DEFAULT_EDITOR.to_owned());
    // A shell, because the name of the editor can have arguments, such as `code --wait`.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(file);
    // Standard output is for the result of the run.
    command.stdout(Stdio::from(io::stderr()));
    Ok(command.status()?.success())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_the_user_can_enter_the_folder_and_read_the_file() {
        let file = EditedFile::create("parameters.yaml").unwrap();
        assert_eq!((mode(file.folder.path()), mode(&file.path)), (0o700, 0o600));
    }

    #[test]
    fn the_file_is_deleted_unless_it_is_kept() {
        let file = EditedFile::create("parameters.yaml").unwrap();
        let path = file.path.clone();
        drop(file);
        assert!(!path.exists() && !path.parent().unwrap().exists());
        let file = EditedFile::create("parameters.yaml").unwrap();
        fs::write(&file.path, "response: better\n").unwrap();
        // An editor that replaces the file can change its mode like this.
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o644)).unwrap();
        let path = file.keep();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_to_string(&path).unwrap(), "response: better\n");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
