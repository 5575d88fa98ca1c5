//! The command of a server: its program, its description for a person, and the digest for the confirmation.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
};

use serde_json::json;
use signoff_api::Digest;
use signoff_executor::excerpt;

/// The maximum size of a program in bytes, so that its digest does not take long.
const MAX_PROGRAM: u64 = 512 * 1024 * 1024;
/// Programs that fetch the code they run: the words at the beginning of their command lines.
const FETCHING: [&[&str]; 11] = [
    &["npx"],
    &["bunx"],
    &["pnpx"],
    &["uvx"],
    &["npm", "exec"],
    &["npm", "x"],
    &["pnpm", "dlx"],
    &["yarn", "dlx"],
    &["bun", "x"],
    &["pipx", "run"],
    &["uv", "tool", "run"],
];
/// The options of these programs that name a package.
const PACKAGE: [&str; 4] = ["-p", "--package", "--from", "--with"];

/// A command that starts a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCommand {
    /// The program: a path, or a name that is searched in `PATH`.
    pub program: String,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The environment variables, in addition to `PATH` and `HOME`.
    pub env: BTreeMap<String, String>,
}

/// A command with the file that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedCommand {
    command: ServerCommand,
    /// The file of the program as found, because some programs depend on the name by which they are called.
    named: PathBuf,
    /// The file of the program, with all links resolved.
    file: PathBuf,
    /// The folder in which the program runs.
    folder: PathBuf,
    digest: Digest,
}

impl ServerCommand {
    /// Finds the file of the program and computes the digest for the confirmation: of the file, its content, the
    /// arguments, the environment and the current folder, in which it runs.
    ///
    /// # Errors
    /// The program does not exist, or cannot be read.
    pub fn resolve(self) -> io::Result<ResolvedCommand> {
        let path = find_in_path(&self.program).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("there is no program {}", excerpt(&self.program, [])))
        })?;
        let folder = env::current_dir()?;
        let named = folder.join(path);
        let file = fs::canonicalize(&named)?;
        if fs::metadata(&file)?.len() > MAX_PROGRAM {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the program has more than 512 MiB"));
        }
        let content = Digest::of_bytes(&fs::read(&file)?);
        let confirmed = json!({
            "program": self.program,
            "named": named.to_string_lossy(),
            "file": file.to_string_lossy(),
            "folder": folder.to_string_lossy(),
            "content": content,
            "arguments": self.arguments,
            "env": self.env,
        });
        let digest = Digest::of(&confirmed).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        Ok(ResolvedCommand { command: self, named, file, folder, digest })
    }

    /// Returns the package of which the program fetches the newest version, or `None`.
    #[must_use]
    pub fn unpinned_package(&self) -> Option<&str> {
        let name = Path::new(&self.program).file_stem()?.to_str()?;
        let line: Vec<_> = [name].into_iter().chain(self.arguments.iter().map(String::as_str)).collect();
        let arguments = FETCHING.iter().find_map(|words| line.strip_prefix(*words))?;
        let after_option = arguments.windows(2).filter_map(|pair| match pair {
            [option, package] if PACKAGE.contains(option) => Some(*package),
            _ => None,
        });
        let in_option = arguments.iter().filter_map(|word| word.split_once('='));
        let in_option = in_option.filter_map(|(option, package)| PACKAGE.contains(&option).then_some(package));
        let mut packages: Vec<_> = after_option.chain(in_option).collect();
        if packages.is_empty() {
            packages.extend(arguments.iter().find(|word| !word.starts_with('-')));
        }
        packages.into_iter().find(|package| !is_pinned(package))
    }
}

/// Whether a package is named with one version, and not with a range, a tag or no version.
fn is_pinned(package: &str) -> bool {
    // The first character can be the `@` of a scope.
    let version = package.rsplit_once('@').filter(|(before, _)| !before.is_empty()).map(|(_, version)| version);
    let is_number = |part: &str| part.starts_with(|first: char| first.is_ascii_digit());
    let has_three_parts = |version: &str| version.split('.').filter(|part| is_number(part)).count() >= 3;
    version.is_some_and(|version| is_number(version) && has_three_parts(version)) || package.contains("==")
}

