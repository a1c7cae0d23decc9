//! The input of a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Kind, MigrationUnit, ObjectId, UnstructuredObject,
    object::{lacking, without_empty},
};
use mcm_api::labels;
use mcm_conversion::{
    self as conversion, ProviderRole, UserAnswers, provider_id,
    types::{MCMMigration, MachineHealthCheck, MigrationSide, names},
};

/// The objects of a namespace and of its workload cluster, and the state of the VMs in the cloud.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The namespace.
    pub namespace: String,
    /// Name of the Cluster.
    pub cluster: String,
    /// The migrated unit.
    pub unit: MigrationUnit,
    /// All objects.
    pub objects: BTreeMap<ObjectId, UnstructuredObject>,
    /// Secret with the credentials for a class that is derived from the template of another provider.
    pub credentials: Option<String>,
    /// Values that this template leaves to its provider.
    pub answers: UserAnswers,
    /// The state of the VMs in the cloud; `None` if it was not read.
    pub cloud: Option<CloudAnswers>,
    /// The time.
    pub now: Timestamp,
}

/// IDs and names of the VMs of a class. Equal classes share them.
pub type ClassVmNames = Result<Arc<BTreeMap<String, String>>, String>;

/// The results of the drivers' look-ups and lists. An error is a text for users.
#[derive(Clone, Debug, Default)]
pub struct CloudAnswers {
    /// ID of the VM of each machine, in the form of the driver; `None` if there certainly is no VM.
    pub found: BTreeMap<String, Result<Option<String>, String>>,
    /// IDs and names of all VMs of each class.
    pub listed: BTreeMap<String, ClassVmNames>,
    /// IDs of the VMs in the group of the migrated pool; `None` if no pool is migrated.
    pub members: Option<Result<BTreeSet<String>, String>>,
}

/// One machine with its objects on both sides.
#[derive(Clone, Copy, Debug)]
pub struct MachineObjects<'a> {
    /// Name of the native Machine, of the MCMMachine and of the infrastructure object of another provider.
    pub name: &'a str,
    /// The Machine of Cluster API.
    pub machine: Option<&'a UnstructuredObject>,
    /// Its MCMMachine.
    pub infra: Option<&'a UnstructuredObject>,
    /// Its infrastructure object of another provider.
    pub other: Option<&'a UnstructuredObject>,
    /// The native Machine.
    pub native: Option<&'a UnstructuredObject>,
    /// The Node; of a recorded machine only the recorded one, so `None` once that is lost.
    pub node: Option<&'a UnstructuredObject>,
    /// ID of its VM, if a pool or the record has it.
    pub known_id: Option<&'a str>,
}

impl MachineObjects<'_> {
    /// Identity of the VM, the same for all forms of its ID; empty if it is unknown.
    pub fn vm(&self) -> String {
        provider_id::identity(self.id())
    }

    /// ID of the VM in the form of the driver, as far as it is known without the class; empty if it is unknown.
    pub fn driver_id(&self) -> String {
        provider_id::to_native(self.id(), &Value::Null)
    }

    /// ID of the VM in any form.
    fn id(&self) -> &str {
        let mut all = [self.native, self.infra, self.other].into_iter().flatten();
        let of_objects = all.find_map(|one| Some(one.text("/spec/providerID")).filter(|id| !id.is_empty()));
        of_objects.or(self.known_id).unwrap_or_default()
    }
}

impl CloudAnswers {
    /// The VM of a machine ended. A Node that is Ready shows that the cloud was read with other credentials.
    pub fn lacks(&self, member: &MachineObjects<'_>) -> bool {
        let is_alive = member.node.is_some_and(|node| node.condition("Ready") == "True");
        !is_alive && self.found.get(member.name) == Some(&Ok(None))
    }
}

impl Snapshot {
    /// The name of the unit, and of its MCMMigration.
    pub fn name(&self) -> &str {
        self.unit.name()
    }

    /// An object.
    pub fn find(&self, kind: Kind, name: &str) -> Option<&UnstructuredObject> {
        self.objects.get(&ObjectId::new(kind, name))
    }

