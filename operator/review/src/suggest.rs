//! Suggested commands: with the flags of this call of the plugin, and only for verdicts that the gate takes now.
//!
//! **Invariant:** a suggested command is not refused once its `…` are replaced.

use serde_json::Value;
use signoff_api::{Approval, ApprovalRequest, Verdict, gate::Question};
use signoff_engine::{approval::eligibility::allowed_verdicts, gate::parameters};

use crate::{
    action::call,
    text::{one_line, quoted},
};

/// The mark in place of a text that the user must write.
const BLANK: &str = "…";

/// The flags of this call of the plugin that every suggested command repeats.
#[derive(Clone, Debug, Default)]
pub struct CallFlags {
    words: Vec<String>,
}

/// A command that gives one verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The verdict that the command gives.
    pub verdict: Verdict,
    /// The command, quoted for a shell.
    pub command: String,
    /// The clause about the parameters that the verdict takes, or `None` for a verdict without parameters.
    pub takes: Option<String>,
}

impl CallFlags {
    /// Returns the flags with these words.
    pub fn new(words: Vec<String>) -> Self {
        Self { words }
    }

    /// Returns the words, for a command that the plugin starts.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Returns a kubectl command about a namespace, quoted for a shell.
    pub fn kubectl<S: AsRef<str>>(&self, namespace: Option<&str>, words: &[S]) -> String {
        let mut all = vec!["kubectl"];
        all.extend(words.iter().map(AsRef::as_ref));
        all.extend(namespace.iter().flat_map(|namespace| ["-n", *namespace]));
        all.extend(self.words.iter().map(String::as_str));
        quoted(&all)
    }

    /// Returns the command that shows an Approval.
    pub fn show(&self, namespace: Option<&str>, name: &str) -> String {
        self.kubectl(namespace, &["approve", "show", name])
    }

    /// Returns the command that shows the whole of an Approval.
    pub fn show_full(&self, approval: &Approval) -> String {
        let name = approval.metadata.name.as_deref().unwrap_or_default();
        self.kubectl(approval.metadata.namespace.as_deref(), &["approve", "show", "--full", name])
    }

    /// Returns a command for each verdict that an Approval takes now.
    pub fn decisions(&self, approval: &Approval) -> Vec<Suggestion> {
        let status = approval.status.clone().unwrap_or_default();
        let request = &approval.spec.request;
        let level = usize::try_from(status.level.unwrap_or(0)).unwrap_or(usize::MAX);
        let verdicts = allowed_verdicts(request, &status).iter().copied();
        verdicts.filter_map(|verdict| self.decision(approval, verdict, level)).collect()
    }

    /// Returns the command for a verdict, or `None` if the gate has no question to answer, or no further approvers.
    fn decision(&self, approval: &Approval, verdict: Verdict, level: usize) -> Option<Suggestion> {
        let request = &approval.spec.request;
        let schema = parameters::schema(request, verdict);
        let name = approval.metadata.name.clone().unwrap_or_default();
        let mut words = vec!["approve".to_owned(), verdict.name().to_lowercase(), name];
        let payload = match verdict {
            Verdict::Approve | Verdict::Reject | Verdict::Abort | Verdict::Skip | Verdict::Retry => Vec::new(),
            // The editor begins with the shown arguments, not with an example.
            Verdict::Modify if call(request).is_some() => vec!["--edit".to_owned()],
            Verdict::Modify => schema.as_ref().map(set_options).unwrap_or_default(),
            Verdict::Respond => answer_options(request)?,
            Verdict::Defer => ["--guidance", BLANK].map(str::to_owned).to_vec(),
            Verdict::Escalate if can_escalate(request, level) => Vec::new(),
            Verdict::Escalate => return None,
        };
        words.extend(payload);
        if request.require_reason == Some(true) {
            words.extend(["--reason", BLANK].map(str::to_owned));
        }
        let takes = schema.map(|schema| {
            let shape = one_line(&parameters::shape(&schema), 1000);
            match verdict {
                Verdict::Retry => format!("can take {shape}: {}", quoted(&set_options(&schema))),
                _ => format!("takes {shape}"),
            }
        });
        let command = self.kubectl(approval.metadata.namespace.as_deref(), &words);
        Some(Suggestion { verdict, command, takes })
    }
}

/// Returns suggestions as lines.
pub fn lines(suggestions: &[Suggestion]) -> String {
    let line = |suggestion: &Suggestion| {
        let takes = suggestion.takes.as_ref().map(|takes| format!("    {takes}\n")).unwrap_or_default();
        format!("  {}\n{takes}", suggestion.command)
    };
    suggestions.iter().map(line).collect()
}

/// Whether an Escalate can ask further approvers. `level`: the number of escalations so far.
fn can_escalate(request: &ApprovalRequest, level: usize) -> bool {
    !request.escalate_to.is_empty() || level < request.timeout.escalation.len()
}

/// Returns the options with the fewest parameters that fit a schema.
fn set_options(schema: &Value) -> Vec<String> {
    let example = parameters::example(schema).into_iter().flat_map(|(field, value)| match value {
        // A text that the plugin would otherwise parse as JSON.
        Value::String(text) if serde_json::from_str::<Value>(&text).is_ok() => {
            ["--set-string".to_owned(), format!("{field}={text}")]
        }
        Value::String(text) => ["--set".to_owned(), format!("{field}={text}")],
        other => ["--set".to_owned(), format!("{field}={other}")],
    });
    example.collect()
}

/// Returns the options that answer every required question, or the first question if none is required. Returns `None`
/// without a question.
fn answer_options(request: &ApprovalRequest) -> Option<Vec<String>> {
    let questions = &request.form.as_ref()?.questions;
    if let [only] = questions.as_slice()
        && only.options.is_empty()
    {
        // clap reads a value that begins with a hyphen as an option.
        let default = only.default.clone().filter(|text| !text.starts_with('-'));
        return Some(vec!["--response".to_owned(), default.unwrap_or_else(|| BLANK.to_owned())]);
    }
    let mut asked: Vec<&Question> = questions.iter().filter(|question| !question.may_be_left_out()).collect();
    if asked.is_empty() {
        asked.push(questions.first()?);
    }
    Some(asked.into_iter().flat_map(answer_option).collect())
}

fn answer_option(question: &Question) -> [String; 2] {
    let id = &question.id;
    let default = question.default.as_deref();
    let option = default.and_then(|text| question.option_named(text)).or_else(|| question.options.first());
    match (option, default) {
        (Some(option), _) => ["--choose".to_owned(), format!("{id}={}", option.id)],
        (None, Some(text)) => ["--answer".to_owned(), format!("{id}={text}")],
        (None, None) => ["--answer".to_owned(), format!("{id}={BLANK}")],
    }
}

#[cfg(test)]
#[path = "suggest/tests.rs"]
mod tests;
