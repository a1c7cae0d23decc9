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

/// The standing of a process in a role of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleStanding {
    /// The name of the Lease of the role.
    pub lease: &'static str,
    /// This process acts for the role.
    pub is_leading: bool,
    /// A program that is no replica of this process holds the Lease.
    pub is_foreign: bool,
}

/// The state of a cell in one of several replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellState {
    /// This process acts for all roles.
    Led,
    /// Nothing is to be done: the Deployment of the namespace has no replicas. Its target may be shut down.
    Parked,
    /// A program that is no replica holds one of the Leases.
    Foreign,
    /// It starts, or waits for a Lease.
    Waiting,
    /// It cannot run.
    Unusable,
}

impl CellState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Led, Self::Parked, Self::Foreign, Self::Waiting, Self::Unusable];

    /// The value of a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Led => "led",
            Self::Parked => "parked",
            Self::Foreign => "foreign",
            Self::Waiting => "waiting",
            Self::Unusable => "unusable",
        }
    }

    /// This process or another program is responsible for the machines of the cell, or they are left alone on purpose.
    pub const fn is_owned(self) -> bool {
        matches!(self, Self::Led | Self::Parked | Self::Foreign)
    }
}

/// A cell that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellReport {
    /// Its state.
    pub state: CellState,
    /// Its targets, each with true while its Nodes are known.
    pub targets: Vec<(String, bool)>,
}

/// A cell, as users and metrics see it.
pub trait CellOverview: Send + Sync {
    /// Its name; empty for the only one.
    fn name(&self) -> &str;
    /// Its roles.
    fn roles(&self) -> Vec<RoleStanding>;
    /// Nothing is done in its namespace, because the Deployment there has no replicas.
    fn is_parked(&self) -> bool;
    /// Its targets, each with true while its Nodes are known.
    fn targets(&self) -> Vec<(String, bool)>;
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

    /// Adds a cell that runs, until it is dropped.
    pub fn add<C: CellOverview + 'static>(&self, cell: &Arc<C>) {
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
        let leads = cells.iter().flat_map(|cell| cell.roles()).filter(|role| role.is_leading);
        let mut leads: Vec<_> = leads.map(|role| role.lease).collect();
        leads.sort_unstable();
        leads.dedup();
        let mut items: Vec<ObjectExplanation> = cells.iter().flat_map(|cell| cell.waiters(namespace)).collect();
        items.sort_by_key(|item| item.since);
        let total = items.len();
        items.truncate(most);
        WaitingObjects { identities: self.identities(), leads, total, items }
    }

    /// The cells that run, by name.
    pub fn reports(&self) -> BTreeMap<String, CellReport> {
        let report = |cell: &dyn CellOverview| CellReport {
            state: state_of(&cell.roles(), cell.is_parked()),
            targets: cell.targets(),
        };
        // A cell that is restarted replaces the parts of its predecessor that have not ended yet.
        self.running().iter().map(|cell| (cell.name().to_owned(), report(&**cell))).collect()
    }

    fn running(&self) -> Vec<Arc<dyn CellOverview>> {
        let mut cells = self.cells.lock();
        cells.retain(|cell| cell.strong_count() > 0);
        cells.iter().filter_map(Weak::upgrade).collect()
    }
}

fn state_of(roles: &[RoleStanding], is_parked: bool) -> CellState {
    match roles {
        _ if is_parked => CellState::Parked,
        [] => CellState::Waiting,
        roles if roles.iter().all(|role| role.is_leading) => CellState::Led,
        roles if roles.iter().any(|role| role.is_foreign) => CellState::Foreign,
        _ => CellState::Waiting,
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
            for role in cell.roles() {
                out.sample(&LEADER, [cell.name(), role.lease], f64::from(u8::from(role.is_leading)));
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::both_roles([(true, false), (true, false)], false, CellState::Led)]
    #[case::without_replicas([(true, false), (true, false)], true, CellState::Parked)]
    #[case::one_role_of_a_go_program([(true, false), (false, true)], false, CellState::Foreign)]
    #[case::one_role_of_a_replica([(true, false), (false, false)], false, CellState::Waiting)]
    #[case::standby([(false, false), (false, false)], false, CellState::Waiting)]
    #[case::without_replicas_and_target([(false, false), (false, false)], true, CellState::Parked)]
    fn the_state_of_a_cell_is_that_of_its_roles(
        #[case] roles: [(bool, bool); 2],
        #[case] is_parked: bool,
        #[case] state: CellState,
    ) {
        let roles = roles.map(|(is_leading, is_foreign)| RoleStanding { lease: "role", is_leading, is_foreign });
        assert_eq!(state_of(&roles, is_parked), state);
        assert_eq!(state_of(&[], false), CellState::Waiting);
    }
}
