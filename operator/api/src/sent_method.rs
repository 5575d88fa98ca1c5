//! The method of an http request as its server may interpret it: a header can name another one, and a GET with a body
//! may change something.
//!
//! **Invariant:** only this module interprets methods. Gates, policies, retries and repetitions use it.

use crate::step::{HttpStep, Method};

/// The headers by which a request names another method.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-method-override", "x-http-method"];

/// The method of a request, and the methods that its headers name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMethod {
    method: String,
    has_body: bool,
    /// The values of the headers that name a method; `None` for one that is known only after rendering.
    named: Vec<Option<String>>,
}

impl SentMethod {
    /// Returns the method of a step before it is rendered.
    #[must_use]
    pub fn of_step(http: &HttpStep) -> Self {
        let mut sent = Self::new(
            http.method.unwrap_or_default().name(),
            http.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())),
            http.body.is_some(),
        );
        for named in &mut sent.named {
            *named = named.take().filter(|value| is_fixed(value));
        }
        sent
    }

    /// Returns the method of a rendered request.
    #[must_use]
    pub fn new<'h>(method: &str, headers: impl IntoIterator<Item = (&'h str, &'h str)>, has_body: bool) -> Self {
        let named = headers.into_iter().filter(|(name, _)| names_a_method(name));
        Self { method: method.to_owned(), has_body, named: named.map(|(_, value)| Some(value.to_owned())).collect() }
    }

    /// Whether the request can only read: a GET or HEAD without a body and without a header that names a method.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        let is = |method: Method| self.method == method.name();
        (is(Method::Get) || is(Method::Head)) && !self.has_body && self.named.is_empty()
    }

    /// Whether a declaration that the request only reads can be true: it only reads, or it is a plain POST, as many
    /// searches are.
    #[must_use]
    pub fn can_read(&self) -> bool {
        self.only_reads() || (self.method == Method::Post.name() && self.named.is_empty())
    }

    /// Whether the request can be repeated by the HTTP standard.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        let is = |method: Method| self.method == method.name();
        self.only_reads() || ((is(Method::Put) || is(Method::Delete)) && self.named.is_empty())
    }

    /// Whether a server may interpret the request as this method, or `None` if that depends on the rendered request.
    #[must_use]
    pub fn can_be(&self, method: Method) -> Option<bool> {
        let name = method.name();
        let is_word = |value: &String| {
            value.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word.eq_ignore_ascii_case(name))
        };
        if self.method == name || self.named.iter().flatten().any(is_word) {
            return Some(true);
        }
        if self.named.contains(&None) { None } else { Some(false) }
    }
}

/// Writes the method and why it is not only that: `GET (with a body)`, `POST (a header names the method DELETE)`.
impl std::fmt::Display for SentMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.method)?;
        let is_read = [Method::Get, Method::Head].iter().any(|method| self.method == method.name());
        match self.named.as_slice() {
            [] if self.has_body && is_read => f.write_str(" (with a body)"),
            [] => Ok(()),
            [Some(named)] if is_fixed(named) => write!(f, " (a header names the method {named})"),
            _ => f.write_str(" (a header names another method)"),
        }
    }
}

/// Whether the value of a header is short and the same before and after it is rendered: any other character may belong
/// to a template.
fn is_fixed(value: &str) -> bool {
    value.len() <= 64 && value.chars().all(|c| c.is_ascii_alphabetic() || ", -".contains(c))
}

/// Whether servers read the method from a header of this name.
#[must_use]
pub fn names_a_method(header: &str) -> bool {
    OVERRIDES.contains(&name_as_read(header).as_str())
}

/// Whether a server can take two names of headers for the same one.
#[must_use]
pub fn are_one_header(one: &str, other: &str) -> bool {
    name_as_read(one) == name_as_read(other)
}

