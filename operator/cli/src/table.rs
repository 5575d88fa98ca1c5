//! Tables as kubectl prints them: upper-case headers, no borders, three spaces between columns.
//!
//! It must not shorten or clean a cell: what it is given is printed.

use comfy_table::{ContentArrangement, Table, presets::NOTHING};

/// The table with a line end after every row.
pub fn table(headers: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(headers.to_vec());
    table.add_rows(rows);
    for index in 0..headers.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 3));
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_three_spaces_apart_and_lines_end_without_any() {
        let rows = vec![vec!["a-long-name".into(), "1/2".into()], vec!["b".into(), String::new()]];
        assert_eq!(table(&["NAME", "VOTES"], rows), "NAME          VOTES\na-long-name   1/2\nb\n");
    }
}
