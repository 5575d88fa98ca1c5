//! The files of the page: styles, scripts and the icon. They are part of the program.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::header;
use sha2::{Digest, Sha256};

use crate::error::PageError;

/// The version of the files, which is in their addresses, so that browsers keep them until they change.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for (_, _, content) in FILES {
        hash.update(content);
    }
    hex::encode(&hash.finalize()[..6])
});

/// Returns the address of a file of the page.
#[must_use]
pub fn path(name: &str) -> String {
    format!("/static/{}/{name}", *VERSION)
}

/// The files: a name, the media type, and the content.
const FILES: [(&str, &str, &[u8]); 4] = [
    ("page.css", "text/css; charset=utf-8", include_bytes!("../static/page.css")),
    ("page.js", "text/javascript; charset=utf-8", include_bytes!("../static/page.js")),
    ("htmx.min.js", "text/javascript; charset=utf-8", include_bytes!("../static/htmx.min.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("../static/icon.svg")),
];

/// Returns a file of the page.
///
/// # Errors
/// There is no such file.
pub async fn file(Path(path): Path<String>) -> Result<Response, PageError> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let found = FILES.iter().find(|(file, ..)| *file == name);
    let (_, media_type, content) =
        found.ok_or_else(|| PageError::NotFound("there is no such file: reload the page".to_owned()))?;
    Ok(([(header::CONTENT_TYPE, *media_type)], *content).into_response())
}
