//! `…/value/{digest}`: a long value of a run as an attachment.
//!
//! **Invariant:** only values that the run names are sent, with the digest that it names, and never as content that a
//! browser runs.

use std::time::Duration;

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::{HeaderName, header};
use kube::Client;
use signoff_api::{Digest, Workflow, journal::StepRecord};
use signoff_review::whole::{self, WholeTextError};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{address::Address, read, texts};
use crate::{error::PageError, session::Caller};

/// The places of readers: each holds a part of a journal, or a value, in memory.
static READERS: Semaphore = Semaphore::const_new(4);
/// The longest time for which a reader waits for a place.
const PLACE_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest name of a file, in characters.
const LONGEST_NAME: usize = 80;

/// Returns a long value.
///
/// # Errors
/// As every request; the run does not name the value, or the Blob has other content.
pub async fn value(
    caller: Caller,
    Path((namespace, name, digest)): Path<(String, String, String)>,
) -> Result<Response, PageError> {
    let address = Address::of(&namespace, &name)?;
    let (file, found) = fetch(&caller.client, &address, &digest, &READERS).await?;
    Ok((headers(&file), found).into_response())
}

/// Reads a value. Returns the name of its file, and its bytes.
async fn fetch(
    client: &Client,
    address: &Address,
    digest: &str,
    readers: &Semaphore,
) -> Result<(String, Vec<u8>), PageError> {
    let unknown = || PageError::NotFound("the run names no such value: see its page".to_owned());
    if !is_digest(digest) {
        return Err(unknown());
    }
    let _place = acquire_place(readers).await?;
    let workflow = read::fetch_workflow(client, address).await?;
    let (digest, file) = find_value(client, address, &workflow, digest).await.ok_or_else(unknown)?;
    let run = read::reference(&workflow);
    let found = whole::value(client, &address.namespace, &run, &digest, "the value").await;
    Ok((file, found.map_err(value_error)?))
}

/// Waits for one of the places of readers, at most [`PLACE_TIMEOUT`].
async fn acquire_place(readers: &Semaphore) -> Result<SemaphorePermit<'_>, PageError> {
    let turn = tokio::time::timeout(PLACE_TIMEOUT, readers.acquire()).await;
    turn.ok().and_then(Result::ok).ok_or_else(|| {
        PageError::Away(format!(
            "others read so many values now that yours had no turn within {PLACE_TIMEOUT:?}: try again"
        ))
    })
}

/// Whether a text has the form of a digest. For any other text no request is sent.
fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").map(str::as_bytes);
    digits.is_some_and(|digits| digits.len() == 64 && digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

/// Returns the error of the page for a value that could not be read or verified.
fn value_error(error: WholeTextError) -> PageError {
    let message = error.to_string();
    match error {
        WholeTextError::Unreadable { error, .. } => match PageError::from(error) {
            PageError::Refused(_) => PageError::Refused(message),
            PageError::NotFound(_) => PageError::NotFound(message),
            other => other,
        },
        WholeTextError::Mismatch { .. } | WholeTextError::Nowhere | WholeTextError::NoRun { .. } => {
            PageError::Mismatch(message)
        }
    }
}

/// Returns the headers of an attachment, with which a browser neither shows nor runs it.
fn headers(file: &str) -> [(HeaderName, String); 4] {
    [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\"")),
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ]
}

/// Finds a value of a run by its digest: among the results and files, in the records of the Workflow, and in the
/// segments of its journal. Returns the digest and the file name, or `None` if the run does not name the digest.
async fn find_value(client: &Client, address: &Address, workflow: &Workflow, digest: &str) -> Option<(Digest, String)> {
    let status = workflow.status.as_ref()?;
    let results = status.outputs_ref.iter().map(|value| ("result.txt", value));
    let files = status.artifacts.iter().map(|artifact| (artifact.path.as_str(), &artifact.content));
    let mut known = results.chain(files).map(|(name, value)| (name, &value.digest));
    if let Some((file, found)) = known.find(|(_, known)| known.as_str() == digest) {
        return Some((found.clone(), file_name(&address.name, file)));
    }
    let in_records = |records: &[StepRecord]| {
        let values = records.iter().flat_map(texts::values).map(|(_, value)| &value.digest);
        values.into_iter().find(|known| known.as_str() == digest).cloned()
    };
    let with_file = |found: Digest| {
        let file = file_name(&address.name, &format!("{}.txt", found.short(12)));
        (found, file)
    };
    if let Some(found) = in_records(&status.steps) {
        return Some(with_file(found));
    }
    let run = read::reference(workflow);
    // One segment is held at a time, and at most as many are read as for the page of the run.
    let mut budget = read::JournalBudget::default();
    for segment in status.segments.iter().rev().take_while(|segment| budget.takes(segment)) {
        let records = read::read_segment(client, address, &run, segment).await;
        if let Some(found) = records.as_deref().and_then(in_records) {
            return Some(with_file(found));
        }
    }
    None
}

