//! The colours of a page: titles, the phase, and warnings. Fenced text of others has no colour *(pure)*.

use signoff_api::approval::ApprovalPhase;
use signoff_cli::style::{Style, Tone};

use crate::list::phase_tone;

/// Returns a page in colour, or the page itself if the style has no colour.
pub fn paint(page: &str, style: Style) -> String {
    if !style.colour {
        return page.to_owned();
    }
    page.split_inclusive('\n').map(|line| paint_line(line, style)).collect()
}

/// Colours a line of the plugin. Fenced lines begin with a space and stay as they are.
fn paint_line(line: &str, style: Style) -> String {
    let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
    if text.starts_with("  CUT HERE:") {
        return style.paint(Tone::Attention, text) + end;
    }
    if text.starts_with(' ') {
        return line.to_owned();
    }
    if text.ends_with(':') {
        return style.paint(Tone::Strong, text) + end;
    }
    let Some((label, rest)) = text.split_once(':') else { return line.to_owned() };
    let value = rest.trim_start();
    let Some(tone) = fact_tone(label, value) else { return line.to_owned() };
    let gap = rest.strip_suffix(value).unwrap_or_default();
    format!("{label}:{gap}{}{end}", style.paint(tone, value))
}

/// Returns the colour of a fact.
fn fact_tone(label: &str, value: &str) -> Option<Tone> {
    match label {
        "Name" => Some(Tone::Strong),
        "Phase" => ApprovalPhase::ALL.into_iter().find(|phase| phase.name() == value).map(phase_tone),
        "NOT GUARDED" | "NOT COUNTED" => Some(Tone::Bad),
        "Digest" if value.contains("<< NOT") => Some(Tone::Bad),
        "Warning" | "Undecidable" | "Not notified" => Some(Tone::Attention),
        "You" if value.contains(": cannot decide, ") => Some(Tone::Attention),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_the_phase_and_warnings_have_a_colour_and_the_words_of_others_none() {
        let page = "Phase:        Pending\nNOT GUARDED:  differs\nGate:         review\n\nQuestion:\n  | Phase:        Approved\n";
        assert_eq!(paint(page, Style::PLAIN), page);
        let coloured = paint(page, Style { colour: true, ..Style::PLAIN });
        assert!(coloured.starts_with(
            "Phase:        \u{1b}[1m\u{1b}[33mPending\u{1b}[0m\nNOT GUARDED:  \u{1b}[1m\u{1b}[31mdiffers"
        ));
        let rest = "\nGate:         review\n\n\u{1b}[1mQuestion:\u{1b}[0m\n  | Phase:        Approved\n";
        assert!(coloured.ends_with(rest), "{coloured}");
    }
}
