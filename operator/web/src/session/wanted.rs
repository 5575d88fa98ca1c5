//! The page that was requested before a sign-in: its path, and of its query only the digest in the link of a notice.
//!
//! **Invariant:** the remembered address is a path of this page. No parameter, form or other site can set it.

use std::time::Duration;

use axum_extra::extract::PrivateCookieJar;
use signoff_api::Moment;
use url::form_urlencoded;

use super::cookie::cookie;

/// The cookie of the requested page.
const COOKIE_NAME: &str = "__Host-signoff-wanted";
/// The longest time for which the page is remembered.
const MAX_AGE: Duration = Duration::from_secs(900);
/// The longest name of an object, and so of a part of a path, in characters.
const LONGEST_NAME: usize = 253;
/// The hex digits of a digest in the link of a notice.
pub const DIGITS: usize = 16;

/// Remembers the page of an address. The address of a form counts as the page that shows the form.
pub fn remember(jar: PrivateCookieJar, path: &str, query: Option<&str>, now: Moment) -> PrivateCookieJar {
    match find_page(without_form(path)) {
        Some(page) => {
            let page = with_link_digest(page, query.unwrap_or_default());
            jar.add(cookie(COOKIE_NAME.to_owned(), format!("{now} {page}")))
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
pub fn page_of_form(path: &str) -> String {
    find_page(without_form(path)).unwrap_or_else(|| "/".to_owned())
}

/// Returns the path of the page that shows the form of a path. Any other path is unchanged.
fn without_form(path: &str) -> &str {
    path.strip_suffix("/decide").or_else(|| path.strip_suffix("/change")).unwrap_or(path)
}

/// Removes the remembered page from the cookies, and returns its address; or the inbox if there is none, or if it is
/// too old.
pub fn take(jar: PrivateCookieJar, now: Moment) -> (PrivateCookieJar, String) {
    let value = jar.get(COOKIE_NAME).map(|cookie| cookie.value().to_owned()).unwrap_or_default();
    let remembered = value.split_once(' ').and_then(|(since, address)| {
        let since = Moment::from(since.parse::<jiff::Timestamp>().ok()?);
        (now < since.after(MAX_AGE)).then_some(())?;
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        Some(with_link_digest(find_page(path)?, query))
    });
    (jar.remove(cookie(COOKIE_NAME.to_owned(), String::new())), remembered.unwrap_or_else(|| "/".to_owned()))
}

/// Returns the path of a page, built from its parts, or `None` if there is no such page.
fn find_page(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    match parts.as_slice() {
        [""] => Some("/".to_owned()),
        [section @ ("history" | "policies" | "runs")] => Some(format!("/{section}")),
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

    fn land_with(path: &str, query: Option<&str>) -> String {
        let jar = remember(PrivateCookieJar::new(Key::generate()), path, query, now());
        take(jar, now()).1
    }

    fn land(path: &str) -> String {
        land_with(path, None)
    }

    #[test]
    fn query_keeps_only_the_digest_of_the_link_of_a_notice() {
        let digest = "0123456789abcdef";
        let with_digest = format!("/n/finance/a/x?d={digest}");
        for query in [format!("d={digest}"), format!("next=//evil.example&d={digest}&after=a/b")] {
            assert_eq!(land_with("/n/finance/a/x", Some(&query)), with_digest, "{query}");
        }
        for path in ["/", "/history", "/runs", "/n/finance/w/x", "/n/finance/t/x"] {
            assert_eq!(land_with(path, Some(&format!("d={digest}"))), path, "only a request has a digest");
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
            assert_eq!(land_with("/n/finance/a/x", Some(query)), "/n/finance/a/x", "{query}");
        }
        assert_eq!(land_with("//evil.example", Some(&format!("d={digest}"))), "/");
    }

    #[test]
    fn sign_in_leads_to_the_requested_page() {
        for path in ["/", "/history", "/policies", "/runs", "/n/finance/a/run-1.gate-2", "/n/a/w/b", "/n/a/t/0a1b"] {
            assert_eq!(land(path), path);
        }
        assert_eq!(land("/n/finance/a/x/decide"), "/n/finance/a/x");
        assert_eq!(land("/n/finance/w/x/change"), "/n/finance/w/x");
        assert_eq!(page_of_form("/n/finance/w/x/change"), "/n/finance/w/x");
    }

    #[test]
    fn unknown_address_leads_to_the_inbox() {
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
            assert_eq!(land(path), "/", "{path}");
        }
    }

    #[test]
    fn requested_page_is_forgotten_after_its_use_and_after_15_minutes() {
        let at = now();
        let jar = remember(PrivateCookieJar::new(Key::generate()), "/history", None, at);
        assert_eq!(take(jar.clone(), at.after(MAX_AGE)).1, "/");
        let (jar, first) = take(jar, at);
        assert_eq!((first.as_str(), take(jar, at).1.as_str()), ("/history", "/"));
    }
}
