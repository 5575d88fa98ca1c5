//! The filter of the history, read from an address.
//!
//! **Invariant:** nothing in an address is trusted. A text that cannot be used is an error of its field, and then
//! nothing is listed.

use jiff::{ToSpan, civil::Date, tz::TimeZone};
use signoff_api::{Moment, Verdict, approval::ApprovalPhase};
use signoff_review::text::one_line;
use url::form_urlencoded;

use super::row::HistoryRow;
use crate::filter_form::{FilterField, FilterForm};

/// The phases of outcomes without a verdict.
const WITHOUT_VERDICT: [ApprovalPhase; 2] = [ApprovalPhase::Cancelled, ApprovalPhase::Superseded];

/// The fields of the form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The first day, in UTC.
    pub from: FilterField,
    /// The last day, in UTC.
    pub to: FilterField,
    /// The whole name of the namespace.
    pub namespace: FilterField,
    /// A part of the name of the run.
    pub run: FilterField,
    /// A part of the path of the gate.
    pub gate: FilterField,
    /// A part of the name of a decider.
    pub who: FilterField,
    /// The verdict, or the phase of an outcome without one.
    pub verdict: FilterField,
    /// A part of the reason.
    pub reason: FilterField,
    /// The first instant of the first day; derived from `from`.
    start: Option<Moment>,
    /// The first instant after the last day.
    end: Option<Moment>,
    wanted: Option<Wanted>,
}

/// The outcomes that a filter selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Verdict(Verdict),
    Phase(ApprovalPhase),
}

impl Filter {
    /// Returns the filter of the query of an address, and the number of the page, from 0.
    #[must_use]
    pub fn read(query: &str) -> (Self, usize) {
        let mut filter = Self::default();
        let mut page = 0;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if name == "page" {
                page = value.parse().unwrap_or(0);
            } else if let Some(field) = filter.field(&name) {
                *field = FilterField::of(&value);
            }
        }
        filter.check();
        (filter, page)
    }

    fn field(&mut self, name: &str) -> Option<&mut FilterField> {
        match name {
            "from" => Some(&mut self.from),
            "to" => Some(&mut self.to),
            "namespace" => Some(&mut self.namespace),
            "run" => Some(&mut self.run),
            "gate" => Some(&mut self.gate),
            "who" => Some(&mut self.who),
            "verdict" => Some(&mut self.verdict),
            "reason" => Some(&mut self.reason),
            _ => None,
        }
    }

    /// Derives the times and the wanted outcome from the fields, and adds an error to each field that cannot be used.
    fn check(&mut self) {
        let first = read_day(&mut self.from);
        let last = read_day(&mut self.to);
        self.start = first.and_then(midnight);
        self.end = last.and_then(|day| midnight(day.checked_add(1.day()).ok()?));
        if last.is_some() && self.end.is_none() {
            self.to.say("this day cannot be used: take an earlier one");
        }
        if first.zip(last).is_some_and(|(first, last)| first > last) {
            self.to.say("the last day is before the first one: exchange them");
        }
        self.namespace.check_namespace();
        let text = self.verdict.text.as_str();
        if !text.is_empty() {
            let verdict = choices().into_iter().find(|choice| choice.name() == text);
            self.wanted = verdict;
            if verdict.is_none() {
                self.verdict.say("there is no such verdict: choose one of the list");
            }
        }
    }

    /// Returns the field selector of the Approvals that have ended, without the phases to which the verdict cannot
    /// lead.
    #[must_use]
    pub fn selector(&self) -> String {
        let can_lead = |phase: &ApprovalPhase| match self.wanted {
            _ if !phase.is_end() => false,
            None => true,
            Some(Wanted::Phase(wanted)) => wanted == *phase,
            // A timeout can also lead to the verdict.
            Some(Wanted::Verdict(verdict)) => [ApprovalPhase::of(verdict), ApprovalPhase::Expired].contains(phase),
        };
        let others: Vec<_> = ApprovalPhase::ALL
            .iter()
            .filter(|phase| !can_lead(phase))
            .map(|phase| format!("status.phase!={}", phase.name()))
            .collect();
        others.join(",")
    }

    /// Whether the filter selects a row.
    #[must_use]
    pub fn takes(&self, row: &HistoryRow) -> bool {
        let is_in_time = self.start.is_none_or(|start| row.at.is_some_and(|at| at >= start))
            && self.end.is_none_or(|end| row.at.is_some_and(|at| at < end));
        let is_wanted = match self.wanted {
            None => true,
            Some(Wanted::Verdict(verdict)) => row.verdict == Some(verdict),
            Some(Wanted::Phase(phase)) => row.verdict.is_none() && row.phase == phase,
        };
        let mut names = row.deciders.iter().flat_map(|decider| [Some(&decider.name), decider.via.as_ref()]).flatten();
        is_in_time
            && is_wanted
            && (self.namespace.text.is_empty() || self.namespace.text == row.namespace)
            && self.run.is_in(&row.workflow)
            && self.gate.is_in(&row.gate)
            && self.reason.is_in(row.reason.as_deref().unwrap_or_default())
            && (self.who.text.is_empty() || names.any(|name| self.who.is_in(name)))
    }

    /// Returns the verdicts that can be chosen, each with whether it is chosen.
    #[must_use]
    pub fn verdicts(&self) -> Vec<(&'static str, bool)> {
        choices().into_iter().map(|choice| (choice.name(), self.wanted == Some(choice))).collect()
    }
}

/// Returns the outcomes that the form offers, without Escalate, which never ends a request.
fn choices() -> Vec<Wanted> {
    let verdicts = Verdict::ALL.into_iter().filter(|verdict| *verdict != Verdict::Escalate).map(Wanted::Verdict);
    verdicts.chain(WITHOUT_VERDICT.map(Wanted::Phase)).collect()
}

impl FilterForm for Filter {
    fn fields(&self) -> Vec<(&'static str, &FilterField)> {
        vec![
            ("from", &self.from),
            ("to", &self.to),
            ("namespace", &self.namespace),
            ("run", &self.run),
            ("gate", &self.gate),
            ("who", &self.who),
            ("verdict", &self.verdict),
            ("reason", &self.reason),
        ]
    }
}

impl Wanted {
    fn name(self) -> &'static str {
        match self {
            Self::Verdict(verdict) => verdict.name(),
            Self::Phase(phase) => phase.name(),
        }
    }
}

/// Returns the day that a field names; or `None` for an empty field, and for an invalid one, to which an error is
/// added.
fn read_day(field: &mut FilterField) -> Option<Date> {
    if field.text.is_empty() {
        return None;
    }
    // Only the form that a date field sends is accepted; jiff parses other forms too.
    let is_spelled = field.text.len() == 10 && field.text.chars().all(|c| c.is_ascii_digit() || c == '-');
    let day = is_spelled.then(|| field.text.parse().ok()).flatten();
    if day.is_none() {
        field.say(&format!("{} is no day: write it as 2026-11-25", one_line(&field.text, 40)));
    }
    day
}

/// Returns the first instant of a day, in UTC.
fn midnight(day: Date) -> Option<Moment> {
    day.to_zoned(TimeZone::UTC).ok().map(|at| Moment::from(at.timestamp()))
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
