//! Limits the size of responses. An API server may be broken, or controlled by an attacker who tries to exhaust the
//! memory of this process.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response, StatusCode, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::{Client, client::Body};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::sync::PollSemaphore;
use tower::{BoxError, service_fn};

use super::limiter::is_watch;

const MIB: u64 = 1 << 20;

/// Limits of one response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseLimits {
    /// Bytes of a response that is not a watch.
    whole: u64,
    /// From so many bytes on, a response waits until it is one of the [`LARGE_AT_ONCE`].
    large: u64,
    /// Bytes of one event of a watch.
    event: u64,
    /// JSON values in a response. A short text may need much more memory than its length.
    values: u64,
    /// JSON values in one event of a watch.
    values_of_event: u64,
    /// Objects in a page, as a multiple of the number that the request asked for. Some proxies ignore that number.
    surplus: Option<u64>,
    turns: &'static LazyLock<Arc<Semaphore>>,
    /// Time for a large response, from its turn on.
    turn_limit: Duration,
}

impl ResponseLimits {
    /// For commands, which work with the credentials of their user.
    pub const COMMAND: Self = Self { whole: 256 * MIB, large: 64 * MIB, values: u64::MAX, ..Self::CONTROL };
    /// For control clusters: 128 KiB for each of the 500 objects of a page, on average. An object in etcd has 1.5 MiB at most.
    pub const CONTROL: Self = Self {
        whole: 64 * MIB,
        large: 16 * MIB,
        event: 16 * MIB,
        values: 4_000_000,
        values_of_event: 1_000_000,
        surplus: None,
        turns: &LARGE,
        turn_limit: Duration::from_secs(30),
    };
    /// For target clusters, each of which may belong to another user: 32 KiB for each of 500 Nodes, on average.
    pub const TARGET: Self = Self {
        whole: 16 * MIB,
        large: 2 * MIB,
        event: 4 * MIB,
        values: 1_000_000,
        values_of_event: 50_000,
        surplus: Some(2),
        turns: &LARGE_OF_TARGETS,
        turn_limit: Duration::from_secs(10),
    };
    /// For health, version and discovery.
    pub const SMALL: Self = Self { whole: MIB, large: MIB, event: MIB, values: 100_000, ..Self::TARGET };

    /// For a response with an error. Its text ends up in logs and conditions.
    const fn of_error(self) -> Self {
        Self { whole: MIB / 4, values: 10_000, ..self }
    }

    const fn of_status(self, status: StatusCode, is_watch: bool) -> (Self, bool) {
        let code = status.as_u16();
        if code < 400 { (self, is_watch) } else { (self.of_error(), false) }
    }
}

/// Large responses that this process reads at the same time, from all control clusters, and again from all target clusters. So
/// many servers that send too much need no more memory than a few.
const LARGE_AT_ONCE: usize = 2;

static LARGE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LARGE_AT_ONCE)));
static LARGE_OF_TARGETS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LARGE_AT_ONCE)));

/// The API server sent too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// Too many bytes.
    #[error("the API server sent more than {} in one {unit}; check the address of the API server", size(.most))]
    Bytes {
        /// The limit.
        most: u64,
        /// The limited quantity.
        unit: &'static str,
    },
    /// Too many JSON values.
    #[error("the API server sent more than {most} JSON values in one {unit}; check the address of the API server")]
    Values {
        /// The limit.
        most: u64,
        /// The limited quantity.
        unit: &'static str,
    },
    /// More objects than were asked for.
    #[error("the API server sent more than {most} objects in a page of {asked}; check the address of the API server")]
    Objects {
        /// The limit.
        most: u64,
        /// The number in the request.
        asked: u64,
    },
    /// A large response takes the turns of others.
    #[error("the API server needs more than {limit:?} to send a response of more than {}", size(.large))]
    Slow {
        /// The time limit.
        limit: Duration,
        /// From here on it is large.
        large: u64,
    },
}

fn size(bytes: &u64) -> String {
    if *bytes < MIB { format!("{} KiB", bytes.div_ceil(1024)) } else { format!("{} MiB", bytes.div_ceil(MIB)) }
}

impl TooLarge {
    /// Fewer objects in a page may help.
    pub(super) fn fits_in_smaller_pages(self) -> bool {
        !matches!(self, Self::Objects { .. })
    }
}

