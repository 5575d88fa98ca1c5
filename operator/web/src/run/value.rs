//! `…/value/{digest}`: a long value of a run as an attachment.
//!
//! **Invariant:** only what the run names leaves, only with the digest that it names, and never as something a browser runs.

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::{HeaderName, header};
use signoff_api::{Digest, Workflow, journal::StepRecord};
use signoff_review::whole;

use super::{address::Address, read, texts};
use crate::{error::PageError, session::Caller};

/// The longest name of a file.
const NAME: usize = 80;

/// Returns a long value.
///
/// # Errors
/// As every request; the run does not name the value, or the Blob is another one.
pub async fn value(
    caller: Caller,
    Path((namespace, name, digest)): Path<(String, String, String)>,
) -> Result<Response, PageError> {
    let address = Address::of(&namespace, &name)?;
    let workflow = read::workflow(&caller.client, &address).await?;
    let file = named(&caller, &address, &workflow, &digest).await;
    let Some((digest, file)) = file else {
        return Err(PageError::NotFound("the run names no such value: see its page".to_owned()));
    };
    let run = read::reference(&workflow);
    let found = whole::value(&caller.client, &address.namespace, &run, &digest, "the value").await;
    Ok((headers(&file), found.map_err(problem)?).into_response())
}

fn problem(error: whole::Error) -> PageError {
    let said = error.to_string();
    match error {
        whole::Error::Unreadable { error, .. } => match PageError::from(error) {
            PageError::Refused(_) => PageError::Refused(said),
            PageError::NotFound(_) => PageError::NotFound(said),
            other => other,
        },
        whole::Error::Mismatch { .. } | whole::Error::Nowhere => PageError::Mismatch(said),
    }
}

/// The headers of an attachment: no browser shows it, or lets it do anything.
fn headers(file: &str) -> [(HeaderName, String); 4] {
    [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\"")),
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ]
}

/// Returns the digest if the run names it, and the name of its file.
async fn named(caller: &Caller, address: &Address, workflow: &Workflow, digest: &str) -> Option<(Digest, String)> {
    let status = workflow.status.as_ref()?;
    let results = status.outputs_ref.iter().map(|value| ("result.txt", value));
    let files = status.artifacts.iter().map(|one| (one.path.as_str(), &one.content));
    let mut known = results.chain(files).map(|(name, value)| (name, &value.digest));
    if let Some((file, found)) = known.find(|(_, known)| known.as_str() == digest) {
        return Some((found.clone(), file_name(&address.name, file)));
    }
    let in_records = |records: &[StepRecord]| {
        let values = records.iter().flat_map(texts::values).map(|(_, value)| &value.digest);
        values.into_iter().find(|known| known.as_str() == digest).cloned()
    };
    let of = |found: Digest| {
        let file = file_name(&address.name, &format!("{}.txt", found.short(12)));
        (found, file)
    };
    if let Some(found) = in_records(&status.steps) {
        return Some(of(found));
    }
    let run = read::reference(workflow);
    // One part of the journal is held at a time.
    for segment in status.segments.iter().rev() {
        let records = read::segment_records(&caller.client, address, &run, segment).await;
        if let Some(found) = records.as_deref().and_then(in_records) {
            return Some(of(found));
        }
    }
    None
}

/// Returns the name of a file that no system takes for more than a name: of the run, and the last part of a path.
fn file_name(run: &str, path: &str) -> String {
    let last = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = format!("{run}-{last}").chars().map(safe).collect();
    name[name.len().saturating_sub(NAME)..].trim_start_matches(['.', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_is_only_a_name() {
        assert_eq!(file_name("refund", "out/letter.md"), "refund-letter.md");
        assert_eq!(file_name("refund", "../../x\"; filename=\"a\r\n.exe"), "refund-x___filename__a__.exe");
        assert_eq!(file_name("refund", "\u{202e}é<script>"), "refund-___script_");
        assert!(file_name("refund", &"a".repeat(300)).len() <= NAME);
    }

    #[test]
    fn an_attachment_is_text_that_no_browser_runs() {
        let headers = headers("refund-letter.md");
        let value = |name| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!(value(header::CONTENT_TYPE), Some("text/plain; charset=utf-8"));
        assert_eq!(value(header::CONTENT_DISPOSITION), Some("attachment; filename=\"refund-letter.md\""));
        assert_eq!(value(header::CONTENT_SECURITY_POLICY), Some("sandbox; default-src 'none'"));
        assert_eq!(value(header::X_CONTENT_TYPE_OPTIONS), Some("nosniff"));
    }

    #[test]
    fn other_bytes_than_the_run_names_are_a_mismatch() {
        let error = whole::Error::Mismatch { what: "the value".to_owned(), why: "it is another one".to_owned() };
        let said = problem(error);
        assert!(matches!(&said, PageError::Mismatch(why) if why.starts_with("DIGEST MISMATCH: the value")), "{said:?}");
    }
}