    /// All objects of a kind.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &UnstructuredObject> {
        self.objects.values().filter(move |object| object.kind == kind)
    }

    /// All objects of a kind that this migration created or paused.
    pub fn held(&self, kind: Kind) -> impl Iterator<Item = &UnstructuredObject> {
        self.all(kind).filter(|object| object.is_of_migration(self.name()))
    }

    /// All objects of a kind that an object controls.
    pub fn controlled<'a>(&'a self, kind: Kind, owner: Option<&'a UnstructuredObject>) -> Vec<&'a UnstructuredObject> {
        let uid = owner.map(UnstructuredObject::uid);
        self.all(kind).filter(|object| uid.is_some() && object.controller() == uid).collect()
    }

    /// The authority over the unit.
    pub fn migration(&self) -> Option<MCMMigration> {
        self.find(Kind::Migration, self.name())?.decoded()
    }

    /// The migrated MachinePool.
    pub fn machine_pool(&self) -> Option<&UnstructuredObject> {
        self.deployment_of(MigrationSide::OtherProvider).filter(|_| self.unit.is_pool())
    }

    /// The infrastructure of the migrated MachinePool, of another provider.
    pub fn pool(&self) -> Option<&UnstructuredObject> {
        let reference = &self.machine_pool()?.value["spec"]["template"]["spec"]["infrastructureRef"];
        let mut kinds = Kind::of_others(ProviderRole::Pool);
        self.find(kinds.find(|kind| reference["kind"] == kind.resource().name)?, reference["name"].as_str()?)
    }

    /// The deployment of a side, or the MachinePool, unless the unit is a single machine.
    pub fn deployment_of(&self, side: MigrationSide) -> Option<&UnstructuredObject> {
        match (&self.unit, side) {
            (MigrationUnit::Machine(_), _) => None,
            (MigrationUnit::Pool(name), MigrationSide::OtherProvider) => self.find(Kind::MachinePool, name),
            (unit, side) => self.find(deployment_kind(side), unit.name()),
        }
    }

    /// The machine of a side, if the unit is a single machine.
    pub fn lone_of(&self, side: MigrationSide) -> Option<&UnstructuredObject> {
        self.all(machine_kind(side)).find(|machine| self.unit.is_lone() && lone_name(machine) == Some(self.name()))
    }

    /// The root object of the unit on a side.
    pub fn root_of(&self, side: MigrationSide) -> Option<&UnstructuredObject> {
        if self.unit.is_lone() { self.lone_of(side) } else { self.deployment_of(side) }
    }

    /// The sets of the deployment of a side.
    pub fn sets_of(&self, side: MigrationSide) -> Vec<&UnstructuredObject> {
        self.controlled(set_kind(side), self.deployment_of(side))
    }

    /// The object of core whose template names the infrastructure of its machines: the deployment, or the MachinePool.
    pub fn referring(&self) -> Option<&UnstructuredObject> {
        if self.unit.is_pool() { self.machine_pool() } else { self.deployment_of(MigrationSide::ClusterApi) }
    }

    /// The only set that has machines.
    pub fn set_of(&self, side: MigrationSide) -> Option<&UnstructuredObject> {
        let sets = self.sets_of(side);
        let has_machines = |set: &&UnstructuredObject| !self.controlled(machine_kind(side), Some(*set)).is_empty();
        let mut with_machines = sets.into_iter().filter(has_machines);
        match (with_machines.next(), with_machines.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }

    /// The machines of a side, by name.
    pub fn members_of<'a>(&'a self, side: MigrationSide) -> Vec<MachineObjects<'a>> {
        let of_machine = |machine: &'a UnstructuredObject| match side {
            MigrationSide::MachineController => self.member(machine.name(), None),
            _ => self.member(machine.text("/spec/infrastructureRef/name"), Some(machine)),
        };
        let mut members: Vec<MachineObjects<'a>> = if self.unit.is_pool() && side == MigrationSide::OtherProvider {
            self.pooled().collect()
        } else {
            let sets = self.sets_of(side).into_iter();
            let machines = sets.flat_map(|set| self.controlled(machine_kind(side), Some(set)));
            machines.chain(self.lone_of(side)).map(of_machine).collect()
        };
        members.sort_by_key(|member| member.name);
        members
    }

    /// The machines under core, of either provider.
    pub fn members_under_core(&self) -> Vec<MachineObjects<'_>> {
        let members = self.members_of(MigrationSide::ClusterApi);
        if members.is_empty() { self.members_of(MigrationSide::OtherProvider) } else { members }
    }

    /// The VMs of the pool. A pool names no machines, so each has the name of its VM in the cloud.
    fn pooled(&self) -> impl Iterator<Item = MachineObjects<'_>> {
        let ids = self.pool().and_then(|pool| pool.value["spec"]["providerIDList"].as_array());
        ids.into_iter().flatten().filter_map(Value::as_str).map(|id| MachineObjects {
            known_id: Some(id),
            node: self.all(Kind::Node).find(|node| provider_id::is_same(node.text("/spec/providerID"), id)),
            ..self.member(id.rsplit('/').next().unwrap_or(id), None)
        })
    }

    /// The set of a side whose machines are migrated, once they are paused.
    pub fn recorded_set(&self, side: MigrationSide) -> Option<&UnstructuredObject> {
        let migration = self.find(Kind::Migration, self.name())?;
        self.find(set_kind(side), migration.text("/status/set"))
    }

    /// The migrated machines, once they are paused.
    pub fn recorded(&self) -> impl Iterator<Item = MachineObjects<'_>> {
        let migration = self.find(Kind::Migration, self.name());
        let machines = migration.and_then(|migration| migration.value["status"]["machines"].as_array());
        machines.into_iter().flatten().map(|recorded| {
            let text = |key: &str| recorded[key].as_str().unwrap_or_default();
            MachineObjects {
                known_id: recorded["providerID"].as_str(),
                node: self.find(Kind::Node, text("node")).filter(|node| node.uid() == text("nodeUID")),
                ..self.member(text("name"), self.find(Kind::CapiMachine, text("machine")))
            }
        })
    }

    /// The number of recorded machines whose Nodes are not lost.
    pub fn surviving(&self) -> Option<i64> {
        i64::try_from(self.recorded().filter(|member| member.node.is_some()).count()).ok()
    }

    /// A machine by the name of its infrastructure object.
    pub fn member<'a>(&'a self, name: &'a str, machine: Option<&'a UnstructuredObject>) -> MachineObjects<'a> {
        let native = self.find(Kind::Machine, name);
        let of_capi = machine.map(|machine| machine.text("/status/nodeRef/name")).filter(|node| !node.is_empty());
        let node = of_capi.or_else(|| native?.label(labels::NODE));
        MachineObjects {
            name,
            machine,
            infra: self.find(Kind::InfraMachine, name),
            other: Kind::of_others(ProviderRole::Machine).find_map(|kind| self.find(kind, name)),
            native,
            node: node.and_then(|node| self.find(Kind::Node, node)),
            known_id: None,
        }
    }

    /// Names of the Secrets that classes and machines refer to.
    pub fn secret_names(&self) -> BTreeSet<String> {
        const REFERENCES: [(Kind, &str); 5] = [
            (Kind::Class, "/secretRef/name"),
            (Kind::Class, "/credentialsSecretRef/name"),
            (Kind::InfraMachine, "/spec/machineClass/credentialsSecretRef/name"),
            (Kind::InfraTemplate, "/spec/template/spec/machineClass/credentialsSecretRef/name"),
            (Kind::CapiDeployment, "/spec/template/spec/bootstrap/dataSecretName"),
        ];
        let referred =
            REFERENCES.iter().flat_map(|(kind, path)| self.all(*kind).map(move |one| one.text(path).to_owned()));
        let of_pool = self.machine_pool().map(|pool| pool.text("/spec/template/spec/bootstrap/dataSecretName"));
        let lone = self.lone_of(MigrationSide::ClusterApi);
        let of_lone = lone.map(|machine| machine.text("/spec/bootstrap/dataSecretName"));
        // The class of a single MCMMachine has no other Secret than that of its content.
        let shared = self.all(Kind::Class).filter(|class| class.controller().is_none());
        let default = shared.map(|class| format!("{}-bootstrap", class.name()));
        let of_roots = of_pool.into_iter().chain(of_lone).map(str::to_owned);
        let both = |name: String| match name.strip_suffix("-userdata") {
            Some(source) => [source.to_owned(), name],
            None => [format!("{name}-userdata"), name],
        };
        referred.chain(of_roots).chain(default).filter(|name| !name.is_empty()).flat_map(both).collect()
    }

    /// An object of a conversion does not exist yet, or this migration created it.
    pub fn is_to_be_made(&self, kind: Kind, object: &Value) -> bool {
        let known = self.find(kind, object["metadata"]["name"].as_str().unwrap_or_default());
        known.is_none_or(|known| known.is_of_migration(self.name()))
    }

    /// Another client created an object with a name of the conversion, but other content.
    pub fn is_taken(&self, kind: Kind, object: &Value) -> bool {
        let known = self.find(kind, object["metadata"]["name"].as_str().unwrap_or_default());
        let Some(known) = known.filter(|known| !known.is_of_migration(self.name())) else { return false };
        match kind {
            Kind::Secret => ["value", "userData"].iter().any(|key| {
                let wanted = &object["data"][key];
                !wanted.is_null() && known.value["data"][key] != *wanted
            }),
            _ => lacking(&with_defaults(known)["spec"], &without_empty(&object["spec"])).is_some(),
        }
    }

    /// Objects as users wrote them, as input of a conversion.
    pub fn written(&self, objects: impl IntoIterator<Item = ObjectId>) -> Vec<Value> {
        objects.into_iter().filter_map(|id| Some(self.objects.get(&id)?.as_written())).collect()
    }
}