/// A client whose responses are limited.
pub fn within(client: Client, limits: ResponseLimits) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let uri = request.uri().clone();
            let answer = client.send(request).await?;
            Ok::<Response<_>, BoxError>(BoundedBody::answer(answer, &uri, limits))
        }
    });
    Client::new(service, namespace)
}

/// The limit of objects in a request for a page.
fn asked(uri: &Uri) -> Option<u64> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("limit="))?.parse().ok()
}

/// Counts the values of a JSON text and the objects of its list, as the text arrives.
#[derive(Debug, Default)]
struct JsonCounter {
    is_text: bool,
    is_escaped: bool,
    depth: u32,
    /// The fields at the top have begun a list.
    is_list: bool,
    /// Separators and containers. There are about as many as values.
    values: u64,
    objects: u64,
}

impl JsonCounter {
    fn byte(&mut self, byte: u8) {
        match (self.is_text, byte) {
            (true, _) if self.is_escaped => self.is_escaped = false,
            (true, b'\\') => self.is_escaped = true,
            (_, b'"') => self.is_text = !self.is_text,
            (true, _) => {}
            (false, b',') => self.values += 1,
            (false, b'{' | b'[') => {
                self.values += 1;
                self.objects += u64::from(self.depth == 2 && self.is_list && byte == b'{');
                self.depth = self.depth.saturating_add(1);
                if self.depth == 2 {
                    self.is_list = byte == b'[';
                }
            }
            (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            (false, _) => {}
        }
    }
}

/// The body of a response, which fails at its limit.
#[derive(Debug)]
pub struct BoundedBody {
    body: Body,
    limits: ResponseLimits,
    is_watch: bool,
    /// The number of objects in the request of a page.
    asked: Option<u64>,
    /// Bytes of the response, or of the current event of a watch.
    read: u64,
    count: JsonCounter,
    turn: Option<ResponseTurn>,
}

#[derive(Debug)]
enum ResponseTurn {
    Awaited(PollSemaphore),
    /// The permit is held until the body is dropped.
    Taken(
        #[expect(dead_code, reason = "held until the body is dropped")] Option<OwnedSemaphorePermit>,
        Pin<Box<Sleep>>,
    ),
}

impl BoundedBody {
    /// The response to a request, with a limited body.
    pub(crate) fn answer(answer: Response<Body>, uri: &Uri, limits: ResponseLimits) -> Response<Self> {
        let (limits, is_watch) = limits.of_status(answer.status(), is_watch(uri));
        let asked = asked(uri);
        answer.map(|body| Self { asked, ..Self::new(body, is_watch, limits) })
    }

    fn new(body: Body, is_watch: bool, limits: ResponseLimits) -> Self {
        Self { body, limits, is_watch, asked: None, read: 0, count: JsonCounter::default(), turn: None }
    }

    const fn most(&self) -> (u64, u64, &'static str) {
        match self.is_watch {
            true => (self.limits.event, self.limits.values_of_event, "event of a watch"),
            false => (self.limits.whole, self.limits.values, "response"),
        }
    }

    /// Counts what was read, from the last line feed if it is a watch.
    fn count(&mut self, data: &[u8]) -> Result<(), TooLarge> {
        let ((most, values, unit), is_watch) = (self.most(), self.is_watch);
        for part in data.split_inclusive(|byte| is_watch && *byte == b'\n') {
            let is_end = is_watch && part.ends_with(b"\n");
            self.read = self.read.saturating_add(part.len() as u64 - u64::from(is_end));
            if self.read > most {
                return Err(TooLarge::Bytes { most, unit });
            }
            part.iter().for_each(|byte| self.count.byte(*byte));
            if self.count.values > values {
                return Err(TooLarge::Values { most: values, unit });
            }
            if is_end {
                (self.read, self.count) = Default::default();
            }
        }
        match self.limits.surplus.zip(self.asked).map(|(surplus, asked)| (asked.saturating_mul(surplus), asked)) {
            Some((most, asked)) if self.count.objects > most => Err(TooLarge::Objects { most, asked }),
            _ => Ok(()),
        }
    }

