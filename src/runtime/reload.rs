//! Replaces the client of an API server when its kubeconfig files change, or before its client certificate expires.
//!
//! kube-rs reloads tokens from files and plugins. Client certificates, CAs and tokens inside a kubeconfig are built
//! into its client, so that client is replaced. Open watches stay with the old one until they end, after a few minutes
//! at most.

use std::{
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Request, Response, StatusCode, header::USER_AGENT};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, Config, client::Body};
use tokio::task::spawn_blocking;
use tower::{BoxError, Service};

use super::{
    body::{BoundedBody, ResponseLimits},
    kubeconfig::{ClusterConfig, address},
    objects::chain,
    panics::{self, PanicPlace},
    watched::WatchedValue,
};

/// How often the files are checked, by the next request.
const LOOK: Duration = Duration::from_secs(10);
/// How long before its expiry a certificate is replaced.
const RESERVE: SignedDuration = SignedDuration::from_secs(60);

/// A client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The user agent is invalid.
    #[error("cannot use {0:?} as user agent: only printable ASCII characters are allowed")]
    UserAgent(String),
    /// TLS, credentials or proxy.
    #[error("create a client for {server}: {cause}; check certificates, credentials and proxy in the kubeconfig")]
    Config {
        /// Address of the API server.
        server: String,
        /// The reason, as text.
        cause: String,
    },
}

/// Creates a client from a configuration.
type ClientFactory = Arc<dyn Fn(Config) -> Result<Client, ClientError> + Send + Sync>;
/// A client, and the configuration that it was created from.
type ClusterClient = (Client, Arc<ClusterConfig>);

/// The connections to an API server, which reload their credentials. Clones share them.
#[derive(Clone)]
pub struct ServerConnections(Arc<ReloadState>);

/// Connections that are open as long as a client uses them.
pub(super) struct WeakConnections(Weak<ReloadState>);

struct ReloadState {
    build: ClientFactory,
    watched: WatchedValue<ClusterClient>,
}

impl WeakConnections {
    /// `None` if no client uses them any more.
    pub fn upgrade(&self) -> Option<ServerConnections> {
        self.0.upgrade().map(ServerConnections)
    }
}

impl ServerConnections {
    /// # Errors
    /// The configuration names certificates, credentials or a proxy that cannot be used.
    pub(super) fn new(
        cluster: &ClusterConfig,
        build: impl Fn(Config) -> Result<Client, ClientError> + Send + Sync + 'static,
    ) -> Result<Self, ClientError> {
        Self::looking(cluster, build, LOOK)
    }

    fn looking(
        cluster: &ClusterConfig,
        build: impl Fn(Config) -> Result<Client, ClientError> + Send + Sync + 'static,
        every: Duration,
    ) -> Result<Self, ClientError> {
        let watched = WatchedValue::new((build(cluster.config.clone())?, Arc::new(cluster.clone())), every);
        Ok(Self(Arc::new(ReloadState { build: Arc::new(build), watched })))
    }

    pub(super) fn downgrade(&self) -> WeakConnections {
        WeakConnections(Arc::downgrade(&self.0))
    }

    /// Both are the same connections.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The configuration in use.
    pub fn cluster(&self) -> Arc<ClusterConfig> {
        self.0.watched.last().1
    }

    /// For the requests of one user agent, whose responses are limited.
    pub(super) fn within(&self, limits: ResponseLimits, agent: HeaderValue) -> ReloadingClient {
        ReloadingClient { connections: self.clone(), limits, agent }
    }

    /// The client for the next request. Checks the files from time to time, without a wait.
    fn client(&self) -> Client {
        let (client, cluster) = self.0.watched.last();
        if self.0.watched.is_due() {
            let (this, state) = (self.clone(), Arc::clone(&self.0));
            let what = format!("credentials or certificates of {}", address(&cluster.config.cluster_url));
            let load = async move |last| {
                let renewed =
                    panics::caught(PanicPlace::Task, || "a check of credentials".to_owned(), this.renewed(last));
                renewed.await.unwrap_or_else(|panicked| Err(panicked.to_string()))
            };
            tokio::spawn(async move { state.watched.current(&what, load).await });
        }
        client
    }

