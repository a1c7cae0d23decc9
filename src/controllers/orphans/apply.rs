//! Executes plans of the orphan collector. It makes no decisions.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use parking_lot::Mutex;

use super::{
    Action, Found, Learned, Listing, Memory, Others, Policy, Snapshot, metrics::OrphanMetrics, plan::period_of,
};
use crate::{
    api::{
        machine::{Machine, MachineClass},
        reasons::EventReason,
    },
    controllers::{
        self,
        api_servers::ApiServers,
        machine::{self, FreedResources},
    },
    driver::{Account, Catalogue, MachineRequest, SecretData},
    plan::{Event, Step},
    runtime::{
        cache::Key,
        cell::Scope,
        clock::Clock,
        events::Events,
        fence,
        guard::Guard,
        objects::{Objects, chain},
        owners::Owners,
        reconcile::{Execute, Next, Turn},
        refusal::forbidden,
        secrets::Secrets,
        target::Targets,
        worker::ReconcileError,
    },
    safety::orphans::identity,
};

/// Classes in a page, and pages that are read: more classes than any control cluster has.
const PAGE: u32 = 200;
const MOST_PAGES: usize = 50;

/// Collects orphans.
pub(crate) struct Orphans {
    pub classes: Arc<Objects<MachineClass>>,
    pub machines: Arc<Objects<Machine>>,
    pub secrets: Secrets,
    pub control: Client,
    pub scope: Scope,
    pub owners: Arc<Owners>,
    pub targets: Arc<Targets>,
    pub servers: Arc<ApiServers>,
    pub drivers: Arc<Catalogue>,
    pub freed: Arc<FreedResources>,
    pub policy: Policy,
    pub events: Events,
    pub measured: Arc<OrphanMetrics>,
    pub clock: Arc<dyn Clock>,
    /// When deletions were requested, by account.
    pub deletions: Mutex<BTreeMap<Account, Vec<Timestamp>>>,
}

/// State of one pass.
#[derive(Default)]
pub(crate) struct Session {
    pub(super) learned: Learned,
    /// The Secret data for the list. Plans do not see it.
    secret: SecretData,
}

impl Execute for Orphans {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        for step in steps {
            if !fence::may_act() {
                break;
            }
            match step.action {
                Action::ListVms => {
                    let began_at = self.clock.now();
                    let found = self.list(&snapshot, &mut turn.session).await;
                    if let Err(error) = &found {
                        tracing::warn!(class = %turn.key, error, "VMs could not be listed");
                    }
                    turn.session.learned.list = Some(Listing { began_at, found });
                }
                Action::ListClassesOfOthers => {
                    let others = self.others(&snapshot.class).await;
                    if let Others::Unknown(error) = &others {
                        tracing::warn!(class = %turn.key, error, "classes of other namespaces could not be listed");
                    }
                    turn.session.learned.others = Some(others);
                }
                Action::Record { memory, report, warnings } => {
                    let events: Vec<Event> = step.event.into_iter().chain(warnings).collect();
                    self.record(&snapshot, &step.reason, *memory, &report, &events, turn);
                }
                Action::GetMachine(name) => {
                    let key = Key::beside(&snapshot.class.metadata, &name);
                    let read = self.machines.read_again(&key).await;
                    let read = read.map(|machine| machine.is_some()).map_err(|error| chain(&error));
                    if let Err(error) = &read {
                        tracing::warn!(class = %turn.key, machine = name, error, "machine could not be read");
                    }
                    turn.session.learned.machines.insert(name, read);
                }
                Action::DeleteVm { id, machine } => {
                    self.delete(&snapshot, &step.reason, &id, &machine, step.event.as_ref(), turn).await;
                }
            }
        }
        Ok(Next::Plan)
    }
}

impl Orphans {
    async fn list(&self, snapshot: &Snapshot, session: &mut Session) -> Result<Found, String> {
        let class = &snapshot.class;
        let namespace = class.metadata.namespace.as_deref().unwrap_or_default();
        let owner = self.owners.of(namespace).await.map_err(|error| error.to_string())?;
        let driver = self.drivers.get(class).map_err(|error| error.to_string())?;
        let merged = machine::secrets_of_class(class, &self.secrets).await.map_err(|error| chain(&error))?;
        session.secret = merged.complete().map_err(|missing| format!("its VMs are not listed without {missing}"))?;
        let vms = driver.list(class, &session.secret).await.map_err(|error| error.to_string())?;
        Ok(Found { owner, vms })
    }

