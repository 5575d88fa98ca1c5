//! The ways in which Kubernetes takes a write: the same change as a merge patch, a JSON patch, an apply or a PUT.

use serde_json::{Map, Value, json};

use super::Body;

/// A verb of the API, and the format in which it takes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// PATCH with a merge patch.
    Merge,
    /// PATCH with a JSON patch.
    Json,
    /// PATCH with a strategic merge patch, which the API server reads for no custom resource.
    Strategic,
    /// PATCH with server-side apply, with a field manager of its own and with force.
    Apply,
    /// PATCH with server-side apply as the field manager that owns another actor's vote, with force.
    ApplyAsAnother,
    /// PUT of the whole object.
    Replace,
    /// POST.
    Create,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteAll,
    /// GET with an upgrade: exec, attach.
    Connect,
}

/// The answer to a media type that the API server does not read.
pub(super) const UNSUPPORTED: &str = "the body of the request was in an unknown format";

/// A request as it is sent, without the host.
#[derive(Clone, Debug)]
pub struct Request {
    /// The HTTP method, such as `PATCH`.
    pub method: &'static str,
    /// The query after the path, with its question mark.
    pub query: String,
    /// The media type of the body.
    pub content: &'static str,
    /// The body, in the format of `content`.
    pub body: String,
}

impl Way {
    /// Returns the name of the way on the page and in the names of attacks.
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

    /// Returns the refusal with which the API server answers this way for every custom resource, or `None`.
    #[must_use]
    pub fn unsupported(self) -> Option<&'static str> {
        (self == Self::Strategic).then_some(UNSUPPORTED)
    }

    /// Returns the verb of the way in RBAC.
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

    /// Returns the request that makes this change to `stored`.
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
            Body::Change(change) => self.write_change(stored, change).to_string(),
        };
        Request { method, query: query.to_owned(), content, body }
    }

    /// Returns the body with which this way makes a change to `stored`.
    fn write_change(self, stored: &Value, change: &Value) -> Value {
        match self {
            Self::Json => {
                let mut operations = Vec::new();
                append_operations(stored, change, "", &mut operations);
                Value::Array(operations)
            }
            Self::Apply | Self::ApplyAsAnother => {
                let mut applied = change.clone();
                for field in ["apiVersion", "kind"] {
                    applied[field] = stored[field].clone();
                }
                applied["metadata"]["name"] = stored["metadata"]["name"].clone();
                complete_atomic_parts(&mut applied, stored);
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

/// Completes the parts that are atomic: an apply of a few of their fields would remove the other fields.
fn complete_atomic_parts(applied: &mut Value, stored: &Value) {
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

/// Appends a merge patch as operations of a JSON patch.
fn append_operations(stored: &Value, change: &Value, path: &str, operations: &mut Vec<Value>) {
    let nothing = Map::new();
    for (key, wanted) in change.as_object().unwrap_or(&nothing) {
        let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        match (stored.get(key), wanted) {
            (Some(_), Value::Null) => operations.push(json!({"op": "remove", "path": path})),
            (None, Value::Null) => {}
            (Some(inner @ Value::Object(_)), Value::Object(_)) => append_operations(inner, wanted, &path, operations),
            _ => operations.push(json!({"op": "add", "path": path, "value": wanted})),
        }
    }
}