impl ResolvedCommand {
    /// Returns the digest for the confirmation.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the lines of the command for the confirmation: the file, each argument, the file without links, the
    /// folder, and the names of variables.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let shown = |text: &str| format!("{text:?}");
        let file = self.named.to_string_lossy();
        let real = (self.named != self.file).then(|| format!("which is {}", shown(&self.file.to_string_lossy())));
        let folder = format!("in {}", shown(&self.folder.to_string_lossy()));
        let variables = self.command.env.keys().map(|name| format!("with {}", shown(name)));
        let arguments = self.command.arguments.iter().map(|argument| shown(argument));
        std::iter::once(shown(file.as_ref())).chain(arguments).chain(real).chain([folder]).chain(variables).collect()
    }

    pub(super) fn command(&self) -> &ServerCommand {
        &self.command
    }

    pub(super) fn named(&self) -> &Path {
        &self.named
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Returns the file of a program, found like a shell does.
fn find_in_path(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|file| file.is_file());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn command(program: &str, arguments: &[&str]) -> ServerCommand {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        ServerCommand { program: program.to_owned(), arguments, env: BTreeMap::new() }
    }

    #[test]
    fn the_digest_covers_program_arguments_and_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server");
        fs::write(&file, "one").unwrap();
        let of = |arguments: &[&str]| command(file.to_str().unwrap(), arguments);
        let digest = |command: ServerCommand| command.resolve().unwrap().digest().clone();
        let first = digest(of(&["a", "b"]));
        assert_eq!(digest(of(&["a", "b"])), first);
        assert_ne!(digest(of(&["a b"])), first);
        let env = BTreeMap::from([("TOKEN".to_owned(), "x".to_owned())]);
        assert_ne!(digest(ServerCommand { env, ..of(&["a", "b"]) }), first);
        fs::write(&file, "two").unwrap();
        assert_ne!(digest(of(&["a", "b"])), first);
    }

    #[test]
    fn the_lines_show_every_argument_and_no_value_of_a_variable() {
        let env = BTreeMap::from([("TOKEN".to_owned(), "hunter2".to_owned())]);
        let shell = ServerCommand { env, ..command("sh", &["-c", "echo \u{1b}[2J\nrm -rf x"]) };
        let lines = shell.resolve().unwrap().lines();
        assert_eq!(lines[1..3], ["\"-c\"", "\"echo \\u{1b}[2J\\nrm -rf x\""]);
        let folder = format!("in {:?}", env::current_dir().unwrap());
        assert_eq!(lines[lines.len() - 2..], [folder, "with \"TOKEN\"".to_owned()]);
        assert!(lines[0].starts_with("\"/"), "{lines:?}");
        assert!(command("no-such-program-here", &[]).resolve().is_err());
    }

    #[test]
    fn a_package_without_a_version_is_named() {
        for (arguments, package) in [
            (&["-y", "server"][..], Some("server")),
            (&["@scope/server"][..], Some("@scope/server")),
            (&["@scope/server@latest"][..], Some("@scope/server@latest")),
            (&["@scope/server@1.2.3"][..], None),
            (&["-y", "server@2026.8.31", "dir"][..], None),
            (&["server@1"][..], Some("server@1")),
            (&["server@1.x"][..], Some("server@1.x")),
            (&["--package=other@latest", "--", "server@1.2.3"][..], Some("other@latest")),
            (&["-p", "other", "server@1.2.3"][..], Some("other")),
        ] {
            assert_eq!(command("/usr/bin/npx", arguments).unpinned_package(), package);
        }
        assert_eq!(command("uvx", &["server==1.0"]).unpinned_package(), None);
        assert_eq!(command("node", &["server.js"]).unpinned_package(), None);
        assert_eq!(command("npm", &["exec", "-y", "server"]).unpinned_package(), Some("server"));
        assert_eq!(command("uv", &["tool", "run", "server"]).unpinned_package(), Some("server"));
        assert_eq!(command("npm", &["start"]).unpinned_package(), None);
    }
}
