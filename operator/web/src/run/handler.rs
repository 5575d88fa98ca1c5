//! The handler of the page of a run.
//!
//! read *(I/O)* -> model and picture *(pure)* -> template. A picture that cannot be laid out is left out, because the
//! outline has the same steps.

use askama::Template;
use axum::{
    extract::{Path, State},
    response::Response,
};
use signoff_review::suggest::CallFlags;

use super::{
    address::Address,
    change::{Offers, RunRights},
    graph::{self, Graph},
    model::Run,
    outline::Item,
    picture::Picture,
    read::RunSnapshot,
    timeline::AXIS,
};
use crate::{
    error::PageError,
    page::{self, Shell},
    session::{Caller, now},
    state::PageState,
};

/// The page of a run.
#[derive(Template)]
#[template(path = "run.html")]
pub struct RunPage {
    /// The title and the navigation of the page.
    pub shell: Shell,
    /// The run as the page shows it.
    pub run: Run,
    /// The picture, if the graph is small enough.
    pub picture: Option<Picture>,
    /// The most steps of a picture, which the page names if there is no picture.
    pub most: usize,
    /// The reason why not all Approvals are shown.
    pub unlisted: Option<String>,
    /// The address of the stream of changes.
    pub live: String,
    /// The verbs that the reader may use.
    pub offers: Offers,
    /// The uid of the run.
    pub uid: String,
    /// The address to which changes are posted.
    pub change: String,
}

/// Shows a run.
///
/// # Errors
/// As every request.
pub async fn page(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, PageError> {
    let address = Address::of(&namespace, &name)?;
    let (read, rights) =
        tokio::join!(RunSnapshot::fetch(&caller.client, &address), RunRights::ask(&state, &caller.client, &address));
    let RunSnapshot { workflow, approvals, unlisted, versions } = read?;
    let mut shell = Shell::of(&caller, &format!("Run {name}"), "runs");
    shell.command = Some(CallFlags::default().kubectl(Some(&namespace), &["approve", "status", &name]));
    let live = format!("{}/events?seen={}", address.run(), versions.word());
    let (uid, change) = (workflow.metadata.uid.clone().unwrap_or_default(), format!("{}/change", address.run()));
    // Long journals and large graphs take a moment, so they do not block a thread of the server.
    let drawn = tokio::task::spawn_blocking(move || {
        let graph = Graph::of(&workflow, &address);
        (Run::of(&workflow, &approvals, &address, now()), graph, rights.offers(&workflow))
    });
    let (run, graph, offers) =
        drawn.await.map_err(|error| PageError::Internal(format!("a run cannot be shown: {error}")))?;
    let picture = tokio::task::spawn_blocking(move || Picture::of(&graph)).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the picture of a run cannot be laid out");
        None
    });
    Ok(page::html(&RunPage { shell, run, picture, most: graph::MOST.0, unlisted, live, offers, uid, change }))
}
