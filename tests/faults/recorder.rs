//! Writes down what happens to each Machine and to each VM, from the watch of the Machines and from the cloud's own
//! journal, and checks the record in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    api::ListParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use mcm::api::machine::{Machine, MachinePhase};
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{interval, sleep},
};

use crate::{
    run::{Run, number},
    support::{wait, world::World},
};

/// How often the journal is read.
const PERIOD: Duration = Duration::from_millis(50);
/// How long the journal may be behind the cloud's counter.
const LAG: Duration = Duration::from_secs(5);

/// The observed events.
#[derive(Default)]
pub struct Seen {
    /// By UID.
    pub machines: BTreeMap<String, MachineStory>,
    /// By ID.
    pub vms: BTreeMap<String, VmStory>,
}

/// The life of a Machine.
pub struct MachineStory {
    pub name: String,
    /// Last parts of all provider IDs that it ever had.
    pub vms: BTreeSet<String>,
    /// The time at which its deletion was observed.
    pub deleted: Option<Instant>,
    pub gone: Option<Instant>,
    /// Phases in their order, each with the time.
    pub phases: Vec<(MachinePhase, Instant)>,
}

/// The life of a VM.
pub struct VmStory {
    /// Name of its Machine.
    pub machine: String,
    /// Namespace of its Machine.
    pub namespace: String,
    /// UID of its Machine; empty if it was created by hand.
    pub token: String,
    pub made: Instant,
    /// When its deletion was seen to begin.
    pub leaving: Option<Instant>,
    pub gone: Option<Instant>,
}

/// A recorder that runs.
pub struct Recorder {
    seen: Arc<Mutex<Seen>>,
    machines: Api<Machine>,
    _tasks: JoinSet<()>,
}

impl Recorder {
    /// Records the machines of a world from now on.
    pub fn start(world: &World) -> Self {
        Self::follow(world.machines(), world)
    }

    /// Records the machines of all namespaces from now on. They use the cloud of a world.
    pub fn start_for_all(world: &World) -> Self {
        Self::follow(Api::all(world.client.clone()), world)
    }

    fn follow(machines: Api<Machine>, world: &World) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(Arc::clone(&seen), machines.clone()));
        tasks.spawn(read(Arc::clone(&seen), world.cloud.journal.clone()));
        Self { seen, machines, _tasks: tasks }
    }

    /// The observed events so far.
    pub fn now(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// The number of VMs created for Machines.
    pub fn made(&self) -> usize {
        self.now().vms.values().filter(|vm| !vm.token.is_empty()).count()
    }

    /// Checks all that happened: no VM is leaked, doubled, lost or deleted without a reason. `ever`: how many Machines
    /// and VMs there must have been, if that is known.
    pub async fn judge(&self, run: &Run, world: &World, ever: Option<usize>) {
        self.caught_up(world).await;
        let alive: BTreeSet<String> =
            world.cloud.vms().await.iter().filter_map(|vm| Some(vm["id"].as_str()?.to_owned())).collect();
        let seen = self.now();
        let live: Vec<&MachineStory> = seen.machines.values().filter(|machine| machine.gone.is_none()).collect();
        let named: BTreeSet<&String> = live.iter().flat_map(|machine| &machine.vms).collect();
        run.measured("machines ever", number(seen.machines.len()), "");
        let made = seen.vms.values().filter(|vm| !vm.token.is_empty()).count();
        match ever {
            Some(ever) => run.exactly("VMs made", made, ever),
            None => run.measured("VMs made", number(made), ""),
        }
        run.none("VMs leaked", &alive.iter().filter(|id| !named.contains(id)).collect::<Vec<_>>());
        run.none("VMs doubled", &seen.doubled());
        let has_vm =
            |machine: &&&MachineStory| machine.vms.is_empty() || machine.vms.iter().any(|id| alive.contains(id));
        let lost: Vec<&String> = live.iter().filter(|one| !has_vm(one)).map(|machine| &machine.name).collect();
        run.none("VMs lost", &lost);
        run.none("VMs deleted without a reason", &seen.deleted_without_reason());
    }

    /// Waits until the journal has the number of VMs that the cloud counts, and the watch has delivered all deletions
    /// of Machines.
    pub async fn caught_up(&self, world: &World) {
        let start = Instant::now();
        loop {
            let created = world.cloud.count("/created").await;
            let known = self.now().vms.len();
            if u64::try_from(known).unwrap() >= created {
                break;
            }
            assert!(start.elapsed() < LAG, "the journal has {known} VMs, and the cloud made {created}");
            sleep(PERIOD).await;
        }
        // A watch that broke several times waits for long before it is opened again.
        wait::until("the recorder to see which machines are gone", async || {
            let listed = self.machines.list_metadata(&ListParams::default()).await.unwrap();
            let there: BTreeSet<&str> = listed.iter().filter_map(|machine| machine.metadata.uid.as_deref()).collect();
            let seen = self.now();
            let mut live = seen.machines.iter().filter(|(_, machine)| machine.gone.is_none());
            live.all(|(uid, _)| there.contains(uid.as_str())).then_some(())
        })
        .await;
    }
}

impl Seen {
    /// The number of VMs created for Machines of a namespace.
    pub fn made_in(&self, namespace: &str) -> usize {
        self.vms.values().filter(|vm| vm.namespace == namespace && !vm.token.is_empty()).count()
    }

