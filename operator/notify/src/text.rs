//! The texts of notices for all channels, and the escaping of untrusted text (of authors, models and tools) *(pure)*.
//!
//! **Invariant:** untrusted text leaves this module only after [`escape`] has escaped it.

use std::time::Duration;

use signoff_api::{Moment, Span};
use signoff_expr::text::display;

use crate::notice::{Notice, NoticeEvent};

/// The most UTF-16 code units of a name, a requester or an outcome.
const NAME_UNITS: usize = 253;

/// The URL schemes that mail and chat programs turn into links even without `//`.
const SCHEMES: [&str; 28] = [
    "mailto",
    "tel",
    "sms",
    "callto",
    "skype",
    "sip",
    "sips",
    "xmpp",
    "facetime",
    "geo",
    "news",
    "magnet",
    "javascript",
    "file",
    "ftp",
    "outlook",
    "onenote",
    "webcal",
    "data",
    "intent",
    "market",
    "msteams",
    "mid",
    "cid",
    "telnet",
    "nntp",
    "bitcoin",
    "vscode",
];

/// The names with which a chat notifies all members of a channel.
const MASS_MENTIONS: [&str; 4] = ["here", "channel", "everyone", "all"];

/// The end of a shortened text.
pub const CUT: &str = " … (cut here; the page has all of it)";

/// The line above untrusted text.
pub(crate) const DETAILS_LABEL: &str = "Text of the request, not of the operator:";

/// The label of the link to the page.
pub(crate) const LINK_LABEL: &str = "Open the page";

/// The way in which a channel shows text, which decides which characters are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rendering {
    /// Plain text, in which programs turn host names into links. For mail.
    Plain,
    /// Text with control sequences in angle brackets, or HTML. For Slack, PagerDuty and receivers of webhooks.
    Chat,
    /// Text with Markdown, functions and templates. For Teams.
    Card,
}

/// The texts of a notice. All of them are escaped and bounded.
pub(crate) struct Wording {
    pub(crate) title: String,
    pub(crate) facts: Vec<Fact>,
    /// The question and the arguments of a call: untrusted text, escaped.
    pub(crate) details: Option<String>,
}

/// A labeled line of a notice.
pub(crate) struct Fact {
    pub(crate) label: &'static str,
    pub(crate) value: String,
}

impl Wording {
    /// Returns the texts of a notice. `details_units`: the most UTF-16 code units of details.
    pub(crate) fn new(notice: &Notice, rendering: Rendering, details_units: usize) -> Self {
        let name = |text: &str| escape_line(text, rendering, NAME_UNITS);
        let optional = |text: &Option<String>| text.as_deref().map(name);
        let run = format!("{}/{}", name(&notice.namespace), name(&notice.run));
        let gate = optional(&notice.gate);
        let subject = gate.as_ref().map_or_else(|| run.clone(), |gate| format!("{gate} of {run}"));
        let kind = optional(&notice.kind);
        let outcome = optional(&notice.outcome);
        if notice.run.is_empty() {
            // This notice replaces many folded ones, or is a test.
            let title = format!("{} in {}", kind.as_deref().unwrap_or("More wait"), name(&notice.namespace));
            return Self { title, facts: Vec::new(), details: None };
        }
        let (title, is_open) = match notice.event {
            NoticeEvent::Asked => (format!("Decision needed: {subject}"), true),
            NoticeEvent::Reminded => match time_left(notice) {
                Some(left) => (format!("Reminder, {left} left: {subject}"), true),
                None => (format!("Reminder: {subject}"), true),
            },
            NoticeEvent::Escalated => (format!("Escalated, decision needed: {subject}"), true),
            NoticeEvent::Taken => (format!("{}: {subject}", outcome.as_deref().unwrap_or("Decided")), false),
            NoticeEvent::VoteVoided => (format!("Your vote was voided: {subject}"), false),
            NoticeEvent::Ended => (format!("Run ended, {}: {run}", outcome.as_deref().unwrap_or("finished")), false),
        };
        let facts = [
            ("Outcome", outcome),
            ("Run", Some(run)),
            ("Gate", gate),
            ("About", kind),
            ("Requested by", Some(name(&notice.requester))),
            ("Decide by", format_deadline(notice).filter(|_| is_open)),
            ("Then", optional(&notice.then).filter(|_| is_open)),
        ];
        let facts = facts.into_iter().filter_map(|(label, value)| Some(Fact { label, value: value? })).collect();
        let details = notice.details.as_deref().map(|details| escape(details, rendering, details_units));
        Self { title, facts, details }
    }

