//! A listener with TLS. Handshakes take place beside each other, within the limits of their connections.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use tokio::sync::mpsc;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::AbortOnDropHandle;

use super::{
    certificate::Certificate,
    listener::{Bounded, Connection},
};

/// Connections whose handshake is complete.
pub(super) struct Secured {
    connections: mpsc::Receiver<(TlsStream<Connection>, SocketAddr)>,
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
    type Io = TlsStream<Connection>;
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
    mut listener: Bounded,
    certificate: Arc<Certificate>,
    connections: mpsc::Sender<(TlsStream<Connection>, SocketAddr)>,
) {
    loop {
        let (stream, peer) = listener.accept().await;
        let (certificate, connections) = (Arc::clone(&certificate), connections.clone());
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(certificate.config().await);
            match acceptor.accept(stream).await {
                Ok(stream) => drop(connections.send((stream, peer)).await),
                Err(error) => tracing::debug!(%peer, %error, "connection refused"),
            }
        });
    }
}
