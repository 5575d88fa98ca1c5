//! Deciding: read the request, send one's own entry, and see that exactly that was stored.
//!
//! It must not judge whether a decision is allowed, and it does not wait for what comes of it.

use serde_json::Value;
use signoff_api::{Approval, ApprovalRequest, ApprovalStatus, Moment, Verdict, approval::Source, gate::RequiredFrom};
use signoff_engine::{
    Now,
    approval::{OwnerState, tally},
};

use signoff_executor::{Evaluator, EvaluatorSettings, Subject};

use crate::{
    args::{DecisionArgs, DryRun, Payload},
    client::{Me, Seen, Session},
    clock,
    error::Failure,
    output,
    payload::{self, Entry},
    sanitize::{fenced, one_line, quoted},
    show, terminal, whole,
};

/// Records a decision that was typed with its verdict. Returns the line that says so.
///
/// # Errors
/// Refusals, and everything that keeps it from being recorded as it was typed.
pub async fn decide(session: &Session, args: &DecisionArgs) -> Result<String, Failure> {
    let (seen, me) = tokio::try_join!(session.approval(&args.name), session.me())?;
    trusted(&seen)?;
    terminal::note(&summary(&seen.approval));
    if let Some(question) = unread(args, &seen.approval, &session.namespace)
        && terminal::is_manned()
        && !terminal::ask(&question).map_err(|error| Failure::Other(error.to_string()))?
    {
        return Err(Failure::Declined);
    }
    record(session, args, &seen, &me).await
}

/// The question whether to approve what was not shown in whole: without it, a person would take a part for all of it.
fn unread(args: &DecisionArgs, approval: &Approval, namespace: &str) -> Option<String> {
    let cut = whole::cut(&approval.spec.request);
    let asks = args.verdict == Verdict::Approve && !args.common.yes && !cut.is_empty();
    asks.then(|| {
        let show = quoted(&["kubectl", "approve", "show", "--full", &args.name, "-n", namespace]);
        format!(
            "The request holds only the beginning of {}.\nThe whole: {show}\nThis is asked each time; --yes does not ask.\nApprove {} without the whole?",
            cut.join(" and of "),
            one_line(&args.name, 253)
        )
    })
}

/// Shows the Approval, asks, and approves it.
///
/// # Errors
/// As [`decide`]; and when there is nobody to be asked.
pub async fn show_and_approve(session: &Session, args: &DecisionArgs) -> Result<String, Failure> {
    let (seen, me) = tokio::try_join!(session.approval(&args.name), session.me())?;
    terminal::note(&show::page(&seen, &me, clock::now(), None));
    trusted(&seen)?;
    if !args.common.yes {
        if !terminal::is_manned() {
            return Err(Failure::Refused(format!(
                "standard input is not a terminal, so there is no confirmation: use --yes, or kubectl approve approve {}",
                args.name
            )));
        }
        let cut = whole::cut(&seen.approval.spec.request);
        let part = if cut.is_empty() { "" } else { " without the whole of what is cut above" };
        let question = format!("Approve {} as {}{part}?", args.name, one_line(&me.user, 253));
        if !terminal::ask(&question).map_err(|error| Failure::Other(error.to_string()))? {
            return Err(Failure::Declined);
        }
    }
    record(session, args, &seen, &me).await
}

