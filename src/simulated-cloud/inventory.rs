//! All VMs, indexed by the keys of requests, and stored in a file.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::Path,
};

use jiff::Timestamp;

use super::{
    control::VmShape,
    faults::mix,
    journal::{JournalContents, JournalEntry, JournalError, VmJournal},
    messages::VmSelector,
    record::{DepartedVm, DepartureCause, VmRecord},
};

/// The VMs and their indices. Each change is in the file before it is here.
#[derive(Debug, Default)]
pub(super) struct VmInventory {
    contents: JournalContents,
    journal: Option<VmJournal>,
    by_machine: HashMap<String, BTreeSet<String>>,
    by_token: HashMap<(String, String), String>,
    by_cluster: BTreeMap<String, BTreeSet<String>>,
    /// Number of VMs by zone and type.
    counts: BTreeMap<(String, String), usize>,
    /// Deletions by their ends.
    going: BTreeSet<(Timestamp, String)>,
}

impl VmInventory {
    /// The VMs of a state file.
    ///
    /// # Errors
    /// When the file cannot be read, written or understood.
    pub(super) fn open(path: &Path) -> Result<Self, JournalError> {
        let (journal, contents) = VmJournal::open(path)?;
        let mut inventory = Self::default();
        for vm in contents.vms.values() {
            inventory.index(vm);
        }
        Ok(Self { contents, journal: Some(journal), ..inventory })
    }

    pub(super) fn len(&self) -> usize {
        self.contents.vms.len()
    }

    pub(super) fn get(&self, id: &str) -> Option<&VmRecord> {
        self.contents.vms.get(id)
    }

    pub(super) fn vms(&self) -> impl Iterator<Item = &VmRecord> {
        self.contents.vms.values()
    }

    pub(super) fn departed(&self) -> &BTreeMap<String, DepartedVm> {
        &self.contents.departed
    }

    pub(super) fn by_token(&self, cluster: &str, token: &str) -> Option<&VmRecord> {
        self.by_token.get(&(cluster.to_owned(), token.to_owned())).and_then(|id| self.get(id))
    }

    /// The VMs that a call is about.
    pub(super) fn select<'a>(&'a self, selector: &'a VmSelector) -> Vec<&'a VmRecord> {
        let of_cluster = |vm: &&VmRecord| selector.cluster.as_ref().is_none_or(|cluster| *cluster == vm.cluster);
        if let Some(provider_id) = &selector.provider_id {
            let id = provider_id.rsplit('/').next().unwrap_or_default();
            let exact = |vm: &&VmRecord| vm.provider_id() == *provider_id;
            return self.get(id).filter(exact).filter(of_cluster).into_iter().collect();
        }
        let ids = match (&selector.machine, &selector.cluster) {
            (Some(machine), _) => self.by_machine.get(machine),
            (None, Some(cluster)) => self.by_cluster.get(cluster),
            (None, None) => return self.vms().collect(),
        };
        ids.into_iter().flatten().filter_map(|id| self.get(id)).filter(of_cluster).collect()
    }

    /// Number of VMs of a kind.
    pub(super) fn count(&self, shape: &VmShape) -> usize {
        let fits = |zone: &str, type_: &str| shape.zone.matches(zone) && shape.instance_type.matches(type_);
        self.counts.iter().filter(|((zone, type_), _)| fits(zone, type_)).map(|(_, count)| count).sum()
    }

    /// Number and ID for the next VM.
    pub(super) fn next_identity(&self, seed: u64) -> (u64, String) {
        let serial = self.contents.serial.saturating_add(1);
        (serial, format!("vm-{:016x}", mix(seed ^ mix(serial))))
    }

    /// Adds a VM, or puts a changed one in the place of the old.
    pub(super) fn put(&mut self, vm: VmRecord) -> io::Result<()> {
        self.append(&JournalEntry { vm: Some(vm.clone()), ..JournalEntry::default() })?;
        if let Some(old) = self.contents.vms.remove(&vm.id) {
            self.unindex(&old);
        }
        self.contents.serial = self.contents.serial.max(vm.serial);
        self.index(&vm);
        self.contents.vms.insert(vm.id.clone(), vm);
        Ok(())
    }

    /// Removes a VM permanently. Returns its remaining record.
    pub(super) fn remove(&mut self, id: &str, at: Timestamp, how: DepartureCause) -> io::Result<()> {
        let Some(vm) = self.contents.vms.get(id) else { return Ok(()) };
        let departed = vm.departed(at, how);
        self.append(&JournalEntry {
            gone: Some(id.to_owned()),
            departed: departed.clone(),
            ..JournalEntry::default()
        })?;
        if let Some(departed) = departed {
            self.contents.departed.insert(id.to_owned(), departed);
        }
        if let Some(vm) = self.contents.vms.remove(id) {
            self.unindex(&vm);
        }
        Ok(())
    }

    /// Stores the state of a deleted VM whose Node still exists.
    pub(super) fn put_departed(&mut self, departed: DepartedVm) -> io::Result<()> {
        self.append(&JournalEntry { departed: Some(departed.clone()), ..JournalEntry::default() })?;
        self.contents.departed.insert(departed.id.clone(), departed);
        Ok(())
    }

    /// Removes a VM whose Node is also deleted.
    pub(super) fn forget(&mut self, id: &str) -> io::Result<()> {
        if self.contents.departed.contains_key(id) {
            self.append(&JournalEntry { forgotten: Some(id.to_owned()), ..JournalEntry::default() })?;
            self.contents.departed.remove(id);
        }
        Ok(())
    }

