//! Clients of API servers, with their limits and metrics.

use std::time::Duration;

use http::{HeaderValue, header::USER_AGENT};
use kube::{
    Config,
    client::{Client, ClientBuilder},
};
use tower::{retry::RetryLayer, util::option_layer};

use super::{
    body::ResponseLimits,
    budget::BudgetLayer,
    fence::FenceLayer,
    kubeconfig::ClusterConfig,
    limiter::{InFlightLayer, RateLimitLayer, RepeatRefused, RequestRate},
    metrics::RequestMetrics,
    reload::{ClientError, ReloadingClient, ServerConnections},
    transport::{plain_transport, transport},
};

/// Requests in flight. More of them do not make an API server faster.
pub const IN_FLIGHT: usize = 24;
/// Time limit of a request. Watches are exempt.
const PATIENCE: Duration = Duration::from_secs(60);
/// Retries of a request that an overloaded API server rejected.
const REPETITIONS: u32 = 5;

/// Connections for [`client`]. None is opened before the first request.
///
/// # Errors
/// The configuration names certificates, credentials or a proxy that cannot be used.
pub fn connections(cluster: &ClusterConfig) -> Result<ServerConnections, ClientError> {
    ServerConnections::new(cluster, |config| transport(prepared(config)))
}

/// Connections for [`lease_client`]. They speak HTTP/1.1: after a renewal without an answer, the next one has another connection.
///
/// # Errors
/// As for [`connections`].
pub fn lease_connections(cluster: &ClusterConfig) -> Result<ServerConnections, ClientError> {
    ServerConnections::new(cluster, |config| plain_transport(prepared(config)))
}

/// A client for controllers, whose responses have limits: limited to `rate`, to the share of a cell in the budget of the server, and to [`IN_FLIGHT`] requests at once. Watches are exempt from both and
/// have no timeout but the server's.
///
/// # Errors
/// The user agent cannot be sent.
pub fn client(
    connections: &ServerConnections,
    user_agent: &str,
    limits: ResponseLimits,
    rate: RequestRate,
    share: Option<BudgetLayer>,
    metrics: &RequestMetrics,
) -> Result<Client, ClientError> {
    let cluster = connections.cluster();
    let requests = metrics.layer(&cluster.config.cluster_url);
    // Each layer wraps those above it.
    Ok(builder(connections, limits, user_agent)?
        .with_layer(&FenceLayer)
        .with_layer(&metrics.clock(&cluster.config.cluster_url).layer(user_agent))
        .with_layer(&InFlightLayer::new(IN_FLIGHT, PATIENCE))
        .with_layer(&option_layer(share))
        .with_layer(&RateLimitLayer::new(rate))
        .with_layer(&requests)
        .with_layer(&RetryLayer::new(RepeatRefused::at_most(REPETITIONS)))
        .build())
}

/// A client for leader election. Nothing may delay its calls: it does not retry, has separate connections, and no
/// limits except those of an API server that many cells share.
///
/// # Errors
/// As for [`client`].
pub fn lease_client(
    connections: &ServerConnections,
    user_agent: &str,
    share: Option<BudgetLayer>,
    metrics: &RequestMetrics,
) -> Result<Client, ClientError> {
    let cluster = connections.cluster();
    let requests = metrics.layer(&cluster.config.cluster_url);
    Ok(builder(connections, ResponseLimits::CONTROL, user_agent)?
        .with_layer(&metrics.clock(&cluster.config.cluster_url).layer(user_agent))
        .with_layer(&option_layer(share))
        .with_layer(&requests)
        .build())
}

fn builder(
    connections: &ServerConnections,
    limits: ResponseLimits,
    user_agent: &str,
) -> Result<ClientBuilder<ReloadingClient>, ClientError> {
    let agent = HeaderValue::from_str(user_agent).map_err(|_| ClientError::UserAgent(user_agent.to_owned()))?;
    let namespace = connections.cluster().config.default_namespace.clone();
    Ok(ClientBuilder::new(connections.within(limits, agent), namespace))
}

/// The configuration of connections: each client adds its user agent, and retries by itself.
fn prepared(mut config: Config) -> Config {
    config.headers.retain(|(name, _)| name != USER_AGENT);
    // It would retry creates whose outcome is unknown, for minutes, while holding a slot.
    config.default_retry = false;
    config
}

#[cfg(test)]
mod tests {
    use axum::{Router, http::HeaderMap, routing::get};
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;

    use super::*;
    use crate::metrics::MetricsRegistry;

    #[tokio::test]
    async fn calls_carry_the_user_agent_and_are_counted() {
        let router = Router::new().route(
            "/api/v1/nodes/{name}",
            get(|headers: HeaderMap| async move {
                let agent = headers[USER_AGENT].to_str().unwrap().to_owned();
                axum::Json(serde_json::json!({ "metadata": { "name": "n", "labels": { "agent": agent } } }))
            }),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap();
        let _server =
            tokio_util::task::AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));

        let metrics = MetricsRegistry::new();
        let cluster = ClusterConfig::from(Config::new(format!("http://user:secret@{host}").parse().unwrap()));
        let (shared, of_leases) = (connections(&cluster).unwrap(), lease_connections(&cluster).unwrap());
        let clients = [
            client(
                &shared,
                "machine-controller",
                ResponseLimits::CONTROL,
                RequestRate { qps: 20.0, burst: 30 },
                None,
                metrics.requests(),
            )
            .unwrap(),
            lease_client(&of_leases, "machine-controller", None, metrics.requests()).unwrap(),
        ];
        for client in &clients {
            let node = Api::<Node>::all(client.clone()).get("n").await.unwrap();
            assert_eq!(node.metadata.labels.unwrap()["agent"], "machine-controller");
        }
        let counted = format!("rest_client_requests_total{{code=\"200\",method=\"GET\",host=\"{host}\"}} 2\n");
        let text = metrics.render();
        assert!(text.contains(&counted), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[tokio::test]
    async fn a_user_agent_that_cannot_be_sent_is_named() {
        let cluster = ClusterConfig::from(Config::new("http://localhost".parse().unwrap()));
        let connections = connections(&cluster).unwrap();
        let error = builder(&connections, ResponseLimits::CONTROL, "a\nb").err().unwrap();
        assert!(error.to_string().contains(r#""a\nb""#), "{error}");
    }
}
