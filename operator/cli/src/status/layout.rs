//! The lines of a tree: columns that fit a width, details below their row, long runs of quiet rows folded into one.
//!
//! **Invariant:** a row is only shortened; none of its words changes.

use signoff_api::Moment;
use signoff_review::{
    clock,
    run::{Node, State},
};
use unicode_width::UnicodeWidthStr;

use crate::{
    sanitize::{shorten, wrap},
    style::{Style, Tone},
};

const HEADERS: [&str; 6] = ["STEP", "KIND", "STATE", "STARTED", "TOOK", "TOKENS"];
/// The index of STEP in a line.
const STEP: usize = 0;
/// The index of STATE in a line.
const STATE: usize = 2;
/// The spaces between columns.
const GAP: usize = 3;
/// The columns that STEP keeps as long as other columns can be dropped.
const NARROWEST: usize = 24;
/// The most lines of one detail.
const DETAIL_LINES: usize = 3;
/// The fewest rows that are folded into one.
const FOLDED: usize = 4;

/// A row of the tree, not yet fitted to a width.
struct Row {
    /// The lines of the tree before the sign.
    branch: String,
    sign: String,
    tone: Tone,
    label: String,
    /// The cells of the columns after STEP.
    cells: [String; 5],
    /// The lines of the tree before each detail.
    margin: String,
    details: Vec<String>,
}

/// Returns the tree as text, each line at most `style.width` columns wide.
pub fn lines(nodes: &[Node], now: Moment, style: Style) -> String {
    let is_folded = style.fold_above.is_some_and(|most| count(nodes) > most);
    let mut rows = Vec::new();
    for item in fold(nodes, is_folded) {
        add_rows(&mut rows, &item, "", None, now, style, is_folded);
    }
    let widths = column_widths(&rows, style.width);
    let mut text = render_cells(&HEADERS.map(str::to_owned), &widths, |_, cell| cell);
    for row in &rows {
        text += &render_row(row, &widths, style);
    }
    text
}

fn count(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| 1 + count(&node.children)).sum()
}

/// A node with a row of its own, or the text of a row for several folded nodes.
enum Item<'n> {
    Node(&'n Node),
    Folded(String),
}

/// The reason why a row can be folded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quiet {
    Done,
    Unbegun,
    EarlierAttempt,
}

fn quiet_kind(node: &Node) -> Option<Quiet> {
    if node.is_earlier_attempt {
        Some(Quiet::EarlierAttempt)
    } else if is_all(node, State::is_uneventful) {
        Some(Quiet::Done)
    } else if is_all(node, State::is_unbegun) {
        Some(Quiet::Unbegun)
    } else {
        None
    }
}

/// Whether the predicate holds for the states of a node and of all its descendants.
fn is_all(node: &Node, is: fn(State) -> bool) -> bool {
    is(node.state) && node.children.iter().all(|child| is_all(child, is))
}

/// Replaces several quiet siblings by one row with their number. The first row that has not begun, or the last row of
/// any other kind, stays.
fn fold(nodes: &[Node], is_folded: bool) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    for run in nodes.chunk_by(|a, b| is_folded && quiet_kind(a).is_some() && quiet_kind(a) == quiet_kind(b)) {
        let (first, last, few) = match run {
            [first, .., last] if run.len() >= FOLDED => (first, last, run.len() - 1),
            _ => {
                items.extend(run.iter().map(Item::Node));
                continue;
            }
        };
        match quiet_kind(first) {
            Some(Quiet::Unbegun) => {
                let word = first.state.word().to_lowercase();
                items.extend([Item::Node(first), Item::Folded(format!("… {few} {word}"))]);
            }
            Some(Quiet::EarlierAttempt) => {
                items.extend([Item::Folded(format!("… {few} attempts failed")), Item::Node(last)])
            }
            _ => items.extend([Item::Folded(format!("… {few} done")), Item::Node(last)]),
        }
    }
    items
}

/// Adds the rows of an item. `is_last`: whether it is the last item of its parent, or `None` at the root.
fn add_rows(
    rows: &mut Vec<Row>,
    item: &Item<'_>,
    above: &str,
    is_last: Option<bool>,
    now: Moment,
    style: Style,
    is_folded: bool,
) {
    let (fork, stem) = match (is_last, style.signs) {
        (None, _) => ("", ""),
        (Some(false), true) => ("├─", "│ "),
        (Some(true), true) => ("└─", "  "),
        (Some(false), false) => ("|-", "| "),
        (Some(true), false) => ("`-", "  "),
    };
    let branch = format!("{above}{fork}");
    let node = match item {
        Item::Node(node) => node,
        Item::Folded(words) => {
            let cells = Default::default();
            let (sign, margin, details) = (String::new(), String::new(), Vec::new());
            rows.push(Row { branch, sign, tone: Tone::Quiet, label: words.clone(), cells, margin, details });
            return;
        }
    };
    let below = format!("{above}{stem}");
    let children = fold(&node.children, is_folded);
    let stem = match (children.is_empty(), style.signs) {
        (true, _) => "  ",
        (false, true) => "│ ",
        (false, false) => "| ",
    };
    let tone = Tone::from(node.state.tone());
    rows.push(Row {
        branch,
        sign: if style.signs { format!("{} ", tone.sign()) } else { String::new() },
        tone,
        label: node.label.clone(),
        cells: cells(node, now),
        margin: format!("{below}{stem}  "),
        details: node.details.iter().map(ToString::to_string).collect(),
    });
    let last = children.len().saturating_sub(1);
    for (at, child) in children.iter().enumerate() {
        add_rows(rows, child, &below, Some(at == last), now, style, is_folded);
    }
}

