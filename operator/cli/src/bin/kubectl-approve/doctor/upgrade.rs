//! `doctor --upgrade`: the votes that an upgrade to the version of this plugin would void, and the runs that it would
//! hold.
//!
//! ```text
//! rules in the cluster (I/O) -> open Approvals and runs (I/O) -> page (pure)
//! ```

use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};
use signoff_admission::{Inspection, State};
use signoff_api::{Workflow, WorkflowStatus, rules::RULES};
use signoff_cli::sanitize::one_line;
use signoff_review::seen::{Seen, still_open};

use super::{DoctorReport, waiting::NOT_ENDED};
use crate::{cluster::client::Session, error::Failure, output::wrap::wrap};

/// The most Approvals, runs and objects that are listed.
const MOST: usize = 20;

/// The consequences of an upgrade.
#[derive(Default)]
struct Upgrade {
    /// The objects of the admission policies that the upgrade changes, by kind and name.
    changes: Vec<String>,
    /// The open Approvals whose votes the upgrade voids. Empty if `changes` is empty.
    voted: Vec<Seen>,
    /// The open Approvals that cannot be read, each with the reason.
    unreadable: Vec<String>,
    /// The open runs that the upgrade holds, because they were accepted under another version of the rules.
    held: Vec<String>,
    /// The failures of lists that could not be read.
    unknown: Vec<Failure>,
}

/// Reports the votes that an upgrade to the version of this plugin would void, and the runs that it would hold.
pub async fn report(session: &Session, inspection: Result<Inspection, Failure>) -> DoctorReport {
    let inspection = match inspection {
        Ok(inspection) => inspection,
        Err(failure) => return DoctorReport::new(String::new(), Some(failure)),
    };
    let mut upgrade = Upgrade { changes: changed_objects(&inspection), ..Upgrade::default() };
    if !upgrade.changes.is_empty() {
        match session.list(true, &still_open()).await {
            Ok((open, unreadable)) => {
                upgrade.voted = open.into_iter().filter_map(keep_valid_votes).collect();
                upgrade.unreadable = unreadable;
            }
            Err(failure) => upgrade.unknown.push(failure),
        }
    }
    match list_held_runs(session).await {
        Ok(held) => upgrade.held = held,
        Err(failure) => upgrade.unknown.push(failure),
    }
    DoctorReport::new(upgrade.render(), upgrade.find_problem())
}

/// Returns the objects of the admission policies that the upgrade changes, by kind and name.
fn changed_objects(inspection: &Inspection) -> Vec<String> {
    let changed = inspection.objects.iter().filter(|object| matches!(object.state, State::Differs(_) | State::Missing));
    changed.map(|object| format!("{} {}", object.kind, one_line(&object.name, 253))).collect()
}

/// Returns the Approval without its invalid decisions, which count as no votes. `None` if it has no other decision.
fn keep_valid_votes(mut seen: Seen) -> Option<Seen> {
    let status = seen.approval.status.clone().unwrap_or_default();
    let is_invalid =
        |key: &String, attempt: i32| status.invalid.get(key).is_some_and(|invalid| invalid.attempt == attempt);
    seen.approval.spec.decisions.retain(|key, decision| !is_invalid(key, decision.attempt()));
    (!seen.approval.spec.decisions.is_empty()).then_some(seen)
}

/// Lists the open runs of the cluster that were accepted under another version of the rules than this plugin's.
async fn list_held_runs(session: &Session) -> Result<Vec<String>, Failure> {
    let api = Api::<DynamicObject>::all_with(session.raw().clone(), &ApiResource::erase::<Workflow>(&()));
    let mut page = ListParams::default().limit(500).fields(NOT_ENDED);
    let mut held = Vec::new();
    loop {
        let found = api.list(&page).await.map_err(|error| session.explain(error))?;
        held.extend(found.items.iter().filter_map(describe_held_run));
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(held),
        }
    }
}

/// Returns the line about a run that this version would hold, or `None`.
fn describe_held_run(run: &DynamicObject) -> Option<String> {
    let status = serde_json::from_value::<WorkflowStatus>(run.data.get("status")?.clone());
    let why = match status {
        Ok(status) => format!("accepted under the rules {}", status.other_rules()?),
        Err(why) => format!("this version cannot read its status: {why}"),
    };
    let (namespace, name) = (run.metadata.namespace.as_deref().unwrap_or_default(), run.metadata.name.as_deref());
    Some(one_line(&format!("{namespace}/{}: {why}", name.unwrap_or_default()), 600))
}

