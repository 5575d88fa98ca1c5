//! The servers of a Workflow that are commands: their description for a person, and the stored confirmations.
//!
//! **Invariant:** no command is started here.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
};

use signoff_api::{Digest, WorkflowSpec, server::Server};
use signoff_mcp::stdio::{ResolvedCommand, ServerCommand};

use crate::{error::Error, session::Sessions};

/// The hidden file of a folder of sessions with the digests of confirmed commands, one in each line.
const CONFIRMED: &str = ".confirmed-commands";

/// The mode of the file with confirmations: only its user reads and writes it.
const PRIVATE: u32 = 0o600;

/// A command that starts a server of a Workflow.
#[derive(Clone, Debug)]
pub struct WorkflowCommand {
    server: String,
    /// The program and its arguments, as in the Workflow.
    words: Vec<String>,
    resolved: ResolvedCommand,
    unpinned: Option<String>,
}

impl WorkflowCommand {
    /// Returns the commands of a Workflow, in the order of its servers, with the program file of each.
    ///
    /// # Errors
    /// [`Error::Command`] if a program is missing or cannot be read.
    pub fn of_spec(spec: &WorkflowSpec) -> Result<Vec<Self>, Error> {
        let commands = spec.servers.iter().filter(|server| !server.command.is_empty());
        commands.map(|server| Self::resolve(&server.name, &server.command)).collect()
    }

    fn resolve(server: &str, words: &[String]) -> Result<Self, Error> {
        let failed = |why: String| Error::Command { server: server.to_owned(), why };
        let (program, arguments) = words.split_first().ok_or_else(|| failed("it is empty".to_owned()))?;
        let command = ServerCommand { program: program.clone(), arguments: arguments.to_vec(), env: BTreeMap::new() };
        let unpinned = command.unpinned_package().map(str::to_owned);
        let resolved = command.resolve().map_err(|why| failed(why.to_string()))?;
        Ok(Self { server: server.to_owned(), words: words.to_vec(), resolved, unpinned })
    }

    /// Returns the name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the program and its arguments, as in the Workflow.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// Returns the digest for the confirmation: of the program file, its content and the arguments.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        self.resolved.digest()
    }

    /// Returns the program file and each argument as lines, without characters that a terminal does not show.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.resolved.lines()
    }

    /// Returns the package of which the program fetches the newest version, if it does.
    #[must_use]
    pub fn unpinned_package(&self) -> Option<&str> {
        self.unpinned.as_deref()
    }

    /// Whether this command starts this server.
    pub(crate) fn is_of(&self, server: &Server) -> bool {
        self.server == server.name && self.words == server.command
    }

    /// Returns the command to start, if it still has the confirmed digest.
    ///
    /// # Errors
    /// [`Error::Command`] if the program has changed or is missing.
    pub(crate) fn resolve_confirmed(&self) -> Result<ResolvedCommand, Error> {
        let current = Self::resolve(&self.server, &self.words)?;
        if current.digest() == self.digest() {
            return Ok(current.resolved);
        }
        let why = "its program has changed since it was confirmed: resume the run, and confirm it again".to_owned();
        Err(Error::Command { server: self.server.clone(), why })
    }
}

/// Confirmations of commands apply to all sessions of a folder.
impl Sessions {
    /// Whether the command with this digest was confirmed before.
    ///
    /// # Errors
    /// The confirmations exist and cannot be read.
    pub fn has_confirmed(&self, command: &Digest) -> Result<bool, Error> {
        let file = self.root().join(CONFIRMED);
        match fs::read_to_string(&file) {
            Ok(text) => Ok(text.lines().any(|line| line == command.as_str())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(cause) => Err(Error::file("cannot read", file)(cause)),
        }
    }

    /// Stores that the command with this digest was confirmed.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn confirm(&self, command: &Digest) -> Result<(), Error> {
        self.create_root()?;
        let file = self.root().join(CONFIRMED);
        let opened = fs::OpenOptions::new().append(true).create(true).mode(PRIVATE).open(&file);
        let written = opened.and_then(|mut open| open.write_all(format!("{command}\n").as_bytes()));
        written.map_err(Error::file("cannot write", file))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn commands(words: &[&str]) -> Result<Vec<WorkflowCommand>, Error> {
        let servers = json!([{"name": "crm", "url": "https://a"}, {"name": "files", "command": words}]);
        let spec = json!({"servers": servers, "steps": []});
        WorkflowCommand::of_spec(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_confirmation_holds_for_one_digest_in_one_folder() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sessions = Sessions::new(folder.path().join("sessions"));
        let [confirmed, other_command] = [["a"], ["b"]].map(|[word]| commands(&["sh", word]).unwrap().remove(0));
        assert!(!sessions.has_confirmed(confirmed.digest()).unwrap());
        sessions.confirm(confirmed.digest()).unwrap();
        assert!(
            sessions.has_confirmed(confirmed.digest()).unwrap()
                && !sessions.has_confirmed(other_command.digest()).unwrap()
        );
        assert!(!Sessions::new(other.path()).has_confirmed(confirmed.digest()).unwrap());
        assert_eq!((sessions.ids().unwrap().len(), sessions.sweep().unwrap()), (0, 0), "it is no session");
    }

    #[test]
    fn a_program_that_has_changed_since_it_was_confirmed_is_not_started() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("server");
        fs::write(&program, "one").unwrap();
        let command = commands(&[program.to_str().unwrap()]).unwrap().remove(0);
        assert!(command.resolve_confirmed().is_ok());
        fs::write(&program, "two").unwrap();
        let refused = command.resolve_confirmed().unwrap_err().to_string();
        assert!(
            refused.contains("server files") && refused.contains("has changed since it was confirmed"),
            "{refused}"
        );
        fs::remove_file(&program).unwrap();
        assert!(matches!(command.resolve_confirmed(), Err(Error::Command { .. })));
    }

    #[test]
    fn only_commands_are_listed_and_a_missing_program_is_named() {
        let listed = commands(&["sh", "-c", "true"]).unwrap();
        let lines = listed[0].lines();
        assert_eq!(
            (listed.len(), listed[0].server(), &lines[1..3]),
            (1, "files", &["\"-c\"".into(), "\"true\"".into()][..])
        );
        assert_eq!(lines.last(), Some(&format!("in {:?}", std::env::current_dir().unwrap())));
        assert_eq!(listed[0].unpinned_package(), None);
        let missing = commands(&["no-such-program-here"]).unwrap_err().to_string();
        assert!(missing.contains("there is no program no-such-program-here"), "{missing}");
    }
}
