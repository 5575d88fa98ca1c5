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
    /// The open Approval with its votes.
    pub approval: Approval,
    /// The whole context, if the request has only its beginning.
    pub context: Option<String>,
    /// The whole reviewed text, if the request has only its beginning.
    pub reviewed: Option<String>,
    /// The whole of the sent fields, if the request has only their beginning.
    pub sent: Option<String>,
    /// The text before each edit of the reviewed text, in order.
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

/// The interface that answers gates. A closure from a request to a decision is a handler too.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Decides about a gate, or returns `None`: then the run pauses as soon as it can do nothing else.
    ///
    /// The future is dropped if the deadline of the gate passes meanwhile.
    async fn answer(&self, question: GateQuestion) -> Option<Decision>;

    /// Notifies of a gate that was decided by people or by a deadline, and of the run's continuation. The outcome is
    /// `approval.status.outcome`.
    fn resumed(&self, approval: &Approval) {
        let _ = approval;
    }

    /// Notifies of an event.
    fn happened(&self, event: &Event<'_>) {
        let _ = event;
    }
}

#[async_trait]
impl<F> Handler for F
where
    F: Fn(&ApprovalRequest) -> Option<Decision> + Send + Sync,
{
    async fn answer(&self, question: GateQuestion) -> Option<Decision> {
        // A closure would return the same decision again.
        if question.refused.is_some() { None } else { self(question.request()) }
    }
}

#[async_trait]
impl<H: Handler + ?Sized> Handler for std::sync::Arc<H> {
    async fn answer(&self, question: GateQuestion) -> Option<Decision> {
        (**self).answer(question).await
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
    /// An event of an open Approval, such as an escalation.
    Said(&'a Approval, &'a Sentence<'a>),
    /// A decision was recorded, and the gate needs more of them.
    VoteCounted {
        /// The Approval with that decision.
        approval: &'a Approval,
        /// The user who decided.
        user: &'a str,
    },
    /// The run was asked to pause, and waits for calls that must not be repeated.
    Finishing {
        /// The number of those calls.
        calls: usize,
    },
}

/// A listener that passes the announcements about one gate to the handler.
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

/// A handler that answers nothing, so that every gate pauses the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause;

#[async_trait]
impl Handler for Pause {
    async fn answer(&self, _: GateQuestion) -> Option<Decision> {
        None
    }
}
