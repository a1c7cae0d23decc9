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
use tokio::{
    task::yield_now,
    time::{Instant, Sleep, sleep, sleep_until, timeout},
};
use tower::{BoxError, service_fn};

use self::large::LargeList;
use super::{
    CacheableKind, ObjectCache,
    bounds::{CacheExcess, ListTally, OverrunError, PageTally},
};
use crate::{
    guard::GuardedObject,
    limiter::{UnansweredRequest, is_watch},
    objects::chain,
    refusal::forbidden,
    trust::{CacheLiveness, CacheTrust, WatchTiming},
};
use mcm_api::backoff::{self, Backoff};

mod large;

/// Time for the watch to show an object that a list did not have, and that was read or written while it was under way.
const DOUBT: Duration = Duration::from_secs(10);
/// Minimum time for which deleted objects are remembered: longer than any response takes.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// Pause before a relist after an error of the watch.
const BREATH: Duration = Duration::from_secs(1);
/// First and longest pause after an API server sent more than the cache may hold. Each attempt costs a list.
const OVER_LIMIT: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(300));
/// Events after which other tasks get their turn, although the API server has sent more.
const EVENTS_IN_A_ROW: u32 = 100;

/// The reason for which a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchEnd {
    /// A list is needed, or one with smaller pages.
    Relist,
    /// The API server sent more than the cache may hold.
    OverLimit,
}

impl<K: CacheableKind> ObjectCache<K> {
    /// Watches until dropped. `api` gets a client that observes signs of life.
    pub async fn watch(
        self: Arc<Self>,
        client: Client,
        api: impl FnOnce(Client) -> Api<GuardedObject<K>>,
        liveness: WatchTiming,
    ) {
        self.watch_fields(client, api, None, liveness).await;
    }

    /// Watches the objects of a field selector until dropped.
    pub async fn watch_fields(
        self: Arc<Self>,
        client: Client,
        api: impl FnOnce(Client) -> Api<GuardedObject<K>>,
        fields: Option<String>,
        liveness: WatchTiming,
    ) {
        self.pulse.expect(liveness.limit);
        let large = LargeList::default();
        let api = api(listening(client, Arc::clone(&self.pulse), Arc::clone(&self.tally), liveness, large.clone()));
        let seconds = u32::try_from(liveness.watch_timeout.as_secs()).unwrap_or(u32::MAX);
        let config = watcher::Config { field_selector: fields, ..watcher::Config::default().timeout(seconds) };
        let mut pauses = OVER_LIMIT.pauses();
        loop {
            let began = Instant::now();
            let events = watcher(api.clone(), config.clone().page_size(self.page.get()));
            let end = self.follow(large.follow(events)).await;
            self.look();
            pauses.reset_after(began.elapsed());
            sleep(if end == WatchEnd::OverLimit { pauses.advance() } else { BREATH }).await;
        }
    }

