//! The gates for which the runs of a namespace wait: for `doctor -n NAMESPACE [NAME]`.
//!
//! ```text
//! objects (I/O) -> rights of the approvers (I/O) -> page (pure)
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};
use signoff_api::{
    Approval, Code, Moment, Workflow, conditions,
    gate::{Subject, SubjectKind},
    workflow::WorkflowPhase,
};
use signoff_cli::sanitize::{one_line, quoted};
use signoff_engine::approval::progress;
use signoff_review::{
    clock::{self, distance},
    operator_lease::OperatorState,
    quorum::{people, rules},
    request::consequence,
    seen::{RunNow, Seen, still_open},
};

use super::{
    deciders::{Deciders, Right},
    rbac::Rbac,
};
use crate::{
    args::Named,
    cluster::{client::Session, names},
    error::Failure,
    output::wrap::wrap,
};

/// The most runs and gates on the page.
const MOST: usize = 20;
/// The phases of a run that has not ended.
const OPEN: [WorkflowPhase; 4] =
    [WorkflowPhase::Pending, WorkflowPhase::Running, WorkflowPhase::Waiting, WorkflowPhase::Suspended];

/// The field selector of the runs that have not ended.
pub const NOT_ENDED: &str =
    "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Rejected,status.phase!=Aborted,status.phase!=Cancelled";

/// The page, and the problems on it.
#[derive(Debug, Default)]
pub struct WaitingReport {
    /// The text for people.
    pub page: String,
    /// The problems, as sentences without a full stop.
    pub problems: Vec<String>,
}

/// A run: its name and its state.
struct Run {
    name: String,
    now: RunNow,
}

/// Reports what the named Workflow or Approval waits for, or everything in the namespace.
///
/// # Errors
/// A request fails, or no Workflow and no Approval has this name.
pub async fn report(
    session: &Session,
    named: Option<&Named>,
    operator: &OperatorState,
) -> Result<WaitingReport, Failure> {
    let (runs, gates) = match named {
        Some(named) => find(session, named).await?,
        None => find_all(session).await?,
    };
    let namespace = one_line(&session.namespace, 63);
    let mut report = WaitingReport::default();
    if runs.is_empty() && gates.is_empty() {
        report.page = format!("Nothing waits in the namespace {namespace}.\n");
        return Ok(report);
    }
    for run in runs.iter().take(MOST) {
        report.page.push_str(&render_run(run, operator));
    }
    let rbac = if gates.is_empty() { Err(String::new()) } else { Rbac::read(session.raw(), &session.namespace).await };
    for seen in gates.iter().take(MOST) {
        let gate = Gate::read(session, &rbac, &seen.approval).await;
        report.page.push_str(&gate.render(clock::now()));
        report.problems.extend(gate.find_problem());
    }
    let more = (runs.len().saturating_sub(MOST), gates.len().saturating_sub(MOST));
    if more != (0, 0) {
        report.page.push_str(&render_rest(more.0, more.1));
    }
    Ok(report)
}

/// Returns the line about the runs and gates that the page leaves out.
fn render_rest(runs: usize, gates: usize) -> String {
    let count = |count: usize, what: &str| {
        (count > 0).then(|| format!("{count} more {what}{}", if count == 1 { "" } else { "s" }))
    };
    let counts: Vec<_> = [count(runs, "run"), count(gates, "gate")].into_iter().flatten().collect();
    format!("and {}; name one of them\n", counts.join(" and "))
}

