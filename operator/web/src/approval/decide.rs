//! `POST …/decide`: a decision is tried and shown, and sent after its confirmation. After a problem, and after Back,
//! the form is shown again as it was typed.
//!
//! **Invariant:** the entry that is sent is the caller's, for the shown digest, and has the name that was confirmed.

use axum::{
    Form,
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use http::StatusCode;

use super::{
    confirm::confirm,
    model::ApprovalPage,
    next,
    read::Read,
    send::{NotSent, Sender, answer_problems, propose, verify_shown},
    typed::Typed,
};
use crate::{error::PageError, page, session::Caller, state::PageState};

/// Tries a decision and asks for confirmation, sends a confirmed one, or goes back to the form.
///
/// # Errors
/// As every request. A refusal, and problems of the form, are shown on the page of the request.
pub async fn decide(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, PageError> {
    let typed = Typed(fields);
    let read = Read::fetch(&state, &caller, &namespace, &name).await?;
    if typed.goes_back() {
        let problems = verify_shown(&read, &typed).err().map(|not_sent| not_sent.problems).unwrap_or_default();
        return Ok(page::kept(page::html(&ApprovalPage::of(&caller, &read, &typed, &problems))));
    }
    let sender = Sender { caller: &caller, namespace: &namespace, name: &name };
    let proposed = match propose(&state, &caller, &read, &typed) {
        Ok(proposed) => proposed,
        Err(not_sent) => return Ok(show_form_again(&state, &caller, &read, &typed, not_sent).await),
    };
    let rehearsed = match sender.rehearse(&state, &read, proposed).await? {
        Ok(rehearsed) => rehearsed,
        Err(not_sent) => return Ok(show_form_again(&state, &caller, &read, &typed, not_sent).await),
    };
    let named = typed.get("confirmed");
    let confirmed = match rehearsed.confirm_named(named) {
        Ok(confirmed) => confirmed,
        Err(rehearsed) => {
            let status = if named.is_none() { StatusCode::OK } else { StatusCode::CONFLICT };
            let page = page::html(&confirm(&caller, &read, &rehearsed, &typed));
            return Ok(page::kept((status, page).into_response()));
        }
    };
    match sender.record(&read, confirmed).await? {
        Ok((_, waited)) => Ok(Redirect::to(&next::after(&state, &caller, &read, &waited).await).into_response()),
        Err(not_sent) => Ok(show_form_again(&state, &caller, &read, &typed, not_sent).await),
    }
}

/// Shows the request again, with the form as it was typed and all its problems.
async fn show_form_again(
    state: &PageState,
    caller: &Caller,
    read: &Read,
    typed: &Typed,
    mut not_sent: NotSent,
) -> Response {
    if not_sent.status == StatusCode::UNPROCESSABLE_ENTITY {
        not_sent.problems.add(answer_problems(state, caller, read, typed).await);
    }
    let page = page::html(&ApprovalPage::of(caller, read, typed, &not_sent.problems));
    page::kept((not_sent.status, page).into_response())
}
