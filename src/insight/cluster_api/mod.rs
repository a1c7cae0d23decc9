//! Objects of Cluster API: from a Cluster down to the Node of each machine, and what waits for what on the way.

mod answer;
mod cause;
pub mod chain;
pub mod object;
mod observe;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use self::object::{CapiObject, Kind};
use super::story::{ByName, MACHINE, ManagerLease, NamespaceFacts};
use mcm_api::{labels, machine::Machine};
use mcm_controllers::object::owner;
use mcm_rules::plan::SubjectRef;

pub use observe::{changes, has_clusters, missing_deployment, read, read_kinds};

/// The objects of Cluster API in a namespace. A kind that was not read is absent.
#[derive(Clone, Debug, Default)]
pub struct CapiObjects {
    by_kind: BTreeMap<Kind, ByName<CapiObject>>,
    /// Objects that cannot be decoded.
    unreadable: BTreeSet<(&'static str, String)>,
    /// The manager of the provider, if its Lease is found.
    pub provider: Option<ManagerLease>,
    /// Notes about what could not be read.
    pub notes: Vec<String>,
}

/// An object, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum ObjectLookup<'a> {
    /// It could not be read.
    Unknown,
    /// It does not exist.
    Missing,
    /// It exists.
    Present(&'a CapiObject),
}

impl<'a> ObjectLookup<'a> {
    /// The object, if it is known to exist.
    pub fn known(self) -> Option<&'a CapiObject> {
        match self {
            Self::Present(object) => Some(object),
            Self::Unknown | Self::Missing => None,
        }
    }
}

impl CapiObjects {
    /// An object of a kind.
    pub fn see(&self, kind: Kind, name: &str) -> ObjectLookup<'_> {
        match self.by_kind.get(&kind) {
            Some(all) => match all.get(name) {
                Some(object) => ObjectLookup::Present(object),
                None if self.unreadable.contains(&(kind.name(), name.to_owned())) => ObjectLookup::Unknown,
                None => ObjectLookup::Missing,
            },
            None => ObjectLookup::Unknown,
        }
    }

    /// The objects of a kind could be read.
    pub fn is_read(&self, kind: Kind) -> bool {
        self.by_kind.contains_key(&kind)
    }

    /// The objects of a kind that were read.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &CapiObject> {
        self.by_kind.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    /// Names of all objects that `KIND/NAME` may mean, for suggestions.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.all(kind).map(CapiObject::name)
    }

    /// The Cluster of an object.
    pub fn cluster_of(&self, object: &CapiObject) -> ObjectLookup<'_> {
        self.see(Kind::Cluster, object.cluster_name())
    }

    /// The MCMMachine of an MCM Machine, if it was read. A set controls the MCM Machine of a pool, whose MCMMachine has the same
    /// name.
    pub fn mcm_machine_of(&self, machine: &Machine) -> Option<&CapiObject> {
        let kind = Kind::MCMMachine;
        if let Some(controller) = owner::controller_of(&machine.metadata).filter(|one| one.kind == kind.name()) {
            let object = self.see(kind, &controller.name).known();
            return object.filter(|object| object.metadata.uid.as_deref() == Some(controller.uid.as_str()));
        }
        let pool = machine.labels().get(labels::POOL)?;
        let object = self.see(kind, &machine.name_any()).known();
        object.filter(|object| object.metadata.labels.as_ref().and_then(|all| all.get(labels::POOL)) == Some(pool))
    }

    /// The objects of a kind in a Cluster.
    pub fn in_cluster<'a>(&'a self, kind: Kind, cluster: &str) -> impl Iterator<Item = &'a CapiObject> {
        self.all(kind).filter(move |object| object.cluster_name() == cluster)
    }

    /// The objects of a kind with an owner.
    pub fn owned<'a>(&'a self, kind: Kind, owner: (&str, &str)) -> impl Iterator<Item = &'a CapiObject> {
        self.all(kind).filter(move |object| object.owner(owner.0) == Some(owner.1))
    }

    /// The Machines of a Cluster, MachineDeployment, MachineSet or MachinePool.
    pub fn machines_below<'a>(&'a self, kind: Kind, name: &str) -> Vec<&'a CapiObject> {
        match kind {
            Kind::Cluster => self.in_cluster(Kind::Machine, name).collect(),
            Kind::MachineDeployment => {
                let sets = self.owned(Kind::MachineSet, (kind.name(), name));
                sets.flat_map(|set| self.machines_below(Kind::MachineSet, set.name())).collect()
            }
            Kind::MachineSet | Kind::MachinePool => self.owned(Kind::Machine, (kind.name(), name)).collect(),
            _ => Vec::new(),
        }
    }
}

/// All facts about a namespace with Cluster API.
#[derive(Clone, Copy)]
pub struct CapiFacts<'a> {
    pub facts: &'a NamespaceFacts,
    pub objects: &'a CapiObjects,
}

impl CapiFacts<'_> {
    /// The MCM Machines below an object.
    pub fn mcm_machines_below(&self, kind: Kind, name: &str) -> Vec<SubjectRef> {
        let machines = match (kind, self.objects.see(kind, name).known()) {
            (Kind::Machine, Some(machine)) => vec![machine],
            _ => self.objects.machines_below(kind, name),
        };
        let named = machines.iter().map(|machine| machine.spec.infrastructure_ref.name.as_str());
        let names = named.filter(|name| self.facts.machines.contains_key(*name));
        names.map(|name| self.facts.subject(MACHINE, name)).collect()
    }
}

/// Kind and name of an object of Cluster API in `KIND/NAME`; `None` for objects of `machine.sapcloud.io`.
pub fn named(wanted: &str) -> Option<(Kind, &str)> {
    let (kind, name) = wanted.split_once('/')?;
    Some((Kind::from_word(kind)?, name))
}
