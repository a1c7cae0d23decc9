//! The VMs of a namespace, with their Machines and Nodes. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster_api::{
    CapiObjects,
    object::{CapiObject, Kind},
};
use mcm_api::{
    machine::{Machine, MachineSet},
    vm_owner::Owner,
};
use mcm_controllers::orphans::{ClassVms, NamespaceObjects, TargetNode, claim_of, offers};
use mcm_conversion::types::names;
use mcm_driver::VmsByProviderId;
use mcm_rules::safety::orphans::{VmClaim, VmClassification, judge, without_vm};

/// The relation of a VM to the Machines of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum VmStanding {
    /// A Machine has it.
    Owned,
    /// The Machine of its name is being created, and may have it.
    Creating,
    /// No Machine has it, and the Machine of its name has another VM.
    Double,
    /// No Machine has it.
    Orphan,
    /// No Machine has it, and it carries no marker: it may be that of another namespace with the same cluster tag.
    Unmarked,
    /// The Machine of its name has an ID that no VM has.
    Doubtful,
    /// A Machine has this ID, and the cloud has no such VM.
    Missing,
}

impl VmStanding {
    /// As users read it; `None` for a VM whose Machine says more.
    pub const fn words(self) -> Option<&'static str> {
        match self {
            Self::Owned => None,
            Self::Creating => Some("being created"),
            Self::Double => Some("DOUBLE: its machine has another VM"),
            Self::Orphan => Some("ORPHAN: no machine has it"),
            Self::Unmarked => Some("no machine, no owner marker"),
            Self::Doubtful => Some("DOUBTFUL: its machine has an ID that no VM has"),
            Self::Missing => Some("MISSING: the cloud has no such VM"),
        }
    }
}

/// A VM of a class of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceVm {
    /// Its provider ID.
    pub vm: String,
    /// The class in whose list it is.
    pub class: String,
    /// Name of the Machine that has it, or that it was created for.
    pub machine: String,
    /// Name of its Cluster; empty unless the provider for Cluster API created its Machine.
    pub cluster: String,
    /// Name of its Machine of `cluster.x-k8s.io`; empty without one, and if its MCMMachine could not be read.
    pub capi_machine: String,
    /// Name of its Node; empty if it has not joined.
    pub node: String,
    /// Its relation to the Machines.
    pub standing: VmStanding,
    /// Phase of its Machine; empty without one.
    pub phase: String,
    /// Marker of its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When its Machine was created. Lists of clouds have no ages.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
}

impl NamespaceVm {
    /// `CLUSTER/MACHINE`, with the Machine of Cluster API, as far as they are known.
    pub fn cluster_path(&self) -> String {
        match self.capi_machine.as_str() {
            "" => self.cluster.clone(),
            machine => format!("{}/{machine}", self.cluster),
        }
    }
}

/// The list of a class, or the error of its cloud.
pub struct ClassListing {
    /// Name of the class.
    pub class: String,
    /// Its VMs.
    pub vms: Result<VmsByProviderId, String>,
}

/// The VMs of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmOverview {
    /// By the name of the Machine.
    pub vms: Vec<NamespaceVm>,
    /// VMs in the lists with the marker of another owner.
    pub foreign: usize,
    /// Classes whose VMs could not be listed, with the reason.
    pub unknown: Vec<(String, String)>,
}

