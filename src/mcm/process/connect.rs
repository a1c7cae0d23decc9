//! From kubeconfigs to connected clients.

use kube::Client;

use mcm_runtime::{
    body,
    kubeconfig::{
        self, ClusterConfig, ControlKubeconfig, KubeconfigFallback, ProcessClusters, ServerInfo, StartError,
        TargetKubeconfig, UserAgent,
    },
};

/// Both clusters and the version of the control cluster.
pub struct ConnectedClusters {
    /// Their configurations.
    pub clusters: ProcessClusters,
    /// Version of the control cluster.
    pub control_info: ServerInfo,
}

/// Reads the kubeconfigs and connects to both API servers. If the target does not respond, its cache waits for it
/// later. The future can be dropped at any time.
///
/// # Errors
/// A kubeconfig cannot be used, the control cluster does not respond within about 10 s, or one of the clusters rejects
/// the credentials or cannot be trusted.
pub async fn connect(
    control: &ControlKubeconfig,
    target: &TargetKubeconfig,
    fallback: KubeconfigFallback,
    agent: UserAgent,
) -> Result<ConnectedClusters, StartError> {
    let clusters = ProcessClusters::load(control, target, fallback).await?;
    let client = probing(&clusters.control, agent).await?;
    let control_info = kubeconfig::check(&client, &clusters.control.config.cluster_url).await?;
    if let Some(target) = &clusters.target {
        try_target(&probing(target, agent).await?, &target.config.cluster_url).await?;
    }
    Ok(ConnectedClusters { clusters, control_info })
}

/// A client that reads only health, version and kinds.
async fn probing(cluster: &ClusterConfig, agent: UserAgent) -> Result<Client, StartError> {
    Ok(body::within(kubeconfig::client(cluster, agent).await?, body::ResponseLimits::SMALL))
}

async fn try_target(client: &Client, server: &http::Uri) -> Result<(), StartError> {
    match kubeconfig::wait_until_ready(client, server).await {
        Err(error @ StartError::Unreachable { .. }) => {
            tracing::warn!(%error, "target API server does not respond, waiting for it");
            Ok(())
        }
        outcome => outcome.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_away_at_the_start_is_waited_for() {
        let away = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
        });
        let server = http::Uri::from_static("https://api.example");
        assert!(try_target(&Client::new(away, "default"), &server).await.is_ok());
    }

    #[tokio::test]
    async fn a_target_that_refuses_us_ends_the_start() {
        let refusing = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let status = r#"{"kind":"Status","status":"Failure","code":401,"reason":"Unauthorized","message":"no"}"#;
            let body = kube::client::Body::from(status.as_bytes().to_vec());
            Ok::<_, std::convert::Infallible>(http::Response::builder().status(401).body(body).unwrap())
        });
        let error = try_target(&Client::new(refusing, "default"), &http::Uri::from_static("https://api.example")).await;
        assert!(matches!(error, Err(StartError::Refused { .. })));
    }
}
