//! A thousand votes against the clock, a cancellation, a deletion and each other: each gate has exactly one outcome,
//! and the Approval, the journal, the Events and the answers to the voters agree. The winner is left to chance.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{join, join_all};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use signoff_api::approval::{ApprovalPhase, Source};
use signoff_api::workflow::WorkflowStatus;
use signoff_api::{Approval, Outcome, Verdict, Workflow};
use signoff_tests::control_plane::Cluster;

use crate::runs::Runs;

/// The number of gates of each kind of race.
const GATES: usize = 25;
/// The number of people at each gate, of whom each votes twice.
const PEOPLE: usize = 5;
/// The number of runs that race at the same time.
const CONCURRENT_RUNS: usize = 8;

/// Every answer to the voters at one gate: the user, the verdict, and whether it was accepted.
type Answers = Vec<(String, Verdict, Result<Approval, String>)>;

struct Race {
    runs: Runs,
    people: Vec<(String, Client)>,
}

impl Race {
    async fn new(prefix: &str) -> Self {
        let runs = Runs::on(Cluster::operated().unwrap(), prefix).await;
        let words =
            ["create", "rolebinding", "crowd", "--clusterrole=signoff-approver", "--group=crowd", "--namespace"];
        runs.cluster.kubectl([&words[..], &[&runs.namespace.name]].concat()).run().await.unwrap().ok().unwrap();
        // The authorizer applies bindings in order, so this binding is effective once a later one is.
        runs.namespace.bind("view", "nobody-in-particular").await.unwrap();
        let people = (0..PEOPLE).map(|n| format!("racer-{n}@example.com"));
        let people = join_all(people.map(async |user| {
            let client = runs.cluster.client(&user, &["crowd"]).await.unwrap();
            (user, client)
        }));
        let people = people.await;
        Self { runs, people }
    }

    /// Lets all people vote twice at the same instant, for and against, over one connection each.
    async fn vote_by_all(&self, approval: &str) -> Answers {
        let votes = self.people.iter().flat_map(|(user, client)| {
            [Verdict::Approve, Verdict::Reject].map(|verdict| async move {
                let decision = json!({"verdict": verdict, "reason": "racing", "groups": ["crowd"]});
                (user.clone(), verdict, self.runs.decide(client, user, approval, decision).await)
            })
        });
        join_all(votes).await
    }

    /// Opens one gate of a run, at which all people vote while `meanwhile` runs. Returns the result.
    async fn run(&self, name: &str, meanwhile: impl AsyncFn(&Approval)) -> Gate {
        let crowd = json!([{"kind": "Group", "name": "crowd"}]);
        self.runs.request(name, json!({"approvers": crowd, "timeout": {"after": "1h", "action": "Abort"}})).await;
        let approval = self.runs.wait_for_gate(name).await;
        let (answers, ()) = join(self.vote_by_all(&approval.name_any()), meanwhile(&approval)).await;
        Gate { run: name.to_owned(), approval: approval.name_any(), answers }
    }
}

struct Gate {
    run: String,
    approval: String,
    answers: Answers,
}

impl Gate {
    /// Returns the accepted vote of each person; no person has two.
    fn accepted_votes(&self) -> BTreeMap<&str, Verdict> {
        let mut votes = BTreeMap::new();
        for (user, verdict, answer) in &self.answers {
            if answer.is_ok() {
                let earlier = votes.insert(user.as_str(), *verdict);
                assert_eq!(earlier, None, "{}: two votes of {user} were taken", self.approval);
            }
        }
        votes
    }

