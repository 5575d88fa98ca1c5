//! The scope in which a reader may list a kind: the whole cluster, or some named namespaces.
//!
//! **Invariant:** a namespace is in the scope only after the API server has answered a list of it.

use std::fmt::Debug;

use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use crate::error::PageError;

/// The most namespaces that are listed for one reader.
pub const NAMESPACES: usize = 20;

/// Returns the namespaces to list: `None` if the caller may list the whole cluster, otherwise the named ones that the
/// caller may list.
///
/// # Errors
/// As every request, except for a refusal.
pub async fn scope<K>(client: &Client, namespaces: &[String]) -> Result<Option<Vec<String>>, PageError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let one = ListParams::default().limit(1);
    match Api::<K>::all(client.clone()).list_metadata(&one).await.map_err(PageError::from) {
        Ok(_) => return Ok(None),
        Err(PageError::Refused(_)) => {}
        Err(other) => return Err(other),
    }
    let asked = namespaces.iter().take(NAMESPACES).map(async |namespace| {
        let api = Api::<K>::namespaced(client.clone(), namespace);
        (namespace.clone(), api.list_metadata(&one).await.map_err(PageError::from))
    });
    let mut allowed = Vec::new();
    for (namespace, answer) in join_all(asked).await {
        match answer {
            Ok(_) => allowed.push(namespace),
            Err(PageError::Refused(_) | PageError::NotFound(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(Some(allowed))
}

/// Returns the lists to read: one for each namespace, or `None` for the whole cluster.
#[must_use]
pub fn places(scope: Option<&[String]>) -> Vec<Option<String>> {
    scope.map_or_else(|| vec![None], |all| all.iter().cloned().map(Some).collect())
}

/// Whether a text can be the name of a namespace.
#[must_use]
pub fn is_namespace(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('-') && !name.ends_with('-')
}

/// Whether a text can be the name of an object.
#[must_use]
pub fn is_name(name: &str) -> bool {
    signoff_api::names::is_object(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        for name in ["a", "refund-4711.review-1", "0", &"a".repeat(253)] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a..b",
            "a/b",
            "../a",
            "a?b",
            "a#b",
            "a%2fb",
            "A",
            "ä",
            "a b",
            "a\0",
            "-a",
            "a-",
            &"a".repeat(254),
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
