//! The menu of a gate, and the choice that a typed line makes.
//!
//! **Invariant:** an answer is never taken for a verdict: where free text is an answer, verdicts have words and no
//! numbers.

use signoff_api::{
    ApprovalRequest, Verdict,
    gate::{GateType, Question},
    verdict::Word,
};
use signoff_cli::sanitize::one_line;
use signoff_expr::nearest::did_you_mean;
use signoff_local::mistyped;
use signoff_review::{action, meaning::run_again};

use super::parse_verdict;

/// The choices of a menu.
#[derive(Debug)]
pub struct Menu<'r> {
    /// The request of the gate, or `None` while only answers to one of several questions are taken.
    request: Option<&'r ApprovalRequest>,
    /// The question whose answers are choices, if there is one.
    question: Option<&'r Question>,
    verdicts: Vec<Verdict>,
    /// Whether the menu belongs to a form of several questions.
    is_form: bool,
}

/// The choice of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MenuChoice {
    /// A verdict. Its payload is still missing.
    Verdict(Verdict),
    /// Options of the question.
    Options(Vec<String>),
    /// A text that answers the question.
    Text(String),
    /// A line that is no choice, with the sentence that lists the choices.
    Unknown(String),
}

impl<'r> Menu<'r> {
    /// Returns the menu of a gate.
    pub fn of(request: &'r ApprovalRequest) -> Self {
        let questions = request.form.as_ref().map_or(&[][..], |form| form.questions.as_slice());
        let responds = request.allowed_verdicts.contains(&Verdict::Respond);
        let question = match questions {
            [only] if responds => Some(only),
            _ => None,
        };
        // If only the listed options are answers, the verdict Respond is no further choice.
        let listed = |verdict: &Verdict| *verdict != Verdict::Respond || question.is_none_or(Question::takes_text);
        let verdicts = request.allowed_verdicts.iter().copied().filter(listed).collect();
        Self { request: Some(request), question, verdicts, is_form: false }
    }

    /// Returns the menu of a form of several questions while `question` is asked: a word for a verdict is never an
    /// answer.
    pub fn of_form(request: &'r ApprovalRequest, question: Option<&'r Question>) -> Self {
        Self { request: Some(request), question, verdicts: request.allowed_verdicts.clone(), is_form: true }
    }

    /// Whether a line that is no other choice is an answer.
    pub fn takes_text(&self) -> bool {
        self.question.is_some_and(Question::takes_text)
    }

    /// Returns the menu of one of several questions to which every line is an answer, also a word for a verdict.
    pub fn of_question(question: &'r Question) -> Self {
        Self { request: None, question: Some(question), verdicts: Vec::new(), is_form: true }
    }

    /// Whether a number can stand for a verdict.
    fn is_numbered(&self) -> bool {
        !self.is_form && !self.takes_text()
    }

    /// Returns the question whether a word that could be an answer is meant as a verdict.
    pub fn confirmation(&self, verdict: Verdict) -> String {
        format!("{verdict} instead of an answer: {}? [y/N] ", self.meaning(verdict))
    }

    fn options(&self) -> usize {
        self.question.map_or(0, |question| question.options.len())
    }

    /// Renders the menu, a line for each choice.
    pub fn render(&self) -> String {
        let mut lines = String::new();
        for (index, option) in self.question.iter().flat_map(|question| &question.options).enumerate() {
            let id = one_line(&option.id, 63);
            let label = if option.label() == option.id { String::new() } else { one_line(option.label(), 253) };
            let more =
                option.description.as_ref().map(|text| format!(" ({})", one_line(text, 200))).unwrap_or_default();
            lines += format!("  {:>2}  {id:<12}{label}{more}", index + 1).trim_end();
            lines.push('\n');
        }
        for (index, verdict) in self.verdicts.iter().enumerate() {
            let number = if self.is_numbered() { (self.options() + index + 1).to_string() } else { String::new() };
            lines += &format!("  {number:>2}  {:<12}{}\n", verdict.name().to_lowercase(), self.meaning(*verdict));
        }
        lines
    }

    /// Returns the effect of a verdict.
    fn meaning(&self, verdict: Verdict) -> String {
        match self.request.filter(|_| verdict == Verdict::Retry).and_then(run_again) {
            Some(again) => format!("{again}; gates in front of it ask first"),
            None => self.verdict_text(verdict).to_owned(),
        }
    }

