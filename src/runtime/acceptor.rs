//! TLS of a server, with a certificate in files that are read again when they change.

use std::{error::Error, io, path::PathBuf, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::spawn_blocking,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    objects::chain,
    watched::{FileFingerprints, WatchedValue},
};

/// A certificate in use.
pub struct TlsEndpoint {
    watched: WatchedValue<(Arc<ServerConfig>, FileFingerprints)>,
    load: Arc<dyn Fn() -> Result<ServerConfig, String> + Send + Sync>,
}

impl TlsEndpoint {
    /// Checks the files for a new connection, at most once in this time. Without files it does not change.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn watching<E: Error + 'static>(
        files: impl IntoIterator<Item = PathBuf>,
        every: Duration,
        load: impl Fn() -> Result<ServerConfig, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // Before they are read: a change in between is found by the first check.
        let fingerprints = FileFingerprints::read(files);
        let watched = WatchedValue::new((Arc::new(load()?), fingerprints), every);
        Ok(Self { watched, load: Arc::new(move || load().map_err(|error| chain(&error))) })
    }

    /// Completes a handshake with the certificate of today.
    ///
    /// # Errors
    /// The client refuses it, has no certificate of the CA of clients, or does not end the handshake in time.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        limit: Duration,
    ) -> io::Result<TlsStream<S>> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake in time");
        let (config, _) = self.watched.current("TLS files", async |(_, files)| self.loaded(&files).await).await;
        timeout(limit, TlsAcceptor::from(config).accept(stream)).await.map_err(late)?
    }

    async fn loaded(&self, files: &FileFingerprints) -> Result<Option<(Arc<ServerConfig>, FileFingerprints)>, String> {
        let Some(files) = files.changed().await else { return Ok(None) };
        let load = Arc::clone(&self.load);
        let config = spawn_blocking(move || load()).await.map_err(|error| error.to_string())??;
        Ok(Some((Arc::new(config), files)))
    }
}
