//! Quorums: the votes that count in a quorum, whether the quorum is met, and whether it can still be met.
//!
//! Votes count together only with equal verdict and equal payload. A person counts once, also with votes under several
//! names.

use signoff_api::{
    ApprovalRequest, Verdict,
    approval::ApprovalPhase,
    gate::{Quorum, RejectPolicy, Subject, SubjectKind},
    verdict::VerdictQuorum,
};

use super::votes::Ballot;
use crate::approval::eligibility::Electorate;

/// The quorums of a request: the gate's own first.
pub(super) struct Quorums<'a> {
    all: Vec<CountedQuorum<'a>>,
    electorate: Electorate<'a>,
}

/// The progress of one quorum, for the payload on which most people agree so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuorumProgress {
    /// The number of people who agree.
    pub have: i32,
    /// The number of people that the quorum requires.
    pub needed: i32,
    /// The groups of `requiredFrom` that are not met, with the number of their members who still have to agree.
    pub missing: Vec<(String, i32)>,
}

impl QuorumProgress {
    /// Whether the quorum is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.have >= self.needed && self.missing.is_empty()
    }
}

/// One quorum and its position in the request.
#[derive(Clone, Copy)]
struct CountedQuorum<'a> {
    at: usize,
    quorum: &'a Quorum,
}

impl CountedQuorum<'_> {
    fn reject_policy(self) -> RejectPolicy {
        self.quorum.reject_policy.unwrap_or_default()
    }
}

impl<'a> Quorums<'a> {
    /// Returns the quorums of a request. `escalated` are the approvers of the status, if there are any.
    pub(super) fn of(request: &'a ApprovalRequest, escalated: &'a [Subject]) -> Self {
        let all = request.quorums.iter().enumerate().map(|(at, quorum)| CountedQuorum { at, quorum });
        Self { all: all.collect(), electorate: Electorate::new(request, escalated) }
    }