    fn verdict_text(&self, verdict: Verdict) -> &'static str {
        let is_call = self.request.is_some_and(|request| action::call(request).is_some());
        let is_question = self.request.is_some_and(action::is_question);
        let ends_run = self.request.is_none_or(|request| request.after_reject.is_empty());
        let is_failure_gate = self.request.is_some_and(|request| request.gate.type_ == GateType::ErrorEscalation);
        let is_output_check = self.request.is_some_and(|request| request.gate.type_ == GateType::OutputValidation);
        match verdict {
            Verdict::Retry if is_output_check => {
                "run the step once more, also if it had its effect, and ask about its new answer"
            }
            Verdict::Defer if is_output_check => "run the step once more with your guidance, also if it had its effect",
            Verdict::Approve if is_output_check => "go on with this answer, whether it fits the schema or not",
            Verdict::Retry if is_failure_gate => "make one more attempt; gates in front of it ask first",
            Verdict::Skip if is_failure_gate => "go on without its result",
            Verdict::Modify if is_failure_gate => {
                "make one more attempt, with what you make of the request, in your editor"
            }
            Verdict::Approve if is_call => "go on with exactly this call",
            Verdict::Approve => "go on with exactly this",
            Verdict::Reject if ends_run => "reject it, and end the run",
            Verdict::Reject if is_call => "do not run it; the agent is told why",
            Verdict::Reject => "reject it; the run goes on",
            Verdict::Modify if is_call => "change the arguments in your editor; the gates of the new call ask",
            Verdict::Modify => "go on with what you make of it, in your editor",
            Verdict::Respond if self.is_form => "take every line as an answer, also one of these words",
            Verdict::Respond if is_call => "do not run it; your answer is its result",
            Verdict::Respond => "go on, with your answer in several lines",
            Verdict::Defer if is_call => "do not run it; the agent gets your guidance",
            Verdict::Defer if is_question => "give the agent guidance instead of an answer",
            Verdict::Defer => "do it again with your guidance, then ask again",
            Verdict::Escalate => "ask more people",
            Verdict::Abort => "end the whole run",
            Verdict::Skip if is_call => "do not run it; the agent continues without a result",
            Verdict::Skip => "go on without an answer",
            Verdict::Retry => "ask again",
        }
    }

    /// Returns the prompt of the line.
    pub fn hint(&self) -> &'static str {
        let several = self.question.is_some_and(|question| question.multiple == Some(true));
        match (self.options() > 0, self.takes_text(), several) {
            (_, true, false) => "Your answer, with which the run goes on, or one of these words",
            (_, true, true) => {
                "Your answer, with which the run goes on, numbers of options joined by commas, or one of these words"
            }
            (true, false, true) => "Numbers or words, options joined by commas",
            _ => "A number or a word",
        }
    }

    /// Returns the choice that a line means.
    pub fn pick(&self, line: &str) -> MenuChoice {
        let typed = line.trim();
        if let Some(question) = self.question
            && let Some(options) = parse_options(question, typed)
        {
            return MenuChoice::Options(options);
        }
        if let Ok(number) = typed.parse::<usize>()
            && self.is_numbered()
            && let Some(verdict) = number.checked_sub(self.options() + 1).and_then(|index| self.verdicts.get(index))
        {
            return MenuChoice::Verdict(*verdict);
        }
        match parse_verdict(typed) {
            Ok(verdict) if self.verdicts.contains(&verdict) => MenuChoice::Verdict(verdict),
            _ if self.takes_text() => match self.request.and_then(|request| mistyped(request, typed, true)) {
                Some(why) => MenuChoice::Unknown(format!("{why} (`respond` takes it as your answer)")),
                None => MenuChoice::Text(line.to_owned()),
            },
            _ if Word::read(typed) == Word::Trust => {
                MenuChoice::Unknown(format!("{}: choose a verdict of this list", Word::NO_TRUST))
            }
            _ => {
                let options = self.question.iter().flat_map(|question| &question.options);
                let names = options.flat_map(|option| [option.id.as_str(), option.label()]);
                let known = names.chain(self.verdicts.iter().flat_map(|verdict| verdict.words()).copied());
                let hint = one_line(&did_you_mean(typed, known), 300);
                let verdicts = if self.is_numbered() { self.verdicts.len() } else { 0 };
                MenuChoice::Unknown(format!("enter a number from 1 to {}{hint}", self.options() + verdicts))
            }
        }
    }
}

