//! `doctor --upgrade`: the votes that an upgrade to the version of this plugin would void.
//!
//! ```text
//! rules in the cluster (I/O) -> open Approvals (I/O) -> page (pure)
//! ```

use signoff_admission::{Inspection, State};
use signoff_review::seen::{Seen, still_open};

use crate::{client::Session, doctor::Found, error::Failure, sanitize::one_line, wrap::wrapped};

/// The most Approvals and objects that are listed.
const MOST: usize = 20;

/// Says how many votes an upgrade to the version of this plugin would void, and which.
pub async fn report(session: &Session, inspection: Result<Inspection, Failure>) -> Found {
    let inspection = match inspection {
        Ok(inspection) => inspection,
        Err(failure) => return Found { page: String::new(), problem: Some(failure) },
    };
    let changes = changes(&inspection);
    if changes.is_empty() {
        return Found { page: page(&changes, &[]), problem: None };
    }
    match session.list(true, &still_open()).await {
        Ok((open, unreadable)) => {
            let voted: Vec<_> = open.into_iter().filter(|seen| !seen.approval.spec.decisions.is_empty()).collect();
            let unreadable: String = unreadable.iter().map(|why| wrapped(0, why)).collect();
            Found { page: page(&changes, &voted) + &unreadable, problem: problem(&voted) }
        }
        Err(failure) => Found { page: page(&changes, &[]), problem: Some(failure) },
    }
}

/// Returns the objects of the guard that the upgrade changes, by kind and name.
fn changes(inspection: &Inspection) -> Vec<String> {
    let changed = inspection.objects.iter().filter(|object| matches!(object.state, State::Differs(_) | State::Missing));
    changed.map(|object| format!("{} {}", object.kind, one_line(&object.name, 253))).collect()
}

fn votes(voted: &[Seen]) -> usize {
    voted.iter().map(|seen| seen.approval.spec.decisions.len()).sum()
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn problem(voted: &[Seen]) -> Option<Failure> {
    let what =
        format!("an upgrade would void {} of {}", count(votes(voted), "vote"), count(voted.len(), "open Approval"));
    (!voted.is_empty()).then_some(Failure::Other(what))
}

/// Renders the page. `voted`: the open Approvals with votes, if the upgrade changes anything.
fn page(changes: &[String], voted: &[Seen]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if changes.is_empty() {
        let text = format!(
            "The rules of kubectl-approve {version} are those that are in force: an upgrade to this version voids no vote."
        );
        return wrapped(0, &text);
    }
    let (shown, more) = changes.split_at(changes.len().min(MOST));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let mut page = wrapped(
        0,
        &format!(
            "An upgrade to the rules of kubectl-approve {version} changes {}: {}{more}.",
            count(changes.len(), "object"),
            shown.join(", ")
        ),
    );
    if voted.is_empty() {
        return page + &wrapped(0, "No open Approval has a vote, so it voids none.");
    }
    let consequence = format!(
        "It voids {} of {}. Their gates ask again, with the time that is left, and name the earlier voters:",
        count(votes(voted), "vote"),
        count(voted.len(), "open Approval")
    );
    page.push_str(&wrapped(0, &consequence));
    for seen in voted.iter().take(MOST) {
        let metadata = &seen.approval.metadata;
        let names = signoff_engine::approval::voided(&seen.approval).unwrap_or_default();
        let (namespace, name) = (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref());
        let line = format!("{namespace}/{}: {names}", name.unwrap_or_default());
        page.push_str(&wrapped(2, &one_line(&line, 1000)));
    }
    if voted.len() > MOST {
        page.push_str(&format!("  and {} more\n", voted.len() - MOST));
    }
    page + &wrapped(0, "Upgrade when these gates are decided, or tell the voters to decide again.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_admission::Object;
    use signoff_api::{Decision, Verdict};

    use super::*;
    use crate::sample;

    fn voted(namespace: &str, users: &[&str]) -> Seen {
        let mut approval = sample::approval();
        approval.metadata.namespace = Some(namespace.to_owned());
        for user in users {
            approval.spec.decisions.insert((*user).to_owned(), Decision::new(Verdict::Approve));
        }
        Seen { raw: serde_json::to_value(&approval).unwrap(), approval }
    }

    #[test]
    fn the_votes_that_an_upgrade_voids_are_counted_and_named() {
        let objects = vec![
            Object { kind: "CustomResourceDefinition", name: "approvals.signoff.dev".into(), state: State::Missing },
            Object { kind: "CustomResourceDefinition", name: "blobs.signoff.dev".into(), state: State::AsShipped },
        ];
        let changes = changes(&Inspection { objects, ..Inspection::default() });
        assert_eq!(changes, ["CustomResourceDefinition approvals.signoff.dev"]);
        let all = [voted("finance", &["alice", "bob"]), voted("ops", &["carol"])];
        let text = page(&changes, &all).split_whitespace().collect::<Vec<_>>().join(" ");
        let name = all[0].approval.metadata.name.clone().unwrap();
        for words in [
            "changes 1 object: CustomResourceDefinition approvals.signoff.dev.",
            "It voids 3 votes of 2 open Approvals.",
            &format!("finance/{name}: alice (Approve), bob (Approve)"),
            &format!("ops/{name}: carol (Approve)"),
        ] {
            assert!(text.contains(words), "{text}");
        }
        assert!(matches!(problem(&all), Some(Failure::Other(why)) if why.contains("would void 3 votes")));
    }

    #[test]
    fn an_upgrade_that_changes_nothing_or_meets_no_vote_voids_none() {
        assert!(page(&[], &[]).split_whitespace().collect::<Vec<_>>().join(" ").contains("voids no vote"));
        let changed = vec!["CustomResourceDefinition approvals.signoff.dev".to_owned()];
        assert!(page(&changed, &[]).contains("No open Approval has a vote, so it voids none.\n"));
        assert!(problem(&[]).is_none());
    }
}
