//! The rules about voters of an Approval, as the admission policy `signoff-approvals` has them.
//!
//! The API server checks every vote. The tally, the plugin and local runs use this module, and
//! `tests/cluster/policies/eligibility.rs` compares it with the policy.
//!
//! **Invariant:** no client and no clock. The permissions of RBAC (the verbs `approve` and `delegate`) are not checked
//! here.

use std::fmt;

use signoff_api::{
    Approval, ApprovalRequest, ApprovalStatus, Code, Moment, Verdict,
    approval::ApprovalPhase,
    gate::{Quorum, Subject, SubjectKind},
    verdict::CountedName,
};
use signoff_expr::text;

use super::persons::Persons;

/// The separator between a person and the user who decides on their behalf, in a key of `spec.decisions`.
const VIA: &str = " via ";

/// A user who wants to decide.
#[derive(Clone, Copy, Debug)]
pub struct Voter<'a> {
    /// The user name, as the API server authenticates it.
    pub user: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// The person on whose behalf the user decides.
    pub on_behalf_of: Option<&'a str>,
}

impl<'a> Voter<'a> {
    /// Returns a user who decides for themselves.
    #[must_use]
    pub fn new(user: &'a str, groups: &'a [String]) -> Self {
        Self { user, groups, on_behalf_of: None }
    }

    /// Returns the counted user name: the person on whose behalf the user decides, or else the user.
    fn counted_user(&self) -> &'a str {
        self.on_behalf_of.unwrap_or(self.user)
    }

    /// Returns the key of the vote in `spec.decisions`.
    #[must_use]
    pub fn key(&self) -> String {
        match self.on_behalf_of {
            Some(person) => format!("{person}{VIA}{}", self.user),
            None => self.user.to_owned(),
        }
    }
}

/// Returns the account that decides on behalf of a person under a key of `spec.decisions`.
pub(crate) fn account_of(key: &str) -> Option<&str> {
    key.split_once(VIA).map(|(_, account)| account)
}

/// Whether a user name belongs to Kubernetes itself, such as `system:admin` of k3s, and not to a service account.
fn is_of_kubernetes(user: &str) -> bool {
    user.starts_with("system:") && !user.starts_with("system:serviceaccount:")
}

/// Whether a key of `spec.decisions` matches its entry.
pub(crate) fn is_key_of(key: &str, on_behalf_of: Option<&str>) -> bool {
    key.contains(VIA) == on_behalf_of.is_some()
}

/// A reason why a vote is refused, as a sentence for the voter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IneligibleReason {
    /// The Approval has an outcome.
    Ended(ApprovalPhase),
    /// The Approval is being deleted.
    Deleting,
    /// The time for decisions has passed.
    Closed(Moment),
    /// The request has no quorum.
    NoQuorum,
    /// The user name contains ` via `.
    Via(String),
    /// The user decides on behalf of themselves.
    OnBehalfOfSelf(String),
    /// The person has decided with this verdict, and the decision is final.
    Decided(String, Verdict),
    /// A user has decided on behalf of the person. The second text is the key of that decision.
    DecidedFor(String, String),
    /// No rule maps the user name to a person.
    NoPerson(String),
    /// The first rule that matches reads the user name as two persons. The API server accepts the vote; only a Reject
    /// or an Abort counts.
    TwoPersons(String),
    /// The first quorum excludes the requester.
    Requester(String),
    /// The request excludes the person or their account. The second text is the earlier decision that is the cause;
    /// `None` if the author excludes them.
    Excluded(String, Option<String>),
    /// The person is the requester, and only quorums that exclude the requester list the person. The second text has
    /// the sources of these quorums.
    RequesterOf(String, String),
    /// No quorum lists the user.
    NotListed(String),
    /// No quorum lists the person by user name.
    NotListedByName(String),
}

impl IneligibleReason {
    /// Whether the only reason is that no list of approvers contains the user.
    #[must_use]
    pub fn is_about_lists(&self) -> bool {
        matches!(self, Self::NotListed(_) | Self::NotListedByName(_))
    }

    /// Returns the code of the reason.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Ended(ApprovalPhase::Superseded) => Code::SUPERSEDED,
            Self::Ended(_) | Self::Deleting | Self::Closed(_) => Code::TOO_LATE,
            Self::NoQuorum => Code::NO_QUORUM,
            Self::Via(_) => Code::OTHER_NAME,
            Self::OnBehalfOfSelf(_) => Code::ON_BEHALF_OF,
            Self::Decided(..) | Self::DecidedFor(..) => Code::FINAL,
            Self::NoPerson(_) | Self::TwoPersons(_) => Code::NOT_ONE_PERSON,
            Self::Requester(_) | Self::RequesterOf(..) => Code::REQUESTER,
            Self::Excluded(..) => Code::EXCLUDED,
            Self::NotListed(_) | Self::NotListedByName(_) => Code::NOT_AN_APPROVER,
        }
    }
}

