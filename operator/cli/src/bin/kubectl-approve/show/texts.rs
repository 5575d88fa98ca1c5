//! The texts of a page that the run made: what is reviewed, under a heading of its gate type, and the context.
//!
//! It must not show a text outside a fence, nor leave out that a text is cut.

use signoff_api::{ApprovalRequest, Digest, journal::BlobRef};
use signoff_review::{
    request::{CONTEXT, heading, repeats},
    whole::{self, Whole},
};

use super::LONGEST;
use crate::sanitize::fenced;

/// Returns the titles and bodies of what the request shows. A context that repeats the reviewed text is left out.
pub fn texts(request: &ApprovalRequest, whole: Option<&Whole>, command: &str) -> Vec<(String, String)> {
    let mut sections = Vec::new();
    if let Some(review) = &request.reviews {
        let text = Text {
            shown: &review.response,
            whole: whole.and_then(|whole| whole.review.as_deref()),
            reference: review.ref_.as_ref(),
            is_cut: whole::is_review_cut(request),
        };
        sections.push((heading(request.gate.type_, review), text.body(&review.digest, command)));
    }
    if let Some(context) = request.context.as_deref().filter(|context| !repeats(request, context)) {
        let reference = request.context_ref.as_ref();
        let (whole, is_cut) = (whole.and_then(|whole| whole.context.as_deref()), reference.is_some());
        let text = Text { shown: context, whole, reference, is_cut };
        let digest = reference.map_or_else(|| Digest::of_bytes(context.as_bytes()), |whole| whole.digest.clone());
        sections.push((CONTEXT.to_owned(), text.body(&digest, command)));
    }
    sections
}

/// A text of others, of which the request may hold only a part.
struct Text<'t> {
    shown: &'t str,
    /// The whole, where it was fetched and verified.
    whole: Option<&'t str>,
    reference: Option<&'t BlobRef>,
    is_cut: bool,
}

impl Text<'_> {
    /// The text, and what is not shown of it, with the command that shows it.
    fn body(&self, digest: &Digest, command: &str) -> String {
        if let Some(whole) = self.whole {
            let body = fenced(whole, whole.len().max(LONGEST));
            return format!("{body}  the whole: {} bytes, verified: {digest}\n", whole.len());
        }
        let body = fenced(self.shown, LONGEST);
        if !self.is_cut {
            return body;
        }
        let more = match self.reference.and_then(|whole| usize::try_from(whole.size).ok()) {
            // The beginning of each field of a call may be longer than the whole by its marks.
            Some(size) if size > self.shown.len() => format!("{} more of {size} bytes", size - self.shown.len()),
            Some(size) => format!("the whole has {size} bytes"),
            None => "this is the beginning".to_owned(),
        };
        format!("{body}  CUT HERE: {more}, {digest}\n  the whole: {command}\n")
    }
}
