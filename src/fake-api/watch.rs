//! The stream of a watch.

use std::{io, sync::Arc, time::Duration};

use axum::body::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::{
    answer::{self, metadata_only},
    call::ApiCall,
    network::WatchFault,
    signal::ChangeSignal,
    state::ApiServerState,
    store::{self, WatchChange},
};

/// Time between two bookmarks of a quiet watch.
const BOOKMARK: Duration = Duration::from_secs(60);
/// Changes in one chunk.
const CHUNK: usize = 50;

struct WatchStream {
    state: Arc<Mutex<ApiServerState>>,
    call: ApiCall,
    version: u64,
    ends_at: Instant,
    end: Option<WatchFault>,
    bookmark_at: Instant,
    is_over: bool,
    /// No change is shown before this time: they come in order, each late by its own time.
    shown_at: Instant,
    /// The change for which that was decided.
    decided: u64,
    changed: ChangeSignal,
}

/// Lines of JSON, one for each change, until the watch ends.
pub(super) fn stream(
    state: Arc<Mutex<ApiServerState>>,
    changed: ChangeSignal,
    call: ApiCall,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let now = Instant::now();
    let asked = call.query.get("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(300);
    let network = Arc::clone(&state.lock().network);
    let life = network.watch_lasts(&call);
    let longest = now + Duration::from_secs(asked);
    let (ends_at, end) = life.map_or((longest, WatchFault::Closed), |(after, end)| (longest.min(now + after), end));
    let version = call.query.get("resourceVersion").and_then(|version| version.parse().ok());
    let watch = WatchStream {
        version: version.unwrap_or_else(|| state.lock().store.version()),
        changed,
        state,
        call,
        ends_at,
        end: Some(end),
        bookmark_at: now + BOOKMARK,
        is_over: false,
        shown_at: now,
        decided: 0,
    };
    futures::stream::unfold(watch, WatchStream::next)
}

impl WatchStream {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.is_over {
            return None;
        }
        loop {
            let seen = self.changed.count();
            let Some(due) = self.take_due() else {
                self.is_over = true;
                let gone = json!({ "type": "ERROR", "object": answer::expired() });
                return Some((Ok(Bytes::from(format!("{gone}\n"))), self));
            };
            if let Some(text) = due {
                self.bookmark_at = Instant::now() + BOOKMARK;
                return Some((Ok(text), self));
            }
            let next_change = if self.shown_at > Instant::now() { self.shown_at } else { self.ends_at };
            tokio::select! {
                biased;
                () = sleep_until(self.ends_at) => return self.finish().await,
                () = self.changed.sent_after(seen) => {}
                () = sleep_until(next_change) => {}
                () = sleep_until(self.bookmark_at) => {
                    self.bookmark_at = Instant::now() + BOOKMARK;
                    return Some((Ok(self.bookmark()), self));
                }
            }
        }
    }

    /// Text of changes that are to be shown now. `None` if they are forgotten.
    fn take_due(&mut self) -> Option<Option<Bytes>> {
        let now = Instant::now();
        let shared = Arc::clone(&self.state);
        let state = shared.lock();
        let changes = state.store.changes_after(self.call.kind, self.version)?;
        let mut text = Vec::new();
        for change in changes.iter().take(CHUNK) {
            if !store::is_selected(&self.call, &change.object) {
                self.version = change.version;
                continue;
            }
            if self.decided < change.version {
                self.decided = change.version;
                self.shown_at = self.shown_at.max(change.at + state.network.lag(&self.call));
            }
            if self.shown_at > now {
                break;
            }
            self.version = change.version;
            write(&mut text, change, self.call.is_partial);
        }
        Some((!text.is_empty()).then(|| Bytes::from(text)))
    }

    fn bookmark(&self) -> Bytes {
        let kind = self.call.kind;
        let version = self.version.to_string();
        let object =
            json!({ "kind": kind.name, "apiVersion": kind.api_version(), "metadata": { "resourceVersion": version } });
        Bytes::from(format!("{}\n", json!({ "type": "BOOKMARK", "object": object })))
    }

    async fn finish(mut self) -> Option<(io::Result<Bytes>, Self)> {
        self.is_over = true;
        match self.end.take()? {
            WatchFault::Closed => None,
            WatchFault::Reset => Some((Err(io::Error::other("connection reset by peer")), self)),
            WatchFault::Silent => std::future::pending().await,
        }
    }
}

fn write(text: &mut Vec<u8>, change: &WatchChange, is_partial: bool) {
    text.extend_from_slice(b"{\"type\":\"");
    text.extend_from_slice(change.what.as_bytes());
    text.extend_from_slice(b"\",\"object\":");
    if is_partial {
        text.extend_from_slice(metadata_only(&change.object.value).to_string().as_bytes());
    } else {
        text.extend_from_slice(&change.object.text());
    }
    text.extend_from_slice(b"}\n");
}
