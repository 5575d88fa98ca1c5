//! Secret values of local runs: from the environment, or from a folder that has a folder for each Secret with a file
//! for each key.
//!
//! **Invariant:** no value is kept, logged or written.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use signoff_executor::{
    CallError, SecretText, Secrets, excerpt,
    secrets::{FoundSecret, SecretUse},
};

/// The prefix of every variable.
const PREFIX: &str = "SIGNOFF_SECRET_";

/// The key of a Secret with the list of hosts to which it may be sent.
const HOSTS: &str = "allowed-hosts";

/// The Secrets of this machine. The key `token` of the Secret `models` is the file `models/token` of the folder if it
/// exists, else the variable `SIGNOFF_SECRET_MODELS_TOKEN`. As on a cluster, the Secret is sent only to the hosts in
/// its key `allowed-hosts`, and without that key to none.
///
/// A variable does not show where the Secret's name ends and the key begins. So a list of hosts applies to every key
/// whose variable begins with the words of the list's Secret, independent of the split in a Workflow.
#[derive(Clone, Debug, Default)]
pub struct LocalSecrets {
    folder: Option<PathBuf>,
}

impl LocalSecrets {
    /// Returns Secrets from a folder, and from the environment if the folder lacks them.
    #[must_use]
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// Reads a key of a Secret from the folder, or from the environment if the folder lacks the key.
    fn find_key(&self, name: &str, key: &str) -> Result<Option<KeyText>, CallError> {
        if let Some(folder) = &self.folder {
            let folder = folder.join(check_segment(name)?);
            if let Some(text) = read_file(name, &folder.join(check_segment(key)?))? {
                return Ok(Some(KeyText { text, folder: Some(folder) }));
            }
        }
        Ok(read_variable(name, &variable_name(name, key))?.map(|text| KeyText { text, folder: None }))
    }

    /// Returns every list of hosts that applies to a key.
    fn host_lists(&self, name: &str, key: &str) -> Result<Vec<HostList>, CallError> {
        let variable = variable_name(name, key);
        let owners = possible_owners(&variable);
        let mut lists = Vec::new();
        for owner in &owners {
            let place = format!("{PREFIX}{owner}_{}", to_variable_word(HOSTS));
            lists.extend(read_variable(name, &place)?.map(|hosts| HostList {
                owner: (*owner).to_owned(),
                place,
                hosts,
            }));
        }
        let entries = match self.folder.as_ref().map(fs::read_dir) {
            Some(Ok(entries)) => {
                entries.collect::<Result<Vec<_>, _>>().map_err(|error| read_error(name, HOSTS, &error))?
            }
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(read_error(name, HOSTS, &error)),
            _ => Vec::new(),
        };
        for entry in entries {
            let owner = entry.file_name().to_str().map(to_variable_word).unwrap_or_default();
            if owners.contains(&owner.as_str()) {
                let file = entry.path().join(HOSTS);
                let place = file.display().to_string();
                lists.extend(read_file(name, &file)?.map(|hosts| HostList { owner, place, hosts }));
            }
        }
        Ok(lists)
    }
}

#[async_trait]
impl Secrets for LocalSecrets {
    async fn read(&self, _: &str, name: &str, key: &str, wanted: SecretUse<'_>) -> Result<FoundSecret, CallError> {
        let Some(found) = self.find_key(name, key)? else {
            let file = self.folder.as_ref().map(|folder| format!(" or write {}/{name}/{key}", folder.display()));
            return Err(CallError::invalid(format!(
                "there is no Secret {name} with the key {key}: set {}{}",
                variable_name(name, key),
                file.unwrap_or_default()
            )));
        };
        let (host, entry) = (wanted.url().host_str().unwrap_or_default(), wanted.entry());
        let lists = self.host_lists(name, key)?;
        if !lists.iter().any(|list| list.owner == to_variable_word(name) && !list.hosts.trim().is_empty()) {
            let line = found.line_that_allows(name, &entry);
            return Err(CallError::refused(format!(
                "Secret {name} must not be sent to {host}: it lists no hosts; if it belongs there, add the line: {line}"
            )));
        }
        for HostList { place, hosts: listed, .. } in &lists {
            if !wanted.is_listed(listed.trim().split(',')) {
                return Err(CallError::refused(format!(
                    "Secret {name} must not be sent to {host}: {place} lists other hosts ({}); if it belongs there, add {entry}",
                    excerpt(listed.trim(), [])
                )));
            }
        }
        let value = SecretText::from(found.text.trim_end_matches(['\r', '\n']).to_owned());
        Ok(FoundSecret { value, version: None })
    }
}

