//! The person at the terminal: they are shown a gate, and their decision about it is read.
//!
//! Everything is written to standard error: standard output is for the result of the run.

use std::{io, sync::Arc};

use serde_json::{Value, json};
use signoff_api::{ApprovalRequest, Decision, JsonObject, Verdict, approval::Answer, gate::Question};
use signoff_cli::{
    difference, editor,
    sanitize::{fence, one_line},
    terminal,
};
use signoff_engine::gate::parameters;
use signoff_local::GateQuestion;
use signoff_review::{
    action, clock,
    edit::{changed_only, parameters_to_edit},
    whole::{Whole, is_edit_cut, to_edit},
};
use tokio::sync::Mutex;

use super::{
    form::{FormAnswers, is_form, questions, render_answers},
    lines::Lines,
    menu::{Menu, MenuChoice},
    page::render_page,
    parse_object,
};

/// The line that ends a text of several lines.
const END: &str = ".";

/// A lock that is held while the person's editor has the terminal, so that only the editor reads, writes, and gets
/// ctrl-C. The editor can outlive its question, because the deadline of a gate can pass during an edit.
pub type Editing = Arc<Mutex<()>>;

/// A person at a terminal.
pub struct Person {
    lines: Lines,
    editing: Editing,
    /// The name of the Approval for which parameters were sent last, and their edited text.
    sent: Option<(Option<String>, String)>,
}

/// The meaning of a line at a question of a form.
enum FormReply {
    /// An answer.
    With(Answer),
    /// The question is left out.
    LeftOut,
    /// A verdict, instead of all answers.
    Verdict(Verdict),
}

