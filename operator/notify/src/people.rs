//! The addresses of people: a map from users and groups of the cluster to addresses, from the administrator's file.
//!
//! **Invariant:** a workflow author cannot choose an address. The name of a subject is looked up in the file, or is a
//! mail address of an allowed domain.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value};
use signoff_api::gate::{Subject, SubjectKind};

use crate::yaml;

/// The kinds of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A mail address.
    Mail,
    /// The id of a member of Slack, or the mail address with which Slack finds the member.
    Slack,
}

/// The addresses of one user or group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Addresses {
    /// The mail address.
    mail: Option<String>,
    /// The id of the member of Slack, such as U012AB3CD.
    slack: Option<String>,
}

/// A group with an address of its own, or else the users in the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    mail: Option<String>,
    slack: Option<String>,
    #[serde(default)]
    members: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeopleFile {
    #[serde(default)]
    users: Map<String, Value>,
    #[serde(default)]
    groups: Map<String, Value>,
}

/// The addresses of people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct People {
    users: BTreeMap<String, Addresses>,
    groups: BTreeMap<String, Group>,
    /// The domains whose user names are also mail addresses.
    domains: Vec<String>,
}

impl People {
    /// Parses the file of people. `domains`: the domains in `people.usersAreEmails`.
    ///
    /// # Errors
    /// The invalid field, and the remedy. The error has the index of an entry and not its name, because the name may be
    /// an address.
    pub fn parse(text: &str, domains: &[String]) -> Result<Self, String> {
        let file: Option<PeopleFile> = yaml::convert(yaml::read(text)?)?;
        let file = file.unwrap_or_default();
        let (mut users, mut groups) = (BTreeMap::new(), BTreeMap::new());
        for (index, (name, value)) in file.users.into_iter().enumerate() {
            let field = format!("users[{index}]");
            let user: Addresses = yaml::convert(value).map_err(|why| format!("{field}: {why}"))?;
            check_addresses(&field, user.mail.as_deref(), user.slack.as_deref())?;
            users.insert(name, user);
        }
        for (index, (name, value)) in file.groups.into_iter().enumerate() {
            let field = format!("groups[{index}]");
            let group: Group = yaml::convert(value).map_err(|why| format!("{field}: {why}"))?;
            check_addresses(&field, group.mail.as_deref(), group.slack.as_deref())?;
            if let Some(unknown) = group.members.iter().position(|member| !users.contains_key(member)) {
                return Err(format!("{field}.members[{unknown}]: no user of this file; add it to users"));
            }
            groups.insert(name, group);
        }
        Ok(Self { users, groups, domains: domains.to_vec() })
    }

    /// Returns the addresses of subjects. A group without an address has the addresses of its members. Service accounts
    /// have no address.
    #[must_use]
    pub fn addresses<'s>(&self, subjects: impl IntoIterator<Item = &'s Subject>, medium: Medium) -> BTreeSet<String> {
        let mut addresses = BTreeSet::new();
        for subject in subjects {
            match subject.kind {
                SubjectKind::User => addresses.extend(self.address_of_user(&subject.name, medium)),
                SubjectKind::Group => {
                    let Some(group) = self.groups.get(&subject.name) else { continue };
                    let own = match medium {
                        Medium::Mail => &group.mail,
                        Medium::Slack => &group.slack,
                    };
                    match own {
                        Some(address) => addresses.extend([address.clone()]),
                        None => {
                            addresses.extend(group.members.iter().filter_map(|user| self.address_of_user(user, medium)))
                        }
                    }
                }
                SubjectKind::ServiceAccount => {}
            }
        }
        addresses
    }

    /// Returns the address of a user: from the file, or else the name if it is a mail address of an allowed domain.
    fn address_of_user(&self, name: &str, medium: Medium) -> Option<String> {
        match self.users.get(name) {
            Some(user) => user.get(medium),
            // In lower case, so that one mailbox is not two recipients.
            None => self.is_allowed_email(name).then(|| name.to_ascii_lowercase()),
        }
    }

    fn is_allowed_email(&self, name: &str) -> bool {
        let domain = name.rsplit_once('@').map(|(_, domain)| domain);
        let is_allowed = |domain: &str| self.domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(domain));
        // `bob+1@` and `bob+2@` are the same mailbox, to which an author could send many mails. Such users need an
        // entry in the file of people.
        is_mail_address(name) && !name.contains('+') && domain.is_some_and(is_allowed)
    }
}

