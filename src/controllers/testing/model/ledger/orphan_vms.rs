//! The orphan collector: no VM of a Machine is deleted, none in a hurry, and few at a time.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{cloud::Server, faults::Faults},
    Ledger, SILENT_NEWS,
};

/// The defaults of the collector: a period, and how many VMs of one account go in one. Clocks differ by a minute at most.
const PERIOD: Duration = Duration::from_mins(14);
const LIMIT: usize = 5;

impl Ledger {
    /// From now on a VM has no Machine.
    pub(in super::super) fn stranded(&mut self, id: &str) {
        self.orphan_vms.entry(id.to_owned()).or_insert_with(Instant::now);
    }

    pub(in super::super) fn count_orphan_vms(&self) -> usize {
        self.orphan_vms.len()
    }

    pub(in super::super) fn has_machine(&self, uid: &str) -> bool {
        self.machines.contains_key(uid)
    }

    /// A VM was deleted, in any way.
    pub(in super::super) fn vm_is_gone(&mut self, id: &str) {
        self.orphan_vms.remove(id);
    }

    /// The collector deletes a VM.
    pub(in super::super) fn orphan_vm_is_deleted(&mut self, id: &str, server: &Server, faults: &Faults) {
        faults.must(!server.is_foreign, || format!("VM {id} of others is deleted"));
        let machine = self.machines.values().find(|it| it.uid == server.owner || it.provider_id == id);
        faults.must(machine.is_none(), || format!("VM {id} is deleted as an orphan, and it has machine {machine:?}"));
        let serves = self.nodes.iter().find(|(_, node)| {
            let is_known = node.ready_since.is_some_and(|since| since.elapsed() > SILENT_NEWS);
            node.provider_id == id && node.gone_at.is_none() && is_known
        });
        faults.must(serves.is_none(), || format!("VM {id} is deleted as an orphan, and its node serves: {serves:?}"));
        let since = self.orphan_vms.get(id).map(Instant::elapsed);
        faults.must(since.is_some_and(|since| since >= PERIOD), || {
            format!("VM {id} is deleted as an orphan, and it has been one for {since:?}")
        });
        self.collected.retain(|at| at.elapsed() < PERIOD);
        self.collected.push(Instant::now());
        let count = self.collected.len();
        faults.must(count <= LIMIT, || format!("{count} VMs were deleted as orphans within {PERIOD:?}"));
    }
}
