//! `/policies`: the approval policies in words, read-only.
//!
//! **Invariant:** the page says which policies the caller may not list.

mod words;

use std::fmt::Debug;

use askama::Template;
use axum::{extract::State, response::Response};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde::de::DeserializeOwned;
use signoff_api::policy::{ApprovalPolicy, ClusterApprovalPolicy};
use signoff_review::text::{one_line, quoted};

use self::words::Words;
use crate::{
    error::PageError,
    page::{self, Shell},
    scope::{places, scope},
    session::{Caller, Places},
    state::PageState,
};

/// The most policies of one list.
const MOST: u32 = 500;

#[derive(Template)]
#[template(path = "policies.html")]
struct PoliciesPage {
    shell: Shell,
    cluster: Listed,
    own: Listed,
    /// The listed namespaces, or `None` for all.
    namespaces: Option<Vec<String>>,
}

/// One list of policies.
#[derive(Debug, Default)]
struct Listed {
    cards: Vec<PolicyCard>,
    has_more: bool,
    /// The reason why the API server refused to list the policies, or `None`.
    refused: Option<String>,
}

/// One policy.
#[derive(Debug)]
struct PolicyCard {
    namespace: Option<String>,
    name: String,
    /// The policy in words, or the reason why it cannot be read.
    words: Result<Words, String>,
    command: String,
}

/// Shows the policies.
///
/// # Errors
/// As every request, except that the list is refused.
pub async fn page(State(_): State<PageState>, caller: Caller, Places(named): Places) -> Result<Response, PageError> {
    let client = &caller.client;
    let namespaces = scope::<ApprovalPolicy>(client, &named).await?;
    let cluster = accept_refusal(list(client, None, cluster_card).await)?;
    let mut own = Listed::default();
    for place in places(namespaces.as_deref()) {
        let mut more = accept_refusal(list(client, place.as_deref(), own_card).await)?;
        own.cards.append(&mut more.cards);
        own.has_more |= more.has_more;
        own.refused = own.refused.or(more.refused);
    }
    let mut shell = Shell::of(&caller, "Policies", "policies");
    let everywhere = if namespaces.is_none() { " --all-namespaces" } else { "" };
    shell.command = Some(format!("kubectl get approvalpolicies,clusterapprovalpolicies{everywhere}"));
    Ok(page::html(&PoliciesPage { shell, cluster, own, namespaces }))
}

/// Turns a refusal into an empty list with its reason. Any other error stays.
fn accept_refusal(listed: Result<Listed, PageError>) -> Result<Listed, PageError> {
    match listed {
        Err(PageError::Refused(why)) => Ok(Listed { refused: Some(why), ..Listed::default() }),
        other => other,
    }
}

/// Lists the policies of one namespace, or of the cluster. A policy that this version cannot read does not hide the
/// others.
async fn list<K>(client: &Client, namespace: Option<&str>, card: fn(&K) -> PolicyCard) -> Result<Listed, PageError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Debug,
{
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let list = api.list(&ListParams::default().limit(MOST)).await?;
    let has_more = list.metadata.continue_.is_some_and(|token| !token.is_empty());
    let cards = list.items.into_iter().map(|object| read_card(object, &kind, card)).collect();
    Ok(Listed { cards, has_more, refused: None })
}

/// Returns the card of a policy, or a card with the reason why this version cannot read it.
fn read_card<K>(object: DynamicObject, kind: &ApiResource, card: fn(&K) -> PolicyCard) -> PolicyCard
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let (namespace, name) = (object.namespace(), object.name_any());
    match object.try_parse::<K>() {
        Ok(policy) => card(&policy),
        Err(error) => PolicyCard {
            command: kubectl_get(&kind.plural, &name, namespace.as_deref()),
            words: Err(format!("this version cannot read it: {}", one_line(&error.to_string(), 1000))),
            namespace,
            name,
        },
    }
}

fn cluster_card(policy: &ClusterApprovalPolicy) -> PolicyCard {
    let name = policy.name_any();
    let command = kubectl_get("clusterapprovalpolicies", &name, None);
    PolicyCard { namespace: None, name, words: Ok(words::of_cluster(&policy.spec)), command }
}

fn own_card(policy: &ApprovalPolicy) -> PolicyCard {
    let (namespace, name) = (policy.namespace().unwrap_or_default(), policy.name_any());
    let command = kubectl_get("approvalpolicies", &name, Some(&namespace));
    let words = Ok(words::of_namespace(&policy.spec, &namespace));
    PolicyCard { namespace: Some(namespace), name, words, command }
}

/// Returns the command that prints a policy as YAML.
fn kubectl_get(plural: &str, name: &str, namespace: Option<&str>) -> String {
    let mut words = vec!["kubectl", "get", plural, name];
    if let Some(namespace) = namespace {
        words.extend(["--namespace", namespace]);
    }
    words.extend(["-o", "yaml"]);
    quoted(&words)
}

#[cfg(test)]
mod tests;
