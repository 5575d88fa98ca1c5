//! The administrator's files. They are read repeatedly, and used when their content has changed *(I/O)*.
//!
//! **Invariant:** while a file is invalid, the configuration before it stays in use for ten minutes. After that no
//! notice is sent until the file is corrected.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use signoff_api::{Digest, Moment};

use super::{Config, ConfigError};
use crate::people::People;

/// The time for which a configuration stays in use after its file became invalid.
const KEPT: Duration = Duration::from_secs(600);
/// The largest size of a file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// A configuration with the addresses of people from its file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadedConfig {
    /// The configuration, as the file of the administrator has it.
    pub config: Config,
    /// The addresses of people.
    pub people: People,
}

/// The state of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The files are valid, and their configuration is in use.
    Current,
    /// The files are invalid, and the configuration before them stays in use.
    Kept {
        /// The problem and the remedy.
        why: String,
        /// The time at which sending stops.
        until: Moment,
    },
    /// The files are invalid, and no notice is sent.
    Stopped {
        /// The problem and the remedy.
        why: String,
    },
}

/// The configuration in use, and its file.
pub struct ConfigFile {
    path: PathBuf,
    /// The digest of all files when they were last read.
    digest: Option<Digest>,
    loaded: Option<Arc<LoadedConfig>>,
    /// The error of the last read, and the time of the first failed read in a row. `None`: the files are valid.
    invalid: Option<(ConfigError, Moment)>,
}

impl ConfigFile {
    /// Returns the configuration of a file. The first [`Self::refresh`] reads the file.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, digest: None, loaded: None, invalid: None }
    }

    /// Reads the files again. If their content has changed, calls `build` with the new configuration, and returns the
    /// configuration with the result of `build`. On an error, keeps the configuration before, remembers the error for
    /// [`Self::state`], and logs a new one.
    pub fn refresh<T>(
        &mut self,
        now: Moment,
        build: impl FnOnce(&LoadedConfig) -> Result<T, ConfigError>,
    ) -> Option<(Arc<LoadedConfig>, T)> {
        let read = self.read();
        let built = read.and_then(|read| match read {
            Some((digest, loaded)) => build(&loaded).map(|built| Some((digest, loaded, built))),
            None => Ok(None),
        });
        match built {
            Ok(None) => {
                self.invalid = None;
                None
            }
            Ok(Some((digest, loaded, built))) => {
                let loaded = Arc::new(loaded);
                (self.digest, self.invalid) = (Some(digest), None);
                self.loaded = Some(Arc::clone(&loaded));
                Some((loaded, built))
            }
            Err(error) => {
                let known = self.invalid.take();
                if known.as_ref().is_none_or(|(known, _)| *known != error) {
                    tracing::error!(file = %self.path.display(), "the configuration of notices is not used: {error}");
                }
                self.invalid = Some((error, known.map_or(now, |(_, since)| since)));
                None
            }
        }
    }

    /// Returns the state of the configuration at `now`.
    #[must_use]
    pub fn state(&self, now: Moment) -> FileState {
        match (&self.invalid, &self.loaded) {
            (None, Some(_)) => FileState::Current,
            (None, None) => FileState::Stopped { why: "the configuration of notices was not read yet".to_owned() },
            (Some((error, since)), Some(_)) if now < since.after(KEPT) => {
                FileState::Kept { why: error.to_string(), until: since.after(KEPT) }
            }
            (Some((error, _)), _) => FileState::Stopped { why: error.to_string() },
        }
    }

    /// Reads all files, and returns their digest and the configuration; or `None` if no file has changed. A file of a
    /// channel that cannot be read is only logged.
    fn read(&self) -> Result<Option<(Digest, LoadedConfig)>, ConfigError> {
        let text = read_text(&self.path)
            .map_err(|why| ConfigError::new("notifications", format!("the file {} {why}", self.path.display())))?;
        let config = Config::parse(&text)?;
        let mut digested = text;
        let (mut people, mut unread) = (String::new(), Vec::new());
        for (field, path) in config.files() {
            // The error does not contain the path, because an administrator may have written the secret in place of it.
            let is_people_file = config.people.file.as_ref() == Some(path);
            let content = match read_text(path) {
                Ok(content) => content,
                Err(why) if is_people_file => return Err(ConfigError::new(field, format!("the file {why}"))),
                // Only this channel cannot send. It reads the file again for each notice.
                Err(why) => {
                    unread.push(format!("{field}: the file {why}"));
                    String::new()
                }
            };
            // The length separates the files: without it, text could move from one file to the next with the same
            // digest.
            digested.push_str(&format!("\n{} {}\n{content}", path.display(), content.len()));
            if is_people_file {
                people = content;
            }
        }
        let digest = Digest::of_bytes(digested.as_bytes());
        if self.digest.as_ref() == Some(&digest) {
            return Ok(None);
        }
        for problem in unread {
            tracing::error!("notifications: {problem}; its channel sends nothing until then");
        }
        let text = if people.trim().is_empty() { "{}" } else { people.as_str() };
        let read = People::parse(text, &config.people.domains);
        let people = read.map_err(|why| ConfigError::new("people.file", why))?;
        Ok(Some((digest, LoadedConfig { config, people })))
    }
}