    /// Returns the facts, each on a line of its own.
    pub(crate) fn lines(&self) -> String {
        let lines: Vec<String> = self.facts.iter().map(|fact| format!("{}: {}", fact.label, fact.value)).collect();
        lines.join("\n")
    }
}

/// Returns the time of the deadline, and the time that is left.
fn format_deadline(notice: &Notice) -> Option<String> {
    let time = format_time(notice.deadline?);
    Some(time_left(notice).map_or_else(|| time.clone(), |left| format!("{time} ({left} left)")))
}

/// Returns the time from the event until the deadline, in whole minutes if it is at least a minute; or `None` if no
/// time is left.
fn time_left(notice: &Notice) -> Option<Span> {
    let seconds = notice.deadline?.since(notice.at).as_secs();
    let shown = if seconds < 60 { seconds } else { seconds / 60 * 60 };
    (shown > 0).then(|| Span::from(Duration::from_secs(shown)))
}

fn format_time(moment: Moment) -> String {
    moment.timestamp().strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Escapes untrusted text like [`escape`], and replaces line breaks and tabs by spaces.
pub(crate) fn escape_line(text: &str, rendering: Rendering, units: usize) -> String {
    escape(&text.replace(['\r', '\n', '\t', '\u{2028}', '\u{2029}'], " "), rendering, units)
}

/// Escapes untrusted text, so that no channel turns a part of it into a link, a mention or markup. The colons of links,
/// the dots of host names and the `@` of mentions of all members are spelled out. Control characters are dropped, and
/// invisible ones are replaced by their names. A result of more than `units` UTF-16 code units is cut and ends with
/// [`CUT`].
pub(crate) fn escape(text: &str, rendering: Rendering, units: usize) -> String {
    // Keeps a few characters more than allowed, to detect a longer text. `display` never cuts the name of an invisible
    // character.
    let characters: Vec<char> = display(text, units.saturating_add(16)).chars().collect();
    let room = units.saturating_sub(CUT.encode_utf16().count());
    let (mut escaped, mut length, mut cut_at) = (String::new(), 0, 0);
    for (index, character) in characters.iter().enumerate() {
        match find_replacement(&characters, index, rendering) {
            Some(replacement) => {
                length += replacement.encode_utf16().count();
                escaped.push_str(replacement);
            }
            None => {
                length += character.len_utf16();
                escaped.push(*character);
            }
        }
        if length > units {
            escaped.truncate(cut_at);
            escaped.push_str(CUT);
            return escaped;
        }
        if length <= room {
            cut_at = escaped.len();
        }
    }
    escaped
}

/// Returns the text that replaces the character at `index`, or `None` if the character is harmless there.
fn find_replacement(text: &[char], index: usize, rendering: Rendering) -> Option<&'static str> {
    let character = *text.get(index)?;
    let following = |distance: usize| text.get(index + distance).copied();
    match (character, following(1), following(2)) {
        (':', Some('/'), Some('/')) => Some("(colon)"),
        (':', Some(next), _) if !next.is_whitespace() && is_colon_of_scheme(text, index) => Some("(colon)"),
        ('@', ..) if is_mass_mention(text, index) => Some("(at)"),
        // Some programs turn `\\server\share` into a link.
        ('\\', Some('\\'), _) => Some("\\ "),
        (dot, ..) if is_dot(dot) && is_dot_of_host(text, index) => Some("(dot)"),
        (_, next, _) => match rendering {
            Rendering::Plain => None,
            Rendering::Chat => replace_bracket(character),
            Rendering::Card => replace_bracket(character).or_else(|| replace_markdown(character, next)),
        },
    }
}

/// Returns a look-alike of a character that begins or ends a control sequence of Slack, an HTML tag or an HTML entity;
/// or `None` for any other character.
fn replace_bracket(character: char) -> Option<&'static str> {
    match character {
        '<' => Some("‹"),
        '>' => Some("›"),
        '&' => Some("＆"),
        _ => None,
    }
}

/// Returns a replacement of a character that begins or ends a Markdown link or code, a function of a card or an
/// expression of a workflow; or `None` for any other character. `next`: the character that follows.
fn replace_markdown(character: char, next: Option<char>) -> Option<&'static str> {
    match (character, next) {
        ('[', _) => Some("［"),
        (']', _) => Some("］"),
        ('`', _) => Some("'"),
        ('{', Some('{')) => Some("{ "),
        ('$', Some('{')) => Some("$ "),
        ('@', Some('{')) => Some("@ "),
        _ => None,
    }
}