/// The reason why no decision was made.
enum Stop {
    /// The person leaves the gate for later: the input ended (ctrl-D) at any question.
    Later,
    /// The terminal cannot be read.
    Failed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Person {
    /// Returns a person whose editor holds the lock `editing`.
    pub fn new(editing: Editing) -> Self {
        Self { lines: Lines::default(), editing, sent: None }
    }

    /// Shows a gate and reads a decision. Returns `None` if the person leaves the gate for later (ctrl-D).
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub async fn decide(&mut self, asked: &GateQuestion) -> io::Result<Option<Decision>> {
        // The editor of a gate whose deadline has passed can still be open.
        drop(self.editing.lock().await);
        self.lines.discard_pending()?;
        match self.ask_decision(asked).await {
            Ok(decision) => Ok(Some(decision)),
            Err(Stop::Later) => Ok(None),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Shows the gate, or why the last answer does not count. Asks until there is a decision.
    async fn ask_decision(&mut self, asked: &GateQuestion) -> Result<Decision, Stop> {
        let request = asked.request();
        match &asked.refused {
            None => {
                terminal::note(&render_page(asked, clock::now()));
            }
            Some(why) => terminal::note(&format!("That does not count: {}.\n", one_line(why, 1000))),
        }
        if is_form(request) && questions(request).len() > 1 {
            return self.ask_form(asked).await;
        }
        let menu = Menu::of(request);
        terminal::note(&format!("{}{} (ctrl-D leaves it for later):", menu.render(), menu.hint()));
        loop {
            let line = self.read_line("> ").await?;
            if line.trim().is_empty() {
                continue;
            }
            let decision = match menu.pick(&line) {
                MenuChoice::Unknown(why) => {
                    terminal::note(&why);
                    None
                }
                MenuChoice::Options(options) => {
                    self.confirm(request, respond_decision(request, options_answer(options))).await?
                }
                MenuChoice::Text(text) => self.confirm(request, respond_decision(request, text_answer(text))).await?,
                MenuChoice::Verdict(verdict) => {
                    // At a form the word could be meant as the answer.
                    let is_unclear = is_form(request) && menu.takes_text();
                    if is_unclear && !self.confirm_verdict(&menu, verdict).await? {
                        continue;
                    }
                    self.ask_payload(asked, verdict).await?
                }
            };
            if let Some(decision) = decision {
                return self.ask_reason(request, decision).await;
            }
        }
    }

    /// Asks the questions of a form, again and again, until the person confirms all answers or another verdict.
    async fn ask_form(&mut self, asked: &GateQuestion) -> Result<Decision, Stop> {
        let request = asked.request();
        let verdicts = Menu::of_form(request, None).render();
        loop {
            terminal::note(&format!(
                "The questions follow, and nothing is sent before you confirm it. One of these words, typed alone, is no answer:\n\
                 {verdicts}(ctrl-D leaves it for later)"
            ));
            let decision = match self.ask_answers(request).await? {
                Ok(answers) => {
                    let decision = Decision { answers: Some(answers), ..Decision::new(Verdict::Respond) };
                    self.confirm(request, decision).await?
                }
                Err(verdict) => self.ask_payload(asked, verdict).await?,
            };
            if let Some(decision) = decision {
                return self.ask_reason(request, decision).await;
            }
        }
    }

    /// Shows the answers to a form, and returns the decision if the person confirms it. Without a form the decision
    /// needs no confirmation.
    async fn confirm(&mut self, request: &ApprovalRequest, decision: Decision) -> Result<Option<Decision>, Stop> {
        if is_form(request)
            && let Some(answers) = &decision.answers
        {
            terminal::note(&format!("Your answers:\n{}", render_answers(request, answers)));
            return Ok(self.ask_yes_no("Send Respond with these answers? [y/N] ").await?.then_some(decision));
        }
        Ok(Some(decision))
    }

    /// Asks whether a word that could be an answer is meant as a verdict, and prints a note if it is not. Respond needs
    /// no question, because it only leads to answers.
    async fn confirm_verdict(&mut self, menu: &Menu<'_>, verdict: Verdict) -> Result<bool, Stop> {
        if verdict == Verdict::Respond || self.ask_yes_no(&menu.confirmation(verdict)).await? {
            return Ok(true);
        }
        terminal::note("Nothing was decided. To answer with this word, enter `respond` first.");
        Ok(false)
    }

    async fn ask_yes_no(&mut self, question: &str) -> Result<bool, Stop> {
        Ok(self.read_line(question).await?.trim().to_lowercase().starts_with('y'))
    }

    /// Asks for the payload of a verdict. Returns `None` if the person takes the verdict back.
    async fn ask_payload(&mut self, asked: &GateQuestion, verdict: Verdict) -> Result<Option<Decision>, Stop> {
        let mut decision = Decision::new(verdict);
        match verdict {
            Verdict::Respond => {
                let text = self.read_text("Your answer").await?;
                return self.confirm(asked.request(), respond_decision(asked.request(), text_answer(text))).await;
            }
            Verdict::Defer => {
                let guidance = self.read_text("What to do differently").await?;
                if guidance.is_empty() {
                    return Ok(None);
                }
                decision.guidance = Some(guidance);
            }
            Verdict::Modify => match self.edit_parameters(asked).await? {
                Some(parameters) => decision.parameters = Some(parameters),
                None => return Ok(None),
            },
            _ => {}
        }
        Ok(Some(decision))
    }

    /// Asks all questions in turn. Returns the answers, or the verdict that was chosen instead.
    async fn ask_answers(&mut self, request: &ApprovalRequest) -> Result<Result<FormAnswers, Verdict>, Stop> {
        let mut answers = FormAnswers::new();
        let mut takes_words = false;
        for question in questions(request) {
            match self.ask_question(request, question, &mut takes_words).await? {
                FormReply::With(answer) => {
                    answers.insert(question.id.clone(), answer);
                }
                FormReply::LeftOut => {}
                FormReply::Verdict(verdict) => return Ok(Err(verdict)),
            }
        }
        Ok(Ok(answers))
    }

    /// Asks one of several questions. `takes_words`: whether words for verdicts are answers, which `respond` turns on.
    async fn ask_question(
        &mut self,
        request: &ApprovalRequest,
        question: &Question,
        takes_words: &mut bool,
    ) -> Result<FormReply, Stop> {
        let text = question.question.as_deref().unwrap_or(&question.id);
        terminal::note(&format!("\n{}:\n{}", one_line(&question.id, 63), fence(text, 1024)));
        let answers_only = Menu::of_question(question);
        let with_verdicts = Menu::of_form(request, Some(question));
        terminal::note(answers_only.render().trim_end());
        loop {
            let left_out = if question.may_be_left_out() { "empty leaves it out" } else { "it is required" };
            let line = self.read_line(&format!("({left_out}) > ")).await?;
            let menu = if *takes_words { &answers_only } else { &with_verdicts };
            match menu.pick(&line) {
                _ if line.trim().is_empty() && question.may_be_left_out() => return Ok(FormReply::LeftOut),
                _ if line.trim().is_empty() => {}
                MenuChoice::Options(options) => return Ok(FormReply::With(options_answer(options))),
                MenuChoice::Text(text) => return Ok(FormReply::With(text_answer(text))),
                MenuChoice::Verdict(Verdict::Respond) => {
                    *takes_words = true;
                    terminal::note("Every line is an answer now, also a word for a verdict.");
                }
                MenuChoice::Verdict(verdict) => {
                    if self.confirm_verdict(menu, verdict).await? {
                        return Ok(FormReply::Verdict(verdict));
                    }
                }
                MenuChoice::Unknown(why) => terminal::note(&why),
            }
        }
    }

    /// Returns the parameters that the person has changed in their editor, or `None` if they decide nothing.
    async fn edit_parameters(&mut self, asked: &GateQuestion) -> Result<Option<JsonObject>, Stop> {
        let Some(before) = draft_parameters(asked) else {
            terminal::note("What is reviewed is too long to be edited here: use --answers FILE with its parameters.");
            return Ok(None);
        };
        let name = asked.approval.metadata.name.clone();
        // Parameters that did not count are edited further, and not from the beginning.
        let sent = self.sent.take().filter(|(approval, _)| *approval == name && asked.refused.is_some());
        let mut text = sent.map_or_else(|| before.clone(), |(_, text)| text);
        loop {
            let editing = Arc::clone(&self.editing).lock_owned().await;
            // The thread of the editor holds the lock, because the editor can outlive this future.
            let edited = tokio::task::spawn_blocking(move || {
                let _editing = editing;
                editor::edit("parameters.yaml", &text, &["VISUAL", "EDITOR"])
            });
            let edited = match edited.await.map_err(io::Error::other)? {
                Ok(Some(edited)) if edited.trim() != before.trim() => edited,
                Ok(_) => {
                    terminal::note("Nothing was changed, so that nothing is decided:");
                    return Ok(None);
                }
                Err(error) => {
                    terminal::note(&format!("The editor cannot be used (set EDITOR): {error}"));
                    return Ok(None);
                }
            };
            match parse_object(&edited) {
                Ok(parameters) => {
                    let parameters = keep_changed(asked.request(), &before, parameters);
                    let difference = difference::lines(&strip_comments(&before), &strip_comments(&edited));
                    terminal::note(&format!("Your change:\n{}", fence(&difference, difference.len())));
                    if self.ask_yes_no("Send Modify with this change? [y/N] ").await? {
                        self.sent = Some((name, edited));
                        return Ok(Some(parameters));
                    }
                }
                Err(why) => terminal::note(&format!("These are {}.", one_line(&why, 400))),
            }
            if self.read_line("Edit them again? [Y/n] ").await?.trim().to_lowercase().starts_with('n') {
                return Ok(None);
            }
            text = edited;
        }
    }

    /// Asks for a reason if the gate requires one or the verdict usually has one, and adds it to the decision.
    async fn ask_reason(&mut self, request: &ApprovalRequest, mut decision: Decision) -> Result<Decision, Stop> {
        let needed = request.require_reason == Some(true);
        if needed || matches!(decision.verdict, Verdict::Reject | Verdict::Abort) {
            let prompt = if needed { "Why? > " } else { "Why? (empty for no reason) > " };
            decision.reason = Some(self.read_line(prompt).await?).filter(|line| !line.trim().is_empty());
        }
        Ok(decision)
    }

    /// Reads a text of several lines.
    async fn read_text(&mut self, title: &str) -> Result<String, Stop> {
        terminal::note(&format!("{title}; a line with only `{END}` ends it:"));
        let mut lines: Vec<String> = Vec::new();
        loop {
            match self.read_line("").await? {
                line if line == END => return Ok(lines.join("\n")),
                line => lines.push(line),
            }
        }
    }

    async fn read_line(&mut self, prompt: &str) -> Result<String, Stop> {
        terminal::prompt(prompt)?;
        let line = self.lines.read_line().await?;
        if line.is_none() {
            // The cursor is still on the line of the question.
            terminal::note("\n");
        }
        line.ok_or(Stop::Later)
    }
}

/// Returns only the changed parameters if the gate keeps the others as they are; otherwise all of them.
fn keep_changed(request: &ApprovalRequest, before: &str, edited: JsonObject) -> JsonObject {
    let schema = parameters::schema(request, Verdict::Modify);
    match (schema, parse_object(before)) {
        (Some(schema), Ok(before)) => JsonObject(changed_only(&schema, &before.0, edited.0)),
        _ => edited,
    }
}

/// Returns the text without the lines of comments above it.
fn strip_comments(text: &str) -> String {
    text.lines().skip_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

fn options_answer(options: Vec<String>) -> Answer {
    Answer { options, text: None }
}

fn text_answer(text: String) -> Answer {
    Answer { options: Vec::new(), text: Some(text) }
}

fn respond_decision(request: &ApprovalRequest, answer: Answer) -> Decision {
    let id = questions(request).first().map_or(Question::PLAIN, |question| &question.id).to_owned();
    Decision { answers: Some(FormAnswers::from([(id, answer)])), ..Decision::new(Verdict::Respond) }
}

/// Returns the text in which Modify starts to edit: the reviewed response as YAML, below a comment on the expected
/// value. Returns `None` if the request has only a part of that response.
fn draft_parameters(asked: &GateQuestion) -> Option<String> {
    let request = asked.request();
    let mut text = String::from("# The value to continue with. Leave it unchanged to decide nothing.\n");
    let schema = request.parameters.as_ref().and_then(|schemas| schemas.0.get(Verdict::Modify.name()));
    if let Some(schema) = schema {
        let such_as = Value::Object(parameters::example(schema)).to_string();
        text += &format!("# It takes {}, such as {such_as}.\n", one_line(&parameters::shape(schema), 1000));
    }
    let whole = Whole { context: None, review: asked.reviewed.clone(), sends: asked.sent.clone() };
    let reviewed = match to_edit(request, Some(&whole)) {
        Some(text) => text,
        None if is_edit_cut(request) => return None,
        None => "",
    };
    if let Some(schema) = schema.filter(|_| action::call(request).is_some()) {
        // The arguments were shown as JSON too.
        let begin = Value::Object(parameters_to_edit(schema, Some(reviewed)));
        return signoff_cli::sanitize::json(&begin).ok().map(|json| text + &json);
    }
    let value = match schema.map(|schema| (parameters_to_edit(schema, Some(reviewed)), parameters::example(schema))) {
        Some((begin, example)) if begin == example => return Some(text + "{}\n"),
        Some((begin, _)) => Value::Object(begin),
        None => json!({ "response": reviewed }),
    };
    // YAML is easier to read. JSON replaces it if the YAML would be read as another value.
    let yaml = serde_saphyr::to_string(&value).ok();
    let is_exact = |yaml: &String| serde_saphyr::from_str::<Value>(yaml).is_ok_and(|read| read == value);
    Some(text + &yaml.filter(is_exact).unwrap_or_else(|| value.to_string()))
}