/// Formats as a sentence without its full stop: the problem, the field and the remedy.
impl fmt::Display for IneligibleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |name: &str| text::display(name, 600);
        match self {
            Self::Ended(phase) => write!(f, "it was decided already ({})", phase.name()),
            Self::Deleting => f.write_str("it is being deleted with its Workflow"),
            Self::Closed(at) => write!(f, "it closed at {at}"),
            Self::NoQuorum => f.write_str(
                "it has no quorum (spec.request.quorums), so it cannot be decided: create its Workflow again",
            ),
            Self::Via(user) => write!(
                f,
                "the user name {} contains ` via `, which is reserved for decisions on behalf of others: decide under another user name",
                shown(user)
            ),
            Self::OnBehalfOfSelf(user) => write!(f, "onBehalfOf names {} itself: leave it out", shown(user)),
            Self::Decided(user, verdict) => write!(
                f,
                "{} decided {verdict} already, and a decision is final: another approver must decide",
                shown(user)
            ),
            Self::DecidedFor(user, key) => write!(
                f,
                "a decision on behalf of {} is already recorded ({}): another approver must decide",
                shown(user),
                shown(key)
            ),
            Self::NoPerson(user) => write!(
                f,
                "no rule of spec.request.persons maps the user name {} to one person: decide under a user name that a rule maps",
                shown(user)
            ),
            Self::TwoPersons(user) => write!(
                f,
                "a rule of spec.request.persons can read the user name {} as two persons, so only Reject and Abort count under it: decide under a user name that reads as one person",
                shown(user)
            ),
            Self::Requester(user) => write!(
                f,
                "{} is the requester, and the requester must not decide this gate (excludeRequester): another approver must decide",
                shown(user)
            ),
            Self::Excluded(user, why) => write!(
                f,
                "{}{} is excluded from deciding this gate (spec.request.excluded): another approver must decide",
                why.as_ref().map(|why| format!("{why}, so ")).unwrap_or_default(),
                shown(user)
            ),
            Self::RequesterOf(user, sources) => write!(
                f,
                "{} is the requester, and is an approver only for {}, which excludes the requester (excludeRequester): another approver must decide",
                shown(user),
                shown(sources)
            ),
            Self::NotListed(user) => write!(
                f,
                "{} is not an approver of this gate, by name or by group (spec.request.quorums): {}",
                shown(user),
                if is_of_kubernetes(user) {
                    "no gate lists users of system:, so decide as a user whom it lists (with their own certificate or token, or as an administrator with kubectl --as=NAME)"
                } else {
                    "one of its approvers must decide"
                }
            ),
            Self::NotListedByName(user) => write!(
                f,
                "{} is not an approver of this gate by user name (spec.request.quorums): leave out onBehalfOf, or name an approver",
                shown(user)
            ),
        }
    }
}

/// Returns the reason why a vote of a user would not count now, or `None`. Either the API server refuses the vote, or
/// the user name could be that of two persons ([`IneligibleReason::TwoPersons`]).
///
/// The API server compares the time by whole seconds, so it can accept a vote up to a second longer.
#[must_use]
pub fn ineligible(approval: &Approval, voter: &Voter<'_>, now: Moment) -> Option<IneligibleReason> {
    closed(approval, now).or_else(|| voter_problem(approval, voter))
}

/// Returns the reason why no user can decide an Approval now, or `None`.
#[must_use]
pub fn closed(approval: &Approval, now: Moment) -> Option<IneligibleReason> {
    let status = approval.status.as_ref();
    if let Some(status) = status.filter(|status| status.phase.is_end() || status.outcome.is_some()) {
        return Some(IneligibleReason::Ended(status.phase));
    }
    if approval.metadata.deletion_timestamp.is_some() {
        return Some(IneligibleReason::Deleting);
    }
    if let Some(closes) = approval.closes_at().filter(|closes| *closes < now) {
        return Some(IneligibleReason::Closed(closes));
    }
    approval.spec.request.quorums.is_empty().then_some(IneligibleReason::NoQuorum)
}