/// Whether a character is a dot, or one of the characters that host names may have in place of a dot.
fn is_dot(character: char) -> bool {
    matches!(character, '.' | '\u{2024}' | '\u{3002}' | '\u{FE12}' | '\u{FE52}' | '\u{FF0E}' | '\u{FF61}')
}

/// Whether the colon at `index` ends one of [`SCHEMES`].
fn is_colon_of_scheme(text: &[char], index: usize) -> bool {
    let backwards = text.get(..index).unwrap_or_default().iter().rev();
    let is_word_before_colon = |scheme: &str| {
        let mut rest = backwards.clone();
        let is_equal = scheme.chars().rev().all(|c| rest.next().is_some_and(|before| before.eq_ignore_ascii_case(&c)));
        is_equal && rest.next().is_none_or(|earlier| !earlier.is_alphanumeric())
    };
    SCHEMES.into_iter().any(is_word_before_colon)
}

/// Whether one of [`MASS_MENTIONS`] follows the `@` at `index`.
fn is_mass_mention(text: &[char], index: usize) -> bool {
    // Takes one letter more than the longest name has, to detect a longer word.
    let word: String = text.iter().skip(index + 1).take_while(|c| c.is_ascii_alphabetic()).take(9).collect();
    MASS_MENTIONS.into_iter().any(|name| word.eq_ignore_ascii_case(name))
}

