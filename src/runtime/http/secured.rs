//! A listener with TLS. Handshakes take place beside each other, within the limits of their connections.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use tokio::{sync::mpsc, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::AbortOnDropHandle;

use super::{
    certificate::Certificate,
    listener::{Awaited, Bounded, Connection},
};

type Secure = Awaited<TlsStream<Connection>>;

/// Connections whose handshake is complete.
pub(super) struct Secured {
    connections: mpsc::Receiver<(Secure, SocketAddr)>,
    address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl Secured {
    /// With a certificate.
    pub fn new(listener: Bounded, certificate: Certificate) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, connections) = mpsc::channel(1);
        let accepting = tokio::spawn(accept(listener, Arc::new(certificate), sender));
        Ok(Self { connections, address, _accepting: AbortOnDropHandle::new(accepting) })
    }
}

impl Listener for Secured {
    type Io = Secure;
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

async fn accept(mut listener: Bounded, certificate: Arc<Certificate>, connections: mpsc::Sender<(Secure, SocketAddr)>) {
    loop {
        let (stream, peer) = listener.next().await;
        let (state, limit) = (stream.state(), listener.limits.headers);
        let (certificate, connections) = (Arc::clone(&certificate), connections.clone());
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(certificate.config().await);
            match timeout(limit, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(connections.send((Awaited::new(stream, state, limit), peer)).await),
                Ok(Err(error)) => tracing::debug!(%peer, %error, "connection refused"),
                Err(_) => tracing::debug!(%peer, "connection refused: no TLS handshake in time"),
            }
        });
    }
}
