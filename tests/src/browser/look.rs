//! How a page is looked at, and requests and answers beside it.
//! It must not hold a browser.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a page is looked at.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Look {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// `light` or `dark`.
    pub color_scheme: String,
    /// `reduce` or `no-preference`.
    pub reduced_motion: String,
    /// Whether scripts run. Cannot be changed later.
    pub java_script: bool,
    /// Such as `Europe/Berlin`. Cannot be changed later.
    pub timezone: String,
    /// Such as `en-GB`. Cannot be changed later.
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
    /// A phone: 360 pixels wide.
    #[must_use]
    pub fn small(self) -> Self {
        Self { width: 360, height: 740, ..self }
    }

    /// Dark colours.
    #[must_use]
    pub fn dark(self) -> Self {
        Self { color_scheme: "dark".to_owned(), ..self }
    }

    /// No scripts.
    #[must_use]
    pub fn without_scripts(self) -> Self {
        Self { java_script: false, ..self }
    }
}

/// A request with the page's cookies that is no navigation, as an attacker's or a script's. Redirects are not followed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Request {
    /// `GET`, `POST`, …
    pub method: String,
    /// The whole address.
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

/// What a server answered.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The address.
    pub url: String,
    /// The headers, by their names in small letters.
    pub headers: BTreeMap<String, String>,
    /// The body; empty for a navigation.
    #[serde(default)]
    pub text: String,
}

impl Answer {
    /// A header by its name in small letters; empty without it.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A cookie of the page's context.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The host.
    pub domain: String,
    /// The path.
    pub path: String,
    /// When it ends, in seconds since 1970; -1 with the browser.
    pub expires: f64,
    /// Hidden from scripts.
    pub http_only: bool,
    /// For https only.
    pub secure: bool,
    /// `Strict`, `Lax` or `None`.
    pub same_site: String,
}

/// A file that the browser saved.
#[derive(Clone, Debug, Deserialize)]
pub struct Download {
    /// The name it suggests.
    pub name: String,
    /// What is in it, as text.
    pub text: String,
}
