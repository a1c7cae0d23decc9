//! A listener with TLS. Handshakes take place beside each other, within the limits of their connections.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::listener::{HeaderTimeoutStream, LimitedConnection, LimitedListener};
use crate::acceptor::TlsEndpoint;

type TlsConnection = HeaderTimeoutStream<TlsStream<LimitedConnection>>;

/// Connections whose handshake is complete.
pub(super) struct TlsListener {
    connections: mpsc::Receiver<(TlsConnection, SocketAddr)>,
    address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl TlsListener {
    /// With a certificate.
    pub fn new(listener: LimitedListener, certificate: TlsEndpoint) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, connections) = mpsc::channel(1);
        let accepting = tokio::spawn(accept(listener, Arc::new(certificate), sender));
        Ok(Self { connections, address, _accepting: AbortOnDropHandle::new(accepting) })
    }
}

impl Listener for TlsListener {
    type Io = TlsConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            // It ends with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

async fn accept(
    mut listener: LimitedListener,
    certificate: Arc<TlsEndpoint>,
    connections: mpsc::Sender<(TlsConnection, SocketAddr)>,
) {
    loop {
        let (stream, peer) = listener.next().await;
        let (state, limit) = (stream.state(), listener.limits.headers);
        let (certificate, connections) = (Arc::clone(&certificate), connections.clone());
        tokio::spawn(async move {
            match certificate.accept(stream, limit).await {
                Ok(stream) => drop(connections.send((HeaderTimeoutStream::new(stream, state, limit), peer)).await),
                Err(error) => tracing::debug!(%peer, %error, "connection refused"),
            }
        });
    }
}
