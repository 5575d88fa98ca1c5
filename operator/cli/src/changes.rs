//! The changes of people to the reviewed text, on a terminal: a line and a difference for each.

use signoff_api::ApprovalRequest;
use signoff_review::edits::{differences, line};

use crate::sanitize::fence;

/// The longest difference, in characters.
const LONGEST: usize = 20_000;

/// Renders the changes, newest first. `reviewed`: the whole reviewed text. `originals`: the text before each change, or
/// why it cannot be shown.
#[must_use]
pub fn body(request: &ApprovalRequest, reviewed: Option<&str>, originals: &[Result<String, String>]) -> String {
    let edits: Vec<_> = request.reviews.iter().flat_map(|review| &review.by).collect();
    let differences = differences(request, reviewed, originals);
    let mut differences = differences.into_iter();
    let render_edit = |edit| {
        let change = match differences.next() {
            Some(Ok(difference)) => fence(&difference, LONGEST),
            Some(Err(why)) => format!("  {}\n", crate::sanitize::one_line(&why, 600)),
            None => String::new(),
        };
        format!("  {}\n{change}", line(edit))
    };
    edits.into_iter().map(render_edit).collect()
}
