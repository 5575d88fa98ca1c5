//! The two versions of the protocol, and the detection of a server's version.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use signoff_api::names::ANNOTATION_DEPTH;

use crate::message::{Answered, RpcError};

/// The error of a request whose headers do not match its body.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// The error of a server that needs a capability which the client lacks.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// The error of a server that does not support the version of the request.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// 2026-07-28: requests are independent of each other.
    Stateless,
    /// 2025-11-25: a session, which begins with a handshake.
    Session,
}

impl Protocol {
    /// Returns the version as in requests.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Stateless => "2026-07-28",
            Self::Session => "2025-11-25",
        }
    }

    /// Returns the parameters of a request with the metadata of this version.
    pub(crate) fn with_meta(self, mut params: Map<String, Value>, depth: Option<u32>) -> Map<String, Value> {
        let mut meta = Map::new();
        match self {
            Self::Stateless => {
                meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!(self.version()));
                meta.insert("io.modelcontextprotocol/clientInfo".to_owned(), client_info());
                meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), json!({}));
            }
            Self::Session => {}
        }
        if let Some(depth) = depth {
            meta.insert(ANNOTATION_DEPTH.to_owned(), json!(depth));
        }
        if !meta.is_empty() {
            params.insert("_meta".to_owned(), Value::Object(meta));
        }
        params
    }
}

/// Returns the parameters of the request that begins a session.
pub(crate) fn initialize_params() -> Map<String, Value> {
    Map::from_iter([
        ("protocolVersion".to_owned(), json!(Protocol::Session.version())),
        ("capabilities".to_owned(), json!({})),
        ("clientInfo".to_owned(), client_info()),
    ])
}

fn client_info() -> Value {
    json!({"name": "signoff", "version": env!("CARGO_PKG_VERSION")})
}

/// Returns the version of a server by its answer to a harmless request of the newer version, or `None` if the answer
/// does not show the version. `answered` is `None` if the answer has no message.
///
/// A server of the older version that does not check versions answers too, but its result has no type.
pub(crate) fn spoken_version(status: u16, answered: Option<&Answered>) -> Option<Protocol> {
    let may_be_older = !matches!(status, 300..=399 | 401 | 403 | 407 | 408 | 429 | 500..);
    match answered {
        Some(Answered::Result(result)) => Some(match result_type(result) {
            Some(_) => Protocol::Stateless,
            None => Protocol::Session,
        }),
        Some(Answered::Error(error)) => match error.code {
            HEADER_MISMATCH | MISSING_CAPABILITY => Some(Protocol::Stateless),
            UNSUPPORTED_VERSION => lists_version(error, Protocol::Session).then_some(Protocol::Session),
            _ => may_be_older.then_some(Protocol::Session),
        },
        Some(Answered::AskedBack(_)) => None,
        None => may_be_older.then_some(Protocol::Session),
    }
}

/// Whether an error lists a version among the supported ones.
fn lists_version(error: &RpcError, protocol: Protocol) -> bool {
    let supported = error.data.as_ref().and_then(|data| data.get("supported")).and_then(Value::as_array);
    supported.is_some_and(|supported| supported.iter().any(|version| version.as_str() == Some(protocol.version())))
}

/// Returns the type of a result, which every result of the newer version has.
fn result_type(result: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        #[serde(default)]
        result_type: Option<String>,
    }
    serde_json::from_str::<Typed>(result).ok()?.result_type
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i64, supported: &[&str]) -> Answered {
        let data = Some(json!({"supported": supported}));
        Answered::Error(RpcError { code, message: String::new(), data })
    }

    #[test]
    fn a_result_without_a_type_shows_an_older_server() {
        let typed = Answered::Result(r#"{"tools":[],"resultType":"complete"}"#.to_owned());
        assert_eq!(spoken_version(200, Some(&typed)), Some(Protocol::Stateless));
        let untyped = Answered::Result(r#"{"tools":[]}"#.to_owned());
        assert_eq!(spoken_version(200, Some(&untyped)), Some(Protocol::Session));
    }

    #[test]
    fn only_errors_of_the_newer_version_show_a_newer_server() {
        for code in [HEADER_MISMATCH, MISSING_CAPABILITY] {
            assert_eq!(spoken_version(400, Some(&error(code, &[]))), Some(Protocol::Stateless));
        }
        for code in [-32000, -32600, -32601, -32602] {
            assert_eq!(spoken_version(400, Some(&error(code, &[]))), Some(Protocol::Session));
            assert_eq!(spoken_version(200, Some(&error(code, &[]))), Some(Protocol::Session));
        }
        assert_eq!(spoken_version(400, Some(&error(UNSUPPORTED_VERSION, &["2025-11-25"]))), Some(Protocol::Session));
        assert_eq!(spoken_version(400, Some(&error(UNSUPPORTED_VERSION, &["2027-01-01"]))), None);
    }

    #[test]
    fn an_unreachable_or_refusing_server_does_not_show_its_version() {
        for status in [302, 401, 403, 408, 429, 500, 502, 503] {
            assert_eq!(spoken_version(status, None), None, "{status}");
            assert_eq!(spoken_version(status, Some(&error(-32000, &[]))), None, "{status}");
        }
        for status in [400, 404, 405, 406, 415] {
            assert_eq!(spoken_version(status, None), Some(Protocol::Session), "{status}");
        }
    }

    #[test]
    fn every_request_of_the_newer_version_names_version_and_client() {
        let params = Protocol::Stateless.with_meta(Map::new(), Some(1));
        let meta = params.get("_meta").cloned().unwrap_or_default();
        assert_eq!(meta.get("io.modelcontextprotocol/protocolVersion"), Some(&json!("2026-07-28")));
        assert_eq!(meta.get("io.modelcontextprotocol/clientCapabilities"), Some(&json!({})));
        assert_eq!(meta.get("signoff.dev/depth"), Some(&json!(1)));
        assert_eq!(Protocol::Session.with_meta(Map::new(), None), Map::new());
    }
}
