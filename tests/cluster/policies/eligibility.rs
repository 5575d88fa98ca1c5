//! Random requests and votes: `signoff_engine::approval::eligibility` says of each what the API server does.
//!
//! The module does not know RBAC, so the test adds who holds the verbs `approve` and `delegate`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_engine::approval::eligibility::{IneligibleReason, Voter, ineligible, next_attempt};

use super::harness::{Harness, group, to_answer};

/// The seed of the requests and votes. A failure prints it with the number of the vote.
const SEED: u64 = 4711;
const REQUESTS: usize = 80;
const VOTES_OF_A_REQUEST: usize = 6;

const ALICE: &str = "alice@example.com";
const BOB: &str = "bob@example.com";
const DANA: &str = "dana@example.com";
const BOT: &str = "system:serviceaccount:ci:bot";
const FLUX: &str = "system:serviceaccount:flux-system:kustomize-controller";
/// A user who can change Approvals and lacks the verb `approve`.
const MALLORY: &str = "mallory@example.com";
const USERS: [&str; 9] = [ALICE, BOB, DANA, "github:alice", "github:dana", "eve via mallory", BOT, FLUX, MALLORY];
const GROUPS: [&str; 3] = ["finance", "sre", "leads"];
/// The persons on whose behalf flux can decide.
const DELEGATED: [&str; 3] = [ALICE, BOB, "github:dana"];

/// A vote before it is sent.
struct Attempt {
    user: &'static str,
    groups: Vec<String>,
    on_behalf_of: Option<&'static str>,
}

impl Attempt {
    /// Returns a vote, half the time of a user whom a quorum lists.
    fn random(rng: &mut Rng, approval: &Approval) -> Self {
        let listed = approval.spec.request.quorums.iter().flat_map(|quorum| &quorum.approvers);
        let listed: Vec<&str> =
            USERS.into_iter().filter(|user| listed.clone().any(|subject| subject.means(user, &[]))).collect();
        let user = match rng.u8(..6) {
            0 => FLUX,
            1..=2 => pick(rng, &USERS),
            _ if listed.is_empty() => pick(rng, &USERS),
            _ => pick(rng, &listed),
        };
        let groups = GROUPS.iter().filter(|_| rng.bool()).map(|&group| group.to_owned()).collect();
        let of_delegate = if user == FLUX { rng.u8(..4) > 0 } else { rng.u8(..12) == 0 };
        let on_behalf_of = of_delegate.then(|| pick(rng, &[ALICE, BOB, DANA, "github:dana", ALICE, BOB, user]));
        Self { user, groups, on_behalf_of }
    }

    fn voter(&self) -> Voter<'_> {
        Voter { on_behalf_of: self.on_behalf_of, ..Voter::new(self.user, &self.groups) }
    }

    /// Returns whether RBAC, which the module does not know, allows the vote.
    fn is_authorized(&self) -> bool {
        let delegated = |person: &str| self.user == FLUX && DELEGATED.contains(&person);
        self.user != MALLORY && self.on_behalf_of.is_none_or(delegated)
    }
}

/// Returns a random item of a list.
fn pick<T: Copy>(rng: &mut Rng, list: &[T]) -> T {
    list[rng.usize(..list.len())]
}

/// Returns a random list of approvers: users, groups and service accounts.
fn random_approvers(rng: &mut Rng) -> Value {
    let mut list = BTreeMap::new();
    for _ in 0..rng.usize(1..=4) {
        let subject = match rng.u8(..8) {
            0..=1 => group(pick(rng, &GROUPS)),
            2 => json!({"kind": "ServiceAccount", "namespace": pick(rng, &["ci", "other"]), "name": "bot"}),
            _ => {
                json!({"kind": "User", "name": pick(rng, &[ALICE, BOB, DANA, "github:alice", "github:dana", BOB, MALLORY])})
            }
        };
        list.insert(subject.to_string(), subject);
    }
    list.into_values().collect()
}

