//! Names of Approvals as users type them: whole, `WORKFLOW/GATE`, or the beginning of a name.
//!
//! **Invariant:** a short name is expanded for a decision only where its Approval is shown and the user is asked before
//! anything is recorded. A script, and a call with `--yes`, must give the whole name, which ends with a digest of the
//! request.

use std::cmp::Reverse;

use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};
use signoff_api::{Approval, Workflow, names::is_object};
use signoff_cli::{sanitize::one_line, terminal};
use signoff_expr::nearest::did_you_mean;
use signoff_review::seen::{Seen, still_open};

use super::client::Session;
use crate::{args::WORKFLOW_KINDS, error::Failure};

/// The most open Approvals that a message lists.
const LISTED: usize = 5;
/// The most runs with which a name is compared.
const COMPARED: u32 = 500;

/// The purpose for which a short name is expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// To show the Approval.
    Everywhere,
    /// To decide the Approval.
    ToDecide {
        /// Whether `--yes` skips the question.
        yes: bool,
    },
}

impl Short {
    /// Returns the remedy if a whole name is required, or `None`.
    fn refusal(self, can_ask: bool) -> Option<&'static str> {
        match self {
            Self::ToDecide { .. } if !can_ask => Some("without a terminal write the whole name"),
            // The short name might fit another request now, and with `--yes` the user would not see which.
            Self::ToDecide { yes: true } => Some("write the whole name, or leave --yes out"),
            Self::ToDecide { yes: false } | Self::Everywhere => None,
        }
    }
}

/// Returns the whole name of an Approval: an open one, or else an ended one. For a short name, prints the Approval that
/// it fits.
///
/// # Errors
/// The name fits no Approval or several, or a whole name is required.
pub async fn expand(session: &Session, typed: &str, short: Short) -> Result<String, Failure> {
    if ends_with_digest(typed) {
        return Ok(typed.to_owned());
    }
    let open = match session.list(false, &still_open()).await {
        Ok((open, _)) => open,
        // A user who can get Approvals but not list them must write whole names.
        Err(Failure::Refused(_)) if !typed.contains('/') => return Ok(typed.to_owned()),
        Err(failure) => return Err(failure),
    };
    if open.iter().any(|seen| name(&seen.approval) == typed) {
        return Ok(typed.to_owned());
    }
    let mut matching = find_matching(typed, &open);
    let all;
    if matching.is_empty() {
        all = session.list(false, "").await?.0;
        matching = keep_newest_of_gate(find_matching(typed, &all));
    }
    let approval = match matching[..] {
        [] => return Err(not_found_failure(&session.namespace, typed, &open)),
        [approval] => approval,
        _ => return Err(ambiguous_failure(typed, &matching)),
    };
    let whole = name(approval).to_owned();
    if whole == typed {
        return Ok(whole);
    }
    let sentence = format!(
        "{} is {}, request digest {}",
        one_line(typed, 253),
        display_name(approval),
        approval.spec.request.digest
    );
    if let Some(remedy) = short.refusal(terminal::can_ask()) {
        return Err(Failure::Usage(format!("{sentence}; {remedy}")));
    }
    terminal::note(&sentence);
    Ok(whole)
}

/// Adds the open Approvals to the failure that this Approval does not exist. Returns any other failure unchanged.
pub async fn explain(session: &Session, name: &str, failure: Failure) -> Failure {
    match failure {
        Failure::NotFound(why) if why.contains(&format!("approvals.signoff.dev \"{name}\" not found")) => {
            match session.list(false, &still_open()).await {
                Ok((open, _)) => not_found_failure(&session.namespace, name, &open),
                Err(_) => Failure::NotFound(why),
            }
        }
        other => other,
    }
}

/// Adds a suggestion to the failure that one of these Workflows does not exist. Returns any other failure unchanged.
pub async fn explain_run(session: &Session, typed: &[String], failure: Failure) -> Failure {
    match failure {
        Failure::NotFound(why) => {
            let missing = |name: &&String| why.contains(&format!("workflows.signoff.dev \"{name}\" not found"));
            let hint = match typed.iter().find(missing) {
                Some(name) => nearest_run(session, name).await,
                None => String::new(),
            };
            Failure::NotFound(why + &hint)
        }
        other => other,
    }
}

