//! A request as it was read for a decision: read *(I/O)* -> verified *(pure)*.
//!
//! **Invariant:** only [`verify`] makes a [`Verified`], and forms and decisions can be made only of a [`Verified`].

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use signoff_api::{Workflow, conditions::GUARDED, names};

use crate::{
    problem::Problem,
    seen::{RunFound, RunNow, Seen},
    text::one_line,
    whole::Whole,
};

/// The texts of a request that are shown to its reader.
#[derive(Clone, Copy, Debug)]
pub enum Texts<'t> {
    /// The texts that the request itself holds. The client shows which of them are cut before the reader decides.
    OfRequest,
    /// The whole texts, or the reason why a text was not read.
    Whole(&'t Result<Whole, Problem>),
}

/// A request that can be decided, because everything about it is verified.
#[derive(Clone, Copy, Debug)]
pub struct Verified<'r> {
    seen: &'r Seen,
    run: &'r RunNow,
}

impl<'r> Verified<'r> {
    /// Returns the request.
    #[must_use]
    pub fn seen(self) -> &'r Seen {
        self.seen
    }

    /// Returns the state of the request's run.
    #[must_use]
    pub fn run(self) -> &'r RunNow {
        self.run
    }
}

/// Returns a request if it can be decided: its digest is correct, its whole texts were read, and its run is guarded.
///
/// # Errors
/// The first problem that was found: of the request itself, then of its run. The run of a request that has ended is not
/// checked.
pub fn verify<'r>(seen: &'r Seen, run: &'r RunNow, texts: Texts<'_>) -> Result<Verified<'r>, Problem> {
    let whole = match texts {
        Texts::OfRequest => None,
        Texts::Whole(whole) => whole.as_ref().err(),
    };
    let request_problem = seen.digest_problem().or_else(|| whole.cloned());
    match request_problem.or_else(|| run_problem(seen, run)) {
        Some(problem) => Err(problem),
        None => Ok(Verified { seen, run }),
    }
}

fn run_problem(seen: &Seen, run: &RunNow) -> Option<Problem> {
    let status = seen.approval.status.as_ref();
    if status.is_some_and(|status| status.phase.is_end() || status.outcome.is_some()) {
        return None;
    }
    let workflow = &seen.approval.spec.request.workflow;
    let name = || one_line(&workflow.name, 253);
    match &run.found {
        RunFound::NoName => return Some(Problem::RunName),
        RunFound::Missing => return Some(Problem::RunMissing(name())),
        RunFound::Unread(why) => return Some(Problem::RunUnread { run: name(), why: why.clone() }),
        RunFound::There { uid } if *uid != workflow.uid => return Some(Problem::OtherRun(name())),
        RunFound::There { .. } => {}
    }
    let own = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let unguarded =
        run.conditions.iter().chain(own).find(|condition| condition.type_ == GUARDED && condition.status == "False");
    unguarded.map(|condition| Problem::Unguarded(one_line(&condition.message, 1024)))
}

/// Reads the state of a run. `workflow`: the name in the request. A text that is not the name of an object is not sent,
/// because it would be another path of the API server.
pub async fn run(client: &Client, namespace: &str, workflow: &str) -> RunNow {
    if !names::is_object(workflow) {
        return RunNow { found: RunFound::NoName, ..RunNow::default() };
    }
    let resource = ApiResource::erase::<Workflow>(&());
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    RunNow::answered(api.get(workflow).await)
}

#[cfg(test)]
#[path = "reading/tests.rs"]
mod tests;
