//! Limits the size of responses. An API server may be broken, or controlled by an attacker who tries to exhaust the
//! memory of this process.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::{Client, client::Body};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;
use tower::{BoxError, service_fn};

use super::limiter::is_watch;

const MIB: u64 = 1 << 20;

/// Limits of one response, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Limit of a response that is not a watch.
    whole: u64,
    /// From here on, a response waits until it is one of the [`LARGE_AT_ONCE`].
    large: u64,
    /// Limit of one event of a watch.
    event: u64,
}

impl Limits {
    /// Half a MiB for each of the 500 objects of a page, on average. An object in etcd has 1.5 MiB at most.
    pub const DEFAULT: Self = Self { whole: 256 * MIB, large: 16 * MIB, event: 16 * MIB };
    /// For health, version and discovery.
    pub const SMALL: Self = Self { whole: MIB, large: MIB, event: MIB };
}

/// Large responses that this process reads at the same time, from all servers. So many servers that send too much need
/// no more memory than a few.
const LARGE_AT_ONCE: usize = 2;

static LARGE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LARGE_AT_ONCE)));

/// The API server sent too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server sent more than {} MiB in one {unit}; check the address of the API server", .most.div_ceil(MIB))]
pub struct TooLarge {
    most: u64,
    unit: &'static str,
}

/// A client whose responses are limited.
pub(crate) fn within(client: Client, limits: Limits) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let is_watch = is_watch(request.uri());
            let answer = client.send(request).await?;
            Ok::<Response<_>, BoxError>(answer.map(|body| Bounded::new(body, is_watch, limits)))
        }
    });
    Client::new(service, namespace)
}

/// The body of a response, which fails at its limit.
#[derive(Debug)]
pub struct Bounded {
    body: Body,
    limits: Limits,
    is_watch: bool,
    /// Bytes of the response, or of the current event of a watch.
    read: u64,
    turn: Option<Turn>,
}

#[derive(Debug)]
enum Turn {
    Awaited(PollSemaphore),
    Taken(#[expect(dead_code, reason = "held until the body is dropped")] Option<OwnedSemaphorePermit>),
}

impl Bounded {
    pub(crate) fn new(body: Body, is_watch: bool, limits: Limits) -> Self {
        Self { body, limits, is_watch, read: 0, turn: None }
    }

    fn most(&self) -> TooLarge {
        match self.is_watch {
            true => TooLarge { most: self.limits.event, unit: "event of a watch" },
            false => TooLarge { most: self.limits.whole, unit: "response" },
        }
    }

    /// Counts read bytes, from the last line feed if it is a watch.
    fn count(&mut self, data: &[u8]) -> Result<(), TooLarge> {
        let start = if self.is_watch { data.iter().rposition(|byte| *byte == b'\n') } else { None };
        match start {
            Some(start) => self.read = (data.len() - start - 1) as u64,
            None => self.read = self.read.saturating_add(data.len() as u64),
        }
        let most = self.most();
        if self.read > most.most { Err(most) } else { Ok(()) }
    }

    /// Waits for a turn if the response is large.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_watch || self.read <= self.limits.large {
            return Poll::Ready(());
        }
        let turn = self.turn.get_or_insert_with(|| Turn::Awaited(PollSemaphore::new(Arc::clone(&LARGE))));
        if let Turn::Awaited(semaphore) = turn {
            let permit = ready!(semaphore.poll_acquire(cx));
            *turn = Turn::Taken(permit);
        }
        Poll::Ready(())
    }
}

impl HttpBody for Bounded {
    type Data = <Body as HttpBody>::Data;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, BoxError>>> {
        ready!(self.poll_turn(cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx).map_err(BoxError::from));
        if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref))
            && let Some(data) = data
            && let Err(error) = self.count(data)
        {
            // The rest of the response is not read: the connection ends with the body.
            self.body = Body::empty();
            return Poll::Ready(Some(Err(error.into())));
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

    use axum::{Router, body::Body as Answer, extract::Query, routing::get};
    use futures::{StreamExt, TryStreamExt, pin_mut, stream};
    use k8s_openapi::api::core::v1::Node;
    use kube::{
        Api, Config,
        api::{ListParams, WatchParams},
    };
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    const LIMITS: Limits = Limits { whole: 4 * MIB, large: MIB, event: 2 * MIB };

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
        let mut watch = Bounded::new(Body::empty(), true, Limits { event: 4, ..LIMITS });
        for text in ["1234", "\n12", "34\n1234\n123", "4\n"] {
            assert_eq!(watch.count(text.as_bytes()), Ok(()), "{text}");
        }
        assert!(watch.count(b"12345").is_err());
        let mut list = Bounded::new(Body::empty(), false, Limits { whole: 4, ..LIMITS });
        assert!(list.count(b"1\n2").is_ok() && list.count(b"\n4").is_err());
    }
}
