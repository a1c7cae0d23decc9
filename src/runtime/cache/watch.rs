//! Fills a cache from an API server, and notices when its watch is silent.

use std::{
    collections::HashSet,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::{
    Api, Client, Resource,
    api::ListParams,
    client::Body,
    runtime::{WatchStreamExt, watcher},
};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tower::{BoxError, service_fn};

use self::large::LargeList;
use super::{Cache, Cached};
use crate::{
    api::backoff::{self, Backoff},
    runtime::{
        guard::Guard,
        limiter::{Unanswered, is_watch},
        objects::chain,
        refusal::forbidden,
        trust::{Liveness, Pulse, Trust},
    },
};

mod large;

/// Page size of a list.
const PAGE: u32 = 500;
/// Time for the watch to show an object that a list did not have, and that was read or written while it was under way.
const DOUBT: Duration = Duration::from_secs(10);
/// Minimum time for which deleted objects are remembered: longer than any response takes.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// Pause before a relist after an error of the watch.
const BREATH: Duration = Duration::from_secs(1);

impl<K: Cached> Cache<K> {
    /// Watches until dropped. `api` gets a client that observes signs of life.
    pub async fn watch(self: Arc<Self>, client: Client, api: impl FnOnce(Client) -> Api<Guard<K>>, liveness: Liveness) {
        self.pulse.expect(liveness.limit);
        let large = LargeList::default();
        let api = api(listening(client, Arc::clone(&self.pulse), liveness, large.clone()));
        let seconds = u32::try_from(liveness.watch_timeout.as_secs()).unwrap_or(u32::MAX);
        let config = watcher::Config::default().timeout(seconds);
        loop {
            self.follow(large.follow(watcher(api.clone(), config.clone()))).await;
            sleep(BREATH).await;
        }
    }

    /// Stores the events of a watch until it ends or reports an error; then a relist is needed.
    async fn follow(&self, events: impl Stream<Item = watcher::Result<watcher::Event<Guard<K>>>> + Send) {
        let mut events = pin!(events.backoff(Pauses::default()));
        let mut relist_at = None;
        let mut forget_at = Instant::now() + REMEMBERED_FOR;
        loop {
            relist_at = self.is_in_doubt().then(|| relist_at.unwrap_or_else(|| Instant::now() + DOUBT));
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Ok(event)) => self.observe(event),
                    Some(Err(error)) => {
                        self.interrupted(&error);
                        // kube-rs would continue from the same version forever and could miss the changes that the API
                        // server could not report. It relists only if the version is too old (410).
                        if matches!(&error, watcher::Error::WatchError(status) if status.code != 410) {
                            return;
                        }
                    }
                    None => return,
                },
                () = self.pulse.changes() => {}
                () = sleep_until(forget_at) => {
                    self.store.write().forget_gone();
                    forget_at = Instant::now() + REMEMBERED_FOR;
                }
                () = sleep_until(relist_at.unwrap_or_else(Instant::now)), if relist_at.is_some() => return,
            }
            self.look();
        }
    }

    fn interrupted(&self, error: &watcher::Error) {
        let kind = K::plural(&());
        if let watcher::Error::InitialListFailed(error) = error
            && let Some(status) = forbidden(error)
        {
            self.pulse.refused(status.message.clone());
            self.filled.notify_waiters();
        }
        let error = text(error);
        if self.pulse.failed(error.clone()) {
            tracing::warn!(%kind, error, "watch interrupted, retrying");
        } else {
            tracing::debug!(%kind, error, "watch interrupted again");
        }
    }

    /// Tells the handlers when the cache is filled, when it becomes untrusted, and when it is trusted again.
    fn look(&self) {
        let trust = self.pulse.trust();
        let is_lost = matches!(trust, Trust::Untrusted { .. });
        let was_lost = self.is_trust_lost.swap(is_lost, Ordering::AcqRel);
        // A cache may be trusted before its first list is complete; objects missing from it are unknown until then.
        let is_news = self.is_synced() && !self.is_filling_told.swap(true, Ordering::AcqRel);
        if was_lost == is_lost && !is_news {
            return;
        }
        let kind = K::plural(&());
        match &trust {
            Trust::Untrusted { since, why } => {
                tracing::warn!(%kind, %since, why, "cache not trusted, missing objects count as unknown");
            }
            _ if was_lost => tracing::info!(%kind, "cache trusted again"),
            _ => tracing::debug!(%kind, "cache filled"),
        }
        self.trust_handlers.each(|handler| handler(&trust));
    }

    /// Reads all objects live: stores those that are newer than the stored ones, and drops stored ones that do not
    /// exist. Older events that the watch still delivers change nothing.
    ///
    /// # Errors
    /// The list failed. Pages read until then are stored.
    pub async fn refresh(&self, api: &Api<Guard<K>>) -> kube::Result<()> {
        let held = self.store.write().begin_reading();
        let mut read = HashSet::new();
        let mut page = ListParams::default().limit(PAGE);
        let version = loop {
            let list = api.list(&page).await?;
            read.extend(list.items.iter().filter_map(|object| object.meta().uid.clone()));
            let objects: Vec<_> = list.items.into_iter().map(|object| self.pruned(object)).collect();
            self.change(|store| objects.into_iter().filter_map(|object| store.read(object)).collect::<Vec<_>>());
            // All pages are of one version.
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => break list.metadata.resource_version,
            }
        };
        self.change(|store| store.finish_reading(held, &read, version.as_deref()));
        Ok(())
    }
}

