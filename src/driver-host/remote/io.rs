//! A connection of any kind, for both sides.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tonic::transport::server::Connected;

use super::goaway::FrameReader;

trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

/// Probes of a TCP connection without traffic: the pause between two, and how many may be lost.
const PROBE: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// How long data may be under way without an acknowledgement. The kernel's own limit is about 15 minutes.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// Lets the kernel break a TCP connection whose peer vanished without a reset, while it is idle and while data is under way.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE).with_interval(PROBE).with_retries(PROBES))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}

/// A Unix socket, or TCP with or without TLS.
pub(super) struct RpcStream {
    stream: Box<dyn ReadWrite>,
    /// The frames that come in, and whether the other side permits pings.
    pings: Option<(FrameReader, Arc<AtomicBool>)>,
}

impl RpcStream {
    pub(super) fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { stream: Box::new(stream), pings: None }
    }

    /// One on which pings are sent. If the other side refuses them, `permits` becomes false.
    pub(super) fn pinged(self, permits: &Arc<AtomicBool>) -> Self {
        Self { pings: Some((FrameReader::default(), Arc::clone(permits))), ..self }
    }
}

impl Connected for RpcStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for RpcStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if let Some((frames, permits)) = &mut this.pings
            && frames.take(buffer.filled().get(before..).unwrap_or_default())
        {
            permits.store(false, Relaxed);
        }
        polled
    }
}

impl AsyncWrite for RpcStream {
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
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn the_kernel_detects_a_vanished_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        keep_alive(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert_eq!((socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap()), (PROBE, PROBE));
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
    }
}
