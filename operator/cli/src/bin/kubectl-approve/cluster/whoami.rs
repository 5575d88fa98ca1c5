//! `whoami`: the user's name and groups as the API server sees them, and the Approvals that they may decide.
//!
//! RBAC and the gates are checked again when a decision is sent.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
};
use signoff_api::GROUP;
use signoff_cli::sanitize::one_line;
use signoff_engine::approval::eligibility::ineligible;
use signoff_review::{clock, seen::still_open, voter::Me};

use super::client::Session;
use crate::{error::Failure, output::OutputArgs};

/// The verbs that RBAC allows a user in one namespace.
struct Powers {
    approve: bool,
    grant: bool,
    delegate: Delegate,
}

/// The people on whose behalf the user can decide.
#[derive(Debug, PartialEq, Eq)]
enum Delegate {
    NoUser,
    AnyUser,
    Users(Vec<String>),
}

/// Returns the page about the user, or the API server's review in the chosen format.
///
/// # Errors
/// A request fails.
pub async fn whoami(session: &Session, output: &OutputArgs) -> Result<String, Failure> {
    if output.output.is_some() {
        // As `kubectl auth whoami -o` prints it.
        let review = session.ask(SelfSubjectReview::default()).await?;
        let review = serde_json::to_value(review).map_err(|error| Failure::Other(error.to_string()))?;
        if let Some(text) = output.render(review)? {
            return Ok(text);
        }
    }
    let fields = still_open();
    let (me, approve, grant, delegate) = tokio::try_join!(
        session.me(),
        is_allowed(session, "approve"),
        is_allowed(session, "grant"),
        fetch_delegate(session)
    )?;
    let powers = Powers { approve, grant, delegate };
    // Users who cannot list Approvals still see who they are.
    let waiting = session.list(false, &fields).await;
    let waiting = waiting.map(|(found, _)| {
        found.iter().filter(|seen| ineligible(&seen.approval, &me.voter(), clock::now()).is_none()).count()
    });
    let list = session.call.kubectl(Some(&session.namespace), &["approve", "list"]);
    Ok(render_page(&me, &session.namespace, &powers, waiting, &list))
}

/// Renders the page. `list`: the command that lists the waiting Approvals.
fn render_page(me: &Me, namespace: &str, powers: &Powers, waiting: Result<usize, Failure>, list: &str) -> String {
    let groups = me.groups.iter().map(|group| one_line(group, 253)).collect::<Vec<_>>().join(", ");
    let approve = if powers.approve {
        "gates that list you, by name or by group"
    } else {
        "nothing: you lack the RBAC verb approve on approvals.signoff.dev"
    };
    let mut lines = vec![
        ("User:", one_line(&me.user, 253)),
        ("Groups:", if groups.is_empty() { "(none)".into() } else { groups }),
        ("Namespace:", one_line(namespace, 63)),
        ("May decide:", approve.to_owned()),
    ];
    match &powers.delegate {
        Delegate::NoUser => {}
        Delegate::AnyUser => lines.push(("On behalf of:", "everybody".into())),
        Delegate::Users(people) => {
            lines.push(("On behalf of:", people.iter().map(|name| one_line(name, 253)).collect::<Vec<_>>().join(", ")))
        }
    }
    if powers.grant {
        lines.push(("May grant:", "standing approvals".into()));
    }
    lines.push((
        "Waiting:",
        match waiting {
            Ok(0) => "no approval for you".to_owned(),
            Ok(1) => format!("1 approval for you ({list})"),
            Ok(count) => format!("{count} approvals for you ({list})"),
            Err(failure) => failure.to_string(),
        },
    ));
    lines.iter().map(|(label, text)| format!("{label:<14}{text}\n")).collect()
}

async fn is_allowed(session: &Session, verb: &str) -> Result<bool, Failure> {
    let attributes = ResourceAttributes {
        group: Some(GROUP.to_owned()),
        resource: Some("approvals".to_owned()),
        namespace: Some(session.namespace.clone()),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() };
    let answer = session.ask(SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() }).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn fetch_delegate(session: &Session) -> Result<Delegate, Failure> {
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(session.namespace.clone()) };
    let answer = session.ask(SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() }).await?;
    Ok(delegate_by_rules(answer.status.map(|status| status.resource_rules).unwrap_or_default().as_slice()))
}

/// Returns the people on whose behalf these RBAC rules let the user decide: the verb `delegate` on `people`, by name.
fn delegate_by_rules(rules: &[ResourceRule]) -> Delegate {
    let holds = |list: Option<&Vec<String>>, word: &str| {
        list.is_some_and(|list| list.iter().any(|item| item == word || item == "*"))
    };
    let mut people = Vec::new();
    for rule in rules {
        let verbs = holds(Some(&rule.verbs), "delegate");
        if !(verbs && holds(rule.api_groups.as_ref(), GROUP) && holds(rule.resources.as_ref(), "people")) {
            continue;
        }
        match &rule.resource_names {
            Some(names) if !names.is_empty() => people.extend(names.iter().cloned()),
            _ => return Delegate::AnyUser,
        }
    }
    people.sort();
    people.dedup();
    if people.is_empty() { Delegate::NoUser } else { Delegate::Users(people) }
}

#[cfg(test)]
mod tests {
    use signoff_review::sample;

    use super::*;
    fn rule(verbs: &[&str], resources: &[&str], names: &[&str]) -> ResourceRule {
        let owned = |list: &[&str]| list.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
        ResourceRule {
            api_groups: Some(vec![GROUP.to_owned()]),
            resource_names: (!names.is_empty()).then(|| owned(names)),
            resources: Some(owned(resources)),
            verbs: owned(verbs),
        }
    }

    #[test]
    fn a_user_decides_on_behalf_of_the_people_that_rbac_names() {
        assert_eq!(delegate_by_rules(&[rule(&["approve"], &["approvals"], &[])]), Delegate::NoUser);
        let named = [rule(&["delegate"], &["people"], &["bob", "alice"]), rule(&["*"], &["people"], &["bob"])];
        assert_eq!(delegate_by_rules(&named), Delegate::Users(vec!["alice".into(), "bob".into()]));
        assert_eq!(delegate_by_rules(&[rule(&["*"], &["*"], &[])]), Delegate::AnyUser);
    }

    #[test]
    fn the_page_lists_the_user_the_groups_and_the_rights() {
        let me = sample::me("alice@example.com", &["finance", "system:authenticated"]);
        let powers = Powers { approve: true, grant: false, delegate: Delegate::Users(vec!["bob@example.com".into()]) };
        assert_eq!(
            render_page(&me, "finance", &powers, Ok(2), "kubectl approve list -n finance"),
            "User:         alice@example.com\n\
             Groups:       finance, system:authenticated\n\
             Namespace:    finance\n\
             May decide:   gates that list you, by name or by group\n\
             On behalf of: bob@example.com\n\
             Waiting:      2 approvals for you (kubectl approve list -n finance)\n"
        );
    }
}
