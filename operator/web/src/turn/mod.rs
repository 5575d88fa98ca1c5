//! Requests that are decided together: `/n/{namespace}/t/{turn}`, the calls of one turn of an agent that wait, and
//! `/together`, requests of equal gates.
//!
//! read as the user *(I/O)* -> cards (`model`, pure) -> a template; of a verdict: one entry for each chosen request
//! (`batch`) -> each tried at the API server *(I/O)* -> confirmed together -> each sent *(I/O)* -> the outcome of each.
//!
//! **Invariant:** each request gets a vote of its own, with its own digest; only a confirmed one is sent.

mod batch;
mod bond;
mod model;
mod read;

use axum::{
    Form,
    extract::{Path, RawQuery, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use url::form_urlencoded;

use crate::{
    approval::typed::{Problems, Typed},
    error::PageError,
    inbox, page,
    scope::{is_name, is_namespace},
    session::{Caller, Places},
    state::PageState,
};
use batch::Batch;
use bond::Bond;
use model::{Confirm, Results, TurnPage};
use read::Together;

/// Shows the calls of a turn that wait.
///
/// # Errors
/// As every request.
pub async fn page(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, PageError> {
    let turn = Together::turn(&state, &caller, &namespace, &name).await?;
    Ok(page::html(&TurnPage::of(&caller, &turn, &Typed::default(), &Problems::default())))
}

/// Tries one verdict on several calls and asks for confirmation, or sends the confirmed ones.
///
/// # Errors
/// As every request. What was typed wrong is shown on the page of the turn.
pub async fn decide(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, PageError> {
    decide_all(&state, &caller, &namespace, &Bond::Turn(name), &Typed(fields)).await
}

/// Shows the requests that an address names, or those whose gates are equal to that of the one that it names.
///
/// # Errors
/// An address that names none, too many, or those of several namespaces; and as every request.
pub async fn together(
    State(state): State<PageState>,
    caller: Caller,
    Places(places): Places,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let query = query.unwrap_or_default();
    let mut named = Vec::new();
    for (field, value) in form_urlencoded::parse(query.as_bytes()) {
        let Some((namespace, name)) = value.split_once('/').filter(|(of, name)| is_namespace(of) && is_name(name))
        else {
            continue;
        };
        match &*field {
            "a" => named.push((namespace.to_owned(), name.to_owned())),
            "like" => {
                let feed = state.feeds.of(&caller, &places).await?;
                named.extend(inbox::like(&feed, namespace, name));
            }
            _ => {}
        }
    }
    let namespace = named.first().map(|(namespace, _)| namespace.clone()).unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for (of, name) in named {
        if of != namespace {
            let why = "requests of several namespaces are not decided together: choose those of one, in the inbox";
            return Err(PageError::Bad(why.to_owned()));
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err(PageError::Bad("no request was chosen: choose some in the inbox".to_owned()));
    }
    if names.len() > Bond::MOST {
        let most = Bond::Equal.counted(Bond::MOST);
        let why = format!("at most {most} can be decided together: choose fewer, in the inbox");
        return Err(PageError::Bad(why));
    }
    let equal = Together::equal(&state, &caller, &namespace, &names).await?;
    Ok(page::html(&TurnPage::of(&caller, &equal, &Typed::default(), &Problems::default())))
}

/// Tries one verdict on several requests of equal gates and asks for confirmation, or sends the confirmed ones.
///
/// # Errors
/// As every request. What was typed wrong is shown on the page of the requests.
pub async fn decide_together(
    State(state): State<PageState>,
    caller: Caller,
    Path(namespace): Path<String>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, PageError> {
    decide_all(&state, &caller, &namespace, &Bond::Equal, &Typed(fields)).await
}

async fn decide_all(
    state: &PageState,
    caller: &Caller,
    namespace: &str,
    bond: &Bond,
    typed: &Typed,
) -> Result<Response, PageError> {
    let batch = match Batch::prepare(state, caller, namespace, bond, typed).await? {
        Ok(batch) => batch,
        Err(problems) => {
            let together = match bond {
                Bond::Turn(name) => Together::turn(state, caller, namespace, name).await?,
                Bond::Equal => Together::equal(state, caller, namespace, &shown(typed)).await?,
            };
            let page = page::html(&TurnPage::of(caller, &together, typed, &problems));
            return Ok(page::kept((StatusCode::UNPROCESSABLE_ENTITY, page).into_response()));
        }
    };
    if typed.get("confirmed").is_none() {
        return Ok(page::kept(page::html(&Confirm::of(caller, &batch, typed))));
    }
    let outcomes = batch.send(typed).await;
    Ok(page::kept(page::html(&Results::of(caller, &batch, outcomes))))
}

/// Returns the names of the requests that a form was about: those of its page, or else those that are confirmed.
fn shown(typed: &Typed) -> Vec<String> {
    let chosen = batch::chosen(typed).into_iter().map(|(name, _)| name);
    let mut names: Vec<String> = Vec::new();
    for name in typed.all("shown").filter(|name| is_name(name)).chain(chosen) {
        if names.len() < Bond::MOST && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests;
