//! The parser of typed answers: from a text to a decision that the gate allows.
//!
//! A verdict is recognized only if it is the whole text, so that a sentence never becomes a verdict that was not meant.

use signoff_api::{ApprovalRequest, Decision, Verdict, verdict::Word};
use signoff_expr::{nearest, text::display};

/// The minimum length of a word that counts as misspelled if any word can be an answer, in characters.
const SHORTEST: usize = 5;

/// Returns the decision that a text means at a gate: a verdict if the whole text is a word for one that the gate
/// allows, else an answer.
///
/// # Errors
/// The text is not a word for an allowed verdict, and the gate takes no answers or the word may be a misspelled verdict
/// ([`mistyped`]). The error lists the allowed verdicts.
pub fn decision_of(request: &ApprovalRequest, text: &str) -> Result<Decision, String> {
    let allowed = &request.allowed_verdicts;
    let word = match Word::read(text) {
        // Options are the author's own words, and have priority over the words for verdicts.
        Word::Verdict(verdict) if !is_option(request, text) && allowed.contains(&verdict) => Some(verdict),
        _ => None,
    };
    match word {
        Some(Verdict::Modify) => Err("Modify needs parameters: give the value that replaces the response".to_owned()),
        Some(Verdict::Defer) => Err("Defer needs guidance: say what to do differently".to_owned()),
        Some(verdict) => Ok(Decision::new(verdict)),
        None => match mistyped(request, text, false) {
            Some(why) => Err(why),
            None if allowed.contains(&Verdict::Respond) => {
                Ok(Decision { response: Some(text.to_owned()), ..Decision::new(Verdict::Respond) })
            }
            None => Err(format!("this gate takes no free answer: {}", remedy(request))),
        },
    }
}

/// Returns the reason why a text is not accepted as an answer, or `None`. A word of trust is only accepted if it is an
/// option.
///
/// A single word that is similar to a verdict or an option of the gate is refused. A gate that allows Approve or Retry
/// and has no form of its own also refuses a word for a verdict that it does not allow. With `strict`, such a gate
/// refuses every other single word too.
#[must_use]
pub fn mistyped(request: &ApprovalRequest, text: &str, strict: bool) -> Option<String> {
    let typed = text.trim();
    let allowed = &request.allowed_verdicts;
    if Word::read(typed) == Word::Trust && !is_option(request, typed) {
        return Some(format!("{}: {}", Word::NO_TRUST, remedy(request)));
    }
    let is_word = !typed.is_empty() && !typed.contains(char::is_whitespace);
    let read = Word::read(typed);
    let is_allowed = matches!(&read, Word::Verdict(verdict) if allowed.contains(verdict));
    if !is_word || is_allowed || is_option(request, typed) {
        return None;
    }
    let respond = allowed.contains(&Verdict::Respond).then_some("respond");
    let words = allowed.iter().flat_map(|verdict| verdict.words()).copied().chain(respond);
    let options = request.form.iter().flat_map(|form| &form.questions).flat_map(|question| &question.options);
    let options = options.flat_map(|option| [option.id.as_str(), option.label()]);
    let near = nearest(typed, options.chain(words));
    let is_perhaps_misspelt = near.is_some() && typed.chars().count() >= SHORTEST;
    let is_other_word = asks_for_a_verdict(request) && (strict || !matches!(read, Word::Answer(_)));
    let takes_answers = respond.is_some();
    if takes_answers && !is_perhaps_misspelt && !is_other_word {
        return None;
    }
    let problem = match takes_answers {
        true => format!("`{}` is not a verdict of this gate", display(typed, 100)),
        false => "this gate takes no free answer".to_owned(),
    };
    let hint = near.map_or_else(String::new, |near| format!("; did you mean {}?", display(near, 253)));
    Some(format!("{problem}: {}{hint}", remedy(request)))
}

/// Whether a gate asks for a verdict rather than for an answer, because its author wrote no form.
fn asks_for_a_verdict(request: &ApprovalRequest) -> bool {
    let questions = request.form.as_ref().map_or(&[][..], |form| form.questions.as_slice());
    let is_plain = match questions {
        [] => true,
        [only] => only.is_plain(),
        _ => false,
    };
    is_plain && [Verdict::Approve, Verdict::Retry].iter().any(|verdict| request.allowed_verdicts.contains(verdict))
}

fn is_option(request: &ApprovalRequest, text: &str) -> bool {
    request.form.iter().flat_map(|form| &form.questions).any(|question| question.option_named(text.trim()).is_some())
}