fn text(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error) => format!("the list failed: {}", chain(error)),
        watcher::Error::WatchStartFailed(error) => format!("the watch cannot be opened: {}", chain(error)),
        watcher::Error::WatchFailed(error) => format!("the watch broke off: {}", chain(error)),
        watcher::Error::WatchError(status) => format!("the API server ended the watch: {}", status.message),
        watcher::Error::NoResourceVersion => chain(error),
    }
}

/// From 0.8 s to 10 s, so that recovery takes little longer than that of the API server.
struct Pauses(backoff::Pauses);

impl Default for Pauses {
    fn default() -> Self {
        Self(Backoff::new(Duration::from_millis(800), Duration::from_secs(10)).pauses())
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // Tests are deterministic.
        let jitter = if cfg!(test) { 0.5 } else { rand::random::<f64>() };
        Some(self.0.advance().mul_f64(1.0 + 0.2 * jitter))
    }
}

impl kube::runtime::utils::Backoff for Pauses {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// A client for one watch: bounds the time to open it, ends it after a silence, and records signs of life.
fn listening(client: Client, pulse: Arc<Pulse>, liveness: Liveness, large: LargeList) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, pulse, large) = (client.clone(), Arc::clone(&pulse), large.clone());
        async move {
            if !is_watch(request.uri()) {
                return Ok(client.send(request).await?.map(|body| Listened::call(body, large)));
            }
            let Liveness { open_timeout, idle_timeout, .. } = liveness;
            let opening = timeout(open_timeout, client.send(request)).await;
            let answer = opening.map_err(|_| Unanswered(open_timeout))??;
            if answer.status().is_success() {
                pulse.heard();
            }
            Ok::<Response<_>, BoxError>(answer.map(|body| Listened::watch(body, pulse, idle_timeout)))
        }
    });
    Client::new(service, namespace)
}

/// The body of a response. That of a watch ends after too long a silence, as if the API server had ended it.
struct Listened {
    body: Body,
    kind: BodyKind,
}

enum BodyKind {
    /// A list, with the bytes that were read.
    List {
        large: LargeList,
        read: u64,
    },
    Watch(Listening),
}

struct Listening {
    pulse: Arc<Pulse>,
    idle_timeout: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl Listened {
    fn call(body: Body, large: LargeList) -> Self {
        Self { body, kind: BodyKind::List { large, read: 0 } }
    }

    fn watch(body: Body, pulse: Arc<Pulse>, idle_timeout: Duration) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + idle_timeout));
        Self { body, kind: BodyKind::Watch(Listening { pulse, idle_timeout, deadline }) }
    }
}

impl http_body::Body for Listened {
    type Data = <Body as http_body::Body>::Data;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, BoxError>>> {
        if let BodyKind::List { large, read } = &self.kind
            && large.is_news(*read)
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into);
        let watch = match &mut self.kind {
            BodyKind::Watch(watch) => watch,
            BodyKind::List { read, .. } => {
                if let Poll::Ready(Some(Ok(frame))) = &frame {
                    *read += frame.data_ref().map_or(0, |data| data.len() as u64);
                }
                return frame;
            }
        };
        match frame {
            Poll::Ready(Some(Ok(frame))) => {
                watch.pulse.heard();
                watch.deadline.as_mut().reset(Instant::now() + watch.idle_timeout);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Pending => match watch.deadline.as_mut().poll(cx) {
                Poll::Ready(()) => {
                    tracing::debug!(silence = ?watch.idle_timeout, "watch silent, reopening it");
                    Poll::Ready(None)
                }
                Poll::Pending => Poll::Pending,
            },
            end => end,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