/// Fetches the named Workflow with its open gates, or the named Approval. A name without a kind is an Approval's, or
/// else a Workflow's.
async fn find(session: &Session, named: &Named) -> Result<(Vec<Run>, Vec<Seen>), Failure> {
    let no_approval = match named {
        Named::Workflow(_) => None,
        Named::Approval(name) | Named::Either(name) => match session.approval(name).await {
            Ok(seen) => return Ok((Vec::new(), vec![seen])),
            Err(Failure::NotFound(why)) => Some(why),
            Err(other) => return Err(other),
        },
    };
    let (Named::Workflow(name) | Named::Either(name)) = named else {
        return Err(Failure::NotFound(no_approval.unwrap_or_default()));
    };
    let found = match workflows(session).get(name).await.map_err(|error| session.explain(error)) {
        Ok(found) => found,
        Err(Failure::NotFound(_)) if no_approval.is_some() => {
            return Err(Failure::NotFound(format!(
                "{}: no Workflow and no Approval of the namespace {} has this name; kubectl get workflows,approvals -n {1}",
                one_line(name, 253),
                one_line(&session.namespace, 63)
            )));
        }
        Err(Failure::NotFound(why)) => return Err(Failure::NotFound(why + &suggest_name(session, name).await)),
        Err(other) => return Err(other),
    };
    let (open, _) = session.list(false, &still_open()).await?;
    let of_run = |seen: &Seen| seen.approval.spec.request.workflow.name == *name;
    Ok((vec![run(found)], open.into_iter().filter(of_run).collect()))
}

/// Returns the end of a message about a missing Workflow: the command about an Approval of this name, or the run that
/// was perhaps meant.
async fn suggest_name(session: &Session, name: &str) -> String {
    match session.approval(name).await {
        Ok(_) => {
            let command = session.call.kubectl(Some(&session.namespace), &["approve", "doctor", name]);
            format!("; an Approval has this name: {command}")
        }
        Err(_) => names::nearest_run(session, name).await,
    }
}

/// Fetches the runs of the namespace that have not ended, and the open gates, soonest deadline first. Leaves out runs
/// that only wait for gates.
async fn find_all(session: &Session) -> Result<(Vec<Run>, Vec<Seen>), Failure> {
    let (mut open, _) = session.list(false, &still_open()).await?;
    open.sort_by_cached_key(|seen| (seen.approval.deadline(), seen.approval.metadata.name.clone()));
    let found = workflows(session).list(&ListParams::default().limit(500).fields(NOT_ENDED)).await;
    let found = found.map_err(|error| session.explain(error))?;
    // A run that waits for people is described by its gates.
    let only_waits = |run: &Run| run.now.phase == Some(WorkflowPhase::Waiting) && blockers(&run.now).is_empty();
    Ok((found.items.into_iter().map(run).filter(|run| !only_waits(run)).collect(), open))
}

fn workflows(session: &Session) -> Api<DynamicObject> {
    Api::namespaced_with(session.raw().clone(), &session.namespace, &ApiResource::erase::<Workflow>(&()))
}

fn run(object: DynamicObject) -> Run {
    Run { name: object.metadata.name.clone().unwrap_or_default(), now: RunNow::of(object) }
}

/// Returns the conditions that tell why a run does not continue.
fn blockers(now: &RunNow) -> Vec<&Condition> {
    let is_blocker = |condition: &&Condition| match condition.type_.as_str() {
        conditions::ACCEPTED | conditions::GUARDED => condition.status == "False",
        conditions::WAITING | conditions::FINISHED | conditions::COMPLETE => false,
        _ => condition.status == "True",
    };
    now.conditions.iter().filter(is_blocker).collect()
}

fn render_run(run: &Run, operator: &OperatorState) -> String {
    let phase = run.now.phase.unwrap_or_default();
    let mut page = format!("Workflow {}: {}\n", one_line(&run.name, 63), phase.name());
    let blockers = blockers(&run.now);
    for Condition { type_, status, reason, message, .. } in blockers.iter().copied() {
        let code = Code::bracketed(Code::of_reason(reason));
        let text = format!("{type_}={status}, {reason}{code}: {message}");
        page.push_str(&wrap(2, &one_line(&text, 1200)));
    }
    if OPEN.contains(&phase) && operator.is_gone() {
        page.push_str(&wrap(2, &format!("it does not continue: {operator}")));
    } else if blockers.is_empty() && phase == WorkflowPhase::Pending {
        page.push_str("  the operator has not reconciled it yet\n");
    } else if phase == WorkflowPhase::Suspended {
        page.push_str("  its spec.suspend is true: set it to false to continue\n");
    }
    page
}

