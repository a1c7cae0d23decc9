//! The event recorder. It writes `core/v1` Events, because the RBAC of the reference grants no other kind.
//!
//! Best effort: recording never waits and never fails. A background task writes the events, aggregates repetitions into
//! a count, and rate-limits events per object.

mod correlate;
mod occurrence;

use std::{sync::Arc, time::Duration};

use correlate::{CorrelationVerdict, EventCorrelator};
use k8s_openapi::{
    api::core::v1::{Event as CoreEvent, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tracing::debug;

use super::{clock::TimeSource, events::occurrence::EventOccurrence, metrics::MetricsRegistry, panics};
use mcm_rules::plan::Event;

/// Events that may wait to be written.
const WAITING: usize = 1024;
/// Longest message that the API server accepts, in bytes.
const LONGEST_MESSAGE: usize = 1024;
/// Time limit of one write.
const PATIENCE: Duration = Duration::from_secs(10);

/// Records events of one component. Clones write through the same task.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    component: &'static str,
    jobs: mpsc::Sender<RecorderJob>,
    clock: Arc<dyn TimeSource>,
    metrics: MetricsRegistry,
}

#[derive(Debug)]
enum RecorderJob {
    Write(Box<EventOccurrence>),
    Flush(oneshot::Sender<()>),
}

impl EventRecorder {
    /// Starts the recorder. `client` should have separate limits, so that events do not delay other requests.
    pub fn start(
        client: Client,
        component: &'static str,
        clock: Arc<dyn TimeSource>,
        metrics: MetricsRegistry,
    ) -> Self {
        let (jobs, queue) = mpsc::channel(WAITING);
        let writer = EventWriter { client, known: EventCorrelator::default(), metrics: metrics.clone() };
        tokio::spawn(panics::of_current_cell(writer.run(queue)));
        Self { component, jobs, clock, metrics }
    }

    /// A recorder that writes nothing.
    pub fn discarded(component: &'static str, clock: Arc<dyn TimeSource>, metrics: MetricsRegistry) -> Self {
        let (jobs, _) = mpsc::channel(1);
        Self { component, jobs, clock, metrics }
    }

    /// The same recorder for another component.
    #[must_use]
    pub fn with_component(&self, component: &'static str) -> Self {
        Self { component, ..self.clone() }
    }

    /// Records an event on an object.
    pub fn record<K: Resource<DynamicType = ()>>(&self, object: &K, event: &Event) {
        self.record_for(object.object_ref(&()), event);
    }

    /// Records an event on the referenced object.
    pub fn record_for(&self, regarding: ObjectReference, event: &Event) {
        let mut event = event.clone();
        event.message.truncate(event.message.floor_char_boundary(LONGEST_MESSAGE));
        let occurrence = EventOccurrence { component: self.component, regarding, event, at: self.clock.now() };
        if self.jobs.try_send(RecorderJob::Write(Box::new(occurrence))).is_err() {
            self.metrics.event_dropped();
        }
    }

    /// Waits until all events recorded so far are written, at most `within`. Returns whether they are.
    pub async fn flush(&self, within: Duration) -> bool {
        let (done, written) = oneshot::channel();
        let flush = async { self.jobs.send(RecorderJob::Flush(done)).await.is_ok() && written.await.is_ok() };
        timeout(within, flush).await.unwrap_or(false)
    }
}

struct EventWriter {
    client: Client,
    known: EventCorrelator,
    metrics: MetricsRegistry,
}

impl EventWriter {
    async fn run(mut self, mut queue: mpsc::Receiver<RecorderJob>) {
        while let Some(job) = queue.recv().await {
            match job {
                RecorderJob::Write(occurrence) => self.write(&occurrence).await,
                // The caller of `flush` may have been dropped.
                RecorderJob::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn write(&mut self, occurrence: &EventOccurrence) {
        let namespace = occurrence.regarding.namespace.as_deref().unwrap_or("default");
        let events: Api<CoreEvent> = Api::namespaced(self.client.clone(), namespace);
        let written = match self.known.judge(occurrence) {
            CorrelationVerdict::TooMuch => {
                self.metrics.event_dropped();
                return;
            }
            CorrelationVerdict::New => self.create(&events, namespace, occurrence).await,
            CorrelationVerdict::Again { name, count } => match bump(&events, &name, count, occurrence).await {
                // The event expired (after an hour) or was deleted.
                Err(EventWriteError::Api(kube::Error::Api(status))) if status.code == 404 => {
                    self.create(&events, namespace, occurrence).await
                }
                other => other,
            },
        };
        if let Err(error) = written {
            self.metrics.event_dropped();
            debug!(error = super::objects::chain(&error), reason = %occurrence.event.reason, object = occurrence.regarding.name, "event not written");
        }
    }

    async fn create(
        &mut self,
        api: &Api<CoreEvent>,
        namespace: &str,
        occurrence: &EventOccurrence,
    ) -> Result<(), EventWriteError> {
        let event = event(namespace, occurrence);
        let name = event.metadata.name.clone().unwrap_or_default();
        within(api.create(&PostParams::default(), &event)).await?;
        self.known.created(occurrence, name);
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum EventWriteError {
    #[error(transparent)]
    Api(kube::Error),
    #[error("no response within {}s", PATIENCE.as_secs())]
    Timeout,
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, EventWriteError> {
    timeout(PATIENCE, call).await.map_err(|_| EventWriteError::Timeout)?.map_err(EventWriteError::Api)
}

async fn bump(
    api: &Api<CoreEvent>,
    name: &str,
    count: i32,
    occurrence: &EventOccurrence,
) -> Result<(), EventWriteError> {
    let patch = json!({ "count": count, "lastTimestamp": Time(occurrence.at) });
    within(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await.map(drop)
}

/// Builds a new Event, with a name as in client-go.
fn event(namespace: &str, occurrence: &EventOccurrence) -> CoreEvent {
    let EventOccurrence { component, regarding, event, at } = occurrence;
    let object = regarding.name.as_deref().unwrap_or_default();
    CoreEvent {
        metadata: ObjectMeta {
            name: Some(format!("{object}.{:x}", at.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: regarding.clone(),
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(event.reason.as_str().to_owned()),
        message: Some(event.message.clone()),
        source: Some(EventSource { component: Some((*component).to_owned()), host: None }),
        reporting_component: Some((*component).to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(*at)),
        last_timestamp: Some(Time(*at)),
        ..CoreEvent::default()
    }
}

#[cfg(test)]
mod tests;
