//! Elements of a page: by role and name, by label, by text, or by a CSS selector.

use std::fmt;

use serde::Serialize;

/// One or more elements of a page. A `&str` is a CSS selector.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Target {
    #[serde(skip_serializing_if = "Option::is_none")]
    css: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    exact: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    nth: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<Box<Self>>,
}

/// Returns the target with this role and this whole accessible name, such as `role("button", "Approve")`.
#[must_use]
pub fn role(role: &str, name: &str) -> Target {
    Target { role: Some(role.to_owned()), name: Some(name.to_owned()), exact: true, ..Target::default() }
}

/// Returns the target of all elements with a role, whatever their names.
#[must_use]
pub fn any(role: &str) -> Target {
    Target { role: Some(role.to_owned()), ..Target::default() }
}

/// Returns the target of a field, by the whole text of its label.
#[must_use]
pub fn label(label: &str) -> Target {
    Target { label: Some(label.to_owned()), exact: true, ..Target::default() }
}

/// Returns the target of the smallest element whose text contains `text`, in any letter case.
#[must_use]
pub fn text(text: &str) -> Target {
    Target { text: Some(text.to_owned()), ..Target::default() }
}

/// Returns the target of a CSS selector.
#[must_use]
pub fn css(selector: &str) -> Target {
    Target { css: Some(selector.to_owned()), ..Target::default() }
}

impl Target {
    /// Lets the name, label or text match a part, in any letter case.
    #[must_use]
    pub fn loosely(self) -> Self {
        Self { exact: false, ..self }
    }

    /// Lets the name, label or text match only as a whole.
    #[must_use]
    pub fn exactly(self) -> Self {
        Self { exact: true, ..self }
    }

    /// Returns the target with this number among several, from 0; -1 is the last.
    #[must_use]
    pub fn nth(self, number: i32) -> Self {
        Self { nth: Some(number), ..self }
    }

    /// Limits the target to elements inside another target.
    #[must_use]
    pub fn inside(self, outer: impl Into<Self>) -> Self {
        Self { inside: Some(Box::new(outer.into())), ..self }
    }
}

impl From<&str> for Target {
    fn from(selector: &str) -> Self {
        css(selector)
    }
}

impl From<&Self> for Target {
    fn from(target: &Self) -> Self {
        target.clone()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { role: Some(role), name: Some(name), .. } => write!(f, "the {role} {name:?}")?,
            Self { role: Some(role), .. } => write!(f, "a {role}")?,
            Self { label: Some(label), .. } => write!(f, "the field {label:?}")?,
            Self { text: Some(text), .. } => write!(f, "the text {text:?}")?,
            Self { css, .. } => write!(f, "{}", css.as_deref().unwrap_or_default())?,
        }
        if let Some(nth) = self.nth {
            write!(f, ", number {nth}")?;
        }
        self.inside.iter().try_for_each(|outer| write!(f, ", in {outer}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{role, text};

    #[test]
    fn a_target_is_printed_as_words() {
        let target = role("button", "Approve").nth(1).inside(role("group", "deploy"));
        assert_eq!(target.to_string(), r#"the button "Approve", number 1, in the group "deploy""#);
        assert_eq!(text("nothing waits").inside("main").to_string(), r#"the text "nothing waits", in main"#);
    }
}
