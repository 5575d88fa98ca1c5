//! `--web`: the address of a page of the inbox, which is printed, and opened where there is a browser.

use std::{
    ffi::OsString,
    process::{Command, Stdio},
};

use signoff_api::names;

use crate::{
    args::WebArgs,
    client::Session,
    error::Failure,
    sanitize::{hides, one_line},
    terminal,
};

/// The environment variable with the address of the inbox.
const VARIABLE: &str = "SIGNOFF_WEB";

/// Returns the path of the page of an Approval (`a`) or of a run (`w`) of the namespace.
///
/// # Errors
/// The name is no name of an object.
pub fn path(session: &Session, kind: char, name: &str) -> Result<String, Failure> {
    let namespace = &session.namespace;
    match [namespace.as_str(), name].into_iter().find(|name| !names::is_object(name)) {
        Some(name) => Err(Failure::Usage(format!("{} is not a name", one_line(name, 253)))),
        None => Ok(format!("/n/{namespace}/{kind}/{name}")),
    }
}

/// Opens a page in the browser on a terminal, and returns its address as a line.
///
/// # Errors
/// The address of the inbox is missing, or is none.
pub fn open(args: &WebArgs, path: &str) -> Result<String, Failure> {
    let given = args.web.clone().filter(|given| !given.is_empty());
    let address = address(given.or_else(|| std::env::var(VARIABLE).ok()), path)?;
    if let Some(browser) = browser().filter(|_| terminal::is_shown()) {
        let mut command = Command::new(browser);
        command.arg(&address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without a browser the address is enough.
        let _ = command.spawn();
    }
    Ok(address + "\n")
}

fn address(inbox: Option<String>, path: &str) -> Result<String, Failure> {
    let inbox = inbox.filter(|inbox| !inbox.is_empty()).ok_or_else(|| {
        Failure::Usage(format!("the address of the inbox is not known: write --web=URL, or set {VARIABLE}"))
    })?;
    let is_web = inbox.starts_with("https://") || inbox.starts_with("http://");
    if !is_web || hides(&inbox) || inbox.contains(|c: char| c.is_whitespace() || "?#".contains(c)) {
        let why = format!("{} is not the address of an inbox; write --web=https://HOST", one_line(&inbox, 253));
        return Err(Failure::Usage(why));
    }
    Ok(format!("{}{path}", inbox.trim_end_matches('/')))
}

/// Returns the program that opens addresses, or `None` where there is no screen.
fn browser() -> Option<OsString> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let screen = || set("DISPLAY").or_else(|| set("WAYLAND_DISPLAY"));
    let usual = || if cfg!(target_os = "macos") { Some("open".into()) } else { screen().map(|_| "xdg-open".into()) };
    set("BROWSER").or_else(usual)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_address_is_that_of_the_inbox_with_the_path_of_the_page() {
        let of = |inbox: &str| address(Some(inbox.to_owned()), "/n/finance/a/refund-1");
        assert_eq!(of("https://signoff.example.com/").unwrap(), "https://signoff.example.com/n/finance/a/refund-1");
        assert_eq!(of("http://localhost:8081").unwrap(), "http://localhost:8081/n/finance/a/refund-1");
        for wrong in ["signoff.example.com", "file:///etc/passwd", "https://a b", "https://a/?x=", "https://a\u{202e}"]
        {
            let why = of(wrong).unwrap_err().to_string();
            assert!(why.contains("is not the address of an inbox; write --web=https://HOST"), "{why}");
        }
        for nothing in [None, Some(String::new())] {
            let why = address(nothing, "/").unwrap_err();
            assert_eq!((why.code(), why.to_string().contains("write --web=URL, or set SIGNOFF_WEB")), (2, true));
        }
    }
}
