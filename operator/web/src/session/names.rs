//! The user and the groups that a page impersonates: the names of verified claims, by the same rules as the API
//! server's own flags.
//!
//! **Invariant:** names of the system, names of agents, and names that a header would change are refused, and never
//! just left out. Groups that the provider left out of a token are not fetched, and the page says so.

use openidconnect::IssuerUrl;
use serde_json::Value;
use signoff_expr::text::display;

use super::jwt::{self, Claims};
use crate::{
    api_server::Identity,
    settings::{Auth, Oidc},
};

/// The usual claim of the groups, for tokens that the API server verifies.
const GROUPS: &str = "groups";

/// The claims of the names, and the prefixes of the names.
#[derive(Clone, Debug)]
pub struct Names {
    username_claim: String,
    username_prefix: String,
    groups_claim: Option<String>,
    groups_prefix: String,
}

impl Names {
    /// Returns the claims and the prefixes of the settings.
    #[must_use]
    pub fn new(settings: &Oidc, issuer: &IssuerUrl) -> Self {
        let username_prefix = match settings.username_prefix.as_deref() {
            Some("-") => String::new(),
            Some(prefix) if !prefix.is_empty() => prefix.to_owned(),
            _ if settings.username_claim == "email" => String::new(),
            _ => format!("{}#", issuer.as_str()),
        };
        Self {
            username_claim: settings.username_claim.clone(),
            username_prefix,
            groups_claim: settings.groups_claim.clone(),
            groups_prefix: settings.groups_prefix.clone(),
        }
    }

    /// Returns the identity that verified claims name.
    ///
    /// # Errors
    /// A sentence about the name that is refused.
    pub fn identity(&self, claims: &Claims) -> Result<Identity, String> {
        let claim = &self.username_claim;
        let name = claims.get(claim).and_then(Value::as_str).filter(|name| !name.is_empty()).ok_or_else(|| {
            format!(
                "the token of the identity provider has no text in its claim {claim}, which is the user name: its administrators can add it, or those of this page name another with --oidc-username-claim"
            )
        })?;
        if claim == "email" && claims.get("email_verified") != Some(&Value::Bool(true)) {
            return Err(format!(
                "the identity provider has not verified the address {} (email_verified): verify it there, then sign in again",
                name_text(name)
            ));
        }
        let user = check_name("user", format!("{}{name}", self.username_prefix))?;
        if user.contains(" via ") {
            return Err(format!(
                "the user {} is refused: names with “ via ” are those of agents that act for people",
                name_text(&user)
            ));
        }
        let groups = self.groups(claims)?.into_iter();
        let groups = groups.map(|name| match name.is_empty() {
            true => {
                Err("an empty group is refused: the administrators of the identity provider can remove it".to_owned())
            }
            false => check_name("group", format!("{}{name}", self.groups_prefix)),
        });
        Ok(Identity::Impersonated { user, groups: groups.collect::<Result<_, _>>()? })
    }

    /// Returns the notice for a user whose token names a source of the groups instead of the groups. Returns `None` if
    /// the page impersonates without groups.
    ///
    /// **Invariant:** the source is never asked, because its address is text of the token, and its answer is not
    /// signed.
    #[must_use]
    pub fn groups_notice(&self, claims: &Claims, auth: Auth) -> Option<String> {
        let by_default = (auth == Auth::PassThrough).then_some(GROUPS);
        let claim = self.groups_claim.as_deref().or(by_default)?;
        jwt::is_elsewhere(claims, claim).then(|| {
            format!(
                "your identity provider left the groups out of your token (_claim_names instead of {claim}), as Microsoft Entra ID does for users in more than 200 groups: its administrators can have it put only the groups that are assigned to this application into the token, then sign in again"
            )
        })
    }

