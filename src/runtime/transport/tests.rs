//! The transport and real servers with TLS, with HTTP/2 and without.

use std::{io, sync::atomic::AtomicUsize};

use axum::body::Body as Answer;
use futures::{
    future::{join_all, try_join_all},
    stream,
};
use http::Version;
use hyper::{server::conn, service::service_fn};
use hyper_util::rt::TokioIo;
use rstest::rstest;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    version::TLS13,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::limiter::is_watch;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server with TLS. Watches last until it drops their connection.
struct TlsServer {
    config: Config,
    opened: Arc<AtomicUsize>,
    /// Connections that are open.
    open: tokio::sync::watch::Sender<usize>,
    /// Ends all connections.
    end: tokio::sync::watch::Sender<()>,
    _task: AbortOnDropHandle<()>,
}

impl TlsServer {
    /// It offers these protocols, and takes twice as many streams in a connection as a client opens.
    async fn start(protocols: &[&str]) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[&TLS13]).unwrap().with_no_client_auth();
        let mut tls = builder.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        tls.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
        config.root_cert = Some(vec![made.cert.der().to_vec()]);
        let opened = Arc::new(AtomicUsize::new(0));
        let (open, _) = tokio::sync::watch::channel(0);
        let (end, ended) = tokio::sync::watch::channel(());
        let (acceptor, count, now) = (TlsAcceptor::from(Arc::new(tls)), Arc::clone(&opened), open.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                now.send_modify(|open| *open += 1);
                let (acceptor, mut ended, now) = (acceptor.clone(), ended.clone(), now.clone());
                connections.spawn(async move {
                    ended.mark_unchanged();
                    tokio::select! {
                        () = serve(acceptor, tcp) => {}
                        _ = ended.changed() => {}
                    }
                    now.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { config, opened, open, end, _task: AbortOnDropHandle::new(task) }
    }

    fn client(&self) -> Client {
        transport(self.config.clone()).unwrap()
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

async fn serve(acceptor: TlsAcceptor, tcp: TcpStream) {
    let Ok(stream) = acceptor.accept(tcp).await else { return };
    let is_multiplexed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    let _ = match is_multiplexed {
        true => {
            let mut builder = conn::http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(2 * STREAMS).serve_connection(io, service_fn(answer)).await
        }
        false => {
            let mut builder = conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).serve_connection(io, service_fn(answer)).await
        }
    };
}

/// The version of HTTP, and nothing more to a watch.
async fn answer(request: Request<Incoming>) -> io::Result<Response<Answer>> {
    let version = format!("{:?}", request.version());
    Ok(Response::new(match is_watch(request.uri()) {
        true => Answer::from_stream(stream::pending::<io::Result<String>>()),
        false => Answer::from(version),
    }))
}

async fn watch(client: &Client) -> kube::Result<Response<Body>> {
    client.send(Request::get("/api/v1/nodes?watch=true").body(Body::empty()).unwrap()).await
}

async fn version(client: &Client) -> kube::Result<String> {
    client.request_text(Request::get("/").body(Vec::new()).unwrap()).await
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.unwrap()
}

#[rstest]
#[case::it_is_offered(&["h2", "http/1.1"], Version::HTTP_2)]
#[case::it_is_not(&["http/1.1"], Version::HTTP_11)]
#[case::nothing_is_offered(&[], Version::HTTP_11)]
#[tokio::test]
async fn http_2_is_spoken_where_it_is_offered(#[case] protocols: &[&str], #[case] expected: Version) {
    let server = TlsServer::start(protocols).await;
    let client = server.client();
    for _ in 0..2 {
        assert_eq!(in_time(version(&client)).await.unwrap(), format!("{expected:?}"));
    }
}

#[tokio::test]
async fn requests_share_a_connection_and_none_waits_for_the_end_of_a_watch() {
    let server = TlsServer::start(&["h2"]).await;
    let client = server.client();
    let open = async |count: u32| in_time(try_join_all((0..count).map(|_| watch(&client)))).await.unwrap();
    let mut watches = open(STREAMS - 1).await;
    in_time(version(&client)).await.unwrap();
    assert_eq!(server.opened(), 1);
    watches.extend(open(STREAMS + 2).await);
    in_time(version(&client)).await.unwrap();
    assert_eq!(server.opened(), 3, "of {} streams", 2 * STREAMS + 2);

    drop(watches);
    let many = in_time(join_all((0..STREAMS).map(|_| version(&client)))).await;
    assert!(many.iter().all(Result::is_ok), "{many:?}");
    assert_eq!(server.opened(), 3);
}

/// A server that never closes a connection keeps none of a burst.
#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let server = TlsServer::start(&["http/1.1"]).await;
    let client = transport_with(server.config.clone(), Duration::from_millis(10)).unwrap();
    let many = in_time(join_all((0..STREAMS).map(|_| version(&client)))).await;
    assert!(many.iter().all(Result::is_ok), "{many:?}");
    in_time(server.open.subscribe().wait_for(|open| *open == 0)).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_ended_is_replaced() {
    let server = TlsServer::start(&["h2"]).await;
    let client = server.client();
    let watching = in_time(watch(&client)).await.unwrap();
    server.end.send_replace(());
    let ended = in_time(watching.into_body().collect_bytes()).await;
    assert!(ended.is_err(), "{ended:?}");
    // The first request after the end may have been sent before the client notices it.
    in_time(async { while version(&client).await.is_err() {} }).await;
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn a_server_that_is_away_is_an_error_with_its_cause() {
    let server = TlsServer::start(&["h2"]).await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut config = server.config.clone();
    config.cluster_url = format!("https://{free}").parse().unwrap();
    let client = transport(config).unwrap();
    let error = in_time(version(&client)).await.unwrap_err();
    assert!(cause(&error).starts_with("Connection refused"), "{error:?}");
}
