//! The functions of conditions: their names, and their numbers of arguments.

use crate::nearest::is_near;

/// The functions of conditions. Those of texts are methods, with the text as first argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Int,
    Double,
    String,
    Bool,
    Dyn,
    Contains,
    StartsWith,
    EndsWith,
    LowerAscii,
    UpperAscii,
    Trim,
    Split,
    Join,
    Replace,
    Substring,
    IndexOf,
}

/// The name, the function, whether it is a function, whether it is a method, and the minimum and maximum number of
/// arguments (including the target of the method).
type Signature = (&'static str, Function, bool, bool, usize, usize);

const FUNCTIONS: [Signature; 17] = [
    ("size", Function::Size, true, true, 1, 1),
    ("int", Function::Int, true, false, 1, 1),
    ("double", Function::Double, true, false, 1, 1),
    ("string", Function::String, true, false, 1, 1),
    ("bool", Function::Bool, true, false, 1, 1),
    ("dyn", Function::Dyn, true, false, 1, 1),
    ("contains", Function::Contains, false, true, 2, 2),
    ("startsWith", Function::StartsWith, false, true, 2, 2),
    ("endsWith", Function::EndsWith, false, true, 2, 2),
    ("lowerAscii", Function::LowerAscii, false, true, 1, 1),
    ("upperAscii", Function::UpperAscii, false, true, 1, 1),
    ("trim", Function::Trim, false, true, 1, 1),
    ("split", Function::Split, false, true, 2, 2),
    ("join", Function::Join, false, true, 1, 2),
    ("replace", Function::Replace, false, true, 3, 3),
    ("substring", Function::Substring, false, true, 2, 3),
    ("indexOf", Function::IndexOf, false, true, 2, 2),
];

impl Function {
    /// Returns the function called `name` with its numbers of arguments, if it exists in this form.
    pub(super) fn find(name: &str, method: bool) -> Option<(Function, usize, usize)> {
        FUNCTIONS.into_iter().find(|f| f.0 == name && if method { f.3 } else { f.2 }).map(|f| (f.1, f.4, f.5))
    }

    /// Returns the names of all functions in this form.
    pub(super) fn names(method: bool) -> impl Iterator<Item = &'static str> {
        FUNCTIONS.into_iter().filter(move |f| if method { f.3 } else { f.2 }).map(|f| f.0)
    }

    pub(super) fn name(self) -> &'static str {
        FUNCTIONS.into_iter().find(|f| f.1 == self).map_or("", |f| f.0)
    }
}

/// Returns the replacement for a function that does not exist.
pub(super) fn unknown(name: &str, method: bool) -> String {
    let near = match name {
        "lower" => Some("lowerAscii"),
        "upper" => Some("upperAscii"),
        "strip" => Some("trim"),
        "len" | "length" => Some("size"),
        _ => Function::names(method).find(|candidate| is_near(name, candidate)),
    };
    let sort = if method { "method" } else { "function" };
    match near {
        Some(near) => format!("there is no {sort} `{name}`; did you mean `{near}`?"),
        None => {
            let all: Vec<&str> = Function::names(method).collect();
            format!("there is no {sort} `{name}`; there are {}", all.join(", "))
        }
    }
}
