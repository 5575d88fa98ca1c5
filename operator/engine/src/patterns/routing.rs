//! `routing`: an agent chooses a chain -> people can review the choice -> the chain runs.

use serde_json::json;
use signoff_api::Verdict;
use signoff_expr::json as extract;

use super::{PLANS_AGAIN, PatternResult, assert_exact, chain, origins_of_answer};

use crate::{
    plan::PlannedRouting,
    replay::{
        origins::Origins,
        run::Run,
        scope::{RecordNamespace, StepScope},
    },
    steps::{self, AnswerParser, EarlyEnd, StepResult, request::ReviewSubject},
};

pub(super) async fn run<'a>(run: &Run<'a>, routing: &'a PlannedRouting) -> Result<PatternResult<'a>, EarlyEnd> {
    let first_steps = [&routing.router].into_iter().chain(&routing.review);
    let router_scope = StepScope::of("", RecordNamespace::Nothing, first_steps);
    let (chosen, answer, origins) = choose(run, routing, &router_scope).await?;
    let Some(route) = routing.routes.iter().find(|route| route.name == chosen) else {
        return Err(EarlyEnd::Failed(format!("there is no route {chosen}")));
    };
    let prefix = format!("{}/", route.name);
    let (conversation, feedback_from) = (String::new(), Some(String::new()));
    let also_visible = routing.review.iter().collect();
    let step_scope = StepScope {
        conversation,
        feedback_from,
        also_visible,
        ..StepScope::of(&prefix, RecordNamespace::Steps, &route.steps)
    };
    let step_scope = with_router(&step_scope, chosen, answer, origins);
    chain::run_steps(run, &step_scope, &route.steps).await?;
    Ok(PatternResult::from_newest_response(step_scope))
}

/// Returns the scope with `router`: the chosen route and the answer of the router.
fn with_router<'a>(step_scope: &StepScope<'a>, chosen: String, answer: String, origins: Origins) -> StepScope<'a> {
    step_scope.with_vars(move |run, wanted, _, scope| {
        if wanted.root("router") {
            run.origins.note(&origins);
        }
        scope.set("router", json!({"chosen_route": chosen, "response": answer}));
        Ok(())
    })
}

/// Asks the router for a route and people to review the route, until it is accepted. Returns the name of the route with
/// the edits of people, the answer of the router, and the origins of both.
async fn choose<'a>(
    run: &Run<'a>,
    routing: &'a PlannedRouting,
    step_scope: &StepScope<'a>,
) -> Result<(String, String, Origins), EarlyEnd> {
    let names: Vec<&str> = routing.routes.iter().map(|route| route.name.as_str()).collect();
    let parse = |text: &str| parse_route(text, &names).map(drop);
    loop {
        let parser = AnswerParser { parse: &parse, retries: routing.max_retries };
        let answer = match steps::perform(run, step_scope, &routing.router, ".router", Some(&parser)).await? {
            StepResult::Answered(answer) => answer,
            _ => return Err(EarlyEnd::Failed("the router was skipped, so no route was chosen".to_owned())),
        };
        let chosen = steps::parse_settled_answer(run, || parse_route(&answer, &names)).map_err(EarlyEnd::Failed)?;
        let origins = origins_of_answer(run, step_scope, &routing.router, ".router").await?;
        let Some(review) = &routing.review else { return Ok((chosen, answer, origins)) };
        let shown = ReviewSubject::of(".router", &chosen).made_of(origins.clone());
        let review_scope = with_router(step_scope, chosen.clone(), answer.clone(), origins.clone());
        let decided = steps::decide(run, &review_scope, review, ".review", &|_| Ok(Some(shown.clone()))).await?;
        match steps::verdict_or_end(run, &decided, &PLANS_AGAIN)? {
            Verdict::Modify => {
                let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
                let edited = parameters.0.get("route").and_then(|route| route.as_str()).unwrap_or_default();
                let edit = decided.edit_of(run, &chosen).await?;
                return Ok((edited.to_owned(), answer, Origins::of(edit).and(&origins)));
            }
            // The router receives the feedback, and chooses again.
            verdict if PLANS_AGAIN.contains(&verdict) => {}
            _ => return Ok((chosen, answer, origins)),
        }
    }
}

/// Returns the route in `names` that an answer names. `_` in an answer can stand for `-`.
fn parse_route(text: &str, names: &[&str]) -> Result<String, String> {
    let object = extract::extract_where(text, |value| value.get("route").is_some());
    let Some(object) = object else { return Err("there is no JSON object with a route in it".to_owned()) };
    match object.get("route").and_then(|route| route.as_str()) {
        Some(name) if names.contains(&name) => Ok(name.to_owned()),
        // Names have no `_`, but models write it often.
        Some(name) if names.contains(&name.replace('_', "-").as_str()) => Ok(name.replace('_', "-")),
        _ => {
            assert_exact(&object["route"], "/route")?;
            Err(format!("{} is none of the routes {}", object["route"], names.join(", ")))
        }
    }
}
