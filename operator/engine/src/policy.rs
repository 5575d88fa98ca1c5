//! The approval policies of a namespace, merged in a fixed order into the gates, hosts and Secrets of its Workflows.
//!
//! **Invariant:** merging only tightens; neither an author nor another policy can loosen a requirement.

mod calls;
mod gate;

use std::collections::BTreeMap;

use signoff_api::{
    gate::{GateType, PersonRule},
    glob::is_like,
    hosts,
    pod::PodStep,
    policy::{AddedStep, ApprovalPolicySpec, ClusterApprovalPolicySpec, PolicyRules},
    workflow::{Provider, ProviderKind, SecretEntry},
};
use url::Url;

pub(crate) use calls::{CallFacts, matches};
pub(crate) use gate::{Contradiction, EVERY_GATE, EffectiveGate, Requester, caution_rank, shorter};

/// The maximum number of gates that policies add to a run, before they are copied to each guarded step.
pub(crate) const MOST_ADDED: usize = 32;

/// The approval policies of one namespace: the policies of the cluster sorted by name, then its own sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies {
    list: Vec<AppliedPolicy>,
}

/// An applied policy.
#[derive(Clone, Debug, PartialEq)]
struct AppliedPolicy {
    /// The kind and name: `ClusterApprovalPolicy prod`.
    source: String,
    /// The types of gates; empty for every type.
    gate_types: Vec<GateType>,
    identities: Vec<PersonRule>,
    rules: PolicyRules,
}

impl Policies {
    /// Returns the policies that apply in a namespace with `labels`.
    #[must_use]
    pub fn of<'a>(
        labels: &BTreeMap<String, String>,
        cluster: impl IntoIterator<Item = (&'a str, &'a ClusterApprovalPolicySpec)>,
        own: impl IntoIterator<Item = (&'a str, &'a ApprovalPolicySpec)>,
    ) -> Self {
        let mut of_cluster: Vec<AppliedPolicy> = cluster
            .into_iter()
            .filter(|(_, spec)| {
                let selector = spec.match_.as_ref().and_then(|m| m.namespace_selector.as_ref());
                selector.is_none_or(|selector| selector.matches(labels))
            })
            .map(|(name, spec)| AppliedPolicy {
                source: format!("ClusterApprovalPolicy {name}"),
                gate_types: spec.match_.iter().flat_map(|m| m.gate_types.clone()).collect(),
                identities: spec.identities.clone(),
                rules: spec.rules.clone(),
            })
            .collect();
        let mut of_namespace: Vec<AppliedPolicy> = own
            .into_iter()
            .map(|(name, spec)| AppliedPolicy {
                source: format!("ApprovalPolicy {name}"),
                gate_types: spec.match_.iter().flat_map(|m| m.gate_types.clone()).collect(),
                identities: Vec::new(),
                rules: spec.rules.clone(),
            })
            .collect();
        of_cluster.sort_by(|a, b| a.source.cmp(&b.source));
        of_namespace.sort_by(|a, b| a.source.cmp(&b.source));
        of_cluster.append(&mut of_namespace);
        Self { list: of_cluster }
    }

    /// Returns the gates that the policies add to a run at its acceptance.
    #[must_use]
    pub fn added_steps(&self) -> Vec<AddedStep> {
        let added = |applied: &AppliedPolicy| {
            let source = applied.source.clone();
            applied.rules.steps.clone().into_iter().map(move |step| AddedStep { source: source.clone(), step })
        };
        self.list.iter().flat_map(added).collect()
    }

    /// Returns the reason why a model provider is forbidden (its host, or the Secret of its key), or `None`.
    pub(crate) fn refuses_provider(&self, provider: &Provider, key: Option<&SecretEntry>) -> Option<String> {
        let url = provider.kind().and_then(ProviderKind::endpoint).and_then(|url| self.refuses_url(url));
        let why = url.or_else(|| self.refuses_secret(&key?.secret));
        why.map(|why| format!("provider {}: {why}", provider.name))
    }

    /// Returns the reason why a URL is forbidden, or `None`. An invalid URL is refused if hosts are limited.
    pub(crate) fn refuses_url(&self, url: &str) -> Option<String> {
        let parsed = Url::parse(url);
        let host = parsed.as_ref().ok().and_then(Url::host_str).unwrap_or("a URL without a host");
        self.list.iter().find_map(|applied| {
            let allowed = applied.rules.allowed_hosts.as_ref()?;
            let covered = parsed.as_ref().is_ok_and(|url| hosts::lists(allowed.iter().map(String::as_str), url));
            (!covered).then(|| not_allowed_message(host, &applied.source, "allowedHosts", allowed))
        })
    }

    /// Returns the reason why a container is forbidden (a Secret that it names), or `None`.
    pub(crate) fn refuses_container(&self, pod: &PodStep) -> Option<String> {
        self.refuses_secrets(pod.secrets().iter().map(String::as_str))
    }

    /// Returns the reason why one of the Secrets is forbidden, or `None`.
    pub(crate) fn refuses_secrets<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
        names.into_iter().find_map(|name| self.refuses_secret(name))
    }

    /// Returns the reason why a Secret is forbidden, or `None`.
    pub(crate) fn refuses_secret(&self, name: &str) -> Option<String> {
        self.list.iter().find_map(|applied| {
            let allowed = applied.rules.allowed_secrets.as_ref()?;
            let listed = allowed.iter().any(|glob| is_like(glob, name));
            (!listed)
                .then(|| not_allowed_message(&format!("Secret {name}"), &applied.source, "allowedSecrets", allowed))
        })
    }
}

