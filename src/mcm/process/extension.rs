//! The server of the update extension for Cluster API. Any pod may reach it, so the number, the size and the duration of requests are
//! limited.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    routing::{get, post},
};
use serde_json::Value;
use tokio::{sync::Semaphore, time::timeout};

use super::connect::{ConnectedClusters, connect};
use mcm_capi::extension::{ExtensionHook, HookResponder, failure};
use mcm_runtime::{
    dumps,
    http::{CertificateFiles, EndpointServer},
    kubeconfig::{self, ControlKubeconfig, KubeconfigFallback, TargetKubeconfig, UserAgent},
    shutdown,
};

/// Longest request. It has up to four objects of at most 1.5 MiB, of which those of bootstrap data are the largest.
const LONGEST: usize = 4 << 20;
/// Requests that are read and answered at the same time; others wait.
const CONCURRENT: usize = 8;
/// Time for a response. Core waits for 10 s.
const PATIENCE: Duration = Duration::from_secs(8);

/// The settings of the extension.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExtensionOptions {
    /// The management cluster.
    pub control: ControlKubeconfig,
    /// Where to listen.
    pub listen: SocketAddr,
    /// The certificate, and its key.
    pub files: CertificateFiles,
}

/// Responds to hooks until a signal arrives.
///
/// # Errors
/// The management cluster cannot be reached, or the address or the certificate cannot be used.
pub(crate) async fn serve_extension(options: ExtensionOptions) -> Result<()> {
    let stop = shutdown::on_signal().context("listen for signals")?;
    dumps::forbid();
    let (agent, fallback) = (UserAgent::CapiExtension, KubeconfigFallback::LocalKubeconfig);
    let connecting = connect(&options.control, &TargetKubeconfig::None, fallback, agent);
    let Some(connected) = stop.run_until_cancelled(connecting).await else { return Ok(()) };
    let ConnectedClusters { clusters, .. } = connected?;
    let responder = HookResponder::new(kubeconfig::client(&clusters.control, agent).await?);
    let server = EndpointServer::bind(options.listen).await?;
    let running = server.serve_requests(router(responder), options.files)?;
    stop.cancelled().await;
    running.stop().await;
    Ok(())
}

fn router(responder: HookResponder) -> Router {
    let slots = Arc::new(Semaphore::new(CONCURRENT));
    let router = Router::new().route("/healthz", get(async || "OK"));
    let router = ExtensionHook::ALL.into_iter().fold(router, |router, hook| {
        let answer = async move |State(hooks): State<HookServer>, request: Request| {
            Json(hooks.within_limits(hook, request.into_body()).await)
        };
        router.route(&hook.path(), post(answer))
    });
    router.with_state(HookServer { responder, slots })
}

/// Limits the number, size and duration of requests.
#[derive(Clone)]
struct HookServer {
    responder: HookResponder,
    slots: Arc<Semaphore>,
}

impl HookServer {
    async fn within_limits(&self, hook: ExtensionHook, body: Body) -> Value {
        let Ok(response) = timeout(PATIENCE, self.respond(hook, body)).await else {
            return failure(hook, format!("no response within {} s: check the API server", PATIENCE.as_secs()));
        };
        response
    }

    async fn respond(&self, hook: ExtensionHook, body: Body) -> Value {
        let Ok(_slot) = self.slots.acquire().await else { return failure(hook, "shutting down") };
        match to_bytes(body, LONGEST).await {
            Ok(request) => self.responder.respond(hook, &request).await,
            Err(error) => failure(hook, format!("read the request, of at most {} MiB: {error}", LONGEST >> 20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use kube::Client;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;

    /// Beside an API server that never responds.
    async fn ask(path: &str, body: Vec<u8>) -> (StatusCode, Value) {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let router = router(HookResponder::new(Client::new(silent, "default")));
        let request = Request::builder().method("POST").uri(path).body(Body::from(body)).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    #[tokio::test]
    async fn core_discovers_the_handlers_at_its_path() {
        let path = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery";
        let (status, response) = ask(path, b"{}".to_vec()).await;
        assert_eq!((status, &response["status"]), (StatusCode::OK, &json!("Success")));
        assert_eq!(response["handlers"].as_array().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn a_request_that_is_too_long_is_refused() {
        let path = ExtensionHook::CanUpdateMachineSet.path();
        let (status, response) = ask(&path, vec![b' '; LONGEST + 1]).await;
        assert_eq!((status, &response["status"]), (StatusCode::OK, &json!("Failure")));
        assert!(response["message"].as_str().unwrap().starts_with("read the request, of at most 4 MiB"), "{response}");
    }

    #[tokio::test(start_paused = true)]
    async fn core_gets_a_response_before_it_gives_up() {
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine",
            "metadata": { "name": "m", "namespace": "ns" }, "spec": {},
        });
        let request = json!({ "desired": { "infrastructureMachine": object } });
        let (_, response) = ask(&ExtensionHook::UpdateMachine.path(), serde_json::to_vec(&request).unwrap()).await;
        assert_eq!(response["message"], "no response within 8 s: check the API server");
    }
}
