//! The filter of the open requests, read from an address.
//!
//! **Invariant:** nothing in an address is trusted. A text that cannot be used is an error of its field, and then
//! nothing is listed.

use std::time::Duration;

use signoff_api::{Moment, gate::GateType};
use url::form_urlencoded;

use crate::{
    filter_form::{FilterField, FilterForm},
    live::{Row, Standing, Waiting},
};

/// The most words that are searched for.
const WORDS: usize = 8;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// The requests of a tab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// The requests that wait for the reader.
    #[default]
    Asked,
    /// The requests of runs that the reader requested.
    Mine,
    /// The requests that wait for other people.
    Others,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateKind {
    Gate,
    Start,
    Call,
    Question,
    Failure,
}

/// The time in which a request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Late,
    Within(Duration),
}

/// The order of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The run with the nearest deadline first.
    #[default]
    Due,
    /// The newest request first.
    Newest,
    /// By namespace and run.
    Run,
}

/// Values that can be chosen: each with its name in the address and its words.
type Choices<T> = [(T, &'static str, &'static str)];

const KINDS: &Choices<GateKind> = &[
    (GateKind::Gate, "gate", "gates of the Workflow"),
    (GateKind::Start, "start", "steps before they run"),
    (GateKind::Call, "call", "calls of agents"),
    (GateKind::Question, "question", "questions of agents"),
    (GateKind::Failure, "failure", "failures"),
];
const DUES: &Choices<Due> = &[
    (Due::Late, "late", "late"),
    (Due::Within(HOUR), "hour", "in an hour"),
    (Due::Within(DAY), "day", "in a day"),
    (Due::Within(WEEK), "week", "in a week"),
];
const SORTS: &Choices<Sort> =
    &[(Sort::Due, "due", "due first"), (Sort::Newest, "new", "newest first"), (Sort::Run, "run", "by run")];
const TABS: &Choices<Tab> =
    &[(Tab::Asked, "me", "For me"), (Tab::Mine, "mine", "Mine"), (Tab::Others, "others", "Others")];

/// A value that can be chosen: its name in the address, its words, and whether it is chosen.
pub type ChoiceLine = (&'static str, &'static str, bool);

/// The fields of the form, the tab, and the gate whose requests are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxFilter {
    /// Words in the line of a request.
    pub search: FilterField,
    /// The kind of the request.
    pub kind: FilterField,
    /// A part of the name of the run.
    pub run: FilterField,
    /// A part of the name of an approval policy that applies.
    pub policy: FilterField,
    /// The time in which the request is due.
    pub due: FilterField,
    /// The whole name of the namespace.
    pub namespace: FilterField,
    /// The order of the list. An invalid one is an error, and leaves the default order.
    pub sort: FilterField,
    /// The tab whose requests are listed.
    pub tab: Tab,
    /// The key of the gate whose requests are listed, or an empty text for all gates.
    pub alike: String,
    /// The words of the search, in small letters.
    words: Vec<String>,
    kinds: Option<GateKind>,
    dues: Option<Due>,
    order: Sort,
}