async fn record(session: &Session, args: &DecisionArgs, seen: &Seen, me: &Me) -> Result<String, Failure> {
    let file = match &args.payload {
        Payload::ResponseFile(path) | Payload::Parameters { from_file: Some(path), .. } => Some(read(path)?),
        _ => None,
    };
    let entry = payload::entry(args, file.as_deref(), &seen.approval, me)?;
    if let Some(attempt) = entry.decision.attempt {
        let why = seen
            .approval
            .status
            .as_ref()
            .and_then(|status| status.invalid.get(&entry.key))
            .map_or("", |invalid| invalid.why.as_str());
        terminal::note(&format!(
            "attempt {} could not be used ({}): this is attempt {attempt}",
            attempt - 1,
            one_line(why, 1024)
        ));
    }
    let patch = payload::patch(&entry, stored(&seen.raw, &entry.key))?;
    let resource = format!("approval.signoff.dev/{}", args.name);
    if patch.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(format!("{resource} unchanged ({} already)", done(entry.decision.verdict)));
    }
    if args.common.dry_run == Some(DryRun::Client) {
        usable(&seen.approval, &entry, clock::now())?;
        terminal::note(&format!("{resource} not sent (client dry run); the patch of kubectl patch --type=merge:"));
        return output::json(&patch).map(|text| text.trim_end().to_owned());
    }
    let dry_run = args.common.dry_run == Some(DryRun::Server);
    if let Err(failure) = usable(&seen.approval, &entry, clock::now()) {
        // Where a policy has a sentence for it, that one is said.
        session.patch(&args.name, &patch, true).await?;
        return Err(failure);
    }
    let after = session.patch(&args.name, &patch, dry_run).await?;
    let differences = payload::differences(&entry, stored(&after.raw, &entry.key), me);
    if !differences.is_empty() {
        return Err(tampered(&entry, &differences));
    }
    let suffix = if dry_run { " (server dry run)" } else { "" };
    Ok(format!("{resource} {}{suffix}", reached(&after.approval, &entry, clock::now())))
}

fn stored<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("spec")?.get("decisions")?.get(key)
}

/// A digest that is not that of the request would make the decision count for something else than what was shown.
///
/// # Errors
/// The digest of the request is another.
pub fn trusted(seen: &Seen) -> Result<(), Failure> {
    if seen.digest_holds() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "the digest of this request ({}) is not the digest of what it says: do not decide it, and tell the administrators of Signoff",
        seen.approval.spec.request.digest
    )))
}

fn tampered(entry: &Entry, differences: &[String]) -> Failure {
    let shown: String = differences.iter().map(|difference| fenced(difference, 4000)).collect();
    Failure::Other(format!(
        "WHAT WAS STORED IS NOT WHAT YOU SENT, under {}:\n{shown}\
         Something between you and the API server changes decisions (a webhook or a mutating policy). \
         Tell an administrator of this cluster, and do not rely on this Approval.",
        one_line(&entry.key, 600)
    ))
}

fn read(path: &str) -> Result<String, Failure> {
    let text = if path == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    text.map_err(|error| Failure::Usage(format!("--from-file {path}: {error}")))
}

/// Returns the subject of the decision in three lines.
fn summary(approval: &Approval) -> String {
    let request = &approval.spec.request;
    format!(
        "{} of workflow {}, requested by {}\n{}request digest {}",
        one_line(&request.gate.path, 80),
        one_line(&request.workflow.name, 63),
        one_line(&request.requested_by, 253),
        fenced(&one_line(&request.prompt, 300), 400),
        request.digest
    )
}

/// Returns the operator's count of these decisions, by the same function that the operator counts with.
///
/// # Errors
/// Counting them costs too much.
fn foreseen(approval: &Approval, now: Moment) -> Result<ApprovalStatus, Failure> {
    let now = Now { at: now, guard_epoch: approval.spec.request.guard_epoch.clone() };
    let evaluator = Evaluator::start(EvaluatorSettings { threads: 1, ..EvaluatorSettings::default() });
    let evaluator = evaluator.map_err(|why| Failure::Other(format!("a thread cannot be started: {why}")))?;
    let subject = Subject { kind: "Approval".to_owned(), ..Subject::default() };
    let object = approval.clone();
    let counted = evaluator.wait(subject, move || tally(&object, OwnerState::Live, &now).status);
    counted.map_err(|why| {
        Failure::Refused(format!(
            "the decisions of this Approval cannot be counted: {why}; give a shorter or simpler answer"
        ))
    })
}

/// Refuses what the operator would find unusable: it would only cost one of few attempts.
///
/// # Errors
/// The decision is unusable.
pub fn usable(approval: &Approval, entry: &Entry, now: Moment) -> Result<(), Failure> {
    let mut with = approval.clone();
    with.spec.decisions.insert(entry.key.clone(), entry.decision.clone());
    let found =
        foreseen(&with, now)?.invalid.remove(&entry.key).filter(|invalid| invalid.attempt == entry.decision.attempt());
    found.map_or(Ok(()), |invalid| Err(Failure::Refused(one_line(&invalid.why, 1024))))
}

