//! The HTTP API, as documented in `docs/simulated-cloud.md`.

use std::{fmt::Display, sync::Arc};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{delete, get, post, put},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    cloud::CloudSimulator,
    control::{InvalidControl, SimulationSettings},
    messages::{CloudCallError, LoadBalancerView, StateView, TagRequest, VmSelector, VmView},
    stats::SimulationStats,
};
use mcm_driver::code::Code;

type JsonResult<T> = Result<Json<T>, CloudCallError>;
type SharedSimulator = State<Arc<CloudSimulator>>;

/// Largest body; a `providerSpec` is far smaller.
const BODY_LIMIT: usize = 1 << 20;

/// The routes of the API of a cloud.
pub fn router(cloud: Arc<CloudSimulator>) -> Router {
    Router::new()
        .route("/v1/vms", post(create).get(find).delete(delete_selected))
        .route("/v1/vms/{id}", delete(delete_one))
        .route("/v1/vms/{id}/initialize", post(initialize))
        .route("/v1/vms/{id}/cluster", post(set_cluster))
        .route("/v1/vms/{id}/kill", post(kill))
        .route("/v1/vms/{id}/condition", post(set_condition))
        .route("/v1/vms/{id}/volumes", post(set_volumes))
        .route("/v1/load-balancers/{name}", put(put_load_balancer).get(load_balancer).delete(delete_load_balancer))
        .route("/v1/load-balancers/{name}/members/{id}", put(register).delete(deregister))
        .route("/v1/control", get(control).put(replace_control).patch(patch_control))
        .route("/v1/state", get(state))
        .route("/v1/stats", get(stats))
        .route("/healthz", get(|| async { "ok" }))
        .fallback(|| async { no_such("path") })
        .method_not_allowed_fallback(|| async { no_such("method of this path") })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(cloud)
}

async fn create(State(cloud): SharedSimulator, body: Bytes) -> JsonResult<VmView> {
    cloud.create(&read(&body)?).await.map(Json)
}

/// One VM if the query names one, else a list.
async fn find(State(cloud): SharedSimulator, Query(selector): Query<VmSelector>) -> Result<Response, CloudCallError> {
    if selector.machine.is_some() || selector.provider_id.is_some() {
        cloud.status(&selector).await.map(|vm| Json(vm).into_response())
    } else {
        cloud.list(selector.cluster.as_deref()).await.map(|list| Json(list).into_response())
    }
}

async fn delete_selected(
    State(cloud): SharedSimulator,
    Query(selector): Query<VmSelector>,
) -> Result<StatusCode, CloudCallError> {
    cloud.delete(&selector).await.map(|()| StatusCode::NO_CONTENT)
}

async fn delete_one(State(cloud): SharedSimulator, Path(id): Path<String>) -> Result<StatusCode, CloudCallError> {
    cloud.delete_id(&id).await.map(|()| StatusCode::NO_CONTENT)
}

async fn initialize(State(cloud): SharedSimulator, Path(id): Path<String>) -> JsonResult<VmView> {
    cloud.initialize(&id).await.map(Json)
}

async fn set_cluster(State(cloud): SharedSimulator, Path(id): Path<String>, body: Bytes) -> JsonResult<VmView> {
    let tags: TagRequest = read(&body)?;
    cloud.set_tags(&id, &tags).map(Json)
}

async fn kill(State(cloud): SharedSimulator, Path(id): Path<String>, body: Bytes) -> JsonResult<VmView> {
    let request = if body.is_empty() { Default::default() } else { read(&body)? };
    cloud.kill(&id, request).map(Json)
}

async fn set_condition(State(cloud): SharedSimulator, Path(id): Path<String>, body: Bytes) -> JsonResult<VmView> {
    cloud.set_condition(&id, read(&body)?).map(Json)
}

async fn set_volumes(State(cloud): SharedSimulator, Path(id): Path<String>, body: Bytes) -> JsonResult<VmView> {
    cloud.set_volumes(&id, &read(&body)?).map(Json)
}

async fn put_load_balancer(State(cloud): SharedSimulator, Path(name): Path<String>) -> JsonResult<LoadBalancerView> {
    cloud.put_load_balancer(&name).map(Json)
}

async fn load_balancer(State(cloud): SharedSimulator, Path(name): Path<String>) -> JsonResult<LoadBalancerView> {
    cloud.load_balancer(&name).map(Json)
}

async fn delete_load_balancer(
    State(cloud): SharedSimulator,
    Path(name): Path<String>,
) -> Result<StatusCode, CloudCallError> {
    cloud.delete_load_balancer(&name).map(|()| StatusCode::NO_CONTENT)
}

async fn register(
    State(cloud): SharedSimulator,
    Path((name, id)): Path<(String, String)>,
) -> Result<StatusCode, CloudCallError> {
    cloud.set_member(&name, &id, true).await.map(|()| StatusCode::NO_CONTENT)
}

async fn deregister(
    State(cloud): SharedSimulator,
    Path((name, id)): Path<(String, String)>,
) -> Result<StatusCode, CloudCallError> {
    cloud.set_member(&name, &id, false).await.map(|()| StatusCode::NO_CONTENT)
}

async fn control(State(cloud): SharedSimulator) -> Json<SimulationSettings> {
    Json(cloud.control())
}

async fn replace_control(State(cloud): SharedSimulator, body: Bytes) -> JsonResult<SimulationSettings> {
    cloud.replace_control(object(&body)?).map(Json).map_err(|error| refused(&error))
}

async fn patch_control(State(cloud): SharedSimulator, body: Bytes) -> JsonResult<SimulationSettings> {
    cloud.patch_control(object(&body)?).map(Json).map_err(|error| refused(&error))
}

async fn state(State(cloud): SharedSimulator) -> Json<StateView> {
    Json(cloud.state())
}

async fn stats(State(cloud): SharedSimulator) -> Json<SimulationStats> {
    Json(cloud.stats())
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, CloudCallError> {
    serde_json::from_slice(body).map_err(|error| invalid(format!("the body is invalid: {error}")))
}

fn object(body: &Bytes) -> Result<Value, CloudCallError> {
    read(body).and_then(
        |value: Value| {
            if value.is_object() { Ok(value) } else { Err(invalid("the body is not a JSON object")) }
        },
    )
}

fn refused(error: &InvalidControl) -> CloudCallError {
    match std::error::Error::source(error) {
        Some(source) => invalid(format!("{error}: {source}")),
        None => invalid(error),
    }
}

fn invalid(message: impl Display) -> CloudCallError {
    CloudCallError::new(Code::InvalidArgument, message.to_string())
}

fn no_such(what: &str) -> Response {
    let failure = invalid(format!("there is no such {what}: see docs/simulated-cloud.md"));
    (StatusCode::NOT_FOUND, Json(failure)).into_response()
}

impl IntoResponse for CloudCallError {
    fn into_response(self) -> Response {
        (status_of(self.code), Json(self)).into_response()
    }
}

/// The HTTP status of a code. It only repeats the code in the body.
fn status_of(code: Code) -> StatusCode {
    let status = match code {
        Code::Canceled => 499,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
        Code::InvalidArgument => 400,
        Code::DeadlineExceeded => 504,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::PermissionDenied => 403,
        Code::ResourceExhausted => 429,
        Code::FailedPrecondition => 412,
        Code::OutOfRange => 416,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::Unauthenticated => 401,
        Code::Uninitialized => 425,
    };
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
