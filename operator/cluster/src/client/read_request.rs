//! The verb and resource of a request that reads, from its method and path.
//!
//! **Invariant:** reads no body.

use http::{Method, Uri};

/// A request that reads objects or creates a review, and stores nothing. A watch does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// `get` or `list`, or `create` for a review, such as a TokenReview.
    pub verb: &'static str,
    /// The resource in the plural, such as `workflows` or `pods/log`. For other paths, the whole path.
    pub resource: String,
}

impl ReadRequest {
    /// Returns the read of a request, or `None` if it writes or watches.
    pub(crate) fn from_parts(method: &Method, uri: &Uri) -> Option<Self> {
        let is_watch = uri.query().is_some_and(|query| query.split('&').any(|part| part.starts_with("watch=")));
        let Some((resource, has_name)) = parse_resource(uri.path()) else {
            return (method == Method::GET).then(|| Self { verb: "get", resource: uri.path().to_owned() });
        };
        let verb = match *method {
            Method::GET if is_watch => return None,
            Method::GET if has_name => "get",
            Method::GET => "list",
            Method::POST if resource.ends_with("reviews") => "create",
            _ => return None,
        };
        Some(Self { verb, resource })
    }
}

/// Returns the resource of a path with its subresource, and whether the path names a single object.
fn parse_resource(path: &str) -> Option<(String, bool)> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match parts.next()? {
        "api" => parts.next()?,
        "apis" => parts.nth(1)?,
        _ => return None,
    };
    let mut parts: Vec<_> = parts.collect();
    // The path of a namespace itself begins like the paths of objects in it.
    if parts.len() > 2 && parts[0] == "namespaces" {
        parts.drain(..2);
    }
    match parts[..] {
        [] => None,
        [kind] => Some((kind.to_owned(), false)),
        [kind, _] => Some((kind.to_owned(), true)),
        [kind, _, sub, ..] => Some((format!("{kind}/{sub}"), true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verb_and_resource_follow_from_method_and_path() {
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/namespaces/a/configmaps/b", Some(("get", "configmaps"))),
            (Method::GET, "/api/v1/namespaces/a/configmaps?limit=1", Some(("list", "configmaps"))),
            (Method::GET, "/api/v1/namespaces/a/pods/b/log?tailLines=1", Some(("get", "pods/log"))),
            (Method::GET, "/api/v1/namespaces/a", Some(("get", "namespaces"))),
            (Method::GET, "/api/v1/namespaces?limit=500", Some(("list", "namespaces"))),
            (Method::GET, "/apis/signoff.dev/v1alpha1/workflows", Some(("list", "workflows"))),
            (Method::GET, "/apis/signoff.dev/v1alpha1/workflows?watch=true&resourceVersion=7", None),
            (
                Method::GET,
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x",
                Some(("get", "customresourcedefinitions")),
            ),
            (
                Method::POST,
                "/apis/authentication.k8s.io/v1/selfsubjectreviews?",
                Some(("create", "selfsubjectreviews")),
            ),
            (Method::POST, "/apis/signoff.dev/v1alpha1/namespaces/a/approvals", None),
            (Method::PUT, "/apis/signoff.dev/v1alpha1/namespaces/a/workflows/b/status", None),
            (Method::GET, "/version", Some(("get", "/version"))),
        ] {
            let uri: Uri = uri.parse().unwrap_or_default();
            let read = ReadRequest::from_parts(&method, &uri).map(|ReadRequest { verb, resource }| (verb, resource));
            assert_eq!(read, expected.map(|(verb, resource)| (verb, resource.to_owned())), "{method} {uri}");
        }
    }
}
