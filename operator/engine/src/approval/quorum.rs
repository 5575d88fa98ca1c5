//! Quorums: who counts for which, whether one is met, and whether one can still be met.
//!
//! Votes count together only with equal verdict and equal payload; a person counts once, however they voted.

use signoff_api::{
    ApprovalRequest, ApprovalStatus, Verdict,
    approval::ApprovalPhase,
    gate::{PersonRule, RejectPolicy, RequiredFrom, Subject, SubjectKind},
};
use signoff_expr::re2;

use super::votes::Ballot;

/// The quorums of a request: the gate's own first.
pub(super) struct Quorums {
    all: Vec<CountedQuorum>,
    persons: Vec<(regex::Regex, String)>,
    /// Whether there are rules for persons at all: a name that none matches then does not count.
    has_rules: bool,
}

/// One quorum, with the approvers in force.
struct CountedQuorum {
    approvers: Vec<Subject>,
    threshold: usize,
    required: Vec<RequiredFrom>,
    reject: RejectPolicy,
    excluded: Vec<String>,
    /// The only quorum: the API server refused every vote from outside it, and groups need not be named.
    alone: bool,
}

impl Quorums {
    pub(super) fn of(request: &ApprovalRequest, status: &ApprovalStatus) -> Self {
        let all = request.quorums.iter().enumerate().map(|(at, quorum)| {
            let escalated = at == 0 && !status.approvers.is_empty();
            let mut excluded = request.excluded.clone();
            // Whom the first quorum excludes must not vote at all.
            if quorum.excludes_requester() || request.bars_requester() {
                excluded.extend(request.requested_for.iter().chain([&request.requested_by]).cloned());
            }
            CountedQuorum {
                approvers: if escalated { status.approvers.clone() } else { quorum.approvers.clone() },
                threshold: quorum.needed(),
                required: quorum.required_from.clone(),
                reject: quorum.reject_policy.unwrap_or_default(),
                excluded,
                alone: request.quorums.len() == 1,
            }
        });
        Self {
            all: all.collect(),
            persons: request.persons.iter().filter_map(rule).collect(),
            has_rules: !request.persons.is_empty(),
        }
    }

