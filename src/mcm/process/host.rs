//! Parts of a process that its cells share.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use anyhow::{Result, bail};
use http::Uri;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    census::{CellMetrics, ReplicaMetrics},
    clients::CellBudgets,
    options::{CellOptions, ProcessOptions},
};
use mcm_driver::DriverGuards;
use mcm_runtime::{
    budget::RequestBudgets,
    cell::{CellScope, SharedCellState},
    connections::ConnectionRegistry,
    http::ProcessReadiness,
    kubeconfig::address,
    members::standing::FleetStanding,
    metrics::MetricsRegistry,
    separate::SeparateRuntime,
};

/// File descriptors of the process itself: 64 for connections of probes and scrapers, and the others for threads, files and drivers.
const RESERVED: u64 = 96;

/// File descriptors of one cell: a dozen when it rests, and more while it works.
const PER_CELL: u64 = 24;

/// State that all cells of a process share.
#[derive(Clone)]
pub(super) struct ProcessState {
    pub(super) options: Arc<ProcessOptions>,
    pub(super) shared: SharedCellState,
    pub(super) readiness: ProcessReadiness,
    pub(super) guards: Arc<DriverGuards>,
    /// The runtime of elections and their clients.
    pub(super) elections: Arc<SeparateRuntime>,
    /// The connections to control clusters, for the runtime of the controllers, and for that of elections.
    pub(super) connections: ConnectionRegistry,
    /// State that the cells of a file share; `None` for a single cell.
    pub(super) fleet: Option<Arc<FleetState>>,
}

/// State that the cells of a file share.
pub(super) struct FleetState {
    pub census: Arc<CellMetrics>,
    budgets: RequestBudgets,
    /// The cells that run, by name.
    registered: Arc<Mutex<BTreeMap<String, ServedPart>>>,
    /// As many as there are file descriptors for.
    pub(super) most_cells: usize,
    /// The replicas of this process, where they share the control planes.
    replicas: OnceLock<Arc<ReplicaMetrics>>,
    /// The task of a cell has ended.
    pub(super) cell_ended: Arc<Notify>,
    refused: Mutex<Vec<String>>,
}

impl FleetState {
    /// For a process with so many file descriptors.
    pub fn new(readiness: &ProcessReadiness, shared: &SharedCellState, descriptors: Option<u64>) -> Arc<Self> {
        let census = CellMetrics::new(readiness, &shared.caches, &shared.cells);
        shared.metrics.attach(&census);
        let (registered, replicas, cell_ended, refused) = Default::default();
        let most_cells = descriptors.map_or(usize::MAX, most_cells);
        Arc::new(Self {
            census,
            budgets: RequestBudgets::default(),
            registered,
            most_cells,
            replicas,
            cell_ended,
            refused,
        })
    }

    /// The standing of this process among its replicas.
    pub fn member(&self) -> Option<&Arc<FleetStanding>> {
        self.replicas.get()?.standing.get()
    }

    /// This process is about to join the replicas of a fleet.
    pub fn joins(&self, fleet: &str, metrics: &MetricsRegistry) {
        let replicas = ReplicaMetrics::new(fleet);
        metrics.attach(&replicas);
        let _ = self.replicas.set(replicas);
    }

    /// This process has joined them.
    pub fn joined(&self, standing: &Arc<FleetStanding>) {
        self.replicas.get().iter().for_each(|replicas| drop(replicas.standing.set(Arc::clone(standing))));
    }

    /// For the clients of a cell.
    pub fn sharing(&self, cell: &str) -> CellBudgets {
        CellBudgets { budgets: self.budgets.clone(), cell: cell.to_owned() }
    }

    /// Registers what a cell serves, until the result is dropped.
    ///
    /// # Errors
    /// Another cell has the same Leases, or serves one of its namespaces: one of the two would wait for the other.
    pub fn register(&self, options: &CellOptions, server: &Uri) -> Result<CellRegistration> {
        let served =
            ServedPart { server: address(server), scope: options.scope.clone(), leases: options.leases.clone() };
        let mut registered = self.registered.lock();
        for (other, its) in registered.iter().filter(|(_, its)| its.server == served.server) {
            if its.leases == served.leases {
                let ServedPart { server, leases, .. } = served;
                bail!("cell {other} has the Leases of namespace {leases} on {server} already: remove one of the two");
            }
            if its.overlaps(&served) {
                bail!(
                    "cell {other} serves {} on {} already, and this one {}: remove one of the two",
                    its.scope,
                    its.server,
                    served.scope
                );
            }
        }
        registered.insert(options.name.clone(), served);
        Ok(CellRegistration { cell: options.name.clone(), all: Arc::clone(&self.registered) })
    }

    /// # Errors
    /// There are not even file descriptors for one cell.
    pub fn check_room(&self) -> Result<()> {
        if self.most_cells == 0 {
            bail!(
                "the limit of open files allows no cell: raise it to {} or more (ulimit -n, LimitNOFILE)",
                RESERVED + PER_CELL
            );
        }
        Ok(())
    }

    /// Reports cells for which there are no file descriptors.
    pub(super) fn refuse(&self, names: &[&String]) {
        let mut sorted: Vec<String> = names.iter().map(|name| (*name).clone()).collect();
        sorted.sort();
        let mut refused = self.refused.lock();
        let most = self.most_cells;
        for name in &sorted {
            let error = format!("not started: the limit of open files allows {most} cells; raise it");
            self.census.started(name).missing(error);
        }
        if !sorted.is_empty() && sorted.len() != refused.len() {
            let cells = sorted.join(", ");
            tracing::error!(cells, most, "cells not started: raise the limit of open files (ulimit -n, LimitNOFILE)");
        }
        for gone in refused.iter().filter(|name| !sorted.contains(name)) {
            self.census.ended(gone);
        }
        *refused = sorted;
    }
}

fn most_cells(descriptors: u64) -> usize {
    usize::try_from(descriptors.saturating_sub(RESERVED) / PER_CELL).unwrap_or(usize::MAX)
}

/// The namespaces of a server that a cell serves, and the namespace of its Leases.
struct ServedPart {
    server: String,
    scope: CellScope,
    leases: String,
}

impl ServedPart {
    /// Whether both have a namespace in common.
    fn overlaps(&self, other: &Self) -> bool {
        match (&self.scope, &other.scope) {
            (CellScope::Namespace(one), CellScope::Namespace(another)) => one == another,
            (CellScope::All, _) | (_, CellScope::All) => true,
        }
    }
}

/// A cell that runs.
pub(super) struct CellRegistration {
    cell: String,
    all: Arc<Mutex<BTreeMap<String, ServedPart>>>,
}

impl Drop for CellRegistration {
    fn drop(&mut self) {
        self.all.lock().remove(&self.cell);
    }
}