/// An object as its user wrote it. Without the webhooks of Cluster API core, a health check lacks defaults that a conversion writes.
fn with_defaults(object: &UnstructuredObject) -> Value {
    let written = object.as_written();
    let check = match object.kind {
        Kind::HealthCheck => serde_json::from_value::<MachineHealthCheck>(written.clone()).ok(),
        _ => None,
    };
    let complete = check.and_then(|mut check| {
        conversion::default_health_check(&mut check);
        serde_json::to_value(check).ok()
    });
    complete.unwrap_or(written)
}

/// The name under which a single machine can be migrated; `None` if it has a controller, an owner other than its
/// Cluster, or belongs to a pool.
pub fn lone_name(machine: &UnstructuredObject) -> Option<&str> {
    let owners = machine.value["metadata"]["ownerReferences"].as_array();
    let is_owned = owners.into_iter().flatten().any(|owner| owner["kind"] != "Cluster" || owner["controller"] == true);
    let name = match machine.kind {
        Kind::CapiMachine => machine.text("/spec/infrastructureRef/name"),
        _ => machine.name(),
    };
    let is_of_pool = [names::POOL_NAME, labels::POOL].iter().any(|key| machine.label(key).is_some());
    (!is_owned && !is_of_pool && !name.is_empty()).then_some(name)
}

/// Kind of the deployments of a side.
pub const fn deployment_kind(side: MigrationSide) -> Kind {
    kinds_of(side)[0]
}

/// Kind of the sets of a side.
pub const fn set_kind(side: MigrationSide) -> Kind {
    kinds_of(side)[1]
}

/// Kind of the machines of a side.
pub const fn machine_kind(side: MigrationSide) -> Kind {
    kinds_of(side)[2]
}

const fn kinds_of(side: MigrationSide) -> [Kind; 3] {
    match side {
        MigrationSide::ClusterApi | MigrationSide::OtherProvider => {
            [Kind::CapiDeployment, Kind::CapiSet, Kind::CapiMachine]
        }
        MigrationSide::MachineController => [Kind::Deployment, Kind::Set, Kind::Machine],
    }
}
