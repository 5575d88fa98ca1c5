//! Facts on a terminal: a label and its lines.

use signoff_review::action::Fact;

/// Renders facts as `Label: text`. Further lines of a fact are indented below its first line.
#[must_use]
pub fn lines(facts: &[Fact]) -> String {
    let labels = |label: &str| std::iter::once(format!("{label}:")).chain(std::iter::repeat(String::new()));
    let render_fact = |(label, lines): &Fact| {
        let lines = labels(label).zip(lines).map(|(label, line)| format!("{label:<14}{line}\n"));
        lines.collect::<String>()
    };
    facts.iter().map(render_fact).collect()
}
