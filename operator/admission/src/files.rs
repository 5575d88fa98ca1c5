//! The generated files: the CRDs and the admission policies as YAML, for the chart.
//!
//! ```text
//! CRDs, policies -> texts with their paths    (pure)
//! ```

use signoff_api::crds;

use crate::policies::{self, Identity};

/// The folder of the generated files, from the root of the repository.
pub const FOLDER: &str = "charts/signoff/files";

/// The error of a generated file that cannot be rendered, which is always a bug of this build.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A CRD cannot be serialized as JSON.
    #[error("internal error: the CRD {name} cannot be serialized as JSON: {source}")]
    Json {
        /// The name of the CRD.
        name: String,
        /// The error of the serializer.
        source: serde_json::Error,
    },
    /// A CRD cannot be serialized as YAML.
    #[error("internal error: the CRD {name} cannot be serialized as YAML: {source}")]
    Yaml {
        /// The name of the CRD.
        name: String,
        /// The error of the serializer.
        source: Box<serde_saphyr::ser::Error>,
    },
}

/// Returns every generated file of the repository, as its path from the root of the repository and its text, sorted by
/// path. The policies have placeholders for the identity of the operator, which the chart fills in.
///
/// # Errors
/// Never for a build whose tests passed.
pub fn generated() -> Result<Vec<(String, String)>, FileError> {
    let mut files = Vec::new();
    for crd in crds::all() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let value = serde_json::to_value(&crd).map_err(|source| FileError::Json { name: name.clone(), source })?;
        let yaml =
            serde_saphyr::to_string(&value).map_err(|source| FileError::Yaml { name, source: Box::new(source) })?;
        let text = format!("{}{}\n", policies::GENERATED, yaml.trim_end());
        files.push((format!("{FOLDER}/crd-{}.yaml", crd.spec.names.plural), text));
    }
    let policies = policies::files(&Identity::placeholders());
    files.extend(policies.into_iter().map(|(name, text)| (format!("{FOLDER}/{name}"), text)));
    files.sort();
    Ok(files)
}