/// Returns how many approvals are recorded and needed after a decision.
fn reached(approval: &Approval, entry: &Entry, now: Moment) -> String {
    let request = &approval.spec.request;
    let verdict = entry.decision.verdict;
    let person = match &entry.decision.on_behalf_of {
        Some(person) => format!(" on behalf of {}", one_line(person, 253)),
        None => String::new(),
    };
    // The decision is stored, whatever counting it costs.
    let Ok(status) = foreseen(approval, now) else { return format!("{verdict} recorded{person}") };
    match status.outcome.filter(|outcome| outcome.source == Source::Human) {
        Some(outcome) if outcome.verdict == Some(verdict) => return format!("{}{person}", done(verdict)),
        Some(outcome) => {
            let other = outcome.verdict.map_or("another decision", Verdict::name);
            return format!(
                "{verdict} recorded{person} ({other} by {} goes before it)",
                one_line(&outcome.decided_by.join(", "), 300)
            );
        }
        None if verdict == Verdict::Escalate => return format!("escalated{person}"),
        None => {}
    }
    let tally = status.tally.unwrap_or_default();
    let count = if verdict.needs_quorum() {
        format!("{} of {}", tally.have, tally.needed)
    } else {
        format!("it takes {}", request.threshold())
    };
    let also = if tally.have >= tally.needed && verdict.needs_quorum() { conditions(request) } else { String::new() };
    format!("{verdict} recorded{person} ({count}{also})")
}

/// Names what a request demands besides the people of its first quorum.
fn conditions(request: &ApprovalRequest) -> String {
    let group = |from: &RequiredFrom| format!("{} of group {}", from.min, one_line(&from.group, 253));
    let groups = request.quorums.iter().take(1).flat_map(|own| &own.required_from).map(group);
    let further = request.quorums.iter().skip(1).map(|one| format!("the quorum of {}", one_line(&one.source, 253)));
    let all: Vec<_> = groups.chain(further).collect();
    if all.is_empty() { String::new() } else { format!("; not yet met of: {}", all.join(", ")) }
}

fn done(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Approve => "approved",
        Verdict::Reject => "rejected",
        Verdict::Modify => "modified",
        Verdict::Respond => "answered",
        Verdict::Defer => "deferred",
        Verdict::Escalate => "escalated",
        Verdict::Abort => "aborted",
        Verdict::Skip => "skipped",
        Verdict::Retry => "asked again",
    }
}

#[cfg(test)]
mod tests {
    use signoff_api::{Decision, gate::RejectPolicy};

    use super::*;
    use crate::sample;

    fn after(approval: &mut Approval, user: &str, decision: Decision) -> String {
        approval.spec.decisions.insert(user.into(), decision.clone());
        reached(approval, &Entry { key: user.into(), decision }, sample::now())
    }

    #[test]
    fn a_quorum_is_counted_as_the_operator_counts() {
        let mut approval = sample::approval();
        approval.spec.request.quorums[0].threshold = 2;
        assert_eq!(after(&mut approval, "alice", Decision::new(Verdict::Approve)), "Approve recorded (1 of 2)");
        assert_eq!(after(&mut approval, "bob", Decision::new(Verdict::Skip)), "Skip recorded (1 of 2)");
        assert_eq!(after(&mut approval, "carol", Decision::new(Verdict::Approve)), "approved");
        assert_eq!(after(&mut approval, "dora", Decision::new(Verdict::Abort)), "aborted");
        assert_eq!(
            after(&mut approval, "erin", Decision::new(Verdict::Approve)),
            "Approve recorded (Abort by dora goes before it)"
        );
        let mut approval = sample::approval();
        approval.spec.request.quorums[0].threshold = 2;
        approval.spec.request.quorums[0].reject_policy = Some(RejectPolicy::Threshold);
        assert_eq!(after(&mut approval, "dora", Decision::new(Verdict::Reject)), "Reject recorded (it takes 2)");
    }

