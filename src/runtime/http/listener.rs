//! A listener that limits the number and duration of connections, because file descriptors are needed for API servers.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Open at the same time; further ones wait to be accepted.
    pub connections: usize,
    /// From the accept to the end of the response.
    pub lifetime: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 64, lifetime: Duration::from_secs(15) }
    }
}

/// A listener with [`Limits`] on its connections.
pub(super) struct Bounded {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    lifetime: Duration,
}

impl Bounded {
    pub fn new(listener: TcpListener, limits: Limits) -> Self {
        Self { listener, slots: Arc::new(Semaphore::new(limits.connections)), lifetime: limits.lifetime }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The semaphore is never closed.
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
        // Errors concern one connection or pass when file descriptors are free again; axum's listener waits for that.
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        (Connection { stream, deadline: Box::pin(sleep(self.lifetime)), _slot: slot }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that is closed at its deadline.
pub(super) struct Connection {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// The result of the stream, or a timeout.
    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        poll(Pin::new(&mut self.stream), cx)
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.within(cx, |stream, cx| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.within(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.within(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.within(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}
