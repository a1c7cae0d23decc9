//! Several simulated clouds behind one address: each call is forwarded to the cloud of its namespace, as real drivers
//! select a cloud by credentials.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde_json::Value;
use tokio::net::TcpListener;

/// Clouds by namespace.
type Clouds = Arc<BTreeMap<String, String>>;

/// Starts it, for as long as the test runs, and returns its address.
pub async fn behind_one_address(clouds: impl IntoIterator<Item = (String, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let clouds: Clouds = Arc::new(clouds.into_iter().collect());
    let router = Router::new().fallback(pass).with_state((clouds, reqwest::Client::new()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn pass(State((clouds, http)): State<(Clouds, reqwest::Client)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let query = parts.uri.query().unwrap_or_default();
    let in_query = query.split('&').find_map(|pair| pair.strip_prefix("cluster=")).map(str::to_owned);
    let in_body = || serde_json::from_slice::<Value>(&body).ok()?["cluster"].as_str().map(str::to_owned);
    let Some(cloud) = in_query.or_else(in_body).and_then(|cluster| clouds.get(&cluster)) else {
        return (StatusCode::BAD_REQUEST, "no cloud has such a cluster").into_response();
    };
    let url = format!("{cloud}{}", parts.uri.path_and_query().unwrap());
    let call = http.request(parts.method, url).header("content-type", "application/json").body(body);
    match call.send().await {
        Ok(answer) => {
            let status = answer.status();
            (status, Body::from(answer.bytes().await.unwrap_or_default())).into_response()
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}
