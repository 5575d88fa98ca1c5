//! The sections of a page with texts of the run: the reviewed text, its changes, the sent text and the context.
//!
//! **Invariant:** each text is in a fence, and a text that is cut says so.

use signoff_api::{ApprovalRequest, Digest, journal::BlobRef};
use signoff_cli::{changes, sanitize::fence};
use signoff_review::{
    action::{arguments, call},
    edits,
    request::{CONTEXT, heading, heading_of_sent, repeats},
    whole::{self, Whole},
};

use super::LONGEST;

/// A title and a body.
pub type Section = (String, String);

/// Returns the section of the reviewed text. Arguments of a call are indented.
pub fn reviewed_section(request: &ApprovalRequest, whole: Option<&Whole>, command: &str) -> Option<Section> {
    let review = request.reviews.as_ref()?;
    let text = Text {
        request,
        shown: &review.response,
        whole: whole.and_then(|whole| whole.review.as_deref()),
        reference: review.ref_.as_ref(),
        is_cut: whole::is_review_cut(request),
    };
    let body = match &text {
        Text { whole: None, is_cut: false, .. } if call(request).is_some() => {
            text.whole_body(&review.response, &review.digest)
        }
        _ => text.body(&review.digest, command),
    };
    Some((heading(request, review), body))
}

/// Returns the section of the text that a call or step sends, or has sent.
pub fn sent_section(request: &ApprovalRequest, whole: Option<&Whole>, command: &str) -> Option<Section> {
    let sent = request.sends.as_ref()?;
    let (reference, whole) = (sent.ref_.as_ref(), whole.and_then(|whole| whole.sends.as_deref()));
    let text = Text { request, shown: &sent.text, whole, reference, is_cut: reference.is_some() };
    Some((heading_of_sent(request).to_owned(), text.body(&sent.digest(), command)))
}

/// Returns the section of the changes of people to the reviewed text. `originals`: the text before each change.
pub fn changes_section(
    request: &ApprovalRequest,
    whole: Option<&Whole>,
    originals: &[Result<String, String>],
) -> Option<Section> {
    let review = request.reviews.as_ref().filter(|review| !review.by.is_empty())?;
    let shown = Some(review.response.as_str()).filter(|_| !whole::is_review_cut(request));
    let reviewed = whole.and_then(|whole| whole.review.as_deref()).or(shown);
    Some((edits::CHANGES.to_owned(), changes::body(request, reviewed, originals)))
}

/// Returns the section of the context, or `None` if it only repeats the reviewed text.
pub fn context_section(request: &ApprovalRequest, whole: Option<&Whole>, command: &str) -> Option<Section> {
    let context = request.context.as_deref().filter(|context| !repeats(request, context))?;
    let reference = request.context_ref.as_ref();
    let (whole, is_cut) = (whole.and_then(|whole| whole.context.as_deref()), reference.is_some());
    let text = Text { request, shown: context, whole, reference, is_cut };
    let digest = reference.map_or_else(|| Digest::of_bytes(context.as_bytes()), |whole| whole.digest.clone());
    Some((CONTEXT.to_owned(), text.body(&digest, command)))
}

/// A text of others, of which the request can hold only a part.
struct Text<'t> {
    request: &'t ApprovalRequest,
    shown: &'t str,
    /// The whole text, if it was fetched and verified.
    whole: Option<&'t str>,
    reference: Option<&'t BlobRef>,
    is_cut: bool,
}

impl Text<'_> {
    /// Returns the fenced text: the whole, if it was fetched. Below a cut text are the missing length, the digest, and
    /// the command that shows the whole text.
    fn body(&self, digest: &Digest, command: &str) -> String {
        if let Some(whole) = self.whole {
            return self.whole_body(whole, digest);
        }
        let body = fence(self.shown, LONGEST);
        if !self.is_cut {
            return body;
        }
        let more = match self.reference.and_then(|whole| usize::try_from(whole.size).ok()) {
            // The beginnings of a call's fields have marks, so together they can be longer than the whole.
            Some(size) if size > self.shown.len() => format!("{} more of {size} bytes", size - self.shown.len()),
            Some(size) => format!("the whole has {size} bytes"),
            None => "this is the beginning".to_owned(),
        };
        format!("{body}  CUT HERE: {more}, {digest}\n  the whole: {command}\n")
    }

    /// Returns the fenced whole text, and a line with its size and verified digest.
    fn whole_body(&self, whole: &str, digest: &Digest) -> String {
        let shown = arguments(self.request, whole);
        let body = fence(&shown, shown.len().max(LONGEST));
        format!("{body}  the whole: {} bytes, verified: {digest}\n", whole.len())
    }
}
