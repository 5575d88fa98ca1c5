//! The form of a gate, and the answers as they are shown for confirmation *(pure)*.

use std::collections::BTreeMap;

use signoff_api::{
    ApprovalRequest, Verdict,
    approval::Answer,
    gate::{Choice, Question},
};
use signoff_cli::sanitize::{fence, one_line};

/// The answers to the questions of a form, by their ids.
pub type FormAnswers = BTreeMap<String, Answer>;

/// Returns the questions of a request.
pub fn questions(request: &ApprovalRequest) -> &[Question] {
    request.form.as_ref().map_or(&[], |form| form.questions.as_slice())
}

/// Whether the gate takes answers to a form of its own, and not only to the plain question that every gate with Respond
/// has.
pub fn is_form(request: &ApprovalRequest) -> bool {
    let questions = questions(request);
    let is_plain = questions.iter().all(Question::is_plain);
    request.allowed_verdicts.contains(&Verdict::Respond) && !is_plain
}

/// Returns every question with its answer, as lines.
pub fn render_answers(request: &ApprovalRequest, answers: &FormAnswers) -> String {
    let render_answer = |question: &Question| {
        let id = one_line(&question.id, 63);
        match answers.get(&question.id) {
            None => format!("{id}: left out\n"),
            Some(Answer { options, text: None }) => {
                let labels: Vec<_> =
                    options.iter().map(|option| one_line(option_label(question, option), 253)).collect();
                format!("{id}: {}\n", labels.join(", "))
            }
            Some(Answer { text: Some(text), .. }) => format!("{id}:\n{}", fence(text, usize::MAX)),
        }
    };
    questions(request).iter().map(render_answer).collect()
}

fn option_label<'t>(question: &'t Question, option: &'t str) -> &'t str {
    question.options.iter().find(|known| known.id == option).map_or(option, Choice::label)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::answer::tests::approval;

    fn request(questions: serde_json::Value) -> ApprovalRequest {
        let mut request = approval("a", "g", "g").spec.request;
        request.form = serde_json::from_value(json!({"questions": questions})).unwrap();
        request
    }

    #[test]
    fn a_gate_that_only_takes_an_answer_has_no_form() {
        assert!(!is_form(&request(json!([{"id": "answer"}]))) && !is_form(&request(json!([]))));
        for questions in [
            json!([{"id": "answer", "pattern": "[0-9]+"}]),
            json!([{"id": "q1", "question": "When?"}]),
            json!([{"id": "one"}, {"id": "two"}]),
        ] {
            let mut request = request(questions);
            assert!(is_form(&request));
            request.allowed_verdicts = vec![Verdict::Approve];
            assert!(!is_form(&request), "it takes no answer");
        }
    }

    #[test]
    fn answers_are_confirmed_question_by_question_and_hide_nothing() {
        let tone =
            json!({"id": "tone", "options": [{"id": "o1", "label": "Soft\u{202e}"}, {"id": "o2"}], "multiple": true});
        let request = request(json!([tone, {"id": "iban"}, {"id": "note", "required": false}]));
        let text = Answer { options: Vec::new(), text: Some("reject\n\u{1b}[2J".to_owned()) };
        let options = Answer { options: vec!["o1".to_owned(), "o2".to_owned()], text: None };
        let answers = FormAnswers::from([("iban".to_owned(), text), ("tone".to_owned(), options)]);
        assert_eq!(
            render_answers(&request, &answers),
            "tone: Soft⟨U+202E⟩, o2\niban:\n  | reject\n  | [2J\nnote: left out\n"
        );
    }
}
