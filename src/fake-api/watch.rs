//! The stream of a watch.

use std::{io, sync::Arc, time::Duration};

use axum::body::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    answer,
    call::{AnswerShape, ApiCall},
    filter::ObjectFilter,
    network::WatchFault,
    object::ServerObject,
    refusal::RequestRefusal,
    signal::ChangeSignal,
    state::ApiServerState,
    store::ObjectStore,
    table::TablePrinter,
};
use mcm_runtime::clock::TimeSource;

/// Time between two bookmarks of a quiet watch.
const BOOKMARK: Duration = Duration::from_secs(60);
/// A watch without a limit lasts half an hour, as those of the real API server do at least.
const LONGEST: u64 = 1_800;
/// Changes in one chunk.
const CHUNK: usize = 50;

struct WatchStream {
    clock: Arc<dyn TimeSource>,
    filter: ObjectFilter,
    /// Prints changes as tables.
    printer: Option<TablePrinter>,
    /// The objects at the beginning that are sent first.
    initial: Option<Vec<Arc<ServerObject>>>,
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

/// Lines of JSON, one for each change, until the watch ends. A watch without a version, or with `sendInitialEvents`, begins
/// with all objects.
pub(super) fn stream(
    state: Arc<Mutex<ApiServerState>>,
    changed: ChangeSignal,
    clock: Arc<dyn TimeSource>,
    call: ApiCall,
) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, RequestRefusal> {
    let now = Instant::now();
    let asked = call.query.get("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(LONGEST);
    let network = Arc::clone(&state.lock().network);
    let life = network.watch_lasts(&call);
    let longest = now + Duration::from_secs(asked.min(LONGEST * 2));
    let (ends_at, end) = life.map_or((longest, WatchFault::Closed), |(after, end)| (longest.min(now + after), end));
    let filter = ObjectFilter::from_call(&call)?;
    let version = call.query.get("resourceVersion").and_then(|version| version.parse().ok());
    let (version, initial) = match version.filter(|_| !sends_initial(&call)) {
        Some(version) => (version, None),
        None => {
            let objects =
                |store: &ObjectStore| store.all(call.kind).filter(|one| filter.selects(one)).cloned().collect();
            let state = state.lock();
            (state.store.version(), Some(objects(&state.store)))
        }
    };
    let watch = WatchStream {
        clock,
        filter,
        printer: (call.shape == AnswerShape::Table).then(|| TablePrinter::from_call(&call)),
        initial,
        version,
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
    Ok(futures::stream::unfold(watch, WatchStream::next))
}

/// The watch replaces a list: a bookmark ends the objects that it begins with.
fn sends_initial(call: &ApiCall) -> bool {
    call.query.get("sendInitialEvents").is_some_and(|value| value == "true")
}

impl WatchStream {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.is_over {
            return None;
        }
        if let Some(text) = self.initial.take().map(|objects| self.beginning(&objects)).filter(|text| !text.is_empty())
        {
            return Some((Ok(text), self));
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
                    return Some((Ok(self.bookmark(&Value::Null)), self));
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
            if !self.filter.selects(&change.object) {
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
            self.write(&mut text, change.what, &change.object);
        }
        Some((!text.is_empty()).then(|| Bytes::from(text)))
    }

    /// All objects at the beginning, and the bookmark after them.
    fn beginning(&self, objects: &[Arc<ServerObject>]) -> Bytes {
        let mut text = Vec::new();
        for object in objects {
            self.write(&mut text, "ADDED", object);
        }
        if sends_initial(&self.call) {
            text.extend_from_slice(&self.bookmark(&json!({ "k8s.io/initial-events-end": "true" })));
        }
        Bytes::from(text)
    }

    fn write(&self, text: &mut Vec<u8>, what: &str, object: &ServerObject) {
        text.extend_from_slice(b"{\"type\":\"");
        text.extend_from_slice(what.as_bytes());
        text.extend_from_slice(b"\",\"object\":");
        match &self.printer {
            Some(printer) => {
                let meta = json!({ "resourceVersion": object.version.to_string() });
                text.extend_from_slice(printer.table([object], &meta, self.clock.now()).to_string().as_bytes());
            }
            None if self.call.shape == AnswerShape::Metadata => {
                text.extend_from_slice(object.metadata_only().to_string().as_bytes());
            }
            None => text.extend_from_slice(&object.text()),
        }
        text.extend_from_slice(b"}\n");
    }

    fn bookmark(&self, annotations: &Value) -> Bytes {
        let kind = self.call.kind;
        let mut meta = json!({ "resourceVersion": self.version.to_string() });
        if !annotations.is_null() {
            meta["annotations"] = annotations.clone();
        }
        let object = match &self.printer {
            Some(printer) => printer.table([], &meta, self.clock.now()),
            None => json!({ "kind": kind.name, "apiVersion": kind.api_version(), "metadata": meta }),
        };
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
