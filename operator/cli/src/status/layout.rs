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
    let is_folded = style.fold_above.is_some_and(|limit| count_rows(nodes) > limit);
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

fn count_rows(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| 1 + count_rows(&node.children)).sum()
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

/// Returns the reason why the row of this node can be folded, or `None` if the row must be shown.
fn quiet_kind(node: &Node) -> Option<Quiet> {
    if node.is_earlier_attempt {
        Some(Quiet::EarlierAttempt)
    } else if have_all_states(node, State::is_uneventful) {
        Some(Quiet::Done)
    } else if have_all_states(node, State::is_unbegun) {
        Some(Quiet::Unbegun)
    } else {
        None
    }
}

/// Whether the predicate holds for the states of a node and of all its descendants.
fn have_all_states(node: &Node, predicate: fn(State) -> bool) -> bool {
    predicate(node.state) && node.children.iter().all(|child| have_all_states(child, predicate))
}

/// Folds at least [`FOLDED`] successive nodes that are quiet for the same reason into one node and the number of the
/// other nodes. Of nodes that have not begun the first node stays, of any other nodes the last.
fn fold(nodes: &[Node], is_folded: bool) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    for chunk in nodes.chunk_by(|a, b| is_folded && quiet_kind(a).is_some() && quiet_kind(a) == quiet_kind(b)) {
        let (first, last, others) = match chunk {
            [first, .., last] if chunk.len() >= FOLDED => (first, last, chunk.len() - 1),
            _ => {
                items.extend(chunk.iter().map(Item::Node));
                continue;
            }
        };
        match quiet_kind(first) {
            Some(Quiet::Unbegun) => {
                let word = first.state.word().to_lowercase();
                items.extend([Item::Node(first), Item::Folded(format!("… {others} {word}"))]);
            }
            Some(Quiet::EarlierAttempt) => {
                items.extend([Item::Folded(format!("… {others} attempts failed")), Item::Node(last)])
            }
            _ => items.extend([Item::Folded(format!("… {others} done")), Item::Node(last)]),
        }
    }
    items
}

/// Adds the row of an item, and the rows of its descendants. `above`: the lines of the tree before the row. `is_last`:
/// whether the item is the last of its parent, or `None` at the root.
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
        Item::Folded(label) => {
            let cells = Default::default();
            let (sign, margin, details) = (String::new(), String::new(), Vec::new());
            rows.push(Row { branch, sign, tone: Tone::Quiet, label: label.clone(), cells, margin, details });
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
        cells: render_node(node, now),
        margin: format!("{below}{stem}  "),
        details: node.details.iter().map(ToString::to_string).collect(),
    });
    let last = children.len().saturating_sub(1);
    for (index, child) in children.iter().enumerate() {
        add_rows(rows, child, &below, Some(index == last), now, style, is_folded);
    }
}

/// Returns the cells of the columns after STEP.
fn render_node(node: &Node, now: Moment) -> [String; 5] {
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
    let steps = rows.iter().map(|row| row.branch.width() + row.sign.width() + row.label.width());
    let widest_step = steps.max().unwrap_or(0).max(HEADERS[STEP].len());
    let mut widths: Vec<usize> = (0..5)
        .map(|column| rows.iter().map(|row| row.cells[column].width()).max().unwrap_or(0))
        .zip(HEADERS.iter().skip(1))
        .map(|(cell, header)| if cell == 0 { 0 } else { cell.max(header.len()) })
        .collect();
    let width_after_step =
        |widths: &[usize]| widths.iter().filter(|width| **width > 0).map(|width| width + GAP).sum::<usize>();
    // TOKENS is dropped first, then STARTED, then TOOK.
    for column in [4, 2, 3] {
        if width_after_step(&widths) + widest_step.min(NARROWEST) > width {
            widths[column] = 0;
        }
    }
    let step = widest_step.min(width.saturating_sub(width_after_step(&widths)));
    std::iter::once(step).chain(widths).collect()
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
        .map(|(index, line)| if index == 0 { line } else { format!("  {}", line.trim_start()) })
        .collect()
}

/// Renders a line of cells, each padded to the width of its column. Skips columns of the width 0. `paint` colours a
/// cell without its padding.
fn render_cells(cells: &[String], widths: &[usize], paint: impl Fn(usize, String) -> String) -> String {
    let mut text = String::new();
    let mut padding = 0;
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if *width == 0 {
            continue;
        }
        if !cell.is_empty() {
            text += &" ".repeat(std::mem::take(&mut padding));
            text += &paint(column, cell.clone());
            padding = width.saturating_sub(cell.width()) + GAP;
        } else {
            padding += width + GAP;
        }
    }
    text.push('\n');
    text
}