    #[test]
    fn groups_that_are_still_needed_are_named() {
        let mut approval = sample::approval();
        approval.spec.request.quorums[0].required_from = vec![RequiredFrom { group: "leads".into(), min: 1 }];
        assert_eq!(
            after(&mut approval, "bob", Decision::new(Verdict::Approve)),
            "Approve recorded (1 of 1; not yet met of: 1 of group leads)"
        );
        let lead = Decision { groups: vec!["leads".into()], ..Decision::new(Verdict::Approve) };
        assert_eq!(after(&mut approval, "alice", lead), "approved");
    }

    #[test]
    fn a_payload_that_the_operator_could_not_use_is_refused_before_it_costs_an_attempt() {
        let approval = sample::approval();
        let modify = |json: serde_json::Value| Decision {
            parameters: serde_json::from_value(json).ok(),
            ..Decision::new(Verdict::Modify)
        };
        let entry = |decision| Entry { key: "alice@example.com".into(), decision };
        assert!(usable(&approval, &entry(modify(serde_json::json!({"response": "better"}))), sample::now()).is_ok());
        let refusal = usable(&approval, &entry(modify(serde_json::json!({"respnse": "better"}))), sample::now());
        assert!(refusal.is_err_and(|failure| failure.to_string().contains("response")));
    }

    #[test]
    fn an_answer_that_costs_too_much_is_refused_and_does_not_hang() {
        let mut approval = sample::approval();
        let request = &mut approval.spec.request;
        request.allowed_verdicts.push(Verdict::Respond);
        request.form = serde_json::from_value(serde_json::json!({"questions": [{"id": "why"}]})).ok();
        assert!(request.form.is_some());
        sample::seal(&mut approval);
        let entry = |text: &str| Entry {
            key: "alice@example.com".into(),
            decision: Decision { response: Some(text.to_owned()), ..Decision::new(Verdict::Respond) },
        };
        for mark in ["endless", "deaf"] {
            let refusal = usable(&approval, &entry(&format!("[[{mark}:answer]]")), sample::now());
            assert!(refusal.is_err_and(|failure| failure.to_string().contains("CPU time")), "{mark}");
        }
        assert!(usable(&approval, &entry("because"), sample::now()).is_ok());
    }

    #[test]
    fn who_approves_a_text_that_was_not_shown_in_whole_is_asked() {
        let args = |verdict, yes| DecisionArgs {
            name: "refund-1".into(),
            verdict,
            payload: Payload::Nothing,
            common: crate::args::CommonArgs { yes, ..Default::default() },
        };
        let mut approval = sample::approval();
        assert_eq!(unread(&args(Verdict::Approve, false), &approval, "finance"), None);
        let whole = serde_json::json!({"digest": approval.spec.request.digest, "size": 9000});
        approval.spec.request.context_ref = serde_json::from_value(whole).ok();
        let question = unread(&args(Verdict::Approve, false), &approval, "finance").unwrap_or_default();
        let words = "only the beginning of the context (9000 bytes).\nThe whole: kubectl approve show --full refund-1 -n finance\n";
        assert!(question.contains(words), "{question}");
        assert_eq!(unread(&args(Verdict::Approve, true), &approval, "finance"), None, "--yes");
        assert_eq!(unread(&args(Verdict::Reject, false), &approval, "finance"), None);
    }

    #[test]
    fn whom_one_speaks_for_is_said() {
        let mut approval = sample::approval();
        let decision = Decision { on_behalf_of: Some("bob".into()), ..Decision::new(Verdict::Abort) };
        assert_eq!(after(&mut approval, "bob via me", decision), "aborted on behalf of bob");
    }

    #[test]
    fn a_changed_decision_is_reported_field_by_field() {
        let entry = Entry { key: "alice".into(), decision: Decision::new(Verdict::Approve) };
        let text = tampered(&entry, &["verdict: sent \"Approve\", stored \"Reject\"".into()]).to_string();
        assert!(text.contains("WHAT WAS STORED IS NOT WHAT YOU SENT, under alice:\n  | verdict: sent"), "{text}");
    }
}