    /// The first deletion that has ended by `now`: its VM, and when that went.
    pub(super) fn due(&self, now: Timestamp) -> Option<(Timestamp, String)> {
        self.going.first().filter(|(at, _)| *at <= now).cloned()
    }

    fn append(&mut self, entry: &JournalEntry) -> io::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        if journal.is_worn(self.contents.vms.len() + self.contents.departed.len()) {
            journal.compact(&self.contents)?;
        }
        journal.append(entry)
    }

    fn index(&mut self, vm: &VmRecord) {
        self.by_machine.entry(vm.machine_name.clone()).or_default().insert(vm.id.clone());
        self.by_cluster.entry(vm.cluster.clone()).or_default().insert(vm.id.clone());
        if !vm.token.is_empty() {
            self.by_token.insert((vm.cluster.clone(), vm.token.clone()), vm.id.clone());
        }
        *self.counts.entry(shape_of(vm)).or_default() += 1;
        if let Some(at) = vm.gone_at {
            self.going.insert((at, vm.id.clone()));
        }
    }

    fn unindex(&mut self, vm: &VmRecord) {
        if let Some(ids) = self.by_machine.get_mut(&vm.machine_name) {
            ids.remove(&vm.id);
            if ids.is_empty() {
                self.by_machine.remove(&vm.machine_name);
            }
        }
        if let Some(ids) = self.by_cluster.get_mut(&vm.cluster) {
            ids.remove(&vm.id);
            if ids.is_empty() {
                self.by_cluster.remove(&vm.cluster);
            }
        }
        self.by_token.remove(&(vm.cluster.clone(), vm.token.clone()));
        if let Some(count) = self.counts.get_mut(&shape_of(vm)) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&shape_of(vm));
            }
        }
        if let Some(at) = vm.gone_at {
            self.going.remove(&(at, vm.id.clone()));
        }
    }
}

fn shape_of(vm: &VmRecord) -> (String, String) {
    (vm.spec.zone.clone(), vm.spec.instance_type.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{control::OperationLatencies, messages::CreateVm, spec::ProviderSpec};
    use std::{fs, io::Write};

    fn vm(inventory: &VmInventory, machine: &str) -> VmRecord {
        let (serial, id) = inventory.next_identity(1);
        let request = CreateVm {
            machine_name: machine.into(),
            namespace: "ns".into(),
            token: format!("uid-{machine}"),
            ..CreateVm::default()
        };
        let now = Timestamp::UNIX_EPOCH;
        VmRecord::new(serial, id, &request, ProviderSpec::default(), &OperationLatencies::default(), now)
    }

    fn names(inventory: &VmInventory) -> Vec<String> {
        let mut names: Vec<_> = inventory.vms().map(|vm| vm.machine_name.clone()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_state_file_restores_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut inventory = VmInventory::open(&path).unwrap();
        let (a, b) = (vm(&inventory, "a"), {
            inventory.put(vm(&inventory, "a")).unwrap();
            vm(&inventory, "b")
        });
        inventory.put(b.clone()).unwrap();
        inventory.remove(&b.id, Timestamp::UNIX_EPOCH, DepartureCause::Deleted).unwrap();
        drop(inventory);

        let inventory = VmInventory::open(&path).unwrap();
        assert_eq!(inventory.vms().collect::<Vec<_>>(), [&a]);
        assert_eq!(inventory.by_token("ns", "uid-a"), Some(&a));
        assert_eq!(inventory.count(&VmShape::default()), 1);
        assert_ne!(inventory.next_identity(1).1, b.id, "the ID of a VM that is gone is not given again");
    }

    #[test]
    fn a_line_that_was_cut_off_is_as_if_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut inventory = VmInventory::open(&path).unwrap();
        inventory.put(vm(&inventory, "a")).unwrap();
        let line =
            serde_json::to_vec(&JournalEntry { vm: Some(vm(&inventory, "b")), ..JournalEntry::default() }).unwrap();
        drop(inventory);
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&line[..line.len() / 2]).unwrap();

        let mut inventory = VmInventory::open(&path).unwrap();
        assert_eq!(names(&inventory), ["a"]);
        inventory.put(vm(&inventory, "c")).unwrap();
        assert_eq!(names(&VmInventory::open(&path).unwrap()), ["a", "c"]);
    }

    #[test]
    fn a_file_of_another_program_is_refused_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        fs::write(&path, "{\"serial\":1}\nshopping list\n").unwrap();
        let error = VmInventory::open(&path).unwrap_err();
        let expected = format!(
            "line 2 of state file {} cannot be decoded: move the file away to start without VMs",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"serial\":1}\nshopping list\n");
    }

    #[test]
    fn the_file_does_not_grow_with_history() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut inventory = VmInventory::open(&path).unwrap();
        inventory.put(vm(&inventory, "stays")).unwrap();
        for number in 0..3000 {
            let passing = vm(&inventory, &format!("passing-{number}"));
            inventory.put(passing.clone()).unwrap();
            inventory.remove(&passing.id, Timestamp::UNIX_EPOCH, DepartureCause::Deleted).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap().lines().count() < 1100);
        assert_eq!(names(&VmInventory::open(&path).unwrap()), ["stays"]);
    }
}
