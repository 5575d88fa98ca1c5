//! The rules by which user names are persons, checked so that the API server and this program read them alike.
//!
//! **Invariant:** a name that no rule matches is not a person, and an ambiguous rule is refused.

use regex::Regex;
use signoff_api::gate::{PersonRule, Subject, SubjectKind};
use signoff_expr::re2;

/// Which user names are one person.
pub(super) struct Persons {
    rules: Vec<(Regex, String)>,
    /// Without rules every name is a person of its own.
    any: bool,
}

impl Persons {
    /// The rules that can be read; those that cannot match nothing.
    pub(super) fn of(rules: &[PersonRule]) -> Self {
        let read = |rule: &PersonRule| Some((re2::whole(&rule.pattern).ok()?, rule.person.clone()));
        Self { rules: rules.iter().filter_map(read).collect(), any: !rules.is_empty() }
    }

    fn person(&self, user: &str) -> Option<String> {
        if !self.any {
            return Some(user.to_owned());
        }
        self.rules.iter().find_map(|(pattern, person)| {
            let found = pattern.captures(user)?;
            let mut name = String::new();
            found.expand(person, &mut name);
            Some(name)
        })
    }

    /// Returns the number of persons among these approvers without the excluded ones, or `None` if there is a group.
    pub(super) fn countable(&self, approvers: &[Subject], excluded: &[String]) -> Option<usize> {
        if approvers.iter().any(|subject| subject.kind == SubjectKind::Group) {
            return None;
        }
        let barred: Vec<_> = excluded.iter().filter_map(|name| self.person(name)).collect();
        let mut persons: Vec<String> = approvers
            .iter()
            .map(|subject| match &subject.namespace {
                Some(namespace) => format!("system:serviceaccount:{namespace}:{}", subject.name),
                None => subject.name.clone(),
            })
            .filter(|user| !excluded.contains(user))
            .filter_map(|user| self.person(&user))
            .filter(|person| !barred.contains(person))
            .collect();
        persons.sort();
        persons.dedup();
        Some(persons.len())
    }
}

/// Returns why a rule is ambiguous, or `None`. The API server says most of this when the policy is
/// applied; what it cannot say is only found here.
pub(super) fn ambiguous(rule: &PersonRule) -> Option<&'static str> {
    let pattern = &rule.pattern;
    if re2::whole(pattern).is_err() {
        return Some("it is no regular expression");
    }
    let chars: Vec<char> = pattern.chars().collect();
    let (mut in_class, mut repeated, mut at) = (false, false, 0);
    while let Some(&char) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        let was_repeated = std::mem::take(&mut repeated);
        match char {
            '\\' if next.is_some_and(|c| c.is_ascii_alphanumeric()) => {
                return Some(
                    "escaped letters like \\d and \\w mean different characters to different programs: write [0-9]",
                );
            }
            '\\' => at += 1,
            '[' if in_class => return Some("a [ within [ ] is read in two ways: escape it"),
            '[' => {
                in_class = true;
                // A ] that comes first is one of the characters.
                at += usize::from(next == Some('^'));
                at += usize::from(chars.get(at + 1) == Some(&']'));
            }
            ']' => in_class = false,
            '&' | '-' | '~' if in_class && next == Some(char) => {
                return Some("&&, -- and ~~ within [ ] are read in two ways: leave them out");
            }
            '(' if !in_class && next == Some('?') => return Some("groups that begin with (? are read in two ways"),
            '*' | '+' | '?' | '{' if !in_class => {
                if was_repeated && char != '?' {
                    return Some("one repetition of another is read in two ways: put a group around the inner one");
                }
                if char == '{' {
                    let counts: String = chars.iter().skip(at + 1).take_while(|c| **c != '}').collect();
                    if counts.split(',').any(|count| count.parse::<u32>().is_ok_and(|count| count > 1000)) {
                        return Some("a repetition of more than 1000 is refused by the API server");
                    }
                    at += counts.chars().count() + 1;
                }
                repeated = true;
            }
            _ => {}
        }
        at += 1;
    }
    let mut rest = rule.person.as_str();
    while let Some((_, after)) = rest.split_once('$') {
        let Some(after) = after.strip_prefix('1') else {
            return Some("the person holds a $ that is not $1");
        };
        if after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return Some("a letter, digit or _ right after $1 is read as part of the group's name");
        }
        rest = after;
    }
    None
}
