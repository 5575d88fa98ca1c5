//! `signoff explain`: the meaning of a field, a word or an exit code.

use clap::Args;
use signoff_cli::{sanitize::wrap, terminal};
use signoff_expr::text::display;
use signoff_manifest::explain::{REFUSALS, topics};

use crate::exit::Exit;

/// The columns of the lines with the terms of a topic.
const WIDTH: usize = 76;

/// Explain a field, a verdict, a phase, a condition, a reason, a problem or an exit code.
#[derive(Debug, Args)]
pub struct Explain {
    /// The name, such as workflow.spec.steps.hitl.timeout, hitl.timeout, Superseded or 19. Without it: all topics
    name: Option<String>,
}

/// Prints the meaning of the name, or without a name the list of all topics. An unknown name is an error with a
/// suggestion.
pub fn explain(options: &Explain) -> anyhow::Result<Exit> {
    let text = match &options.name {
        Some(name) => explain_name(name)?,
        None => list_topics(),
    };
    terminal::print(&text)?;
    Ok(Exit::Ok)
}

fn explain_name(name: &str) -> anyhow::Result<String> {
    let code = name.parse::<u8>().ok();
    match Exit::ALL.iter().find(|exit| Some(exit.code()) == code) {
        Some(exit) => Ok(format!("{} (exit code)\n  {}\n", exit.code(), exit.meaning())),
        None => signoff_manifest::explain::explain(name).map_err(|why| Exit::Usage.because(display(&why, 1024))),
    }
}

/// Returns the page of all topics.
fn list_topics() -> String {
    let codes = Exit::ALL.map(|exit| exit.code().to_string()).join(", ");
    let words = topics().into_iter().map(|(sort, words)| (sort, words.join(", ")));
    let fields = ("field", "workflow.spec.steps.hitl.timeout, or a part of it such as hitl.timeout".to_owned());
    let topic = |(sort, words): (&str, String)| {
        let lines: String = wrap(&words, WIDTH).iter().map(|line| format!("  {}\n", line.trim())).collect();
        format!("{sort}\n{lines}\n")
    };
    let (refusal, refusals) = REFUSALS;
    let last = [(refusal, refusals.to_owned()), ("exit code", codes)];
    let pages: String = [fields].into_iter().chain(words).chain(last).map(topic).collect();
    format!("signoff explain NAME explains one of these:\n\n{}", pages.trim_end()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_every_topic_is_listed() {
        let page = list_topics();
        let topics =
            ["field", "verdict", "phase of a Workflow", "condition", "gate type", "problem of a file", "exit code"];
        for topic in topics {
            assert!(page.contains(&format!("\n{topic}\n  ")), "{topic}: {page}");
        }
        assert!(
            page.contains("  Approve, Reject, Modify") && page.ends_with("\n  0, 2, 3, 10, 12, 17, 18, 19, 20, 70\n"),
            "{page}"
        );
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    }
}
