//! The API server on a port of the loopback address, for kubectl and other processes.
//!
//! Callers have a token, and TLS protects it. Beside the objects there are the documents that kubectl reads: versions,
//! discovery, schemas, and that each access is allowed.

mod discovery;
mod openapi;
mod schema;
#[cfg(test)]
mod tests;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
};
use http::{
    HeaderMap, Method, Response,
    header::{AUTHORIZATION, CONTENT_TYPE},
    request::Parts,
};
use serde_json::{Value, json};

use super::{
    answer,
    call::{ApiCall, ApiVerb},
    kinds::NAMESPACES,
    refusal::RequestRefusal,
    server::ApiServer,
};
pub use mcm_runtime::http::{CertificateFiles, EndpointServer, HttpError, RunningServer};

/// Largest body of a request, which is that of the real API server.
const LARGEST_BODY: usize = 3 << 20;
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// The user of every caller with the token.
const USER: &str = "mcm-demo";

/// A port of the loopback address, before requests are answered.
#[derive(Debug)]
pub struct LoopbackPort(EndpointServer);

impl LoopbackPort {
    /// Binds a port that the operating system chooses.
    ///
    /// # Errors
    /// No port is free.
    pub async fn bind() -> Result<Self, HttpError> {
        EndpointServer::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.map(Self)
    }

    /// Its number.
    pub const fn number(&self) -> u16 {
        self.0.address().port()
    }

    /// Serves the API to callers with the token in a background task.
    ///
    /// # Errors
    /// The files of the certificate cannot be used.
    pub fn serve(self, server: &ApiServer, files: CertificateFiles, token: &str) -> Result<RunningServer, HttpError> {
        self.0.serve_router(router(server, token), files)
    }
}

#[derive(Clone)]
struct ServedApi {
    server: ApiServer,
    authorization: Arc<str>,
}

fn router(server: &ApiServer, token: &str) -> Router {
    let api = ServedApi { server: server.clone(), authorization: format!("Bearer {token}").into() };
    Router::new().fallback(receive).with_state(api)
}

async fn receive(State(api): State<ServedApi>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    if !has_token(&parts.headers, &api.authorization) {
        return answer::refusal(None, &RequestRefusal::new(401, "Unauthorized", "Unauthorized"));
    }
    let Ok(body) = axum::body::to_bytes(body, LARGEST_BODY).await else {
        let text = format!("the body was not received, or is larger than {LARGEST_BODY} bytes");
        return answer::refusal(None, &RequestRefusal::new(413, "RequestEntityTooLarge", text));
    };
    match api.respond(parts, body).await {
        Ok(response) => response,
        Err(refusal) => answer::refusal(None, &refusal),
    }
}

/// The time of the comparison does not depend on the position of a difference.
fn has_token(headers: &HeaderMap, wanted: &str) -> bool {
    let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    let difference = given.iter().zip(wanted.as_bytes()).fold(0, |sum, (one, other)| sum | (one ^ other));
    given.len() == wanted.len() && difference == 0
}

impl ServedApi {
    async fn respond(self, parts: Parts, body: Bytes) -> Result<Response<Body>, RequestRefusal> {
        let path = parts.uri.path();
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return Ok(Response::new(Body::from("ok")));
        }
        if parts.method == Method::GET
            && let Some(document) = discovery::document(path).or_else(|| openapi::document(path))
        {
            return Ok(answer::json(200, &document));
        }
        if parts.method == Method::POST
            && let Some(review) = review(path)
        {
            return Ok(answer::json(201, &review));
        }
        check_media_type(&parts)?;
        let mut call = ApiCall::parse(&Arc::from("http"), self.server.now(), &parts, &body)?;
        self.check_namespace(&call)?;
        call.body = Arc::new(schema::checked(&call)?);
        let gone = |_| RequestRefusal::new(500, "InternalError", "the request was not carried out");
        self.server.carry_out(call).await.map_err(gone)
    }

    /// Objects are created in Namespaces that exist and are not being deleted.
    fn check_namespace(&self, call: &ApiCall) -> Result<(), RequestRefusal> {
        let creates = matches!(call.verb, ApiVerb::Create | ApiVerb::Apply) && call.subresource.is_empty();
        if !creates || !call.kind.is_namespaced {
            return Ok(());
        }
        let exists = self.server.get(call.kind, &call.namespace, call.object_name()).is_some();
        match self.server.get(&NAMESPACES, "", &call.namespace) {
            _ if exists => Ok(()),
            None => {
                let text = format!("namespaces {:?} not found", call.namespace);
                Err(RequestRefusal::new(404, "NotFound", text))
            }
            Some(namespace) if namespace.is_terminating() => {
                let text = format!(
                    "unable to create new content in namespace {} because it is being terminated",
                    call.namespace
                );
                Err(RequestRefusal::new(403, "Forbidden", text))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Bodies are JSON. YAML is accepted by name for server-side apply, because JSON is YAML.
fn check_media_type(parts: &Parts) -> Result<(), RequestRefusal> {
    let media = parts.headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    if media.is_empty() || media.contains("json") || media.contains("yaml") {
        return Ok(());
    }
    let text = format!("this server reads application/json only, the body is {media}; with kubectl, use apply -f FILE");
    Err(RequestRefusal::new(415, "UnsupportedMediaType", text))
}

/// The answer to a review of the caller, which may do everything. It does not depend on the body.
fn review(path: &str) -> Option<Value> {
    let (kind, api_version, status) = match path {
        ACCESS_REVIEWS => ("SelfSubjectAccessReview", "authorization.k8s.io/v1", json!({ "allowed": true })),
        SELF_REVIEWS => {
            let user = json!({ "username": USER, "groups": ["system:masters"] });
            ("SelfSubjectReview", "authentication.k8s.io/v1", json!({ "userInfo": user }))
        }
        _ => return None,
    };
    Some(json!({ "kind": kind, "apiVersion": api_version, "metadata": {}, "spec": {}, "status": status }))
}
