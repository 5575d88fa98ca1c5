//! The bytes of a connection whose peer must send heads and read answers in time.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

use crate::{Limits, peers::ConnectionProgress};

/// The number of bytes that a peer must read of an answer within [`Limits::answer`].
const MIN_READ_BYTES: usize = 16 * 1024;

/// The size of the buffer in which the system keeps unread bytes of an answer, in bytes. The system doubles this
/// number. With a larger buffer it takes minutes until a peer that reads slowly or not at all is noticed.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// A connection that ends with an error if its peer is late.
pub(crate) struct TimedStream {
    stream: TcpStream,
    progress: Arc<ConnectionProgress>,
    limits: Limits,
    head: Head,
    /// While an answer waits to be read: the timer, and the number of bytes that must still be read before it fires.
    unread: Option<(Pin<Box<Sleep>>, usize)>,
}

/// The head that the connection waits for.
struct Head {
    /// The number of the head, from 1.
    number: u64,
    /// Whether a part of the head has arrived.
    is_begun: bool,
    deadline: Pin<Box<Sleep>>,
}

impl TimedStream {
    pub(crate) fn new(stream: TcpStream, progress: Arc<ConnectionProgress>, limits: Limits) -> Self {
        if let Err(error) = set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES) {
            tracing::debug!(%error, "the buffer of a connection cannot be bounded");
        }
        let head = Head { number: 1, is_begun: false, deadline: Box::pin(sleep(limits.head)) };
        Self { stream, progress, limits, head, unread: None }
    }

    /// Fails if the head that the connection waits for is late, and answers a head that has begun with status 408.
    /// Starts the time of each further head. `has_read`: whether bytes have just arrived.
    fn poll_head(&mut self, context: &mut Context<'_>, has_read: bool) -> io::Result<()> {
        let Some(number) = self.progress.awaited_head() else { return Ok(()) };
        let (head, now) = (&mut self.head, Instant::now());
        // The next head begins within the time of rest.
        if number != head.number {
            (head.number, head.is_begun) = (number, false);
            head.deadline.as_mut().reset(now + self.limits.rest);
        }
        if has_read && !head.is_begun {
            head.is_begun = true;
            // The time of the first head began when the connection opened.
            if number > 1 {
                head.deadline.as_mut().reset(now + self.limits.head);
            }
        }
        // An unread answer has its own time.
        if self.unread.is_some() || head.deadline.as_mut().poll(context).is_pending() {
            return Ok(());
        }
        if head.is_begun {
            let within = self.limits.head;
            let message = format!("the head of the request was not whole within {within:?}\n");
            let answer = format!(
                "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{message}",
                message.len()
            );
            // A peer that does not read gets no answer.
            let _ = self.stream.try_write(answer.as_bytes());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the head of a request was not whole in time"))
    }

    /// Returns the outcome of a write, or an error if the peer reads less than [`MIN_READ_BYTES`] in time.
    fn poll_unread(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.unread = self.unread.take().and_then(|(timer, left)| Some((timer, left.checked_sub(bytes)?)));
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let within = self.limits.answer;
                let (timer, _) = self.unread.get_or_insert_with(|| (Box::pin(sleep(within)), MIN_READ_BYTES));
                ready!(timer.as_mut().poll(context));
                // The system drops the bytes that the peer has not read.
                let _ = self.stream.set_zero_linger();
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "an answer was not read in time")))
            }
        }
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(_)) = read {
            return read;
        }
        let has_read = buffer.filled().len() > before;
        let in_time = self.poll_head(context, has_read);
        if read.is_pending() {
            in_time?;
        }
        read
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_unread(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.poll_unread(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Flushes the stream. If an answer was unread until now, starts the time for the next request.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unread.take().is_some() {
            self.head.number = 0;
            self.poll_head(context, false)?;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
