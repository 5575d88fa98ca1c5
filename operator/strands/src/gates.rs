//! HITL steps as gates: the approvers, the words for Approve and Reject, and the consequence of no decision.
//!
//! An answer in words stays a text: only a word with which the file itself compares becomes the text of a verdict.

use serde_json::{Map, Value, json};
use signoff_api::{Verdict, verdict::Word};
use signoff_expr::re2;
use signoff_manifest::source::Node;

use super::{
    answer_words::{self, AnswerComparison},
    import::{Import, is_gate},
    import_notes::NoteLevel,
};

/// The longest timeout of a gate, in seconds. A gate without a timeout has this one.
const MAX_TIMEOUT: u64 = 7 * 24 * 3600;

/// The position of a gate, which determines the verdicts that it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// A step, task, node or reduce step.
    Step,
    /// Before a route runs.
    Route,
    /// Before subtasks run.
    Subtasks,
    /// After subtasks run.
    Reduce,
    /// After an evaluation.
    Review,
}

impl Import<'_> {
    /// Returns the `hitl` of a step that asks people, with notes about what differs from the file. `own`: the path of
    /// the answer in the file.
    pub(super) fn import_gate(&mut self, node: &Node, path: &str, own: &str, position: Position) -> Value {
        self.notes.read(node, "hitl step", path);
        let mut hitl = Map::new();
        if position != Position::Step {
            self.notes.tell_unused(
                NoteLevel::Unsupported,
                node,
                path,
                &["skip_if"],
                "people are always asked here: left out",
            );
            let why = "its place in the pattern is fixed, so it depends on no other step: left out";
            self.notes.tell_unused(NoteLevel::Unsupported, node, path, &["deps", "dependencies"], why);
            self.notes.tell_unused(NoteLevel::Info, node, path, &["id"], "this gate already has a name: left out");
            if !is_gate(node) {
                self.notes.tell_unused(
                    NoteLevel::Changed,
                    node,
                    path,
                    &["type"],
                    "only people can review here: they are asked",
                );
            }
        }
        let prompt = self.import_text(node, "prompt").unwrap_or_else(|| {
            self.tell_at(NoteLevel::Info, path, node, "there is no prompt: people are asked `Go on?`");
            "Go on?".to_owned()
        });
        hitl.insert("prompt".into(), prompt.into());
        if let Some(context) = self.import_text(node, "context_display") {
            hitl.insert("contextDisplay".into(), context.into());
        }
        let threshold = whole_number(node, "approval_threshold").unwrap_or(1);
        hitl.insert("approvers".into(), self.import_approvers(node, path));
        if threshold != 1 {
            hitl.insert("threshold".into(), threshold.into());
        }
        let default = node.get("default").map(scalar_text).filter(|text| !text.is_empty());
        let pattern = self.import_answer_pattern(node, path);
        let candidates = self.rank_answer_words(own, pattern.as_deref(), default.as_deref());
        // The pattern refuses such a word, so no person can have answered with it.
        let fits = |word: &&str| pattern.as_deref().is_none_or(|pattern| fits(pattern, word));
        let candidates: Vec<&str> = candidates.iter().map(String::as_str).filter(fits).collect();
        let options = pattern.as_deref().and_then(answer_words::alternatives).filter(|_| threshold > 1);
        let mut verdicts = self.choose_verdicts(node, path, position, threshold, options.is_some(), &candidates);
        if pattern.is_some() && position == Position::Step && threshold == 1 {
            let has_word = |verdict: &Verdict| answer_words::first_word_for(*verdict, &candidates).is_some();
            verdicts.retain(|verdict| !matches!(verdict, Verdict::Approve | Verdict::Reject) || has_word(verdict));
        }
        hitl.insert("allowedVerdicts".into(), json!(verdicts));
        let answers = verdicts.contains(&Verdict::Respond);
        self.tell_unused_validation(node, path, answers, pattern.is_some(), options.is_some());
        if let Some(question) = build_question(node, pattern, default.as_deref(), options).filter(|_| answers) {
            hitl.insert("form".into(), json!({"questions": [question]}));
            if verdicts.contains(&Verdict::Approve) {
                // Approve is an answer too, and leaves the question unanswered.
                hitl.insert("allowUnanswered".into(), true.into());
            }
        }
        hitl.insert("timeout".into(), self.import_timeout(node, path, default.as_deref(), &verdicts));
        if position == Position::Step {
            hitl.insert("onReject".into(), "continue".into());
        }
        for (verdict, field) in [(Verdict::Approve, "approveText"), (Verdict::Reject, "rejectText")] {
            if let Some(word) =
                answer_words::first_word_for(verdict, &candidates).filter(|_| verdicts.contains(&verdict))
            {
                hitl.insert(field.into(), word.into());
            }
        }
        Value::Object(hitl)
    }

    /// Returns the approvers that a gate names, or the approver of the import with a note.
    fn import_approvers(&mut self, node: &Node, path: &str) -> Value {
        let named: Vec<Value> = node
            .get("required_approvers")
            .map(Node::items)
            .unwrap_or_default()
            .iter()
            .map(scalar_text)
            .map(|name| match name.strip_prefix("group:") {
                Some(group) => json!({"kind": "Group", "name": group}),
                None => json!({"kind": "User", "name": name}),
            })
            .collect();
        if named.is_empty() {
            let message = format!("no approvers are named: {} decides", self.approver);
            self.tell_at(NoteLevel::Info, path, node, message);
            return json!([{"kind": "User", "name": self.approver}]);
        }
        Value::Array(named)
    }

    /// Returns the pattern of the answers, or `None` if there is none. A pattern that RE2 cannot express is left out
    /// with a note.
    fn import_answer_pattern(&mut self, node: &Node, path: &str) -> Option<String> {
        let validation = node.get("validation")?;
        let field = format!("{path}.validation");
        self.notes.read(validation, "hitl.validation", &field);
        let pattern = validation.get("pattern")?.text()?.to_owned();
        match re2::whole(&pattern) {
            Ok(_) => Some(pattern),
            Err(why) => {
                let message = format!("the pattern {why}; any answer is taken");
                self.tell_at(NoteLevel::Unsupported, &format!("{field}.pattern"), validation, message);
                None
            }
        }
    }

    /// Adds notes about a validation without effect: only a gate that asks for a text checks the answer.
    fn tell_unused_validation(
        &mut self,
        node: &Node,
        path: &str,
        takes_answer: bool,
        has_pattern: bool,
        has_options: bool,
    ) {
        let Some(validation) = node.get("validation") else { return };
        let (fields, weight, why): (&[&str], _, _) = match (takes_answer, has_pattern, has_options) {
            (false, ..) => (&["pattern", "error_message"], NoteLevel::Changed, "no answer here is a text: left out"),
            (true, false, _) => (&["error_message"], NoteLevel::Changed, "no pattern checks the answer: left out"),
            (true, true, true) => {
                (&["error_message"], NoteLevel::Info, "people choose one of the pattern's words: left out")
            }
            (true, true, false) => return,
        };
        self.notes.tell_unused(weight, validation, &format!("{path}.validation"), fields, why);
    }

    /// Returns the words that may mean a verdict at this gate: first the words with which its answers are compared, the
    /// nearest first, then those of the pattern and the default.
    fn rank_answer_words(&self, own: &str, pattern: Option<&str>, default: Option<&str>) -> Vec<String> {
        let any = |compared: &&AnswerComparison| compared.path == "hitl_response" || compared.path == "last_response";
        let rank = |compared: &&AnswerComparison| match (&compared.path, &compared.after) {
            (path, _) if path == own => Some(0),
            (_, Some(after)) if any(compared) => (after == own).then_some(1),
            (_, None) if any(compared) => Some(2),
            _ => None,
        };
        let ranked = self.compared.iter().filter_map(|compared| Some((rank(&compared)?, compared.word.clone())));
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        let mut words: Vec<String> = ranked.into_iter().map(|(_, word)| word).collect();
        words.extend(pattern.and_then(answer_words::alternatives).unwrap_or_default());
        words.extend(default.map(ToOwned::to_owned));
        words
    }

    /// Returns the verdicts that a gate allows, with notes about answers that the file takes and the gate does not.
    fn choose_verdicts(
        &mut self,
        node: &Node,
        path: &str,
        position: Position,
        threshold: u64,
        has_options: bool,
        candidates: &[&str],
    ) -> Vec<Verdict> {
        let is_compared = |verdict| answer_words::first_word_for(verdict, candidates).is_some();
        let mut verdicts = vec![Verdict::Approve, Verdict::Reject];
        if threshold > 1 && !has_options {
            let message = "several people answer, so a free text is not an answer: they approve or reject";
            self.tell_at(NoteLevel::Changed, &format!("{path}.approval_threshold"), node, message);
        } else {
            verdicts.push(Verdict::Respond);
        }
        match position {
            Position::Route => {
                verdicts.push(Verdict::Modify);
                let message = "a text such as `route:<name>` is told to the router, which then chooses again; to set the route, decide Modify with the parameter route";
                self.tell_at(NoteLevel::Changed, path, node, message);
            }
            Position::Subtasks => verdicts.push(Verdict::Modify),
            Position::Review => {
                // `continue` is a word for Approve, which would end the loop.
                verdicts.retain(|verdict| *verdict != Verdict::Approve);
                let message =
                    "any text revises the draft, also the word `stop`; only Abort ends the run here, without a result";
                self.tell_at(NoteLevel::Changed, path, node, message);
            }
            Position::Reduce => {
                // A text would not be read here.
                verdicts.retain(|verdict| *verdict != Verdict::Respond);
                verdicts.extend([Verdict::Modify, Verdict::Defer]);
                let message = "a text alone is not a decision here: approve, or let the workers do it again by Defer with guidance";
                self.tell_at(NoteLevel::Changed, path, node, message);
            }
            Position::Step => {}
        }
        // In a file that compares with `stop` or `cancel`, these words are answers.
        if !is_compared(Verdict::Abort) {
            verdicts.push(Verdict::Abort);
        }
        verdicts
    }

    /// Returns the timeout of a gate and its action, with a note if the file has none, or one that is too long.
    fn import_timeout(&mut self, node: &Node, path: &str, default: Option<&str>, verdicts: &[Verdict]) -> Value {
        let field = format!("{path}.timeout_seconds");
        let seconds = whole_number(node, "timeout_seconds").unwrap_or(0);
        if seconds == 0 {
            let message =
                "a gate must have a deadline: after 7 days it is overdue and stays open for Retry, Reject and Abort";
            self.tell_at(NoteLevel::Info, path, node, message);
            return json!({"after": "168h", "action": "Expire"});
        }
        if seconds > MAX_TIMEOUT {
            let message = "longer than 7 days, the most that is usually allowed: set to 7 days";
            self.tell_at(NoteLevel::Changed, &field, node, message);
        }
        let action = match (default, verdicts.contains(&Verdict::Respond)) {
            (Some(_), true) => "Default",
            // If people can only approve or reject, a default that approves is a verdict.
            (Some(word), false)
                if verdicts.contains(&Verdict::Modify) && Word::read(word) == Word::Verdict(Verdict::Approve) =>
            {
                self.tell_at(NoteLevel::Changed, &field, node, "the default is yes: a timeout approves");
                "Approve"
            }
            (Some(_), false) => {
                self.tell_at(
                    NoteLevel::Changed,
                    &field,
                    node,
                    "this gate takes no text, so the default cannot be the answer: a timeout rejects",
                );
                "Reject"
            }
            (None, _) => {
                self.tell_at(NoteLevel::Info, &field, node, "there is no default: a timeout rejects");
                "Reject"
            }
        };
        json!({"after": format!("{}s", seconds.min(MAX_TIMEOUT)), "action": action})
    }
}

