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
    kubeconfig::{ClusterConfig, address, cause},
    limiter::{InFlightLayer, RateLimitLayer, RepeatRefused, RequestRate},
    metrics::RequestMetrics,
    reload::{ClientError, ReloadingClient},
};

/// Requests in flight. Each is a connection; more of them do not make an API server faster.
pub const IN_FLIGHT: usize = 24;
/// Time limit of a request. Watches are exempt.
const PATIENCE: Duration = Duration::from_secs(60);
/// Retries of a request that an overloaded API server rejected.
const REPETITIONS: u32 = 5;

/// A client for controllers, whose responses have limits: limited to `rate`, to the share of a cell in the budget of the server, and to [`IN_FLIGHT`] requests at once. Watches are exempt from both and
/// have no timeout but the server's.
///
/// # Errors
/// The configuration names certificates, credentials or a proxy that cannot be used.
pub fn client(
    cluster: &ClusterConfig,
    user_agent: &str,
    limits: ResponseLimits,
    rate: RequestRate,
    share: Option<BudgetLayer>,
    metrics: &RequestMetrics,
) -> Result<Client, ClientError> {
    let requests = metrics.layer(&cluster.config.cluster_url);
    // Each layer wraps those above it.
    Ok(builder(cluster, limits, user_agent)?
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
    cluster: &ClusterConfig,
    user_agent: &str,
    share: Option<BudgetLayer>,
    metrics: &RequestMetrics,
) -> Result<Client, ClientError> {
    let requests = metrics.layer(&cluster.config.cluster_url);
    Ok(builder(cluster, ResponseLimits::CONTROL, user_agent)?
        .with_layer(&metrics.clock(&cluster.config.cluster_url).layer(user_agent))
        .with_layer(&option_layer(share))
        .with_layer(&requests)
        .build())
}

fn builder(
    cluster: &ClusterConfig,
    limits: ResponseLimits,
    user_agent: &str,
) -> Result<ClientBuilder<ReloadingClient>, ClientError> {
    let agent = HeaderValue::from_str(user_agent).map_err(|_| ClientError::UserAgent(user_agent.to_owned()))?;
    let connection = ReloadingClient::new(cluster, limits, move |config| transport(config, agent.clone()))?;
    Ok(ClientBuilder::new(connection, cluster.config.default_namespace.clone()))
}

fn transport(mut config: Config, agent: HeaderValue) -> Result<Client, ClientError> {
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config.headers.push((USER_AGENT, agent));
    // It would retry creates whose outcome is unknown, for minutes, while holding a slot.
    config.default_retry = false;
    let server = config.cluster_url.clone();
    Client::try_from(config).map_err(|error| ClientError::Config { server: address(&server), cause: cause(&error) })
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
        let clients = [
            client(
                &cluster,
                "machine-controller",
                ResponseLimits::CONTROL,
                RequestRate { qps: 20.0, burst: 30 },
                None,
                metrics.requests(),
            )
            .unwrap(),
            lease_client(&cluster, "machine-controller", None, metrics.requests()).unwrap(),
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

    #[test]
    fn a_user_agent_that_cannot_be_sent_is_named() {
        let cluster = ClusterConfig::from(Config::new("http://localhost".parse().unwrap()));
        let error = builder(&cluster, ResponseLimits::CONTROL, "a\nb").err().unwrap();
        assert!(error.to_string().contains(r#""a\nb""#), "{error}");
    }
}
