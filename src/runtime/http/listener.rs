//! A listener with few connections at a time, none of which lives long: descriptors are needed for API servers.

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

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// At the same time; the next ones wait until they are accepted.
    pub connections: usize,
    /// From when it is accepted until its answer is read.
    pub lifetime: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 64, lifetime: Duration::from_secs(15) }
    }
}

/// See the module.
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
        // Errors are of the connection, or pass when descriptors are free again: axum's listener waits for that.
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        (Connection { stream, deadline: Box::pin(sleep(self.lifetime)), _slot: slot }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that breaks off at its deadline.
pub(super) struct Connection {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// What the stream says, or that time is up.
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