/// A gate with the rights of its approvers.
struct Gate<'a> {
    approval: &'a Approval,
    /// For each quorum, the approvers with their rights.
    quorums: Vec<Vec<(&'a Subject, Right)>>,
    /// For each quorum, the groups of `requiredFrom` that still need votes: name, number of votes, and right.
    missing: Vec<Vec<(String, i32, Right)>>,
    /// The subjects that are bound to `approve`, if they can be read.
    bound: Option<String>,
}

impl<'a> Gate<'a> {
    async fn read(session: &Session, rbac: &Result<Rbac, String>, approval: &'a Approval) -> Self {
        let name = approval.metadata.name.as_deref().unwrap_or_default();
        let mut deciders = Deciders::new(session, rbac, name);
        let mut quorums = Vec::new();
        for (index, quorum) in approval.spec.request.quorums.iter().enumerate() {
            let approvers = if index == 0 { approval.approvers() } else { quorum.approvers.as_slice() };
            let mut rights = Vec::new();
            for approver in approvers {
                rights.push((approver, deciders.find_right(approver).await));
            }
            quorums.push(rights);
        }
        let mut missing = Vec::new();
        for progress in progress(approval) {
            let mut rights = Vec::new();
            for (group, left) in progress.missing {
                let right = deciders.find_right(&Subject::group(&group)).await;
                rights.push((group, left, right));
            }
            missing.push(rights);
        }
        Self { approval, quorums, missing, bound: deciders.bound_subjects() }
    }

    fn name(&self) -> String {
        one_line(self.approval.metadata.name.as_deref().unwrap_or_default(), 253)
    }

    fn is_open(&self) -> bool {
        !self.approval.status.as_ref().is_some_and(|status| status.phase.is_end())
    }

    fn render(&self, now: Moment) -> String {
        let request = &self.approval.spec.request;
        let status = self.approval.status.clone().unwrap_or_default();
        let mut page = wrap(
            0,
            &format!(
                "Approval {}: {} (Workflow {}, gate {})",
                self.name(),
                status.phase.name(),
                one_line(&request.workflow.name, 63),
                one_line(&request.gate.path, 200)
            ),
        );
        if !self.is_open() {
            page.push_str("  it has ended: nothing waits for it\n");
            return page;
        }
        let progress = progress(self.approval);
        let quorums = request.quorums.iter().zip(&self.quorums).zip(&self.missing).zip(progress);
        for (((quorum, rights), missing), progress) in quorums {
            let so_far = status.tally.map(|_| format!(" ({} of {} so far)", progress.have, progress.needed));
            let so_far = so_far.unwrap_or_default();
            let source = one_line(&quorum.source, 253);
            let needed = format!("{}{}", people(quorum.threshold), rules(quorum));
            page.push_str(&wrap(2, &format!("Waits for {needed}, by {source}{so_far}. Who could decide:")));
            for (approver, right) in rights {
                page.push_str(&wrap(
                    4,
                    &format!("{}: {}", one_line(&approver.to_string(), 320), describe_right(right)),
                ));
            }
            for (group, left, right) in missing {
                let line = format!("Missing: {left} of group {}: {}", one_line(group, 253), describe_right(right));
                page.push_str(&wrap(4, &line));
            }
            if progress.have < progress.needed && status.tally.is_some() {
                page.push_str(&format!("    Missing: {} more\n", people(progress.needed - progress.have)));
            }
        }
        if !request.excluded.is_empty() {
            page.push_str(&wrap(2, &format!("Excluded: {}", one_line(&request.excluded.join(", "), 1000))));
        }
        if let Some(bound) = &self.bound {
            page.push_str(&wrap(2, &format!("Bound to approve in this namespace: {bound}")));
        }
        page.push_str(&self.render_remedy());
        let deadline = self.approval.deadline();
        let after = consequence(request, &status);
        let when = format!("Deadline: {} ({}); after that {after}", deadline.ceil_to_second(), distance(deadline, now));
        page + &wrap(2, &when)
    }