    /// Checks that the Approval has the votes that were accepted.
    fn check_votes(&self, approval: &Approval) {
        let stored: BTreeMap<_, _> =
            approval.spec.decisions.iter().map(|(user, decision)| (user.as_str(), decision.verdict)).collect();
        assert_eq!(stored, self.accepted_votes(), "{}: what is stored is not what the voters were told", self.approval);
        let status = approval.status.clone().unwrap_or_default();
        let Some(outcome) = status.outcome else { return };
        assert!(status.phase.is_end(), "{}", self.approval);
        let deciders: BTreeSet<_> = outcome.decided_by.iter().map(String::as_str).collect();
        match outcome.source {
            Source::Human if status.phase != ApprovalPhase::Cancelled => {
                assert!(!deciders.is_empty(), "{}: nobody decided", self.approval);
                for user in deciders {
                    assert_eq!(
                        stored.get(user),
                        outcome.verdict.as_ref(),
                        "{}: {user} said something else",
                        self.approval
                    );
                }
                // One vote against is enough, and all stored votes were judged together.
                let judged: BTreeSet<_> = status.votes.iter().map(|vote| vote.verdict).collect();
                let wins = if judged.contains(&Verdict::Reject) { Verdict::Reject } else { Verdict::Approve };
                assert_eq!(outcome.verdict, Some(wins), "{}: {:?}", self.approval, status.votes);
            }
            Source::Timeout => assert!(stored.is_empty(), "{}: votes were taken, and the time counted", self.approval),
            _ => assert_eq!(status.phase, ApprovalPhase::Cancelled, "{}: {:?}", self.approval, outcome.reason),
        }
    }

    /// Checks that the journal of the run has the outcome of the Approval.
    fn check_journal(&self, status: &WorkflowStatus, phase: ApprovalPhase, outcome: &Outcome) {
        let records: Vec<_> = status.steps.iter().filter(|record| record.path == "review").collect();
        assert_eq!(records.len(), 1, "{}: the gate was asked more than once", self.run);
        match &records[0].decision {
            // The journal and the Approval record a cancelled gate with different reasons.
            Some(decision) if phase == ApprovalPhase::Cancelled => assert_eq!(
                (decision.phase, decision.verdict, &decision.decided_by),
                (phase, None, &Vec::new()),
                "{}: the journal says something else",
                self.run
            ),
            Some(decision) => assert_eq!(decision, outcome, "{}: the journal says something else", self.run),
            None => assert_eq!(phase, ApprovalPhase::Cancelled, "{}: the journal knows of no decision", self.run),
        }
        // The step after the gate ran if and only if the gate was approved.
        let has_acted = status.steps.iter().any(|record| record.path == "act");
        assert_eq!(has_acted, phase == ApprovalPhase::Approved, "{}", self.run);
    }
}

/// Checks all gates of one kind of race when their runs are over. Returns the number of Approvals in each phase.
async fn check_gates(race: &Race, gates: &[Gate]) -> BTreeMap<ApprovalPhase, usize> {
    let mut phases = BTreeMap::new();
    for gate in gates {
        let run = race.runs.wait_for_end(&gate.run).await;
        let has_outcome = |approval: Option<&Approval>| {
            approval.is_some_and(|approval| approval.status.as_ref().is_some_and(|status| status.outcome.is_some()))
        };
        let approval = race.runs.until(race.runs.api::<Approval>(), &gate.approval, "is decided", has_outcome).await;
        gate.check_votes(&approval);
        let status = approval.status.unwrap();
        *phases.entry(status.phase).or_default() += 1;
        gate.check_journal(&run.status.unwrap(), status.phase, &status.outcome.unwrap());
        check_events(race, gate, status.phase).await;
    }
    phases
}

/// Checks that no Event of the Approval names another end than its phase.
async fn check_events(race: &Race, gate: &Gate, phase: ApprovalPhase) {
    for end in ["Approved", "Rejected", "Aborted", "Expired", "Cancelled"] {
        let count = race.runs.events(&gate.approval, end).await.len();
        assert!(
            count <= usize::from(end == phase.name()),
            "{}: {count} Events say {end}, and it is {phase:?}",
            gate.approval
        );
    }
}

async fn run_gates(race: &Race, prefix: &str, meanwhile: impl AsyncFn(&Approval) + Copy) -> Vec<Gate> {
    let gates = (0..GATES).map(|n| {
        let name = format!("{prefix}-{n}");
        async move { race.run(&name, meanwhile).await }
    });
    futures::stream::iter(gates).buffer_unordered(CONCURRENT_RUNS).collect().await
}

