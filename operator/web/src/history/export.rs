//! The history as CSV, for spreadsheets and for auditors.
//!
//! **Invariant:** no cell is a formula. A text that begins like one is quoted.

use csv::{QuoteStyle, WriterBuilder};

use super::row::{Decider, HistoryRow};

/// The names of the columns.
const COLUMNS: [&str; 14] = [
    "decidedAt",
    "namespace",
    "approval",
    "uid",
    "workflow",
    "gate",
    "requestDigest",
    "verdict",
    "phase",
    "decidedBy",
    "via",
    "channels",
    "reason",
    "source",
];

/// Returns rows as CSV, with a header.
///
/// # Errors
/// None in practice, because the CSV is written into memory.
pub fn csv(rows: &[HistoryRow]) -> Result<Vec<u8>, csv::Error> {
    let mut writer = WriterBuilder::new().quote_style(QuoteStyle::Always).from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for row in rows {
        let each = |text: fn(&Decider) -> &str| row.deciders.iter().map(text).collect::<Vec<_>>().join("; ");
        let has = |text: fn(&Decider) -> &str| row.deciders.iter().any(|decider| !text(decider).is_empty());
        let via: fn(&Decider) -> &str = |decider| decider.via.as_deref().unwrap_or_default();
        let channel: fn(&Decider) -> &str = |decider| decider.channel.as_deref().unwrap_or_default();
        let cells = [
            row.at.map(|at| at.to_string()).unwrap_or_default(),
            row.namespace.clone(),
            row.name.clone(),
            row.uid.clone(),
            row.workflow.clone(),
            row.gate.clone(),
            row.digest.clone(),
            row.verdict.map_or("", |verdict| verdict.name()).to_owned(),
            row.phase.name().to_owned(),
            each(|decider| &decider.name),
            if has(via) { each(via) } else { String::new() },
            if has(channel) { each(channel) } else { String::new() },
            row.reason.clone().unwrap_or_default(),
            row.source.name().to_owned(),
        ];
        writer.write_record(cells.map(escape_formula))?;
    }
    writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))
}

/// Returns a cell that no spreadsheet reads as a formula. A text that begins like one gets a `'` before it, as OWASP
/// recommends.
#[must_use]
pub fn escape_formula(cell: String) -> String {
    let begins = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];
    if cell.starts_with(begins) { format!("'{cell}") } else { cell }
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