/// Returns the end of a message about a missing Workflow, such as `; did you mean refund?`. Empty if no name is
/// similar, or if Workflows cannot be listed.
pub async fn nearest_run(session: &Session, typed: &str) -> String {
    let resource = ApiResource::erase::<Workflow>(&());
    let api = Api::<DynamicObject>::namespaced_with(session.raw().clone(), &session.namespace, &resource);
    let found = api.list_metadata(&ListParams::default().limit(COMPARED)).await;
    let names: Vec<String> =
        found.into_iter().flat_map(|list| list.items).filter_map(|run| run.metadata.name).collect();
    one_line(&did_you_mean(typed, names.iter().map(String::as_str)), 300)
}

/// Whether a name ends as the operator's names do: with a dash and ten hexadecimal digits.
fn ends_with_digest(typed: &str) -> bool {
    let is_hex = |digits: &str| digits.len() == 10 && digits.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    !typed.contains('/') && typed.rsplit_once('-').is_some_and(|(_, digits)| is_hex(digits))
}

/// Returns the Approvals that a short name fits. Gates with exactly this name or path exclude gates whose path only
/// begins with it.
fn find_matching<'a>(typed: &str, among: &'a [Seen]) -> Vec<&'a Approval> {
    let fits = |test: &dyn Fn(&Approval) -> bool| -> Vec<&'a Approval> {
        among.iter().map(|seen| &seen.approval).filter(|approval| test(approval)).collect()
    };
    let Some((run, gate)) = typed.split_once('/') else {
        return fits(&|approval| name(approval).starts_with(typed));
    };
    let is_of_run = |approval: &Approval| approval.spec.request.workflow.name == run;
    let exact = fits(&|approval| {
        let found = &approval.spec.request.gate;
        is_of_run(approval) && (found.path == gate || found.name == gate)
    });
    if !exact.is_empty() {
        return exact;
    }
    fits(&|approval| is_of_run(approval) && approval.spec.request.gate.path.starts_with(gate))
}

/// Keeps only the newest Approval if all belong to one gate, which has asked several times. Otherwise keeps all.
fn keep_newest_of_gate(mut found: Vec<&Approval>) -> Vec<&Approval> {
    let gate = |approval: &Approval| {
        let request = &approval.spec.request;
        (request.workflow.uid.clone(), request.gate.path.clone())
    };
    if let Some(first) = found.first().map(|approval| gate(approval))
        && found.iter().all(|approval| gate(approval) == first)
    {
        found.sort_by_key(|approval| Reverse(approval.metadata.creation_timestamp.as_ref().map(|at| at.0)));
        found.truncate(1);
    }
    found
}

/// Returns the failure that no Approval fits the name, with the most similar open Approvals, or with the command for a
/// run.
fn not_found_failure(namespace: &str, typed: &str, open: &[Seen]) -> Failure {
    let namespace = one_line(namespace, 63);
    let typed = one_line(typed, 253);
    let nearest = describe_nearest(&typed, open);
    let unnamed = open.len().saturating_sub(nearest.len());
    let more = if unnamed > 0 { format!(" and {unnamed} more (kubectl approve list --all)") } else { String::new() };
    let remedy = if let Some(run) = named_run(&typed) {
        format!(
            "{typed} is a run, and not an Approval: kubectl approve list --run {run} -n {namespace} lists its gates"
        )
    } else if nearest.is_empty() {
        format!("no approval is open in namespace {namespace}; name another with -n")
    } else {
        format!("open in namespace {namespace} are: {}{more}", nearest.join(", "))
    };
    Failure::NotFound(format!("approvals.signoff.dev \"{typed}\" not found; {remedy}"))
}

