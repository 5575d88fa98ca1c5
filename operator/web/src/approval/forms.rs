//! The forms of a request: a button or a form for each verdict that the gate takes now.
//!
//! Pure.
//!
//! **Invariant:** a verdict that the gate does not take is not offered.

use signoff_api::{
    ApprovalRequest, Verdict,
    gate::{Question, Subject},
};
use signoff_engine::approval::eligibility::allowed_verdicts;
use signoff_expr::text::display;
use signoff_review::{action, meaning::run_again, reading::Verified, request::answer_rules, text::one_line};

use super::{
    model::{comes_to, reviewed},
    read::Read,
    typed::{self, FormField, Parameter, Problems, Typed, plain_lines},
};

/// The longest name of a subject that can be asked, in characters.
const LONGEST_SUBJECT: usize = 320;

/// The forms of a decision.
pub(super) struct Decide {
    /// The name of the part of the form that was sent before; empty on a page without a sent form.
    pub(super) form: &'static str,
    /// The verdicts that need no more than a reason, with buttons in the bar.
    pub(super) plain: Vec<Plain>,
    /// The verdicts that need no more than a reason, with buttons under “More”.
    pub(super) further: Vec<Plain>,
    /// The reason, which is the same for all verdicts.
    pub(super) reason: FormField,
    pub(super) reason_required: bool,
    pub(super) respond: Vec<QuestionField>,
    pub(super) modify: Vec<Editor>,
    pub(super) retry: Vec<Editor>,
    pub(super) defer: Option<FormField>,
    pub(super) escalate: Option<Escalate>,
}

/// A verdict with its own button.
pub(super) struct Plain {
    pub(super) verdict: &'static str,
    pub(super) label: String,
    pub(super) class: &'static str,
    pub(super) comes_to: String,
    /// Whether the page has a box with the effect of the verdict.
    pub(super) has_box: bool,
}

impl Decide {
    /// Whether there is a verdict under “More”.
    pub(super) fn has_more(&self) -> bool {
        !self.further.is_empty() || self.defer.is_some() || !self.retry.is_empty() || self.escalate.is_some()
    }

    /// Whether “More” is open at first: something was typed or sent there, or there are no other verdicts.
    pub(super) fn shows_more(&self) -> bool {
        let is_alone = self.plain.is_empty() && self.respond.is_empty() && self.modify.is_empty();
        let is_typed = self.has_guidance() || self.has_targets() || self.retry.iter().any(Editor::is_changed);
        is_alone || is_typed || matches!(self.form, "defer" | "escalate" | "retry")
    }

    /// Whether the editor is open at first: something was changed there, or it was sent.
    pub(super) fn shows_editor(&self) -> bool {
        self.form == "modify" || self.modify.iter().any(Editor::is_changed)
    }

    /// Whether answers, and not an Approve, let the run continue. Then the questions come first.
    pub(super) fn is_form(&self) -> bool {
        !self.respond.is_empty() && self.plain.iter().all(|one| one.verdict != Verdict::Approve.name())
    }

    /// Returns the parts of the form that were filled in and are not sent with the verdict of its button.
    pub(super) fn left_out(&self) -> Vec<&'static str> {
        let parts = [
            ("modify", "Change…", self.modify.iter().any(Editor::is_changed)),
            ("respond", "Your answer", self.respond.iter().any(|asked| asked.is_changed)),
            ("defer", "Guidance", self.has_guidance()),
            ("retry", "Retry a part", self.retry.iter().any(Editor::is_changed)),
            ("escalate", "Ask further people", self.has_targets()),
        ];
        let is_left_out = |(form, _, is_filled): &(&str, &str, bool)| *is_filled && *form != self.form;
        parts.into_iter().filter(is_left_out).map(|(_, part, _)| part).collect()
    }

    fn has_guidance(&self) -> bool {
        self.defer.as_ref().is_some_and(|guidance| !guidance.value.trim().is_empty())
    }

    fn has_targets(&self) -> bool {
        self.escalate.iter().flat_map(|escalate| &escalate.targets).any(|(.., is_chosen)| *is_chosen)
    }
}

