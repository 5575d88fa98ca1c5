//! The words of templates for the reference page.

use signoff_expr::template::limit;

use super::{Entry, Section, format_bytes, format_count};

const fn e(words: &'static str, what: &'static str, example: &'static str) -> Entry {
    Entry { words, what, example }
}

pub(super) const INTRO: &str = "\
Jinja: `{{ value }}`, `{% if … %}`, `{% for … %}`, `{# comment #}`, `{% raw %}`. A dash inside of a tag's edge (`{{-`,
`-%}`) takes the blank space beside it away.

Rendering is one pass: text that a person, a model or a service wrote is a value, and `{{ }}` in it stays text. An
undefined name is an error. Texts and numbers are printed as they are, everything else as JSON. After rendering, control
characters except tab, line feed and carriage return are dropped, and the text is in Unicode normal form C.
";

/// All tables of templates, in the order of the page.
pub(super) const SECTIONS: &[&Section] = &[&FEATURES, &FILTERS, &TESTS, &METHODS, &FUNCTIONS];

/// The tables, each with the vocabulary it must have.
#[cfg(test)]
pub(super) const VOCABULARY: [(&Section, &str); 4] = {
    use signoff_expr::template::words;
    [(&FILTERS, words::FILTERS), (&TESTS, words::TESTS), (&METHODS, words::METHODS), (&FUNCTIONS, words::FUNCTIONS)]
};

const FEATURES: Section = Section {
    title: "Values and blocks",
    intro: "",
    entries: &[
        e("a.b", "a field", "{{ inputs.customer }}"),
        e("a['b']", "a field whose name is no word", "{{ steps['my-review'].response }}"),
        e("a[0]", "an item, from 0", "{{ order.items[0].name }}"),
        e("a[-1]", "from the end", "{{ steps[-1].name }}"),
        e("a[:3] a[1:] a[::2]", "a slice of a text or a list", "{{ inputs.customer[:3] }}{{ inputs.tags[1:] }}"),
        e(
            "if elif else",
            "one of several",
            "{% if inputs.amount > 500 %}big{% elif inputs.amount > 100 %}mid{% else %}small{% endif %}",
        ),
        e(
            "for",
            "over a list, with `loop.index`, `loop.index0`, `loop.first`, `loop.last`, `loop.length`",
            "{% for i in order.items %}{{ loop.index }}. {{ i.name }}{% if not loop.last %}, {% endif %}{% endfor %}",
        ),
        e(
            "for…in…items()",
            "over a map",
            "{% for key, value in inputs.address.items() %}{{ key }}={{ value }};{% endfor %}",
        ),
        e("for…if…", "over some", "{% for t in inputs.tags if t != 'new' %}{{ t }}{% else %}none{% endfor %}"),
        e("in", "contained in a list, a text or a map", "{{ 'eu' in inputs.tags }}, {{ 'Ada' in inputs.customer }}"),
        e("and or not", "short-circuit", "{{ inputs.amount > 100 and not inputs.note }}"),
        e("x…if…else…y", "a choice", "{{ 'large' if inputs.amount > 400 else 'small' }}"),
        e("== != < <= > >=", "comparisons", "{{ 1 < 2 and 'a' != 'b' }}"),
        e("+ ~", "sums; texts put together, `~` of anything", "{{ inputs.amount + 1 }}, {{ 'a' + 'b' ~ 1 }}"),
        e("- * / // % **", "arithmetic; `*` of numbers only", "{{ 7 // 2 }}, {{ inputs.amount | float * 2 }}"),
        e("null none true false", "constants", "{{ inputs.note == null }}"),
        e("[…] {…}", "lists and maps", "{{ {'to': [inputs.customer, null]} }}"),
        e("raw", "text that is not read", "{% raw %}{{ x }}{% endraw %}"),
        e("", "`{{ }}` in a value stays text", "<{{ answer }}>"),
        e("", "a name that is not there is an error", "{{ inputs.missing }}"),
    ],
};

