//! A listener that limits the number and duration of connections, because file descriptors are needed for API servers.
//!
//! A connection is idle until the headers of its request have arrived. When there is no room, the oldest idle connection is
//! closed, so that clients that connect and send nothing keep no probe away.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::{Sleep, sleep},
};

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Open at the same time.
    pub connections: usize,
    /// The same of one IP address.
    pub per_peer: usize,
    /// From the accept, or the end of a TLS handshake, to the end of the headers.
    pub headers: Duration,
    /// From the accept to the end of the response.
    pub lifetime: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let (headers, lifetime) = (Duration::from_secs(2), Duration::from_secs(15));
        Self { connections: 64, per_peer: 32, headers, lifetime }
    }
}

impl ConnectionLimits {
    /// For clients on this host that keep connections, with watches that last for hours.
    pub const WATCHES: Self =
        Self { connections: 512, per_peer: 512, headers: Duration::from_secs(10), lifetime: Duration::from_hours(24) };
}

/// A listener with [`Limits`] on its connections.
pub struct LimitedListener {
    listener: TcpListener,
    table: Arc<ConnectionTable>,
    pub limits: ConnectionLimits,
}

impl LimitedListener {
    pub fn new(listener: TcpListener, limits: ConnectionLimits) -> Self {
        Self { listener, table: Arc::default(), limits }
    }

    /// Accepts a connection, without waiting for its headers.
    pub async fn next(&mut self) -> (LimitedConnection, SocketAddr) {
        loop {
            // Errors concern one connection or pass when file descriptors are free again; axum's listener waits for that.
            let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
            if let Some(place) = self.place(address.ip()).await {
                let connection = LimitedConnection { stream, deadline: Box::pin(sleep(self.limits.lifetime)), place };
                return (connection, address);
            }
            tracing::debug!(%address, "connection refused: its address has too many");
        }
    }

    /// Waits while all connections have a request; `None` if there are too many of this address.
    async fn place(&self, peer: IpAddr) -> Option<ConnectionSlot> {
        loop {
            let freed = self.table.freed.notified();
            match self.table.admit(peer, &self.limits) {
                ConnectionAdmission::Place(state) => {
                    return Some(ConnectionSlot { state, table: Arc::clone(&self.table) });
                }
                ConnectionAdmission::Refused => return None,
                ConnectionAdmission::Full => freed.await,
            }
        }
    }
}