    /// Returns one ballot for each person who counts in a quorum: the most cautious one of a person with several votes.
    pub(super) fn ballots_of_persons<'b>(&self, ballots: &'b [Ballot]) -> Vec<&'b Ballot> {
        let caution = |ballot: &Ballot| ballot.verdict.rules().caution;
        let mut counted: Vec<(String, &Ballot)> = Vec::new();
        for ballot in ballots {
            let Some(person) = self.person_of(ballot) else { continue };
            match counted.iter_mut().find(|(other, _)| *other == person) {
                Some((_, counted_ballot)) if caution(ballot) < caution(counted_ballot) => *counted_ballot = ballot,
                Some(_) => {}
                None => counted.push((person, ballot)),
            }
        }
        let ballots = counted.into_iter().map(|(_, ballot)| ballot);
        ballots.filter(|ballot| self.all.iter().any(|quorum| self.counts(*quorum, ballot))).collect()
    }

    fn person_of(&self, ballot: &Ballot) -> Option<String> {
        self.electorate.person_of_vote(&ballot.user, ballot.verdict)
    }

    fn counts(&self, quorum: CountedQuorum<'_>, ballot: &Ballot) -> bool {
        self.electorate.counts(quorum.at, &ballot.user, ballot.verdict, &ballot.groups)
    }

    fn is_met(&self, quorum: CountedQuorum<'_>, ballots: &[&Ballot]) -> bool {
        self.progress(quorum, ballots).is_met()
    }

    /// Returns the progress of a quorum by ballots for one payload.
    fn progress(&self, quorum: CountedQuorum<'_>, ballots: &[&Ballot]) -> QuorumProgress {
        let counted: Vec<_> = ballots.iter().filter(|ballot| self.counts(quorum, ballot)).collect();
        let members = |group: &String| counted.iter().filter(|ballot| ballot.groups.contains(group)).count();
        let rest = |group: &String, min: i32| min.saturating_sub(i32::try_from(members(group)).unwrap_or(i32::MAX));
        let required = quorum.quorum.required_from.iter().map(|from| (from.group.clone(), rest(&from.group, from.min)));
        QuorumProgress {
            have: i32::try_from(counted.len()).unwrap_or(i32::MAX),
            needed: i32::try_from(quorum.quorum.needed()).unwrap_or(i32::MAX),
            missing: required.filter(|(_, rest)| *rest > 0).collect(),
        }
    }

    /// Returns all ballots with Reject if they stop the run by the reject policy of a quorum, or `None`.
    pub(super) fn rejection<'b>(&self, persons: &[&'b Ballot]) -> Option<Vec<&'b Ballot>> {
        let rejects: Vec<_> = persons.iter().filter(|ballot| ballot.verdict == Verdict::Reject).copied().collect();
        let is_rejected = |quorum: &CountedQuorum<'_>| match quorum.reject_policy() {
            RejectPolicy::Any => rejects.iter().any(|ballot| self.counts(*quorum, ballot)),
            RejectPolicy::Threshold => {
                rejects.iter().filter(|ballot| self.counts(*quorum, ballot)).count() >= quorum.quorum.needed()
            }
        };
        self.all.iter().any(is_rejected).then_some(rejects)
    }

    /// Returns the ballots with equal verdict and payload that meet every quorum, or `None`.
    pub(super) fn agreement<'b>(&self, persons: &[&'b Ballot]) -> Option<Vec<&'b Ballot>> {
        group_by_payload(persons).into_iter().find(|same| self.all.iter().all(|quorum| self.is_met(*quorum, same)))
    }

    /// Returns the progress of each quorum.
    pub(super) fn progress_of_each(&self, persons: &[&Ballot]) -> Vec<QuorumProgress> {
        let groups = group_by_payload(persons);
        let progress_of = |quorum: &CountedQuorum<'_>| {
            let by_payload = groups.iter().map(|same| self.progress(*quorum, same));
            by_payload.max_by_key(|progress| progress.have).unwrap_or_else(|| self.progress(*quorum, &[]))
        };
        self.all.iter().map(progress_of).collect()
    }

    /// Returns the reason why no verdict can reach its quorum any more, or `None`.
    pub(super) fn unreachable_reason(
        &self,
        persons: &[&Ballot],
        request: &ApprovalRequest,
        phase: ApprovalPhase,
    ) -> Option<String> {
        if phase == ApprovalPhase::Overdue {
            return None;
        }
        for quorum in self.all.iter().copied() {
            let (approvers, threshold) = (self.electorate.approvers(quorum.at), quorum.quorum.needed());
            if approvers.iter().any(|s| s.kind != SubjectKind::User) {
                continue;
            }
            let mut undecided: Vec<String> = Vec::new();
            for subject in approvers {
                let Some(person) = self.electorate.person(&subject.name) else { continue };
                let voted = persons.iter().any(|b| self.person_of(b).as_ref() == Some(&person));
                let barred = self.electorate.is_excluded_from(quorum.at, &person);
                if !voted && !barred && !undecided.contains(&person) {
                    undecided.push(person);
                }
            }
            let takes_one_person = |verdict: &Verdict| match verdict.rules().quorum {
                VerdictQuorum::Threshold => false,
                VerdictQuorum::RejectPolicy => quorum.reject_policy() == RejectPolicy::Any,
                VerdictQuorum::OnePerson => true,
            };
            let one_suffices = request.allowed_verdicts.iter().any(takes_one_person);
            if one_suffices && !undecided.is_empty() {
                continue;
            }
            let rejects = persons.iter().filter(|b| b.verdict == Verdict::Reject && self.counts(quorum, b)).count();
            let have = group_by_payload(persons)
                .iter()
                .map(|same| same.iter().filter(|b| self.counts(quorum, b)).count())
                .chain([rejects])
                .max()
                .unwrap_or(0);
            if have + undecided.len() < threshold {
                return Some(format!(
                    "it takes {threshold} people, at most {have} agree and {} have not decided yet",
                    undecided.len()
                ));
            }
        }
        None
    }
}

/// Groups the votes that need a quorum by equal verdict and equal payload, in the order in which they were given.
fn group_by_payload<'b>(persons: &[&'b Ballot]) -> Vec<Vec<&'b Ballot>> {
    let mut groups: Vec<Vec<&Ballot>> = Vec::new();
    for ballot in persons.iter().filter(|b| b.verdict.needs_quorum()) {
        let same = |other: &&Ballot| other.verdict == ballot.verdict && other.payload == ballot.payload;
        match groups.iter_mut().find(|group| group.first().is_some_and(same)) {
            Some(group) => group.push(ballot),
            None => groups.push(vec![ballot]),
        }
    }
    groups
}
