//! The rules that map user names to persons, applied like the API server applies them.
//!
//! **Invariant:** a user name that can be read as two persons lets no run continue; it can only stop one.

use signoff_api::gate::{PersonRule, Subject, SubjectKind};
use signoff_expr::re2;

/// The compiled rules that map user names to persons, of one request.
#[derive(Clone, Debug)]
pub struct Persons {
    rules: Vec<CompiledRule>,
    /// Whether there are rules. Without rules every user name is a person of its own.
    has_rules: bool,
}

/// A compiled rule that maps user names to a person.
#[derive(Clone, Debug)]
struct CompiledRule {
    whole: regex::Regex,
    person: String,
    /// The patterns before and after the group, if the person contains the group. CEL cannot extract a group, so the
    /// API server takes the text between the matches of these two patterns.
    around: Option<(regex::Regex, regex::Regex)>,
}

impl CompiledRule {
    fn new(rule: &PersonRule) -> Result<Self, String> {
        let pattern = rule.pattern.as_str();
        let around = match (pattern.find('('), pattern.rfind(')')) {
            (Some(open), Some(close)) if open < close && rule.person.contains("$1") => {
                let (before, after) = (pattern.get(..open), pattern.get(close + 1..));
                Some((re2::prefix(before.unwrap_or_default())?, re2::suffix(after.unwrap_or_default())?))
            }
            _ => None,
        };
        Ok(Self { whole: re2::whole(pattern)?, person: rule.person.clone(), around })
    }

    /// Returns the person as the API server computes it, from the texts around the group. If these texts overlap, the
    /// person is the user name itself.
    fn by_text_around(&self, user: &str) -> String {
        let Some((before, after)) = &self.around else { return self.person.clone() };
        let start = before.find(user).map_or(0, |found| found.len());
        let end = user.len() - after.find(user).map_or(0, |found| found.len());
        user.get(start..end).map_or_else(|| user.to_owned(), |text| self.person.replace("$1", text))
    }

    /// Returns the person by the text that the group matches.
    fn by_group(&self, user: &str) -> String {
        let group = self.whole.captures(user).and_then(|found| Some(found.get(1)?.as_str()));
        match (&self.around, group) {
            (Some(_), Some(text)) => self.person.replace("$1", text),
            (Some(_), None) => user.to_owned(),
            (None, _) => self.person.clone(),
        }
    }
}

impl Persons {
    /// Compiles the rules. If a rule is invalid, no user name is a person, because the API server then refuses every
    /// vote.
    #[must_use]
    pub fn new(rules: &[PersonRule]) -> Self {
        let compiled = rules.iter().map(CompiledRule::new).collect::<Result<_, _>>();
        Self { rules: compiled.unwrap_or_default(), has_rules: !rules.is_empty() }
    }

    /// Returns the person who decides under a user name, or `None` if there are rules and none maps the name to one
    /// person.
    #[must_use]
    pub fn voter(&self, user: &str) -> Option<String> {
        self.objector(user).filter(|person| self.by_group(user).as_ref() == Some(person))
    }

    /// Returns the person who can stop a run under a user name, as the API server computes the person, even if the name
    /// can be read as two persons. Returns `None` if there are rules and none matches.
    #[must_use]
    pub fn objector(&self, user: &str) -> Option<String> {
        self.apply_first_rule(user, CompiledRule::by_text_around)
    }

    /// Returns the person by the text that the group of the rule matches.
    pub(crate) fn by_group(&self, user: &str) -> Option<String> {
        self.apply_first_rule(user, CompiledRule::by_group)
    }

    /// Returns the person that the first matching rule gives, or the user name itself without rules.
    fn apply_first_rule(&self, user: &str, person: impl Fn(&CompiledRule, &str) -> String) -> Option<String> {
        if !self.has_rules {
            return Some(user.to_owned());
        }
        self.rules.iter().find(|rule| rule.whole.is_match(user)).map(|rule| person(rule, user))
    }

    /// Whether a listed user name belongs to this person. A name that no rule matches is its own person.
    #[must_use]
    pub fn is(&self, person: &str, listed: &str) -> bool {
        match self.rules.iter().find(|rule| rule.whole.is_match(listed)) {
            Some(rule) => rule.by_text_around(listed) == person || rule.by_group(listed) == person,
            None => listed == person,
        }
    }

    /// Returns every person to whom a listed user name belongs, as [`Persons::is`] decides, sorted and without
    /// duplicates.
    pub(crate) fn persons_of(&self, listed: &[String]) -> Vec<String> {
        let mut persons: Vec<String> = Vec::new();
        for name in listed {
            let mapped: Vec<String> = [self.objector(name), self.by_group(name)].into_iter().flatten().collect();
            persons.extend(if mapped.is_empty() { vec![name.clone()] } else { mapped });
        }
        persons.sort();
        persons.dedup();
        persons
    }

    /// Returns the number of persons among approvers who are not excluded, or `None` if an approver is a group.
    pub(crate) fn count(&self, approvers: &[Subject], excluded: &[String]) -> Option<usize> {
        if approvers.iter().any(|subject| subject.kind == SubjectKind::Group) {
            return None;
        }
        let mut persons: Vec<String> = approvers
            .iter()
            .filter_map(|subject| self.voter(&user_name(subject)))
            .filter(|person| !excluded.iter().any(|name| self.is(person, name)))
            .collect();
        persons.sort();
        persons.dedup();
        Some(persons.len())
    }
}

/// Returns the user name of a user or of a service account.
pub(crate) fn user_name(subject: &Subject) -> String {
    match &subject.namespace {
        Some(namespace) => format!("system:serviceaccount:{namespace}:{}", subject.name),
        None => subject.name.clone(),
    }
}

/// Returns the reason why a rule is invalid or two programs could read it differently, or `None`. The CRD of approval
/// policies refuses such a rule at `kubectl apply`. The engine checks again, because the CRD can be missing.
pub(crate) fn ambiguity(rule: &PersonRule) -> Option<String> {
    if let Err(why) = CompiledRule::new(rule) {
        return Some(why);
    }
    let pattern = rule.pattern.as_bytes();
    if pattern.windows(2).any(|pair| matches!(pair, [b'\\', next] if next.is_ascii_alphanumeric())) {
        return Some(
            "escaped letters like \\d and \\w mean different characters to different programs: write [0-9]".to_owned(),
        );
    }
    if rule.pattern.contains("(?") {
        return Some("groups that begin with (? mean different things to different programs: remove them".to_owned());
    }
    let mut rest = rule.person.as_str();
    while let Some((_, after)) = rest.split_once('$') {
        let Some(after) = after.strip_prefix('1') else {
            return Some("the person contains a $ that is not $1".to_owned());
        };
        if after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return Some("a letter, digit or _ directly after $1 would be part of the name of the group".to_owned());
        }
        rest = after;
    }
    None
}

#[cfg(test)]
#[path = "persons_tests.rs"]
mod tests;