impl axum::serve::Listener for LimitedListener {
    type Io = HeaderTimeoutStream<LimitedConnection>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (HeaderTimeoutStream<LimitedConnection>, SocketAddr) {
        let (connection, address) = self.next().await;
        let state = connection.state();
        (HeaderTimeoutStream::new(connection, state, self.limits.headers), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The open connections, in the order of their arrival.
#[derive(Default)]
struct ConnectionTable {
    connections: Mutex<OpenConnections>,
    freed: Notify,
}

#[derive(Default)]
struct OpenConnections {
    arrivals: u64,
    open: BTreeMap<u64, Arc<ConnectionState>>,
}

/// State of one connection.
pub struct ConnectionState {
    arrival: u64,
    peer: IpAddr,
    /// Its headers have arrived.
    has_request: AtomicBool,
    is_closed: AtomicBool,
    waker: AtomicWaker,
}

enum ConnectionAdmission {
    Place(Arc<ConnectionState>),
    /// Every connection has a request.
    Full,
    /// Every connection of this address has a request.
    Refused,
}

impl ConnectionTable {
    fn admit(&self, peer: IpAddr, limits: &ConnectionLimits) -> ConnectionAdmission {
        let mut connections = self.connections.lock();
        let of_peer = connections.open.values().filter(|state| state.peer == peer).count();
        if of_peer >= limits.per_peer && !connections.close_oldest(|state| state.peer == peer) {
            return ConnectionAdmission::Refused;
        }
        if connections.open.len() >= limits.connections && !connections.close_oldest(|_| true) {
            return ConnectionAdmission::Full;
        }
        let arrival = connections.arrivals;
        connections.arrivals += 1;
        let (has_request, is_closed, waker) = Default::default();
        let state = Arc::new(ConnectionState { arrival, peer, has_request, is_closed, waker });
        connections.open.insert(arrival, Arc::clone(&state));
        ConnectionAdmission::Place(state)
    }
}

impl OpenConnections {
    /// Closes the oldest idle of these connections; false if none is idle.
    fn close_oldest(&mut self, is_eligible: impl Fn(&ConnectionState) -> bool) -> bool {
        let idle = |state: &&Arc<ConnectionState>| !state.has_request.load(Ordering::Acquire) && is_eligible(state);
        let Some(oldest) = self.open.values().find(idle).cloned() else { return false };
        self.open.remove(&oldest.arrival);
        oldest.is_closed.store(true, Ordering::Release);
        oldest.waker.wake();
        true
    }
}

/// The place of a connection, until it is dropped.
struct ConnectionSlot {
    state: Arc<ConnectionState>,
    table: Arc<ConnectionTable>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.table.connections.lock().open.remove(&self.state.arrival);
        self.table.freed.notify_one();
    }
}

/// A connection that is closed at its deadline, or to make room.
pub struct LimitedConnection {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    place: ConnectionSlot,
}

impl LimitedConnection {
    /// Shared with the table.
    pub fn state(&self) -> Arc<ConnectionState> {
        Arc::clone(&self.place.state)
    }

    /// The result of the stream, or a timeout.
    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.place.state.waker.register(cx.waker());
        let is_closed = self.place.state.is_closed.load(Ordering::Acquire);
        if is_closed || self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        poll(Pin::new(&mut self.stream), cx)
    }
}

impl AsyncRead for LimitedConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.within(cx, |stream, cx| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for LimitedConnection {
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

/// A stream of plain HTTP, whose headers have to arrive in time.
pub struct HeaderTimeoutStream<S> {
    stream: S,
    state: Arc<ConnectionState>,
    /// `None` once the headers have arrived.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes of the empty line at the end of the headers that have arrived.
    end: usize,
}

/// The end of the headers.
const END: &[u8] = b"\r\n\r\n";

impl<S> HeaderTimeoutStream<S> {
    pub fn new(stream: S, state: Arc<ConnectionState>, limit: Duration) -> Self {
        Self { stream, state, deadline: Some(Box::pin(sleep(limit))), end: 0 }
    }

    fn arrived(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let is_next = END.get(self.end) == Some(byte);
            self.end = if is_next { self.end + 1 } else { usize::from(*byte == b'\r') };
            if self.end == END.len() {
                self.deadline = None;
                self.state.has_request.store(true, Ordering::Release);
                return;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeaderTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(deadline) = &mut self.deadline else { return Pin::new(&mut self.stream).poll_read(cx, buffer) };
        if deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.arrived(buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeaderTimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        connections: 4,
        per_peer: 2,
        headers: Duration::from_secs(2),
        lifetime: Duration::from_secs(15),
    };

    fn admitted(table: &ConnectionTable, host: u8) -> Option<Arc<ConnectionState>> {
        match table.admit([10, 0, 0, host].into(), &LIMITS) {
            ConnectionAdmission::Place(state) => Some(state),
            ConnectionAdmission::Full | ConnectionAdmission::Refused => None,
        }
    }

    #[test]
    fn the_oldest_idle_connection_makes_room_first_of_the_same_address() {
        let table = ConnectionTable::default();
        let [first, _, busy, last] = [1, 2, 1, 1].map(|host| {
            let state = admitted(&table, host).unwrap();
            state.has_request.store(host == 1 && table.connections.lock().arrivals == 3, Ordering::Release);
            state
        });
        assert!(first.is_closed.load(Ordering::Acquire), "the address has two already");
        assert!(!busy.is_closed.load(Ordering::Acquire) && !last.is_closed.load(Ordering::Acquire));
        last.has_request.store(true, Ordering::Release);
        assert!(
            matches!(table.admit([10, 0, 0, 1].into(), &LIMITS), ConnectionAdmission::Refused),
            "both have a request"
        );

        let other = admitted(&table, 3).unwrap();
        other.has_request.store(true, Ordering::Release);
        let next = admitted(&table, 4).unwrap();
        assert_eq!(table.connections.lock().open.len(), 4, "the one of host 2 was closed");
        next.has_request.store(true, Ordering::Release);
        assert!(matches!(table.admit([10, 0, 0, 5].into(), &LIMITS), ConnectionAdmission::Full));
    }

    #[rstest]
    #[case::a_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true)]
    #[case::with_a_body("POST / HTTP/1.1\r\n\r\n{}", true)]
    #[case::after_a_return("\r\r\n\r\n", true)]
    #[case::half("GET / HTTP/1.1\r\nHost: a\r\n\r", false)]
    #[case::lines_alone("GET / HTTP/1.1\n\n", false)]
    #[case::broken_by_a_byte("\r\n \r\n", false)]
    #[tokio::test]
    async fn headers_end_with_an_empty_line_however_they_are_cut(#[case] sent: &str, #[case] expected: bool) {
        for size in 1..=sent.len() {
            let state = admitted(&ConnectionTable::default(), 1).unwrap();
            let mut stream = HeaderTimeoutStream::new(tokio::io::empty(), Arc::clone(&state), LIMITS.headers);
            sent.as_bytes().chunks(size).for_each(|bytes| stream.arrived(bytes));
            let has_request = state.has_request.load(Ordering::Acquire);
            assert_eq!((has_request, stream.deadline.is_none()), (expected, expected), "in pieces of {size}");
        }
    }
}