/// Returns the reason why this user cannot decide an open Approval, or `None`.
#[must_use]
pub fn voter_problem(approval: &Approval, voter: &Voter<'_>) -> Option<IneligibleReason> {
    let user = voter.counted_user();
    let named = || user.to_owned();
    if let Some(name) = [voter.user, user].into_iter().find(|name| name.contains(VIA)) {
        return Some(IneligibleReason::Via(name.to_owned()));
    }
    if voter.on_behalf_of == Some(voter.user) {
        return Some(IneligibleReason::OnBehalfOfSelf(named()));
    }
    let key = voter.key();
    let decisions = &approval.spec.decisions;
    if let Some(own) = decisions.get(&key).filter(|_| next_attempt(approval, &key).is_none()) {
        return Some(IneligibleReason::Decided(named(), own.verdict));
    }
    if let Some(own) = decisions.get(user).filter(|_| voter.on_behalf_of.is_some()) {
        return Some(IneligibleReason::Decided(named(), own.verdict));
    }
    let for_user = |(other, decision): &(&String, &signoff_api::Decision)| {
        **other != key && decision.on_behalf_of.as_deref() == Some(user)
    };
    if let Some((other, _)) = decisions.iter().find(for_user) {
        return Some(IneligibleReason::DecidedFor(named(), other.clone()));
    }
    let electorate =
        Electorate::new(&approval.spec.request, approval.status.as_ref().map_or(&[], |status| &status.approvers));
    let Some(person) = electorate.persons.objector(user) else { return Some(IneligibleReason::NoPerson(named())) };
    if electorate.request.bars_requester() && electorate.is_requester(&person) {
        return Some(IneligibleReason::Requester(named()));
    }
    if electorate.is_excluded(&person) {
        return Some(IneligibleReason::Excluded(named(), electorate.earlier_decision(&person, "you")));
    }
    if voter.on_behalf_of.is_some() && electorate.is_excluded_account(voter.user) {
        let account = electorate.person_or_name(voter.user);
        let why = electorate.earlier_decision(&account, "you sent a decision on behalf of another person that");
        return Some(IneligibleReason::Excluded(voter.user.to_owned(), why));
    }
    electorate
        .reason_not_listed(voter, &person)
        .or_else(|| electorate.person(user).is_none().then(|| IneligibleReason::TwoPersons(named())))
}

/// Returns the key of a recorded vote of the same person under another name, or `None`. Counted votes are preferred,
/// and invalid votes are ignored.
#[must_use]
pub fn counted_as(approval: &Approval, voter: &Voter<'_>) -> Option<String> {
    let electorate = Electorate::new(&approval.spec.request, &[]);
    let person = electorate.persons.objector(voter.counted_user())?;
    let key = voter.key();
    let status = approval.status.as_ref();
    let is_counted = |key: &String| status.is_some_and(|status| status.votes.iter().any(|vote| vote.key == *key));
    let others = approval.spec.decisions.iter().filter(|(other, _)| **other != key);
    let same = others.filter(|(other, decision)| {
        let user = decision.on_behalf_of.as_ref().unwrap_or(other);
        electorate.person_of_vote(user, decision.verdict).as_ref() == Some(&person)
    });
    let mut same = same.map(|(other, _)| other).filter(|other| next_attempt(approval, other).is_none()).peekable();
    let first = same.peek().map(|other| (*other).clone());
    same.find(|other| is_counted(other)).cloned().or(first)
}

/// Returns the number of the attempt that a vote under a key must have, or `None` if the recorded vote is final.
#[must_use]
pub fn next_attempt(approval: &Approval, key: &str) -> Option<i32> {
    let Some(recorded) = approval.spec.decisions.get(key) else { return Some(1) };
    let invalid = approval.status.as_ref()?.invalid.get(key)?;
    (invalid.attempt == recorded.attempt()).then(|| recorded.attempt() + 1)
}

/// Returns the verdicts that the API server accepts now.
#[must_use]
pub fn allowed_verdicts<'a>(request: &'a ApprovalRequest, status: &ApprovalStatus) -> &'a [Verdict] {
    if status.phase == ApprovalPhase::Overdue { &Verdict::WHEN_OVERDUE } else { &request.allowed_verdicts }
}

/// The users who can decide a request: its quorums with the approvers in force, and its rules for persons.
#[derive(Clone, Debug)]
pub(crate) struct Electorate<'a> {
    request: &'a ApprovalRequest,
    /// The approvers of the status, which replace the approvers of the first quorum after an escalation.
    escalated: &'a [Subject],
    persons: Persons,
}

impl<'a> Electorate<'a> {
    /// Compiles the rules of a request. `escalated` are the approvers of the status, if there are any.
    pub(crate) fn new(request: &'a ApprovalRequest, escalated: &'a [Subject]) -> Self {
        Self { request, escalated, persons: Persons::new(&request.persons) }
    }

    /// Returns the person who decides under a user name, or `None` if the user name does not count.
    pub(crate) fn person(&self, user: &str) -> Option<String> {
        self.persons.voter(user)
    }

