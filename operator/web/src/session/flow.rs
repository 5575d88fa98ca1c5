//! Sign-ins that have begun and not ended. The browser keeps them in an encrypted cookie while it is at the identity
//! provider.
//!
//! **Invariant:** a sign-in is used once: its end removes it from the cookie.

use std::time::Duration;

use axum_extra::extract::PrivateCookieJar;
use serde::{Deserialize, Serialize};
use signoff_api::Moment;

use super::cookie::cookie;

/// The cookie of the sign-ins that have begun.
const COOKIE_NAME: &str = "__Host-signoff-flow";
/// The longest time of a sign-in.
const LONGEST: Duration = Duration::from_secs(600);
/// The most sign-ins at once, in several tabs. A further one replaces the oldest.
const MOST: usize = 4;

/// A sign-in that has begun.
#[derive(Clone, Deserialize, Serialize, PartialEq, Eq)]
pub struct Flow {
    /// The state, which the provider sends back.
    pub state: String,
    /// The nonce, which the token must have.
    pub nonce: String,
    /// The PKCE verifier, which proves that the same browser began the sign-in.
    pub verifier: String,
    /// The time at which it began.
    pub since: Moment,
}

/// Adds a sign-in to the cookie.
pub fn add(jar: PrivateCookieJar, flow: Flow, now: Moment) -> PrivateCookieJar {
    let mut all = read(&jar, now);
    all.push(flow);
    let surplus = all.len().saturating_sub(MOST);
    write(jar, &all[surplus..])
}

/// Removes the sign-in with a state from the cookie, and returns it.
pub fn take(jar: PrivateCookieJar, state: &str, now: Moment) -> (PrivateCookieJar, Option<Flow>) {
    let mut all = read(&jar, now);
    let found = all.iter().position(|flow| flow.state == state).map(|at| all.remove(at));
    (write(jar, &all), found)
}

fn read(jar: &PrivateCookieJar, now: Moment) -> Vec<Flow> {
    let text = jar.get(COOKIE_NAME).map(|cookie| cookie.value().to_owned()).unwrap_or_default();
    let all: Vec<Flow> = serde_json::from_str(&text).unwrap_or_default();
    all.into_iter().filter(|flow| now < flow.since.after(LONGEST)).collect()
}

fn write(jar: PrivateCookieJar, all: &[Flow]) -> PrivateCookieJar {
    match serde_json::to_string(all) {
        Ok(text) if !all.is_empty() => jar.add(cookie(COOKIE_NAME.to_owned(), text)),
        _ => jar.remove(cookie(COOKIE_NAME.to_owned(), String::new())),
    }
}

#[cfg(test)]
mod tests {
    use axum_extra::extract::cookie::Key;

    use super::*;
    use crate::session::now;

    fn flow(state: &str, since: Moment) -> Flow {
        let text = |what: &str| format!("{what} of {state}");
        Flow { state: state.to_owned(), nonce: text("nonce"), verifier: text("verifier"), since }
    }

    #[test]
    fn sign_ins_in_several_tabs_are_independent_and_end_once() {
        let at = now();
        let mut jar = PrivateCookieJar::new(Key::generate());
        for state in ["a", "b", "c", "d", "e"] {
            jar = add(jar, flow(state, at), at);
        }
        let (jar, oldest) = take(jar, "a", at);
        assert!(oldest.is_none(), "the oldest made room");
        let (jar, found) = take(jar, "c", at);
        assert!(found == Some(flow("c", at)), "c was begun");
        let (jar, again) = take(jar, "c", at);
        assert!(again.is_none(), "c has ended");
        let (_, other) = take(jar, "e", at);
        assert!(other.is_some(), "e goes on");
    }

    #[test]
    fn a_sign_in_that_takes_longer_than_ten_minutes_is_over() {
        let at = now();
        let jar = add(PrivateCookieJar::new(Key::generate()), flow("a", at), at);
        assert!(take(jar.clone(), "a", at.after(Duration::from_secs(599))).1.is_some());
        assert!(take(jar, "a", at.after(LONGEST)).1.is_none());
    }
}
