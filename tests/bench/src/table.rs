//! Tables and numbers for people.

use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::NOTHING};

pub(super) fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let gibibytes = kibibytes.unwrap_or(0.0_f64) / 1024.0 / 1024.0;
    format!("{processors} processors and {gibibytes:.0} GiB, shared by everything here, clients included")
}

pub(super) fn table<'a>(head: &[String], rows: impl IntoIterator<Item = (&'a str, Vec<String>)>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head.to_vec());
    for (name, mut cells) in rows {
        cells.insert(0, name.to_owned());
        table.add_row(cells);
    }
    for (index, name) in head.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 3));
            // A column without a name holds text.
            if index > 0 && !name.is_empty() {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table.trim_fmt()
}

/// Returns a value rounded to a whole number, with commas between groups of three digits.
pub(super) fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns a duration in milliseconds, rounded to a thousandth.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

pub(super) fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

pub(super) fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

pub(super) fn percent(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}

pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            ["0", "999", "1,000", "11,600", "1,234,567"],
            [0.0, 999.0, 1000.0, 11600.0, 1_234_567.0].map(whole).each_ref().map(String::as_str)
        );
    }
}