/// Returns the verdicts of the boxes on the page of a request: one that lets the run continue, and one that ends it.
pub(super) fn boxes(allowed: &[Verdict]) -> Vec<Verdict> {
    let first = |verdicts: &[Verdict]| verdicts.iter().find(|verdict| allowed.contains(verdict)).copied();
    let goes_on = first(&[Verdict::Approve, Verdict::Respond, Verdict::Retry, Verdict::Skip]);
    goes_on.into_iter().chain(first(&[Verdict::Reject, Verdict::Abort])).collect()
}

/// One question of the form.
pub(super) struct QuestionField {
    pub(super) id: String,
    pub(super) question: Option<String>,
    pub(super) options: Vec<Choice>,
    pub(super) option_field: String,
    pub(super) text_field: String,
    pub(super) takes_text: bool,
    pub(super) is_multiple: bool,
    pub(super) rules: String,
    pub(super) is_required: bool,
    /// Whether the answer differs from the default of the question.
    pub(super) is_changed: bool,
    pub(super) field: FormField,
}

/// An option of a question.
pub(super) struct Choice {
    pub(super) id: String,
    pub(super) label: String,
    pub(super) description: String,
    pub(super) is_chosen: bool,
}

/// One parameter in the editor.
pub(super) struct Editor {
    pub(super) parameter: Parameter,
    pub(super) field: FormField,
    pub(super) rows: usize,
}

impl Editor {
    fn is_changed(&self) -> bool {
        self.parameter.is_changed(&self.field.value)
    }
}

/// The form of an Escalate.
pub(super) struct Escalate {
    /// The subjects that can be asked: the number, the name, and whether it was chosen before.
    pub(super) targets: Vec<(usize, String, bool)>,
    /// Whether an Escalate without subjects asks the next level of the gate.
    pub(super) has_level: bool,
    pub(super) comes_to: String,
}

/// Returns the forms of a verified request for a reader who can decide, with the fields as they were typed and their
/// problems.
pub(super) fn decide(verified: Verified<'_>, read: &Read, typed: &Typed, problems: &Problems) -> Decide {
    let approval = &verified.seen().approval;
    let request = &approval.spec.request;
    let status = approval.status.clone().unwrap_or_default();
    let allowed = allowed_verdicts(request, &status);
    let takes = |verdict| allowed.contains(&verdict);
    let foreseen = |verdict| {
        let found = read.foreseen.iter().find(|(other, _)| *other == verdict);
        found.map(|(_, reached)| comes_to(request, verdict, reached, &read.run)).unwrap_or_default()
    };
    let field = |name: &str, default: String| FormField {
        value: typed.text(name).unwrap_or(default),
        problem: problems.at(name).cloned(),
    };
    let whole = reviewed(read);
    let form = typed.sent_part();
    let editors = |verdict, name: &str| -> Vec<Editor> {
        let fields = typed::parameters_of(request, verdict, whole.as_deref());
        let editor = |parameter: Parameter| {
            let value = typed.text(&parameter.field).unwrap_or_else(|| parameter.text());
            // Problems of the engine name the parameters of every verdict `parameters.NAME`.
            let of_engine = || problems.at(&format!("parameters.{}", parameter.name));
            let problem = problems.at(&parameter.field).or_else(of_engine).filter(|_| form == name).cloned();
            Editor { rows: value.lines().count().clamp(2, 16), field: FormField { value, problem }, parameter }
        };
        fields.into_iter().map(editor).collect()
    };
    let level = usize::try_from(status.level.unwrap_or(0)).unwrap_or(usize::MAX);
    let has_level = level < request.timeout.escalation.len();
    let boxes = boxes(allowed);
    let button = |(verdict, label, class): (Verdict, &'static str, &'static str)| {
        let again = run_again(request).filter(|_| verdict == Verdict::Retry);
        let label = again.map_or_else(|| label.to_owned(), |again| format!("{label} ({again})"));
        Plain { verdict: verdict.name(), comes_to: foreseen(verdict), label, class, has_box: boxes.contains(&verdict) }
    };
    let buttons = |all: &[(Verdict, &'static str, &'static str)]| -> Vec<Plain> {
        all.iter().filter(|(verdict, ..)| takes(*verdict)).copied().map(button).collect()
    };
    let is_chosen = |number: usize| typed.all("to").any(|chosen| chosen == number.to_string());
    let target = |(number, subject): (usize, &Subject)| {
        (number, one_line(&subject.to_string(), LONGEST_SUBJECT), is_chosen(number))
    };
    // A subject that is an approver already cannot be added.
    let is_new = |(_, subject): &(usize, &Subject)| !approval.approvers().contains(subject);
    let targets: Vec<_> = request.escalate_to.iter().enumerate().filter(is_new).map(target).collect();
    Decide {
        form,
        plain: buttons(&[
            (Verdict::Approve, "Approve", "main"),
            (Verdict::Reject, "Reject", "danger"),
            (Verdict::Retry, "Retry", ""),
        ]),
        further: buttons(&[(Verdict::Skip, "Skip", ""), (Verdict::Abort, "Abort the run", "danger")]),
        reason: field("reason", String::new()),
        reason_required: request.require_reason == Some(true),
        respond: if takes(Verdict::Respond) { question_fields(request, typed, problems) } else { Vec::new() },
        modify: if takes(Verdict::Modify) { editors(Verdict::Modify, "modify") } else { Vec::new() },
        retry: if takes(Verdict::Retry) { editors(Verdict::Retry, "retry") } else { Vec::new() },
        defer: takes(Verdict::Defer).then(|| field("guidance", String::new())),
        escalate: (takes(Verdict::Escalate) && (has_level || !targets.is_empty())).then(|| Escalate {
            has_level,
            targets,
            comes_to: foreseen(Verdict::Escalate),
        }),
    }
}