/// Returns the fields of a request that determine who can decide. `others` chooses the requesters of earlier runs.
fn random_request(rng: &mut Rng, others: &mut Rng) -> Value {
    let mut fields = json!({
        "approvers": random_approvers(rng),
        "excludeRequester": rng.u8(..3) == 0,
        "requestedBy": pick(rng, &[DANA, ALICE, "github:dana", BOT]),
    });
    if rng.u8(..3) == 0 {
        fields["requestedFor"] = json!(pick(rng, &["github:alice", DANA, BOB]));
    }
    if others.u8(..4) == 0 {
        // Persons, as the operator writes them: user names, and the results of the rules below for some.
        fields["earlierRequesters"] = json!([pick(others, &[ALICE, "staff", "others"]), pick(others, &[BOB, "robot"])]);
    }
    if rng.u8(..4) == 0 {
        fields["requiredFrom"] = json!([{"group": pick(rng, &GROUPS), "min": 1}]);
    }
    if rng.u8(..3) == 0 {
        let excluded: BTreeSet<_> =
            (0..rng.usize(1..=2)).map(|_| pick(rng, &[BOB, "github:alice", "carol", FLUX])).collect();
        fields["excluded"] = json!(excluded);
    }
    let rule = |pattern: &str, person: &str| json!({"pattern": pattern, "person": person});
    match rng.u8(..8) {
        0 => {
            fields["persons"] =
                json!([rule("github:(.+)", "$1@example.com"), rule("(.+)@example[.]com", "$1@example.com")])
        }
        // A name that no rule matches is excluded under its own name, and cannot vote.
        1 => fields["persons"] = json!([rule("github:(.+)", "$1@example.com"), rule("system:.*", "robot")]),
        2 => fields["persons"] = json!([rule("(alice|dana)@.*", "staff"), rule(".*", "others")]),
        _ => {}
    }
    let further = (0..rng.usize(..3)).map(|number| {
        json!({"source": format!("policy {number}"), "approvers": random_approvers(rng), "threshold": 1, "excludeRequester": rng.bool()})
    });
    fields["further"] = further.collect();
    if rng.u8(..30) == 0 {
        fields["closesAt"] = json!("2001-01-01T00:00:00Z");
    }
    fields
}

/// Returns a change of the status that the operator could make between two votes.
fn random_status(rng: &mut Rng, approval: &Approval, is_late: bool) -> Option<Value> {
    let decisions: Vec<_> = approval.spec.decisions.iter().collect();
    match rng.u8(..10) {
        0..=1 if !decisions.is_empty() => {
            let (key, decision) = decisions[rng.usize(..decisions.len())];
            let why = "no such field";
            Some(json!({"invalid": {key: {"attempt": decision.attempt(), "why": why}}}))
        }
        2 => Some(json!({"level": 1, "approvers": random_approvers(rng)})),
        3 if is_late => Some(json!({"level": 1, "closesAt": "2001-01-01T00:00:00Z"})),
        4 if is_late => {
            Some(json!({"phase": "Expired", "outcome": {"phase": "Expired", "verdict": "Reject", "source": "Timeout"}}))
        }
        _ => None,
    }
}

/// Returns a decision that differs from the recorded one, with the attempt that the module names or else a wrong one.
fn random_decision(rng: &mut Rng, approval: &Approval, attempt: &Attempt) -> Value {
    let key = attempt.voter().key();
    let recorded = approval.spec.decisions.get(&key);
    let verdict =
        if recorded.is_some_and(|decision| decision.verdict.name() == "Approve") { "Skip" } else { "Approve" };
    let mut decision = json!({"verdict": verdict});
    match next_attempt(approval, &key) {
        Some(1) => {}
        Some(next) => decision["attempt"] = json!(next),
        None if rng.bool() => decision["attempt"] = json!(recorded.map_or(1, signoff_api::Decision::attempt) + 1),
        None => {}
    }
    if recorded.is_some() && attempt.on_behalf_of.is_none() {
        // A merge patch would keep the groups of the attempt before, which the user may have left.
        decision["groups"] = Value::Null;
    }
    if let Some(person) = attempt.on_behalf_of {
        decision["onBehalfOf"] = json!(person);
    }
    decision
}

