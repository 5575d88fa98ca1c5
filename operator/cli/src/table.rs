//! Tables as kubectl prints them: upper-case headers, no borders, three spaces between columns.
//!
//! Cells are shortened only to fit a width, and are not sanitized here.

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::{
    sanitize::shorten,
    style::{Style, Tone},
};

/// The spaces between columns.
const GAP: u16 = 3;
/// The width that the last column keeps as long as other columns can be dropped.
const NARROWEST: usize = 16;

/// Renders a table, with a line end after every row.
pub fn render_table(headers: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(headers.to_vec());
    table.add_rows(rows);
    for index in 0..headers.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, GAP));
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

/// Renders a table of at most `width` columns of the terminal, or of any width if `width` is `None`. The last column is
/// shortened. If it would become too narrow, the columns of `droppable` are dropped one after another. If all of them
/// are dropped, the table can be wider.
pub fn fit(headers: &[&str], mut rows: Vec<Vec<String>>, width: Option<usize>, droppable: &[&str]) -> String {
    let Some(width) = width else { return render_table(headers, rows) };
    let mut headers = headers.to_vec();
    let mut droppable = droppable.iter();
    loop {
        let natural = natural_widths(&headers, &rows);
        let Some((last, others)) = natural.split_last() else { return String::new() };
        let others: usize = others.iter().map(|width| width + usize::from(GAP)).sum();
        if others + last.min(&NARROWEST) <= width {
            let room = width - others;
            rows.iter_mut().filter_map(|row| row.last_mut()).for_each(|cell| *cell = shorten(cell, room));
            return render_table(&headers, rows);
        }
        let Some(name) = droppable.next() else { return render_table(&headers, rows) };
        if let Some(at) = headers.iter().position(|header| header == name) {
            headers.remove(at);
            rows.iter_mut().filter(|row| row.len() > at).for_each(|row| drop(row.remove(at)));
        }
    }
}

/// Colours a rendered table: the header line as a title, and each cell in the tone that `tone` returns for the header
/// and the text of the cell. `None`: no colour.
pub fn paint(table: &str, style: Style, tone: impl Fn(&str, &str) -> Option<Tone>) -> String {
    let Some((header, rows)) = table.split_once('\n').filter(|_| style.colour) else { return table.to_owned() };
    let columns = column_starts(header);
    let mut text = style.paint(Tone::Strong, header) + "\n";
    for row in rows.lines() {
        for (name, cell) in split_cells(row, &columns) {
            let word = cell.trim_end();
            text += &tone(name, word).map_or_else(|| word.to_owned(), |tone| style.paint(tone, word));
            text += cell.strip_prefix(word).unwrap_or_default();
        }
        text.push('\n');
    }
    text
}

/// Returns each header with the column of the terminal at which it begins. Headers have no spaces.
fn column_starts(header: &str) -> Vec<(&str, usize)> {
    let (mut columns, mut at) = (Vec::new(), 0);
    for part in header.split(' ') {
        if !part.is_empty() {
            columns.push((part, at));
        }
        at += part.width() + 1;
    }
    columns
}

/// Splits a row into pairs of a header and its cell. A cell includes the spaces after its text.
fn split_cells<'t>(mut row: &'t str, columns: &[(&'t str, usize)]) -> Vec<(&'t str, &'t str)> {
    let ends = columns.iter().skip(1).map(|(_, start)| *start).chain([usize::MAX]);
    let (mut cells, mut at) = (Vec::new(), 0);
    for ((name, _), end) in columns.iter().zip(ends) {
        let mut bytes = 0;
        for c in row.chars() {
            if at >= end {
                break;
            }
            (at, bytes) = (at + c.width().unwrap_or(0), bytes + c.len_utf8());
        }
        let (cell, rest) = row.split_at_checked(bytes).unwrap_or((row, ""));
        cells.push((*name, cell));
        row = rest;
    }
    cells
}

/// Returns the width that each column needs.
fn natural_widths(headers: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let cell = |at: usize| rows.iter().filter_map(move |row| row.get(at)).map(|cell| cell.width());
    headers.iter().enumerate().map(|(at, header)| cell(at).max().unwrap_or(0).max(header.width())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_three_spaces_apart_and_lines_have_no_trailing_spaces() {
        let rows = vec![vec!["a-long-name".into(), "1/2".into()], vec!["b".into(), String::new()]];
        assert_eq!(render_table(&["NAME", "VOTES"], rows), "NAME          VOTES\na-long-name   1/2\nb\n");
    }

    fn letters() -> Vec<Vec<String>> {
        vec![
            ["refund-4711", "Waiting", "in 23h", "Send this letter to ACME and to its lawyers?"]
                .map(str::to_owned)
                .to_vec(),
        ]
    }

    const HEADERS: [&str; 4] = ["NAME", "PHASE", "DEADLINE", "PROMPT"];

    #[test]
    fn the_last_column_is_shortened_first() {
        let text = fit(&HEADERS, letters(), Some(60), &["PHASE"]);
        assert_eq!(
            text,
            "NAME          PHASE     DEADLINE   PROMPT\nrefund-4711   Waiting   in 23h     Send this letter to ACME…\n"
        );
    }

    #[test]
    fn columns_are_dropped_before_the_last_column_is_too_narrow() {
        let text = fit(&HEADERS, letters(), Some(45), &["PHASE"]);
        assert_eq!(text, "NAME          DEADLINE   PROMPT\nrefund-4711   in 23h     Send this letter to\u{2026}\n");
        let text = fit(&HEADERS, letters(), Some(26), &["PHASE", "PROMPT"]);
        assert_eq!(text, "NAME          DEADLINE\nrefund-4711   in 23h\n");
    }

    #[test]
    fn a_coloured_table_is_the_same_table_in_colour() {
        let rows = vec![
            vec!["審査-1".to_owned(), "Pending".to_owned(), "Send   it?".to_owned()],
            vec!["a".to_owned(), "Approved".to_owned(), String::new()],
        ];
        let plain = render_table(&["NAME", "PHASE", "PROMPT"], rows);
        let tone = |header: &str, cell: &str| (header == "PHASE" && cell == "Pending").then_some(Tone::Attention);
        assert_eq!(paint(&plain, Style::PLAIN, tone), plain);
        let coloured = paint(&plain, Style { colour: true, ..Style::PLAIN }, tone);
        assert!(coloured.contains("審査-1   \u{1b}[1m\u{1b}[33mPending\u{1b}[0m    Send   it?\n"), "{coloured}");
        assert!(coloured.ends_with("a        Approved\n"), "{coloured}");
        let (title, _) = coloured.split_once('\n').unwrap_or_default();
        assert_eq!(title, "\u{1b}[1mNAME     PHASE      PROMPT\u{1b}[0m");
    }

    #[test]
    fn a_table_without_a_maximum_width_is_not_shortened() {
        assert_eq!(fit(&HEADERS, letters(), None, &["PHASE"]), render_table(&HEADERS, letters()));
    }
}
