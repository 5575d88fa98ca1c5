//! The page that was requested before a sign-in: its path, and of its query only the digest in the link of a notice.
//!
//! **Invariant:** the address is that of the request itself, and never that of a parameter, a form or another site.

use std::time::Duration;

use axum_extra::extract::PrivateCookieJar;
use signoff_api::Moment;
use url::form_urlencoded;

use super::cookie::cookie;

/// The cookie of the requested page.
const NAME: &str = "__Host-signoff-wanted";
/// The longest time for which it is remembered.
const LONGEST: Duration = Duration::from_secs(900);
/// The longest name of an object, and so of a part of a path, in characters.
const LONGEST_NAME: usize = 253;
/// The hex digits of a digest in the link of a notice.
pub const DIGITS: usize = 16;

/// Remembers the page of an address. The address of a form counts as the page that shows the form.
pub fn remember(jar: PrivateCookieJar, path: &str, query: Option<&str>, now: Moment) -> PrivateCookieJar {
    match page(without_form(path)) {
        Some(page) => {
            let page = with_link_digest(page, query.unwrap_or_default());
            jar.add(cookie(NAME.to_owned(), format!("{now} {page}")))
        }
        None => jar,
    }
}

/// Returns the beginning of the digest in the link of a notice, or `None` if the query has none or an invalid one.
#[must_use]
pub fn link_digest(query: &str) -> Option<String> {
    let (_, digest) = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "d")?;
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (digest.len() == DIGITS && digest.chars().all(is_hex)).then(|| digest.into_owned())
}

/// Returns the path of a request with the digest of its query, and any other path unchanged.
fn with_link_digest(page: String, query: &str) -> String {
    let is_request = page.split('/').nth(3) == Some("a");
    match link_digest(query).filter(|_| is_request) {
        Some(digest) => format!("{page}?d={digest}"),
        None => page,
    }
}

/// Returns the page that shows the form of a path, or the inbox if there is none.
#[must_use]
pub fn of_form(path: &str) -> String {
    page(without_form(path)).unwrap_or_else(|| "/".to_owned())
}

fn without_form(path: &str) -> &str {
    path.strip_suffix("/decide").or_else(|| path.strip_suffix("/change")).unwrap_or(path)
}

/// Returns the address of the remembered page, or the inbox if there is none, and forgets it.
pub fn take(jar: PrivateCookieJar, now: Moment) -> (PrivateCookieJar, String) {
    let value = jar.get(NAME).map(|cookie| cookie.value().to_owned()).unwrap_or_default();
    let found = value.split_once(' ').and_then(|(since, address)| {
        let since = Moment::from(since.parse::<jiff::Timestamp>().ok()?);
        (now < since.after(LONGEST)).then_some(())?;
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        Some(with_link_digest(page(path)?, query))
    });
    (jar.remove(cookie(NAME.to_owned(), String::new())), found.unwrap_or_else(|| "/".to_owned()))
}

/// Returns the path of a page, built from its parts, or `None` if there is no such page.
fn page(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    match parts.as_slice() {
        [""] => Some("/".to_owned()),
        [one @ ("history" | "policies" | "runs")] => Some(format!("/{one}")),
        ["n", namespace, kind @ ("a" | "t" | "w"), name] if is_name(namespace) && is_name(name) => {
            Some(format!("/n/{namespace}/{kind}/{name}"))
        }
        _ => None,
    }
}

/// Whether a part of a path is the name of an object. Such names need no escapes, so escapes are not decoded.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= LONGEST_NAME && name.chars().all(fits) && is_edge(name.chars().next()) && is_edge(name.chars().last())
}

#[cfg(test)]
mod tests {
    use axum_extra::extract::cookie::Key;

    use super::*;
    use crate::session::now;

    fn landed_with(path: &str, query: Option<&str>) -> String {
        let jar = remember(PrivateCookieJar::new(Key::generate()), path, query, now());
        take(jar, now()).1
    }

    fn landed(path: &str) -> String {
        landed_with(path, None)
    }

    #[test]
    fn the_digest_in_the_link_of_a_notice_stays_and_nothing_else_of_a_query() {
        let digest = "0123456789abcdef";
        let with_digest = format!("/n/finance/a/x?d={digest}");
        for query in [format!("d={digest}"), format!("next=//evil.example&d={digest}&after=a/b")] {
            assert_eq!(landed_with("/n/finance/a/x", Some(&query)), with_digest, "{query}");
        }
        for path in ["/", "/history", "/runs", "/n/finance/w/x", "/n/finance/t/x"] {
            assert_eq!(landed_with(path, Some(&format!("d={digest}"))), path, "only a request has a digest");
        }
        for query in [
            "d=",
            "d=0123456789abcde",
            "d=0123456789abcdef0",
            "d=0123456789ABCDEF",
            "d=0123456789abcde/",
            "d=0123456789abcde%0d%0aSet-Cookie:a",
            "d=//evil.example/0",
            "d=%2f%5cevil.examplex",
            "next=https://evil.example",
            "D=0123456789abcdef",
        ] {
            assert_eq!(landed_with("/n/finance/a/x", Some(query)), "/n/finance/a/x", "{query}");
        }
        assert_eq!(landed_with("//evil.example", Some(&format!("d={digest}"))), "/");
    }

    #[test]
    fn one_lands_on_the_page_that_was_asked_for() {
        for path in ["/", "/history", "/policies", "/runs", "/n/finance/a/run-1.gate-2", "/n/a/w/b", "/n/a/t/0a1b"] {
            assert_eq!(landed(path), path);
        }
        assert_eq!(landed("/n/finance/a/x/decide"), "/n/finance/a/x");
        assert_eq!(landed("/n/finance/w/x/change"), "/n/finance/w/x");
        assert_eq!(of_form("/n/finance/w/x/change"), "/n/finance/w/x");
    }

    #[test]
    fn whatever_is_no_page_of_ours_leads_to_the_inbox() {
        for path in [
            "//evil.example",
            "/\\evil.example",
            "https://evil.example/",
            "/%2f%2fevil.example",
            "/n/../a/x",
            "/n/a/a/..",
            "/n/a/a/x%2f..",
            "/n/a/a/x?next=//evil",
            "/n/a/a/x#y",
            "/n/a/a/x\r\nSet-Cookie: a=b",
            "/history.csv",
            "/history/",
            "/runs/x",
            "/runs?phase=open",
            "/change",
            "/n/a/w/x/change/change",
            "/events",
            "/sign-in",
            "/sign-out",
            "/static/x/page.css",
            "/n/a/b/x",
            "/n//a/x",
            "",
            "history",
        ] {
            assert_eq!(landed(path), "/", "{path}");
        }
    }

    #[test]
    fn it_is_forgotten_after_a_while_and_when_it_was_used() {
        let at = now();
        let jar = remember(PrivateCookieJar::new(Key::generate()), "/history", None, at);
        assert_eq!(take(jar.clone(), at.after(LONGEST)).1, "/");
        let (jar, first) = take(jar, at);
        assert_eq!((first.as_str(), take(jar, at).1.as_str()), ("/history", "/"));
    }
}