#[tokio::test]
async fn the_module_and_the_api_server_agree_on_every_random_vote() {
    let harness = Harness::open("eligibility").await;
    for user in [DANA, "github:alice", "github:dana", "eve via mallory", BOT] {
        harness.namespace.bind("signoff-approver", user).await.unwrap();
    }
    let approvals = |verbs: &[&str]| json!({"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": verbs});
    harness.grant(MALLORY, approvals(&["patch"])).await;
    let people = json!({"apiGroups": ["signoff.dev"], "resources": ["people"], "resourceNames": DELEGATED, "verbs": ["delegate"]});
    harness.grant(FLUX, people).await;

    let (mut rng, mut others) = (Rng::with_seed(SEED), Rng::with_seed(SEED));
    let mut clients: BTreeMap<(&str, Vec<String>), Client> = BTreeMap::new();
    let (mut accepted, mut refused, mut unauthorized, mut earlier) = (0, 0, 0, 0);
    let mut reasons = BTreeMap::<String, usize>::new();
    for asked in 0..REQUESTS {
        let mut approval = harness.ask(random_request(&mut rng, &mut others)).await;
        for sent in 0..VOTES_OF_A_REQUEST {
            if let Some(status) = random_status(&mut rng, &approval, sent + 2 >= VOTES_OF_A_REQUEST) {
                approval = harness.status(&approval, status).await.unwrap();
            }
            let attempt = Attempt::random(&mut rng, &approval);
            let decision = random_decision(&mut rng, &approval, &attempt);
            let why = ineligible(&approval, &attempt.voter(), jiff::Timestamp::now().into());
            let client = match clients.entry((attempt.user, attempt.groups.clone())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let groups: Vec<&str> = attempt.groups.iter().map(String::as_str).collect();
                    new.insert(harness.cluster.client(attempt.user, &groups).await.unwrap())
                }
            };
            let api: Api<Approval> = Api::namespaced(client.clone(), &harness.namespace.name);
            let patch = Patch::Merge(json!({"spec": {"decisions": {attempt.voter().key(): decision}}}));
            let answer = to_answer(api.patch(&approval.name_any(), &PatchParams::default(), &patch).await);
            let expected = why.is_none() && attempt.is_authorized();
            assert_eq!(
                answer.is_ok(),
                expected,
                "seed {SEED}, request {asked}, vote {sent}: {} in the groups {:?} sends {decision}\nthe module: {why:?}\nthe API server: {:?}\n{}",
                attempt.voter().key(),
                attempt.groups,
                answer.as_ref().err(),
                serde_json::to_string_pretty(&approval).unwrap()
            );
            match (&answer, &why) {
                (Ok(_), _) => accepted += 1,
                (Err(_), None) => unauthorized += 1,
                (Err(_), Some(_)) => refused += 1,
            }
            let is_requester = matches!(&why, Some(IneligibleReason::Requester(_) | IneligibleReason::RequesterOf(..)));
            earlier += usize::from(is_requester && ineligible_without_earlier(&approval, &attempt) != why);
            if let Some(why) = why {
                *reasons.entry(reason_name(&why)).or_default() += 1;
            }
            approval = answer.unwrap_or(approval);
        }
    }
    let all = REQUESTS * VOTES_OF_A_REQUEST;
    assert!(accepted * 4 >= all && refused * 4 >= all, "{accepted} accepted, {refused} refused of {all}: {reasons:?}");
    assert!(unauthorized > 10, "{unauthorized} votes that only RBAC refuses");
    assert!(earlier > 0, "{earlier} votes of persons who requested only an earlier run: {reasons:?}");
    let each = [
        "Ended",
        "Closed",
        "Via",
        "OnBehalfOfSelf",
        "Decided",
        "DecidedFor",
        "NoPerson",
        "Requester",
        "Excluded",
        "RequesterOf",
        "NotListed",
        "NotListedByName",
    ];
    let missing: Vec<_> = each.into_iter().filter(|reason| !reasons.contains_key(*reason)).collect();
    assert!(missing.is_empty(), "no vote is refused for {missing:?}: {reasons:?}");
}

#[tokio::test]
async fn a_user_name_that_reads_as_two_persons_is_accepted_and_the_module_says_what_counts() {
    let harness = Harness::open("two-readings").await;
    // CEL takes the text before `[.]?c?o?m?`, bob@example; the group matches the whole name.
    let rule = json!({"pattern": "(.+)[.]?c?o?m?", "person": "$1"});
    let approvers = json!([{"kind": "User", "name": BOB}, {"kind": "User", "name": "github:alice"}]);
    harness.namespace.bind("signoff-approver", "github:alice").await.unwrap();
    let approval = harness.ask(json!({"approvers": approvers, "persons": [rule]})).await;
    for (user, two) in [(BOB, true), ("github:alice", false)] {
        let why = ineligible(&approval, &Voter::new(user, &[]), jiff::Timestamp::now().into());
        assert_eq!(matches!(why, Some(IneligibleReason::TwoPersons(_))), two, "{user}: {why:?}");
        assert!(two || why.is_none(), "{user}: {why:?}");
        let client = harness.cluster.client(user, &[]).await.unwrap();
        let api: Api<Approval> = Api::namespaced(client, &harness.namespace.name);
        let patch = Patch::Merge(json!({"spec": {"decisions": {user: {"verdict": "Reject"}}}}));
        api.patch(&approval.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Returns the module's reason against a vote if the run repeated none.
fn ineligible_without_earlier(approval: &Approval, attempt: &Attempt) -> Option<IneligibleReason> {
    let mut first = approval.clone();
    first.spec.request.earlier_requesters.clear();
    ineligible(&first, &attempt.voter(), jiff::Timestamp::now().into())
}

/// Returns the name of a reason, without its fields.
fn reason_name(why: &IneligibleReason) -> String {
    format!("{why:?}").split('(').next().unwrap_or_default().to_owned()
}