/// Returns the options that a line names by number, key or label. Several are joined by commas, if the question takes
/// several.
fn parse_options(question: &Question, typed: &str) -> Option<Vec<String>> {
    let find_option = |part: &str| {
        let part = part.trim();
        let by_number = || part.parse::<usize>().ok()?.checked_sub(1).and_then(|index| question.options.get(index));
        question.option_named(part).or_else(by_number).map(|option| option.id.clone())
    };
    if let Some(id) = find_option(typed) {
        return Some(vec![id]);
    }
    if question.multiple != Some(true) {
        return None;
    }
    typed.split(',').map(find_option).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use serde_json::json;
    use signoff_api::gate::Form;

    use super::*;
    use crate::answer::tests::approval;

    fn request(allowed: &[Verdict], question: serde_json::Value) -> ApprovalRequest {
        let mut request = approval("a", "g", "g").spec.request;
        request.allowed_verdicts = allowed.to_vec();
        let form: Form = serde_json::from_value(json!({"questions": [question]})).unwrap();
        request.form = Some(form);
        request
    }

    #[test]
    fn a_number_is_never_a_verdict_where_text_is_an_answer() {
        use Verdict::{Approve, Reject, Respond};
        let request = request(&[Approve, Reject, Respond], json!({"id": "answer"}));
        let menu = Menu::of(&request);
        assert!(matches!(menu.pick("2"), MenuChoice::Unknown(_)));
        assert_eq!(menu.pick(" no "), MenuChoice::Verdict(Reject));
        assert_eq!(menu.pick("respond"), MenuChoice::Verdict(Respond));
        assert_eq!(menu.pick("do not approve"), MenuChoice::Text("do not approve".into()));
        for word in ["skip", "aprove", "nope"] {
            assert!(matches!(menu.pick(word), MenuChoice::Unknown(_)), "{word} is neither a verdict nor an answer");
        }
        let own = json!({"id": "answer", "pattern": "[0-9]+"});
        let request = self::request(&[Approve, Reject, Respond], own);
        assert_eq!(Menu::of(&request).pick("2"), MenuChoice::Text("2".into()));
    }

    #[test]
    fn a_misspelt_word_is_refused_with_the_similar_word() {
        use Verdict::{Approve, Reject, Respond};
        let plain = request(&[Approve, Reject, Respond], json!({"id": "answer"}));
        let MenuChoice::Unknown(why) = Menu::of(&plain).pick("aprove") else { panic!("it was chosen") };
        assert_eq!(
            why,
            "`aprove` is not a verdict of this gate: it allows Approve, Reject, Respond; did you mean approve? \
             (`respond` takes it as your answer)"
        );
        let options = request(&[Approve, Reject], json!({"id": "answer"}));
        let MenuChoice::Unknown(why) = Menu::of(&options).pick("rejcet") else { panic!("it was chosen") };
        assert_eq!(why, "enter a number from 1 to 2; did you mean reject?");
    }

    #[test]
    fn options_are_chosen_by_number_key_or_label_and_verdicts_follow() {
        use Verdict::{Approve, Reject, Respond};
        let options = json!([{"id": "lis", "label": "Lisbon"}, {"id": "opo"}]);
        let single = request(&[Approve, Reject, Respond], json!({"id": "answer", "options": options}));
        let menu = Menu::of(&single);
        for typed in ["1", "lis", "Lisbon", " 1 "] {
            assert_eq!(menu.pick(typed), MenuChoice::Options(vec!["lis".into()]), "{typed}");
        }
        assert_eq!(menu.pick("3"), MenuChoice::Verdict(Approve));
        assert_eq!(menu.pick("4"), MenuChoice::Verdict(Reject));
        assert!(matches!(menu.pick("5"), MenuChoice::Unknown(_)) && matches!(menu.pick("1,2"), MenuChoice::Unknown(_)));
        assert_eq!(menu.render().lines().count(), 4);
        let several = request(&[Respond], json!({"id": "answer", "options": options, "multiple": true}));
        assert_eq!(Menu::of(&several).pick("2, lis"), MenuChoice::Options(vec!["opo".into(), "lis".into()]));
    }

    #[test]
    fn a_word_for_an_allowed_verdict_is_never_an_answer_in_a_form() {
        use Verdict::{Abort, Approve, Reject, Respond, Skip};
        let text = json!({"id": "why"});
        let request = request(&[Approve, Reject, Respond, Skip, Abort], text);
        let question = &request.form.as_ref().unwrap().questions[0];
        let menu = Menu::of_form(&request, Some(question));
        for verdict in [Approve, Reject, Skip, Abort] {
            for word in verdict.words().iter().copied().chain([verdict.name()]) {
                for typed in [word.to_owned(), word.to_uppercase(), format!("  {word}\t")] {
                    assert_eq!(menu.pick(&typed), MenuChoice::Verdict(verdict), "{typed}");
                }
            }
        }
        assert_eq!(menu.pick("RESPOND"), MenuChoice::Verdict(Respond));
        assert_eq!(menu.pick("reject it later"), MenuChoice::Text("reject it later".into()));
        assert!(matches!(menu.pick("rejcet"), MenuChoice::Unknown(_)), "it is asked again");
        assert!(matches!(menu.pick("always"), MenuChoice::Unknown(_)), "a word of trust");
        assert_eq!(menu.pick("2"), MenuChoice::Text("2".into()), "no number is a verdict");
        let every = Menu::of_question(question);
        assert_eq!(every.pick("reject"), MenuChoice::Text("reject".into()), "after respond");
    }

    #[test]
    fn options_of_a_form_are_numbered_and_verdicts_are_words() {
        use Verdict::{Approve, Reject, Respond};
        let request =
            request(&[Respond, Approve, Reject], json!({"id": "sure", "options": [{"id": "yes"}, {"id": "later"}]}));
        let question = &request.form.as_ref().unwrap().questions[0];
        let menu = Menu::of_form(&request, Some(question));
        assert_eq!(menu.pick("yes"), MenuChoice::Options(vec!["yes".into()]), "an option of the author comes first");
        assert_eq!(
            (menu.pick("approve"), menu.pick("no")),
            (MenuChoice::Verdict(Approve), MenuChoice::Verdict(Reject))
        );
        assert_eq!(menu.pick("3"), MenuChoice::Unknown("enter a number from 1 to 2".into()));
        assert_eq!(
            Menu::of_form(&request, None).render(),
            "      respond     take every line as an answer, also one of these words\n      \
             approve     go on with exactly this\n      reject      reject it, and end the run\n"
        );
        assert_eq!(menu.confirmation(Reject), "Reject instead of an answer: reject it, and end the run? [y/N] ");
    }

    #[test]
    fn a_menu_about_a_call_says_whether_the_call_runs() {
        let mut request = request(&[Verdict::Approve, Verdict::Reject, Verdict::Skip], json!({"id": "answer"}));
        assert!(Menu::of(&request).render().contains("reject      reject it, and end the run"));
        request.action =
            serde_json::from_value(json!({"kind": "toolCall", "agent": "clerk", "tool": "refund"})).unwrap();
        request.after_reject = vec!["the agent".to_owned()];
        let shown = Menu::of(&request).render();
        assert_eq!(
            shown,
            "   1  approve     go on with exactly this call\n   2  reject      do not run it; the agent is told why\n   \
             3  skip        do not run it; the agent continues without a result\n"
        );
    }

    #[test]
    fn a_retry_after_a_failure_shows_the_request_that_is_sent_again() {
        let mut request = request(&[Verdict::Retry, Verdict::Skip], json!({"id": "answer"}));
        request.gate.type_ = GateType::ErrorEscalation;
        let sent = json!({"text": "url: http://x/pay\nmethod: POST\n"});
        request.sends = serde_json::from_value(sent).unwrap();
        assert_eq!(
            Menu::of(&request).render(),
            "   1  retry       run the step again: POST http://x/pay; gates in front of it ask first\n   \
             2  skip        go on without its result\n"
        );
    }

    #[test]
    fn a_menu_escapes_hidden_characters_of_its_author() {
        let options = json!([{"id": "a", "label": "x\u{1b}[2J\u{202e}y\nz"}]);
        let request = request(&[Verdict::Respond], json!({"id": "answer", "options": options}));
        let shown = Menu::of(&request).render();
        assert!(!shown.contains('\u{1b}') && shown.contains("⟨U+202E⟩") && shown.lines().count() == 1, "{shown}");
    }
}