    /// The classes of other namespaces whose VMs may be in the list of a class. The Machines of a process that serves all
    /// namespaces are in its cache.
    async fn others(&self, class: &MachineClass) -> Others {
        let Scope::Namespace(own) = &self.scope else { return Others::Known(Vec::new()) };
        let driver = match self.drivers.get(class) {
            Ok(driver) => driver,
            Err(error) => return Others::Unknown(error.to_string()),
        };
        let may_list = |other: &MachineClass| {
            self.drivers.get(other).is_ok_and(|its| its.name() == driver.name()) && driver.may_list(class, other)
        };
        let api: Api<Guard<MachineClass>> = Api::all(self.control.clone());
        let (mut found, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
        for _ in 0..MOST_PAGES {
            let list = match Box::pin(api.list(&page)).await {
                Ok(list) => list,
                Err(error) if forbidden(&error).is_some() => return Others::Forbidden,
                Err(error) => return Others::Unknown(format!("list MachineClasses: {}", chain(&error))),
            };
            for other in list.items {
                let key = Key::of(other.meta());
                match other {
                    _ if key.namespace == *own => {}
                    Guard::Readable(other) if may_list(&other) => found.push(key.to_string()),
                    Guard::Readable(_) => {}
                    Guard::Unreadable { .. } => {
                        return Others::Unknown(format!("MachineClass {key} cannot be decoded"));
                    }
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Others::Known(found),
            }
        }
        Others::Unknown("list MachineClasses: there are too many".to_owned())
    }

    fn record(
        &self,
        snapshot: &Snapshot,
        reason: &str,
        memory: Memory,
        report: &[Arc<Machine>],
        events: &[Event],
        turn: &mut Turn<'_, Self>,
    ) {
        let class = snapshot.class.as_ref();
        self.measured.found(labels_of(turn.key), &memory);
        for event in events {
            tracing::warn!(class = %turn.key, reason, "{}", event.message);
            self.events.record(class, event);
        }
        for machine in report {
            let text =
                format!("VM {} is not in the list of the VMs of class {}", machine.spec.provider_id, class.name_any());
            tracing::warn!(machine = %Key::of(&machine.metadata), "{text}");
            self.events.record(machine.as_ref(), &Event::warning(EventReason::VmMissing, text));
        }
        turn.remember(|kept| *kept = memory);
        turn.session.learned.is_recorded = true;
    }

    async fn delete(
        &self,
        snapshot: &Snapshot,
        reason: &str,
        id: &str,
        machine: &str,
        event: Option<&Event>,
        turn: &mut Turn<'_, Self>,
    ) {
        let class = &snapshot.class;
        self.count_deletion(class, snapshot.now);
        let result = match self.drivers.get(class) {
            Ok(driver) => {
                let machine = Arc::new(orphan(class, machine, id));
                let (class, secret) = (Arc::clone(class), turn.session.secret.clone());
                let request = MachineRequest { machine, class, secret, owner: String::new(), may_pause: false };
                driver.delete(&request).await.map(drop).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match &result {
            Ok(()) => {
                tracing::warn!(class = %turn.key, vm = id, machine, reason, "orphan VM deleted");
                self.freed.vm_deleted(class);
                self.measured.deleted(labels_of(turn.key));
                turn.remember(|memory| memory.orphans.retain(|other, _| *other != identity(id, machine)));
                event.iter().for_each(|event| self.events.record(class.as_ref(), event));
            }
            Err(error) => tracing::warn!(class = %turn.key, vm = id, machine, error, "orphan VM not deleted"),
        }
        turn.session.learned.deleted.insert(id.to_owned(), result);
    }

    fn count_deletion(&self, class: &MachineClass, now: Timestamp) {
        let mut deletions = self.deletions.lock();
        let times = deletions.entry(Account::of(class)).or_default();
        let since = now.checked_sub(period_of(&self.policy)).unwrap_or(Timestamp::MIN);
        times.retain(|at| *at > since);
        times.push(now);
    }
}

fn labels_of(class: &Key) -> [&str; 2] {
    [&class.namespace, &class.name]
}

/// The Machine in a request to the driver: name, namespace and provider ID, as in the reference.
fn orphan(class: &MachineClass, name: &str, id: &str) -> Machine {
    let mut machine = Machine::default();
    machine.metadata.name = Some(name.to_owned());
    machine.metadata.namespace.clone_from(&class.metadata.namespace);
    machine.spec.provider_id = id.to_owned();
    machine
}

/// The component of its events.
pub(super) const COMPONENT: &str = controllers::MACHINES.lease;
