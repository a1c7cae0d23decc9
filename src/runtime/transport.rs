//! Connections to one API server. Over HTTP/2 each carries many requests, so that a process with hundreds of watches needs a few
//! of them.
//!
//! An API server limits the streams of a connection, and a request beyond the limit waits until another one ends, which may be a
//! watch of minutes. So a connection gets fewer streams than that, and the next request opens another connection.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        self,
        connect::{Connection, HttpConnector},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use super::{
    kubeconfig::{address, cause},
    reload::ClientError,
};

/// Streams of a connection, watches among them. API servers allow 100 by default, and proxies in front of them as many.
const STREAMS: u32 = 40;
/// Bytes of a response that an API server may send before they are read.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same for all streams of a connection: a response that waits to be read delays no other.
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
/// Silence of a connection with streams after which it is checked.
const PING: Duration = Duration::from_secs(15);
/// Time limit of the answer. Without one the connection ends with all of its streams.
const PONG: Duration = Duration::from_secs(10);
/// Longest time to open a connection. Other requests wait for it.
const OPENING: Duration = Duration::from_secs(10);
/// How long a connection of HTTP/1.1 stays open without a request. A burst opens one for each request in flight, and a server or a
/// proxy may never close them.
const IDLE: Duration = Duration::from_secs(30);
/// How many connections are tried with a request that none of them has sent.
const ATTEMPTS: usize = 3;

/// A client without limits and user agent. It speaks HTTP/2 where the API server offers it, and HTTP/1.1 otherwise.
///
/// # Errors
/// The configuration names certificates, credentials or a proxy that cannot be used.
pub(super) fn transport(config: Config) -> Result<Client, ClientError> {
    transport_with(config, IDLE)
}

/// The same with another [`IDLE`].
fn transport_with(config: Config, idle: Duration) -> Result<Client, ClientError> {
    // kube-rs handles proxies, and replaces the certificates of plugins before they expire.
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        return plain_transport(config);
    }
    let refused = |text: String| ClientError::Config { server: address(&config.cluster_url), cause: text };
    let unusable = |error: kube::Error| refused(cause(&error));
    let mut connector =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config().map_err(unusable)?).https_or_http();
    if let Some(name) = config.tls_server_name.clone() {
        let name = ServerName::try_from(name).map_err(|error| refused(error.to_string()))?;
        connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // A small request would wait for the acknowledgement of the one before it.
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(connector.enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(Some(config.connect_timeout.unwrap_or(OPENING).min(OPENING)));
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(unusable)?)
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .service(HttpSender::new(config.cluster_url.clone(), connector, idle));
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// The same with HTTP/1.1 alone: a request that gets no answer takes its connection with it, and delays no other.
///
/// # Errors
/// As for [`transport`].
pub(super) fn plain_transport(config: Config) -> Result<Client, ClientError> {
    let server = config.cluster_url.clone();
    Client::try_from(config).map_err(|error| ClientError::Config { server: address(&server), cause: cause(&error) })
}

type ServerConnector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// Sends requests to one API server. Clones share its connections.
#[derive(Clone)]
struct HttpSender(Arc<SenderState>);

struct SenderState {
    server: Uri,
    connector: ServerConnector,
    /// The connections of HTTP/2.
    open: Mutex<Vec<StreamConnection>>,
    /// Held while one is being opened.
    opening: tokio::sync::Mutex<()>,
    /// For an API server without HTTP/2.
    plain: legacy::Client<ServerConnector, Body>,
    /// The API server does not offer HTTP/2.
    is_plain: AtomicBool,
}

/// A connection with many streams.
#[derive(Clone)]
struct StreamConnection {
    sender: SendRequest<Body>,
    /// Each stream has a clone.
    streams: Arc<()>,
}

/// Each connection ended before the request was sent.
#[derive(Debug, thiserror::Error)]
#[error("each connection to the API server ended before the request was sent")]
struct UnsentRequest;

impl HttpSender {
    fn new(server: Uri, connector: ServerConnector, idle: Duration) -> Self {
        let mut plain = legacy::Client::builder(TokioExecutor::new());
        // Without a timer idle connections are dropped by the next request alone.
        plain.pool_timer(TokioTimer::new()).pool_idle_timeout(idle);
        Self(Arc::new(SenderState {
            // HTTP/2 is negotiated with TLS.
            is_plain: AtomicBool::new(server.scheme_str() != Some("https")),
            plain: plain.build(connector.clone()),
            server,
            connector,
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }))
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<StreamBody>, BoxError> {
        for _ in 0..ATTEMPTS {
            let Some(StreamConnection { mut sender, streams }) = self.connection().await? else {
                let answer = self.0.plain.request(request).await?;
                return Ok(answer.map(|body| StreamBody { body, _stream: None }));
            };
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok(answer.map(|body| StreamBody { body, _stream: Some(streams) })),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        Err(UnsentRequest.into())
    }

    /// A connection with room for another stream; `None` if the API server does not offer HTTP/2.
    async fn connection(&self) -> Result<Option<StreamConnection>, BoxError> {
        let known = || self.with_room().map(Some).or_else(|| self.0.is_plain.load(Ordering::Relaxed).then_some(None));
        if let Some(known) = known() {
            return Ok(known);
        }
        // One at a time: it may have room for all that wait.
        let _opening = self.0.opening.lock().await;
        if let Some(known) = known() {
            return Ok(known);
        }
        let opened = self.open().await?;
        match &opened {
            Some(connection) => self.0.open.lock().push(connection.clone()),
            None => self.0.is_plain.store(true, Ordering::Relaxed),
        }
        Ok(opened)
    }

    /// The first connection with room, so that the last ones become idle and the API server closes them.
    fn with_room(&self) -> Option<StreamConnection> {
        let mut open = self.0.open.lock();
        open.retain(|connection| !connection.sender.is_closed());
        open.iter().find(|connection| connection.streams() < STREAMS as usize).cloned()
    }

    async fn open(&self) -> Result<Option<StreamConnection>, BoxError> {
        let io = self.0.connector.clone().oneshot(self.0.server.clone()).await?;
        if !io.connected().is_negotiated_h2() {
            return Ok(None);
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .handshake(io)
            .await?;
        let server = address(&self.0.server);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(server, %error, "connection to the API server ended");
            }
        });
        Ok(Some(StreamConnection { sender, streams: Arc::default() }))
    }
}

impl StreamConnection {
    fn streams(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }
}

impl Service<Request<Body>> for HttpSender {
    type Response = Response<StreamBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<StreamBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sender = self.clone();
        async move { sender.send(request).await }.boxed()
    }
}

/// The body of a response, which counts as a stream of its connection until it is dropped.
struct StreamBody {
    body: Incoming,
    _stream: Option<Arc<()>>,
}

impl HttpBody for StreamBody {
    type Data = <Incoming as HttpBody>::Data;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Self::Data>>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