/// Returns the name of the run that was typed as kubectl prints it, such as `workflow/refund`, or `None`.
fn named_run(typed: &str) -> Option<&str> {
    let (kind, name) = typed.split_once('/')?;
    (WORKFLOW_KINDS.contains(&kind) && is_object(name)).then_some(name)
}

fn ambiguous_failure(typed: &str, found: &[&Approval]) -> Failure {
    let listed: Vec<_> = found.iter().take(LISTED).map(|approval| describe(approval)).collect();
    let more = if found.len() > LISTED { ", …" } else { "" };
    Failure::Usage(format!(
        "{} fits {} approvals: {}{more}; write more of the name",
        one_line(typed, 253),
        found.len(),
        listed.join(", ")
    ))
}

/// Describes the open Approvals whose names are most similar to the typed name, at most [`LISTED`].
fn describe_nearest(typed: &str, open: &[Seen]) -> Vec<String> {
    let likeness = |approval: &Approval| {
        let other = if typed.contains('/') { address(approval) } else { name(approval).to_owned() };
        strsim::jaro_winkler(typed, &other)
    };
    let mut rated: Vec<_> = open.iter().map(|seen| (likeness(&seen.approval), &seen.approval)).collect();
    rated.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    rated.iter().take(LISTED).map(|(_, approval)| describe(approval)).collect()
}

/// Returns the name of an Approval with its run and gate.
fn describe(approval: &Approval) -> String {
    format!("{} ({})", display_name(approval), one_line(&address(approval), 120))
}

/// Returns `WORKFLOW/GATE`.
pub fn address(approval: &Approval) -> String {
    let request = &approval.spec.request;
    format!("{}/{}", request.workflow.name, request.gate.path)
}

