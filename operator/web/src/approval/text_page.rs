//! `…/text/{part}`: one text of a request on a page of its own, with the number of each line.
//!
//! **Invariant:** a text without the digest that the request names is not shown.

use askama::Template;
use axum::{extract::Path, response::Response};
use signoff_review::{problem::Problem, request::CONTEXT, text::one_line, whole};

use super::{
    model::path,
    read::fetch_approval,
    texts::{REVIEWED, SENT, SHOWN, Text, context, sent_text, subject},
};
use crate::{
    error::PageError,
    page::{self, Shell},
    session::Caller,
};

#[derive(Template)]
#[template(path = "text.html")]
struct TextPage {
    shell: Shell,
    /// The page of the request.
    back: String,
    gate: String,
    text: Text,
}

/// Shows a text of a request.
///
/// # Errors
/// As every request; the request has no such text, or its digest is not that of its content.
pub async fn text(
    caller: Caller,
    Path((namespace, name, part)): Path<(String, String, String)>,
) -> Result<Response, PageError> {
    let seen = fetch_approval(&caller.client, &namespace, &name).await?;
    if let Some(problem) = seen.digest_problem() {
        return Err(PageError::Mismatch(problem.to_string()));
    }
    let whole = whole::fetch(&caller.client, &namespace, &seen.approval).await.map_err(Problem::from);
    let request = &seen.approval.spec.request;
    let found = match part.as_str() {
        REVIEWED => subject(request, &whole),
        SENT => sent_text(request, &whole),
        SHOWN => context(request, &whole),
        _ => None,
    };
    let mut text =
        found.ok_or_else(|| PageError::NotFound("this request has no such text: see its page".to_owned()))?;
    if text.title.is_empty() {
        text.title = CONTEXT.to_owned();
    }
    let shell = Shell::of(&caller, &text.title, "inbox");
    let gate = one_line(&request.gate.path, 512);
    Ok(page::html(&TextPage { shell, back: path(&namespace, &name), gate, text }))
}