    /// Returns the groups of the claims: a text, or a list of texts. Without the claim there are no groups.
    fn groups(&self, claims: &Claims) -> Result<Vec<String>, String> {
        let Some(claim) = &self.groups_claim else { return Ok(Vec::new()) };
        let wrong = || format!("the claim {claim} of the token is no list of groups (--oidc-groups-claim)");
        match claims.get(claim) {
            None => Ok(Vec::new()),
            Some(Value::String(one)) => Ok(vec![one.clone()]),
            Some(Value::Array(all)) => {
                all.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }
}

/// Returns a name, or an error if it belongs to the system or if a header would change it.
fn check_name(kind: &str, name: String) -> Result<String, String> {
    if name.starts_with("system:") {
        return Err(format!(
            "the {kind} {} is refused: this page never impersonates users or groups of Kubernetes itself (system:…); the administrators of the identity provider can rename it, or those of this page set a prefix",
            name_text(&name)
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("the {kind} {} is refused: it has control characters", name_text(&name)));
    }
    // A header is trimmed, so another name would be received.
    if name.trim() != name || name.is_empty() {
        return Err(format!("the {kind} “{}” is refused: it begins or ends with a space", name_text(&name)));
    }
    Ok(name)
}

fn name_text(name: &str) -> String {
    display(name, 200).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::settings::Settings;

    const BASE: [&str; 7] =
        ["signoff-web", "--url", "https://a.example", "--oidc-issuer", "https://idp.example", "--oidc-client-id", "s"];

    fn identity(flags: &[&str], claims: &Value) -> Result<(String, Vec<String>), String> {
        let settings = Settings::parse_from(BASE.iter().chain(flags));
        let names = Names::new(&settings.oidc, settings.oidc.issuer.as_ref().unwrap());
        match names.identity(claims.as_object().unwrap())? {
            Identity::Impersonated { user, groups } => Ok((user, groups)),
            Identity::Bearer(_) => panic!("a token is no name"),
        }
    }

    fn user(flags: &[&str], claims: &Value) -> String {
        identity(flags, claims).map_or_else(|why| why, |(user, _)| user)
    }

    #[test]
    fn the_default_prefix_is_the_issuer_as_it_was_typed_unless_the_claim_is_email() {
        let claims = json!({"sub": "7", "email": "a@b.example", "email_verified": true});
        assert_eq!(user(&[], &claims), "https://idp.example#7");
        assert_eq!(user(&["--username-prefix", "-"], &claims), "7");
        assert_eq!(user(&["--username-prefix", "idp:"], &claims), "idp:7");
        assert_eq!(user(&["--oidc-username-claim", "email"], &claims), "a@b.example");
        assert_eq!(user(&["--oidc-username-claim", "email", "--username-prefix", "idp:"], &claims), "idp:a@b.example");
    }

    #[test]
    fn unverified_email_address_is_refused() {
        for verified in [json!(false), json!("true"), json!(null)] {
            let claims = json!({"email": "a@b.example", "email_verified": verified});
            assert!(user(&["--oidc-username-claim", "email"], &claims).contains("has not verified"), "{verified}");
        }
        assert!(user(&["--oidc-username-claim", "email"], &json!({"email": "a@b"})).contains("has not verified"));
    }

    #[test]
    fn names_of_the_system_and_of_agents_and_names_that_a_header_changes_are_refused() {
        for (name, why) in [
            ("system:admin", "users or groups of Kubernetes itself"),
            ("system:masters", "users or groups of Kubernetes itself"),
            ("bob via agent", "those of agents"),
            ("", "no text in its claim sub"),
            (" alice", "begins or ends with a space"),
            ("alice\u{a0}", "begins or ends with a space"),
            ("ali\nce", "control characters"),
            ("ali\u{7f}ce", "control characters"),
        ] {
            assert!(user(&["--username-prefix", "-"], &json!({"sub": name})).contains(why), "{name}");
        }
        assert!(user(&["--username-prefix", "-"], &json!({"sub": 7})).contains("no text in its claim sub"));
        assert!(
            user(&["--username-prefix", "sys"], &json!({"sub": "tem:x"}))
                .contains("users or groups of Kubernetes itself"),
            "{}",
            "whole"
        );
    }

    #[test]
    fn invalid_group_refuses_the_sign_in_and_is_named() {
        let flags = ["--oidc-groups-claim", "groups", "--username-prefix", "-"];
        let with = |groups: Value| identity(&flags, &json!({"sub": "a", "groups": groups})).map(|(_, groups)| groups);
        assert_eq!(with(json!(["x", "y"])).unwrap(), ["x", "y"]);
        assert_eq!(with(json!("x")).unwrap(), ["x"]);
        assert_eq!(identity(&flags, &json!({"sub": "a"})).unwrap().1, Vec::<String>::new());
        assert!(with(json!(["x", "system:masters"])).unwrap_err().contains("the group system:masters is refused"));
        assert!(with(json!([""])).unwrap_err().contains("empty group"));
        assert!(with(json!(["a\r\nImpersonate-User: root"])).unwrap_err().contains("control characters"));
        assert!(with(json!([1])).unwrap_err().contains("no list of groups"));
        assert!(with(json!({})).unwrap_err().contains("no list of groups"));
    }

    #[test]
    fn group_of_the_system_with_a_prefix_is_accepted() {
        let flags = ["--oidc-groups-claim", "g", "--groups-prefix", "idp:"];
        assert_eq!(identity(&flags, &json!({"sub": "a", "g": ["system:masters"]})).unwrap().1, ["idp:system:masters"]);
    }
}