impl VmOverview {
    /// The VMs in the lists of classes. Each is shown once: several classes may have one cluster tag. The MCMMachines lead to the
    /// Machines of Cluster API.
    pub fn from_lists(
        lists: Vec<ClassListing>,
        machines: &[Arc<Machine>],
        sets: Vec<MachineSet>,
        nodes: Vec<TargetNode>,
        owner: &Owner,
        mcm_machines: &CapiObjects,
    ) -> Self {
        let claims: Vec<VmClaim> = machines.iter().map(|machine| claim_of(machine)).collect();
        let by_id: BTreeMap<&str, &Machine> =
            machines.iter().map(|machine| (machine.spec.provider_id.as_str(), machine.as_ref())).collect();
        let by_name: BTreeMap<String, &Machine> =
            machines.iter().map(|machine| (machine.name_any(), machine.as_ref())).collect();
        let mut unknown = Vec::new();
        let mut read: Vec<(String, VmsByProviderId)> = Vec::new();
        for ClassListing { class, vms } in lists {
            match vms {
                Ok(vms) => read.push((class, vms)),
                Err(reason) => unknown.push((class, reason)),
            }
        }
        let of_classes: Vec<ClassVms> =
            read.iter().map(|(_, vms)| ClassVms { owner: owner.clone(), vms: vms.clone() }).collect();
        let stock = NamespaceObjects { machines: machines.to_vec(), sets, nodes };
        let nodes: BTreeMap<String, String> =
            offers(&of_classes, &stock).into_iter().map(|offer| (offer.vm, offer.node)).collect();

        let (mut found, mut foreign) = (BTreeMap::new(), BTreeSet::new());
        for (class, vms) in &read {
            for (id, classification) in judge(vms, &claims, owner) {
                let Some(vm) = vms.get(id) else { continue };
                let holder = by_id.get(id).copied().filter(|_| !id.is_empty());
                let namesake = by_name.get(&vm.machine).copied();
                let is_double = namesake.is_some_and(|machine| vms.contains_key(&machine.spec.provider_id));
                let standing = match classification {
                    VmClassification::Claimed if holder.is_some() => VmStanding::Owned,
                    VmClassification::Claimed => VmStanding::Creating,
                    VmClassification::Doubtful => VmStanding::Doubtful,
                    VmClassification::Orphan | VmClassification::Unmarked if is_double => VmStanding::Double,
                    VmClassification::Orphan => VmStanding::Orphan,
                    VmClassification::Unmarked => VmStanding::Unmarked,
                    VmClassification::Foreign => {
                        foreign.insert(id.to_owned());
                        continue;
                    }
                };
                let machine = holder.or(namesake.filter(|_| standing == VmStanding::Creating));
                let node = machine.and_then(|machine| machine.node_name().map(str::to_owned));
                let own_class = machine.map(|machine| machine.spec.class.name.clone());
                let (cluster, capi_machine) =
                    machine.map(|machine| names_above(machine, mcm_machines)).unwrap_or_default();
                let shown = NamespaceVm {
                    vm: id.to_owned(),
                    class: own_class.unwrap_or_else(|| class.clone()),
                    machine: machine.map_or_else(|| vm.machine.clone(), ResourceExt::name_any),
                    cluster,
                    capi_machine,
                    node: node.or_else(|| nodes.get(id).cloned()).unwrap_or_default(),
                    standing,
                    phase: machine.map(phase).unwrap_or_default(),
                    owner: vm.owner.clone(),
                    since: machine.and_then(created),
                };
                found.entry(id.to_owned()).or_insert(shown);
            }
        }
        let mut all: Vec<NamespaceVm> = found.into_values().collect();
        all.extend(missing(&read, machines, mcm_machines));
        all.sort_by(|one, other| (&one.machine, &one.vm).cmp(&(&other.machine, &other.vm)));
        Self { vms: all, foreign: foreign.len(), unknown }
    }
}

/// Machines with the ID of a VM that is not in the list of their class.
fn missing(
    lists: &[(String, VmsByProviderId)],
    machines: &[Arc<Machine>],
    mcm_machines: &CapiObjects,
) -> Vec<NamespaceVm> {
    let mut found = Vec::new();
    for (class, vms) in lists {
        let own: Vec<&Machine> =
            machines.iter().map(AsRef::as_ref).filter(|machine: &&Machine| machine.spec.class.name == *class).collect();
        let claims: Vec<VmClaim> = own.iter().map(|machine| claim_of(machine)).collect();
        let names: BTreeSet<String> = without_vm(vms, &claims).map(|claim| claim.name.clone()).collect();
        found.extend(own.into_iter().filter(|machine| names.contains(&machine.name_any())).map(|machine| {
            let (cluster, capi_machine) = names_above(machine, mcm_machines);
            NamespaceVm {
                vm: machine.spec.provider_id.clone(),
                class: class.clone(),
                machine: machine.name_any(),
                cluster,
                capi_machine,
                node: machine.node_name().unwrap_or_default().to_owned(),
                standing: VmStanding::Missing,
                phase: phase(machine),
                owner: None,
                since: created(machine),
            }
        }));
    }
    found
}

