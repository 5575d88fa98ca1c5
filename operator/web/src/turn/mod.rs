//! `/n/{namespace}/t/{turn}`: the calls of one turn of an agent that wait, and one verdict on several of them.
//!
//! read as the user *(I/O)* -> cards (`model`, pure) -> a template; of a verdict: one entry for each chosen call (`batch`) -> each tried
//! at the API server *(I/O)* -> confirmed together -> each sent *(I/O)* -> the outcome of each.
//!
//! **Invariant:** each call gets a vote of its own, with the digest of its own request; a call that was not confirmed is not sent.

mod batch;
mod model;
mod read;

use axum::{
    Form,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;

use crate::{
    approval::typed::{Problems, Typed},
    error::PageError,
    page,
    session::Caller,
    state::PageState,
};
use batch::Batch;
use model::{Confirm, Results, TurnPage};
use read::Turn;

/// Shows the calls of a turn that wait.
///
/// # Errors
/// As every request.
pub async fn page(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, PageError> {
    let turn = Turn::fetch(&state, &caller, &namespace, &name).await?;
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
    let typed = Typed(fields);
    let batch = match Batch::prepare(&state, &caller, &namespace, &name, &typed).await? {
        Ok(batch) => batch,
        Err(problems) => {
            let turn = Turn::fetch(&state, &caller, &namespace, &name).await?;
            let page = page::html(&TurnPage::of(&caller, &turn, &typed, &problems));
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response());
        }
    };
    if typed.get("confirmed").is_none() {
        return Ok(page::html(&Confirm::of(&caller, &batch, &typed)));
    }
    let outcomes = batch.send(&typed).await;
    Ok(page::html(&Results::of(&caller, &batch, outcomes)))
}

#[cfg(test)]
mod tests;
