//! Where a server listens: a Unix socket that only its user and perhaps its group can open, or TCP with TLS.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::stream;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{Semaphore, mpsc},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    address::ListenAddress,
    io::{self as connection, RpcStream},
    server::CatalogueService,
    tls::{TlsError, TlsFiles},
};
use crate::catalogue::DriverCatalogue;
use mcm_runtime::acceptor::TlsEndpoint;

/// How long calls may take after the signal to stop.
const GRACE: Duration = Duration::from_secs(20);
/// How long a TLS handshake may take, and how many there are at a time.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HANDSHAKES: usize = 64;
/// How often a client that is silent is pinged, and how long it has for its answer. Its calls are dropped then.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// Calls of one connection at a time.
const CALLS: u32 = 1_000;
/// Pause after a connection could not be accepted, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The address of a server, and its clients.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    pub listen: ListenAddress,
    /// The certificate of the server, and the CA of its clients.
    pub tls: TlsFiles,
    /// Clients on the network may connect without TLS, or without a certificate.
    pub is_insecure: bool,
    /// The group of a Unix socket may open it.
    pub has_group_access: bool,
}

/// A server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be had.
    #[error("listen on {listen}")]
    Bind {
        listen: ListenAddress,
        #[source]
        source: io::Error,
    },
    /// Another process listens there.
    #[error("listen on {0}: another process listens there already")]
    InUse(ListenAddress),
    /// It is a file of another kind.
    #[error("listen on {0}: the path exists and is not a socket; remove it")]
    NoSocket(ListenAddress),
    /// Credentials would travel unprotected.
    #[error(
        "listen on {0}: others on the network could read credentials: pass --cert-file, --key-file and --client-ca-file"
    )]
    NoTls(SocketAddr),
    /// Every client could call.
    #[error("listen on {0}: anyone on the network could call the driver: pass --client-ca-file")]
    NoClientCa(SocketAddr),
    /// The TLS files cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server broke off.
    #[error("serve {listen}")]
    Serve {
        listen: ListenAddress,
        #[source]
        source: tonic::transport::Error,
    },
}

enum DriverListener {
    Unix(UnixListener),
    Tcp(TcpListener, Option<Arc<TlsEndpoint>>),
}

/// The file of a socket, which is removed with its server. Another server may have replaced it.
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // It fails only if the file was already removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Serves drivers until `stop`, and calls in flight for a while longer. Sends the address to `started`.
///
/// # Errors
/// The address cannot be bound, or would be open to the network.
pub async fn serve(
    options: &ListenOptions,
    drivers: DriverCatalogue,
    started: impl FnOnce(&str),
    stop: &CancellationToken,
) -> Result<(), ListenError> {
    let (listener, address, _file) = bind(options).await?;
    let (connections, receiver) = mpsc::channel(16);
    let accepting = AbortOnDropHandle::new(tokio::spawn(accept(listener, connections)));
    let incoming = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|connection| (Ok::<RpcStream, io::Error>(connection), receiver))
    });
    started(&address);
    let serving = tonic::transport::Server::builder()
        .max_concurrent_streams(CALLS)
        .http2_keepalive_interval(Some(PING.0))
        .http2_keepalive_timeout(Some(PING.1))
        .add_service(CatalogueService::new_server(drivers))
        .serve_with_incoming_shutdown(incoming, stop.cancelled());
    let grace = async {
        stop.cancelled().await;
        drop(accepting);
        sleep(GRACE).await;
    };
    tokio::select! {
        outcome = serving => outcome.map_err(|source| ListenError::Serve { listen: options.listen.clone(), source }),
        () = grace => Ok(()),
    }
}

async fn bind(options: &ListenOptions) -> Result<(DriverListener, String, Option<SocketFile>), ListenError> {
    let ListenOptions { listen, tls, is_insecure, has_group_access } = options;
    let failed = |source| ListenError::Bind { listen: listen.clone(), source };
    match listen {
        ListenAddress::Unix(path) => {
            make_way(path, listen).await?;
            let (listener, file) = bind_unix(path, if *has_group_access { 0o660 } else { 0o600 }).map_err(failed)?;
            Ok((DriverListener::Unix(listener), listen.to_string(), Some(file)))
        }
        ListenAddress::Tcp(address) => {
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            let is_open = !address.ip().is_loopback() && !is_insecure;
            if tls.is_empty() {
                let plain = (DriverListener::Tcp(listener, None), format!("http://{address}"), None);
                return if is_open { Err(ListenError::NoTls(address)) } else { Ok(plain) };
            }
            if is_open && tls.ca.is_none() {
                return Err(ListenError::NoClientCa(address));
            }
            let files = tls.clone();
            let identity = TlsEndpoint::watching(tls.paths(), Duration::ZERO, move || files.server())?;
            Ok((DriverListener::Tcp(listener, Some(Arc::new(identity))), format!("https://{address}"), None))
        }
    }
}

/// Removes a socket that a killed process left behind.
async fn make_way(path: &Path, listen: &ListenAddress) -> Result<(), ListenError> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(found) if !found.file_type().is_socket() => Err(ListenError::NoSocket(listen.clone())),
        Ok(_) => match UnixStream::connect(path).await {
            Ok(_) => Err(ListenError::InUse(listen.clone())),
            Err(_) => Ok(()),
        },
    }
}

/// The socket has a temporary name until its permissions are set, so no client can open it earlier.
fn bind_unix(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    let hidden = path.with_extension(format!("{}.new", std::process::id()));
    let listener = UnixListener::bind(&hidden)?;
    let inode = fs::symlink_metadata(&hidden)?.ino();
    let unfinished = SocketFile { path: hidden.clone(), inode };
    fs::set_permissions(&hidden, fs::Permissions::from_mode(mode))?;
    fs::rename(&hidden, path)?;
    drop(unfinished);
    Ok((listener, SocketFile { path: path.to_owned(), inode }))
}

async fn accept(listener: DriverListener, connections: mpsc::Sender<RpcStream>) {
    match listener {
        DriverListener::Unix(listener) => loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(connections.send(RpcStream::new(stream)).await),
                Err(error) => not_accepted(&error).await,
            }
        },
        DriverListener::Tcp(listener, identity) => {
            let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
            loop {
                // The semaphore is never closed.
                let slot = Arc::clone(&handshakes).acquire_owned().await.ok();
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        let (connections, identity) = (connections.clone(), identity.clone());
                        tokio::spawn(async move {
                            match shake_hands(stream, identity).await {
                                Ok(connection) => drop(connections.send(connection).await),
                                Err(error) => tracing::info!(%peer, %error, "connection refused"),
                            }
                            drop(slot);
                        });
                    }
                    Err(error) => not_accepted(&error).await,
                }
            }
        }
    }
}

async fn not_accepted(error: &io::Error) {
    tracing::warn!(%error, "connection not accepted");
    sleep(PAUSE).await;
}

async fn shake_hands(stream: TcpStream, identity: Option<Arc<TlsEndpoint>>) -> io::Result<RpcStream> {
    connection::keep_alive(&stream)?;
    match identity {
        None => Ok(RpcStream::new(stream)),
        Some(identity) => identity.accept(stream, HANDSHAKE).await.map(RpcStream::new),
    }
}
