//! The settings with which a page is shown, and requests and answers outside of a page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The settings with which a page is shown.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Look {
    /// The width of the window, in pixels.
    pub width: u32,
    /// The height of the window, in pixels.
    pub height: u32,
    /// `light` or `dark`.
    pub color_scheme: String,
    /// `reduce` or `no-preference`.
    pub reduced_motion: String,
    /// Whether scripts run. Cannot be changed later.
    pub java_script: bool,
    /// The time zone, such as `Europe/Berlin`. Cannot be changed later.
    pub timezone: String,
    /// The language of the user, such as `en-GB`. Cannot be changed later.
    pub locale: String,
}

impl Default for Look {
    fn default() -> Self {
        Self {
            width: 1280,
            height: 800,
            color_scheme: "light".to_owned(),
            reduced_motion: "no-preference".to_owned(),
            java_script: true,
            timezone: "Europe/Berlin".to_owned(),
            locale: "en-GB".to_owned(),
        }
    }
}

impl Look {
    /// Sets the size of a phone, 360 pixels wide.
    #[must_use]
    pub fn small(self) -> Self {
        Self { width: 360, height: 740, ..self }
    }

    /// Sets dark colors.
    #[must_use]
    pub fn dark(self) -> Self {
        Self { color_scheme: "dark".to_owned(), ..self }
    }

    /// Turns scripts off.
    #[must_use]
    pub fn without_scripts(self) -> Self {
        Self { java_script: false, ..self }
    }
}

/// A request with the page's cookies that is no navigation, as an attacker or a script sends it. Redirects are not
/// followed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Request {
    /// `GET`, `POST`, …
    pub method: String,
    /// The whole address, with `http://` and the host.
    pub url: String,
    /// Further headers.
    pub headers: BTreeMap<String, String>,
    /// The fields of a form, as the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<BTreeMap<String, String>>,
    /// Any other body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The answer of a server.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The HTTP status code, such as 200.
    pub status: u16,
    /// The address that answered: of a navigation, the last one after redirects.
    pub url: String,
    /// The headers, by their lowercase names.
    pub headers: BTreeMap<String, String>,
    /// The body; empty for a navigation.
    #[serde(default)]
    pub text: String,
}

impl Answer {
    /// Returns a header by its lowercase name, or an empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A cookie of the page's context.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cookie {
    /// The name, unique for a domain and a path.
    pub name: String,
    /// The value, as the browser sends it.
    pub value: String,
    /// The host to which the browser sends the cookie.
    pub domain: String,
    /// The beginning of the paths with which the browser sends the cookie.
    pub path: String,
    /// The expiry in seconds since 1970; -1 for a cookie that ends with the browser.
    pub expires: f64,
    /// Whether the cookie is hidden from scripts.
    pub http_only: bool,
    /// Whether the cookie is sent over https only.
    pub secure: bool,
    /// `Strict`, `Lax` or `None`.
    pub same_site: String,
}

/// A file that the browser saved.
#[derive(Clone, Debug, Deserialize)]
pub struct Download {
    /// The name that the server suggests.
    pub name: String,
    /// The whole content of the file, as text.
    pub text: String,
}