/// The text of a key, and the folder of its Secret; `None` for the environment.
struct KeyText {
    text: String,
    folder: Option<PathBuf>,
}

impl KeyText {
    /// Returns a shell command that adds an entry to the hosts of the Secret.
    fn line_that_allows(&self, name: &str, entry: &str) -> String {
        match &self.folder {
            Some(folder) => format!("echo {} > {}", quote(entry), quote(&folder.join(HOSTS).display().to_string())),
            None => format!("export {}={}", variable_name(name, HOSTS), quote(entry)),
        }
    }
}

/// A list of hosts: its Secret as a word, and its location.
struct HostList {
    owner: String,
    place: String,
    hosts: String,
}

/// Quotes a text as one word of a shell.
fn quote(text: &str) -> String {
    let is_plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_/".contains(c));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Returns the text of a file, if it exists.
fn read_file(name: &str, file: &Path) -> Result<Option<String>, CallError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(read_error(name, &file.display().to_string(), &error)),
    }
}

/// Returns the text of a variable, if it is set.
fn read_variable(name: &str, variable: &str) -> Result<Option<String>, CallError> {
    match env::var(variable) {
        Ok(text) => Ok(Some(text)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(CallError::invalid(format!("Secret {name}: {variable} is not text"))),
    }
}

fn read_error(name: &str, what: &str, error: &io::Error) -> CallError {
    CallError::invalid(format!("Secret {name}: {what}: {error}"))
}

/// Returns the variable of a key.
fn variable_name(name: &str, key: &str) -> String {
    format!("{PREFIX}{}_{}", to_variable_word(name), to_variable_word(key))
}

/// Converts a name for a variable: each character but letters and digits becomes `_`.
fn to_variable_word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// Returns the names, as words, of all Secrets to which a variable could belong.
fn possible_owners(variable: &str) -> Vec<&str> {
    let words = variable.strip_prefix(PREFIX).unwrap_or(variable);
    words.match_indices('_').map(|(end, _)| &words[..end]).collect()
}

/// Returns a name if it is a single segment of a path, so that it cannot leave its folder.
fn check_segment(name: &str) -> Result<&str, CallError> {
    let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
    is_plain
        .then_some(name)
        .ok_or_else(|| CallError::invalid(format!("{name:?} is not the name of a Secret or of a key")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use signoff_executor::{ErrorClass, ExposeSecret as _};
    use url::Url;

    fn url() -> Url {
        "https://models.example.com/v1".parse().unwrap()
    }

    #[tokio::test]
    async fn a_file_is_read_without_the_line_end_that_editors_add() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("models")).unwrap();
        fs::write(folder.path().join("models/token"), "hunter2\n").unwrap();
        fs::write(folder.path().join("models/allowed-hosts"), "models.example.com\n").unwrap();
        let secrets = LocalSecrets::in_folder(folder.path());
        assert_eq!(secrets.get("local", "models", "token", &url()).await.unwrap().expose_secret(), "hunter2");
        fs::write(folder.path().join("models/allowed-hosts"), "other.example.com").unwrap();
        let refused = secrets.get("local", "models", "token", &url()).await.unwrap_err();
        assert_eq!(refused.class, ErrorClass::Refused);
        assert!(refused.message.contains("allowed-hosts lists other hosts"), "{refused}");
        fs::write(folder.path().join("models/allowed-hosts"), "*.example.com").unwrap();
        assert!(secrets.get("local", "models", "token", &url()).await.is_ok());
    }

    #[tokio::test]
    async fn a_secret_without_a_list_of_hosts_is_sent_nowhere_until_the_line_is_added() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("models")).unwrap();
        fs::write(folder.path().join("models/token"), "hunter2").unwrap();
        let list = folder.path().join("models/allowed-hosts");
        let secrets = LocalSecrets::in_folder(folder.path());
        for empty in [None, Some(""), Some(" \n")] {
            empty.map_or(Ok(()), |text| fs::write(&list, text)).unwrap();
            let refused = secrets.get("local", "models", "token", &url()).await.unwrap_err();
            assert_eq!(refused.class, ErrorClass::Refused);
            assert_eq!(
                refused.message,
                format!(
                    "Secret models must not be sent to models.example.com: it lists no hosts; if it belongs there, add the \
                     line: echo models.example.com > {}",
                    list.display()
                )
            );
        }
        fs::write(&list, "models.example.com\n").unwrap();
        assert_eq!(secrets.get("local", "models", "token", &url()).await.unwrap().expose_secret(), "hunter2");
    }

    #[tokio::test]
    async fn the_list_of_another_secret_does_not_apply() {
        let folder = tempfile::tempdir().unwrap();
        for (secret, key, text) in [("acme-models", "token", "hunter2"), ("acme", HOSTS, "models.example.com")] {
            fs::create_dir(folder.path().join(secret)).unwrap();
            fs::write(folder.path().join(secret).join(key), text).unwrap();
        }
        let secrets = LocalSecrets::in_folder(folder.path());
        let refused = secrets.get("local", "acme-models", "token", &url()).await.unwrap_err();
        assert!(
            refused.message.contains("Secret acme-models") && refused.message.contains("lists no hosts"),
            "{refused}"
        );
        fs::write(folder.path().join("acme-models").join(HOSTS), "models.example.com").unwrap();
        assert!(secrets.get("local", "acme-models", "token", &url()).await.is_ok());
    }

    #[test]
    fn the_line_to_add_quotes_every_host_for_a_shell() {
        let found = KeyText { text: String::new(), folder: None };
        let line = |host| found.line_that_allows("my-models", host);
        assert_eq!(line("models.example.com"), "export SIGNOFF_SECRET_MY_MODELS_ALLOWED_HOSTS=models.example.com");
        assert_eq!(line("[::1]"), "export SIGNOFF_SECRET_MY_MODELS_ALLOWED_HOSTS='[::1]'");
        assert_eq!(line("$(id)';id"), r"export SIGNOFF_SECRET_MY_MODELS_ALLOWED_HOSTS='$(id)'\'';id'");
    }

    #[test]
    fn a_variable_may_be_a_key_of_every_secret_that_it_begins_with() {
        assert_eq!(possible_owners(&variable_name("acme", "models-token")), ["ACME", "ACME_MODELS"]);
        assert_eq!(possible_owners(&variable_name("acme-models", "token")), ["ACME", "ACME_MODELS"]);
    }

    #[tokio::test]
    async fn a_list_in_the_folder_applies_to_every_split_of_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("acme", "models-token", "hunter2"),
            ("acme", HOSTS, "models.example.com"),
            ("acme-models", HOSTS, "other.example.com"),
        ];
        for (secret, key, text) in files {
            fs::create_dir_all(folder.path().join(secret)).unwrap();
            fs::write(folder.path().join(secret).join(key), text).unwrap();
        }
        let secrets = LocalSecrets::in_folder(folder.path());
        let refused = secrets.get("local", "acme", "models-token", &url()).await.unwrap_err();
        assert!(refused.message.contains("acme-models/allowed-hosts lists other hosts"), "{refused}");
    }

    #[tokio::test]
    async fn a_header_without_tls_needs_a_list_with_scheme_and_port() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("letters")).unwrap();
        fs::write(folder.path().join("letters/token"), "hunter2-hunter2-").unwrap();
        let list = folder.path().join("letters/allowed-hosts");
        let secrets = LocalSecrets::in_folder(folder.path());
        let url: Url = "http://127.0.0.1:8080/send".parse().unwrap();
        let read = || secrets.read("local", "letters", "token", SecretUse::Header(&url));
        let refused = read().await.unwrap_err();
        assert!(refused.message.contains("add the line: echo 'http://127.0.0.1:8080' > "), "{refused}");
        fs::write(&list, "127.0.0.1:8080").unwrap();
        let refused = read().await.unwrap_err();
        assert!(refused.message.ends_with("if it belongs there, add http://127.0.0.1:8080"), "{refused}");
        fs::write(&list, "http://127.0.0.1:8080\n").unwrap();
        assert_eq!(read().await.unwrap().value.expose_secret(), "hunter2-hunter2-");
    }

    #[tokio::test]
    async fn a_missing_secret_is_named_with_its_variable() {
        let missing = LocalSecrets::default().get("local", "my-models", "api.key", &url()).await.unwrap_err();
        assert!(missing.message.contains("set SIGNOFF_SECRET_MY_MODELS_API_KEY"), "{missing}");
    }

    #[tokio::test]
    async fn no_name_leads_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = LocalSecrets::in_folder(folder.path().join("secrets"));
        fs::create_dir_all(folder.path().join("secrets")).unwrap();
        fs::write(folder.path().join("token"), "x").unwrap();
        for (name, key) in [("..", "token"), ("a/..", "token"), ("a", "../token"), ("", "x"), ("a", ".x")] {
            let refused = secrets.get("local", name, key, &url()).await.unwrap_err();
            assert!(refused.message.contains("is not the name of a Secret or of a key"), "{refused}");
        }
    }
}
