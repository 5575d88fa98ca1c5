//! `kubectl approve` without arguments: the Approvals that wait for the user, numbered, to choose from.

use std::io;

use signoff_cli::{sanitize::one_line, table::render_table, terminal};
use signoff_engine::approval::eligibility::ineligible;
use signoff_review::{
    clock,
    seen::{Seen, sort, still_open},
};

use super::{nothing_waits, prompt_cell};
use crate::{
    cluster::{
        client::{Selection, Session},
        names,
    },
    error::Failure,
};

/// Lists the waiting Approvals and returns the chosen Approval, or `None` if no Approval waits.
///
/// # Errors
/// A request fails, or the user chose no Approval.
pub async fn pick(session: &Session) -> Result<Option<Seen>, Failure> {
    let selection = Selection { fields: still_open(), ..Selection::default() };
    let ((mut found, _), me) = tokio::try_join!(session.select(&selection), session.me())?;
    found.retain(|seen| ineligible(&seen.approval, &me.voter(), clock::now()).is_none());
    sort(&mut found);
    if found.is_empty() {
        terminal::note(&nothing_waits(session, false, &me));
        return Ok(None);
    }
    terminal::note(&render_numbered(&found));
    let io_failure = |error: io::Error| Failure::Other(error.to_string());
    loop {
        terminal::prompt(&format!("Which one? [1-{}] ", found.len())).map_err(io_failure)?;
        let mut line = String::new();
        let is_end = io::stdin().read_line(&mut line).map_err(io_failure)? == 0;
        match parse_choice(&line, found.len()) {
            Some(index) => return Ok(Some(found.swap_remove(index))),
            None if is_end || line.trim().is_empty() => return Err(Failure::Declined),
            None => terminal::note(&format!("write a number from 1 to {}, or nothing to leave", found.len())),
        }
    }
}

/// Returns the index, from 0, that a line chooses by a number from 1 to `length`, or `None` for any other line.
fn parse_choice(line: &str, length: usize) -> Option<usize> {
    line.trim().parse::<usize>().ok().filter(|number| (1..=length).contains(number)).map(|number| number - 1)
}

fn render_numbered(found: &[Seen]) -> String {
    let now = clock::now();
    let row = |(index, seen): (usize, &Seen)| {
        vec![
            (index + 1).to_string(),
            one_line(&names::address(&seen.approval), 80),
            clock::distance(seen.approval.deadline(), now),
            one_line(&seen.approval.spec.request.requested_by, 40),
            prompt_cell(&seen.approval.spec.request, 48),
        ]
    };
    render_table(
        &["#", "WORKFLOW/GATE", "DEADLINE", "REQUESTER", "PROMPT"],
        found.iter().enumerate().map(row).collect(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_review::sample;

    use super::*;
    #[test]
    fn only_a_number_of_the_list_chooses() {
        assert_eq!((parse_choice("1\n", 3), parse_choice(" 3 \r\n", 3)), (Some(0), Some(2)));
        for line in ["", "\n", "0", "4", "-1", "1 2", "y", "+"] {
            assert_eq!(parse_choice(line, 3), None, "{line}");
        }
    }

    #[test]
    fn each_gate_of_the_list_has_a_number_and_one_line() {
        let mut approval = sample::approval();
        approval.spec.request.prompt = "Send?\n2   fake/gate\u{1b}[31m".to_owned();
        let text = render_numbered(&[Seen { raw: serde_json::to_value(&approval).unwrap(), approval }]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.lines().nth(1).unwrap().starts_with("1   refund-4711/review   ") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}
