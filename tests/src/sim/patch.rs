//! Patches: RFC 6902 with `test`, and RFC 7386, applied to the current version of an object. Server-side apply and
//! strategic merge are refused.

use serde_json::Value;

use super::log::Request;
use super::status::Refusal;

/// Applies the request's patch to the latest version of an object.
///
/// # Errors
/// 422 when a JSON Patch does not fit (a `test` fails or a path does not exist), 400 when the body is no patch, 415 and
/// 501 for the media types that are not served.
pub(crate) fn apply_patch(object: &Value, request: &Request) -> Result<Value, Refusal> {
    let media_type = request.content_type.split(';').next().unwrap_or_default().trim();
    let unreadable = |error: serde_json::Error| Refusal::bad_request(format!("error decoding patch: {error}"));
    let mut object = object.clone();
    match media_type {
        "application/json-patch+json" => {
            let patch: json_patch::Patch = serde_json::from_slice(&request.body).map_err(unreadable)?;
            json_patch::patch(&mut object, &patch).map_err(|_| Refusal::patch_failed())?;
        }
        "application/merge-patch+json" => {
            let patch: Value = serde_json::from_slice(&request.body).map_err(unreadable)?;
            if !patch.is_object() {
                return Err(Refusal::bad_request("error decoding patch: a merge patch of an object is an object"));
            }
            json_patch::merge(&mut object, &patch);
        }
        "application/apply-patch+yaml" => {
            return Err(Refusal::unsupported("server-side apply; use a merge patch or a JSON patch"));
        }
        "application/strategic-merge-patch+json" => {
            return Err(Refusal::unsupported("strategic merge patches; use a merge patch or a JSON patch"));
        }
        other => {
            let message = format!(
                "the body of the request was in an unknown format: {other:?}; a patch is application/json-patch+json or application/merge-patch+json"
            );
            return Err(Refusal::new(415, "UnsupportedMediaType", message));
        }
    }
    if !object.is_object() {
        return Err(Refusal::patch_failed());
    }
    Ok(object)
}
