//! The part of an object that a client asked for by its `Accept` header: all of it, or its metadata alone.

use bytes::Bytes;
use serde_json::json;

use super::log::Request;
use super::store::{Store, Version};

/// The part of an object that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    Whole,
    Metadata,
}

impl Projection {
    pub(crate) fn of(request: &Request) -> Self {
        if request.accept.contains("as=PartialObjectMetadata") { Self::Metadata } else { Self::Whole }
    }

    pub(crate) fn bytes(self, version: &Version) -> Bytes {
        match self {
            Self::Whole => version.json.clone(),
            Self::Metadata => {
                let metadata = &version.object["metadata"];
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
                    .to_string()
                    .into()
            }
        }
    }

    pub(crate) fn api_version(self, request: &Request) -> &str {
        if self == Self::Metadata { "meta.k8s.io/v1" } else { &request.api_version }
    }

    /// Returns the kind that lists and bookmarks name; empty while there is no object of the kind.
    pub(crate) fn kind(self, store: &Store, request: &Request) -> String {
        let kind = store.list(&request.resource, None).next().and_then(|(_, version)| version.object["kind"].as_str());
        if self == Self::Metadata { "PartialObjectMetadata".to_owned() } else { kind.unwrap_or_default().to_owned() }
    }
}
