//! The long texts of a request as a page shows them: what is reviewed, the context, and the questions of an agent.
//!
//! Pure. It must not call a text whole or verified that was not read whole.

use signoff_api::{ApprovalRequest, gate::Question};
use signoff_expr::text::display;
use signoff_review::{
    action,
    request::{heading, repeats},
    text::{hides, one_line},
    whole::{self, Whole},
};

use super::model::LONGEST;

/// A text that the run made.
pub(crate) struct Text {
    pub(crate) title: String,
    pub(crate) shown: String,
    pub(crate) digest: String,
    /// Why only a part is shown, or `None` where it is the whole.
    pub(crate) cut: Option<String>,
    pub(crate) hides: bool,
    pub(crate) bytes: usize,
}

/// A question of an agent and the labels of its options.
pub(crate) struct AskedQuestion {
    pub(crate) text: String,
    pub(crate) options: Vec<String>,
}

/// Returns the reviewed text of a request: the arguments of a call, with line ends and spaces.
pub(crate) fn subject(request: &ApprovalRequest, whole: &Result<Whole, String>) -> Option<Text> {
    let review = request.reviews.as_ref()?;
    let found = whole.as_ref().ok().and_then(|whole| whole.review.as_deref());
    let is_cut = whole::is_review_cut(request);
    let title = heading(request, review);
    let mut text = text(title, &review.response, found, is_cut, &review.digest.to_string(), whole);
    let indented = action::arguments(request, found.unwrap_or(&review.response));
    if text.cut.is_none() && indented.chars().count() <= LONGEST {
        text.shown = display(&indented, LONGEST);
    }
    Some(text)
}

/// Returns the context that the author of the gate shows.
pub(crate) fn context(request: &ApprovalRequest, whole: &Result<Whole, String>) -> Option<Text> {
    let context = request.context.as_deref().filter(|context| !repeats(request, context))?;
    let found = whole.as_ref().ok().and_then(|whole| whole.context.as_deref());
    let digest = request.context_ref.as_ref().map(|whole| whole.digest.to_string()).unwrap_or_default();
    Some(text(String::new(), context, found, request.context_ref.is_some(), &digest, whole))
}

fn text(
    title: String,
    beginning: &str,
    found: Option<&str>,
    is_cut: bool,
    digest: &str,
    whole: &Result<Whole, String>,
) -> Text {
    let all = found.unwrap_or(beginning);
    let cut = match (is_cut, found, whole) {
        (true, None, Err(why)) => Some(why.clone()),
        (true, None, Ok(_)) => Some("the whole could not be read".to_owned()),
        _ if all.chars().count() > LONGEST => {
            Some(format!("it has {} bytes: the file at the page of the run has all of them", all.len()))
        }
        _ => None,
    };
    Text { title, shown: display(all, LONGEST), digest: digest.to_owned(), cut, hides: hides(all), bytes: all.len() }
}

/// Returns the questions of an agent and their options, as lines.
pub(crate) fn questions(request: &ApprovalRequest) -> Vec<AskedQuestion> {
    let one = |question: &Question| AskedQuestion {
        text: display(question.question.as_deref().unwrap_or_default(), 4096),
        options: question.options.iter().map(|option| one_line(option.label(), 253)).collect(),
    };
    request.form.iter().flat_map(|form| &form.questions).map(one).collect()
}
