//! The ways in which Kubernetes lets one write: the same change as a merge patch, a JSON patch, an apply, a PUT.
//! It must not send anything: it says what would be sent.

use serde_json::{Map, Value, json};

use super::Body;

/// A verb of the API, and how a change is said in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// PATCH with a merge patch.
    Merge,
    /// PATCH with a JSON patch.
    Json,
    /// PATCH with a strategic merge patch, which the API server reads for no custom resource.
    Strategic,
    /// PATCH with server-side apply, by a field manager of its own, with force.
    Apply,
    /// Server-side apply in the name of the field manager that another's vote belongs to, with force.
    ApplyAsAnother,
    /// PUT of the whole object.
    Replace,
    /// POST.
    Create,
    /// DELETE of one.
    Delete,
    /// DELETE of a collection.
    DeleteAll,
    /// GET with an upgrade: exec, attach.
    Connect,
}

/// The answer to a media type that is not read.
pub(super) const UNSUPPORTED: &str = "the body of the request was in an unknown format";

/// What goes over the wire, save for the host.
#[derive(Clone, Debug)]
pub struct Request {
    /// The HTTP method.
    pub method: &'static str,
    /// What follows the path, with its question mark.
    pub query: String,
    /// The media type of the body.
    pub content: &'static str,
    /// The body.
    pub body: String,
}

impl Way {
    /// As the page and the names of attacks call it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Merge => "merge patch",
            Self::Json => "JSON patch",
            Self::Strategic => "strategic merge patch",
            Self::Apply => "apply with force",
            Self::ApplyAsAnother => "apply in another's field manager",
            Self::Replace => "PUT",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteAll => "deletecollection",
            Self::Connect => "connect",
        }
    }

    /// The API server's refusal of this way for every custom resource, whatever is sent, in its words.
    #[must_use]
    pub fn unsupported(self) -> Option<&'static str> {
        (self == Self::Strategic).then_some(UNSUPPORTED)
    }

    /// The verb that RBAC knows it by.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Merge | Self::Json | Self::Strategic | Self::Apply | Self::ApplyAsAnother => "patch",
            Self::Replace => "update",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteAll => "deletecollection",
            Self::Connect => "get",
        }
    }

    /// The request that changes `stored` so.
    #[must_use]
    pub fn request(self, stored: &Value, body: &Body) -> Request {
        let (method, content) = match self {
            Self::Merge => ("PATCH", "application/merge-patch+json"),
            Self::Json => ("PATCH", "application/json-patch+json"),
            Self::Strategic => ("PATCH", "application/strategic-merge-patch+json"),
            Self::Apply | Self::ApplyAsAnother => ("PATCH", "application/apply-patch+yaml"),
            Self::Replace => ("PUT", "application/json"),
            Self::Create => ("POST", "application/json"),
            Self::Delete | Self::DeleteAll => ("DELETE", "application/json"),
            Self::Connect => ("POST", "application/json"),
        };
        let query = match self {
            Self::Apply => "?fieldManager=attacks&force=true",
            Self::ApplyAsAnother => "?fieldManager=colleague&force=true",
            Self::DeleteAll => "?labelSelector=case={case}",
            Self::Connect => "?command=sh&stdin=true&stdout=true",
            _ => "?",
        };
        let body = match body {
            Body::Text(text) => text.clone(),
            Body::Change(change) => self.said(stored, change).to_string(),
        };
        Request { method, query: query.to_owned(), content, body }
    }

    fn said(self, stored: &Value, change: &Value) -> Value {
        match self {
            Self::Json => {
                let mut operations = Vec::new();
                patch(stored, change, "", &mut operations);
                Value::Array(operations)
            }
            Self::Apply | Self::ApplyAsAnother => {
                let mut applied = change.clone();
                for field in ["apiVersion", "kind"] {
                    applied[field] = stored[field].clone();
                }
                applied["metadata"]["name"] = stored["metadata"]["name"].clone();
                with_atomic_parts(&mut applied, stored);
                applied
            }
            Self::Replace => {
                let mut object = stored.clone();
                json_patch::merge(&mut object, change);
                object
            }
            _ => change.clone(),
        }
    }
}

/// Applies the parts that are atomic as wholes: an apply of a few of their fields would take away the others.
fn with_atomic_parts(applied: &mut Value, stored: &Value) {
    if !stored["apiVersion"].as_str().is_some_and(|version| version.starts_with("signoff.dev/")) {
        return;
    }
    for part in ["/spec/request", "/status"] {
        if let (Some(whole), Some(change)) = (stored.pointer(part), applied.pointer_mut(part)) {
            let mut changed = whole.clone();
            json_patch::merge(&mut changed, change);
            *change = changed;
        }
    }
}

/// A merge patch as the operations of a JSON patch.
fn patch(stored: &Value, change: &Value, path: &str, operations: &mut Vec<Value>) {
    let nothing = Map::new();
    for (key, wanted) in change.as_object().unwrap_or(&nothing) {
        let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        match (stored.get(key), wanted) {
            (Some(_), Value::Null) => operations.push(json!({"op": "remove", "path": path})),
            (None, Value::Null) => {}
            (Some(inner @ Value::Object(_)), Value::Object(_)) => patch(inner, wanted, &path, operations),
            _ => operations.push(json!({"op": "add", "path": path, "value": wanted})),
        }
    }
}
