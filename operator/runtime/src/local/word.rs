//! What somebody types as an answer, as a decision that the gate allows.
//!
//! It may not look for a verdict inside a sentence, and never turns an answer into a verdict that was not meant.

use signoff_api::{ApprovalRequest, Decision, Verdict, verdict::Word};

/// The decision that a text means at a gate: a word for a verdict where the gate allows that verdict and the word is
/// the whole text, else an answer.
///
/// # Errors
/// The text is no word for what the gate allows, and the gate takes no answers: what it does allow.
pub fn decision_of(request: &ApprovalRequest, text: &str) -> Result<Decision, String> {
    let allowed = &request.allowed_verdicts;
    let is_option = request.form.iter().flat_map(|form| &form.questions).any(|q| q.option_named(text.trim()).is_some());
    let word = match Word::read(text) {
        // Options are the author's own words: they come before ours.
        Word::Verdict(verdict) if !is_option && allowed.contains(&verdict) => Some(verdict),
        Word::Trust => return Err(format!("trust is not known here: {}", remedy(request))),
        _ => None,
    };
    match word {
        Some(Verdict::Modify) => Err("Modify needs parameters: say what to go on with instead".to_owned()),
        Some(Verdict::Defer) => Err("Defer needs guidance: say what to do differently".to_owned()),
        Some(verdict) => Ok(Decision::new(verdict)),
        None if allowed.contains(&Verdict::Respond) => {
            Ok(Decision { response: Some(text.to_owned()), ..Decision::new(Verdict::Respond) })
        }
        None => Err(format!("this gate takes no free answer: {}", remedy(request))),
    }
}

/// What a gate allows, as a sentence.
fn remedy(request: &ApprovalRequest) -> String {
    let names: Vec<_> = request.allowed_verdicts.iter().map(|verdict| verdict.name()).collect();
    format!("it allows {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::gate::{Choice, Form, Question};

    use super::*;
    use crate::local::sample::request as sample_request;

    fn verdict(allowed: &[Verdict], text: &str) -> Result<Verdict, String> {
        decision_of(&sample_request(allowed), text).map(|decision| decision.verdict)
    }

    #[test]
    fn a_word_means_only_a_verdict_that_the_gate_allows() {
        use Verdict::{Approve, Reject, Respond, Skip};
        assert_eq!(verdict(&[Approve, Reject], "y"), Ok(Approve));
        assert_eq!(verdict(&[Approve, Reject], " Denied\n"), Ok(Reject));
        assert_eq!(verdict(&[Approve, Respond], "skip"), Ok(Respond));
        assert_eq!(verdict(&[Approve, Skip], "skip"), Ok(Skip));
        let refused = verdict(&[Approve, Reject], "skip").unwrap_err();
        assert_eq!(refused, "this gate takes no free answer: it allows Approve, Reject");
    }

    #[test]
    fn a_sentence_is_an_answer_or_nothing() {
        use Verdict::{Approve, Respond};
        assert_eq!(verdict(&[Approve, Respond], "do not approve"), Ok(Respond));
        assert!(verdict(&[Approve], "yes please").is_err());
        let decision = decision_of(&sample_request(&[Respond]), "  as it is  ").unwrap();
        assert_eq!(decision.response.as_deref(), Some("  as it is  "));
    }

    #[test]
    fn the_options_of_a_gate_come_before_words() {
        let mut request = sample_request(&[Verdict::Approve, Verdict::Respond]);
        let choice = |id: &str| Choice { id: id.to_owned(), label: None, description: None };
        let question =
            Question { id: "answer".into(), options: vec![choice("yes"), choice("later")], ..Question::default() };
        request.form = Some(Form { questions: vec![question] });
        assert_eq!(decision_of(&request, "yes").unwrap().verdict, Verdict::Respond);
        assert_eq!(decision_of(&request, "ok").unwrap().verdict, Verdict::Respond);
        assert_eq!(decision_of(&request, "y").unwrap().verdict, Verdict::Approve);
    }

    #[test]
    fn a_word_that_needs_more_says_what() {
        assert!(verdict(&[Verdict::Modify], "edit").unwrap_err().contains("parameters"));
        assert!(verdict(&[Verdict::Defer], "revise").unwrap_err().contains("guidance"));
        assert!(verdict(&[Verdict::Approve], "always").unwrap_err().contains("it allows Approve"));
    }
}