    /// Machines for which more than one VM was created.
    fn doubled(&self) -> Vec<(&str, usize)> {
        let mut by_token = BTreeMap::<&str, usize>::new();
        for vm in self.vms.values().filter(|vm| !vm.token.is_empty()) {
            *by_token.entry(&vm.token).or_default() += 1;
        }
        by_token.into_iter().filter(|(_, count)| *count > 1).collect()
    }

    /// VMs that were deleted although their Machine was not.
    fn deleted_without_reason(&self) -> Vec<String> {
        let is_wanted = |vm: &VmStory| {
            self.machines.get(&vm.token).is_some_and(|machine| machine.deleted.is_none())
                && (vm.gone.is_some() || vm.leaving.is_some())
        };
        let describe = |(id, vm): (&String, &VmStory)| {
            format!("{id} of {}, {:?} after it was made", vm.machine, vm.leaving.or(vm.gone).map(|at| at - vm.made))
        };
        self.vms.iter().filter(|(_, vm)| is_wanted(vm)).map(describe).collect()
    }

    fn saw(&mut self, machine: &Machine) -> Option<String> {
        let uid = machine.uid()?;
        let now = Instant::now();
        let story = self.machines.entry(uid.clone()).or_insert_with(|| MachineStory {
            name: machine.name_any(),
            vms: BTreeSet::new(),
            deleted: None,
            gone: None,
            phases: Vec::new(),
        });
        story.vms.extend(last_part(&machine.spec.provider_id));
        if machine.metadata.deletion_timestamp.is_some() {
            story.deleted.get_or_insert(now);
        }
        let phase = machine.phase();
        if story.phases.last().is_none_or(|(last, _)| *last != phase) {
            story.phases.push((phase, now));
        }
        Some(uid)
    }

    fn lost_sight(&mut self, uid: &str) {
        if let Some(story) = self.machines.get_mut(uid) {
            let now = Instant::now();
            story.deleted.get_or_insert(now);
            story.gone.get_or_insert(now);
        }
    }

    /// One line of the journal.
    fn heard(&mut self, line: &str) {
        let Ok(entry) = serde_json::from_str::<Value>(line) else { return };
        let now = Instant::now();
        if let Some(id) = entry["vm"]["id"].as_str() {
            let vm = &entry["vm"];
            let text = |name: &str| vm[name].as_str().unwrap_or_default().to_owned();
            let story = self.vms.entry(id.to_owned()).or_insert_with(|| VmStory {
                machine: text("machineName"),
                namespace: text("namespace"),
                token: text("token"),
                made: now,
                leaving: None,
                gone: None,
            });
            if !vm["goneAt"].is_null() {
                story.leaving.get_or_insert(now);
            }
        }
        if let Some(story) = entry["gone"].as_str().and_then(|id| self.vms.get_mut(id)) {
            story.gone.get_or_insert(now);
        }
    }
}

/// The ID of the VM.
fn last_part(provider_id: &str) -> Option<String> {
    provider_id.rsplit('/').next().filter(|id| !id.is_empty()).map(str::to_owned)
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow(seen: Arc<Mutex<Seen>>, machines: Api<Machine>) {
    let mut events = watcher::watcher(machines, watcher::Config::default()).default_backoff().boxed();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let mut seen = lock(&seen);
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(machine) => listed.extend(seen.saw(&machine)),
            Event::InitDone => {
                let gone: Vec<String> = seen.machines.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
                gone.iter().for_each(|uid| seen.lost_sight(uid));
            }
            Event::Apply(machine) => drop(seen.saw(&machine)),
            Event::Delete(machine) => {
                seen.saw(&machine);
                seen.lost_sight(&machine.uid().unwrap_or_default());
            }
        }
    }
}

async fn read(seen: Arc<Mutex<Seen>>, path: PathBuf) {
    let mut ticks = interval(PERIOD);
    let mut journal = Journal::default();
    loop {
        ticks.tick().await;
        let lines = journal.news(&path);
        let mut seen = lock(&seen);
        lines.iter().for_each(|line| seen.heard(line));
    }
}

/// A journal that is read while it is written. A file that was replaced is read to its end first.
#[derive(Default)]
struct Journal {
    file: Option<(File, u64)>,
    /// The beginning of an incomplete line.
    rest: String,
}

impl Journal {
    fn news(&mut self, path: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        let now = std::fs::metadata(path).map(|found| found.ino()).ok();
        if let Some((file, inode)) = &mut self.file {
            self.rest.push_str(&rest_of(file));
            lines.extend(take_lines(&mut self.rest));
            if now == Some(*inode) {
                return lines;
            }
        }
        if let Ok(mut file) = File::open(path) {
            self.rest = rest_of(&mut file);
            lines.extend(take_lines(&mut self.rest));
            let inode = file.metadata().map(|found| found.ino()).unwrap_or_default();
            self.file = Some((file, inode));
        }
        lines
    }
}

fn rest_of(file: &mut File) -> String {
    let mut text = String::new();
    // Unreadable text is read next time.
    let _ = file.read_to_string(&mut text);
    text
}

fn take_lines(text: &mut String) -> Vec<String> {
    let Some(end) = text.rfind('\n') else { return Vec::new() };
    let lines = text[..end].lines().map(str::to_owned).collect();
    text.drain(..=end);
    lines
}
