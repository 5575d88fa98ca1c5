//! The words of conditions for the reference page.

use signoff_expr::cel::limit;

use super::{Entry, Section, format_bytes, format_count};

const fn e(words: &'static str, what: &'static str, example: &'static str) -> Entry {
    Entry { words, what, example }
}

pub(super) const INTRO: &str = "\
[CEL](https://cel.dev), over the same names: `skipIf`, `condition` of gates, `choose[].when` of edges. A condition never guesses:
an undefined name, a missing field, an order of unlike things is an error. What follows from an error is what is
safe: a gate asks, a step fails, an edge fails the run, an artifact is left out.
";

/// All tables of conditions, in the order of the page.
pub(super) const SECTIONS: &[&Section] = &[&OPERATORS, &MACROS, &FUNCTIONS, &METHODS, &ERRORS];

/// Returns the tables, each with the vocabulary it must have.
#[cfg(test)]
pub(super) fn vocabulary() -> [(&'static Section, std::collections::BTreeSet<&'static str>); 3] {
    use signoff_expr::cel::words;
    [
        (&MACROS, words::macros().collect()),
        (&FUNCTIONS, words::functions().collect()),
        (&METHODS, words::methods().collect()),
    ]
}

const OPERATORS: Section = Section {
    title: "Values and operators",
    intro: "",
    entries: &[
        e("a.b a['b']", "a field", "steps['my-review'].response == 'approved'"),
        e("a[0]", "an item, from 0; none from the end: `a[size(a) - 1]`", "order.items[0].name"),
        e("== !=", "equal, different; values of different types are never equal", "inputs.note == null"),
        e("< <= > >=", "numbers with numbers, whole or not, and texts with texts", "inputs.rate < 2"),
        e(
            "&& ||",
            "and, or; an error on one side does not matter where the other decides",
            "inputs.amount > 100 || inputs.missing",
        ),
        e("!", "not", "!(inputs.amount > 100)"),
        e("+", "sums of two of the same kind; texts put together", "inputs.amount + 1"),
        e("- * / %", "arithmetic of two of the same kind; whole numbers stay whole", "7 / 2"),
        e("in", "contained in a list, or a field of a map", "'eu' in inputs.tags"),
        e("?:", "a choice", "inputs.amount > 400 ? 'large' : 'small'"),
        e("[…] {…}", "lists and maps", "{'to': [inputs.customer]}"),
        e("'…' \"…\" r'…'", "texts; the last one without escapes", "'it\\'s' + r'\\d'"),
        e("null true false", "constants", "true"),
        e("else", "alone: always holds", "else"),
    ],
};

const MACROS: Section = Section {
    title: "Tests and comprehensions",
    intro: "Of lists, and of the keys of maps. A comprehension may not stand inside of another one.",
    entries: &[
        e("has", "whether a field is there", "has(inputs.missing)"),
        e("all", "for all items", "inputs.tags.all(t, t in ['new', 'eu'])"),
        e("exists", "for at least one", "order.items.exists(i, i.price > 200)"),
        e("exists_one existsOne", "for exactly one", "inputs.tags.exists_one(t, t == 'eu')"),
        e("map", "something of each; of some, with three arguments", "order.items.map(i, i.price > 200, i.name)"),
        e("filter", "some", "order.items.filter(i, i.price > 200)"),
    ],
};

const FUNCTIONS: Section = Section {
    title: "Functions",
    intro: "",
    entries: &[
        e("size", "characters of a text, items of a list or a map", "size(inputs.tags)"),
        e("int", "a whole number", "int('42') + 1"),
        e("double", "a number with a fraction", "double(inputs.amount) * inputs.rate"),
        e("string", "a text", "string(inputs.amount) + ' EUR'"),
        e("bool", "of the texts `true` and `false`", "bool('true')"),
        e("dyn", "the value itself", "dyn(inputs.amount)"),
    ],
};

const METHODS: Section = Section {
    title: "Methods",
    intro: "Of texts; `size` and `join` of lists too.",
    entries: &[
        e("size", "characters of a text, items of a list or a map", "inputs.customer.size()"),
        e("contains", "holds this text", "inputs.customer.contains('Ada')"),
        e("startsWith", "begins so", "inputs.customer.startsWith('Ada')"),
        e("endsWith", "ends so", "inputs.customer.endsWith('lace')"),
        e(
            "matches",
            "a pattern ([RE2](https://github.com/google/re2/wiki/Syntax)), written out, is found somewhere",
            "answer.matches('order [0-9]+')",
        ),
        e("lowerAscii", "small letters, of ASCII", "hitl_response.lowerAscii()"),
        e("upperAscii", "large letters, of ASCII", "'abc'.upperAscii()"),
        e("trim", "without blank space around it", "hitl_response.trim()"),
        e("split", "a list of its parts", "'a,b'.split(',')"),
        e("join", "a list as one text", "inputs.tags.join('+')"),
        e("replace", "one text by another, everywhere", "'a-b'.replace('-', '+')"),
        e("substring", "from one position up to, and not with, another", "inputs.customer.substring(0, 3)"),
        e("indexOf", "where it begins first, or -1", "inputs.customer.indexOf('Love')"),
    ],
};

const ERRORS: Section = Section {
    title: "What is an error",
    intro: "",
    entries: &[
        e("", "a name or field that is not there is an error", "inputs.missing == 'x'"),
        e("", "an order of unlike things is an error", "inputs.customer < 5"),
        e("", "arithmetic with `null` is an error", "inputs.note + 1"),
        e("", "a number beyond 64 bits is an error", "9223372036854775807 + 1"),
        e("", "division by zero is an error", "1 / 0"),
        e("", "an item beyond the end is an error", "inputs.tags[7]"),
    ],
};

/// Returns the limits of conditions, each with the constant that enforces it.
pub(super) fn limits() -> Vec<(&'static str, String)> {
    vec![
        ("characters", format_count(limit::SOURCE as u64)),
        ("parts of the syntax tree", format_count(limit::NODES as u64)),
        ("brackets within each other", format_count(limit::NESTING as u64)),
        ("comprehensions within each other", "1".to_owned()),
        ("items of a list that a comprehension goes over", format_count(limit::LIST as u64)),
        ("a text that is made", format_bytes(limit::TEXT)),
        ("steps of an evaluation", format_count(limit::WORK as u64)),
    ]
}

pub(super) const EDGES: Section = Section {
    title: "Edges of a graph",
    intro: "The `choose[].when` of an edge is a condition or `else`. A template is refused, as in every condition.",
    entries: &[
        e("", "a condition", "hitl_response.lowerAscii().contains('approved')"),
        e("else", "always holds", "else"),
    ],
};