/// Returns the fields of the questions of a request, with what was typed or with the defaults.
fn question_fields(request: &ApprovalRequest, typed: &Typed, problems: &Problems) -> Vec<QuestionField> {
    let is_of_agent = action::is_question(request);
    let count = request.form.as_ref().map_or(0, |form| form.questions.len());
    let field = |(index, question): (usize, &Question)| {
        let (option_field, text_field) = (typed::option_field(question), typed::text_field(question));
        let default = question.default.clone().unwrap_or_default();
        let by_default = question.option_named(&default).map(|option| option.id.clone());
        // The form has the fields of all verdicts, so an option that a sent form lacks was not chosen, whatever the
        // button.
        let was_sent = typed.verdict().is_some();
        let is_chosen = |id: &str| match was_sent {
            true => typed.all(&option_field).any(|chosen| chosen == id),
            false => by_default.as_deref() == Some(id),
        };
        let options = question.options.iter().map(|option| Choice {
            label: one_line(option.label(), 253),
            description: one_line(option.description.as_deref().unwrap_or(""), 400),
            is_chosen: is_chosen(&option.id),
            id: option.id.clone(),
        });
        let text = if by_default.is_some() { String::new() } else { plain_lines(&default) };
        let value = typed.text(&text_field).unwrap_or_else(|| text.clone());
        let is_other = |id: &String| is_chosen(id) != (by_default.as_ref() == Some(id));
        let is_changed = value != text || question.options.iter().any(|option| is_other(&option.id));
        QuestionField {
            id: match count {
                // The operator generates the ids of an agent's questions, which mean nothing to people.
                1 if is_of_agent => "Question".to_owned(),
                _ if is_of_agent => format!("Question {} of {count}", index + 1),
                _ if question.id == Question::PLAIN => "Answer".to_owned(),
                _ => one_line(&question.id, 63),
            },
            question: question.question.as_ref().map(|text| display(text, 4096)),
            options: options.collect(),
            takes_text: question.takes_text(),
            is_multiple: question.multiple == Some(true),
            rules: answer_rules(request, question).join("; "),
            is_required: !question.may_be_left_out(),
            is_changed,
            field: FormField { value, problem: problems.at(&text_field).cloned() },
            option_field,
            text_field,
        }
    };
    request.form.iter().flat_map(|form| &form.questions).enumerate().map(field).collect()
}