/// Returns the name of a file: the run, and the last part of a path, with characters that are safe on every system.
fn file_name(run: &str, path: &str) -> String {
    let last = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = format!("{run}-{last}").chars().map(safe).collect();
    name[name.len().saturating_sub(LONGEST_NAME)..].trim_start_matches(['.', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::history::tests::server;

    fn digest(of: usize) -> String {
        Digest::of_bytes(of.to_string().as_bytes()).to_string()
    }

    /// Reads a value of a run whose journal has a number of segments of a size, which cannot be read. Returns the
    /// number of requests, and the number of requests for segments.
    async fn count_requests(text: &str, parts: usize, size: i64) -> (usize, usize) {
        let segments: Vec<_> =
            (0..parts).map(|at| json!({"digest": digest(at), "size": size, "records": 1, "through": at})).collect();
        let run = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "refund", "namespace": "finance", "uid": "u"},
            "spec": {"requestedBy": "dana@example.com", "steps": []}, "status": {"segments": segments},
        });
        let (client, asked) = server(move |address| match address {
            one if one.contains("/blobs/") => crate::history::tests::forbidden(),
            _ => (200, run.clone()),
        });
        let address = Address::of("finance", "refund").unwrap();
        let result = fetch(&client, &address, text, &Semaphore::new(1)).await;
        assert!(matches!(result, Err(PageError::NotFound(_))), "{result:?}");
        let asked = asked.lock().unwrap();
        (asked.len(), asked.iter().filter(|one| one.contains("/blobs/")).count())
    }

    #[tokio::test]
    async fn invalid_digest_leads_to_no_request() {
        let upper = digest(1).to_uppercase().replace("SHA256", "sha256");
        for text in ["", "sha256:", "sha256:abc", &digest(1)[7..], &format!("{}0", digest(1)), &upper, "sha256:../../x"]
        {
            assert_eq!(count_requests(text, 1, 1).await, (0, 0), "{text}");
        }
    }

    #[tokio::test]
    async fn search_reads_at_most_as_many_segments_as_the_page() {
        assert_eq!(count_requests(&digest(999), 3, 1).await.1, 3);
        assert_eq!(count_requests(&digest(999), 40, 1).await.1, 16);
        assert_eq!(count_requests(&digest(999), 40, 3 << 20).await.1, 2, "8 MiB");
    }

    #[tokio::test]
    async fn value_of_a_run_whose_name_is_another_path_is_not_read() {
        let (client, asked) = server(|_| crate::history::tests::forbidden());
        for name in ["", "..", "../../../api/v1/secrets/x?", "a/b", "a?watch=true", "A"] {
            let run = signoff_api::approval::WorkflowRef { name: name.to_owned(), uid: "u".to_owned() };
            let result = whole::value(&client, "finance", &run, &Digest::of_bytes(b"x"), "the context").await;
            assert!(matches!(result, Err(WholeTextError::NoRun { .. })), "{name}");
        }
        assert!(asked.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn reader_waits_for_a_place_only_until_the_timeout() {
        let readers = Semaphore::new(1);
        let held = acquire_place(&readers).await.unwrap();
        assert!(matches!(acquire_place(&readers).await, Err(PageError::Away(_))));
        drop(held);
        assert!(acquire_place(&readers).await.is_ok());
    }

    #[test]
    fn file_name_has_no_path_and_no_unsafe_characters() {
        assert_eq!(file_name("refund", "out/letter.md"), "refund-letter.md");
        assert_eq!(file_name("refund", "../../x\"; filename=\"a\r\n.exe"), "refund-x___filename__a__.exe");
        assert_eq!(file_name("refund", "\u{202e}é<script>"), "refund-___script_");
        assert!(file_name("refund", &"a".repeat(300)).len() <= LONGEST_NAME);
    }

    #[test]
    fn headers_forbid_browsers_to_show_or_run_an_attachment() {
        let headers = headers("refund-letter.md");
        let value = |name| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!(value(header::CONTENT_TYPE), Some("text/plain; charset=utf-8"));
        assert_eq!(value(header::CONTENT_DISPOSITION), Some("attachment; filename=\"refund-letter.md\""));
        assert_eq!(value(header::CONTENT_SECURITY_POLICY), Some("sandbox; default-src 'none'"));
        assert_eq!(value(header::X_CONTENT_TYPE_OPTIONS), Some("nosniff"));
    }

    #[test]
    fn value_with_another_digest_is_a_mismatch() {
        let error = WholeTextError::Mismatch { what: "the value".to_owned(), why: "it is another one".to_owned() };
        let error = value_error(error);
        assert!(
            matches!(&error, PageError::Mismatch(why) if why.starts_with("DIGEST MISMATCH: the value")),
            "{error:?}"
        );
    }
}
