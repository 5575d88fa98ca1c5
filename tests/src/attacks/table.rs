//! The table itself, with one chapter for each rule.

mod blobs;
mod children;
mod delegation;
mod encodings;
mod finality;
mod inbox;
mod limits;
mod names;
mod object;
mod operator;
mod payload;
mod shapes;
mod status;
mod time;
mod votes;
mod workflow;

use super::Chapter;

/// All chapters, in the order of the page.
pub const CHAPTERS: &[Chapter] = &[
    Chapter {
        name: "votes",
        rule: "A vote is its author's own, and counts from people only whom the gate lists and who hold the verb approve",
        rows: votes::rows,
    },
    Chapter { name: "names", rule: "A user name is compared byte by byte, whatever it looks like", rows: names::rows },
    Chapter {
        name: "delegation",
        rule: "Who carries votes of others carries those of named people, under keys that say so",
        rows: delegation::rows,
    },
    Chapter { name: "finality", rule: "A recorded vote is neither changed nor removed", rows: finality::rows },
    Chapter { name: "time", rule: "A vote comes in time, by the API server's own clock", rows: time::rows },
    Chapter { name: "payload", rule: "What a vote says is what the gate allows", rows: payload::rows },
    Chapter { name: "limits", rule: "A vote has bounds: one fits exactly, and one more does not", rows: limits::rows },
    Chapter {
        name: "encodings",
        rule: "However it is written, what is checked is what is stored",
        rows: encodings::rows,
    },
    Chapter {
        name: "object",
        rule: "The request is what was shown, and the Approval around it is the operator's",
        rows: object::rows,
    },
    Chapter {
        name: "status",
        rule: "Status is the operator's word, and an outcome is written once",
        rows: status::rows,
    },
    Chapter {
        name: "operator",
        rule: "The operator is its service account in its own Pod, and nobody else becomes it",
        rows: operator::rows,
    },
    Chapter {
        name: "inbox",
        rule: "The cookie key of the page, and the ways to it, are the administrators'",
        rows: inbox::rows,
    },
    Chapter {
        name: "children",
        rule: "Only the operator can create and change the objects of a run",
        rows: children::rows,
    },
    Chapter {
        name: "blobs",
        rule: "A long value is what the operator wrote, for as long as its run is there",
        rows: blobs::rows,
    },
    Chapter {
        name: "shapes",
        rule: "A shape that the types rule out is stored by no write, to an object or to its status",
        rows: shapes::rows,
    },
    Chapter { name: "workflow", rule: "Who asked is known, and what was asked stays as it is", rows: workflow::rows },
];