fn not_allowed_message(what: &str, source: &str, field: &str, allowed: &[String]) -> String {
    let list = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
    format!(
        "{what} is not allowed by {source} ({field}: {list}): use one that is listed, or ask the administrator of the policy to add it"
    )
}

/// Returns the beginning of a URL template up to the end of its host, or `None` if a part of the host is rendered.
pub(crate) fn fixed_host(template: &str) -> Option<&str> {
    let end = ["{{", "{%", "{#"].iter().filter_map(|mark| template.find(mark)).min();
    let Some(end) = end else { return Some(template) };
    let literal = template.get(..end)?;
    let (_, authority) = literal.split_once(':')?;
    // Like a parser of URLs: any number of slashes of either kind can precede the host.
    let host = authority.trim_start_matches(['/', '\\', '\t', '\n', '\r']);
    // Only the part after the host can contain templates.
    host.find(['/', '?', '#', '\\']).is_some_and(|end| end > 0).then_some(literal)
}

/// Returns the origin of a URL template, or `None` if scheme, host, port and the `/` after them are not literal text.
pub(crate) fn fixed_origin(template: &str) -> Option<Url> {
    let (scheme, rest) = fixed_host(template)?.split_once("://")?;
    let (authority, _) = rest.split_once('/')?;
    let is_plain = !authority.contains(|c: char| matches!(c, '\\' | '?' | '#' | '@') || c.is_whitespace());
    let url = Url::parse(&format!("{scheme}://{authority}/")).ok().filter(|url| url.host().is_some());
    url.filter(|url| is_plain && matches!(url.scheme(), "http" | "https"))
}

#[cfg(test)]
#[path = "policy/authors_tests.rs"]
mod authors_tests;
#[cfg(test)]
#[path = "policy/bypass_tests.rs"]
mod bypass_tests;
#[cfg(test)]
#[path = "policy/calls_tests.rs"]
mod calls_tests;
#[cfg(test)]
mod end_tests;
#[cfg(test)]
#[path = "policy/four_eyes_tests.rs"]
mod four_eyes_tests;
#[cfg(test)]
#[path = "policy/law_tests.rs"]
mod law_tests;
#[cfg(test)]
#[path = "policy/provider_tests.rs"]
mod provider_tests;
#[cfg(test)]
#[path = "policy/reject_tests.rs"]
mod reject_tests;
#[cfg(test)]
#[path = "policy/run_tests.rs"]
mod run_tests;
#[cfg(test)]
#[path = "policy/sent_method_tests.rs"]
mod sent_method_tests;
#[cfg(test)]
#[path = "policy/servers_tests.rs"]
mod servers_tests;
#[cfg(test)]
#[path = "policy/tests.rs"]
mod tests;
