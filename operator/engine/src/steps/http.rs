//! An `http` step: renders one request. `DefaultCaller` of the executor (`executor/src/calls.rs`) sends it with the
//! HTTP client (`executor/src/http/client.rs`).

use signoff_api::Seq;

use crate::{
    plan::PlannedHttp,
    replay::{
        activity::{ActivityKey, Start},
        run::{RenderError, Run},
        step_invocation::StepInvocation,
    },
    transition::{Call, CallContent, HttpCall},
};

/// Renders the request from the values as of `seq`.
pub(super) fn render_call<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    http: &PlannedHttp,
    seq: Seq,
    key: &ActivityKey,
) -> Result<Start, RenderError> {
    let scope = invocation.scope(run, seq)?;
    let mut headers = std::collections::BTreeMap::new();
    for (name, template) in &http.headers {
        headers.insert(name.clone(), template.render(&scope)?);
    }
    let expected = http.spec.expect.iter().flat_map(|expect| &expect.status);
    let changed = |field: &str| invocation.overrides.parameters.get(field).cloned();
    let url = changed("url").map_or_else(|| http.url.render_url(&scope), Ok)?;
    let secret_headers = match &http.secrets {
        Some(secrets) if !secrets.can_be_sent_to(&url) => {
            let why = format!("a URL that is sent a Secret begins with {}: change only what follows", secrets.origin);
            return Err(RenderError::Invalid(why));
        }
        Some(secrets) => secrets.headers.clone(),
        None => Vec::new(),
    };
    let body = match changed("body") {
        Some(body) => Some(body),
        None => http.body.as_ref().map(|template| template.render(&scope)).transpose()?,
    };
    Ok(Start::Call(Call {
        path: key.path.clone(),
        attempt: key.attempt,
        idempotent: invocation.step.is_idempotent(),
        timeout: invocation.step.timeout,
        content: CallContent::Http(HttpCall {
            method: http.spec.method.unwrap_or_default().name().to_owned(),
            url,
            headers,
            secret_headers,
            body,
            expect_status: expected.filter_map(|status| u16::try_from(*status).ok()).collect(),
        }),
    }))
}