/// Returns the name as it is stored, to compare and to send.
fn name(approval: &Approval) -> &str {
    approval.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the name for a terminal.
fn display_name(approval: &Approval) -> String {
    one_line(name(approval), 253)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_review::sample;

    use super::*;
    fn seen(workflow: &str, gate: &str, path: &str, digest: &str) -> Seen {
        let mut approval = sample::approval();
        approval.metadata.name = Some(format!("{workflow}-{gate}-{digest}"));
        approval.spec.request.workflow.name = workflow.to_owned();
        approval.spec.request.gate.name = gate.to_owned();
        approval.spec.request.gate.path = path.to_owned();
        Seen { raw: serde_json::to_value(&approval).unwrap(), approval }
    }

    fn open() -> Vec<Seen> {
        vec![
            seen("refund-1", "review", "review", "0000000001"),
            seen("refund-1", "publish", "all/0/publish", "0000000002"),
            seen("refund-1", "publish", "all/1/publish", "0000000003"),
            seen("refund-2", "review", "review", "0000000004"),
        ]
    }

    #[test]
    fn a_short_name_is_a_beginning_or_a_run_with_a_gate() {
        let open = open();
        let found = |typed: &str| find_matching(typed, &open).into_iter().map(name).collect::<Vec<_>>();
        assert_eq!(found("refund-2"), ["refund-2-review-0000000004"]);
        assert_eq!(found("refund-1-r"), ["refund-1-review-0000000001"]);
        assert_eq!(found("refund-1/review"), ["refund-1-review-0000000001"]);
        assert_eq!(found("refund-1/all/1/publish"), ["refund-1-publish-0000000003"]);
        assert_eq!(found("refund-1/publish").len(), 2);
        assert_eq!(found("refund-1/rev"), ["refund-1-review-0000000001"]);
        assert_eq!(found("refund/review"), [""; 0], "a Workflow's name is never short");
        assert_eq!(found("fund-1"), [""; 0]);
    }

    #[test]
    fn a_short_name_decides_only_with_a_confirmation() {
        assert_eq!(Short::ToDecide { yes: false }.refusal(true), None);
        let with_yes = Short::ToDecide { yes: true };
        assert_eq!(with_yes.refusal(true), Some("write the whole name, or leave --yes out"));
        for yes in [false, true] {
            assert_eq!(Short::ToDecide { yes }.refusal(false), Some("without a terminal write the whole name"));
        }
        assert_eq!((Short::Everywhere.refusal(true), Short::Everywhere.refusal(false)), (None, None));
    }

    #[test]
    fn a_name_with_a_digest_is_whole() {
        assert!(ends_with_digest("refund-1-review-0a1b2c3d4e"));
        for short in ["refund-1", "refund-1-review", "refund/review-0a1b2c3d4e", "refund-0a1b2c3d4", "x-0A1B2C3D4E", ""]
        {
            assert!(!ends_with_digest(short), "{short}");
        }
    }

    #[test]
    fn the_nearest_open_name_comes_first() {
        let open = open();
        assert_eq!(
            describe_nearest("refund-2-reveiw-0000000004", &open)[0],
            "refund-2-review-0000000004 (refund-2/review)"
        );
        assert_eq!(describe_nearest("refund-1/publsh", &open[..1]), ["refund-1-review-0000000001 (refund-1/review)"]);
    }

    #[test]
    fn a_missing_name_lists_the_open_approvals() {
        let failure = |open: &[Seen]| not_found_failure("finance", "refund-2-reveiw", open).to_string();
        let none = "error: approvals.signoff.dev \"refund-2-reveiw\" not found; no approval is open in namespace finance; name another with -n";
        assert_eq!(failure(&[]), none);
        let many: Vec<_> = open().into_iter().chain(open()).collect();
        let text = failure(&many);
        assert!(
            text.contains("not found; open in namespace finance are: refund-2-review-0000000004 (refund-2/review), "),
            "{text}"
        );
        assert!(text.ends_with(" and 3 more (kubectl approve list --all)"), "{text}");
    }

    #[test]
    fn the_name_of_a_run_is_answered_with_the_command_that_lists_its_gates() {
        for typed in ["wf/refund-2", "workflow.signoff.dev/refund-2"] {
            let text = not_found_failure("finance", typed, &open()).to_string();
            let remedy =
                format!("{typed} is a run, and not an Approval: kubectl approve list --run refund-2 -n finance");
            assert!(text.contains(&remedy), "{text}");
        }
        for other in ["refund/wf", "wf/a/b", "wf/x;y", "wf"] {
            assert!(!not_found_failure("finance", other, &open()).to_string().contains("is a run"), "{other}");
        }
    }

    #[test]
    fn a_name_that_fits_several_lists_them() {
        let open = open();
        let refusal = ambiguous_failure("refund-1/publish", &find_matching("refund-1/publish", &open));
        let text = refusal.to_string();
        assert!(
            text.starts_with(
                "error: refund-1/publish fits 2 approvals: refund-1-publish-0000000002 (refund-1/all/0/publish), "
            ),
            "{text}"
        );
        assert_eq!(refusal.code(), 2);
    }

    #[test]
    fn a_hostile_name_is_compared_as_it_is_stored_and_shown_as_one_line() {
        let open = [seen("w\u{1b}[2J", "g", "g", "0000000001")];
        let found = find_matching("w\u{1b}[2J-g", &open);
        assert_eq!(found.len(), 1);
        assert_eq!(describe(found[0]), "w[2J-g-0000000001 (w[2J/g)");
        assert_eq!(find_matching("w[2J-g", &open).len(), 0, "what is shown is no name");
        for text in [not_found_failure("finance", "x", &open), ambiguous_failure("w", &[found[0], found[0]])] {
            assert!(!text.to_string().contains('\u{1b}'), "{text}");
        }
    }

    #[test]
    fn the_newest_approval_of_one_gate_is_chosen() {
        let mut twice = vec![seen("w", "g", "g", "0000000001"), seen("w", "g", "g", "0000000002")];
        let later = "2026-11-22T09:40:00Z".parse().unwrap();
        twice[1].approval.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(later));
        assert_eq!(
            keep_newest_of_gate(find_matching("w/g", &twice))[0].metadata.name.as_deref(),
            Some("w-g-0000000002")
        );
        twice[1].approval.spec.request.workflow.uid = "another".to_owned();
        assert_eq!(keep_newest_of_gate(find_matching("w/g", &twice)).len(), 2);
    }
}
