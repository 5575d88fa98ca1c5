//! Where a reader may list a kind: in the whole cluster, or in the namespaces that were named.
//!
//! It must not guess: a namespace counts only after the API server has answered for it.

use std::fmt::Debug;

use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use crate::error::PageError;

/// The most namespaces that are looked at for one reader.
pub const NAMESPACES: usize = 20;

/// Returns the namespaces to look at: `None` for all where the caller may list all, else those that were named and may
/// be listed.
///
/// # Errors
/// As every request, except that it is refused.
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

/// Returns the places to list, each one list: `None` is the whole cluster.
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
