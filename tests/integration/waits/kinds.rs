//! The kinds of waits, each with the object that is made to wait.

/// A kind of wait, and the object that a test makes wait.
pub struct Case {
    pub kind: &'static str,
    /// Kind of the object and the beginning of its name.
    pub object: Object,
    /// A part of the text of the wait.
    pub says: &'static str,
    /// The wait has an end at a known time.
    pub has_until: bool,
    /// The effect of the remedy that ends the wait; none if only the cause of the wait can be removed.
    pub cure: Option<&'static str>,
    /// An object that waits for nothing else is settled: `/explain` shows the wait, and `mcm why` does not.
    pub is_routine: bool,
    /// Where the object waits.
    pub place: Place,
}

/// A namespace with a manager.
#[derive(Clone, Copy)]
pub enum Place {
    /// The manager has a target cluster, whose API server refuses some calls.
    Usual,
    /// The manager has no target cluster.
    WithoutTarget,
    /// The API server of the target cluster fails.
    CutOff,
}

type Object = (&'static str, &'static str);

const fn endless(kind: &'static str, object: Object, says: &'static str) -> Case {
    Case { kind, object, says, has_until: false, cure: None, is_routine: false, place: Place::Usual }
}

const fn until(kind: &'static str, object: Object, says: &'static str) -> Case {
    Case { has_until: true, ..endless(kind, object, says) }
}

const fn routine(kind: &'static str, object: Object, says: &'static str) -> Case {
    Case { is_routine: true, ..until(kind, object, says) }
}

const fn cured(case: Case, effect: &'static str) -> Case {
    Case { cure: Some(effect), ..case }
}

const fn at(place: Place, case: Case) -> Case {
    Case { place, ..case }
}

const MACHINE: &str = "Machine";
const SET: &str = "MachineSet";
const DEPLOYMENT: &str = "MachineDeployment";
const CLASS: &str = "MachineClass";
pub const NODE: &str = "Node";
const REPLACES: &str = "ReplacesMachines";
const KILLS_PODS: &str = "KillsPods";
const LOSES_DATA: &str = "LosesData";

/// Names begin with `w-`, because Nodes of other tests are in the same cluster.
pub const PRODUCED: [Case; 39] = [
    until("BootstrapToken", (MACHINE, "w-bootstrap-token"), "a bootstrap token: cannot create bootstrap token"),
    at(Place::CutOff, until("CacheUntrusted", (CLASS, "w-cache-untrusted"), "a trusted list of machines: cluster")),
    endless("Class", (MACHINE, "w-class"), "the MachineClass w-nowhere, which does not exist"),
    until("CloudOperation", (MACHINE, "w-cloud-operation"), "the cloud: the VM is being created"),
    until("DriverRetry", (MACHINE, "w-driver-retry"), "no host has room"),
    cured(until("Eviction", (MACHINE, "w-eviction"), "to allow an eviction"), KILLS_PODS),
    endless("Finalizers", (MACHINE, "w-finalizers"), "example.com/keep"),
    endless("Hold", (MACHINE, "w-hold"), "MCMMigration m to be complete"),
    endless("InPlaceUpdate", (DEPLOYMENT, "w-in-place"), "select"),
    endless("MachineAvailability", (SET, "w-availability"), "1 of 1 machine to become available"),
    routine("MachineCount", (DEPLOYMENT, "w-availability"), "the next check of the number of machines"),
    endless("MachineDeletion", (SET, "w-deletion"), "1 machine to be deleted before the set"),
    until("MachineWrite", (MACHINE, "w-machine-write"), "no ID in this test"),
    cured(until("NodeHealth", (MACHINE, "w-node-health"), "the Node to become healthy again"), REPLACES),
    cured(until("NodeJoin", (MACHINE, "w-node-join"), "Node w-node-join to join"), REPLACES),
    endless("NodeTemplate", (MACHINE, "w-node-template"), "example.com/bad"),
    until("NodeWrite", (MACHINE, "w-node-write"), "a write to the Node to succeed"),
    until("NodeWriteRefused", (MACHINE, "w-node-refused"), "a write to the Node to succeed"),
    until("NodesUnknown", (MACHINE, "w-nodes-unknown"), "the Node to become readable"),
    routine("OrphanCheck", (CLASS, "small"), "the next check"),
    cured(endless("Paused", (DEPLOYMENT, "w-paused"), "spec.paused is true"), REPLACES),
    until("PodList", (MACHINE, "w-pod-list"), "the list of the pods of the Node"),
    cured(until("PodTermination", (MACHINE, "w-pod-termination"), "w-pod-termination to terminate"), KILLS_PODS),
    cured(until("Preservation", (MACHINE, "w-preservation"), "the preservation to end"), REPLACES),
    endless("Replacement", (MACHINE, "w-replacement"), "its set to replace it"),
    until("ReplacementPermit", (MACHINE, "w-permit"), ""),
    endless("Rollout", (DEPLOYMENT, "w-availability"), "available"),
    cured(endless("ScaleUpBlocked", (SET, "w-frozen"), "the set to be unfrozen"), REPLACES),
    endless("Secret", (MACHINE, "w-secret"), "w-nowhere, which does not exist"),
    endless("SpecCorrection", (CLASS, "w-spec-correction"), "providerSpec.zone: expected a non-empty string"),
    at(
        Place::WithoutTarget,
        endless("Unsupported", (DEPLOYMENT, "w-unsupported"), "in-place updates need a target cluster"),
    ),
    endless("Users", (CLASS, "w-users"), "the machines that use the class to be deleted: w-users"),
    at(Place::WithoutTarget, routine("VmCheck", (MACHINE, "w-vm-check"), "the next check of the VM")),
    until("VmLookup", (MACHINE, "w-vm-lookup"), "the driver to find the VM"),
    cured(until("VolumeAttachment", (MACHINE, "w-volume-attachment"), "to be attached to another node"), KILLS_PODS),
    cured(until("VolumeDetachment", (MACHINE, "w-volume-detachment"), "to be detached from node"), LOSES_DATA),
    until("VolumeTurn", (MACHINE, "w-volume-turn"), "to be evicted"),
    until("VolumesUnknown", (MACHINE, "w-volumes-unknown"), "the volumes of pod"),
    until("WriteUndone", (SET, "w-write-undone"), "spec.drainTimeout is \"7m0s\""),
];

/// Kinds that `bad_input` produces, because they need objects that our definitions refuse, or a cluster without other managers.
pub const CLASS_UNKNOWN: Case =
    endless("ClassUnknown", (MACHINE, "w-class-unknown"), "the MachineClass w-garbled to become readable");
pub const NODE_CLAIM: Case = until("NodeClaim", (NODE, "w-node-claim"), "a machine to claim the node");
pub const UNREADABLE: Case = endless("Unreadable", (NODE, "w-node-claim"), "all machines to become readable");

/// Kinds that need Cluster API core, and the test in tests/clusterctl/explained.rs that produces them.
pub const WITH_CORE: [(&str, &str); 2] = [
    ("Infrastructure", "the_cause_of_a_machine_is_found_with_one_command"),
    ("Owner", "the_cause_of_a_machine_is_found_with_one_command"),
];

/// The other waits need a running manager; the test in tests/integration/why.rs runs without one.
pub const WITHOUT_MANAGER: (&str, &str) = ("Manager", "a_manager_that_is_gone_is_waited_for_first");

/// Probes of API servers have no object that `mcm why` or `/explain` could show: the log of the manager shows the wait.
pub const IN_LOG: (&str, &str) = ("ApiServers", "waiting for the next probe of the API servers");
