//! `--web`: prints the address of a page of the inbox, and opens the page if there is a browser.

use std::process::{Command, Stdio};

use signoff_api::names;
use signoff_cli::{
    sanitize::{hides, one_line},
    terminal,
};

use crate::{args::WebArgs, cluster::client::Session, error::Failure};

/// The environment variable with the address of the inbox.
const VARIABLE: &str = "SIGNOFF_WEB";

/// Returns the path of the page of an Approval (`a`) or of a run (`w`) of the namespace.
///
/// # Errors
/// The name or the namespace is not the name of an object.
pub fn page_path(session: &Session, kind: char, name: &str) -> Result<String, Failure> {
    let namespace = &session.namespace;
    match [namespace.as_str(), name].into_iter().find(|name| !names::is_object(name)) {
        Some(name) => Err(Failure::Usage(format!("{} is not a name", one_line(name, 253)))),
        None => Ok(format!("/n/{namespace}/{kind}/{name}")),
    }
}

/// Returns the path of the inbox, for the named namespace or for all.
///
/// # Errors
/// Several namespaces are named: a page shows one or all.
pub fn inbox_path(named: &[String]) -> Result<String, Failure> {
    match named {
        [] => Ok("/".to_owned()),
        [namespace] if names::is_object(namespace) => Ok(format!("/?namespace={namespace}")),
        [name] => Err(Failure::Usage(format!("{} is not a name", one_line(name, 253)))),
        _ => Err(Failure::Usage("--web shows one namespace, or all: write one -n, or none".to_owned())),
    }
}

/// Returns the address of a page as a line. On a terminal, also opens the page in the browser, or prints a note that
/// it cannot be opened.
///
/// # Errors
/// The address of the inbox is missing or invalid.
pub fn open(args: &WebArgs, path: &str) -> Result<String, Failure> {
    let typed = args.web.clone().filter(|typed| !typed.is_empty());
    let address = page_address(typed.or_else(|| std::env::var(VARIABLE).ok()), path)?;
    if terminal::is_stdout_terminal()
        && let Err(why) = launch(&find_browser(), &address)
    {
        terminal::note(&format!("No browser was opened: {why}. The address of the page:"));
    }
    Ok(address + "\n")
}

/// Returns the address of a page below the address of the inbox.
///
/// # Errors
/// The address of the inbox is missing or invalid, or it has a user or a password.
fn page_address(inbox: Option<String>, path: &str) -> Result<String, Failure> {
    let inbox = inbox.filter(|inbox| !inbox.is_empty()).ok_or_else(|| {
        Failure::Usage(format!("the address of the inbox is not known: write --web=URL, or set {VARIABLE}"))
    })?;
    let (scheme, rest) = inbox.split_once("://").unwrap_or(("", inbox.as_str()));
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        // The message does not repeat the address, which can have a password.
        return Err(Failure::Usage(format!(
            "the address of the inbox has a user or a password: write --web=https://HOST, or set {VARIABLE} to that"
        )));
    }
    let has_host = matches!(scheme, "https" | "http") && !authority.is_empty() && !authority.starts_with(':');
    if !has_host || hides(&inbox) || inbox.contains(|c: char| c.is_whitespace() || "?#\\".contains(c)) {
        let why = format!("{} is not the address of an inbox; write --web=https://HOST", one_line(&inbox, 253));
        return Err(Failure::Usage(why));
    }
    Ok(format!("{}{path}", inbox.trim_end_matches('/')))
}

/// Starts a browser with an address, and does not wait for its end. `words`: the program and its arguments.
///
/// # Errors
/// The program cannot be started. The error is a clause without a full stop.
fn launch(words: &str, address: &str) -> Result<(), String> {
    let mut words = words.split_whitespace();
    let program = words.next().ok_or("BROWSER is not set, and there is no screen")?;
    let mut command = Command::new(program);
    command.args(words).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).map_err(|error| format!("{}: {error}", one_line(program, 253)))
}

/// Returns the program that opens addresses, with its arguments. Empty if there is no screen.
fn find_browser() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let usual = || match cfg!(target_os = "macos") {
        true => Some("open".to_owned()),
        false => variable("DISPLAY").or_else(|| variable("WAYLAND_DISPLAY")).map(|_| "xdg-open".to_owned()),
    };
    variable("BROWSER").or_else(usual).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_address_of_a_page_is_below_the_address_of_the_inbox() {
        let address = |inbox: &str| page_address(Some(inbox.to_owned()), "/n/finance/a/refund-1");
        assert_eq!(
            address("https://signoff.example.com/").unwrap(),
            "https://signoff.example.com/n/finance/a/refund-1"
        );
        assert_eq!(address("http://localhost:8081").unwrap(), "http://localhost:8081/n/finance/a/refund-1");
        assert_eq!(address("http://[::1]:8081").unwrap(), "http://[::1]:8081/n/finance/a/refund-1");
        for wrong in [
            "signoff.example.com",
            "file:///etc/passwd",
            "https://a b",
            "https://a/?x=",
            "https://a\u{202e}",
            "https://",
            "https:///n",
            "http://:8081",
            "https://a\\b",
        ] {
            let why = address(wrong).unwrap_err().to_string();
            assert!(why.contains("is not the address of an inbox; write --web=https://HOST"), "{why}");
        }
        for secret in ["https://alice:hunter2@a.example", "hunter2@a.example/", "http://@a"] {
            let why = address(secret).unwrap_err();
            let text = why.to_string();
            assert!(text.contains("has a user or a password: write --web=https://HOST"), "{text}");
            assert!(!text.contains("hunter2") && why.code() == 2, "{text}");
        }
        for nothing in [None, Some(String::new())] {
            let why = page_address(nothing, "/").unwrap_err();
            assert_eq!((why.code(), why.to_string().contains("write --web=URL, or set SIGNOFF_WEB")), (2, true));
        }
    }

    #[test]
    fn the_inbox_shows_the_named_namespace() {
        let path = |named: &[&str]| inbox_path(&named.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            (path(&[]).unwrap(), path(&["finance"]).unwrap()),
            ("/".to_owned(), "/?namespace=finance".to_owned())
        );
        assert!(path(&["a&b"]).is_err());
        assert!(path(&["a", "b"]).unwrap_err().to_string().contains("write one -n, or none"));
    }

    #[test]
    fn a_browser_can_have_arguments_and_is_named_if_it_does_not_start() {
        let address = "https://signoff.example.com/";
        assert_eq!(launch("true --new-window", address), Ok(()));
        let why = launch("/nonexistent/browser --new-window", address).unwrap_err();
        assert!(why.starts_with("/nonexistent/browser: "), "{why}");
        assert!(launch(" ", address).unwrap_err().starts_with("BROWSER is not set"));
    }
}
