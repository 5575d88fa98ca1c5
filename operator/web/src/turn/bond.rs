//! The reason why requests are decided together, and the words and addresses of their pages.

use signoff_api::Verdict;
use url::form_urlencoded;

use crate::approval::model::turn_page;

/// The verdicts that can be given on several calls at once, because they need no field of a single call.
const OF_CALLS: [Verdict; 5] = [Verdict::Approve, Verdict::Reject, Verdict::Defer, Verdict::Skip, Verdict::Abort];

/// The reason why requests are decided together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bond {
    /// The requests are calls of the turn with this name.
    Turn(String),
    /// The gates of the requests are equal, and the specs of their runs differ in values of inputs only.
    Equal,
}

impl Bond {
    /// The most requests that are decided together. A turn has at most as many calls.
    pub const MOST: usize = 32;

    /// Returns the verdicts that can be given on several requests at once.
    pub fn verdicts(&self) -> &'static [Verdict] {
        match self {
            Self::Turn(_) => &OF_CALLS,
            Self::Equal => &[Verdict::Approve, Verdict::Reject],
        }
    }

    /// Returns the address that takes a verdict.
    pub fn action(&self, namespace: &str) -> String {
        match self {
            Self::Turn(turn) => format!("{}/decide", turn_page(namespace, turn)),
            Self::Equal => format!("/n/{namespace}/together/decide"),
        }
    }

    /// Returns the address of the page with the named requests. A turn has the same page for all its calls.
    pub fn page<'n>(&self, namespace: &str, names: impl IntoIterator<Item = &'n str>) -> String {
        match self {
            Self::Turn(turn) => turn_page(namespace, turn),
            Self::Equal => {
                let mut query = form_urlencoded::Serializer::new(String::new());
                for name in names {
                    query.append_pair("a", &format!("{namespace}/{name}"));
                }
                format!("/together?{}", query.finish())
            }
        }
    }

    /// Returns the key under which the browser stores the draft of a page. `first`: the request that stood first when
    /// the page was opened.
    pub fn draft(&self, first: &str) -> String {
        match self {
            Self::Turn(turn) => format!("turn|{turn}"),
            Self::Equal => format!("together|{first}"),
        }
    }

    /// Returns the word for a request: `call` or `request`.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Turn(_) => "call",
            Self::Equal => "request",
        }
    }

    /// Returns a number with the word for requests: `1 call`, `3 requests`.
    pub fn counted(&self, number: usize) -> String {
        format!("{number} {}{}", self.noun(), if number == 1 { "" } else { "s" })
    }

    /// Returns the reason why a request that does not belong to the others is not decided with them.
    pub fn stranger(&self) -> &'static str {
        match self {
            Self::Turn(_) => "it is not a call of this turn",
            Self::Equal => {
                "its gate, its quorums or the spec of its run differ from those of the first request: decide it on its own page"
            }
        }
    }
}
