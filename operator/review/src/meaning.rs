//! The effect of a Retry after a failure *(pure)*: the step runs again and sends its request once more, while a Retry
//! at other gates only asks again.

use serde_json::Value;
use signoff_api::{ApprovalRequest, Verdict, gate::GateType};

use crate::{
    action::{call, is_at_tool, is_question},
    outcome::{GOES_ON, done, sequel},
    text::one_line,
};

/// The longest target in a line, in characters.
const LONGEST: usize = 300;

/// Whether the gate asks about a step that failed, so that a Retry runs the step again. If the request is about a call
/// that did not run, a Retry only lets its gates ask again.
#[must_use]
pub fn retries_step(request: &ApprovalRequest) -> bool {
    let is_call = call(request).is_some() || is_question(request);
    request.gate.type_ == GateType::ErrorEscalation && !is_call
}

/// Returns the effect of a Retry after a failure, such as `run the step again: POST https://bank.example/refunds`, or
/// `None` at any other gate.
#[must_use]
pub fn run_again(request: &ApprovalRequest) -> Option<String> {
    retries_step(request).then(|| format!("run the step again{}", target_suffix(request)))
}

/// Returns the effect of [`run_again`] as a sentence that follows the verdict.
pub(crate) fn runs_again(request: &ApprovalRequest) -> Option<String> {
    let is_tool = is_at_tool(request);
    (retries_step(request) && !is_tool).then(|| format!("the step runs again{}", target_suffix(request)))
}

/// Returns the target of the step after a colon; empty if the request does not show it.
fn target_suffix(request: &ApprovalRequest) -> String {
    let sent = request.sends.as_ref().and_then(|sent| serde_saphyr::from_str::<Value>(&sent.text).ok());
    let target = sent.as_ref().and_then(|sent| {
        let method = sent["method"].as_str().unwrap_or("GET");
        Some(one_line(&format!(": {method} {}", sent["url"].as_str()?), LONGEST))
    });
    target.unwrap_or_default()
}

/// Returns a verdict at a gate as a participle.
#[must_use]
pub fn done_at(request: &ApprovalRequest, verdict: Verdict) -> &'static str {
    if verdict == Verdict::Retry && retries_step(request) { "run again" } else { done(verdict) }
}

/// Returns the effect of a verdict at a gate, for the table of all verdicts.
pub(crate) fn effect(request: &ApprovalRequest, verdict: Verdict) -> String {
    if verdict == Verdict::Retry
        && let Some(again) = run_again(request)
    {
        return again;
    }
    let sequel = sequel(request, verdict);
    let failed = retries_step(request);
    let addition = match verdict {
        Verdict::Modify if failed => return "run the step again, with your parameters".to_owned(),
        Verdict::Retry if request.gate.type_ == GateType::OutputValidation => {
            return "run the step again, and ask about its new answer".to_owned();
        }
        Verdict::Approve if request.gate.type_ == GateType::OutputValidation => " with this answer",
        Verdict::Approve => " with exactly this",
        Verdict::Modify => " with your parameters instead",
        Verdict::Respond => " with your answer",
        Verdict::Skip if failed => " without the result of the step",
        Verdict::Skip => " without an answer",
        Verdict::Retry => return "it is asked again".to_owned(),
        Verdict::Reject | Verdict::Defer | Verdict::Escalate | Verdict::Abort => "",
    };
    if sequel == GOES_ON { format!("{sequel}{addition}") } else { sequel }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::{ApprovalStatus, approval::Sent};

    use super::*;
    use crate::{outcome::effects, sample};

    fn failed() -> ApprovalRequest {
        let mut request = sample::approval().spec.request;
        (request.gate.type_, request.gate.path) = (GateType::ErrorEscalation, "pay/.error".to_owned());
        request.sends = Some(Sent { text: sample::SENT.to_owned(), ref_: None });
        request.allowed_verdicts = vec![Verdict::Retry, Verdict::Skip, Verdict::Reject];
        request
    }

    #[test]
    fn a_retry_after_a_failure_names_what_is_sent_again() {
        let mut request = failed();
        let again = "run the step again: POST https://bank.example/refunds";
        assert_eq!(run_again(&request).as_deref(), Some(again));
        assert_eq!(sequel(&request, Verdict::Retry), "the step runs again: POST https://bank.example/refunds");
        assert_eq!(done_at(&request, Verdict::Retry), "run again");
        let table = effects(&request, &ApprovalStatus::default());
        let rows = [
            (Verdict::Retry, again),
            (Verdict::Skip, "the run goes on without the result of the step"),
            (Verdict::Reject, "the run ends"),
        ];
        assert_eq!(table, rows.map(|(verdict, effect)| (verdict, effect.to_owned())));
        request.sends = Some(Sent { text: "url: \"http://x/\\e[2J\\n\"\n".to_owned(), ref_: None });
        assert!(!run_again(&request).unwrap().contains(['\u{1b}', '\n']));
        request.sends = None;
        assert_eq!(run_again(&request).as_deref(), Some("run the step again"));
    }

    #[test]
    fn a_retry_at_any_other_gate_asks_again() {
        let request = sample::approval().spec.request;
        assert_eq!((run_again(&request), done_at(&request, Verdict::Retry)), (None, "asked again"));
        assert_eq!(effect(&request, Verdict::Retry), "it is asked again");
        let mut call = sample::call().spec.request;
        call.gate.type_ = GateType::ErrorEscalation;
        assert_eq!((run_again(&call), done_at(&call, Verdict::Retry)), (None, "asked again"));
    }
}
