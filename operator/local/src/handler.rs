//! The interface that answers gates and receives events: a terminal, a test, a program.

use async_trait::async_trait;
use signoff_api::{
    Approval, ApprovalRequest, Decision,
    announce::{Announcement, Listener, Sentence, TypedEvent},
    journal::StepRecord,
    occurrence::GateEvent,
};

/// A question to a handler.
#[derive(Clone, Debug)]
pub struct GateQuestion {
    /// The open Approval, with the votes it has.
    pub approval: Approval,
    /// The whole context where the request shows only its beginning.
    pub context: Option<String>,
    /// The whole of what is reviewed where the request shows only its beginning.
    pub reviewed: Option<String>,
    /// All of what is sent where the request shows only its beginning.
    pub sent: Option<String>,
    /// The text before each edit of what is reviewed, in their order.
    pub originals: Vec<Result<String, String>>,
    /// The reason why the handler's last decision on this Approval was refused; the gate is unchanged.
    pub refused: Option<String>,
}

impl GateQuestion {
    /// The request of the gate.
    #[must_use]
    pub fn request(&self) -> &ApprovalRequest {
        &self.approval.spec.request
    }
}

/// Answers gates. A closure from a request to a decision is a handler too.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Decides about a gate at once, or returns none: then the run pauses as soon as nothing else is left to do.
    ///
    /// Dropped without an answer where the gate's time is up meanwhile.
    async fn answer(&self, asked: GateQuestion) -> Option<Decision>;

    /// A gate was decided, by whomever, and the run goes on from it. `approval.status.outcome` says what came of it.
    fn resumed(&self, approval: &Approval) {
        let _ = approval;
    }

    /// Something happened.
    fn happened(&self, event: &Event<'_>) {
        let _ = event;
    }
}

#[async_trait]
impl<F> Handler for F
where
    F: Fn(&ApprovalRequest) -> Option<Decision> + Send + Sync,
{
    async fn answer(&self, asked: GateQuestion) -> Option<Decision> {
        // A closure would say the same again.
        if asked.refused.is_some() { None } else { self(asked.request()) }
    }
}

#[async_trait]
impl<H: Handler + ?Sized> Handler for std::sync::Arc<H> {
    async fn answer(&self, asked: GateQuestion) -> Option<Decision> {
        (**self).answer(asked).await
    }

    fn resumed(&self, approval: &Approval) {
        (**self).resumed(approval);
    }

    fn happened(&self, event: &Event<'_>) {
        (**self).happened(event);
    }
}

/// A notification to the handler.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An activity began.
    Began(&'a StepRecord),
    /// An activity ended.
    StepEnded(&'a StepRecord),
    /// A gate asks people.
    Asks(&'a Approval),
    /// Something about an open Approval, such as an escalation.
    Said(&'a Approval, &'a Sentence<'a>),
    /// A decision was recorded, and the gate takes more of them.
    VoteCounted {
        /// The Approval with that decision.
        approval: &'a Approval,
        /// The user who decided.
        user: &'a str,
    },
    /// The run was asked to pause and waits for the end of calls that must not be repeated.
    Finishing {
        /// The number of them.
        calls: usize,
    },
}

/// Hands announcements about one gate to the handler.
pub(super) struct GateListener<'a> {
    pub(super) handler: &'a dyn Handler,
    pub(super) approval: &'a Approval,
}

impl Listener for GateListener<'_> {
    fn on_announcement(&self, announcement: &Announcement<'_>) {
        let event = match &announcement.event {
            Some(TypedEvent::Gate(gate)) => Some(gate.event),
            Some(TypedEvent::Run(_)) | None => None,
        };
        match event {
            Some(GateEvent::Asked) => self.handler.happened(&Event::Asks(self.approval)),
            Some(GateEvent::Taken(_)) => self.handler.resumed(self.approval),
            Some(
                GateEvent::Reminded
                | GateEvent::Escalated
                | GateEvent::Decided(_)
                | GateEvent::Superseded
                | GateEvent::Expired,
            )
            | None => {
                if let Some(sentence) = &announcement.sentence {
                    self.handler.happened(&Event::Said(self.approval, sentence));
                }
            }
        }
    }
}

/// Answers nothing: every gate pauses the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause;

#[async_trait]
impl Handler for Pause {
    async fn answer(&self, _: GateQuestion) -> Option<Decision> {
        None
    }
}
