//! The running cells of a process: the last plans of their objects, for users and metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Weak},
};

use jiff::SignedDuration;
use parking_lot::Mutex;
use serde::Serialize;

use super::{
    cache::Key,
    explain::ObjectExplanation,
    metrics::{MetricCollector, MetricDesc, TextExposition},
};
use mcm_rules::plan::WaitKind;

const WAITING: MetricDesc<2> = MetricDesc::gauge(
    "mcm_waiting",
    "Objects that wait for something, by controller and kind of wait. Routine checks are not counted.",
    ["controller", "kind"],
);
const LONGEST: MetricDesc<2> = MetricDesc::gauge(
    "mcm_waiting_longest_seconds",
    "Seconds for which the longest of these waits lasts.",
    ["controller", "kind"],
);
const LEADER: MetricDesc<2> = MetricDesc::gauge(
    "mcm_leader",
    "1 while this process acts for a role, by the name of its Lease, otherwise 0.",
    ["cell", "role"],
);

/// A cell, as users and metrics see it.
pub trait CellOverview: Send + Sync {
    /// Its name; empty for the only one.
    fn name(&self) -> &str;
    /// The Leases of its roles, and whether this process acts for them.
    fn roles(&self) -> Vec<(&'static str, bool)>;
    /// Explains the last plan of an object of a kind, from memory; `None` if it has not been planned here.
    fn explain(&self, kind: &str, key: &Key) -> Option<ObjectExplanation>;
    /// The objects that wait for more than routine checks, each once, in all namespaces or in one. Nodes are left out.
    fn waiters(&self, namespace: Option<&str>) -> Vec<ObjectExplanation>;
    /// Shows each kind of wait of each object, with its controller and how long it has lasted.
    fn each_wait(&self, see: &mut dyn FnMut(&'static str, WaitKind, SignedDuration));
}

/// The cells that run. A dropped cell is removed.
#[derive(Default)]
pub struct CellRegistry {
    cells: Mutex<Vec<Weak<dyn CellOverview>>>,
    /// The names of this process in Leases.
    identities: Mutex<BTreeSet<String>>,
}

/// Objects that wait.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitingObjects {
    /// The names of this process in Leases. A reader compares them with the holder of the Lease.
    pub identities: Vec<String>,
    /// The Leases of the roles for which this process acts.
    pub leads: Vec<&'static str>,
    /// The number of objects that wait.
    pub total: usize,
    /// The objects that have waited longest, at most as many as were asked for.
    pub items: Vec<ObjectExplanation>,
}

impl CellRegistry {
    /// Adds the name of this process in a Lease.
    pub fn add_identity(&self, identity: &str) {
        self.identities.lock().insert(identity.to_owned());
    }

    /// The names of this process in Leases.
    pub fn identities(&self) -> Vec<String> {
        self.identities.lock().iter().cloned().collect()
    }

    pub(crate) fn add<C: CellOverview + 'static>(&self, cell: &Arc<C>) {
        let cell: Weak<C> = Arc::downgrade(cell);
        self.cells.lock().push(cell);
    }

    /// Explains the last plan of an object; `None` if no cell has planned it.
    pub(crate) fn explain(&self, kind: &str, key: &Key) -> Option<ObjectExplanation> {
        self.running().iter().find_map(|cell| cell.explain(kind, key))
    }

    /// The objects that wait, in all namespaces or in one, longest first.
    pub(crate) fn waiters(&self, namespace: Option<&str>, most: usize) -> WaitingObjects {
        let cells = self.running();
        let leads = cells.iter().flat_map(|cell| cell.roles()).filter(|(_, is_leading)| *is_leading);
        let mut leads: Vec<_> = leads.map(|(lease, _)| lease).collect();
        leads.sort_unstable();
        leads.dedup();
        let mut items: Vec<ObjectExplanation> = cells.iter().flat_map(|cell| cell.waiters(namespace)).collect();
        items.sort_by_key(|item| item.since);
        let total = items.len();
        items.truncate(most);
        WaitingObjects { identities: self.identities(), leads, total, items }
    }

    fn running(&self) -> Vec<Arc<dyn CellOverview>> {
        let mut cells = self.cells.lock();
        cells.retain(|cell| cell.strong_count() > 0);
        cells.iter().filter_map(Weak::upgrade).collect()
    }
}

impl fmt::Debug for CellRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cells").finish_non_exhaustive()
    }
}

impl MetricCollector for CellRegistry {
    fn collect(&self, out: &mut TextExposition) {
        let mut waiting: BTreeMap<(&str, WaitKind), (u32, SignedDuration)> = BTreeMap::new();
        for cell in self.running() {
            cell.each_wait(&mut |controller, kind, lasts| {
                let (count, longest) = waiting.entry((controller, kind)).or_default();
                *count += 1;
                *longest = lasts.max(*longest);
            });
            for (lease, is_leading) in cell.roles() {
                out.sample(&LEADER, [cell.name(), lease], f64::from(u8::from(is_leading)));
            }
        }
        waiting.retain(|(_, kind), _| !kind.is_routine());
        for ((controller, kind), (count, longest)) in waiting {
            let labels = [controller, &format!("{kind:?}")];
            out.sample(&WAITING, labels, f64::from(count));
            out.sample(&LONGEST, labels, longest.as_secs_f64());
        }
    }
}
