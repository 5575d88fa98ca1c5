//! Lists of tools in agents and gates: names, globs, and exclusions with `!`.

use signoff_api::glob::is_like;

use super::names::is_built_in;

/// A list of tools. Each entry is a name or a glob, in which `*` matches any characters; `!` before it excludes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolList {
    /// The names and globs of the list.
    listed: Vec<String>,
    /// The excluded names and globs, without `!`.
    excluded: Vec<String>,
}

/// The decision of a list about a tool, with the deciding entry as its author wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// An entry with `!` matches, which has priority over all other entries.
    Excluded(String),
    /// An entry without `!` matches.
    Listed(String),
    /// No entry matches.
    None,
}

impl ToolList {
    /// Parses the entries of a list as an author wrote them.
    pub(crate) fn of(entries: &[String]) -> Self {
        let mut list = Self::default();
        for entry in entries {
            match entry.strip_prefix('!') {
                Some(excluded) => list.excluded.push(excluded.to_owned()),
                None => list.listed.push(entry.clone()),
            }
        }
        list
    }

    /// Decides about a tool. A name has priority over a glob, and an earlier glob over a later one.
    ///
    /// A glob excludes built-in tools but never lists them: an agent can ask people only if its author names the tool.
    pub(crate) fn selects(&self, name: &str) -> Selection {
        if let Some(entry) = deciding_entry(&self.excluded, name) {
            return Selection::Excluded(format!("!{entry}"));
        }
        match deciding_entry(&self.listed, name) {
            Some(entry) if entry == name || !is_built_in(name) => Selection::Listed(entry.to_owned()),
            _ => Selection::None,
        }
    }

    /// Returns the entries without a glob, listed or excluded.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.listed.iter().chain(&self.excluded).map(String::as_str).filter(|entry| !entry.contains('*'))
    }

    /// Whether an entry can list a tool of a server under some name that the server can give it.
    pub(crate) fn can_list(&self, server: &str) -> bool {
        self.listed.iter().any(|entry| can_match(entry, server))
    }

    /// Whether the list contains every tool of a server under any name.
    pub(crate) fn lists_all_of(&self, server: &str) -> bool {
        let first = format!("{server}.");
        let is_all = |entry: &String| {
            entry.strip_suffix('*').is_some_and(|begin| !begin.contains('*') && first.starts_with(begin))
        };
        self.listed.iter().any(is_all) && !self.excluded.iter().any(|entry| can_match(entry, server))
    }
}

/// Whether an entry of the tools of an agent means tools of a server: it begins with the name of the server and a dot.
/// So a glob for other tools never matches a name that a server chooses.
pub(super) fn means(entry: &str, server: &str) -> bool {
    entry.strip_prefix(server).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether an entry can match the name of a tool of a server.
fn can_match(entry: &str, server: &str) -> bool {
    let first = format!("{server}.");
    let begin = entry.split('*').next().unwrap_or_default();
    if entry.contains('*') { begin.starts_with(&first) || first.starts_with(begin) } else { entry.starts_with(&first) }
}

/// Returns the entry that decides about a name: the name itself, else the first glob that matches.
fn deciding_entry<'a>(entries: &'a [String], name: &str) -> Option<&'a str> {
    let exact = entries.iter().find(|entry| *entry == name);
    exact.or_else(|| entries.iter().find(|entry| is_like(entry, name))).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts the decision that each list makes about each name.
    #[track_caller]
    fn assert_selections(rows: &[(&[&str], &str, Selection)]) {
        for (entries, name, expected) in rows {
            let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
            assert_eq!(ToolList::of(&entries).selects(name), *expected, "{entries:?} {name}");
        }
    }

    fn listed(entry: &str) -> Selection {
        Selection::Listed(entry.to_owned())
    }

    fn excluded(entry: &str) -> Selection {
        Selection::Excluded(entry.to_owned())
    }

    #[test]
    fn an_empty_list_selects_nothing() {
        assert_selections(&[
            (&[], "a", Selection::None),
            (&[""], "a", Selection::None),
            (&["!"], "a", Selection::None),
        ]);
    }

    #[test]
    fn a_name_lists_only_the_tool_of_that_name() {
        assert_selections(&[
            (&["send"], "send", listed("send")),
            (&["send"], "sender", Selection::None),
            (&["send"], "Send", Selection::None),
            (&["send "], "send", Selection::None),
        ]);
    }

    #[test]
    fn a_glob_lists_the_tools_that_it_matches_whole() {
        assert_selections(&[
            (&["crm.*"], "crm.refund", listed("crm.*")),
            (&["crm.*"], "crm", Selection::None),
            (&["*-letter"], "send-letter", listed("*-letter")),
            (&["*-letter"], "send-letters", Selection::None),
            (&["a*b*c"], "a-b-b-c", listed("a*b*c")),
            (&["a*b*c"], "acb", Selection::None),
            (&["*"], "anything", listed("*")),
            // A dot is literal.
            (&["crm.*"], "crmxrefund", Selection::None),
        ]);
    }

    #[test]
    fn an_exclusion_has_priority_in_every_order() {
        assert_selections(&[
            (&["send", "!send"], "send", excluded("!send")),
            (&["!send", "send"], "send", excluded("!send")),
            (&["*", "!crm.*"], "crm.refund", excluded("!crm.*")),
            (&["!crm.*", "crm.refund"], "crm.refund", excluded("!crm.*")),
            (&["*", "!crm.*"], "send", listed("*")),
            (&["!send"], "other", Selection::None),
            (&["!*", "send"], "send", excluded("!*")),
        ]);
    }

    #[test]
    fn the_entry_that_decided_is_the_name_or_else_the_first_glob() {
        assert_selections(&[
            (&["*", "s*", "send"], "send", listed("send")),
            (&["s*", "*"], "send", listed("s*")),
            (&["!*", "!send"], "send", excluded("!send")),
        ]);
    }

    #[test]
    fn a_glob_never_lists_a_built_in_tool() {
        assert_selections(&[
            (&["*"], "ask-human", Selection::None),
            (&["ask-*"], "ask-human", Selection::None),
            (&["human_intervention.*"], "human_intervention.request", Selection::None),
            (&["*", "handoff_to_user"], "handoff_to_user", listed("handoff_to_user")),
            (&["ask-human"], "ask-human", listed("ask-human")),
            (&["ask-human"], "handoff_to_user", Selection::None),
        ]);
    }

    #[test]
    fn an_exclusion_with_a_glob_excludes_built_in_tools_too() {
        assert_selections(&[
            (&["ask-human", "!*"], "ask-human", excluded("!*")),
            (&["ask-human", "!ask-*"], "ask-human", excluded("!ask-*")),
            (&["ask-human", "!ask-human"], "ask-human", excluded("!ask-human")),
        ]);
    }

    #[test]
    fn only_the_first_exclamation_mark_excludes() {
        assert_selections(&[(&["!!send"], "send", Selection::None), (&["!!send"], "!send", excluded("!!send"))]);
    }
}