    async fn renewed(&self, (client, cluster): ClusterClient) -> Result<Option<ClusterClient>, String> {
        let is_expiring = client.valid_until().is_some_and(|end| end.duration_since(Timestamp::now()) <= RESERVE);
        let cluster = match cluster.reload().await.map_err(|error| chain(&error))? {
            Some(changed) => Arc::new(changed),
            None if is_expiring => cluster,
            None => return Ok(None),
        };
        let (build, config) = (Arc::clone(&self.0.build), cluster.config.clone());
        // A credential plugin may be slow.
        let built = spawn_blocking(move || build(config)).await.map_err(|error| error.to_string())?;
        built.map(|client| Some((client, cluster))).map_err(|error| chain(&error))
    }
}

/// Connections as one client uses them.
#[derive(Clone)]
pub(super) struct ReloadingClient {
    connections: ServerConnections,
    limits: ResponseLimits,
    agent: HeaderValue,
}

impl Service<Request<Body>> for ReloadingClient {
    type Response = Response<BoundedBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<BoundedBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { connections, limits, agent } = self.clone();
        request.headers_mut().insert(USER_AGENT, agent);
        async move {
            let uri = request.uri().clone();
            let answer = connections.client().send(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                // The next request checks the files.
                connections.0.watched.expire();
            }
            Ok(BoundedBody::answer(answer, &uri, limits))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use axum::{Router, http::HeaderMap, routing::get};
    use rstest::rstest;

    use super::*;
    use crate::kubeconfig::{ControlKubeconfig, KubeconfigFallback, ProcessClusters, TargetKubeconfig};

    /// Responds with 200 to the token "two", and with 401 to any other.
    async fn server() -> (String, tokio_util::task::AbortOnDropHandle<std::io::Result<()>>) {
        let router = Router::new().route(
            "/",
            get(|headers: HeaderMap| async move {
                if headers["authorization"] == "Bearer two" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
            }),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(axum::serve(listener, router).into_future());
        (url, tokio_util::task::AbortOnDropHandle::new(server))
    }

    fn kubeconfig(url: &str, token: &str) -> String {
        format!(
            r#"{{"current-context": "it", "contexts": [{{"name": "it", "context": {{"cluster": "it", "user": "it"}}}}],
                "clusters": [{{"name": "it", "cluster": {{"server": "{url}"}}}}],
                "users": [{{"name": "it", "user": {{"token": "{token}"}}}}]}}"#
        )
    }

    #[rstest]
    #[case::looked_at_in_time(Duration::ZERO)]
    #[case::looked_at_because_the_old_one_is_refused(Duration::from_secs(3600))]
    #[tokio::test]
    async fn a_token_that_is_replaced_in_the_kubeconfig_is_used_without_a_restart(#[case] every: Duration) {
        let (url, _server) = server().await;
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, kubeconfig(&url, "one")).unwrap();
        let control = ControlKubeconfig::Path(path.clone());
        let clusters =
            ProcessClusters::load(&control, &TargetKubeconfig::None, KubeconfigFallback::None).await.unwrap();
        let build = |config| Client::try_from(config).map_err(|_| ClientError::UserAgent(String::new()));
        let connections = ServerConnections::looking(&clusters.control, build, every).unwrap();
        let mut connection = connections.within(ResponseLimits::CONTROL, HeaderValue::from_static("mcm"));
        let mut ask = async || {
            let answer = connection.call(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
            answer.status()
        };
        assert_eq!(ask().await, StatusCode::UNAUTHORIZED);

        fs::write(&path, "half of a f").unwrap();
        for _ in 0..20 {
            assert_eq!(ask().await, StatusCode::UNAUTHORIZED, "a file that is being written changes nothing");
        }
        fs::write(&path, kubeconfig(&url, "two")).unwrap();
        let used = async { while ask().await != StatusCode::OK {} };
        tokio::time::timeout(Duration::from_secs(20), used).await.unwrap();
    }
}
