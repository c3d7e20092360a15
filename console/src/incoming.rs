//! Connections, of which there are never more than a few.
//!
//! Conserved: each open connection has a place. One too many finds itself closed, and so does one that does not say within [`PATIENCE`]
//! that it speaks HTTP/2; from then on HTTP/2's own pings find those that are gone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Sleep, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// How many may be connected at once.
const CONNECTIONS: usize = 16;
/// How long one may take to begin.
const PATIENCE: Duration = Duration::from_secs(5);
/// The preface of HTTP/2, and the head of the settings that follow it.
const BEGINNING: usize = 24 + 9;
/// How long nobody is accepted after that has failed: the system may have no more descriptors.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The connections that are taken.
pub(crate) fn connections(listener: TcpListener) -> ReceiverStream<io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let (taken, connections) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                sleep(BACK_OFF).await;
                continue;
            };
            let Ok(place) = places.clone().try_acquire_owned() else { continue };
            // Updates are whole when they are written.
            let _ = stream.set_nodelay(true);
            let begun = Begun { bytes: 0, until: Box::pin(sleep(PATIENCE)) };
            if taken.send(Ok(Connection { stream, _place: place, begun: Some(begun) })).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(connections)
}

/// A connection that has a place.
pub(crate) struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
    /// Until it has begun.
    begun: Option<Begun>,
}

struct Begun {
    bytes: usize,
    until: Pin<Box<Sleep>>,
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(begun) = &mut self.begun {
            begun.bytes += buf.filled().len() - before;
            if begun.bytes >= BEGINNING {
                self.begun = None;
            } else if read.is_pending() && begun.until.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
