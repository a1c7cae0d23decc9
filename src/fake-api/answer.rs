//! Responses of the API server.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    call::{AnswerShape, ApiCall},
    object::ServerObject,
    refusal::RequestRefusal,
    store::{ObjectPage, RequestEffect, scale_of},
    table::TablePrinter,
};

pub(super) fn object(call: &ApiCall, code: u16, object: &ServerObject, now: Timestamp) -> Response<Body> {
    match call.shape {
        _ if call.subresource == "scale" => json(code, &scale_of(object)),
        AnswerShape::Full => respond(code, Body::from(object.text())),
        AnswerShape::Metadata => json(code, &object.metadata_only()),
        AnswerShape::Table => {
            let meta = json!({ "resourceVersion": object.version.to_string() });
            json(code, &TablePrinter::from_call(call).table([object], &meta, now))
        }
    }
}

pub(super) fn effect(call: &ApiCall, effect: &RequestEffect, now: Timestamp) -> Response<Body> {
    let code = if effect.before.is_none() { 201 } else { 200 };
    match &effect.answer {
        Some(answer) => object(call, code, answer, now),
        None => json(
            200,
            &json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "details": { "name": call.name } }),
        ),
    }
}

pub(super) fn list(call: &ApiCall, page: &ObjectPage, now: Timestamp) -> Response<Body> {
    let kind = call.kind;
    let meta = json!({ "resourceVersion": page.version.to_string(), "continue": page.rest });
    let (api_version, list_kind) = match call.shape {
        AnswerShape::Table => {
            let objects = page.objects.iter().map(|object| &**object);
            return json(200, &TablePrinter::from_call(call).table(objects, &meta, now));
        }
        AnswerShape::Metadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList".to_owned()),
        AnswerShape::Full => (kind.api_version(), format!("{}List", kind.name)),
    };
    let mut text =
        format!("{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{meta},\"items\":[")
            .into_bytes();
    for (position, object) in page.objects.iter().enumerate() {
        if position > 0 {
            text.push(b',');
        }
        if call.shape == AnswerShape::Metadata {
            text.extend_from_slice(object.metadata_only().to_string().as_bytes());
        } else {
            text.extend_from_slice(&object.text());
        }
    }
    text.extend_from_slice(b"]}");
    respond(200, Body::from(text))
}

/// `about` is the object that a refusal names; that a kind is not served names none.
pub(super) fn refusal(call: Option<&ApiCall>, refusal: &RequestRefusal) -> Response<Body> {
    let details = call.map(|call| json!({ "name": call.name, "group": call.kind.group, "kind": call.kind.plural }));
    let status = status(refusal, &details.unwrap_or_default());
    json(refusal.code, &status)
}

pub(super) fn expired() -> Value {
    status(&RequestRefusal::new(410, "Expired", "too old resource version"), &Value::Null)
}

fn status(refusal: &RequestRefusal, details: &Value) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": refusal.message, "reason": refusal.reason, "code": refusal.code, "details": details,
    })
}

pub(super) fn json(code: u16, value: &Value) -> Response<Body> {
    respond(code, Body::from(value.to_string()))
}

pub(super) fn respond(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}
