//! `/explain`: why objects do not progress, from the memory of the controllers.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use crate::{
    cache::Key,
    cells::{CellRegistry, WaitingObjects},
};

/// Objects of an answer, unless the request has another limit.
const SOME: usize = 500;
/// The most objects of an answer.
const MOST: usize = 5000;

/// The parameters of a request.
#[derive(Debug, Deserialize)]
pub(super) struct ExplainQuery {
    namespace: Option<String>,
    limit: Option<usize>,
}

/// The objects that wait, longest first.
pub(super) async fn all(
    State(cells): State<Arc<CellRegistry>>,
    Query(question): Query<ExplainQuery>,
) -> Json<WaitingObjects> {
    let most = question.limit.unwrap_or(SOME).min(MOST);
    Json(cells.waiters(question.namespace.as_deref(), most))
}

/// The last plan of one object.
pub(super) async fn one(
    State(cells): State<Arc<CellRegistry>>,
    Path((kind, namespace, name)): Path<(String, String, String)>,
) -> Response {
    match cells.explain(&kind, &Key::new(&namespace, &name)) {
        Some(explanation) => Json(explanation).into_response(),
        None => {
            (StatusCode::NOT_FOUND, "this process has not planned such an object: is it the leader?\n").into_response()
        }
    }
}
