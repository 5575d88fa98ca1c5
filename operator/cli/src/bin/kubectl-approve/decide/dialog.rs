//! The questions to the user at a terminal: the verdict, the reason, and the confirmation.
//!
//! **Invariant:** no question is asked if `terminal::can_ask` is false.

use std::io::BufRead;

use signoff_api::{Approval, ApprovalRequest, Verdict, verdict::Word};
use signoff_cli::{sanitize::one_line, terminal};
use signoff_review::{suggest::Suggestion, voter::Me, whole};

use crate::{
    args::{DecisionArgs, Payload},
    error::Failure,
};

/// Asks for one of the suggested verdicts.
///
/// # Errors
/// The user typed no suggested verdict, or a verdict that needs a payload and therefore its own command.
pub fn ask_verdict(suggestions: &[Suggestion]) -> Result<Verdict, Failure> {
    let names: Vec<_> = suggestions.iter().map(|suggestion| suggestion.verdict.name().to_lowercase()).collect();
    let typed = read_line(&format!("Which verdict? [{}] ", names.join("/")))?;
    let Some(chosen) = suggestions.iter().find(|suggestion| is_named(suggestion.verdict, &typed)) else {
        if Word::read(&typed) == Word::Trust {
            terminal::note(&format!("{}: give one of these verdicts", Word::NO_TRUST));
        }
        return Err(Failure::Declined);
    };
    match chosen.verdict {
        Verdict::Modify | Verdict::Respond => {
            terminal::note(&format!("{} takes more than a word: {}", chosen.verdict, chosen.command));
            Err(Failure::Declined)
        }
        verdict => Ok(verdict),
    }
}

fn is_named(verdict: Verdict, typed: &str) -> bool {
    verdict.name().eq_ignore_ascii_case(typed.trim()) || Word::read(typed) == Word::Verdict(verdict)
}

/// Asks for the required parts that are missing: the reason, and the guidance of Defer.
///
/// # Errors
/// The user typed no text.
pub fn ask_missing(args: &mut DecisionArgs, request: &ApprovalRequest) -> Result<(), Failure> {
    if args.verdict == Verdict::Defer && args.payload == Payload::Nothing {
        args.payload = Payload::Guidance(ask_required("Guidance: ")?);
    }
    if request.require_reason == Some(true) && args.common.reason.is_none() {
        args.common.reason = Some(ask_required("Reason: ")?);
    }
    Ok(())
}

/// Asks the user to confirm a verdict.
///
/// # Errors
/// The user did not say yes.
pub fn confirm(args: &DecisionArgs, approval: &Approval, me: &Me) -> Result<(), Failure> {
    let answered =
        terminal::ask(&render_question(args, approval, me)).map_err(|error| Failure::Other(error.to_string()))?;
    if answered { Ok(()) } else { Err(Failure::Declined) }
}

/// Asks the user to confirm a verdict about each of these calls of one turn.
///
/// # Errors
/// The user did not say yes.
pub fn confirm_turn(args: &DecisionArgs, calls: &[&Approval], me: &Me) -> Result<(), Failure> {
    let question = render_turn_question(args, calls, me);
    let answered = terminal::ask(&question).map_err(|error| Failure::Other(error.to_string()))?;
    if answered { Ok(()) } else { Err(Failure::Declined) }
}

/// Renders the question before a decision is sent.
fn render_question(args: &DecisionArgs, approval: &Approval, me: &Me) -> String {
    let cut = cut_texts(args, approval).map(|cut| format!(" without the whole of {cut}")).unwrap_or_default();
    format!("{} {} as {}{cut}?", args.verdict, one_line(&args.name, 253), voter_name(args, me))
}

/// Renders the question before the decisions about calls of one turn are sent.
fn render_turn_question(args: &DecisionArgs, calls: &[&Approval], me: &Me) -> String {
    let plural = if calls.len() == 1 { "" } else { "s" };
    let name = |call: &Approval| one_line(call.metadata.name.as_deref().unwrap_or_default(), 253);
    let cut = calls.iter().filter_map(|call| Some(format!("{} of {}", cut_texts(args, call)?, name(call))));
    let cut: Vec<_> = cut.collect();
    let cut = if cut.is_empty() { String::new() } else { format!(" without the whole of {}", cut.join(" and of ")) };
    let names: Vec<_> = calls.iter().map(|call| name(call)).collect();
    format!("{} {} call{plural} ({}) as {}{cut}?", args.verdict, calls.len(), names.join(", "), voter_name(args, me))
}

