//! The loads: the specs that a hostile tenant runs, and the number of runs at once in a namespace.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

use super::{specs_of_calls, specs_of_evaluations, specs_of_gates};
use crate::server::Server;

/// One kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Load {
    /// Templates, near the evaluation limit
    Templates,
    /// Patterns of RE2, near the evaluation limit
    Regex,
    /// JSON Schemas, near the evaluation limit
    Schemas,
    /// CEL conditions, near the evaluation limit
    Conditions,
    /// Models that answer calls of 8 MiB
    Answers,
    /// Addresses that do not answer before the time of the step is over
    Slow,
    /// 40 Workflows of 24 gates in each namespace
    Gates,
    /// Gates that ask for a second, in a loop
    Timers,
    /// Calls that fail, with retries
    Failing,
    /// Agents with tools, one turn after another
    Agents,
    /// Gates that remind people every second: an Event each
    Events,
    /// Runs with a journal of 1 MB that go on and on
    Journals,
    /// Votes of 16 KiB, six of them at each gate
    Votes,
}

/// The names in a hostile tenant's Workflows.
pub(super) struct Site<'a> {
    /// A server of the tenant.
    pub(super) server: &'a Server,
    /// The users who vote, as many as [`Load::voters`] returns.
    pub(super) voters: &'a [String],
}

impl Load {
    /// Returns the name, as `--only` takes it.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns how many runs a tenant has at once.
    pub(super) fn runs(self) -> usize {
        match self {
            Self::Gates => specs_of_gates::WORKFLOWS,
            Self::Timers => 8,
            Self::Events | Self::Journals | Self::Votes => 2,
            _ => 4,
        }
    }

    /// Returns how many people of a tenant vote.
    pub(super) fn voters(self) -> usize {
        if self == Self::Votes { specs_of_gates::VOTERS } else { 0 }
    }

    /// Returns whether a run can be quarantined, in which case its tenant replaces it.
    pub(super) fn can_be_set_aside(self) -> bool {
        matches!(self, Self::Templates | Self::Regex | Self::Schemas | Self::Conditions)
    }

    /// Returns the spec of a run.
    pub(super) fn spec(self, site: &Site<'_>) -> Value {
        match self {
            Self::Templates => specs_of_evaluations::templates(),
            Self::Regex => specs_of_evaluations::regex(),
            Self::Schemas => specs_of_evaluations::schemas(),
            Self::Conditions => specs_of_evaluations::conditions(),
            Self::Answers => specs_of_calls::answers(site.server),
            Self::Slow => specs_of_calls::slow(site.server),
            Self::Failing => specs_of_calls::failing(site.server),
            Self::Agents => specs_of_calls::agents(site.server),
            Self::Journals => specs_of_calls::journal(site.server),
            Self::Gates => specs_of_gates::gates(),
            Self::Timers => specs_of_gates::timers(),
            Self::Events => specs_of_gates::reminders(),
            Self::Votes => specs_of_gates::long_votes(site.voters),
        }
    }
}

/// The turns, the calls of each, and the latency of a tenant's model.
pub(super) const MODEL: (usize, usize, Duration) = (20, 2, Duration::ZERO);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn each_load_is_a_workflow_that_can_be_planned() {
        let (turns, calls, latency) = MODEL;
        let server = Server::start(turns, calls, latency).await.unwrap();
        let voters: Vec<String> =
            (0..specs_of_gates::VOTERS).map(|number| format!("voter-{number}@example.com")).collect();
        for load in Load::value_variants() {
            let mut spec = load.spec(&Site { server: &server, voters: &voters });
            // Admission sets the requester.
            spec["requestedBy"] = json!("dana");
            let object = json!({
                "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "uid": "u"}, "spec": spec,
            });
            let workflow: signoff_api::Workflow = serde_json::from_value(object).unwrap();
            let settings = signoff_engine::Settings::default();
            let planned = signoff_engine::Plan::of(&workflow, &settings, &Arc::default());
            assert!(planned.is_ok(), "{load:?}: {:?}", planned.err());
        }
    }
}
