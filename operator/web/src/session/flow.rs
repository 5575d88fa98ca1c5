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
    /// The time at which the sign-in began.
    pub since: Moment,
}

/// Adds a sign-in to the cookie. Beyond `MOST`, the oldest sign-ins are removed.
pub fn add(jar: PrivateCookieJar, flow: Flow, now: Moment) -> PrivateCookieJar {
    let mut flows = read(&jar, now);
    flows.push(flow);
    let surplus = flows.len().saturating_sub(MOST);
    write(jar, &flows[surplus..])
}

/// Removes the sign-in with a state from the cookie, and returns it.
pub fn take(jar: PrivateCookieJar, state: &str, now: Moment) -> (PrivateCookieJar, Option<Flow>) {
    let mut flows = read(&jar, now);
    let flow = flows.iter().position(|flow| flow.state == state).map(|index| flows.remove(index));
    (write(jar, &flows), flow)
}

/// Returns the sign-ins in the cookie that have not expired, oldest first.
fn read(jar: &PrivateCookieJar, now: Moment) -> Vec<Flow> {
    let text = jar.get(COOKIE_NAME).map(|cookie| cookie.value().to_owned()).unwrap_or_default();
    let flows: Vec<Flow> = serde_json::from_str(&text).unwrap_or_default();
    flows.into_iter().filter(|flow| now < flow.since.after(LONGEST)).collect()
}

/// Replaces the sign-ins in the cookie. Without a sign-in, removes the cookie.
fn write(jar: PrivateCookieJar, flows: &[Flow]) -> PrivateCookieJar {
    match serde_json::to_string(flows) {
        Ok(text) if !flows.is_empty() => jar.add(cookie(COOKIE_NAME.to_owned(), text)),
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
    fn sign_in_expires_after_ten_minutes() {
        let at = now();
        let jar = add(PrivateCookieJar::new(Key::generate()), flow("a", at), at);
        assert!(take(jar.clone(), "a", at.after(Duration::from_secs(599))).1.is_some());
        assert!(take(jar, "a", at.after(LONGEST)).1.is_none());
    }
}
