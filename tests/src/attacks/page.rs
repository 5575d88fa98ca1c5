//! The table as a page of the documentation. It may not say anything that the table does not.

use std::fmt::Write;

use super::request::UNSUPPORTED;
use super::{Answer, CHANGES, CHAPTERS, Chapter, Ground, Row, Scene};

/// Where the page stands below the repository.
pub const PAGE: &str = "docs/security/attacks.md";

/// What stands above the table. The numbers are filled in.
const OPENING: &str = include_str!("opening.md");

/// The page's whole text.
#[must_use]
pub fn page() -> String {
    let (attacks, rows) = CHAPTERS
        .iter()
        .fold((0, 0), |(attacks, rows), chapter| (attacks + chapter.attacks().len(), rows + (chapter.rows)().len()));
    let mut page = OPENING
        .replace("{attacks}", &attacks.to_string())
        .replace("{rows}", &rows.to_string())
        .replace("{unsupported}", UNSUPPORTED);
    for chapter in CHAPTERS {
        write(&mut page, chapter);
    }
    page
}

fn write(page: &mut String, chapter: &Chapter) {
    // Writing to a String cannot fail.
    let _ = writeln!(page, "\n## {}\n", chapter.rule);
    let _ = writeln!(page, "{} attacks.\n", chapter.attacks().len());
    let _ = writeln!(page, "| who | what they try | how | what is answered | what is accepted |");
    let _ = writeln!(page, "|---|---|---|---|---|");
    for row in (chapter.rows)() {
        let accepted = match row.honest.who {
            Some(who) => format!("{} ({})", row.honest.what, who.words()),
            None => row.honest.what.to_owned(),
        };
        let cells = [who(&row), what(&row), how(&row), answer(&row), accepted].map(|cell| escaped(&cell));
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
}

fn who(row: &Row) -> String {
    row.who.iter().map(|who| who.words()).collect::<Vec<_>>().join(", ")
}

fn what(row: &Row) -> String {
    let mut what = row.what.trim_end_matches(',').to_owned();
    if row.ground == Ground::AsShipped && !matches!(row.scene, Scene::Object(..)) {
        what.push_str(", with the chart's roles only");
    }
    if row.strict {
        what.push_str(", strictly read");
    }
    what
}

fn how(row: &Row) -> String {
    let any = CHANGES.iter().all(|how| row.how.contains(how));
    let others = row.how.iter().filter(|how| !any || !CHANGES.contains(how)).map(|how| how.words());
    any.then_some("any change").into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

fn answer(row: &Row) -> String {
    match row.answer {
        Answer::Refused(words) => match row.or {
            Some(or) => format!("“{words}” or “{or}”"),
            None => format!("“{words}”"),
        },
        Answer::Ignored => "nothing of it is stored".to_owned(),
    }
}

/// What a cell of a table may hold.
fn escaped(cell: &str) -> String {
    cell.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('*', "\\*")
        .replace('_', "\\_")
        .replace('`', "\\`")
}