/// Returns the texts of which an approved request shows only a part, or `None`.
fn cut_texts(args: &DecisionArgs, approval: &Approval) -> Option<String> {
    let cut = whole::cut(&approval.spec.request);
    (args.verdict == Verdict::Approve && !cut.is_empty()).then(|| cut.join(" and of "))
}

fn voter_name(args: &DecisionArgs, me: &Me) -> String {
    let person = args.common.on_behalf_of.as_ref().map(|person| format!(" on behalf of {}", one_line(person, 253)));
    format!("{}{}", one_line(&me.user, 253), person.unwrap_or_default())
}

fn ask_required(prompt: &str) -> Result<String, Failure> {
    let typed = read_line(prompt)?.trim().to_owned();
    if typed.is_empty() { Err(Failure::Declined) } else { Ok(typed) }
}

/// Writes a prompt and reads a line.
fn read_line(prompt: &str) -> Result<String, Failure> {
    let io_failure = |error: std::io::Error| Failure::Other(error.to_string());
    terminal::prompt(prompt).map_err(io_failure)?;
    let mut typed = String::new();
    std::io::stdin().lock().read_line(&mut typed).map_err(io_failure)?;
    Ok(typed)
}

#[cfg(test)]
mod tests {
    use signoff_review::sample;

    use super::*;
    fn args(verdict: Verdict) -> DecisionArgs {
        let common = crate::args::CommonArgs::default();
        DecisionArgs { name: "refund-1".into(), verdict, payload: Payload::Nothing, common }
    }

    #[test]
    fn the_question_names_verdict_person_and_cut_texts() {
        let mut approval = sample::approval();
        let me = sample::me("alice@example.com", &[]);
        assert_eq!(render_question(&args(Verdict::Approve), &approval, &me), "Approve refund-1 as alice@example.com?");
        let whole = serde_json::json!({"digest": approval.spec.request.digest, "size": 9000});
        approval.spec.request.context_ref = serde_json::from_value(whole).ok();
        assert_eq!(
            render_question(&args(Verdict::Approve), &approval, &me),
            "Approve refund-1 as alice@example.com without the whole of the context (9000 bytes)?"
        );
        assert_eq!(render_question(&args(Verdict::Reject), &approval, &me), "Reject refund-1 as alice@example.com?");
        let mut delegated = args(Verdict::Skip);
        delegated.common.on_behalf_of = Some("bob".into());
        assert_eq!(render_question(&delegated, &approval, &me), "Skip refund-1 as alice@example.com on behalf of bob?");
    }

    #[test]
    fn the_question_about_a_turn_names_each_call_and_cut_texts() {
        let (mut first, mut second) = (sample::call(), sample::call());
        (first.metadata.name, second.metadata.name) = (Some("refund-1".into()), Some("refund-2".into()));
        let me = sample::me("alice@example.com", &[]);
        let asked = |verdict, calls: &[&Approval]| render_turn_question(&args(verdict), calls, &me);
        assert_eq!(asked(Verdict::Reject, &[&first]), "Reject 1 call (refund-1) as alice@example.com?");
        let whole = serde_json::json!({"digest": second.spec.request.digest, "size": 9000});
        second.spec.request.context_ref = serde_json::from_value(whole).ok();
        assert_eq!(
            asked(Verdict::Approve, &[&first, &second]),
            "Approve 2 calls (refund-1, refund-2) as alice@example.com without the whole of the context (9000 bytes) of refund-2?"
        );
    }

    #[test]
    fn a_verdict_is_typed_by_its_name_or_one_of_its_words() {
        assert!(is_named(Verdict::Retry, " Retry\n") && is_named(Verdict::Reject, "no\n"));
        assert!(is_named(Verdict::Respond, "respond\n"));
        assert!(!is_named(Verdict::Reject, "not\n") && !is_named(Verdict::Skip, ""));
    }
}
