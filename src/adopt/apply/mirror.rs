//! The objects of a running migration. A kind is read again only after one of its objects changed, as reported by a
//! watch. Changes that the watch misses are read a little later.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    api::{DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watcher},
    },
};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Kind, MigrationDirection, MigrationUnit, Snapshot,
    observe::{MigrationEnvironment, NotRead},
    snapshot::CloudAnswers,
};
use mcm_conversion::types::MigrationSide;

/// Changes arrive in groups, so a read waits a moment for more of them.
const GATHER: Duration = Duration::from_millis(100);
/// Period in which everything is read again while a migration waits.
const REFRESH: Duration = Duration::from_secs(5);
/// Time for which an answer of the cloud is used.
const ANSWER: Duration = Duration::from_secs(5);

/// The kinds that have to be read again.
#[derive(Default)]
struct StaleKinds {
    kinds: Mutex<BTreeSet<Kind>>,
    signal: Notify,
}

impl StaleKinds {
    fn add(&self, kind: Kind) {
        self.kinds.lock().insert(kind);
        self.signal.notify_one();
    }
}

/// All objects, and the last state of the VMs.
pub struct MigrationCache<'a> {
    world: &'a MigrationEnvironment,
    way: MigrationDirection,
    snapshot: Snapshot,
    stale: Arc<StaleKinds>,
    answer: Option<(Instant, MigrationSide, CloudAnswers)>,
    _watches: Vec<AbortOnDropHandle<()>>,
}

impl<'a> MigrationCache<'a> {
    /// Watches for changes. Nothing is read yet.
    pub fn new(world: &'a MigrationEnvironment, cluster: &str, unit: &MigrationUnit, way: MigrationDirection) -> Self {
        let stale = Arc::new(StaleKinds::default());
        stale.kinds.lock().extend(way.everything(unit));
        let watched = way.kinds(unit).filter(|kind| !kind.is_of_other() || kind.is_paused_by_annotation());
        let watches = watched.map(|kind| AbortOnDropHandle::new(tokio::spawn(watch(world, kind, &stale)))).collect();
        let snapshot = world.nothing(cluster, unit);
        Self { world, way, snapshot, stale, answer: None, _watches: watches }
    }

    /// The current objects, without the cloud.
    ///
    /// # Errors
    /// Something cannot be read. The next call tries again.
    pub async fn look(&mut self) -> Result<&mut Snapshot, NotRead> {
        let stale = std::mem::take(&mut *self.stale.kinds.lock());
        let kinds: Vec<Kind> = in_order(self.way, &self.snapshot.unit, &stale).collect();
        for kind in kinds {
            if let Err(error) = self.world.read(kind, &mut self.snapshot).await {
                self.stale.kinds.lock().extend(&stale);
                return Err(error);
            }
        }
        self.snapshot.now = Timestamp::now();
        self.snapshot.cloud = None;
        Ok(&mut self.snapshot)
    }

    /// The current objects, with the state of the VMs.
    pub async fn ask(&mut self, side: MigrationSide) -> &Snapshot {
        let known = self.answer.take().filter(|(at, of, _)| *of == side && at.elapsed() < ANSWER);
        let (at, of, cloud) = match known {
            Some(known) => known,
            None => (Instant::now(), side, self.world.ask_cloud(&self.snapshot, self.way, side).await),
        };
        self.snapshot.cloud = Some(cloud.clone());
        self.answer = Some((at, of, cloud));
        &self.snapshot
    }

    /// The objects as the last plan saw them.
    pub const fn seen(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Something of a kind was written, or a VM was tagged.
    pub fn wrote(&mut self, kind: Kind) {
        self.stale.add(kind);
        self.answer = None;
    }

    /// Returns when something may have changed.
    pub async fn changed(&self) {
        if timeout(REFRESH, self.stale.signal.notified()).await.is_err() {
            self.stale.kinds.lock().extend(self.way.everything(&self.snapshot.unit));
        }
        sleep(GATHER).await;
    }
}

/// Some of the kinds that a plan reads, in the order of reading.
fn in_order(way: MigrationDirection, unit: &MigrationUnit, kinds: &BTreeSet<Kind>) -> impl Iterator<Item = Kind> {
    way.everything(unit).filter(|kind| kinds.contains(kind))
}

/// Nodes are not watched: their kubelets write them all the time.
fn watch(world: &MigrationEnvironment, kind: Kind, stale: &Arc<StaleKinds>) -> impl Future<Output = ()> + Send + use<> {
    let (api, stale) = (world.api_of::<PartialObjectMeta<DynamicObject>>(kind), Arc::clone(stale));
    async move {
        let mut events = watcher(api, Config::default()).default_backoff().boxed();
        while let Some(event) = events.next().await {
            if matches!(event, Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone)) {
                stale.add(kind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_after_all_objects_that_name_them() {
        let unit = MigrationUnit::Pool("pool".to_owned());
        for way in MigrationDirection::ALL {
            let kinds: BTreeSet<Kind> = way.everything(&unit).collect();
            let order: Vec<Kind> = in_order(way, &unit, &kinds).collect();
            assert_eq!(order.len(), kinds.len());
            assert!(!kinds.contains(&Kind::Secret) || order.last() == Some(&Kind::Secret), "{order:?}");
        }
    }
}