/// Returns the name of a header as servers may read it. Servers that pass headers as variables, like CGI, replace every
/// character but letters and digits by `_`.
fn name_as_read(header: &str) -> String {
    header.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn step(mut fields: Value) -> SentMethod {
        fields["url"] = json!("https://bank.example");
        SentMethod::of_step(&serde_json::from_value(fields).unwrap())
    }

    #[test]
    fn a_get_or_head_with_a_body_or_a_header_that_names_a_method_does_not_only_read() {
        for method in ["GET", "HEAD"] {
            assert!(step(json!({"method": method, "headers": {"Accept": "text/plain"}})).only_reads(), "{method}");
            assert!(!step(json!({"method": method, "body": "x"})).only_reads(), "{method}");
            assert!(!step(json!({"method": method, "body": ""})).only_reads(), "a body may be rendered from nothing");
            for header in ["X-HTTP-Method-Override", "x-method-override", "X-Http-METHOD", "x_http_method_override"] {
                for value in ["DELETE", "get", "", "{{ args.method }}"] {
                    let sent = step(json!({"method": method, "headers": {header: value}}));
                    assert!(!sent.only_reads() && !sent.is_idempotent() && !sent.can_read(), "{method} {header}");
                }
            }
        }
        assert!(step(json!({"headers": {"X-HTTP-Method-Overrides": "DELETE"}})).only_reads(), "another header");
        assert!(!step(json!({"method": "POST"})).only_reads());
    }

    #[test]
    fn a_request_is_repeatable_by_its_method_unless_a_header_names_another() {
        let idempotent =
            |method: &str, more: Value| step(json!({"method": method, "headers": more, "body": "x"})).is_idempotent();
        for (method, is_idempotent) in
            [("GET", false), ("PUT", true), ("DELETE", true), ("POST", false), ("PATCH", false)]
        {
            assert_eq!(idempotent(method, json!({})), is_idempotent, "{method}");
            assert!(!idempotent(method, json!({"X-HTTP-Method": "PUT"})), "{method}");
        }
    }

    #[test]
    fn a_declaration_of_reads_holds_for_reads_and_a_plain_post() {
        for (method, can_read) in
            [("GET", true), ("HEAD", true), ("POST", true), ("PUT", false), ("PATCH", false), ("DELETE", false)]
        {
            assert_eq!(step(json!({"method": method})).can_read(), can_read, "{method}");
        }
        assert!(step(json!({"method": "POST", "body": "search"})).can_read());
        assert!(!step(json!({"method": "POST", "headers": {"X-Method-Override": "DELETE"}})).can_read());
    }

    #[test]
    fn a_request_can_be_the_methods_that_its_headers_name() {
        for (value, known) in [
            ("DELETE", Some(true)),
            (" delete ", Some(true)),
            ("PATCH, Delete", Some(true)),
            ("PUT", Some(false)),
            ("DELETED", Some(false)),
            ("", Some(false)),
            ("{{ args.method }}", None),
            ("DEL\u{7}ETE", None),
        ] {
            let sent = step(json!({"headers": {"x-http-method-override": value}}));
            assert_eq!(sent.can_be(Method::Delete), known, "{value:?}");
            assert_eq!(sent.can_be(Method::Get), Some(true), "its own method");
        }
        let rendered = |value| SentMethod::new("POST", [("X-HTTP-Method", value)], true).can_be(Method::Delete);
        assert_eq!((rendered("delete;q=1"), rendered("GET")), (Some(true), Some(false)));
    }

    #[test]
    fn a_method_is_rendered_with_the_header_that_changes_it() {
        assert_eq!(step(json!({"method": "PUT", "body": "x"})).to_string(), "PUT");
        assert_eq!(step(json!({"body": "x"})).to_string(), "GET (with a body)");
        let named = step(json!({"headers": {"X-HTTP-Method": "DELETE"}, "body": "x"}));
        assert_eq!(named.to_string(), "GET (a header names the method DELETE)");
        let open = step(json!({"headers": {"X-HTTP-Method": "{{ args.m }}"}}));
        assert_eq!(open.to_string(), "GET (a header names another method)");
    }

    #[test]
    fn names_of_headers_are_compared_as_servers_read_them() {
        assert!(are_one_header("X-Api-Key", "x_api_KEY") && are_one_header("authorization", "Authorization"));
        assert!(!are_one_header("X-Api-Key", "X-Api-Keys"));
    }

    #[test]
    fn a_header_names_a_method_with_any_separators() {
        for header in ["X.HTTP.Method.Override", "X~Http~Method~Override", "X-HTTP.Method_Override"] {
            assert!(!step(json!({"headers": {header: "DELETE"}})).only_reads(), "{header}");
        }
    }
}
