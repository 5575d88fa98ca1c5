//! The filter of the list of runs, read from an address.
//!
//! **Invariant:** nothing in an address is trusted. A text that cannot be used is an error of its field, and then
//! nothing is listed.

use signoff_api::workflow::WorkflowPhase;
use url::form_urlencoded;

use super::row::RunRow;
use crate::{
    filter_form::{FilterField, FilterForm},
    workflows::{PHASES, still_running},
};

/// The phases that a filter selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedPhase {
    /// Runs that have not ended.
    Open,
    /// Runs that wait for decisions, even while other steps run.
    Asking,
    /// Runs that wait for a decision of other people than the reader.
    AskingOthers,
    /// One phase.
    Exactly(WorkflowPhase),
}

/// The requesters that a filter selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedRequester {
    Mine,
    Others,
}

/// The fields of the form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// The phase, or a word for several.
    pub phase: FilterField,
    /// `mine` or `others`.
    pub requester: FilterField,
    /// The whole name of the namespace.
    pub namespace: FilterField,
    /// A part of the name, the namespace, the requester or the sentence of a run.
    pub search: FilterField,
    phases: Option<WantedPhase>,
    requesters: Option<WantedRequester>,
}

impl RunFilter {
    /// Returns the filter of the query of an address, and the number of the page, from 0.
    #[must_use]
    pub fn read(query: &str) -> (Self, usize) {
        let mut filter = Self::default();
        let mut page = 0;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "page" => page = value.parse().unwrap_or(0),
                "phase" => filter.phase = FilterField::of(&value),
                "requester" => filter.requester = FilterField::of(&value),
                "namespace" => filter.namespace = FilterField::of(&value),
                "search" => filter.search = FilterField::of(&value),
                _ => {}
            }
        }
        filter.check();
        (filter, page)
    }

    fn check(&mut self) {
        self.namespace.check_namespace();
        if !self.phase.text.is_empty() {
            self.phases = phases().find(|one| one.value() == self.phase.text);
            if self.phases.is_none() {
                self.phase.say("there is no such phase: choose one of the list");
            }
        }
        self.requesters = match self.requester.text.as_str() {
            "" => None,
            "mine" => Some(WantedRequester::Mine),
            "others" => Some(WantedRequester::Others),
            _ => {
                self.requester.say("choose one of the list");
                None
            }
        };
    }

    /// Returns the field selector of the runs that can be selected; empty for all.
    #[must_use]
    pub fn selector(&self) -> String {
        match self.phases {
            None => String::new(),
            Some(WantedPhase::Open | WantedPhase::Asking | WantedPhase::AskingOthers) => still_running(),
            Some(WantedPhase::Exactly(phase)) => format!("status.phase={}", phase.name()),
        }
    }

    /// Whether the filter selects a run.
    #[must_use]
    pub fn takes(&self, row: &RunRow) -> bool {
        let has_phase = match self.phases {
            None => true,
            Some(WantedPhase::Open) => !row.phase.is_end(),
            Some(WantedPhase::Asking) => !row.phase.is_end() && !row.pending.is_empty(),
            Some(WantedPhase::AskingOthers) => !row.phase.is_end() && row.waits_for_others,
            Some(WantedPhase::Exactly(phase)) => row.phase == phase,
        };
        let has_requester = match self.requesters {
            None => true,
            Some(WantedRequester::Mine) => row.is_mine,
            Some(WantedRequester::Others) => !row.is_mine,
        };
        let texts = [&row.name, &row.namespace, &row.requester, &row.message];
        let is_found = texts.iter().any(|text| self.search.is_in(text));
        let is_there = self.namespace.text.is_empty() || self.namespace.text == row.namespace;
        has_phase && has_requester && is_there && is_found
    }

    /// Returns the phases that can be chosen: the value, the label, and whether it is chosen.
    #[must_use]
    pub fn phase_choices(&self) -> Vec<(&'static str, &'static str, bool)> {
        phases().map(|one| (one.value(), one.label(), self.phases == Some(one))).collect()
    }

    /// Returns the requesters that can be chosen: the value, the label, and whether it is chosen.
    #[must_use]
    pub fn requester_choices(&self) -> Vec<(&'static str, &'static str, bool)> {
        vec![
            ("mine", "Me", self.requesters == Some(WantedRequester::Mine)),
            ("others", "Other people", self.requesters == Some(WantedRequester::Others)),
        ]
    }
}

impl FilterForm for RunFilter {
    fn fields(&self) -> Vec<(&'static str, &FilterField)> {
        vec![
            ("phase", &self.phase),
            ("requester", &self.requester),
            ("namespace", &self.namespace),
            ("search", &self.search),
        ]
    }
}

fn phases() -> impl Iterator<Item = WantedPhase> {
    let words = [WantedPhase::Open, WantedPhase::Asking, WantedPhase::AskingOthers];
    words.into_iter().chain(PHASES.into_iter().map(WantedPhase::Exactly))
}

impl WantedPhase {
    /// Returns the value in an address.
    fn value(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Asking => "asking",
            Self::AskingOthers => "others",
            Self::Exactly(phase) => phase.name(),
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Open => "Not ended",
            Self::Asking => "Waits for people",
            Self::AskingOthers => "Waits for other people",
            Self::Exactly(phase) => phase.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::row;

    fn filter(query: &str) -> RunFilter {
        RunFilter::read(query).0
    }

    #[test]
    fn each_field_selects_what_matches() {
        let row = row("refund-4711", "Waiting", &["refund-4711-review"], true);
        for query in [
            "",
            "phase=open",
            "phase=asking&requester=mine",
            "phase=others&requester=mine",
            "phase=Waiting",
            "namespace=finance",
            "search=REFUND",
            "search=dana%40",
            "odd=1",
        ] {
            assert!(!filter(query).is_wrong() && filter(query).takes(&row), "{query}");
        }
        for query in ["phase=Running", "requester=others", "namespace=fin", "search=xyz"] {
            assert!(!filter(query).is_wrong() && !filter(query).takes(&row), "{query}");
        }
    }

    #[test]
    fn invalid_text_is_an_error_of_its_field() {
        for query in ["phase=Odd", "phase=%3Cb%3E", "requester=dana", "namespace=No+such", "search=a%00b"] {
            assert!(filter(query).is_wrong(), "{query}");
        }
        assert_eq!(RunFilter::read("page=x").1, 0);
        assert_eq!(filter("search=a%26b&phase=open").query().finish(), "phase=open&search=a%26b");
    }

    #[test]
    fn selector_requests_only_the_wanted_phases() {
        assert_eq!(filter("").selector(), "");
        assert_eq!(filter("phase=Failed").selector(), "status.phase=Failed");
        let open = filter("phase=asking").selector();
        for phase in PHASES {
            let term = format!("status.phase!={}", phase.name());
            assert_eq!(open.split(',').any(|one| one == term), phase.is_end(), "{term}");
        }
    }
}
