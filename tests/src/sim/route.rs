//! Reads a request: its verb and its objects, from its method, path, query and headers. Only paths that are not of the
//! API are refused here.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use super::clock::Clock;
use super::life::Incarnation;
use super::log::{Request, Verb};
use super::status::Refusal;
use super::store::Resource;

/// Reads the request from its path, query and headers.
///
/// # Errors
/// 404 for a path that is not of the API.
pub(crate) fn read(
    parts: &http::request::Parts,
    body: Bytes,
    life: &Incarnation,
    clock: Clock,
) -> Result<Request, Refusal> {
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let query: BTreeMap<String, String> =
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let path = parts.uri.path().to_owned();
    let target = ApiPath::parse(&path)
        .ok_or_else(|| Refusal::new(404, "NotFound", "the server could not find the requested resource"))?;
    let has_name = target.name.is_some();
    let watch = matches!(query.get("watch").map(String::as_str), Some("1" | "true"));
    let verb = match parts.method.as_str() {
        "GET" if watch => Verb::Watch,
        "GET" if has_name || target.resource.plural.is_empty() => Verb::Get,
        "GET" => Verb::List,
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" if has_name => Verb::Delete,
        "DELETE" => Verb::DeleteCollection,
        _ => {
            return Err(Refusal::new(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            ));
        }
    };
    let mut request = Request {
        actor: life.actor().into(),
        incarnation: life.number(),
        at: clock.now(),
        verb,
        method: parts.method.clone(),
        path,
        query,
        resource: target.resource,
        api_version: target.api_version,
        namespace: target.namespace,
        name: target.name,
        subresource: target.subresource,
        content_type: header(CONTENT_TYPE),
        accept: header(ACCEPT),
        user_agent: header(USER_AGENT),
        body,
    };
    if verb == Verb::Create && request.name.is_none() {
        request.name = request.json()["metadata"]["name"].as_str().map(str::to_owned);
    }
    Ok(request)
}

/// The parts of a path of the API.
#[derive(Default)]
struct ApiPath {
    resource: Resource,
    api_version: String,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

impl ApiPath {
    fn parse(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, api_version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", (*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (*group, format!("{group}/{version}"), rest),
            ["version"] => return Some(Self::default()),
            _ => return None,
        };
        let (namespace, plural, tail) = match rest {
            // These paths are about the namespace itself, which is an object with subresources.
            ["namespaces", _, "status" | "finalize"] | ["namespaces", _] | ["namespaces"] => {
                (None, "namespaces", rest.get(1..)?)
            }
            ["namespaces", namespace, plural, tail @ ..] => (Some((*namespace).to_owned()), *plural, tail),
            [plural, tail @ ..] => (None, *plural, tail),
            [] => return None,
        };
        let segment = |index: usize| tail.get(index).map(|segment| (*segment).to_owned());
        (tail.len() <= 2).then(|| Self {
            resource: Resource::new(group, plural),
            api_version,
            namespace,
            name: segment(0),
            subresource: segment(1),
        })
    }
}