/// Returns the single question of a gate, if it is more than a plain text.
fn build_question(
    node: &Node,
    pattern: Option<String>,
    default: Option<&str>,
    options: Option<Vec<String>>,
) -> Option<Value> {
    let mut question = Map::from_iter([("id".to_owned(), json!("answer"))]);
    let message = node.get("validation").and_then(|v| v.get("error_message")).and_then(Node::text);
    if let Some(options) = options {
        let option = |word: &String| json!({"id": super::names::label(word, "option"), "label": word});
        question.insert("options".into(), options.iter().map(option).collect());
    } else if let Some(pattern) = pattern {
        question.insert("pattern".into(), pattern.into());
        if let Some(message) = message {
            question.insert("errorMessage".into(), message.into());
        }
    }
    if let Some(default) = default {
        question.insert("default".into(), default.into());
    }
    (question.len() > 1).then_some(Value::Object(question))
}

/// Whether the pattern matches the whole word.
fn fits(pattern: &str, word: &str) -> bool {
    re2::whole(pattern).is_ok_and(|pattern| pattern.is_match(word))
}

/// Returns a field that is a whole number, or `None` if the field is missing.
pub(super) fn whole_number(node: &Node, field: &str) -> Option<u64> {
    node.get(field).and_then(|value| value.to_json().as_u64())
}

/// Returns a scalar as text.
pub(super) fn scalar_text(node: &Node) -> String {
    match node.to_json() {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
