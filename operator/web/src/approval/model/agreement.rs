//! The approvers of a request, the quorums, and the decisions so far.
//!
//! Pure.

use signoff_api::{Approval, Decision, Moment};
use signoff_engine::approval::eligibility::next_attempt;
use signoff_review::{decisions, quorum, text::one_line};

use crate::{approval::read::Read, session::Caller};

/// The agreement that a request needs, and has so far.
pub(super) struct Agreement {
    pub(super) approvers: String,
    /// The quorum of the gate itself.
    pub(super) needed: String,
    /// The quorums that policies add.
    pub(super) further: Vec<String>,
    /// The policies that require the gate, each with its rules.
    pub(super) required_by: Vec<(String, Vec<String>)>,
    /// The excluded users, separated by commas.
    pub(super) excluded: String,
    pub(super) votes: Vec<Vote>,
    /// The reader's part: an approver, or the reason why they cannot decide.
    pub(super) standing: String,
    /// Whether the reader has decided, so that drafts are dropped.
    pub(super) has_decided: bool,
}

/// A recorded decision.
pub(super) struct Vote {
    pub(super) key: String,
    pub(super) verdict: &'static str,
    pub(super) state: String,
    pub(super) channel: Option<String>,
    /// The reason and the payload of the decision, in one line.
    pub(super) said: String,
    pub(super) is_mine: bool,
}

impl Agreement {
    /// Returns the agreement on a request as a reader sees it.
    pub(super) fn of(caller: &Caller, read: &Read) -> Self {
        let approval = &read.seen.approval;
        let request = &approval.spec.request;
        let user = &caller.me.user;
        let mut quorums = quorum::lines(approval).into_iter();
        Self {
            approvers: quorum::subjects(approval.approvers()),
            needed: quorums.next().unwrap_or_else(|| "none: it cannot be decided".to_owned()),
            further: quorums.collect(),
            required_by: request
                .required_by
                .iter()
                .map(|by| (one_line(&by.source, 253), by.rules.iter().map(|rule| one_line(rule, 512)).collect()))
                .collect(),
            excluded: one_line(&request.excluded.join(", "), 2000),
            votes: votes(approval, user, read.at),
            standing: decisions::standing(approval, &caller.me, read.at),
            has_decided: approval.spec.decisions.contains_key(user) && next_attempt(approval, user).is_none(),
        }
    }
}

fn votes(approval: &Approval, me: &str, now: Moment) -> Vec<Vote> {
    let status = approval.status.clone().unwrap_or_default();
    let counted = |key: &String| status.votes.iter().find(|vote| vote.key == *key);
    let vote = |(key, decision): (&String, &Decision)| Vote {
        key: one_line(key, 320),
        verdict: decision.verdict.name(),
        state: decisions::state(key, decision, &status, now),
        // The API server verified the channel of a vote that was counted.
        channel: counted(key).and_then(|vote| vote.channel.as_ref()).map(|channel| one_line(channel, 32)),
        said: one_line(&decisions::said(decision), 2000),
        is_mine: key == me,
    };
    approval.spec.decisions.iter().map(vote).collect()
}