impl Addresses {
    /// Returns the one address for `medium`. For Slack, the mail address replaces a missing member id.
    fn get(&self, medium: Medium) -> Option<String> {
        match medium {
            Medium::Mail => self.mail.clone(),
            Medium::Slack => self.slack.clone().or_else(|| self.mail.clone()),
        }
    }
}

/// Checks the addresses of one user or group.
fn check_addresses(field: &str, mail: Option<&str>, slack: Option<&str>) -> Result<(), String> {
    if mail.is_some_and(|mail| !is_mail_address(mail)) {
        return Err(format!("{field}.mail: not a mail address; write it as in alice@example.com"));
    }
    let is_id = |id: &str| (2..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if slack.is_some_and(|id| !is_id(id)) {
        return Err(format!("{field}.slack: not the id of a member; write it as in U012AB3CD"));
    }
    Ok(())
}

/// Whether a text is a plain mail address: ASCII, without quotes, spaces, comments or line breaks.
#[must_use]
pub fn is_mail_address(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else { return false };
    let in_local = |byte: u8| byte.is_ascii_alphanumeric() || b".!#$&'*+/=?^_`{|}~-".contains(&byte);
    (1..=64).contains(&local.len())
        && text.len() <= 254
        && !local.starts_with(['.', '-'])
        && !local.ends_with('.')
        && local.bytes().all(in_local)
        && is_domain(domain)
}

/// Whether a text is the name of a mail domain: at least two DNS labels.
#[must_use]
pub fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.contains('.') && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FILE: &str = "
users:
  alice: {mail: alice@example.com, slack: U012AB3CD}
  bob: {mail: bob@example.com}
groups:
  finance: {mail: finance@example.com}
  board: {members: [alice, bob]}
";

    fn people() -> People {
        People::parse(FILE, &["example.com".to_owned()]).unwrap()
    }

    fn addresses_of(subjects: &[Subject], medium: Medium) -> Vec<String> {
        people().addresses(subjects, medium).into_iter().collect()
    }

    #[test]
    fn each_user_and_group_has_one_address_without_duplicates() {
        let board = [Subject::user("alice"), Subject::group("board"), Subject::group("finance")];
        assert_eq!(addresses_of(&board, Medium::Mail), ["alice@example.com", "bob@example.com", "finance@example.com"]);
        assert_eq!(addresses_of(&board, Medium::Slack), ["U012AB3CD", "bob@example.com"]);
        assert_eq!(addresses_of(&[Subject::group("unknown"), Subject::user("carol")], Medium::Mail), [] as [&str; 0]);
    }

    #[test]
    fn user_name_is_an_address_only_in_an_allowed_domain() {
        let good = ["carol@example.com", "Carol.B@EXAMPLE.com"];
        for name in good {
            assert_eq!(addresses_of(&[Subject::user(name)], Medium::Mail), [name.to_lowercase()]);
        }
        for name in [
            "carol+1@example.com",
            "carol@evil.example",
            "carol@example.com.evil",
            "a\r\nBcc: x@example.com",
            "\"a b\"@example.com",
            "a@b@example.com",
            "a b@example.com",
            "@example.com",
            "-x@example.com",
            "carol@",
            "carol",
        ] {
            assert_eq!(addresses_of(&[Subject::user(name)], Medium::Mail), [] as [&str; 0], "{name:?}");
        }
    }

    #[test]
    fn an_error_names_the_field_and_the_remedy() {
        for (text, why) in [
            ("users: {SECRET: {mail: SECRET}}", "users[0].mail: not a mail address"),
            ("users: {a: {}, SECRET: {slack: \"#SECRET\"}}", "users[1].slack: not the id"),
            ("users: {alice: {SECRET: 1}}", "users[0]: unknown field, expected `mail` or `slack`"),
            ("users: {alice: SECRET}", "users[0]: invalid type, expected struct Addresses"),
            ("users: {alice: {mail: [SECRET]}}", "users[0]: invalid type, expected a string"),
            ("users: [SECRET]", "invalid type, expected a map"),
            ("users: {SECRET: {}, SECRET: {}}", "duplicate key, at line 1"),
            ("groups: {SECRET: {members: [SECRET]}}", "groups[0].members[0]: no user of this file"),
            ("groups: {board: {members: SECRET}}", "groups[0]: invalid type, expected a sequence"),
            ("SECRET: {}", "unknown field, expected `users` or `groups`"),
            ("users: {alice: {mail: SECRET", "not YAML"),
        ] {
            let error = People::parse(text, &[]).unwrap_err();
            assert!(!error.contains("SECRET"), "{error}");
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(People::parse("{}", &[]).unwrap(), People::default());
    }
}