impl InboxFilter {
    /// Returns the filter of the query of an address, and the number of the page, from 0.
    #[must_use]
    pub fn read(query: &str) -> (Self, usize) {
        let mut filter = Self::default();
        let mut page = 0;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "page" => page = value.parse().unwrap_or(0),
                "tab" => filter.tab = choice_named(TABS, &value).unwrap_or_default(),
                "alike" if value.chars().all(|c| c.is_ascii_hexdigit()) => filter.alike = value.into_owned(),
                other => {
                    if let Some(field) = filter.field(other) {
                        *field = FilterField::of(&value);
                    }
                }
            }
        }
        filter.kinds = read_choice(&mut filter.kind, KINDS);
        filter.dues = read_choice(&mut filter.due, DUES);
        filter.order = read_choice(&mut filter.sort, SORTS).unwrap_or_default();
        if filter.order == Sort::default() && filter.sort.wrong.is_none() {
            filter.sort = FilterField::default();
        }
        filter.namespace.check_namespace();
        filter.words = filter.search.text.split_whitespace().take(WORDS + 1).map(str::to_lowercase).collect();
        if filter.words.len() > WORDS {
            filter.search.say(&format!("search for at most {WORDS} words"));
        }
        (filter, page)
    }

    /// Returns the filter that selects every request of a tab.
    #[must_use]
    pub fn whole(tab: Tab) -> Self {
        Self { tab, ..Self::default() }
    }

    fn field(&mut self, name: &str) -> Option<&mut FilterField> {
        match name {
            "q" => Some(&mut self.search),
            "kind" => Some(&mut self.kind),
            "run" => Some(&mut self.run),
            "policy" => Some(&mut self.policy),
            "due" => Some(&mut self.due),
            "namespace" => Some(&mut self.namespace),
            "sort" => Some(&mut self.sort),
            _ => None,
        }
    }

    /// Whether a field besides the search is filled, so that the form is shown with all its fields.
    #[must_use]
    pub fn is_unfolded(&self) -> bool {
        self.fields().iter().any(|(name, field)| *name != "q" && !field.text.is_empty())
    }

    /// Returns the order of the list.
    #[must_use]
    pub fn order(&self) -> Sort {
        self.order
    }

    /// Returns the address of a page of the inbox with this filter.
    #[must_use]
    pub fn address(&self, page: usize) -> String {
        let mut query = self.query();
        if self.tab != Tab::default() {
            query.append_pair("tab", self.tab_name());
        }
        if !self.alike.is_empty() {
            query.append_pair("alike", &self.alike);
        }
        if page > 0 {
            query.append_pair("page", &page.to_string());
        }
        let query = query.finish();
        if query.is_empty() { "/".to_owned() } else { format!("/?{query}") }
    }

    /// Returns the address of the inbox with this filter and the key of a gate.
    #[must_use]
    pub fn address_of_gate(&self, key: &str) -> String {
        Self { alike: key.to_owned(), ..self.clone() }.address(0)
    }

    /// Returns the name of the tab in the address.
    #[must_use]
    pub fn tab_name(&self) -> &'static str {
        TABS.iter().find(|(tab, ..)| *tab == self.tab).map_or("", |(_, name, _)| *name)
    }

    /// Returns the tabs, each with its words and its address with this filter.
    #[must_use]
    pub fn tabs(&self) -> Vec<(Tab, &'static str, String)> {
        let address = |tab: Tab| Self { tab, alike: String::new(), ..self.clone() }.address(0);
        TABS.iter().map(|(tab, _, words)| (*tab, *words, address(*tab))).collect()
    }

    /// Whether the filter selects a request.
    #[must_use]
    pub fn takes(&self, waiting: &Waiting, at: Moment) -> bool {
        let row = &waiting.row;
        self.tab.has(waiting, at)
            && (self.alike.is_empty() || self.alike == row.alike)
            && (self.namespace.text.is_empty() || self.namespace.text == row.namespace)
            && self.kinds.is_none_or(|kind| kind == GateKind::of(row.type_))
            && self.dues.is_none_or(|due| due.has(row, at))
            && self.run.is_in(&row.workflow)
            && (self.policy.text.is_empty() || row.policies.iter().any(|policy| self.policy.is_in(policy)))
            && (self.words.is_empty() || has_words(row, &self.words))
    }

    /// Returns the kinds that can be chosen.
    #[must_use]
    pub fn kinds(&self) -> Vec<ChoiceLine> {
        choices(KINDS, self.kinds)
    }

    /// Returns the times until the deadline that can be chosen.
    #[must_use]
    pub fn dues(&self) -> Vec<ChoiceLine> {
        choices(DUES, self.dues)
    }

    /// Returns the orders that can be chosen.
    #[must_use]
    pub fn sorts(&self) -> Vec<ChoiceLine> {
        choices(SORTS, Some(self.order))
    }
}

impl FilterForm for InboxFilter {
    fn fields(&self) -> Vec<(&'static str, &FilterField)> {
        vec![
            ("q", &self.search),
            ("kind", &self.kind),
            ("run", &self.run),
            ("policy", &self.policy),
            ("due", &self.due),
            ("namespace", &self.namespace),
            ("sort", &self.sort),
        ]
    }

    /// Whether the filter selects every request of the tab. The order does not count.
    fn is_empty(&self) -> bool {
        self.alike.is_empty() && self.fields().iter().all(|(name, field)| *name == "sort" || field.text.is_empty())
    }
}

impl Tab {
    /// Whether a request belongs to the tab.
    #[must_use]
    pub fn has(self, waiting: &Waiting, at: Moment) -> bool {
        match self {
            Self::Asked => waiting.standing == Standing::Asked && waiting.row.is_open(at),
            Self::Mine => waiting.is_mine,
            Self::Others => waiting.standing == Standing::Other && !waiting.is_mine,
        }
    }
}

impl GateKind {
    fn of(type_: GateType) -> Self {
        match type_ {
            GateType::StepStart => Self::Start,
            GateType::ToolExecution | GateType::SpecificTools | GateType::DestructiveActions | GateType::Custom => {
                Self::Call
            }
            GateType::Question => Self::Question,
            GateType::ErrorEscalation => Self::Failure,
            GateType::Step | GateType::PlanApproval | GateType::FinalResponse | GateType::OutputValidation => {
                Self::Gate
            }
        }
    }
}

impl Due {
    fn has(self, row: &Row, at: Moment) -> bool {
        match self {
            Self::Late => row.is_late(at),
            Self::Within(time) => row.is_late(at) || row.deadline <= at.after(time),
        }
    }
}

/// Whether the line of a request has all words, without regard to case.
fn has_words(row: &Row, words: &[String]) -> bool {
    let optional = [&row.call, &row.arguments, &row.asks].into_iter().flatten();
    let required = [&row.prompt, &row.workflow, &row.gate, &row.namespace, &row.requested_by, &row.name];
    let line = required.into_iter().chain(optional).map(String::as_str).collect::<Vec<_>>().join("\n").to_lowercase();
    words.iter().all(|word| line.contains(word))
}

fn choice_named<T: Copy>(all: &Choices<T>, text: &str) -> Option<T> {
    all.iter().find(|(_, name, _)| *name == text).map(|(value, ..)| *value)
}

/// Returns the value that a field names, or adds an error to the field.
fn read_choice<T: Copy>(field: &mut FilterField, all: &Choices<T>) -> Option<T> {
    let value = choice_named(all, &field.text);
    if value.is_none() && !field.text.is_empty() {
        field.say("there is no such choice: choose one of the list");
    }
    value
}

fn choices<T: Copy + PartialEq>(all: &Choices<T>, chosen: Option<T>) -> Vec<ChoiceLine> {
    all.iter().map(|(value, name, words)| (*name, *words, chosen == Some(*value))).collect()
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
