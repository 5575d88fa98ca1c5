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
    pub(super) fn find(name: &str, is_method: bool) -> Option<(Function, usize, usize)> {
        FUNCTIONS
            .into_iter()
            .find(|(known, _, function, method, ..)| *known == name && if is_method { *method } else { *function })
            .map(|(_, function, _, _, minimum, maximum)| (function, minimum, maximum))
    }

    /// Returns the names of all functions in this form.
    pub(super) fn names(is_method: bool) -> impl Iterator<Item = &'static str> {
        FUNCTIONS
            .into_iter()
            .filter(move |(_, _, function, method, ..)| if is_method { *method } else { *function })
            .map(|(name, ..)| name)
    }

    pub(super) fn name(self) -> &'static str {
        FUNCTIONS.into_iter().find(|(_, function, ..)| *function == self).map_or("", |(name, ..)| name)
    }
}

/// Returns the problem of a function that does not exist: with the function that was probably meant, else with all
/// functions.
pub(super) fn describe_unknown(name: &str, is_method: bool) -> String {
    let near = match name {
        "lower" => Some("lowerAscii"),
        "upper" => Some("upperAscii"),
        "strip" => Some("trim"),
        "len" | "length" => Some("size"),
        _ => Function::names(is_method).find(|candidate| is_near(name, candidate)),
    };
    let sort = if is_method { "method" } else { "function" };
    match near {
        Some(near) => format!("there is no {sort} `{name}`; did you mean `{near}`?"),
        None => {
            let all: Vec<&str> = Function::names(is_method).collect();
            format!("there is no {sort} `{name}`; there are {}", all.join(", "))
        }
    }
}
