//! Metrics over TLS, for users that the management cluster authorizes.

use kube::{Client, Config, config::Kubeconfig};
use serde_json::{Value, json};

use crate::{
    support::{
        identity,
        program::{MCM, Program, free_port},
        wait,
    },
    world::{World, play},
};

/// Gets the metrics with a token; the status and the text.
async fn get(port: u16, token: Option<&str>) -> (u16, String) {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    let login = token.map_or_else(|| json!({}), |token| json!({"token": token}));
    config.auth_info = serde_json::from_value(login).unwrap();
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    match Client::try_from(config).unwrap().request_text(request).await {
        Ok(text) => (200, text),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => (0, error.to_string()),
    }
}

/// Without a token 401, without the right 403, with the ClusterRole of the release 200.
#[test]
fn metrics_are_served_to_users_authorized_by_the_management_cluster() {
    play(async |world: &'static World| {
        let namespace = world.management.namespace("scraped").await;
        let folder = tempfile::tempdir().unwrap();
        let (client, admin) = (world.management.client(), world.management.kubeconfig().to_owned());
        let own = identity::kubeconfig(&client, &admin, "capmcm-system", "capmcm-manager", folder.path()).await;
        let (health, port) = (free_port(), free_port());
        // It has a namespace for itself, in which there is nothing to do.
        let arguments = [
            "capi-manager".to_owned(),
            format!("--kubeconfig={}", own.display()),
            format!("--namespace={namespace}"),
            format!("--simulated-cloud={}", world.cloud.url),
            format!("--health-addr=127.0.0.1:{health}"),
            format!("--diagnostics-address=127.0.0.1:{port}"),
        ];
        let mut program = Program::start(MCM, arguments.to_vec(), world.folder().join("provider-scraped.log"));
        wait::until("the metrics to be served", async || {
            program.assert_runs();
            (get(port, None).await.0 == 401).then_some(())
        })
        .await;
        assert_eq!(get(port, Some("forged")).await.0, 401);

        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "scraper", "namespace": namespace}});
        world.apply(&account);
        let kubeconfig = identity::kubeconfig(&client, &admin, &namespace, "scraper", folder.path()).await;
        let login = serde_json::to_value(Kubeconfig::read_from(kubeconfig).unwrap()).unwrap();
        let token = login["users"][0]["user"]["token"].as_str().unwrap().to_owned();
        let (status, text) = get(port, Some(&token)).await;
        assert_eq!(status, 403, "{text}");

        let subject: Value = json!({"kind": "ServiceAccount", "name": "scraper", "namespace": namespace});
        let role = json!({
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "capmcm-system-metrics-reader",
        });
        world.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": namespace}, "roleRef": role, "subjects": [subject],
        }));
        let text = wait::until("the right to count", async || {
            let (status, text) = get(port, Some(&token)).await;
            (status == 200).then_some(text)
        })
        .await;
        assert!(text.contains("\nrest_client_requests_total{"), "{text}");
    });
}