#[tokio::test]
async fn votes_against_each_other_have_one_outcome() {
    let race = Race::new("race-votes").await;
    let gates = run_gates(&race, "vote", async |_| {}).await;
    let phases = check_gates(&race, &gates).await;
    assert!(
        phases.keys().all(|phase| matches!(phase, ApprovalPhase::Approved | ApprovalPhase::Rejected)),
        "{phases:?}"
    );
}

#[tokio::test]
async fn votes_against_the_clock_have_one_outcome() {
    let race = Race::new("race-clock").await;
    let gates = futures::stream::iter(0..2 * GATES).map(|n| {
        let race = &race;
        async move {
            let crowd = json!([{"kind": "Group", "name": "crowd"}]);
            let name = format!("clock-{n}");
            // The timeout is longer than a busy API server takes to create an Approval, because a gate that asks late
            // asks again.
            race.runs.request(&name, json!({"approvers": crowd, "timeout": {"after": "8s", "action": "Abort"}})).await;
            let approval = race.runs.wait_for_gate(&name).await;
            let left = approval.spec.request.deadline.timestamp().duration_since(jiff::Timestamp::now());
            // The votes begin at most half a second before or after the deadline, so that gates expire while votes are
            // in flight.
            let around = left + jiff::SignedDuration::from_millis(20 * (n as i64 - GATES as i64));
            tokio::time::sleep(Duration::try_from(around).unwrap_or_default()).await;
            let answers = race.vote_by_all(&approval.name_any()).await;
            Gate { run: name, approval: approval.name_any(), answers }
        }
    });
    let gates: Vec<Gate> = gates.buffer_unordered(2 * CONCURRENT_RUNS).collect().await;
    let phases = check_gates(&race, &gates).await;
    assert!(phases.contains_key(&ApprovalPhase::Expired), "nobody was too late: {phases:?}");
    assert!(phases.keys().any(|phase| *phase != ApprovalPhase::Expired), "every vote was too late: {phases:?}");
}

#[tokio::test]
async fn votes_against_a_cancellation_have_one_outcome() {
    let race = Race::new("race-cancel").await;
    let workflows = race.runs.api_as::<Workflow>("dana").await;
    let cancel = async |approval: &Approval| {
        let patch = Patch::Merge(json!({"spec": {"cancel": true}}));
        workflows.patch(&approval.spec.request.workflow.name, &PatchParams::default(), &patch).await.unwrap();
    };
    let gates = run_gates(&race, "cancel", &cancel).await;
    check_gates(&race, &gates).await;
}

#[tokio::test]
async fn votes_against_a_deletion_have_at_most_one_outcome() {
    let race = Race::new("race-delete").await;
    let approvals: Api<Approval> = race.runs.api();
    let from = approvals.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let workflows = race.runs.api_as::<Workflow>("dana").await;
    let delete = async |approval: &Approval| {
        workflows.delete(&approval.spec.request.workflow.name, &DeleteParams::background()).await.unwrap();
    };
    let gates = run_gates(&race, "delete", &delete).await;
    // The watch sends every version of every Approval, up to the deletion.
    let mut versions: BTreeMap<String, Approval> = BTreeMap::new();
    let mut gone = BTreeSet::new();
    let mut watch = std::pin::pin!(approvals.watch(&WatchParams::default().timeout(120), &from).await.unwrap());
    while gone.len() < gates.len() {
        let event =
            tokio::time::timeout(Duration::from_secs(60), watch.next()).await.expect("they were never collected");
        match event.unwrap().unwrap() {
            WatchEvent::Added(approval) | WatchEvent::Modified(approval) => {
                let outcome = |approval: &Approval| approval.status.as_ref().and_then(|status| status.outcome.clone());
                let name = approval.name_any();
                if let Some(before) = versions.get(&name).and_then(outcome) {
                    assert_eq!(outcome(&approval), Some(before), "{name}: the outcome changed");
                }
                versions.insert(name, approval);
            }
            WatchEvent::Deleted(approval) => {
                gone.insert(approval.name_any());
            }
            other => panic!("{other:?}"),
        }
    }
    for gate in &gates {
        gate.check_votes(&versions[&gate.approval]);
    }
}