    /// Returns the approvers of a quorum in which certainly no approver can decide, or `None`.
    fn blocked_quorum(&self) -> Option<&[(&'a Subject, Right)]> {
        let is_missing = |(_, right): &(&Subject, Right)| matches!(right, Right::Missing(_));
        let is_blocked = |rights: &&Vec<(&Subject, Right)>| !rights.is_empty() && rights.iter().all(is_missing);
        self.quorums.iter().find(is_blocked).map(Vec::as_slice).filter(|_| self.is_open())
    }

    /// Returns why votes cannot decide the gate, or `None` if that is not certain.
    fn find_problem(&self) -> Option<String> {
        let without_approver = self
            .blocked_quorum()
            .map(|_| format!("no binding grants the verb approve to an approver of {}", self.name()));
        without_approver
            .or_else(|| self.find_unmet_group())
            .or_else(|| self.find_user_shortage())
            .filter(|_| self.is_open())
    }

    /// Returns the problem that a group of `requiredFrom` has no right to decide, or `None`.
    fn find_unmet_group(&self) -> Option<String> {
        let quorums = self.approval.spec.request.quorums.iter().zip(&self.missing);
        let mut missing = quorums.flat_map(|(quorum, missing)| missing.iter().map(move |group| (quorum, group)));
        let (quorum, (group, left, _)) = missing.find(|(_, (_, _, right))| matches!(right, Right::Missing(_)))?;
        let min = quorum
            .required_from
            .iter()
            .find(|required| required.group == *group)
            .map_or(*left, |required| required.min);
        let (group, name) = (one_line(group, 253), self.name());
        Some(format!("{name} takes {min} of group {group}, and no binding grants the verb approve to that group"))
    }

    /// Returns the problem that a quorum of users needs more votes than it has users who can decide, or `None`.
    fn find_user_shortage(&self) -> Option<String> {
        let voted = |user: &String| {
            self.approval.status.as_ref().is_some_and(|status| status.votes.iter().any(|vote| vote.user == *user))
        };
        let quorums = self.approval.spec.request.quorums.iter().zip(&self.quorums);
        quorums.into_iter().find_map(|(quorum, rights)| {
            let able = rights.iter().filter(|(user, right)| !matches!(right, Right::Missing(_)) || voted(&user.name));
            let able: Vec<_> = able.map(|(user, _)| *user).collect();
            let are_users = able.iter().all(|user| user.kind != SubjectKind::Group);
            (are_users && able.len() < quorum.needed()).then(|| {
                let (source, name) = (one_line(&quorum.source, 253), self.name());
                format!(
                    "{name} takes {} by {source}, and bindings of the verb approve cover {} of its approvers",
                    people(quorum.threshold),
                    able.len()
                )
            })
        })
    }

    /// Returns the lines with the command that binds the first approver without the right.
    fn render_remedy(&self) -> String {
        let Some((approver, _)) = self.blocked_quorum().and_then(<[_]>::first) else { return String::new() };
        let namespace = self.approval.metadata.namespace.as_deref().unwrap_or_default();
        let (flag, name) = match (approver.kind, &approver.namespace) {
            (SubjectKind::User, _) => ("--user", approver.name.clone()),
            (SubjectKind::Group, _) => ("--group", approver.name.clone()),
            (SubjectKind::ServiceAccount, namespace) => {
                ("--serviceaccount", format!("{}:{}", namespace.as_deref().unwrap_or_default(), approver.name))
            }
        };
        let bind = ["kubectl", "create", "rolebinding", "further-approvers", "--clusterrole", "signoff-approver"];
        let bind = quoted(&[&bind[..], &[flag, &name, "-n", namespace]].concat());
        wrap(2, "If the name is misspelt: cancel the run, correct the gate, and create the run again.")
            + &format!("  If it is right, bind it:\n    {bind}\n")
    }
}

fn describe_right(right: &Right) -> String {
    match right {
        Right::Granted(binding) => format!("may approve, by {}", one_line(binding, 600)),
        Right::Allowed => "may approve, says the API server".to_owned(),
        Right::Users(1) => "unknown: 1 user is bound, who may be a member".to_owned(),
        Right::Users(users) => format!("unknown: {users} users are bound, who may be members"),
        Right::Perhaps(groups) => {
            format!("no binding names this user; may approve as a member of a bound group ({})", groups.join(", "))
        }
        Right::Groups(groups) => {
            format!("unknown: no binding names this group; its members may be in a bound group ({})", groups.join(", "))
        }
        Right::Missing(Some(near)) => {
            format!("NO binding of the verb approve covers it; is {} meant?", one_line(near, 320))
        }
        Right::Missing(None) => "NO binding of the verb approve covers it".to_owned(),
        Right::Unknown(why) => format!("whether a binding covers it is unknown: {}", one_line(why, 300)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use serde_json::json;
    use signoff_api::gate::RequiredFrom;
    use signoff_review::sample;

    use super::*;

    fn gate(approval: &Approval, right: impl Fn(&Subject) -> Right) -> Gate<'_> {
        let rights = approval.approvers().iter().map(|approver| (approver, right(approver))).collect();
        Gate {
            approval,
            quorums: vec![rights],
            missing: vec![Vec::new()],
            bound: Some("Group finance (RoleBinding approvers of finance)".into()),
        }
    }

    #[test]
    fn a_gate_whose_approvers_are_bound_nowhere_is_a_problem_with_a_remedy() {
        let mut approval = sample::approval();
        approval.spec.request.quorums[0].approvers = vec![Subject::group("finanec")];
        let gate = gate(&approval, |_| Right::Missing(Some("Group finance".into())));
        let name = approval.metadata.name.clone().unwrap();
        assert_eq!(
            gate.find_problem().unwrap(),
            format!("no binding grants the verb approve to an approver of {name}")
        );
        assert_eq!(
            gate.render(sample::now()),
            format!(
                "Approval {name}: Pending (Workflow refund-4711, gate\n  review)\n\
                 \x20 Waits for 1 person, by gate review. Who could decide:\n\
                 \x20   group finanec: NO binding of the verb approve covers it; is Group finance\n\
                 \x20     meant?\n\
                 \x20 Bound to approve in this namespace: Group finance (RoleBinding approvers of\n\
                 \x20   finance)\n\
                 \x20 If the name is misspelt: cancel the run, correct the gate, and create the run\n\
                 \x20   again.\n\
                 \x20 If it is right, bind it:\n\
                 \x20   kubectl create rolebinding further-approvers --clusterrole signoff-approver --group finanec -n finance\n\
                 \x20 Deadline: 2026-11-23T09:30:00Z (in 23h); after that it counts as rejected\n"
            )
        );
    }

    #[test]
    fn a_gate_with_an_approver_who_is_or_may_be_bound_is_no_problem() {
        let approval = sample::approval();
        for right in [
            Right::Granted("RoleBinding approvers of finance (ClusterRole signoff-approver)".into()),
            Right::Allowed,
            Right::Perhaps(vec!["finance".into()]),
            Right::Users(5),
            Right::Groups(vec!["finance".into()]),
            Right::Unknown("you cannot list rolebindings".into()),
        ] {
            let right_of =
                |approver: &Subject| if approver.name == "finance" { Right::Missing(None) } else { right.clone() };
            let gate = gate(&approval, right_of);
            assert_eq!(gate.find_problem(), None, "{right:?}");
            assert!(!gate.render(sample::now()).contains("create rolebinding"), "{right:?}");
        }
        let nobody = gate(&approval, |_| Right::Missing(None));
        assert!(nobody.find_problem().is_some());
    }

    #[test]
    fn a_required_group_without_a_binding_is_a_problem_unless_users_are_bound() {
        let mut approval = sample::approval();
        approval.spec.request.quorums[0].required_from = vec![RequiredFrom { group: "leads".into(), min: 1 }];
        let mut gate = gate(&approval, |_| Right::Allowed);
        gate.missing = vec![vec![("leads".to_owned(), 1, Right::Missing(None))]];
        let name = approval.metadata.name.clone().unwrap();
        assert_eq!(
            gate.find_problem().unwrap(),
            format!("{name} takes 1 of group leads, and no binding grants the verb approve to that group")
        );
        let page = gate.render(sample::now()).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("Missing: 1 of group leads: NO binding of the verb approve covers it"), "{page}");
        gate.missing = vec![vec![("leads".to_owned(), 1, Right::Users(5))]];
        assert_eq!(gate.find_problem(), None);
        assert!(gate.render(sample::now()).contains("unknown: 5 users are bound, who may be members"));
        gate.missing = vec![vec![("leads".to_owned(), 1, Right::Groups(vec!["finance".into()]))]];
        assert_eq!(gate.find_problem(), None);
        let page = gate.render(sample::now()).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("this group; its members may be in a bound group (finance)"), "{page}");
    }

