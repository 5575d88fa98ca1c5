//! How much of an object a client asked to see: all of it, or its metadata alone.
//! It changes nothing, and it does not choose: the `Accept` header does.

use bytes::Bytes;
use serde_json::json;

use super::log::Request;
use super::store::{Store, Version};

/// How much of an object a client asked to see.
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

    /// The kind that lists and bookmarks name; a kind nobody has written yet is not known.
    pub(crate) fn kind(self, store: &Store, request: &Request) -> String {
        let known = store.list(&request.resource, None).next().and_then(|(_, version)| version.object["kind"].as_str());
        if self == Self::Metadata { "PartialObjectMetadata".to_owned() } else { known.unwrap_or_default().to_owned() }
    }
}