    /// Stores the events of a watch until it ends or reports an error; then a relist is needed.
    async fn follow(
        &self,
        events: impl Stream<Item = watcher::Result<watcher::Event<GuardedObject<K>>>> + Send,
    ) -> WatchEnd {
        let mut in_a_row = 0;
        let mut events = pin!(events.backoff(WatchBackoff::default()));
        let mut relist_at = None;
        let mut forget_at = Instant::now() + REMEMBERED_FOR;
        loop {
            relist_at = self.is_in_doubt().then(|| relist_at.unwrap_or_else(|| Instant::now() + DOUBT));
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        if !self.observe(event) {
                            return WatchEnd::OverLimit;
                        }
                        in_a_row += 1;
                        if in_a_row % EVENTS_IN_A_ROW == 0 {
                            yield_now().await;
                        }
                    }
                    Some(Err(error)) => {
                        self.interrupted(&error);
                        if let Some(overrun) = OverrunError::find(&error) {
                            return self.overrun(overrun, &text(&error));
                        }
                        // kube-rs would continue from the same version forever and could miss the changes that the API
                        // server could not report. It relists only if the version is too old (410).
                        if matches!(&error, watcher::Error::WatchError(status) if status.code != 410) {
                            return WatchEnd::Relist;
                        }
                    }
                    None => return WatchEnd::Relist,
                },
                () = self.pulse.changes() => {}
                () = sleep_until(forget_at) => {
                    self.store.write().forget_gone();
                    forget_at = Instant::now() + REMEMBERED_FOR;
                }
                () = sleep_until(relist_at.unwrap_or_else(Instant::now)), if relist_at.is_some() => return WatchEnd::Relist,
            }
            self.look();
        }
    }

    /// The API server sent too much. Smaller pages may help.
    fn overrun(&self, overrun: OverrunError, why: &str) -> WatchEnd {
        if overrun.fits_in_smaller_pages() && self.page.shrink() {
            return WatchEnd::Relist;
        }
        self.over_limit(why.to_owned());
        WatchEnd::OverLimit
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

    /// Calls the handlers when the cache is filled, when it becomes untrusted, and when it is trusted again.
    fn look(&self) {
        let trust = self.pulse.trust();
        let is_lost = matches!(trust, CacheTrust::Untrusted { .. });
        let was_lost = self.is_trust_lost.swap(is_lost, Ordering::AcqRel);
        // A cache may be trusted before its first list is complete; objects missing from it are unknown until then.
        let is_news = self.is_synced() && !self.is_filling_told.swap(true, Ordering::AcqRel);
        if was_lost == is_lost && !is_news {
            return;
        }
        let kind = K::plural(&());
        match &trust {
            CacheTrust::Untrusted { since, why } => {
                tracing::warn!(%kind, %since, why, "cache not trusted, missing objects count as unknown");
            }
            _ if was_lost => tracing::info!(%kind, "cache trusted again"),
            _ => tracing::debug!(%kind, "cache filled"),
        }
        self.trust_handlers.each(|handler| handler(&trust));
    }

    /// Reads all objects live: stores newer states than the stored ones, and drops stored objects that do not
    /// exist. Older events that the watch still delivers change nothing.
    ///
    /// # Errors
    /// The list failed. Pages read until then are stored.
    pub async fn refresh(&self, api: &Api<GuardedObject<K>>) -> kube::Result<()> {
        let held = self.store.write().begin_reading();
        let mut read = HashSet::new();
        let mut page = ListParams::default().limit(self.page.get());
        let mut pages = self.store.read().most_pages(self.page.get()).map(|most| 0..most);
        let version = loop {
            if let Some(pages) = &mut pages
                && pages.next().is_none()
            {
                return Err(kube::Error::Service(CacheExcess::Pages(pages.end).into()));
            }
            let list = api.list(&page).await.inspect_err(|error| self.shrink_pages(error))?;
            read.extend(list.items.iter().filter_map(|object| object.meta().uid.clone()));
            let objects: Vec<_> = list.items.into_iter().map(|object| self.pruned(object)).collect();
            self.change(|store| objects.into_iter().filter_map(|object| store.read(object)).collect::<Vec<_>>());
            if let Some(excess) = self.excess() {
                self.exceeded(excess);
                return Err(kube::Error::Service(excess.into()));
            }
            // All pages are of one version.
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => break list.metadata.resource_version,
            }
        };
        self.change(|store| store.finish_reading(held, &read, version.as_deref()));
        Ok(())
    }

    /// The next attempt requests smaller pages, if these were too large.
    fn shrink_pages(&self, error: &kube::Error) {
        if OverrunError::find(error).is_some_and(OverrunError::fits_in_smaller_pages) {
            self.page.shrink();
        }
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
struct WatchBackoff(backoff::Pauses);

impl Default for WatchBackoff {
    fn default() -> Self {
        Self(Backoff::new(Duration::from_millis(800), Duration::from_secs(10)).pauses())
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // Tests are deterministic.
        let jitter = if cfg!(any(test, feature = "testing")) { 0.5 } else { rand::random::<f64>() };
        Some(self.0.advance().mul_f64(1.0 + 0.2 * jitter))
    }
}

impl kube::runtime::utils::Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// A client for one watch: bounds the time to open it, ends it after a silence, and records signs of life. It also bounds a list.
fn listening(
    client: Client,
    pulse: Arc<CacheLiveness>,
    tally: Arc<ListTally>,
    liveness: WatchTiming,
    large: LargeList,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, large) = (client.clone(), large.clone());
        let (pulse, tally) = (Arc::clone(&pulse), Arc::clone(&tally));
        async move {
            if !is_watch(request.uri()) {
                let page = tally.page()?;
                return Ok(client.send(request).await?.map(|body| IdleTimeoutBody::page(body, page, large)));
            }
            let WatchTiming { open_timeout, idle_timeout, .. } = liveness;
            let opening = timeout(open_timeout, client.send(request)).await;
            let answer = opening.map_err(|_| UnansweredRequest(open_timeout))??;
            if answer.status().is_success() {
                pulse.heard();
            }
            Ok::<Response<_>, BoxError>(answer.map(|body| IdleTimeoutBody::watch(body, pulse, idle_timeout)))
        }
    });
    Client::new(service, namespace)
}

/// The body of a response. That of a watch ends after too long a silence, as if the API server had ended it.
struct IdleTimeoutBody {
    body: Body,
    kind: BodyKind,
}

enum BodyKind {
    /// A page of a list, with the bytes that were read.
    Page {
        large: LargeList,
        page: PageTally,
        read: u64,
    },
    Watch(IdleTimer),
}

struct IdleTimer {
    pulse: Arc<CacheLiveness>,
    idle_timeout: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl IdleTimeoutBody {
    fn page(body: Body, page: PageTally, large: LargeList) -> Self {
        Self { body, kind: BodyKind::Page { large, page, read: 0 } }
    }

    fn watch(body: Body, pulse: Arc<CacheLiveness>, idle_timeout: Duration) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + idle_timeout));
        Self { body, kind: BodyKind::Watch(IdleTimer { pulse, idle_timeout, deadline }) }
    }
}

impl http_body::Body for IdleTimeoutBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, BoxError>>> {
        if let BodyKind::Page { large, read, .. } = &self.kind
            && large.is_news(*read)
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into);
        let watch = match &mut self.kind {
            BodyKind::Watch(watch) => watch,
            BodyKind::Page { page, read, .. } => {
                let bytes = match &frame {
                    Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(0, |data| data.len()),
                    _ => 0,
                };
                *read += bytes as u64;
                if let Err(excess) = page.add(bytes) {
                    self.body = Body::empty();
                    return Poll::Ready(Some(Err(excess.into())));
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
