//! Limits the size of responses. An API server may be broken, or controlled by an attacker who tries to exhaust the
//! memory of this process.

use std::{
    fmt, mem,
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
/// Frames of a response that is not a watch, whatever their size.
const FRAMES: u64 = 1024;
/// Bytes of a response for which it may have one more frame. API servers send frames of some KiB.
const BYTES_PER_FRAME: u64 = 64;
/// Bytes of such a response that are handed over in one piece.
const PIECE: usize = 64 << 10;

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
    /// Frames of a few bytes, each of which takes as much time as a long one.
    #[error(
        "the API server sent more than {most} frames for {} of one response; check the address of the API server and the \
         proxies before it", size(.read)
    )]
    Frames {
        /// The limit for these bytes.
        most: u64,
        /// Bytes of the response until then.
        read: u64,
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
        !matches!(self, Self::Objects { .. } | Self::Frames { .. })
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
///
/// The reader of a whole response keeps each piece until the end, and with it the buffer of the connection that the piece is a part
/// of. So the data of a response that is not a watch are copied, and handed over in large pieces: frames of a few bytes need no more
/// memory than large ones. The reader of a watch copies the data of each frame itself, and gets them at once.
pub struct BoundedBody {
    body: Body,
    limits: ResponseLimits,
    is_watch: bool,
    /// The number of objects in the request of a page.
    asked: Option<u64>,
    /// Bytes of the response, or of the current event of a watch.
    read: u64,
    count: JsonCounter,
    /// Frames of a response that is not a watch.
    frames: u64,
    /// Data of such a response that were not handed over yet.
    gathered: Vec<u8>,
    turn: Option<ResponseTurn>,
}

/// Without the data, which may be those of a Secret.
impl fmt::Debug for BoundedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits, is_watch, read, .. } = self;
        let mut shown = f.debug_struct("BoundedBody");
        shown.field("limits", limits).field("is_watch", is_watch).field("read", read).finish_non_exhaustive()
    }
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
        let (count, gathered) = (JsonCounter::default(), Vec::new());
        Self { body, limits, is_watch, asked: None, read: 0, count, frames: 0, gathered, turn: None }
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

    /// Counts a frame whose data were counted.
    fn count_frame(&mut self) -> Result<(), TooLarge> {
        self.frames = self.frames.saturating_add(1);
        let (most, read) = (FRAMES + self.read / BYTES_PER_FRAME, self.read);
        if self.frames > most { Err(TooLarge::Frames { most, read }) } else { Ok(()) }
    }

    /// The gathered data, in a piece without spare room; `None` without data.
    fn hand_over(&mut self) -> Option<Result<Frame<<Body as HttpBody>::Data>, BoxError>> {
        let data = mem::take(&mut self.gathered);
        (!data.is_empty()).then(|| Ok(Frame::data(data.into_boxed_slice().into())))
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
        (self.body, self.turn, self.gathered) = (Body::empty(), None, Vec::new());
        self.read = 0;
        Poll::Ready(Some(Err(error.into())))
    }
}

