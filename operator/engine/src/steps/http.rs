//! An `http` step: one request, rendered. Nothing here sends it.

use crate::{
    activity::{Opening, Place, Run, Trouble},
    plan::{PlannedHttp, PlannedStep},
    turn::{Call, HttpCall, What},
};

/// The request, from the values known at `seq`.
pub(super) fn call(
    run: &Run<'_>,
    step: &PlannedStep,
    http: &PlannedHttp,
    seq: i64,
    place: &Place,
) -> Result<Opening, Trouble> {
    let scope = run.scope(step, seq)?;
    let mut headers = std::collections::BTreeMap::new();
    for (name, template) in &http.headers {
        headers.insert(name.clone(), template.render(&scope)?);
    }
    let expected = http.spec.expect.iter().flat_map(|expect| &expect.status);
    Ok(Opening::Call(Call {
        path: place.path.clone(),
        attempt: place.attempt,
        idempotent: http.spec.is_idempotent(),
        timeout: step.timeout,
        what: What::Http(HttpCall {
            method: http.spec.method.unwrap_or_default().name().to_owned(),
            url: http.url.render(&scope)?,
            headers,
            body: http.body.as_ref().map(|template| template.render(&scope)).transpose()?,
            expect_status: expected.filter_map(|status| u16::try_from(*status).ok()).collect(),
        }),
    }))
}
