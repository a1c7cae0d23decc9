//! Reads the time of an API server from its responses: from the stamps of objects that it stored for us, and from `Date`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::ServerClock;

/// The largest response whose stamp is read, in bytes.
const LARGEST: usize = 64 << 10;

/// See [`ServerClock::layer`].
#[derive(Clone, Debug)]
pub struct ClockLayer {
    clock: ServerClock,
    manager: Arc<str>,
}

impl ServerClock {
    /// A layer for a client of the API server, whose requests have this user agent: the API server derives the field manager from
    /// it. It measures the clock by all responses. Nothing may delay a request below it.
    pub fn layer(&self, user_agent: &str) -> ClockLayer {
        let manager = user_agent.split('/').next().unwrap_or_default();
        ClockLayer { clock: self.clone(), manager: manager.into() }
    }
}

impl<S> Layer<S> for ClockLayer {
    type Service = TimedRequests<S>;

    fn layer(&self, inner: S) -> TimedRequests<S> {
        TimedRequests { inner, timed: self.clone() }
    }
}

/// A client whose responses set a clock.
#[derive(Clone, Debug)]
pub struct TimedRequests<S> {
    inner: S,
    timed: ClockLayer,
}

impl<S, B, R> Service<Request<B>> for TimedRequests<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: 'static,
{
    type Response = Response<TimedBody<R>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (inner, ClockLayer { clock, manager }) = (self.inner.clone(), self.timed.clone());
        let write = StoredWrite::sent_with(request.method());
        async move {
            let sent = clock.sent();
            let response = inner.oneshot(request).await?;
            if !response.status().is_server_error() {
                clock.observe(response.headers(), sent);
            }
            let write = write.filter(|_| response.status().is_success());
            let received = clock.sent();
            let stamp = write.map(|write| StampReader { clock, manager, write, sent, received, read: Vec::new() });
            Ok(response.map(|body| TimedBody { body, stamp }))
        }
        .boxed()
    }
}

/// A request after which the API server stores an object with the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredWrite {
    /// The new object has a `creationTimestamp`.
    Create,
    /// A replaced object has the time in `managedFields`, if something changed. Only Leases are replaced, and each
    /// replacement changes them. A patch may change nothing, and then its response has an old time.
    Replace,
}

impl StoredWrite {
    fn sent_with(method: &Method) -> Option<Self> {
        match *method {
            Method::POST => Some(Self::Create),
            Method::PUT => Some(Self::Replace),
            _ => None,
        }
    }
}

/// The response to a write, and the requests that it belongs to.
#[derive(Debug)]
struct StampReader {
    clock: ServerClock,
    manager: Arc<str>,
    write: StoredWrite,
    sent: Timestamp,
    received: Timestamp,
    read: Vec<u8>,
}

impl StampReader {
    /// Measures the clock, if the response was read to its end.
    fn finish(self) {
        if let Some(stamp) = stamp(&self.read, self.write, &self.manager) {
            self.clock.stamped(stamp, self.sent, self.received);
        }
    }
}

/// The time at which the API server stored the object, according to a response.
fn stamp(response: &[u8], write: StoredWrite, manager: &str) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct StoredObject {
        metadata: StoredMetadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct StoredMetadata {
        creation_timestamp: Option<Time>,
        #[serde(default)]
        managed_fields: Vec<FieldManager>,
    }
    #[derive(Deserialize)]
    struct FieldManager {
        manager: Option<String>,
        operation: Option<String>,
        time: Option<Time>,
    }
    let StoredObject { metadata } = serde_json::from_slice(response).ok()?;
    match write {
        StoredWrite::Create => metadata.creation_timestamp.map(|Time(time)| time),
        StoredWrite::Replace => {
            let is_own = |entry: &FieldManager| {
                entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Update")
            };
            metadata
                .managed_fields
                .into_iter()
                .filter(is_own)
                .filter_map(|entry| entry.time)
                .map(|Time(time)| time)
                .max()
        }
    }
}

/// A body that is passed on as it is. The stamp of the object in it is read beside.
#[derive(Debug)]
pub struct TimedBody<B> {
    body: B,
    stamp: Option<StampReader>,
}

impl<B> Body for TimedBody<B>
where
    B: Body + Unpin,
    B::Data: AsRef<[u8]>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let data = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
            if let Some(stamp) = &mut self.stamp {
                stamp.read.extend_from_slice(data);
            }
            self.stamp.take_if(|stamp| stamp.read.len() > LARGEST);
        }
        if frame.is_none() || self.body.is_end_stream() {
            self.stamp.take().into_iter().for_each(StampReader::finish);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn lease() -> Value {
        json!({ "metadata": { "name": "l", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [
            { "manager": "kubectl", "operation": "Update", "time": "2026-01-09T00:00:00Z" },
            { "manager": "mcm", "operation": "Apply", "time": "2026-01-08T00:00:00Z" },
            { "manager": "mcm", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": { "f:spec": {} } },
        ] } })
    }

    #[rstest]
    #[case::create(lease(), StoredWrite::Create, Some("2026-01-01T00:00:00Z"))]
    #[case::replace(lease(), StoredWrite::Replace, Some("2026-01-02T00:00:00Z"))]
    #[case::review(json!({ "metadata": { "creationTimestamp": null } }), StoredWrite::Create, None)]
    #[case::status(json!({ "kind": "Status", "metadata": {} }), StoredWrite::Create, None)]
    #[case::not_tracked(json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" } }), StoredWrite::Replace, None)]
    #[case::not_a_time(json!({ "metadata": { "creationTimestamp": "never" } }), StoredWrite::Create, None)]
    fn the_stamp_of_a_write_is_the_time_at_which_it_was_stored(
        #[case] object: Value,
        #[case] write: StoredWrite,
        #[case] expected: Option<&str>,
    ) {
        let found = stamp(object.to_string().as_bytes(), write, "mcm");
        assert_eq!(found.map(|time| time.to_string()).as_deref(), expected);
    }

    #[rstest]
    #[case(Method::POST, true)]
    #[case(Method::PUT, true)]
    #[case(Method::PATCH, false)]
    #[case(Method::GET, false)]
    #[case(Method::DELETE, false)]
    fn only_writes_that_are_stamped_are_read(#[case] method: Method, #[case] expected: bool) {
        assert_eq!(StoredWrite::sent_with(&method).is_some(), expected);
    }
}
