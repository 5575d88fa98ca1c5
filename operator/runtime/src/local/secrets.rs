//! Secret values of local runs: from the environment, or from a folder with a folder a Secret and a file a key.
//!
//! It may not keep, log or write a value.

use std::{env, fs, io, path::PathBuf};

use async_trait::async_trait;
use url::Url;

use crate::{
    CallError, SecretText, Secrets,
    secrets::{ALLOWED_HOSTS, host_allowed},
};

/// How every variable begins.
const PREFIX: &str = "SIGNOFF_SECRET_";

/// The key under which a Secret lists the hosts it may be sent to.
const HOSTS: &str = "allowed-hosts";

/// Secrets of this machine. The key `token` of the Secret `models` is the file `models/token` of the folder, if there
/// is one, else the variable `SIGNOFF_SECRET_MODELS_TOKEN`. Where the key `allowed-hosts` is there too, the Secret is
/// sent to no other host, as on a cluster.
#[derive(Clone, Debug, Default)]
pub struct LocalSecrets {
    folder: Option<PathBuf>,
}

impl LocalSecrets {
    /// Secrets from a folder before those of the environment.
    #[must_use]
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    fn find(&self, name: &str, key: &str) -> Result<Option<String>, CallError> {
        if let Some(folder) = &self.folder {
            let file = folder.join(segment(name)?).join(segment(key)?);
            match fs::read_to_string(&file) {
                Ok(text) => return Ok(Some(text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(CallError::invalid(format!("Secret {name}: {}: {error}", file.display())));
                }
            }
        }
        match env::var(variable(name, key)) {
            Ok(text) => Ok(Some(text)),
            Err(env::VarError::NotPresent) => Ok(None),
            Err(env::VarError::NotUnicode(_)) => {
                Err(CallError::invalid(format!("Secret {name}: {} is not text", variable(name, key))))
            }
        }
    }
}

#[async_trait]
impl Secrets for LocalSecrets {
    async fn get(&self, _: &str, name: &str, key: &str, for_host: &Url) -> Result<SecretText, CallError> {
        let Some(text) = self.find(name, key)? else {
            let file = self.folder.as_ref().map(|folder| format!(" or write {}/{name}/{key}", folder.display()));
            return Err(CallError::invalid(format!(
                "there is no Secret {name} with the key {key}: set {}{}",
                variable(name, key),
                file.unwrap_or_default()
            )));
        };
        if let Some(hosts) = self.find(name, HOSTS)? {
            host_allowed(name, Some(&hosts), for_host).map_err(|error| {
                let message = error.message.replace("annotation ", "list ").replace(ALLOWED_HOSTS, HOSTS);
                CallError { message, ..error }
            })?;
        }
        Ok(SecretText::from(text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

/// The variable of a key: everything that is no letter or digit becomes `_`.
fn variable(name: &str, key: &str) -> String {
    let word = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
    };
    format!("{PREFIX}{}_{}", word(name), word(key))
}

/// A name that stays one segment of a path.
fn segment(name: &str) -> Result<&str, CallError> {
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
    plain.then_some(name).ok_or_else(|| CallError::invalid(format!("{name:?} is no name of a Secret or of a key")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{ErrorClass, ExposeSecret as _};

    fn url() -> Url {
        "https://models.example.com/v1".parse().unwrap()
    }

    #[tokio::test]
    async fn a_file_is_read_without_the_line_end_that_editors_add() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("models")).unwrap();
        fs::write(folder.path().join("models/token"), "hunter2\n").unwrap();
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
    async fn what_is_missing_is_named_with_the_variable_that_would_give_it() {
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
            assert!(refused.message.contains("is no name"), "{refused}");
        }
    }
}
