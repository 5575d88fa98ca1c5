//! The cookies of a session: encrypted, of this host only, and split if the token is long.
//!
//! Tokens are not verified here. With the key of the cookies any token can be written, and every token is verified at
//! each request.

use std::collections::BTreeSet;

use axum_extra::extract::{
    PrivateCookieJar,
    cookie::{Cookie, SameSite},
};
use http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, SET_COOKIE},
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use signoff_api::Moment;

use super::Session;

/// The first cookie of a session; further parts have `-1`, `-2` and so on.
const NAME: &str = "__Host-signoff";
/// The longest text in one cookie, in bytes. With encryption, base64 and attributes a cookie has at most 4,096 bytes.
const PART: usize = 2_700;
/// The most cookies of a session. Proxies in front of the page accept headers of 16 KB.
const PARTS: usize = 4;
/// The most cookies that one response removes.
const MOST_REMOVED: usize = 32;

#[derive(Deserialize, Serialize)]
struct Stored {
    token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    since: Moment,
}

/// Returns the session of a request, or `None` if it has no session that this page wrote.
#[must_use]
pub fn read(jar: &PrivateCookieJar) -> Option<Session> {
    let first = jar.get(NAME)?;
    let (count, text) = first.value().split_once(':')?;
    let count: usize = count.parse().ok().filter(|count| (1..=PARTS).contains(count))?;
    let mut whole = text.to_owned();
    for at in 1..count {
        whole.push_str(jar.get(&name(at))?.value());
    }
    let stored: Stored = serde_json::from_str(&whole).ok()?;
    Some(Session { token: SecretString::from(stored.token), nonce: stored.nonce, since: stored.since })
}

/// Adds a session to the cookies.
///
/// # Errors
/// A token that is too long for cookies, with the remedy.
pub fn write(mut jar: PrivateCookieJar, session: &Session) -> Result<PrivateCookieJar, String> {
    let stored =
        Stored { token: session.token.expose_secret().to_owned(), nonce: session.nonce.clone(), since: session.since };
    let text = serde_json::to_string(&stored).map_err(|error| error.to_string())?;
    // Text that is not ASCII is refused, because a part could split a character.
    if !text.is_ascii() {
        return Err("the token has characters that no token has: paste it again".to_owned());
    }
    let parts: Vec<&str> = text.as_bytes().chunks(PART).filter_map(|part| std::str::from_utf8(part).ok()).collect();
    if parts.len() > PARTS {
        return Err(format!(
            "the token is too long for cookies ({} bytes, {} at most): ask the administrators of the identity provider for fewer groups or claims in it",
            stored.token.len(),
            PART * PARTS
        ));
    }
    jar = remove(jar);
    for (at, part) in parts.iter().enumerate() {
        let value = if at == 0 { format!("{}:{part}", parts.len()) } else { (*part).to_owned() };
        jar = jar.add(cookie(name(at), value));
    }
    Ok(jar)
}

/// Removes all cookies of a session.
pub fn remove(mut jar: PrivateCookieJar) -> PrivateCookieJar {
    for at in 0..PARTS {
        jar = jar.remove(cookie(name(at), String::new()));
    }
    jar
}

/// Returns the headers that remove all cookies of this page from a browser, with those of another key, which cannot be
/// read.
#[must_use]
pub fn forget(sent: &HeaderMap) -> HeaderMap {
    let lines = sent.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let names =
        lines.flat_map(|line| line.split(';')).filter_map(|one| one.split_once('=')).map(|(name, _)| name.trim());
    let ours: BTreeSet<&str> = names.filter(|name| name.starts_with(NAME)).collect();
    let gone = ours.into_iter().take(MOST_REMOVED).filter_map(|name| {
        HeaderValue::try_from(format!("{name}=; Max-Age=0; Path=/; Secure; HttpOnly; SameSite=Lax")).ok()
    });
    gone.map(|value| (SET_COOKIE, value)).collect()
}

/// Returns a cookie that is sent only to this host, that no script can read, and that forms of other sites do not send.
#[must_use]
pub fn cookie(name: String, value: String) -> Cookie<'static> {
    Cookie::build((name, value)).path("/").secure(true).http_only(true).same_site(SameSite::Lax).build()
}

