//! Headers whose values come from Secrets, checked before they are sent.

use signoff_engine::transition::SentSecret;

use crate::{CallError, ExposeSecret as _, SecretText};

/// The minimum size of a value in bytes. A shorter value could occur in any answer by chance, and
/// would be removed from it.
const LEAST_BYTES: usize = 16;

/// A header whose value comes from a Secret. Its `Debug` shows no value.
#[derive(Clone, Debug)]
pub struct HeaderSecret {
    name: String,
    prefix: String,
    value: SecretText,
}

impl HeaderSecret {
    /// Returns a header with a value that can be sent, and that can be removed from the answer.
    ///
    /// # Errors
    /// The value is too short, or is not allowed in a header. No error contains the value.
    pub fn new(header: SentSecret, value: SecretText) -> Result<Self, CallError> {
        let SentSecret { header, prefix, entry } = header;
        let (text, entry) = (value.expose_secret(), entry.name);
        if text.len() < LEAST_BYTES {
            return Err(CallError::invalid(format!(
                "the value of {entry} of spec.secrets has fewer than {LEAST_BYTES} bytes: a header takes a longer one"
            )));
        }
        if text.trim() != text || !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(CallError::invalid(format!(
                "the value of {entry} of spec.secrets cannot be that of a header: use visible ASCII characters, \
                 without spaces at its ends and without line breaks"
            )));
        }
        Ok(Self { name: header, prefix, value })
    }

    /// Returns the name of the header.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the sent text.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.prefix, self.value.expose_secret())
    }

    /// Returns the value of the Secret.
    pub(super) fn value(&self) -> &str {
        self.value.expose_secret()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::workflow::SecretEntry;

    use super::*;

    fn header(value: &str) -> Result<HeaderSecret, CallError> {
        let entry = SecretEntry { name: "crm".into(), secret: "vault".into(), key: "token".into() };
        let header = SentSecret { header: "Authorization".into(), prefix: "Bearer ".into(), entry };
        HeaderSecret::new(header, SecretText::from(value))
    }

    #[test]
    fn a_value_that_is_short_or_not_allowed_in_a_header_is_refused() {
        for value in [
            "",
            "hunter2-hunter2",
            "hunter2-hunter2-\r\nx: y",
            "hunter2-\thunter2-",
            " hunter2-hunter2-",
            "hunter2-hunter2-ü",
        ] {
            let refused = header(value).unwrap_err();
            assert!(refused.message.contains("crm of spec.secrets") && !refused.sent, "{refused}");
            assert!(!refused.message.contains("hunter2") && !refused.message.contains("vault"), "{refused}");
        }
        let sent = header("hunter2-hunter2-").unwrap();
        assert_eq!((sent.name(), sent.text().as_str()), ("Authorization", "Bearer hunter2-hunter2-"));
        assert_eq!(header("hunter2, of Dana").unwrap().value(), "hunter2, of Dana");
        assert!(!format!("{sent:?}").contains("hunter2"));
    }
}