/// Returns the verdicts that a gate allows, as the end of a sentence.
fn remedy(request: &ApprovalRequest) -> String {
    let names: Vec<_> = request.allowed_verdicts.iter().map(|verdict| verdict.name()).collect();
    let options = request.form.iter().flat_map(|form| &form.questions).flat_map(|question| &question.options);
    let options: Vec<_> = options.map(|option| display(&option.id, 63)).collect();
    match options.as_slice() {
        [] => format!("it allows {}", names.join(", ")),
        options => format!("it allows {}; its options are {}", names.join(", "), options.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::gate::{Choice, Form, Question};

    use super::*;
    use crate::sample::request as sample_request;

    fn verdict(allowed: &[Verdict], text: &str) -> Result<Verdict, String> {
        decision_of(&sample_request(allowed), text).map(|decision| decision.verdict)
    }

    #[test]
    fn a_word_means_only_a_verdict_that_the_gate_allows() {
        use Verdict::{Approve, Reject, Respond, Skip};
        assert_eq!(verdict(&[Approve, Reject], "y"), Ok(Approve));
        assert_eq!(verdict(&[Approve, Reject], " Denied\n"), Ok(Reject));
        assert_eq!(verdict(&[Reject, Respond], "skip"), Ok(Respond), "this gate wants an answer");
        assert_eq!(verdict(&[Approve, Skip], "skip"), Ok(Skip));
        let refused = verdict(&[Approve, Reject], "skip").unwrap_err();
        assert_eq!(refused, "this gate takes no free answer: it allows Approve, Reject");
    }

    #[test]
    fn a_word_of_trust_is_neither_an_approval_nor_an_answer() {
        use Verdict::{Approve, Respond};
        for allowed in [&[Approve][..], &[Respond], &[Approve, Respond]] {
            for word in ["trust", "Always", " t\n"] {
                let refused = verdict(allowed, word).unwrap_err();
                assert!(refused.starts_with(&format!("{}: it allows ", Word::NO_TRUST)), "{word:?}: {refused}");
            }
        }
        assert_eq!(verdict(&[Approve, Respond], "always, please"), Ok(Respond), "a sentence is an answer");
        let mut request = sample_request(&[Respond]);
        let always = Choice { id: "always".to_owned(), label: None, description: None };
        let question = Question { id: "answer".into(), options: vec![always], ..Question::default() };
        request.form = Some(Form { questions: vec![question] });
        assert_eq!(decision_of(&request, "always").unwrap().verdict, Respond, "an option of the author");
    }

    #[test]
    fn a_sentence_is_never_a_verdict() {
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
    fn a_misspelt_word_is_never_an_answer() {
        use Verdict::{Approve, Reject, Respond};
        let request = sample_request(&[Approve, Reject, Respond]);
        for word in ["aprove", "APPORVE", "rejct", "respnd", "skip", "respond"] {
            assert!(decision_of(&request, word).is_err(), "{word}");
        }
        assert_eq!(
            decision_of(&request, "aprove").unwrap_err(),
            "`aprove` is not a verdict of this gate: it allows Approve, Reject, Respond; did you mean approve?"
        );
        for answer in ["nope", "aprove it", "5000"] {
            assert_eq!(decision_of(&request, answer).map(|decision| decision.verdict), Ok(Respond), "{answer}");
        }
        let strict = |text: &str| mistyped(&request, text, true);
        assert_eq!(strict("nope").unwrap(), "`nope` is not a verdict of this gate: it allows Approve, Reject, Respond");
        assert_eq!((strict("nope, not this"), strict("yes")), (None, None));
        let no_answers = verdict(&[Approve, Reject], "aprove").unwrap_err();
        assert_eq!(no_answers, "this gate takes no free answer: it allows Approve, Reject; did you mean approve?");
    }

    #[test]
    fn a_gate_that_wants_an_answer_takes_every_word_but_a_misspelt_one() {
        use Verdict::{Approve, Reject, Respond};
        let mut request = sample_request(&[Reject, Respond]);
        assert_eq!(mistyped(&request, "Lisbon", true), None);
        assert_eq!(mistyped(&request, "yes", true), None);
        assert_eq!(mistyped(&request, "now", true), None, "too short to be taken for `no`");
        assert!(mistyped(&request, "rejectt", true).unwrap().ends_with("did you mean reject?"));
        let choice = Choice { id: "lis".into(), label: Some("Lisbon".into()), description: None };
        let form = |more: Question| Form { questions: vec![Question { id: "answer".into(), ..more }] };
        let options = Question { options: vec![choice], allow_text: Some(true), ..Question::default() };
        request.form = Some(form(options));
        assert_eq!((mistyped(&request, "Lisbon", true), mistyped(&request, "Porto", true)), (None, None));
        assert_eq!(
            mistyped(&request, "Lisbno", true).unwrap(),
            "`Lisbno` is not a verdict of this gate: it allows Reject, Respond; its options are lis; did you mean Lisbon?"
        );
        // A form of the author asks for text, whatever verdicts are allowed.
        request.allowed_verdicts = vec![Approve, Respond];
        request.form = Some(form(Question { pattern: Some("[A-Z]+".into()), ..Question::default() }));
        assert_eq!(mistyped(&request, "CHG", true), None);
    }

    #[test]
    fn a_verdict_that_needs_a_payload_is_refused_with_its_name() {
        assert!(verdict(&[Verdict::Modify], "edit").unwrap_err().contains("parameters"));
        assert!(verdict(&[Verdict::Defer], "revise").unwrap_err().contains("guidance"));
        assert!(verdict(&[Verdict::Approve], "always").unwrap_err().contains("it allows Approve"));
    }
}