/// Whether the dot at `index` may be part of a host name or an IP address. The only dot of a decimal number such as
/// 3.14 is not.
fn is_dot_of_host(text: &[char], index: usize) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '-';
    let before = text.get(..index).unwrap_or_default();
    let after = text.get(index + 1..).unwrap_or_default();
    let (Some(last), Some(next)) = (before.last(), after.first()) else { return false };
    if last.is_whitespace() || !next.is_alphanumeric() {
        return false;
    }
    let earlier = before.iter().rev().find(|character| !is_part(**character));
    let mut rest = after.iter().skip_while(|character| is_part(**character));
    let later = rest.next().is_some_and(|end| is_dot(*end)) && rest.next().is_some_and(|next| next.is_alphanumeric());
    !next.is_ascii_digit() || later || earlier.is_some_and(|character| is_dot(*character))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn moment(text: &str) -> Moment {
        serde_json::from_value(text.into()).unwrap()
    }

    fn asked_notice() -> Notice {
        Notice {
            id: "n1".into(),
            event: NoticeEvent::Asked,
            correlation: "c1".into(),
            namespace: "prod".into(),
            run: "refund-7".into(),
            approval: Some("refund-7-pay-0123456789".into()),
            gate: Some("pay".into()),
            kind: Some("a call of a tool".into()),
            requester: "alice@example.com".into(),
            deadline: Some(moment("2026-11-28T12:30:10Z")),
            then: Some("the run is aborted".into()),
            outcome: None,
            details: None,
            link: None,
            at: moment("2026-11-28T09:00:00Z"),
        }
    }

    #[test]
    fn notice_has_the_gate_the_deadline_and_the_consequence() {
        let words = Wording::new(&asked_notice(), Rendering::Plain, 100);
        assert_eq!(words.title, "Decision needed: pay of prod/refund-7");
        assert_eq!(
            words.lines(),
            "Run: prod/refund-7\nGate: pay\nAbout: a call of a tool\nRequested by: alice@example(dot)com\n\
             Decide by: 2026-11-28 12:30 UTC (3h30m left)\nThen: the run is aborted"
        );
    }

    #[test]
    fn each_event_has_its_title() {
        let title = |event, outcome: Option<&str>| {
            let notice = Notice { event, outcome: outcome.map(str::to_owned), ..asked_notice() };
            Wording::new(&notice, Rendering::Plain, 100).title
        };
        assert_eq!(title(NoticeEvent::Reminded, None), "Reminder, 3h30m left: pay of prod/refund-7");
        assert_eq!(title(NoticeEvent::Escalated, None), "Escalated, decision needed: pay of prod/refund-7");
        assert_eq!(title(NoticeEvent::Taken, Some("Approved by bob")), "Approved by bob: pay of prod/refund-7");
        assert_eq!(title(NoticeEvent::VoteVoided, None), "Your vote was voided: pay of prod/refund-7");
        assert_eq!(title(NoticeEvent::Ended, Some("Succeeded")), "Run ended, Succeeded: prod/refund-7");
        let taken = Notice { event: NoticeEvent::Taken, ..asked_notice() };
        assert!(!Wording::new(&taken, Rendering::Plain, 100).lines().contains("Decide by"));
    }

    #[test]
    fn title_of_folded_notices_has_their_number() {
        let kind = Some("12 more wait".into());
        let folded = Notice { run: String::new(), requester: String::new(), gate: None, kind, ..asked_notice() };
        let words = Wording::new(&folded, Rendering::Plain, 100);
        assert_eq!((words.title.as_str(), words.lines().as_str()), ("12 more wait in prod", ""));
    }

    #[test]
    fn links_host_names_and_mass_mentions_are_spelled_out_in_every_rendering() {
        for rendering in [Rendering::Plain, Rendering::Chat, Rendering::Card] {
            let escaped = |text: &str| escape(text, rendering, 200);
            assert_eq!(escaped("see https://evil.example.com/x"), "see https(colon)//evil(dot)example(dot)com/x");
            assert_eq!(
                escaped("evil.com, 10.0.0.1, a1.5b.com"),
                "evil(dot)com, 10(dot)0(dot)0(dot)1, a1(dot)5b(dot)com"
            );
            assert_eq!(escaped("evil。com evil．com 💩.la"), "evil(dot)com evil(dot)com 💩(dot)la");
            assert_eq!(escaped("mailto:eve@evil.com"), "mailto(colon)eve@evil(dot)com");
            assert_eq!(escaped("(TEL:+1 slack://x)"), "(TEL(colon)+1 slack(colon)//x)");
            assert_eq!(escaped("hotel:7 tel: 7 12:30 system:node:a"), "hotel:7 tel: 7 12:30 system:node:a");
            assert_eq!(escaped("evil.example:8080/x www."), "evil(dot)example:8080/x www.");
            assert_eq!(escaped("evil｡com evil\u{fe52}com evil․com"), "evil(dot)com evil(dot)com evil(dot)com");
            assert_eq!(escaped("@here @Everyone, x@all @allow a@b"), "(at)here (at)Everyone, x(at)all @allow a@b");
            assert_eq!(escaped(":tada:"), ":tada:");
            assert_eq!(escaped(r"\\evil\share"), r"\ \evil\share");
            assert_eq!(escaped("Pay 3.14. Then 1.5s, v1.2 …"), "Pay 3.14. Then 1.5s, v1.2 …");
            assert_eq!(escaped("ev\u{202e}il\u{200b}.com"), "ev⟨U+202E⟩il⟨U+200B⟩(dot)com");
            assert_eq!(escaped("a\u{1b}[31mb").chars().filter(|c| c.is_control()).count(), 0);
        }
    }

    #[test]
    fn control_sequences_of_a_channel_are_escaped() {
        assert_eq!(escape("<!channel> &lt;@U1&gt;", Rendering::Chat, 200), "‹!channel› ＆lt;@U1＆gt;");
        assert_eq!(escape("[x](y) {{DATE(z)}} ${a} @{b}", Rendering::Card, 200), "［x］(y) { {DATE(z)}} $ {a} @ {b}");
        assert_eq!(escape("a < b", Rendering::Plain, 200), "a < b");
    }

    #[test]
    fn long_text_is_cut_and_ends_with_a_mark() {
        for text in ["x", ".a", "://", "💩", "\u{202e}"].map(|piece| piece.repeat(40 * 1024)) {
            let shown = escape(&text, Rendering::Card, 300);
            assert!(shown.encode_utf16().count() <= 300 && shown.ends_with(CUT), "{shown}");
        }
        assert_eq!(escape(&"x".repeat(300), Rendering::Card, 300), "x".repeat(300));
        let long = Notice { run: "x".repeat(9000), requester: "a b".repeat(9000), ..asked_notice() };
        let words = Wording::new(&long, Rendering::Chat, 100);
        assert!(words.title.len() < 1000 && words.lines().len() < 3000);
    }

    #[test]
    fn escaped_line_has_no_line_break() {
        assert_eq!(escape_line("a\r\nBcc: b\u{2028}c", Rendering::Plain, 99), "a  Bcc: b c");
    }
}
