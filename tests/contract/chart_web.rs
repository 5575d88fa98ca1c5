//! The page in the chart as real helm renders it: off by default, with only the rights of its mode.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use signoff_tests::snapshot::matches_snapshot;

use crate::chart::template;

const URL: &str = "web.url=https://signoff.example.com";

/// Returns the chart with the page and these values.
fn page(values: &[&str]) -> Result<String, String> {
    let values = [&["web.enabled=true", URL], values].concat();
    template(&values.iter().flat_map(|value| ["--set", value]).collect::<Vec<_>>())
}

fn impersonation_values(mode: &str) -> Vec<String> {
    ["web.oidc.issuer=https://login.example.com".to_owned(), "web.oidc.clientId=signoff".to_owned()]
        .into_iter()
        .chain([format!("web.auth={mode}")])
        .collect()
}

/// Returns the chart with the page in a mode of impersonation.
fn page_as(mode: &str, values: &[&str]) -> Result<String, String> {
    let mode = impersonation_values(mode);
    page(&[&mode.iter().map(String::as_str).collect::<Vec<_>>(), values].concat())
}

fn documents(rendered: &str) -> Vec<Value> {
    rendered.split("---\n").filter_map(|document| serde_saphyr::from_str(document).ok()).collect()
}

fn is_named_for_page(document: &Value) -> bool {
    document["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("signoff-web"))
}

/// Returns the page's only object of this kind.
fn object(rendered: &str, kind: &str) -> Value {
    let mut all = documents(rendered);
    all.retain(|document| document["kind"] == kind && is_named_for_page(document));
    assert_eq!(all.len(), 1, "{kind}");
    all.remove(0)
}

/// Returns the documents whose templates have such names.
fn from_templates(rendered: &str, is_shown: impl Fn(&str) -> bool) -> String {
    let name = |document: &str| {
        document.lines().next().and_then(|line| line.rsplit_once("/templates/")).map(|(_, name)| name.to_owned())
    };
    let all = rendered.split("---\n").filter(|document| name(document).is_some_and(|name| is_shown(&name)));
    all.map(|document| format!("---\n{document}")).collect()
}

fn arguments(rendered: &str) -> Vec<String> {
    let container = &object(rendered, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    serde_json::from_value(container["args"].clone()).unwrap()
}

#[test]
fn the_page_is_not_rendered_by_default() {
    let rendered = template(&["--set", URL]).unwrap();
    assert!(!documents(&rendered).iter().any(is_named_for_page));
    let with = documents(&page(&[]).unwrap());
    let mut others: Vec<_> = with.into_iter().filter(|document| !is_named_for_page(document)).collect();
    others.retain(|document| !document.is_null());
    let mut without = documents(&rendered);
    without.retain(|document| !document.is_null());
    assert_eq!(others, without, "the page changes what belongs to the operator");
}

#[test]
fn the_page_that_passes_tokens_renders_as_its_snapshot() {
    let rendered = page(&[]).unwrap();
    let shown = from_templates(&rendered, |name| name.starts_with("web-") && name != "web-cookie-key.yaml");
    matches_snapshot("contract/snapshots/chart-web-pass-through.yaml", &shown);
}

#[test]
fn the_rights_of_the_page_are_as_their_snapshot() {
    let rbac = |rendered: &str| from_templates(rendered, |name| name == "web-rbac.yaml");
    assert_eq!(rbac(&page(&[]).unwrap()), "", "passing tokens through, it has none");
    matches_snapshot("contract/snapshots/chart-web-impersonation.yaml", &rbac(&page_as("impersonation", &[]).unwrap()));
    let accepted = page_as("legacy-impersonation", &["web.iAcceptLegacyImpersonation=true"]).unwrap();
    matches_snapshot("contract/snapshots/chart-web-legacy-impersonation.yaml", &rbac(&accepted));
}

#[test]
fn constrained_impersonation_changes_runs_only_when_enabled() {
    let reads_and_decides = ["create selfsubjectaccessreviews", "create selfsubjectreviews", "patch approvals"];
    assert_eq!(writes(&page_as("impersonation", &[]).unwrap()), reads_and_decides);
    let runs = page_as("impersonation", &["web.impersonation.runs=true"]).unwrap();
    assert!(arguments(&runs).contains(&"--impersonation-runs".to_owned()));
    let more = [
        "create selfsubjectaccessreviews",
        "create selfsubjectreviews",
        "create workflows",
        "patch approvals",
        "patch workflows",
    ];
    assert_eq!(writes(&runs), more);
    assert!(!arguments(&page(&["web.impersonation.runs=true"]).unwrap()).contains(&"--impersonation-runs".to_owned()));
}

/// Returns the verbs other than reads that the page has for constrained impersonation.
fn writes(rendered: &str) -> Vec<String> {
    let list = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let mut held = BTreeSet::new();
    for rule in object(rendered, "ClusterRole")["rules"].as_array().unwrap() {
        for resource in list(&rule["resources"]) {
            for verb in list(&rule["verbs"]) {
                let verb = verb.strip_prefix("impersonate").unwrap_or_else(|| panic!("the page holds {verb} itself"));
                let on = verb.strip_prefix("-on:user-info:");
                assert!(on.is_some() || verb == ":user-info", "{verb} is another mode, or has no limit");
                if let Some(on) = on.filter(|on| !["get", "list", "watch"].contains(on)) {
                    held.insert(format!("{on} {resource}"));
                }
            }
        }
    }
    held.into_iter().collect()
}

#[test]
fn the_page_impersonates_only_listed_users_and_groups() {
    let listed = ["web.impersonation.users={alice@example.com}", "web.impersonation.groups={finance}"];
    for (mode, more) in [("impersonation", None), ("legacy-impersonation", Some("web.iAcceptLegacyImpersonation=true"))]
    {
        let role = object(&page_as(mode, &[&listed[..], more.as_slice()].concat()).unwrap(), "ClusterRole");
        let names = |resource: &str| {
            let mut rules = role["rules"].as_array().unwrap().iter();
            rules.find(|rule| rule["resources"] == json!([resource])).unwrap()["resourceNames"].clone()
        };
        assert_eq!(names("users"), json!(["alice@example.com"]), "{mode}");
        assert_eq!(names("groups"), json!(["finance"]), "{mode}");
        assert_eq!(names("userextras/signoff.dev/channel"), json!(["web"]), "{mode}");
    }
}

#[test]
fn the_page_has_a_token_only_when_it_impersonates() {
    for (rendered, tokens) in [(page(&[]).unwrap(), 0), (page_as("impersonation", &[]).unwrap(), 1)] {
        let pod = object(&rendered, "Deployment")["spec"]["template"]["spec"].clone();
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["serviceAccountName"], "signoff-web");
        assert_eq!(object(&rendered, "ServiceAccount")["automountServiceAccountToken"], false);
        assert_eq!(pod["volumes"].to_string().matches("serviceAccountToken").count(), tokens);
        let volume = &pod["volumes"][0]["projected"]["sources"];
        assert!(volume.to_string().contains("kube-root-ca.crt"), "{volume}");
    }
}

#[test]
fn the_page_has_one_role_and_the_operator_no_impersonation() {
    let rendered = page_as("impersonation", &[]).unwrap();
    for binding in documents(&rendered) {
        let text = binding["subjects"].to_string();
        if text.contains("\"signoff-web\"") {
            assert_eq!(binding["roleRef"]["name"], "signoff-web");
            assert!(!text.contains("\"signoff-operator\""), "{text}");
        }
        let is_role = ["Role", "ClusterRole"].contains(&binding["kind"].as_str().unwrap_or_default());
        if is_role && !is_named_for_page(&binding) {
            assert!(!binding["rules"].to_string().contains("impersonate"), "{}", binding["metadata"]["name"]);
        }
    }
}

#[test]
fn the_cookie_key_is_random_and_only_without_a_named_secret() {
    let key = || {
        let secret = object(&page(&[]).unwrap(), "Secret");
        BASE64_STANDARD.decode(secret["data"]["cookie-key"].as_str().unwrap()).unwrap()
    };
    let (first, second) = (key(), key());
    assert!(first.len() >= 64 && first != second);
    let named = page(&["web.cookieKey.existingSecret=signoff-web-cookies"]).unwrap();
    assert!(!documents(&named).iter().any(|document| document["kind"] == "Secret"));
    assert!(object(&named, "Deployment").to_string().contains(r#""secretName":"signoff-web-cookies""#));
}

#[test]
fn routes_lead_the_host_of_the_url_to_the_service() {
    let values = ["web.ingress.enabled=true", "web.httpRoute.enabled=true", "web.httpRoute.parentRefs[0].name=public"];
    let rendered = page(&[&values[..], &["web.url=https://inbox.example.com:8443/"]].concat()).unwrap();
    assert_eq!(object(&rendered, "Ingress")["spec"]["rules"][0]["host"], "inbox.example.com");
    assert_eq!(object(&rendered, "HTTPRoute")["spec"]["hostnames"], json!(["inbox.example.com"]));
    let proxies = |arguments: Vec<String>| {
        let at = arguments.iter().position(|argument| argument == "--proxies").unwrap();
        arguments[at + 1].clone()
    };
    assert_eq!(proxies(arguments(&rendered)), "1");
    assert_eq!(proxies(arguments(&page(&[]).unwrap())), "0", "without a proxy, nobody says where a client is");
    assert_eq!(proxies(arguments(&page(&["web.proxies=0", values[0]]).unwrap())), "0");
}

#[test]
fn values_that_conflict_are_refused_with_a_remedy() {
    let oidc = "web.oidc.issuer=https://login.example.com";
    for (values, words) in [
        (&["web.url="][..], "web.url: the page needs its public address; set it"),
        (&["web.url=http://signoff.example.com"], "/web/url"),
        (&["web.url=https://signoff.example.com/inbox"], "/web/url"),
        (&["web.auth=impersonate"], "/web/auth"),
        (&["web.auth=impersonation"], "web.oidc.issuer: the page impersonates only users whose ID token it verified"),
        (&["web.auth=legacy-impersonation", oidc, "web.oidc.clientId=x"], "which is cluster-admin"),
        (&[oidc], "web.oidc.clientId"),
        (&["web.tokenSignIn=false"], "nobody could sign in"),
        (&[oidc, "web.oidc.clientId=x", "web.oidc.usernameClaim=email"], "web.oidc.usernameClaim: with web.auth"),
        (&["serviceAccount.name=signoff-web"], "must not hold the operator's rights"),
        (&["web.ingress.enabled=true", "web.ingress.tls.secretName=signoff-web-tls"], "choose another name"),
        (
            &["web.cookieKey.existingSecret=cookies"],
            "web.cookieKey.existingSecret: the policy signoff-identity protects",
        ),
        (&["web.oidc.clientSecret.existingSecret=client"], "such as signoff-web-client"),
        (&["web.oidc.caConfigMap.name=ca"], "web.oidc.caConfigMap.name: the policy signoff-identity"),
        (&["web.httpRoute.enabled=true"], "an HTTPRoute needs a Gateway"),
        (&["web.impersonation.groups={system:masters}"], "/web/impersonation/groups"),
        (&["web.maxSession=1d"], "/web/maxSession"),
    ] {
        let refusal = page(values).unwrap_err();
        assert!(refusal.contains(words), "{values:?}: {refusal}");
    }
    page(&["web.url=http://localhost:8081"]).unwrap();
}