    /// Returns the person of a vote, or `None` if the vote does not count. A Reject or an Abort counts under every user
    /// name from which the API server accepts votes; the other verdicts need a name that can be read as one person
    /// only.
    pub(crate) fn person_of_vote(&self, user: &str, verdict: Verdict) -> Option<String> {
        match verdict.rules().counted_name {
            CountedName::Every => self.persons.objector(user),
            CountedName::OfOnePerson => self.persons.voter(user),
        }
    }

    /// Returns the reason why a vote that the API server accepts does not count, or `None`.
    pub(crate) fn reason_not_counted(&self, user: &str, verdict: Verdict) -> Option<IneligibleReason> {
        let is_accepted = self.persons.objector(user).is_some();
        (is_accepted && self.person_of_vote(user, verdict).is_none())
            .then(|| IneligibleReason::TwoPersons(user.to_owned()))
    }

    /// Returns the approvers of the quorum at a position of the request. After an escalation the first quorum has the
    /// approvers of the status.
    pub(crate) fn approvers(&self, at: usize) -> &'a [Subject] {
        if at == 0 && !self.escalated.is_empty() {
            return self.escalated;
        }
        self.request.quorums.get(at).map_or(&[], |quorum| &quorum.approvers)
    }

    /// Whether a person is excluded from a quorum, by name or as the requester.
    pub(crate) fn is_excluded_from(&self, at: usize, person: &str) -> bool {
        let excludes = self.request.quorums.get(at).is_some_and(Quorum::excludes_requester);
        self.is_excluded(person) || ((excludes || self.request.bars_requester()) && self.is_requester(person))
    }

    /// Whether a recorded vote counts in a quorum, by the groups in the vote. A single quorum counts every vote that
    /// the API server accepted, because its votes need not name a group.
    pub(crate) fn counts(&self, at: usize, user: &str, verdict: Verdict, groups: &[String]) -> bool {
        let Some(person) = self.person_of_vote(user, verdict) else { return false };
        let is_only = self.request.quorums.len() == 1;
        let person_by_group = self.persons.by_group(user);
        !self.is_excluded_from(at, &person)
            && !person_by_group.is_some_and(|person| self.is_excluded_from(at, &person))
            && (is_only || self.approvers(at).iter().any(|subject| subject.means(user, groups)))
    }

    fn is_requester(&self, person: &str) -> bool {
        let mut requesters = self.request.requested_for.iter().chain([&self.request.requested_by]);
        // The request names the earlier requesters as persons, because an admission policy cannot map so many names
        // within its cost limit.
        requesters.any(|name| self.persons.is(person, name))
            || self.request.earlier_requesters.iter().any(|earlier| earlier == person)
    }

    fn is_excluded(&self, person: &str) -> bool {
        self.request.excluded.iter().any(|name| self.persons.is(person, name))
    }

    /// Whether an account cannot send votes on behalf of people.
    pub(crate) fn is_excluded_account(&self, account: &str) -> bool {
        self.is_excluded(&self.person_or_name(account))
    }

    fn person_or_name(&self, user: &str) -> String {
        self.persons.objector(user).unwrap_or_else(|| user.to_owned())
    }

    /// Returns the earlier decision because of which the request excludes a person, as the beginning of a sentence with
    /// the subject `who`. Returns `None` if the author excludes the person.
    fn earlier_decision(&self, person: &str, who: &str) -> Option<String> {
        let exclusions = self.request.excluded_because.iter().filter(|cause| self.persons.is(person, &cause.user));
        let cause = exclusions.max_by_key(|cause| cause.edited)?;
        let what = if cause.edited == Some(true) { "changed this text" } else { "decided" };
        Some(format!("{who} {what} at gate {}", text::display(&cause.gate, 120)))
    }

    fn reason_not_listed(&self, voter: &Voter<'_>, person: &str) -> Option<IneligibleReason> {
        let is_listed = |at: &usize| {
            self.approvers(*at).iter().any(|subject| match voter.on_behalf_of {
                Some(person) => subject.kind == SubjectKind::User && subject.name == person,
                None => subject.means(voter.user, voter.groups),
            })
        };
        let quorums = &self.request.quorums;
        let listed: Vec<usize> = (0..quorums.len()).filter(is_listed).collect();
        if listed.is_empty() {
            let user = voter.counted_user().to_owned();
            return Some(match voter.on_behalf_of {
                Some(_) => IneligibleReason::NotListedByName(user),
                None => IneligibleReason::NotListed(user),
            });
        }
        if listed.iter().any(|at| !self.is_excluded_from(*at, person)) {
            return None;
        }
        let sources: Vec<_> =
            listed.iter().filter_map(|at| quorums.get(*at)).map(|quorum| quorum.source.as_str()).collect();
        Some(IneligibleReason::RequesterOf(voter.counted_user().to_owned(), sources.join(" and ")))
    }
}

#[cfg(test)]
#[path = "eligibility_tests.rs"]
mod tests;