    /// One ballot for each person who counts anywhere. Whoever voted under two names is counted by the more careful
    /// of the two.
    pub(super) fn persons<'b>(&self, ballots: &'b [Ballot]) -> Vec<&'b Ballot> {
        let mut counted: Vec<(String, &Ballot)> = Vec::new();
        for ballot in ballots {
            let Some(person) = self.person(&ballot.user) else { continue };
            match counted.iter_mut().find(|(other, _)| *other == person) {
                Some((_, held)) if caution(ballot.verdict) < caution(held.verdict) => *held = ballot,
                Some(_) => {}
                None => counted.push((person, ballot)),
            }
        }
        let ballots = counted.into_iter().map(|(_, ballot)| ballot);
        ballots.filter(|ballot| self.all.iter().any(|quorum| self.counts(quorum, ballot))).collect()
    }

    /// The person behind a user name; none where there are rules and no rule matches.
    fn person(&self, user: &str) -> Option<String> {
        if !self.has_rules {
            return Some(user.to_owned());
        }
        self.persons.iter().find_map(|(pattern, person)| {
            let found = pattern.captures(user)?;
            let mut name = String::new();
            found.expand(person, &mut name);
            Some(name)
        })
    }

    fn counts(&self, quorum: &CountedQuorum, ballot: &Ballot) -> bool {
        let is_excluded = |name: &String| {
            *name == ballot.user
                || matches!((self.person(name), self.person(&ballot.user)), (Some(a), Some(b)) if a == b)
        };
        if quorum.excluded.iter().any(is_excluded) {
            return false;
        }
        quorum.alone || quorum.approvers.iter().any(|subject| subject.means(&ballot.user, &ballot.groups))
    }

    fn met(&self, quorum: &CountedQuorum, ballots: &[&Ballot], threshold: usize) -> bool {
        let counted: Vec<_> = ballots.iter().filter(|b| self.counts(quorum, b)).collect();
        let from = |group: &String| counted.iter().filter(|b| b.groups.contains(group)).count();
        counted.len() >= threshold
            && quorum.required.iter().all(|r| from(&r.group) >= usize::try_from(r.min).unwrap_or(usize::MAX))
    }

    /// The people who reject with the weight that it takes, if they do.
    pub(super) fn rejected<'b>(&self, persons: &[&'b Ballot]) -> Option<Vec<&'b Ballot>> {
        let no: Vec<_> = persons.iter().filter(|b| b.verdict == Verdict::Reject).copied().collect();
        self.all
            .iter()
            .any(|quorum| match quorum.reject {
                RejectPolicy::Any => no.iter().any(|b| self.counts(quorum, b)),
                RejectPolicy::Threshold => no.iter().filter(|b| self.counts(quorum, b)).count() >= quorum.threshold,
            })
            .then_some(no)
    }

    /// The people who agree on one thing and meet every quorum, if there are such.
    pub(super) fn agreed<'b>(&self, persons: &[&'b Ballot]) -> Option<Vec<&'b Ballot>> {
        agreeing(persons)
            .into_iter()
            .find(|same| self.all.iter().all(|quorum| self.met(quorum, same, quorum.threshold)))
    }

    /// Returns the threshold of the gate's own quorum, and the most people who agree so far on one payload.
    pub(super) fn progress(&self, persons: &[&Ballot]) -> (i32, i32) {
        let Some(own) = self.all.first() else { return (0, 0) };
        let counted = |same: &Vec<&Ballot>| same.iter().filter(|b| self.counts(own, b)).count();
        let have = agreeing(persons).iter().map(counted).max().unwrap_or(0);
        (i32::try_from(own.threshold).unwrap_or(i32::MAX), i32::try_from(have).unwrap_or(i32::MAX))
    }

    /// Returns why no verdict can reach its quorum any more, or `None`.
    pub(super) fn out_of_reach(
        &self,
        persons: &[&Ballot],
        request: &ApprovalRequest,
        phase: ApprovalPhase,
    ) -> Option<String> {
        if phase == ApprovalPhase::Overdue {
            return None;
        }
        for quorum in &self.all {
            if quorum.approvers.iter().any(|s| s.kind != SubjectKind::User) {
                continue;
            }
            let mut left: Vec<String> = Vec::new();
            for subject in &quorum.approvers {
                let Some(person) = self.person(&subject.name) else { continue };
                let voted = persons.iter().any(|b| self.person(&b.user).as_ref() == Some(&person));
                let barred = quorum.excluded.iter().any(|name| self.person(name).as_ref() == Some(&person));
                if !voted && !barred && !left.contains(&person) {
                    left.push(person);
                }
            }
            let alone = |verdict: &Verdict| !verdict.needs_quorum() && *verdict != Verdict::Reject;
            let one_suffices = request.allowed_verdicts.iter().any(alone)
                || (request.allowed_verdicts.contains(&Verdict::Reject) && quorum.reject == RejectPolicy::Any);
            if one_suffices && !left.is_empty() {
                continue;
            }
            let rejects = persons.iter().filter(|b| b.verdict == Verdict::Reject && self.counts(quorum, b)).count();
            let have = agreeing(persons)
                .iter()
                .map(|same| same.iter().filter(|b| self.counts(quorum, b)).count())
                .chain([rejects])
                .max()
                .unwrap_or(0);
            if have + left.len() < quorum.threshold {
                return Some(format!(
                    "it takes {} people, at most {have} agree and {} have not decided yet",
                    quorum.threshold,
                    left.len()
                ));
            }
        }
        None
    }
}

/// Votes that need a quorum, gathered by equal verdict and equal payload, in the order in which they came.
fn agreeing<'b>(persons: &[&'b Ballot]) -> Vec<Vec<&'b Ballot>> {
    let mut all: Vec<Vec<&Ballot>> = Vec::new();
    for ballot in persons.iter().filter(|b| b.verdict.needs_quorum()) {
        let same = |other: &&Ballot| other.verdict == ballot.verdict && other.payload == ballot.payload;
        match all.iter_mut().find(|group| group.first().is_some_and(same)) {
            Some(group) => group.push(ballot),
            None => all.push(vec![ballot]),
        }
    }
    all
}

/// The more careful a verdict, the smaller.
fn caution(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Abort => 0,
        Verdict::Reject => 1,
        Verdict::Escalate => 2,
        Verdict::Defer => 3,
        _ => 4,
    }
}

fn rule(rule: &PersonRule) -> Option<(regex::Regex, String)> {
    Some((re2::whole(&rule.pattern).ok()?, rule.person.clone()))
}
