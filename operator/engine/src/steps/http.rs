//! An `http` step: one request, rendered. Nothing here sends it.

use crate::{
    activity::{Opening, Place, Run, Trouble, Work},
    plan::PlannedHttp,
    turn::{Call, HttpCall, What},
};

/// The request, from the values known at `seq`.
pub(super) fn call<'a>(
    run: &Run<'a>,
    work: &Work<'a>,
    http: &PlannedHttp,
    seq: i64,
    place: &Place,
) -> Result<Opening, Trouble> {
    let scope = work.scope(run, seq)?;
    let mut headers = std::collections::BTreeMap::new();
    for (name, template) in &http.headers {
        headers.insert(name.clone(), template.render(&scope)?);
    }
    let expected = http.spec.expect.iter().flat_map(|expect| &expect.status);
    let changed = |field: &str| work.change.parameters.get(field).cloned();
    let body = match changed("body") {
        Some(body) => Some(body),
        None => http.body.as_ref().map(|template| template.render(&scope)).transpose()?,
    };
    Ok(Opening::Call(Call {
        path: place.path.clone(),
        attempt: place.attempt,
        idempotent: work.step.is_idempotent(),
        timeout: work.step.timeout,
        what: What::Http(HttpCall {
            method: http.spec.method.unwrap_or_default().name().to_owned(),
            url: changed("url").map_or_else(|| http.url.render_url(&scope), Ok)?,
            headers,
            body,
            expect_status: expected.filter_map(|status| u16::try_from(*status).ok()).collect(),
        }),
    }))
}
