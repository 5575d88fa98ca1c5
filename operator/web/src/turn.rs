//! Requests that are decided together: `/n/{namespace}/t/{turn}`, the calls of one turn of an agent that wait, and
//! `/together`, requests of equal gates.
//!
//! read as the user *(I/O)* -> cards (`model`, pure) -> a template; of a verdict: one entry for each chosen request
//! (`batch`) -> each tried at the API server *(I/O)* -> confirmed together -> each sent *(I/O)* -> the outcome of each.
//!
//! **Invariant:** each request gets a vote of its own, with its own digest; only a confirmed one is sent.

mod batch;
mod bond;
mod card;
mod model;
mod read;

use axum::{
    Form,
    extract::{Path, RawQuery, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode};
use url::form_urlencoded;

use crate::{
    approval::typed::Typed,
    error::PageError,
    inbox, page,
    scope::{is_name, is_namespace},
    session::{Caller, Places},
    state::PageState,
};
use batch::Batch;
use bond::Bond;
use model::{ConfirmTogether, FirstChoice, Results, TurnPage};
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
    Ok(page::html(&TurnPage::opened(&caller, &turn, FirstChoice::All)))
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
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let mut named = Named::read(&query.unwrap_or_default())?;
    if let Some((namespace, name)) = named.like.take() {
        let feed = state.feeds.of(&caller, &places).await?;
        inbox::like(&feed, &namespace, &name).into_iter().for_each(|one| named.add(one));
    }
    let (namespace, names) = named.of_one_namespace()?;
    let equal = Together::equal(&state, &caller, &namespace, &names).await?;
    Ok(page::html(&TurnPage::opened(&caller, &equal, choice(&headers))))
}

/// Returns which requests are chosen at first: all where a page of ours led here. An address that comes from elsewhere
/// chooses nothing.
fn choice(headers: &HeaderMap) -> FirstChoice {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    match (sites.next(), sites.next()) {
        (Some(site), None) if site == "same-origin" => FirstChoice::All,
        _ => FirstChoice::Nothing,
    }
}

/// The requests that an address names, each with its namespace.
#[derive(Debug, Default)]
struct Named {
    /// Each once, and at most one more than can be decided together.
    requests: Vec<(String, String)>,
    /// The request whose equals are meant.
    like: Option<(String, String)>,
}

impl Named {
    /// Reads the query of an address.
    fn read(query: &str) -> Result<Self, PageError> {
        let mut named = Self::default();
        for (field, value) in form_urlencoded::parse(query.as_bytes()) {
            let Some((namespace, name)) = value.split_once('/').filter(|(of, name)| is_namespace(of) && is_name(name))
            else {
                continue;
            };
            let one = (namespace.to_owned(), name.to_owned());
            match &*field {
                "a" => named.add(one),
                "like" if named.like.is_some() => {
                    let why = "an address names one request of whose gate others are shown: choose them in the inbox";
                    return Err(PageError::Bad(why.to_owned()));
                }
                "like" => named.like = Some(one),
                _ => {}
            }
        }
        Ok(named)
    }

    fn add(&mut self, one: (String, String)) {
        if self.requests.len() <= Bond::MOST && !self.requests.contains(&one) {
            self.requests.push(one);
        }
    }

    /// Returns the namespace and the names.
    fn of_one_namespace(self) -> Result<(String, Vec<String>), PageError> {
        let bad = |why: String| Err(PageError::Bad(why));
        let Some(namespace) = self.requests.first().map(|(namespace, _)| namespace.clone()) else {
            return bad("no request was chosen: choose some in the inbox".to_owned());
        };
        if self.requests.iter().any(|(of, _)| *of != namespace) {
            let why = "requests of several namespaces are not decided together: choose those of one, in the inbox";
            return bad(why.to_owned());
        }
        if self.requests.len() > Bond::MOST {
            let most = Bond::Equal.counted(Bond::MOST);
            return bad(format!("at most {most} can be decided together: choose fewer, in the inbox"));
        }
        Ok((namespace, self.requests.into_iter().map(|(_, name)| name).collect()))
    }
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
            let page = page::html(&TurnPage::again(caller, &together, typed, &problems));
            return Ok(page::kept((StatusCode::UNPROCESSABLE_ENTITY, page).into_response()));
        }
    };
    if typed.get("confirmed").is_none() {
        return Ok(page::kept(page::html(&ConfirmTogether::of(caller, &batch, typed))));
    }
    let outcomes = batch.send(typed).await;
    Ok(page::kept(page::html(&Results::of(caller, &batch, typed, outcomes))))
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
