//! The long texts of a request as a page shows them: the reviewed and the sent text, the context, and the questions of
//! an agent.
//!
//! Pure.
//!
//! **Invariant:** a text that was not read whole is never called whole.

use signoff_api::{ApprovalRequest, gate::Question};
use signoff_expr::text::display;
use signoff_review::{
    edits,
    indented::indented,
    problem::Problem,
    request::{heading, heading_of_sent, repeats},
    text::{hides, one_line},
    whole::{self, Whole},
};

use super::{model::LONGEST, read::Read};

/// The names of the texts of a request in the addresses of their pages.
pub(crate) const REVIEWED: &str = "reviewed";
pub(crate) const SENT: &str = "sent";
pub(crate) const SHOWN: &str = "context";
/// The most lines of a text on the page of a request.
const MOST_LINES: usize = 60;

/// A text of a run, shown by lines.
pub(crate) struct Text {
    pub(crate) title: String,
    /// The lines that are shown.
    pub(crate) lines: Vec<String>,
    /// The number of further lines.
    pub(crate) more: usize,
    /// The page of the text alone, if that page shows more.
    pub(crate) page: Option<String>,
    /// The unchanged lines, if the shown ones are JSON with line ends and spaces.
    pub(crate) original: Option<Vec<String>>,
    pub(crate) digest: String,
    /// The reason why only a part is shown, or `None` for a whole text.
    pub(crate) cut: Option<String>,
    /// Whether the text has characters that are not visible.
    pub(crate) hides: bool,
    pub(crate) bytes: usize,
}

impl Text {
    /// Returns the number of lines of the unchanged text.
    pub(crate) fn count(&self) -> usize {
        self.original.as_ref().map_or(self.lines.len() + self.more, Vec::len)
    }

    /// Returns the text with at most [`MOST_LINES`] lines, and with its own page if that shows more.
    pub(crate) fn with_page(self, page: String) -> Self {
        let text = self.first(MOST_LINES);
        let page = (text.more > 0 || text.original.is_some()).then_some(page);
        Self { page, ..text }
    }

    /// Returns the text with at most `most` lines.
    pub(crate) fn first(mut self, most: usize) -> Self {
        self.more += self.lines.len().saturating_sub(most);
        self.lines.truncate(most);
        self
    }
}

/// The texts of a request, with the digests that a reader can compare.
pub(crate) struct RequestTexts {
    /// The reviewed text.
    pub(crate) subject: Option<Text>,
    /// The text that is sent, or was sent.
    pub(crate) sent: Option<Text>,
    /// The context that the author of the gate shows.
    pub(crate) context: Option<Text>,
    /// The digests of the reviewed and of the sent text, each with its heading.
    pub(crate) digests: Vec<(String, String)>,
    /// Whether the request and its whole texts have the digests that it names.
    pub(crate) is_unchanged: bool,
}

impl RequestTexts {
    /// Returns the texts of a request as they were read.
    pub(crate) fn of(read: &Read) -> Self {
        let request = &read.seen.approval.spec.request;
        let (subject, sent) = (subject(request, &read.whole), sent_text(request, &read.whole));
        Self {
            digests: subject.iter().chain(&sent).map(|text| (text.title.clone(), text.digest.clone())).collect(),
            is_unchanged: read.seen.digest_holds() && read.whole.is_ok(),
            context: context(request, &read.whole),
            subject,
            sent,
        }
    }

    /// Returns the texts with their first lines, and with their own pages where those show more. `page`: the path of
    /// the page of a part.
    pub(crate) fn with_pages(self, page: impl Fn(&str) -> String) -> Self {
        Self {
            subject: self.subject.map(|text| text.with_page(page(REVIEWED))),
            sent: self.sent.map(|text| text.with_page(page(SENT))),
            context: self.context.map(|text| text.with_page(page(SHOWN))),
            ..self
        }
    }
}

/// A change of people to the reviewed text.
pub(crate) struct Edited {
    /// The people, the gate, the verdict and the time.
    pub(crate) line: String,
    pub(crate) difference: String,
    /// The reason why the difference is not shown.
    pub(crate) why: Option<String>,
}

/// A question of an agent and the labels of its options.
pub(crate) struct AskedQuestion {
    pub(crate) text: String,
    pub(crate) options: Vec<String>,
}

