//! The wait between two transitions: for the first of a finished call, an answer of the handler, a deadline, or a
//! request to pause.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use signoff_api::{Decision, Moment};

use super::{
    error::Error,
    handler::Event,
    run::{DecisionError, Run, RunOutcome, earlier_of},
};
use signoff_executor::clock::wake_up;

/// The maximum number of invalid answers of a handler to one gate, as on a cluster.
const ATTEMPTS: u32 = 8;

/// A question that the handler has not answered yet.
struct OpenQuestion {
    name: String,
    attempt: u32,
    answer: BoxFuture<'static, Option<Decision>>,
}

/// The reason why a wait has ended.
enum WaitEnd {
    /// A call finished, or a deadline passed: the next transition handles it.
    Transition,
    Answer(Option<Box<Decision>>),
    Stop,
}

/// Makes transitions until the run has ended, or only decisions are left that the handler does not give.
pub(super) async fn drive(run: &mut Run) -> Result<RunOutcome, Error> {
    let mut declined = BTreeSet::new();
    let mut open_question: Option<OpenQuestion> = None;
    // The run can have ended when it was resumed. Another transition would not find the reason of the end.
    if let Some(end) = &run.end {
        return Ok(RunOutcome::Over(end.clone()));
    }
    loop {
        let stops = run.local.stop.requests();
        let is_pausing = stops > 0;
        run.stops = stops;
        let transition = match run.transition(is_pausing).await {
            Err(Error::Interrupted { .. }) => {
                run.commit_results().await?;
                // Calls in flight that must not be repeated are awaited once, without starting new ones.
                if stops == 0 && run.count_unrepeatable() > 0 {
                    continue;
                }
                return Ok(RunOutcome::Paused);
            }
            transition => transition?,
        };
        if let Some(end) = transition.end {
            return Ok(RunOutcome::Over(end));
        }
        if is_pausing {
            open_question = None;
            stop_repeatable_calls(run);
        } else {
            // A gate that a deadline decided meanwhile needs no answer.
            open_question = open_question.filter(|question| transition.pending.contains(&question.name));
            if open_question.is_none()
                && let Some(name) = Run::next_undeclined(&transition, &declined)
            {
                open_question = ask_handler(run, name, 1, None).await?;
            }
        }
        let waits = !is_pausing && (open_question.is_some() || transition.wake_at.is_some());
        if stops > 1 || (run.calls.is_empty() && !waits) {
            return Ok(RunOutcome::Paused);
        }
        if is_pausing {
            run.local.handler.happened(&Event::Finishing { calls: run.count_unrepeatable() });
        }
        let due = earlier_of(transition.wake_at, run.gates_wake_at).filter(|_| !is_pausing);
        match wait_for_end(run, &mut open_question, due, stops).await {
            WaitEnd::Transition | WaitEnd::Stop => {}
            WaitEnd::Answer(decision) => {
                let Some(OpenQuestion { name, attempt, .. }) = open_question.take() else { continue };
                match apply_answer(run, &name, decision.map(|decision| *decision)).await? {
                    AnswerResult::Taken => {}
                    AnswerResult::Declined => _ = declined.insert(name),
                    AnswerResult::Refused(_) if attempt >= ATTEMPTS => _ = declined.insert(name),
                    AnswerResult::Refused(why) => {
                        open_question = ask_handler(run, name, attempt + 1, Some(why)).await?
                    }
                }
            }
        }
    }
}

/// The result of an answer of the handler.
enum AnswerResult {
    /// The gate is decided.
    Taken,
    /// The handler is not asked about this gate again.
    Declined,
    /// The answer does not count, for this reason.
    Refused(String),
}

/// Applies an answer of the handler to a gate. `decision`: `None` if the handler declines.
async fn apply_answer(run: &mut Run, name: &str, decision: Option<Decision>) -> Result<AnswerResult, Error> {
    let Some(decision) = decision else { return Ok(AnswerResult::Declined) };
    let user = run.local.decider.clone();
    match run.decide(name, &user, decision).await {
        Err(DecisionError::Session(Error::Evaluation { why, .. })) => {
            Ok(AnswerResult::Refused(format!("{why}; give a shorter or simpler answer")))
        }
        Ok(super::run::DecisionOutcome::Decided) => Ok(AnswerResult::Taken),
        // Another person has to decide, or the run is asked to pause.
        Ok(super::run::DecisionOutcome::Needs { .. }) | Err(DecisionError::Session(Error::Interrupted { .. })) => {
            Ok(AnswerResult::Declined)
        }
        Err(DecisionError::Because(why)) => Ok(AnswerResult::Refused(why)),
        Err(DecisionError::Session(error)) => Err(error),
    }
}

/// Asks the handler about a gate, and returns the open question. `attempt`: the number of this answer, from 1.
/// `refused`: the reason why the last answer did not count.
async fn ask_handler(
    run: &Run,
    name: String,
    attempt: u32,
    refused: Option<String>,
) -> Result<Option<OpenQuestion>, Error> {
    let Some(question) = run.build_question(&name, refused).await? else { return Ok(None) };
    let handler = Arc::clone(&run.local.handler);
    Ok(Some(OpenQuestion { name, attempt, answer: Box::pin(async move { handler.answer(question).await }) }))
}

/// Waits for the first of a finished call, an answer, the time `due`, or a request to pause beyond `stops`. A finished
/// call becomes a fact for the next transition.
async fn wait_for_end(
    run: &mut Run,
    open_question: &mut Option<OpenQuestion>,
    due: Option<Moment>,
    stops: u8,
) -> WaitEnd {
    let (stop, now) = (run.local.stop.clone(), run.now().at);
    let answer = async {
        match open_question {
            Some(question) => question.answer.as_mut().await,
            None => std::future::pending().await,
        }
    };
    let time = async {
        match due {
            Some(due) => tokio::time::sleep_until(wake_up(due, now)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // Finished calls are recorded before anything is stopped or answered.
        biased;
        Some(ended) = run.calls.join_next() => {
            // A call that was stopped on purpose ends with an error, and is no longer in flight.
            if let Ok((key, fact)) = ended {
                run.calls_in_flight.finish(key, fact);
            }
            WaitEnd::Transition
        }
        () = stop.wait_beyond(stops) => WaitEnd::Stop,
        decision = answer => WaitEnd::Answer(decision.map(Box::new)),
        () = time => WaitEnd::Transition,
    }
}

/// Stops the calls that may be repeated: they are repeated when the run is resumed.
fn stop_repeatable_calls(run: &mut Run) {
    run.calls_in_flight.retain(|(task, idempotent)| {
        if *idempotent {
            task.abort();
        }
        !*idempotent
    });
}
