//! The metadata services of VMs, at the link-local address that a cloud controller manager asks about its VM.

use axum::{
    Json, Router,
    extract::Path,
    http::StatusCode,
    routing::{get, put},
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

const ROLE: &str = "control-plane";
/// The header of EC2 with the lifetime of a token.
const LIFETIME: (&str, &str) = ("x-aws-ec2-metadata-token-ttl-seconds", "21600");

/// A server, which ends with this.
pub struct MetadataService {
    pub url: String,
    task: JoinHandle<()>,
}

impl MetadataService {
    /// Of an instance of EC2 with an instance profile.
    pub async fn of_instance(instance: &str, zone: &str) -> Self {
        let identity = json!({
            "instanceId": instance, "availabilityZone": zone, "region": zone.trim_end_matches(char::is_alphabetic),
        });
        let credentials = json!({
            "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "top-secret-key",
            "Token": "token", "Expiration": "2099-01-01T00:00:00Z",
        });
        let instance = instance.to_owned();
        let router = Router::new()
            .route("/latest/api/token", put(async || ([LIFETIME], "token")))
            .route("/latest/meta-data/instance-id", get(async move || instance))
            .route("/latest/dynamic/instance-identity/document", get(async move || Json(identity)))
            .route("/latest/meta-data/iam/security-credentials/", get(async || ROLE))
            .route(&format!("/latest/meta-data/iam/security-credentials/{ROLE}"), get(async move || Json(credentials)));
        Self::serve(router).await
    }

    /// Of a VM of Google Cloud with a service account that has this token.
    pub async fn of_google(project: &str, zone: &str, name: &str, token: &str) -> Self {
        let token = json!({"access_token": token, "expires_in": 3599, "token_type": "Bearer"}).to_string();
        let values = [
            ("project/project-id", project.to_owned()),
            ("instance/zone", format!("projects/1/zones/{zone}")),
            ("instance/hostname", format!("{name}.{zone}.c.{project}.internal")),
            ("instance/network-interfaces/0/network", "projects/1/networks/default".to_owned()),
            ("instance/service-accounts/default/token", token),
        ];
        let read = async move |Path(path): Path<String>| {
            let value = values.iter().find(|(known, _)| *known == path).map(|(_, value)| value.clone());
            value.ok_or(StatusCode::NOT_FOUND)
        };
        Self::serve(Router::new().route("/computeMetadata/v1/{*path}", get(read))).await
    }

    async fn serve(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, task }
    }
}

impl Drop for MetadataService {
    fn drop(&mut self) {
        self.task.abort();
    }
}