fn cells(node: &Node, now: Moment) -> [String; 5] {
    let took = node.started.zip(node.finished).map(|(from, to)| clock::length(to.since(from)));
    let tokens = node.usage.map(|usage| {
        let cost = usage.cost.map(|cost| format!(" ({cost})")).unwrap_or_default();
        format!("{}+{}{cost}", usage.input_tokens, usage.output_tokens)
    });
    [
        node.kind.to_owned(),
        node.state.word().to_owned(),
        node.started.map(|at| clock::distance(at, now)).unwrap_or_default(),
        took.unwrap_or_default(),
        tokens.unwrap_or_default(),
    ]
}

/// Returns the widths of the columns. A dropped column has the width 0: a column without cells, and columns that leave
/// too little room for STEP.
fn column_widths(rows: &[Row], width: usize) -> Vec<usize> {
    let label = rows.iter().map(|row| row.branch.width() + row.sign.width() + row.label.width());
    let label = label.max().unwrap_or(0).max(HEADERS[0].len());
    let mut widths: Vec<usize> = (0..5)
        .map(|at| rows.iter().map(|row| row.cells[at].width()).max().unwrap_or(0))
        .zip(HEADERS.iter().skip(1))
        .map(|(cell, header)| if cell == 0 { 0 } else { cell.max(header.len()) })
        .collect();
    let rest = |widths: &[usize]| widths.iter().filter(|width| **width > 0).map(|width| width + GAP).sum::<usize>();
    // TOKENS is dropped first, then STARTED, then TOOK.
    for at in [4, 2, 3] {
        if rest(&widths) + label.min(NARROWEST) > width {
            widths[at] = 0;
        }
    }
    let label = label.min(width.saturating_sub(rest(&widths)));
    std::iter::once(label).chain(widths).collect()
}

fn render_row(row: &Row, widths: &[usize], style: Style) -> String {
    let lead = row.branch.width() + row.sign.width();
    let label = shorten(
        &row.label,
        if row.sign.is_empty() && row.cells[STATE - 1].is_empty() {
            style.width.saturating_sub(lead)
        } else {
            widths[STEP].saturating_sub(lead)
        },
    );
    let plain = format!("{}{}{label}", row.branch, row.sign);
    let cells: Vec<String> = std::iter::once(plain).chain(row.cells.iter().cloned()).collect();
    let mut text = render_cells(&cells, widths, |column, cell| match column {
        STEP => {
            let rest = cell.get(row.branch.len() + row.sign.len()..).unwrap_or_default();
            let label = if row.tone == Tone::Quiet { style.paint(Tone::Quiet, rest) } else { rest.to_owned() };
            format!("{}{}{label}", style.paint(Tone::Quiet, &row.branch), style.paint(row.tone, &row.sign))
        }
        STATE => style.paint(row.tone, &cell),
        _ => cell,
    });
    let room = style.width.saturating_sub(row.margin.width()).max(1);
    for detail in &row.details {
        for part in wrap_detail(detail, room) {
            text += format!("{}{part}", style.paint(Tone::Quiet, &row.margin)).trim_end();
            text.push('\n');
        }
    }
    text
}

/// Returns the lines of a detail, at most [`DETAIL_LINES`]. Lines after the first are indented.
fn wrap_detail(detail: &str, room: usize) -> Vec<String> {
    let mut lines = wrap(detail, room.saturating_sub(2).max(1));
    if lines.len() > DETAIL_LINES {
        lines.truncate(DETAIL_LINES);
        if let Some(last) = lines.last_mut() {
            *last = shorten(&format!("{last} …"), room.saturating_sub(2));
        }
    }
    lines
        .into_iter()
        .enumerate()
        .map(|(at, line)| if at == 0 { line } else { format!("  {}", line.trim_start()) })
        .collect()
}

/// Renders a row, with its cells padded to the widths of their columns. `paint` colours a cell without its padding.
fn render_cells(cells: &[String], widths: &[usize], paint: impl Fn(usize, String) -> String) -> String {
    let mut text = String::new();
    let mut pending = 0;
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if *width == 0 {
            continue;
        }
        if !cell.is_empty() {
            text += &" ".repeat(std::mem::take(&mut pending));
            text += &paint(at, cell.clone());
            pending = width.saturating_sub(cell.width()) + GAP;
        } else {
            pending += width + GAP;
        }
    }
    text.push('\n');
    text
}