fn format_count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Renders the first items, a line each, and how many more there are.
fn render_items(items: &[String]) -> String {
    let mut page: String = items.iter().take(MOST).map(|item| wrap(2, item)).collect();
    if items.len() > MOST {
        page.push_str(&format!("  and {} more\n", items.len() - MOST));
    }
    page
}

impl Upgrade {
    fn count_votes(&self) -> usize {
        self.voted.iter().map(|seen| seen.approval.spec.decisions.len()).sum()
    }

    /// Returns the failure of the command, or `None` if everything could be read, and the upgrade voids no vote and
    /// holds no run.
    fn find_problem(&self) -> Option<Failure> {
        let mut effects = Vec::new();
        if !self.voted.is_empty() {
            effects.push(format!(
                "void {} of {}",
                format_count(self.count_votes(), "vote"),
                format_count(self.voted.len(), "open Approval")
            ));
        }
        if !self.held.is_empty() {
            effects.push(format!("hold {}", format_count(self.held.len(), "run")));
        }
        let mut problems = Vec::new();
        if !effects.is_empty() {
            problems.push(format!("an upgrade would {}", effects.join(" and ")));
        }
        if !self.unreadable.is_empty() {
            problems.push(format!("{} cannot be read", format_count(self.unreadable.len(), "open Approval")));
        }
        problems.extend(self.unknown.iter().map(|failure| match failure {
            Failure::Refused(why) | Failure::Other(why) => why.clone(),
            other => other.to_string(),
        }));
        (!problems.is_empty()).then(|| Failure::Other(problems.join("; ")))
    }

    fn render(&self) -> String {
        self.render_votes() + &self.render_runs()
    }

    /// Renders the part about votes.
    fn render_votes(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        if self.changes.is_empty() {
            let text = format!(
                "The rules of kubectl-approve {version} are those that are in force: an upgrade to this version voids no vote."
            );
            return wrap(0, &text);
        }
        let (shown, more) = self.changes.split_at(self.changes.len().min(MOST));
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        let mut page = wrap(
            0,
            &format!(
                "An upgrade to the rules of kubectl-approve {version} changes {}: {}{more}.",
                format_count(self.changes.len(), "object"),
                shown.join(", ")
            ),
        );
        if self.voted.is_empty() && self.unreadable.is_empty() && self.unknown.is_empty() {
            return page + &wrap(0, "No open Approval has a vote, so it voids none.");
        }
        if !self.voted.is_empty() {
            let consequence = format!(
                "It voids {} of {}. Their gates ask again, with the time that is left, and name the earlier voters:",
                format_count(self.count_votes(), "vote"),
                format_count(self.voted.len(), "open Approval")
            );
            page.push_str(&wrap(0, &consequence));
            let line = |seen: &Seen| {
                let metadata = &seen.approval.metadata;
                let names = signoff_engine::approval::voided(&seen.approval).unwrap_or_default();
                let (namespace, name) = (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref());
                one_line(&format!("{namespace}/{}: {names}", name.unwrap_or_default()), 1000)
            };
            page.push_str(&render_items(&self.voted.iter().map(line).collect::<Vec<_>>()));
            page.push_str(&wrap(0, "Upgrade when these gates are decided, or tell the voters to decide again."));
        }
        if !self.unreadable.is_empty() {
            let text = format!(
                "{} cannot be read, so whether they have votes is unknown:",
                format_count(self.unreadable.len(), "open Approval")
            );
            page.push_str(&wrap(0, &text));
            page.push_str(&render_items(&self.unreadable));
        }
        page
    }

