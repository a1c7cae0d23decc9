//! An HTTP server around a fake cloud. It names each request by its call, keeps a log, and lets calls fail.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
        header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
    },
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use tokio::net::TcpListener;

/// A request. Names of headers are in lower case.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The HTTP method, in upper case.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query, without `?`; empty for a URL without a query.
    pub query: String,
    /// Headers by name; the last of several with one name.
    pub headers: BTreeMap<String, String>,
    /// The body as text.
    pub body: String,
}

/// An answer in JSON.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body, in JSON.
    pub body: String,
}

/// A cloud without its server.
pub trait FakeCloud: Send + 'static {
    /// The call that a request makes, such as `machine.free`.
    fn call(&self, request: &Request) -> &'static str;

    /// Carries a request out.
    fn answer(&mut self, request: &Request) -> Reply;

    /// Headers of the answer that was just made.
    fn headers(&mut self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// How a call fails.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is carried out, and the answer breaks off.
    LostAnswer,
    /// It is carried out, and the answer of the cloud is an error.
    CarriedOut(Reply),
    /// It is carried out after this time, whether the client still waits or not.
    Late(Duration),
    /// The answer breaks off at once, and it is carried out after this time.
    LostAndLate(Duration),
    /// It is carried out at once, and its answer comes after this time.
    Slow(Duration),
    /// No answer.
    TimeOut,
    /// An answer without end.
    Endless,
    /// An answer that is not in JSON.
    Malformed,
    /// An error of the cloud.
    Error(Reply),
    /// An error of the cloud with headers.
    ErrorWith(Reply, &'static [(&'static str, &'static str)]),
    /// An error of something before the cloud.
    Status(u16),
}

/// A cloud with the log of its requests and the faults of its calls.
pub struct Fake<C> {
    /// The cloud itself.
    pub cloud: C,
    /// Call and request.
    pub log: Vec<(&'static str, Request)>,
    /// Calls of the name fail so, this many times.
    pub faults: Vec<(&'static str, Fault, usize)>,
    /// Four of ten calls fail, in these ways.
    pub storm: Vec<Fault>,
    /// Every n-th call of the name fails so.
    pub fails_every: Option<(&'static str, usize, Fault)>,
    /// Calls that are carried out later.
    pub late: usize,
}

/// A fake that its server and a test share.
pub type Shared<C> = Arc<Mutex<Fake<C>>>;

impl<C: FakeCloud> Fake<C> {
    /// A cloud without requests and faults.
    pub fn new(cloud: C) -> Shared<C> {
        let (log, faults, storm) = (Vec::new(), Vec::new(), Vec::new());
        Arc::new(Mutex::new(Self { cloud, log, faults, storm, fails_every: None, late: 0 }))
    }

    /// How many calls of a name there were.
    pub fn count(&self, call: &str) -> usize {
        self.log.iter().filter(|(name, _)| *name == call).count()
    }

    /// The requests of a call.
    pub fn sent(&self, call: &str) -> Vec<Request> {
        self.log.iter().filter(|(name, _)| *name == call).map(|(_, request)| request.clone()).collect()
    }

    fn take_fault(&mut self, call: &'static str) -> Option<Fault> {
        if let Some((name, every, fault)) = &self.fails_every
            && *name == call
            && self.count(call).is_multiple_of(*every)
        {
            return Some(fault.clone());
        }
        let number = self.log.len();
        if number.wrapping_mul(2_654_435_761) / 128 % 10 < 4 && !self.storm.is_empty() {
            return self.storm.get(number % self.storm.len()).cloned();
        }
        let fault = self.faults.iter_mut().find(|(name, _, left)| *name == call && *left > 0)?;
        fault.2 -= 1;
        Some(fault.1.clone())
    }
}

/// Lets calls of a fake fail, and counts them.
pub trait FaultSwitch: Send + Sync {
    /// The next calls of a name fail, so many times.
    fn fail(&self, call: &'static str, fault: Fault, times: usize);

    /// No call fails any more.
    fn clear(&self);

    /// How many calls of a name there were.
    fn calls(&self, call: &str) -> usize;

    /// Every n-th call of a name fails so.
    fn fail_every(&self, call: &'static str, number: usize, fault: Fault);

    /// How many calls are carried out later.
    fn late(&self) -> usize;
}

impl<C: FakeCloud> FaultSwitch for Mutex<Fake<C>> {
    fn fail(&self, call: &'static str, fault: Fault, times: usize) {
        self.lock().faults.push((call, fault, times));
    }

    fn clear(&self) {
        self.lock().faults.clear();
    }

    fn calls(&self, call: &str) -> usize {
        self.lock().count(call)
    }

    fn fail_every(&self, call: &'static str, number: usize, fault: Fault) {
        self.lock().fails_every = Some((call, number, fault));
    }

    fn late(&self) -> usize {
        self.lock().late
    }
}

/// Serves a cloud on this host; returns its URL.
pub async fn serve<C: FakeCloud>(fake: &Shared<C>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(handle::<C>).with_state(Arc::clone(fake));
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

async fn handle<C: FakeCloud>(
    State(fake): State<Shared<C>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let has_length = [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| headers.contains_key(name));
    if [Method::POST, Method::PUT, Method::PATCH].contains(&method) && !has_length {
        // As the front ends of clouds do.
        return StatusCode::LENGTH_REQUIRED.into_response();
    }
    let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()));
    let request = Request {
        method: method.to_string(),
        path: uri.path().to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        headers: headers.collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let fault = {
        let mut fake = fake.lock();
        let call = fake.cloud.call(&request);
        fake.log.push((call, request.clone()));
        let fault = fake.take_fault(call);
        fake.late += usize::from(matches!(fault, Some(Fault::Late(_) | Fault::LostAndLate(_))));
        fault
    };
    let late = Arc::clone(&fake);
    let carry_out = move || {
        let (reply, headers) = {
            let mut fake = fake.lock();
            (fake.cloud.answer(&request), fake.cloud.headers())
        };
        let mut response = in_json(reply);
        for (name, value) in headers {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        response
    };
    match fault {
        None => carry_out(),
        Some(Fault::LostAnswer) => {
            carry_out();
            cut()
        }
        Some(Fault::CarriedOut(reply)) => {
            carry_out();
            in_json(reply)
        }
        Some(Fault::Late(pause)) => {
            let carried_out = tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let answer = carry_out();
                late.lock().late -= 1;
                answer
            });
            carried_out.await.unwrap()
        }
        Some(Fault::LostAndLate(pause)) => {
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                carry_out();
                late.lock().late -= 1;
            });
            cut()
        }
        Some(Fault::Slow(pause)) => {
            let answer = carry_out();
            tokio::time::sleep(pause).await;
            answer
        }
        Some(Fault::TimeOut) => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            StatusCode::GATEWAY_TIMEOUT.into_response()
        }
        Some(Fault::Endless) => {
            let chunk = Bytes::from(vec![b' '; 1 << 20]);
            Body::from_stream(futures::stream::repeat_with(move || Ok::<_, io::Error>(chunk.clone()))).into_response()
        }
        Some(Fault::Malformed) => "this is not JSON".into_response(),
        Some(Fault::Error(reply)) => in_json(reply),
        Some(Fault::ErrorWith(reply, headers)) => {
            let mut response = in_json(reply);
            let headers =
                headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            response.headers_mut().extend(headers);
            response
        }
        Some(Fault::Status(status)) => (StatusCode::from_u16(status).unwrap(), "<html></html>").into_response(),
    }
}

/// An answer that breaks off.
fn cut() -> Response {
    Body::from_stream(futures::stream::iter([Ok("{"), Err(io::Error::other("cut"))])).into_response()
}

fn in_json(reply: Reply) -> Response {
    (StatusCode::from_u16(reply.status).unwrap(), [(CONTENT_TYPE, "application/json")], reply.body).into_response()
}