    /// Waits for a turn if the response is large. The turn ends after a while, so that a slow server does not keep it from others.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TooLarge>> {
        let ResponseLimits { large, turns, turn_limit: limit, .. } = self.limits;
        if self.is_watch || self.read <= large {
            return Poll::Ready(Ok(()));
        }
        let turn = self.turn.get_or_insert_with(|| ResponseTurn::Awaited(PollSemaphore::new(Arc::clone(turns))));
        if let ResponseTurn::Awaited(semaphore) = turn {
            let permit = ready!(semaphore.poll_acquire(cx));
            *turn = ResponseTurn::Taken(permit, Box::pin(sleep_until(Instant::now() + limit)));
        }
        if let ResponseTurn::Taken(_, end) = turn
            && end.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(TooLarge::Slow { limit, large }));
        }
        Poll::Ready(Ok(()))
    }

    /// The rest of the response is not read: its stream or connection ends with the body.
    fn end(&mut self, error: TooLarge) -> Poll<Option<Result<Frame<<Body as HttpBody>::Data>, BoxError>>> {
        (self.body, self.turn) = (Body::empty(), None);
        self.read = 0;
        Poll::Ready(Some(Err(error.into())))
    }
}

impl HttpBody for BoundedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, BoxError>>> {
        let (most, _, unit) = self.most();
        if !self.is_watch && self.body.size_hint().lower() > most {
            return self.end(TooLarge::Bytes { most, unit });
        }
        if let Err(error) = ready!(self.poll_turn(cx)) {
            return self.end(error);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx).map_err(BoxError::from));
        if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref))
            && let Some(data) = data
            && let Err(error) = self.count(data)
        {
            return self.end(error);
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
    use std::time::Duration;

    use axum::{Router, body::Body as Answer, extract::Query, response::IntoResponse, routing::get};
    use futures::{StreamExt, TryStreamExt, pin_mut, stream};
    use k8s_openapi::api::core::v1::Node;
    use kube::{
        Api, Config,
        api::{ListParams, WatchParams},
    };
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    const LIMITS: ResponseLimits =
        ResponseLimits { whole: 4 * MIB, large: MIB, event: 2 * MIB, ..ResponseLimits::TARGET };

    /// A server that begins like an API server, and then sends the same text without end.
    async fn endless(text: &'static str) -> (Client, AbortOnDropHandle<std::io::Result<()>>) {
        let answer = move || async move {
            let rest = stream::repeat_with(move || Ok::<_, std::io::Error>(text.repeat(4096)));
            Answer::from_stream(stream::once(async { Ok(r#"{"kind":"NodeList","items":["#.to_owned()) }).chain(rest))
        };
        let router = Router::new().fallback(get(move |_: Query<Vec<(String, String)>>| answer()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        (within(client, LIMITS), server)
    }

    async fn in_time<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), work).await.unwrap()
    }

    #[tokio::test]
    async fn a_list_without_end_is_an_error_at_its_limit() {
        let (client, _server) = endless(" ").await;
        // More of them than may be large at once: each gets its turn.
        let api = Api::<Node>::all(client);
        let params = ListParams::default();
        let lists = (0..2 * LARGE_AT_ONCE).map(|_| api.list(&params));
        for list in in_time(futures::future::join_all(lists)).await {
            let error = super::super::objects::chain(&list.unwrap_err()).to_string();
            assert!(error.contains("more than 4 MiB in one response"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_event_of_a_watch_without_end_is_an_error_at_its_limit() {
        let (client, _server) = endless(" ").await;
        let events = in_time(Api::<Node>::all(client).watch(&WatchParams::default(), "0")).await.unwrap();
        pin_mut!(events);
        let error = in_time(events.try_next()).await.unwrap_err();
        let error = super::super::objects::chain(&error).to_string();
        assert!(error.contains("more than 2 MiB in one event of a watch"), "{error}");
    }

    #[test]
    fn events_of_a_watch_are_counted_one_by_one() {
        let mut watch = BoundedBody::new(Body::empty(), true, ResponseLimits { event: 4, ..LIMITS });
        for text in ["1234", "\n12", "34\n1234\n123", "4\n"] {
            assert_eq!(watch.count(text.as_bytes()), Ok(()), "{text}");
        }
        assert!(watch.count(b"12345").is_err());
        let mut list = BoundedBody::new(Body::empty(), false, ResponseLimits { whole: 4, ..LIMITS });
        assert!(list.count(b"1\n2").is_ok() && list.count(b"\n4").is_err());
    }

    fn counted(text: &str) -> JsonCounter {
        let mut count = JsonCounter::default();
        text.bytes().for_each(|byte| count.byte(byte));
        count
    }

    #[test]
    fn values_and_objects_of_a_list_are_counted_as_they_arrive() {
        let list = r#"{"kind":"NodeList","metadata":{"continue":"a,b"},"items":[{"a":[{},{}]},{"b":"}],{\"[{"},{}]}"#;
        assert_eq!((counted(list).objects, counted(list).depth), (3, 0));
        assert_eq!(counted(r#"{"metadata":{"labels":{"a":"b"}},"status":{"conditions":[{},{}]}}"#).objects, 0);
        assert_eq!(counted("[0,0,0]").values, 3);
    }

    /// Error texts of the first frame of a response of a target to a request for a page of 500.
    fn refused(text: &str) -> String {
        let mut page =
            BoundedBody { asked: Some(500), ..BoundedBody::new(Body::empty(), false, ResponseLimits::TARGET) };
        page.count(text.as_bytes()).map_or_else(|error| error.to_string(), |()| "taken".to_owned())
    }

    #[test]
    fn a_page_of_a_target_has_not_many_more_objects_than_were_asked_for_and_not_too_many_values() {
        let list = |item: &str, count: usize| format!("{{\"items\":[{}]}}", vec![item; count].join(","));
        let node = r#"{"metadata":{"name":"n1"}}"#;
        assert_eq!(refused(&list(node, 1000)), "taken");
        assert!(refused(&list(node, 1001)).contains("more than 1000 objects in a page of 500"));
        let of_conditions = list(&format!(r#"{{"status":{{"conditions":[{}]}}}}"#, vec!["{}"; 600_000].join(",")), 1);
        assert!(refused(&of_conditions).contains("more than 1000000 JSON values in one response"));
        let unknown = format!(r#"{{"a":[{}]}}"#, "0,".repeat(1_000_001));
        assert!(refused(&unknown).contains("more than 1000000 JSON values in one response"));
        let mut watch = BoundedBody::new(Body::empty(), true, ResponseLimits::TARGET);
        let event = format!("[{}0]\n", "0,".repeat(40_000));
        assert_eq!(watch.count(event.repeat(2).as_bytes()), Ok(()), "each event counts for itself");
        assert!(watch.count(format!("[{}0]\n", "0,".repeat(50_000)).as_bytes()).is_err());
    }

    #[test]
    fn an_error_of_an_api_server_is_short() {
        let (limits, _) = ResponseLimits::TARGET.of_status(StatusCode::FORBIDDEN, false);
        let mut error = BoundedBody::new(Body::empty(), false, limits);
        let refused = error.count(&vec![b' '; 300 << 10]).unwrap_err().to_string();
        assert!(refused.contains("more than 256 KiB in one response"), "{refused}");
    }

    /// A server that begins a page, and sends no more; or the whole page, if the request is for one object.
    async fn slow() -> (Client, AbortOnDropHandle<std::io::Result<()>>) {
        let answer = |query: Query<Vec<(String, String)>>| async move {
            let rest = stream::pending::<Result<String, std::io::Error>>();
            let begin = format!(r#"{{"kind":"NodeList","metadata":{{}},"items":[{}"#, " ".repeat(2 << 20));
            if query.iter().any(|(name, value)| name == "limit" && value == "1") {
                return format!("{begin}]}}").into_response();
            }
            Answer::from_stream(stream::once(async { Ok(begin) }).chain(rest)).into_response()
        };
        let router = Router::new().fallback(get(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));
        static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LARGE_AT_ONCE)));
        let limits = ResponseLimits { turns: &TURNS, turn_limit: Duration::from_millis(50), ..LIMITS };
        (within(Client::try_from(Config::new(url.parse().unwrap())).unwrap(), limits), server)
    }

    #[tokio::test]
    async fn a_slow_server_keeps_no_turn_from_others() {
        let (client, _server) = slow().await;
        let api = Api::<Node>::all(client);
        let (endless, whole) = (ListParams::default(), ListParams::default().limit(1));
        let slow = futures::future::join_all((0..2 * LARGE_AT_ONCE).map(|_| api.list(&endless)));
        let (slow, other) = in_time(futures::future::join(slow, api.list(&whole))).await;
        assert!(other.unwrap().items.is_empty());
        for error in slow {
            let error = super::super::objects::chain(&error.unwrap_err()).to_string();
            assert!(error.contains("needs more than 50ms to send a response of more than 1 MiB"), "{error}");
        }
    }
}