    #[test]
    fn a_missing_group_is_listed_with_its_missing_votes_and_all_its_votes() {
        let mut approval = sample::approval();
        approval.spec.request.quorums[0].required_from = vec![RequiredFrom { group: "leads".into(), min: 3 }];
        let mut gate = gate(&approval, |_| Right::Allowed);
        gate.missing = vec![vec![("leads".to_owned(), 2, Right::Missing(None))]];
        let page = gate.render(sample::now()).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("Missing: 2 of group leads: NO binding"), "{page}");
        assert!(gate.find_problem().unwrap().contains("takes 3 of group leads, and no binding"));
    }

    #[test]
    fn a_quorum_with_fewer_bound_users_than_it_takes_is_a_problem() {
        let mut approval = sample::approval();
        let users = ["alice@example.com", "bob@example.com"].map(Subject::user);
        approval.spec.request.quorums[0].approvers = users.to_vec();
        approval.spec.request.quorums[0].threshold = 2;
        let only_alice =
            |approver: &Subject| if approver.name.starts_with("alice") { Right::Allowed } else { Right::Missing(None) };
        let problem = gate(&approval, only_alice).find_problem().unwrap();
        assert!(problem.contains("takes 2 people by gate review") && problem.ends_with("cover 1 of its approvers"));
        assert_eq!(gate(&approval, |_| Right::Allowed).find_problem(), None);
        approval.spec.request.quorums[0].threshold = 1;
        assert_eq!(gate(&approval, only_alice).find_problem(), None);
    }

    #[test]
    fn a_run_is_listed_with_the_reason_why_it_does_not_continue() {
        let alive = OperatorState::Unknown("no".into());
        let age = Duration::from_secs(42);
        let gone = OperatorState::Stale { holder: "operator-1".into(), age };
        let run =
            |status: serde_json::Value| Run { name: "report".into(), now: serde_json::from_value(status).unwrap() };
        let pending = run(json!({}));
        assert_eq!(
            render_run(&pending, &alive),
            "Workflow report: Pending\n  the operator has not reconciled it yet\n"
        );
        assert!(render_run(&pending, &gone).contains("no operator has renewed its Lease for 42 s"));
        let refused = run(json!({"phase": "Pending", "conditions": [
            {"type": "Accepted", "status": "False", "reason": "Invalid", "message": "spec.steps: \u{1b}[2Jbad", "lastTransitionTime": "2026-11-22T10:00:00Z"},
            {"type": "Waiting", "status": "False", "reason": "NothingPending", "message": "", "lastTransitionTime": "2026-11-22T10:00:00Z"},
        ]}));
        assert_eq!(
            render_run(&refused, &alive),
            "Workflow report: Pending\n  Accepted=False, Invalid [SO0113]: spec.steps: [2Jbad\n"
        );
    }
}