fn name(at: usize) -> String {
    if at == 0 { NAME.to_owned() } else { format!("{NAME}-{at}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum_extra::extract::cookie::Key;
    use http::header;

    use super::*;
    use crate::session::now;

    fn session(length: usize) -> Session {
        Session { token: SecretString::from("t".repeat(length)), nonce: Some("n".to_owned()), since: now() }
    }

    /// Returns the cookies that a browser sends back.
    fn sent_back(jar: PrivateCookieJar) -> Vec<String> {
        use axum::response::IntoResponse;
        let response = (jar, "").into_response();
        let set = response.headers().get_all(header::SET_COOKIE);
        let set: Vec<String> = set.iter().map(|value| value.to_str().unwrap().to_owned()).collect();
        for cookie in &set {
            assert!(cookie.len() <= 4096, "{} bytes", cookie.len());
            assert!(cookie.contains("Secure") && cookie.contains("HttpOnly") && cookie.contains("Path=/"), "{cookie}");
            assert!(cookie.contains("SameSite=Lax") && !cookie.contains("Domain"), "{cookie}");
        }
        set.iter()
            .map(|cookie| cookie.split(';').next().unwrap().to_owned())
            .filter(|one| !one.ends_with('='))
            .collect()
    }

    fn jar_of(cookies: &[String], key: &Key) -> PrivateCookieJar {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::try_from(cookies.join("; ")).unwrap());
        PrivateCookieJar::from_headers(&headers, key.clone())
    }

    #[test]
    fn session_is_read_as_it_was_written() {
        let key = Key::generate();
        for (length, cookies) in [(40, 1), (2_900, 2), (9_000, 4)] {
            let written = session(length);
            let sent = sent_back(write(jar_of(&[], &key), &written).unwrap());
            assert_eq!(sent.len(), cookies, "{length}");
            let read = read(&jar_of(&sent, &key)).unwrap();
            assert_eq!(read.token.expose_secret(), written.token.expose_secret());
            assert_eq!((read.nonce, read.since), (written.nonce, written.since));
        }
    }

    #[test]
    fn forget_removes_all_cookies_of_the_page() {
        let mut sent = HeaderMap::new();
        sent.append(header::COOKIE, HeaderValue::from_static("__Host-signoff=x; other=y; __Host-signoff-1=z"));
        sent.append(header::COOKIE, HeaderValue::from_static("__Host-signoff-namespaces=a"));
        let gone = forget(&sent);
        let gone: Vec<_> = gone.get_all(header::SET_COOKIE).iter().map(|line| line.to_str().unwrap()).collect();
        let expected = ["__Host-signoff", "__Host-signoff-1", "__Host-signoff-namespaces"];
        assert_eq!(gone.len(), expected.len());
        for (line, name) in gone.iter().zip(expected) {
            assert!(line.starts_with(&format!("{name}=;")) && line.contains("Max-Age=0"), "{line}");
            assert!(line.contains("Path=/") && line.contains("Secure"), "a browser refuses {line}");
        }
    }

    #[test]
    fn too_long_token_is_refused_with_a_remedy() {
        let refused = write(jar_of(&[], &Key::generate()), &session(11_000)).unwrap_err();
        assert!(refused.contains("too long") && refused.contains("fewer groups"), "{refused}");
    }

    #[test]
    fn session_with_a_foreign_changed_or_missing_part_is_not_read() {
        let key = Key::generate();
        let sent = sent_back(write(jar_of(&[], &key), &session(2_900)).unwrap());
        assert!(read(&jar_of(&sent, &Key::generate())).is_none(), "of another key");
        assert!(read(&jar_of(&sent[..1], &key)).is_none(), "a part is missing");
        let mut changed = sent.clone();
        let other = if &changed[0][40..41] == "A" { "B" } else { "A" };
        changed[0].replace_range(40..41, other);
        assert!(read(&jar_of(&changed, &key)).is_none(), "a changed part");
        assert!(read(&jar_of(&["__Host-signoff=1:{}".to_owned()], &key)).is_none(), "not encrypted");
        let swapped = vec![sent[0].clone(), sent[0].replace("__Host-signoff=", "__Host-signoff-1=")];
        assert!(read(&jar_of(&swapped, &key)).is_none(), "a part under another name");
    }
}