const FILTERS: Section = Section {
    title: "Filters",
    intro: "`value | filter`, one after the other.",
    entries: &[
        e("abs", "the distance from zero", "{{ -3 | abs }}"),
        e("bool", "whether it is something", "{{ '' | bool }}"),
        e("capitalize", "the first letter large, the others small", "{{ 'aDA' | capitalize }}"),
        e("d default", "what to take where nothing is defined", "{{ inputs.missing | default('none given') }}"),
        e("dictsort", "a map as pairs, in the order of its keys", "{{ inputs.address | dictsort }}"),
        e("first", "the first item", "{{ inputs.tags | first }}"),
        e("float", "a number with a fraction", "{{ '1.5' | float + 1 }}"),
        e("int", "a whole number", "{{ '42' | int + 1 }}"),
        e("items", "a map as pairs", "{{ inputs.address | items }}"),
        e("join", "a list as one text", "{{ inputs.tags | join(', ') }}"),
        e("last", "the last item", "{{ inputs.tags | last }}"),
        e(
            "count length",
            "characters of a text, items of a list or a map",
            "{{ inputs.customer | length }}, {{ inputs.tags | count }}",
        ),
        e("lines", "a text as a list of its lines", "{{ 'a\\nb' | lines }}"),
        e("list", "as a list", "{{ 'abc' | list }}"),
        e("lower", "small letters", "{{ 'ABC' | lower }}"),
        e("map", "a filter, or a field, of each", "{{ order.items | map(attribute='name') | join(', ') }}"),
        e("max", "the largest", "{{ [1, 3, 2] | max }}"),
        e("min", "the smallest", "{{ [1, 3, 2] | min }}"),
        e(
            "regex_search",
            "the first match of a pattern ([RE2](https://github.com/google/re2/wiki/Syntax)), or `null`",
            "{{ answer | regex_search('[0-9]+') }}",
        ),
        e("reject", "without those for which a test holds", "{{ [1, 2, 3] | reject('odd') | list }}"),
        e(
            "rejectattr",
            "the same for a field",
            "{{ order.items | rejectattr('name', 'eq', 'desk') | map(attribute='name') | list }}",
        ),
        e("replace", "one text by another, everywhere", "{{ 'a-b-c' | replace('-', '+') }}"),
        e("reverse", "backwards", "{{ 'abc' | reverse }}"),
        e("round", "to so many digits", "{{ 1.256 | round(1) }}"),
        e("select", "those for which a test holds", "{{ [1, 2, 3] | select('odd') | list }}"),
        e(
            "selectattr",
            "the same for a field",
            "{{ order.items | selectattr('price', '>', 200) | map(attribute='name') | list }}",
        ),
        e("sort", "in order", "{{ [3, 1, 2] | sort }}"),
        e("split", "a text as a list", "{{ 'a,b' | split(',') | list }}"),
        e("string", "as text", "{{ inputs.amount | string | length }}"),
        e("title", "each word capitalized", "{{ 'hello world' | title }}"),
        e("tojson", "as JSON: the way to put a value into JSON", "{\"to\": {{ inputs.customer | tojson }}}"),
        e(
            "trim",
            "without blank space around it, or without these characters",
            "{{ hitl_response | trim }}{{ '--x--' | trim('-') }}",
        ),
        e("truncate", "at most so many characters, the `...` included", "{{ 'abcdefghij' | truncate(6) }}"),
        e("unique", "without repetitions", "{{ inputs.tags | unique | list }}"),
        e("upper", "large letters", "{{ 'abc' | upper }}"),
        e(
            "urlencode",
            "percent-encoded, all but letters, digits and `-._~`; the `url` of an `http` step does it by itself",
            "{{ '../a?b=c d' | urlencode }}",
        ),
    ],
};

const TESTS: Section = Section {
    title: "Tests",
    intro: "`value is test` and `value is not test`; also by name in `select`, `reject`, `selectattr` and `rejectattr`.",
    entries: &[
        e("== eq", "equal", "{{ 1 is eq(1) }}"),
        e("!= ne", "different", "{{ 1 is ne(2) }}"),
        e("<", "for filters", "{{ [1, 5] | select('<', 3) | list }}"),
        e("<=", "for filters", "{{ [1, 5] | select('<=', 1) | list }}"),
        e(">", "for filters", "{{ [1, 5] | select('>', 3) | list }}"),
        e(">=", "for filters", "{{ [1, 5] | select('>=', 5) | list }}"),
        e("boolean", "`true` or `false`", "{{ true is boolean }}"),
        e("contains", "holds this item or text", "{{ inputs.customer is contains('Ada') }}"),
        e("defined", "is there", "{{ inputs.missing is defined }}"),
        e("divisibleby", "without a rest", "{{ 9 is divisibleby(3) }}"),
        e("endingwith", "ends so", "{{ 'a.txt' is endingwith('.txt') }}"),
        e("even", "divisible by two", "{{ 2 is even }}"),
        e("false", "exactly `false`", "{{ 0 is false }}"),
        e("float", "a number with a fraction", "{{ inputs.rate is float }}"),
        e("in", "contained in", "{{ 'eu' is in(inputs.tags) }}"),
        e("integer", "a whole number", "{{ inputs.amount is integer }}"),
        e("iterable", "something to go over", "{{ inputs.tags is iterable }}"),
        e("lower", "small letters only", "{{ 'abc' is lower }}"),
        e("mapping", "a map", "{{ inputs.address is mapping }}"),
        e("none", "`null`", "{{ inputs.note is none }}"),
        e("number", "a number", "{{ inputs.amount is number }}"),
        e("odd", "not even", "{{ 3 is odd }}"),
        e("sameas", "the very same value", "{{ true is sameas(true) }}"),
        e("sequence", "a list", "{{ inputs.tags is sequence }}"),
        e("startingwith", "begins so", "{{ inputs.customer is startingwith('Ada') }}"),
        e("string", "a text", "{{ inputs.customer is string }}"),
        e("true", "exactly `true`", "{{ 1 is true }}"),
        e("undefined", "is not there", "{{ inputs.missing is undefined }}"),
        e("upper", "large letters only", "{{ 'ABC' is upper }}"),
    ],
};

