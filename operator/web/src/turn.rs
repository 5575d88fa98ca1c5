//! Requests that are decided together: `/n/{namespace}/t/{turn}`, the open calls of one turn of an agent, and
//! `/together`, requests of equal gates.
//!
//! The page: read as the user *(I/O)* -> cards (`card`, `model`, *pure*) -> template. A verdict: an entry for each
//! chosen request (`batch`) -> tried at the API server *(I/O)* -> confirmed together -> sent *(I/O)* -> outcomes.
//!
//! **Invariant:** each request gets a vote of its own with its own digest, and only confirmed votes are sent.

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

/// Shows the open calls of a turn.
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
/// As every request. Problems of the form are shown on the page of the turn.
pub async fn decide(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, PageError> {
    decide_all(&state, &caller, &namespace, &Bond::Turn(name), &Typed(fields)).await
}

/// Shows the requests that an address names, and the requests whose gate equals the gate of the request after `like`.
///
/// # Errors
/// An address that names no request, too many, or requests of several namespaces; and as every request.
pub async fn together(
    State(state): State<PageState>,
    caller: Caller,
    Places(places): Places,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let mut named = NamedRequests::parse(&query.unwrap_or_default())?;
    if let Some((namespace, name)) = named.like.take() {
        let feed = state.feeds.complete_feed(&caller, &places).await?;
        inbox::requests_with_equal_gate(&feed, &namespace, &name).into_iter().for_each(|request| named.add(request));
    }
    let (namespace, names) = named.into_one_namespace()?;
    let equal = Together::equal(&state, &caller, &namespace, &names).await?;
    Ok(page::html(&TurnPage::opened(&caller, &equal, choose_first(&headers))))
}

/// Returns the requests that are chosen when the page is opened: all if a page of this site led here, and none if the
/// address comes from elsewhere.
fn choose_first(headers: &HeaderMap) -> FirstChoice {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    match (sites.next(), sites.next()) {
        (Some(site), None) if site == "same-origin" => FirstChoice::All,
        _ => FirstChoice::Nothing,
    }
}

/// The requests that an address names, each with its namespace.
#[derive(Debug, Default)]
struct NamedRequests {
    /// The requests, each once, at most one more than can be decided together.
    requests: Vec<(String, String)>,
    /// The request whose gate the others share.
    like: Option<(String, String)>,
}

impl NamedRequests {
    /// Parses the query of an address: `a=NAMESPACE/NAME` for each request, and at most one `like=NAMESPACE/NAME`. A
    /// value of another form is ignored. A second `like` is an error.
    fn parse(query: &str) -> Result<Self, PageError> {
        let mut named = Self::default();
        for (field, value) in form_urlencoded::parse(query.as_bytes()) {
            let Some((namespace, name)) =
                value.split_once('/').filter(|(place, name)| is_namespace(place) && is_name(name))
            else {
                continue;
            };
            let request = (namespace.to_owned(), name.to_owned());
            match &*field {
                "a" => named.add(request),
                "like" if named.like.is_some() => {
                    let why = "an address names one request of whose gate others are shown: choose them in the inbox";
                    return Err(PageError::Bad(why.to_owned()));
                }
                "like" => named.like = Some(request),
                _ => {}
            }
        }
        Ok(named)
    }

    /// Adds a request, unless it is named already or one too many is named.
    fn add(&mut self, request: (String, String)) {
        if self.requests.len() <= Bond::MOST && !self.requests.contains(&request) {
            self.requests.push(request);
        }
    }

    /// Returns the namespace and the names. No request, too many, or requests of several namespaces are an error.
    fn into_one_namespace(self) -> Result<(String, Vec<String>), PageError> {
        let bad = |why: String| Err(PageError::Bad(why));
        let Some(namespace) = self.requests.first().map(|(namespace, _)| namespace.clone()) else {
            return bad("no request was chosen: choose some in the inbox".to_owned());
        };
        if self.requests.iter().any(|(other, _)| *other != namespace) {
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
/// As every request. Problems of the form are shown on the page of the requests.
pub async fn decide_together(
    State(state): State<PageState>,
    caller: Caller,
    Path(namespace): Path<String>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, PageError> {
    decide_all(&state, &caller, &namespace, &Bond::Equal, &Typed(fields)).await
}

/// Tries the verdict of a form on the chosen requests. Then asks for confirmation, or sends the confirmed entries and
/// shows the outcomes. Problems of the form are shown on the page of the requests.
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
                Bond::Equal => Together::equal(state, caller, namespace, &names_on_form(typed)).await?,
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

/// Returns the names of the requests of a form: all that its page showed, and the chosen ones.
fn names_on_form(typed: &Typed) -> Vec<String> {
    let chosen = batch::chosen_requests(typed).into_iter().map(|(name, _)| name);
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
