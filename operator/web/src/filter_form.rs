//! The filters of lists: forms whose fields are filled from an address.
//!
//! **Invariant:** nothing in an address is trusted. A text that cannot be used is an error of its field.

use signoff_review::text::one_line;
use url::form_urlencoded::Serializer;

use crate::scope::is_namespace;

/// The longest text that is searched for, in characters.
const LONGEST: usize = 253;

/// A field: its text, and the reason why it cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterField {
    /// The text, cut to the length that is searched for.
    pub text: String,
    /// The reason why the text cannot be used.
    pub wrong: Option<String>,
}

/// A form whose fields are filled from an address.
pub trait FilterForm {
    /// Returns the fields with their names in the address.
    fn fields(&self) -> Vec<(&'static str, &FilterField)>;

    /// Whether a field has an error.
    fn is_wrong(&self) -> bool {
        self.fields().iter().any(|(_, field)| field.wrong.is_some())
    }

    /// Whether no field is filled.
    fn is_empty(&self) -> bool {
        self.fields().iter().all(|(_, field)| field.text.is_empty())
    }

    /// Returns the query of an address that fills the fields in the same way.
    fn query(&self) -> Serializer<'static, String> {
        let mut query = Serializer::new(String::new());
        for (name, field) in self.fields().into_iter().filter(|(_, field)| !field.text.is_empty()) {
            query.append_pair(name, &field.text);
        }
        query
    }
}

impl FilterField {
    /// Reads a text from an address.
    pub(crate) fn of(typed: &str) -> Self {
        let typed = typed.trim();
        let text: String = typed.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
        let mut field = Self { text, wrong: None };
        if typed.chars().count() > LONGEST {
            field.say(&format!("this is too long: search for at most {LONGEST} characters"));
        } else if typed.chars().any(char::is_control) {
            field.say("this has control characters: type it without them");
        }
        field
    }

    /// Returns the text as a part of a line of the page.
    pub(crate) fn shown(&self) -> String {
        one_line(&self.text, LONGEST)
    }

    /// Adds the reason why the text cannot be used, unless there is one already.
    pub(crate) fn say(&mut self, why: &str) {
        self.wrong.get_or_insert_with(|| why.to_owned());
    }

    /// Whether another text contains this one, without regard to case. An empty text is in every other one.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.text.is_empty() || text.to_lowercase().contains(&self.text.to_lowercase())
    }

    /// Adds an error if the text is not the name of a namespace.
    pub(crate) fn check_namespace(&mut self) {
        if !self.text.is_empty() && !is_namespace(&self.text) {
            self.say("this is no namespace: names have lower-case letters, digits and hyphens");
        }
    }
}