/// The names of the Cluster of an MCM Machine and of its Machine of Cluster API, as far as they are known.
fn names_above(machine: &Machine, mcm_machines: &CapiObjects) -> (String, String) {
    if !machine.is_of_cluster_api() {
        return (String::new(), String::new());
    }
    let object = mcm_machines.mcm_machine_of(machine);
    let label = machine.labels().get(names::CLUSTER_NAME).map(String::as_str);
    let cluster = label.or_else(|| object.map(CapiObject::cluster_name)).unwrap_or_default();
    let capi_machine = object.and_then(|object| object.owner(Kind::Machine.name())).unwrap_or_default();
    (cluster.to_owned(), capi_machine.to_owned())
}

fn phase(machine: &Machine) -> String {
    if machine.is_terminating() { "Terminating".to_owned() } else { machine.phase().as_str().to_owned() }
}

fn created(machine: &Machine) -> Option<Timestamp> {
    machine.creation_timestamp().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use mcm_api::labels;
    use mcm_driver::ListedVm;
    use serde_json::json;

    use super::*;
    use crate::{
        cluster_api::testing::{self, read},
        testing::blocked_pool,
    };

    fn machine(name: &str, id: &str, phase: &str) -> Arc<Machine> {
        let (_, mut machine) = blocked_pool().machines.pop_first().unwrap();
        machine.metadata.name = Some(name.to_owned());
        machine.spec.provider_id = id.to_owned();
        "small".clone_into(&mut machine.spec.class.name);
        let status = json!({"currentStatus": {"phase": phase}});
        machine.status = serde_json::from_value(status).unwrap();
        Arc::new(machine)
    }

    fn listed(all: &[(&str, &str, Option<&str>)]) -> VmsByProviderId {
        let vm = |(id, machine, owner): &(&str, &str, Option<&str>)| {
            ((*id).to_owned(), ListedVm::new(*machine, owner.map(str::to_owned)))
        };
        all.iter().map(vm).collect()
    }

    fn inventory(machines: &[Arc<Machine>], lists: Vec<(&str, Result<VmsByProviderId, String>)>) -> VmOverview {
        with_cluster_api(machines, lists, &CapiObjects::default())
    }

    fn with_cluster_api(
        machines: &[Arc<Machine>],
        lists: Vec<(&str, Result<VmsByProviderId, String>)>,
        mcm_machines: &CapiObjects,
    ) -> VmOverview {
        let owner = Owner { namespace: "demo".to_owned(), uid: None };
        let lists = lists.into_iter().map(|(class, vms)| ClassListing { class: class.to_owned(), vms });
        VmOverview::from_lists(lists.collect(), machines, Vec::new(), Vec::new(), &owner, mcm_machines)
    }

    /// An MCM Machine of Cluster `blue`: of the MCMMachine of its name with a UID, or of a pool.
    fn provided(name: &str, id: &str, uid: Option<&str>) -> Arc<Machine> {
        let mut provided = Arc::unwrap_or_clone(machine(name, id, "Available"));
        provided.labels_mut().insert(names::CLUSTER_NAME.to_owned(), "blue".to_owned());
        match uid {
            Some(uid) => {
                let owner = json!({
                    "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "name": name, "uid": uid,
                    "controller": true,
                });
                provided.metadata.owner_references = serde_json::from_value(json!([owner])).unwrap();
            }
            None => drop(provided.labels_mut().insert(labels::POOL.to_owned(), "workers".to_owned())),
        }
        Arc::new(provided)
    }

    /// The MCMMachines of the Machines `worker-NAME`, each with its UID and its pool.
    fn mcm_machines(all: &[(&str, &str, Option<&str>)]) -> CapiObjects {
        let object = |(name, uid, pool): &(&str, &str, Option<&str>)| {
            let (kind, mut object) = testing::vm(name);
            object["metadata"]["uid"] = json!(uid);
            object["metadata"]["ownerReferences"][0]["name"] = json!(format!("worker-{name}"));
            if let Some(pool) = pool {
                object["metadata"]["labels"][labels::POOL] = json!(pool);
            }
            (kind, object)
        };
        read(all.iter().map(object).collect())
    }

    #[test]
    fn each_vm_is_shown_once_with_its_relation_to_the_machines() {
        let machines =
            [machine("a", "c:///1", "Running"), machine("new", "", "Pending"), machine("lost", "c:///8", "Running")];
        let vms = listed(&[
            ("c:///1", "a", Some("demo")),
            ("c:///2", "a", Some("demo")),
            ("c:///3", "gone", Some("demo")),
            ("c:///4", "new", Some("demo")),
            ("c:///5", "old", None),
            ("c:///6", "theirs", Some("other")),
            ("c:///7", "lost", Some("demo")),
        ]);
        let found = inventory(&machines, vec![("small", Ok(vms.clone())), ("large", Ok(vms))]);
        let standings: Vec<(&str, VmStanding)> = found.vms.iter().map(|one| (one.vm.as_str(), one.standing)).collect();
        assert_eq!(
            standings,
            [
                ("c:///1", VmStanding::Owned),
                ("c:///2", VmStanding::Double),
                ("c:///3", VmStanding::Orphan),
                ("c:///7", VmStanding::Doubtful),
                ("c:///8", VmStanding::Missing),
                ("c:///4", VmStanding::Creating),
                ("c:///5", VmStanding::Unmarked),
            ]
        );
        assert_eq!((found.foreign, found.unknown), (1, Vec::new()));
        assert_eq!((found.vms[0].phase.as_str(), found.vms[0].owner.as_deref()), ("Running", Some("demo")));
    }

    /// The Cluster and the Machine of Cluster API of each VM, by the name of the MCM Machine.
    fn paths(overview: &VmOverview) -> Vec<(&str, String)> {
        overview.vms.iter().map(|one| (one.machine.as_str(), one.cluster_path())).collect()
    }

    #[test]
    fn vms_of_the_provider_name_their_cluster_and_their_machine_of_cluster_api() {
        let machines = [
            provided("a", "c:///1", Some("uid-a")),
            provided("gone", "c:///9", Some("uid-gone")),
            provided("member", "c:///2", None),
            provided("new", "", Some("uid-new")),
            provided("other", "c:///3", Some("uid-former")),
            provided("stranger", "c:///4", None),
            machine("unrelated", "c:///5", "Running"),
        ];
        let ids = [("1", "a"), ("2", "member"), ("3", "other"), ("4", "stranger"), ("5", "unrelated"), ("6", "orphan")];
        let ids = ids.map(|(id, machine)| (format!("c:///{id}"), machine));
        let vms: Vec<(&str, &str, Option<&str>)> =
            ids.iter().map(|(id, machine)| (id.as_str(), *machine, Some("demo"))).collect();
        let lists = || vec![("small", Ok(listed(&vms)))];
        let objects = mcm_machines(&[
            ("a", "uid-a", None),
            ("gone", "uid-gone", None),
            ("member", "uid-member", Some("workers")),
            ("other", "uid-other", None),
            ("stranger", "uid-stranger", Some("others")),
            ("unrelated", "uid-unrelated", None),
            ("orphan", "uid-orphan", None),
        ]);
        let found = with_cluster_api(&machines, lists(), &objects);
        let expected = [
            ("a", "blue/worker-a"),
            ("gone", "blue/worker-gone"),
            ("member", "blue/worker-member"),
            ("orphan", ""),
            ("other", "blue"),
            ("stranger", "blue"),
            ("unrelated", ""),
        ];
        assert_eq!(paths(&found), expected.map(|(machine, path)| (machine, path.to_owned())));

        // Without the MCMMachines the labels of the MCM Machines are left, and all else is the same.
        let without = inventory(&machines, lists());
        let cluster = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
        assert_eq!(paths(&without), expected.map(|(machine, path)| (machine, cluster(path))));
        let standings = |overview: &VmOverview| overview.vms.iter().map(|one| one.standing).collect::<Vec<_>>();
        assert_eq!(standings(&without), standings(&found));
    }

    #[test]
    fn a_class_that_could_not_be_listed_makes_nothing_missing() {
        let found = inventory(&[machine("a", "c:///1", "Running")], vec![("small", Err("no answer".to_owned()))]);
        assert_eq!(found.vms, []);
        assert_eq!(found.unknown, [("small".to_owned(), "no answer".to_owned())]);
    }
}