/// Returns the reviewed text of a request.
pub(crate) fn subject(request: &ApprovalRequest, whole: &Result<Whole, Problem>) -> Option<Text> {
    let review = request.reviews.as_ref()?;
    let found = whole.as_ref().ok().and_then(|whole| whole.review.as_deref());
    let is_cut = whole::is_review_cut(request);
    let title = heading(request, review);
    Some(new_text(title, &review.response, found, is_cut, &review.digest.to_string(), whole))
}

/// Returns the text that is sent, or was sent.
pub(crate) fn sent_text(request: &ApprovalRequest, whole: &Result<Whole, Problem>) -> Option<Text> {
    let sent = request.sends.as_ref()?;
    let found = whole.as_ref().ok().and_then(|whole| whole.sends.as_deref());
    let (title, digest) = (heading_of_sent(request).to_owned(), sent.digest().to_string());
    Some(new_text(title, &sent.text, found, sent.ref_.is_some(), &digest, whole))
}

/// Returns the changes of people to the reviewed text, newest first.
pub(crate) fn edits_of_people(read: &Read) -> Vec<Edited> {
    let request = &read.seen.approval.spec.request;
    let review = request.reviews.as_ref();
    let whole = read.whole.as_ref().ok().and_then(|whole| whole.review.as_deref());
    let reviewed =
        whole.or_else(|| review.map(|review| review.response.as_str()).filter(|_| !whole::is_review_cut(request)));
    let mut differences = edits::differences(request, reviewed, &read.originals).into_iter();
    let shown_edit = |edit| {
        let (difference, why) = match differences.next() {
            Some(Ok(difference)) => (display(&difference, LONGEST), None),
            Some(Err(why)) => (String::new(), Some(one_line(&why, 600))),
            None => (String::new(), None),
        };
        Edited { line: edits::line(edit), difference, why }
    };
    review.iter().flat_map(|review| &review.by).map(shown_edit).collect()
}

/// Returns the context that the author of the gate shows.
pub(crate) fn context(request: &ApprovalRequest, whole: &Result<Whole, Problem>) -> Option<Text> {
    let context = request.context.as_deref().filter(|context| !repeats(request, context))?;
    let found = whole.as_ref().ok().and_then(|whole| whole.context.as_deref());
    let digest = request.context_ref.as_ref().map(|whole| whole.digest.to_string()).unwrap_or_default();
    Some(new_text(String::new(), context, found, request.context_ref.is_some(), &digest, whole))
}

/// Returns a text by lines, with the reason if only a part can be shown. `beginning`: the text in the request. `found`:
/// the whole text, if it was read. `is_cut`: whether the request has only the beginning of the text.
fn new_text(
    title: String,
    beginning: &str,
    found: Option<&str>,
    is_cut: bool,
    digest: &str,
    whole: &Result<Whole, Problem>,
) -> Text {
    let all = found.unwrap_or(beginning);
    let cut = match (is_cut, found, whole) {
        (true, None, Err(why)) => Some(why.to_string()),
        (true, None, Ok(_)) => Some("the whole could not be read".to_owned()),
        _ if all.chars().count() > LONGEST => {
            Some(format!("it has {} bytes: the file at the page of the run has all of them", all.len()))
        }
        _ => None,
    };
    let indented = indented(all).filter(|text| cut.is_none() && text.chars().count() <= LONGEST);
    let lines = |text: &str| display(text, LONGEST).lines().map(str::to_owned).collect::<Vec<_>>();
    Text {
        title,
        lines: lines(indented.as_deref().unwrap_or(all)),
        more: 0,
        page: None,
        original: indented.is_some().then(|| lines(all)),
        digest: digest.to_owned(),
        cut,
        hides: hides(all),
        bytes: all.len(),
    }
}

/// Returns the questions of an agent with the labels of their options.
pub(crate) fn questions(request: &ApprovalRequest) -> Vec<AskedQuestion> {
    let asked = |question: &Question| AskedQuestion {
        text: display(question.question.as_deref().unwrap_or_default(), 4096),
        options: question.options.iter().map(|option| one_line(option.label(), 253)).collect(),
    };
    request.form.iter().flat_map(|form| &form.questions).map(asked).collect()
}