const METHODS: Section = Section {
    title: "Methods",
    intro: "As in Python: of texts, and `get`, `items`, `keys`, `values` of maps.",
    entries: &[
        e("capitalize", "the first letter large, the others small", "{{ 'aDA'.capitalize() }}"),
        e("count", "how often it is there", "{{ 'banana'.count('an') }}"),
        e("endswith", "ends so", "{{ 'a.txt'.endswith('.txt') }}"),
        e("find", "where it begins first, or -1", "{{ 'banana'.find('n') }}"),
        e("get", "a field, or what to take instead", "{{ inputs.address.get('street', 'unknown') }}"),
        e("isalnum", "letters and digits only", "{{ 'a1'.isalnum() }}"),
        e("isalpha", "letters only", "{{ 'a1'.isalpha() }}"),
        e("isascii", "ASCII only", "{{ 'é'.isascii() }}"),
        e("isdigit", "digits only", "{{ '12'.isdigit() }}"),
        e("islower", "small letters only", "{{ 'abc'.islower() }}"),
        e("isnumeric", "numerals only", "{{ '12'.isnumeric() }}"),
        e("isspace", "blank space only", "{{ ' '.isspace() }}"),
        e("isupper", "large letters only", "{{ 'ABC'.isupper() }}"),
        e("items", "pairs", "{{ inputs.address.items() | list }}"),
        e("join", "a list, with this between", "{{ ', '.join(inputs.tags) }}"),
        e("keys", "the names of the fields", "{{ inputs.address.keys() | list }}"),
        e("lower", "small letters", "{{ hitl_response.lower() }}"),
        e("lstrip", "without blank space before it", "{{ ' x'.lstrip() }}"),
        e("replace", "one text by another, at most so often", "{{ 'a-b-c'.replace('-', '+', 1) }}"),
        e("rfind", "where it begins last, or -1", "{{ 'banana'.rfind('n') }}"),
        e("rstrip", "without blank space after it", "{{ 'x '.rstrip() }}"),
        e("split", "a list of its parts", "{{ 'a,b'.split(',')[1] }}"),
        e("splitlines", "a list of its lines", "{{ 'a\\nb'.splitlines() }}"),
        e("startswith", "begins so", "{{ inputs.customer.startswith('Ada') }}"),
        e("strip", "without blank space around it", "{{ hitl_response.strip() }}"),
        e("title", "each word capitalized", "{{ 'hello world'.title() }}"),
        e("upper", "large letters", "{{ 'abc'.upper() }}"),
        e("values", "the fields' values", "{{ inputs.address.values() | list }}"),
    ],
};

const FUNCTIONS: Section = Section {
    title: "Functions",
    intro: "There is one. Nothing can be loaded, included or defined, and there is no clock and no chance.",
    entries: &[e(
        "range",
        "whole numbers up to, and not with, the last one",
        "{% for n in range(3) %}{{ n }}{% endfor %}",
    )],
};

/// Returns the limits of templates, each with the constant that enforces it.
pub(super) fn limits() -> Vec<(&'static str, String)> {
    vec![
        ("the source", format_bytes(limit::SOURCE)),
        ("words in one tag", format_count(limit::WORDS as u64)),
        ("brackets, and blocks, within each other", format_count(limit::NESTING as u64)),
        ("values put together by `+` and `~` in one expression", format_count(u64::from(limit::GROWTH))),
        ("the same inside of a loop", format_count(u64::from(limit::GROWTH_IN_LOOP))),
        ("steps of a rendering", format_count(limit::FUEL)),
        ("numbers of a `range`", format_count(limit::RANGE as u64)),
        ("a text that a filter or a method makes", format_bytes(limit::TEXT)),
        ("what operators, filters, tests and methods read and make in one rendering", format_bytes(limit::WORK)),
        ("characters of a pattern", format_count(limit::PATTERN as u64)),
        ("what is rendered", format_bytes(limit::OUTPUT)),
    ]
}
