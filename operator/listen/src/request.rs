//! The body of a request, which must be whole in time.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

use crate::peers::{ConnectionProgress, CountGuard};

/// A body that ends with an error if it is not whole in time.
pub(crate) struct WholeBody {
    body: Incoming,
    deadline: Pin<Box<Sleep>>,
    /// The count of the connection, until the body is whole or its handler drops it.
    count: Option<CountGuard>,
    progress: Arc<ConnectionProgress>,
}

impl WholeBody {
    pub(crate) fn new(body: Incoming, within: Duration, progress: Arc<ConnectionProgress>) -> Self {
        let count = progress.take_count().filter(|_| !body.is_end_stream());
        Self { body, deadline: Box::pin(sleep(within)), count, progress }
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(None) => {
                this.count = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some(frame)) => {
                if this.body.is_end_stream() {
                    this.count = None;
                }
                Poll::Ready(Some(frame.map_err(Into::into)))
            }
            Poll::Pending => match this.deadline.as_mut().poll(context) {
                Poll::Ready(()) => {
                    this.progress.set_body_late();
                    let error =
                        io::Error::new(io::ErrorKind::TimedOut, "the body of the request was not whole in time");
                    Poll::Ready(Some(Err(error.into())))
                }
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