/// Reads a file. Returns its content, or the problem as a clause that follows the name of the file.
fn read_text(path: &Path) -> Result<String, String> {
    let open = fs::File::open(path).map_err(|error| format!("cannot be read: {}", error.kind()))?;
    let mut text = String::new();
    let read = open.take(MAX_BYTES + 1).read_to_string(&mut text);
    // For bytes that are not UTF-8 the kind of the error is just "invalid data".
    read.map_err(|error| format!("is not text, or cannot be read: {}", error.kind()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err("is larger than 1 MiB".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn at(seconds: u64) -> Moment {
        let start: Moment = serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap();
        start.after(Duration::from_secs(seconds))
    }

    #[test]
    fn invalid_file_keeps_the_old_configuration_for_ten_minutes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notices.yaml");
        let write = |text: &str| fs::write(&path, text).unwrap();
        let mut file = ConfigFile::new(path.clone());
        let buildable = |_: &LoadedConfig| Ok(());
        assert!(matches!(file.state(at(0)), FileState::Stopped { .. }));
        write("inbox: https://a.example");
        assert!(file.refresh(at(0), buildable).is_some());
        assert_eq!(file.refresh(at(1), buildable), None, "nothing changed");
        assert_eq!(file.state(at(1)), FileState::Current);
        write("inboxes: x");
        assert_eq!(file.refresh(at(2), buildable), None);
        let FileState::Kept { why, until } = file.state(at(3)) else { panic!("{:?}", file.state(at(3))) };
        assert!(why.contains("unknown field, expected one of `inbox`") && until == at(602), "{why} {until}");
        file.refresh(at(500), buildable);
        assert!(matches!(file.state(at(602)), FileState::Stopped { .. }), "the ten minutes count from the first");
        write("inbox: https://a.example");
        file.refresh(at(700), buildable);
        assert_eq!(file.state(at(700)), FileState::Current);
        let unbuildable = |_: &LoadedConfig| Err::<(), _>(ConfigError::new("channels[0]", "no key"));
        write("inbox: https://b.example");
        for second in [701, 702, 703] {
            assert_eq!(file.refresh(at(second), unbuildable), None);
        }
        assert_eq!(file.state(at(703)), FileState::Kept { why: "channels[0]: no key".to_owned(), until: at(1301) });
    }

    #[test]
    fn changed_secret_reloads_the_configuration_and_a_missing_secret_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path().join("notices.yaml"), folder.path().join("key"));
        let text = format!("channels: [{{name: oncall, pagerduty: {{routingKeyFile: {}}}}}]", key.display());
        fs::write(&path, &text).unwrap();
        let mut file = ConfigFile::new(path.clone());
        let buildable = |_: &LoadedConfig| Ok(());
        assert!(file.refresh(at(0), buildable).is_some(), "the channel fails at each notice, and no other one");
        for content in [&b"one"[..], b"two", &[0xff, b's'], b"three"] {
            fs::write(&key, content).unwrap();
            assert!(file.refresh(at(1), buildable).is_some());
            assert_eq!((file.refresh(at(2), buildable), file.state(at(2))), (None, FileState::Current));
        }
        fs::write(&path, format!("{text}\npeople: {{file: {}}}", folder.path().join("people").display())).unwrap();
        assert_eq!(file.refresh(at(3), buildable), None);
        let FileState::Kept { why, .. } = file.state(at(3)) else { panic!("there are no people") };
        assert_eq!(why, "people.file: the file cannot be read: entity not found");
    }
}