    /// Renders the part about runs, and a note if lists failed.
    fn render_runs(&self) -> String {
        let mut page = String::new();
        if !self.held.is_empty() {
            let text = format!(
                "It holds {} (OldRules): Workflows mean something else under the rules {RULES} of this version. Upgrade when they have ended, or cancel them and start them again:",
                format_count(self.held.len(), "open run")
            );
            page.push_str(&wrap(0, &text));
            page.push_str(&render_items(&self.held));
        }
        if !self.unknown.is_empty() {
            page.push_str(&wrap(0, "Not everything could be listed, so more votes and runs may be concerned."));
        }
        page
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_admission::Object;
    use signoff_api::{Decision, Verdict};
    use signoff_review::sample;

    use super::*;

    fn approval_with_votes(namespace: &str, users: &[&str]) -> Seen {
        let mut approval = sample::approval();
        approval.metadata.namespace = Some(namespace.to_owned());
        for user in users {
            approval.spec.decisions.insert((*user).to_owned(), Decision::new(Verdict::Approve));
        }
        Seen { raw: serde_json::to_value(&approval).unwrap(), approval }
    }

    fn policy_changes() -> Vec<String> {
        vec!["CustomResourceDefinition approvals.signoff.dev".to_owned()]
    }

    /// Returns the page with single spaces instead of line ends and indents.
    fn page_words(upgrade: &Upgrade) -> String {
        upgrade.render().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_votes_that_an_upgrade_voids_are_counted_and_named() {
        let objects = vec![
            Object { kind: "CustomResourceDefinition", name: "approvals.signoff.dev".into(), state: State::Missing },
            Object { kind: "CustomResourceDefinition", name: "blobs.signoff.dev".into(), state: State::AsShipped },
        ];
        let changes = changed_objects(&Inspection { objects, ..Inspection::default() });
        assert_eq!(changes, ["CustomResourceDefinition approvals.signoff.dev"]);
        let all = vec![approval_with_votes("finance", &["alice", "bob"]), approval_with_votes("ops", &["carol"])];
        let upgrade = Upgrade { changes, voted: all, ..Upgrade::default() };
        let text = page_words(&upgrade);
        let name = upgrade.voted[0].approval.metadata.name.clone().unwrap();
        for words in [
            "changes 1 object: CustomResourceDefinition approvals.signoff.dev.",
            "It voids 3 votes of 2 open Approvals.",
            &format!("finance/{name}: alice (Approve), bob (Approve)"),
            &format!("ops/{name}: carol (Approve)"),
        ] {
            assert!(text.contains(words), "{text}");
        }
        assert!(matches!(upgrade.find_problem(), Some(Failure::Other(why)) if why.contains("would void 3 votes")));
    }

    #[test]
    fn an_upgrade_without_changes_or_without_votes_voids_none() {
        assert!(page_words(&Upgrade::default()).contains("voids no vote"));
        let upgrade = Upgrade { changes: policy_changes(), ..Upgrade::default() };
        assert!(upgrade.render().contains("No open Approval has a vote, so it voids none.\n"));
        assert!(upgrade.find_problem().is_none());
    }

    #[test]
    fn approvals_that_cannot_be_read_or_listed_are_a_problem() {
        let unreadable =
            Upgrade { changes: policy_changes(), unreadable: vec!["approval x".into()], ..Upgrade::default() };
        let refused = Failure::Refused("you cannot list approvals".into());
        let unlisted = Upgrade { changes: policy_changes(), unknown: vec![refused], ..Upgrade::default() };
        for (upgrade, problem, sentence) in [
            (unreadable, "1 open Approval cannot be read", "whether they have votes is unknown: approval x"),
            (unlisted, "you cannot list approvals", "Not everything could be listed"),
        ] {
            assert!(matches!(upgrade.find_problem(), Some(Failure::Other(why)) if why == problem), "{problem}");
            let text = page_words(&upgrade);
            assert!(text.contains(sentence) && !text.contains("No open Approval has a vote"), "{text}");
        }
    }

    #[test]
    fn an_invalid_decision_is_no_vote() {
        let mut seen = approval_with_votes("finance", &["alice", "bob"]);
        let invalid = serde_json::json!({"alice": {"attempt": 1, "why": "no such field"}});
        seen.approval.status.get_or_insert_default().invalid = serde_json::from_value(invalid).unwrap();
        let left = keep_valid_votes(seen.clone()).unwrap();
        assert_eq!(left.approval.spec.decisions.keys().collect::<Vec<_>>(), ["bob"]);
        seen.approval.spec.decisions.remove("bob");
        assert!(keep_valid_votes(seen).is_none());
    }

    #[test]
    fn a_run_accepted_under_other_rules_is_held_without_policy_changes() {
        let run = |status: serde_json::Value| {
            let object = serde_json::json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
                "metadata": {"name": "refund", "namespace": "finance"}, "status": status});
            describe_held_run(&serde_json::from_value(object).unwrap())
        };
        let digest = format!("sha256:{}", "0".repeat(64));
        let old = run(serde_json::json!({"specDigest": digest})).unwrap();
        assert_eq!(old, "finance/refund: accepted under the rules 1");
        assert_eq!(run(serde_json::json!({"specDigest": digest, "rules": RULES})), None);
        assert_eq!(run(serde_json::json!({})), None, "it was not accepted yet");
        let upgrade = Upgrade { held: vec![old], ..Upgrade::default() };
        let text = page_words(&upgrade);
        assert!(text.contains("It holds 1 open run (OldRules)") && text.contains("finance/refund: accepted"), "{text}");
        assert!(matches!(upgrade.find_problem(), Some(Failure::Other(why)) if why == "an upgrade would hold 1 run"));
    }
}