impl HttpBody for BoundedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, BoxError>>> {
        let (most, _, unit) = self.most();
        loop {
            if !self.is_watch && self.body.size_hint().lower() > most {
                return self.end(TooLarge::Bytes { most, unit });
            }
            if let Err(error) = ready!(self.poll_turn(cx)) {
                return self.end(error);
            }
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()? else {
                // The last piece is still to be read, and the end after it.
                self.body = Body::empty();
                return Poll::Ready(self.hand_over());
            };
            if let Some(data) = frame.data_ref()
                && let Err(error) = self.count(data)
            {
                return self.end(error);
            }
            if self.is_watch {
                return Poll::Ready(Some(Ok(frame)));
            }
            if let Err(error) = self.count_frame() {
                return self.end(error);
            }
            // Trailers are dropped: kube-rs reads none.
            if let Some(data) = frame.data_ref() {
                self.gathered.extend_from_slice(data);
            }
            if self.gathered.len() >= PIECE {
                return Poll::Ready(self.hand_over());
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.gathered.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.gathered.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, io, time::Duration};

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

    /// A client with limits for a server, which runs as long as the handle.
    async fn serve(router: Router, limits: ResponseLimits) -> (Client, AbortOnDropHandle<io::Result<()>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        (within(client, limits), server)
    }

    /// A server that begins like an API server, and then sends the same text without end, in frames of some bytes.
    async fn endless(text: &'static str, size: usize) -> (Client, AbortOnDropHandle<io::Result<()>>) {
        let answer = move || async move {
            let rest = stream::repeat_with(move || Ok::<_, io::Error>(text.repeat(size)));
            Answer::from_stream(stream::once(async { Ok(r#"{"kind":"NodeList","items":["#.to_owned()) }).chain(rest))
        };
        let router = Router::new().fallback(get(move |_: Query<Vec<(String, String)>>| answer()));
        serve(router, LIMITS).await
    }

    /// A server that sends a text in frames of some bytes.
    async fn framed(text: &str, size: usize) -> (Client, AbortOnDropHandle<io::Result<()>>) {
        let frames: Vec<Vec<u8>> = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
        let answer = move || {
            let frames = frames.clone().into_iter().map(Ok::<_, io::Error>);
            async move { Answer::from_stream(stream::iter(frames)) }
        };
        serve(Router::new().fallback(get(answer)), LIMITS).await
    }

    async fn in_time<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), work).await.unwrap()
    }

    #[tokio::test]
    async fn a_list_without_end_is_an_error_at_its_limit() {
        let (client, _server) = endless(" ", 4096).await;
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
        let (client, _server) = endless(" ", 4096).await;
        let events = in_time(Api::<Node>::all(client).watch(&WatchParams::default(), "0")).await.unwrap();
        pin_mut!(events);
        let error = in_time(events.try_next()).await.unwrap_err();
        let error = super::super::objects::chain(&error).to_string();
        assert!(error.contains("more than 2 MiB in one event of a watch"), "{error}");
    }

    #[tokio::test]
    async fn a_list_in_frames_of_a_byte_is_an_error() {
        let (client, _server) = endless(" ", 1).await;
        let error = in_time(Api::<Node>::all(client).list(&ListParams::default())).await.unwrap_err();
        let error = super::super::objects::chain(&error).to_string();
        assert!(error.contains("more than 1040 frames for 2 KiB of one response"), "{error}");
    }

    #[test]
    fn a_longer_response_may_have_more_frames() {
        let mut list = BoundedBody::new(Body::empty(), false, LIMITS);
        list.count(&[b' '; 64_000]).unwrap();
        for _ in 0..2024 {
            assert_eq!(list.count_frame(), Ok(()));
        }
        let error = list.count_frame().unwrap_err();
        assert_eq!(error, TooLarge::Frames { most: 2024, read: 64_000 });
        assert!(!error.fits_in_smaller_pages(), "a page of one object has frames as short");
    }

    #[tokio::test]
    async fn events_of_a_watch_may_come_in_frames_of_a_byte() {
        let event = r#"{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}}"#;
        let (client, _server) = framed(&format!("{event}\n").repeat(100), 1).await;
        let events = in_time(Api::<Node>::all(client).watch(&WatchParams::default(), "0")).await.unwrap();
        assert_eq!(in_time(events.try_collect::<Vec<_>>()).await.unwrap().len(), 100);
    }

    #[tokio::test]
    async fn small_frames_of_a_list_are_handed_over_in_large_pieces() {
        let text: String = (0..100_000).map(|number| format!("{number:08}")).collect();
        let (client, _server) = framed(&text, 100).await;
        let request = Request::get("/api/v1/nodes").body(Body::empty()).unwrap();
        let mut body = in_time(client.send(request)).await.unwrap().into_body();
        let mut pieces = Vec::new();
        while let Some(frame) = in_time(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        let (last, others) = pieces.split_last().unwrap();
        assert!(others.iter().all(|piece| piece.len() >= PIECE) && !last.is_empty(), "{} pieces", pieces.len());
        let whole: Vec<u8> = pieces.iter().flatten().copied().collect();
        assert!(whole == text.as_bytes(), "{} bytes", whole.len());
    }

    #[test]
    fn the_data_of_a_response_are_in_no_debug_text() {
        let mut list = BoundedBody::new(Body::empty(), false, LIMITS);
        list.gathered.extend_from_slice(b"swordfish");
        let swordfish = format!("{:?}", b"swordfish".to_vec());
        let shown = format!("{list:?}");
        assert!(shown.starts_with("BoundedBody") && !shown.contains(&swordfish[1..20]), "{shown}");
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
    async fn slow() -> (Client, AbortOnDropHandle<io::Result<()>>) {
        let answer = |query: Query<Vec<(String, String)>>| async move {
            let rest = stream::pending::<Result<String, io::Error>>();
            let begin = format!(r#"{{"kind":"NodeList","metadata":{{}},"items":[{}"#, " ".repeat(2 << 20));
            if query.iter().any(|(name, value)| name == "limit" && value == "1") {
                return format!("{begin}]}}").into_response();
            }
            Answer::from_stream(stream::once(async { Ok(begin) }).chain(rest)).into_response()
        };
        static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LARGE_AT_ONCE)));
        let limits = ResponseLimits { turns: &TURNS, turn_limit: Duration::from_secs(2), ..LIMITS };
        serve(Router::new().fallback(get(answer)), limits).await
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
            assert!(error.contains("needs more than 2s to send a response of more than 1 MiB"), "{error}");
        }
    }
}
