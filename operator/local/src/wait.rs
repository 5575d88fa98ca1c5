//! The wait between two transitions: for the first of a finished call, an answer of the handler, a deadline, or a
//! request to pause.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use signoff_api::{Decision, Moment};

use super::{
    error::Error,
    handler::Event,
    run::{DecisionError, Run, RunOutcome, earlier},
};
use signoff_executor::clock::wake_up;

/// The maximum number of invalid answers of a handler to one gate, as on a cluster.
const ATTEMPTS: u32 = 8;

/// A question that the handler has not answered yet.
struct Asking {
    name: String,
    attempt: u32,
    answer: BoxFuture<'static, Option<Decision>>,
}

enum News {
    /// A call finished, or a deadline passed: the next transition handles it.
    Turn,
    Answer(Option<Box<Decision>>),
    Stop,
}

pub(super) async fn go(run: &mut Run) -> Result<RunOutcome, Error> {
    let mut declined = BTreeSet::new();
    let mut asking: Option<Asking> = None;
    // The run can have ended when it was resumed. Another transition would not find the reason of the end.
    if let Some(end) = &run.end {
        return Ok(RunOutcome::Over(end.clone()));
    }
    loop {
        let stops = run.local.stop.asked();
        let held = stops > 0;
        run.stops = stops;
        let transition = match run.transition(held).await {
            Err(Error::Interrupted { .. }) => {
                run.keep_results().await?;
                // Calls in flight that must not be repeated are awaited once, without starting new ones.
                if stops == 0 && run.unrepeatable() > 0 {
                    continue;
                }
                return Ok(RunOutcome::Paused);
            }
            transition => transition?,
        };
        if let Some(end) = transition.end {
            return Ok(RunOutcome::Over(end));
        }
        if held {
            asking = None;
            give_up_what_can_be_repeated(run);
        } else {
            // A gate that a deadline decided meanwhile needs no answer.
            asking = asking.filter(|asking| transition.pending.contains(&asking.name));
            if asking.is_none()
                && let Some(name) = Run::undeclined(&transition, &declined)
            {
                asking = ask(run, name, 1, None).await?;
            }
        }
        let waits = !held && (asking.is_some() || transition.wake_at.is_some());
        if stops > 1 || (run.calls.is_empty() && !waits) {
            return Ok(RunOutcome::Paused);
        }
        if held {
            run.local.handler.happened(&Event::Finishing { calls: run.unrepeatable() });
        }
        let due = earlier(transition.wake_at, run.gates_wake_at).filter(|_| !held);
        match news(run, &mut asking, due, stops).await {
            News::Turn | News::Stop => {}
            News::Answer(decision) => {
                let Some(Asking { name, attempt, .. }) = asking.take() else { continue };
                match decide(run, &name, decision.map(|decision| *decision)).await? {
                    Answered::Taken => {}
                    Answered::Declined => _ = declined.insert(name),
                    Answered::Refused(_) if attempt >= ATTEMPTS => _ = declined.insert(name),
                    Answered::Refused(why) => asking = ask(run, name, attempt + 1, Some(why)).await?,
                }
            }
        }
    }
}

enum Answered {
    Taken,
    Declined,
    Refused(String),
}

async fn decide(run: &mut Run, name: &str, decision: Option<Decision>) -> Result<Answered, Error> {
    let Some(decision) = decision else { return Ok(Answered::Declined) };
    let user = run.local.decider.clone();
    match run.decide(name, &user, decision).await {
        Err(DecisionError::Session(Error::Evaluation { why, .. })) => {
            Ok(Answered::Refused(format!("{why}; give a shorter or simpler answer")))
        }
        Ok(super::run::DecisionOutcome::Decided) => Ok(Answered::Taken),
        // Another person has to decide, or the run is asked to pause.
        Ok(super::run::DecisionOutcome::Needs { .. }) | Err(DecisionError::Session(Error::Interrupted { .. })) => {
            Ok(Answered::Declined)
        }
        Err(DecisionError::Because(why)) => Ok(Answered::Refused(why)),
        Err(DecisionError::Session(error)) => Err(error),
    }
}

async fn ask(run: &Run, name: String, attempt: u32, refused: Option<String>) -> Result<Option<Asking>, Error> {
    let Some(asked) = run.question(&name, refused).await? else { return Ok(None) };
    let handler = Arc::clone(&run.local.handler);
    Ok(Some(Asking { name, attempt, answer: Box::pin(async move { handler.answer(asked).await }) }))
}

async fn news(run: &mut Run, asking: &mut Option<Asking>, due: Option<Moment>, stops: u8) -> News {
    let (stop, now) = (run.local.stop.clone(), run.now().at);
    let answer = async {
        match asking {
            Some(asking) => asking.answer.as_mut().await,
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
            News::Turn
        }
        () = stop.beyond(stops) => News::Stop,
        decision = answer => News::Answer(decision.map(Box::new)),
        () = time => News::Turn,
    }
}

/// Stops the calls that may be repeated: they are repeated when the run is resumed.
fn give_up_what_can_be_repeated(run: &mut Run) {
    run.calls_in_flight.retain(|(task, idempotent)| {
        if *idempotent {
            task.abort();
        }
        !*idempotent
    });
}
