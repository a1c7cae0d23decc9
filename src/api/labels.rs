//! Names of labels, annotations, taints and finalizers. Other programs also read them. The Go reference defines all
//! values, except values that end in `mcm/…` and the value of clusterctl; they never change.

use kube::ResourceExt;

/// Label on a Machine: the name of its Node. The only link from Machine to Node.
pub const NODE: &str = "node";
/// Label on a Machine, set through the template: the name of its MachineDeployment.
pub const DEPLOYMENT_NAME: &str = "name";
/// Label on a Node, and in the node template of its Machine: the zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Label that keeps the MachineSets of one MachineDeployment apart.
pub const TEMPLATE_HASH: &str = "machine-template-hash";
/// Label on sets and deployments; with `True` the set creates no Machines.
pub const FREEZE: &str = "freeze";
/// Label on a Machine: force the drain and continue if it fails.
pub const FORCE_DELETION: &str = "force-deletion";
/// Label on a Machine that stays: with `True` the drain of its Node is forced.
pub const FORCE_DRAIN: &str = "force-drain";
/// Label on a Node: the name of its Machine.
pub const MACHINE_NAME: &str = "node.gardener.cloud/machine-name";
/// Label on a Node of an old set during an in-place update. The deployment controller writes it, the machine controller
/// reads it.
pub const CANDIDATE_FOR_UPDATE: &str = "node.machine.sapcloud.io/candidate-for-update";
/// Label on a Node that is updated in place next. The deployment controller writes it, or a user if the update is
/// orchestrated manually; the machine controller then drains the Node.
pub const SELECTED_FOR_UPDATE: &str = "node.machine.sapcloud.io/selected-for-update";
/// Value of the two labels above.
pub const SET: &str = "true";
/// Label on a Node, written by the agent that updates it: [`SUCCESSFUL`] or [`FAILED`]. On a Machine it means that the
/// Machine just moved to the set of the current template.
pub const UPDATE_RESULT: &str = "node.machine.sapcloud.io/update-result";
/// Value of [`UPDATE_RESULT`].
pub const SUCCESSFUL: &str = "successful";
/// Value of [`UPDATE_RESULT`].
pub const FAILED: &str = "failed";
/// Label on a MachineSet; while it is present, the set is not scaled up, because of an in-place update.
pub const SCALE_UP_DISABLED: &str = "node.machine.sapcloud.io/scale-up-disabled";

/// Annotation on a Machine: deletion priority, an integer. Lower values are deleted first; 3 if absent.
pub const PRIORITY: &str = "machinepriority.machine.sapcloud.io";
/// The default priority.
pub const DEFAULT_PRIORITY: i64 = 3;
/// The priority of a Machine that was chosen for deletion, by the autoscaler or with `delete-machine` of Cluster API.
pub const FIRST_PRIORITY: &str = "1";
/// Annotation on a Machine: when the autoscaler chose it for deletion.
pub const MARKED_FOR_DELETION_TIME: &str = "machine.sapcloud.io/marked-for-deletion-time";
/// Annotation on deployment and set: when the autoscaler last changed the replicas.
pub const LAST_SCALER_CHANGE: &str = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
/// Annotation on a MachineDeployment: the Machines that the autoscaler chose for deletion.
pub const TRIGGER_DELETION: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
/// Annotation that overrides the creation timeout of new Machines (Go duration).
pub const EFFECTIVE_CREATION_TIMEOUT: &str = "node.machine.sapcloud.io/effective-creation-timeout";
/// Annotation on a Machine or Node to keep a failed Machine.
pub const PRESERVE: &str = "node.machine.sapcloud.io/preserve";
/// Annotation on a Machine: the last `preserve` value seen on its Node.
pub const LAST_NODE_PRESERVE: &str = "node.machine.sapcloud.io/last-applied-node-preserve-value";
/// Annotation on a Node: merge base for annotations, labels and taints (JSON of the Machine's node template).
pub const LAST_APPLIED_NODE_TEMPLATE: &str = "node.machine.sapcloud.io/last-applied-anno-labels-taints";
/// Annotation on a Node: merge base for virtual capacity (JSON).
pub const LAST_APPLIED_VIRTUAL_CAPACITY: &str = "node.machine.sapcloud.io/last-applied-virtual-capacity";
/// Annotation on a Node that no Machine backs.
pub const NOT_MANAGED: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
/// Annotation on a Node: its Machine, as `NAMESPACE/NAME/UID`. The machine controller writes it once it has evidence for that, and
/// reads it as evidence: the author of a Machine can write neither Nodes nor UIDs. The reference neither reads nor writes it.
pub const NODE_OF: &str = "machine.mcm/node-of";
/// Label on a Node of a control plane, and its former name.
pub const CONTROL_PLANE_ROLES: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
/// Annotation on a Machine: how long it took to join.
pub const JOIN_DURATION: &str = "node.machine.sapcloud.io/machine-join-duration";
/// Annotation on a Node, written by the agent that updates it: why the update failed.
pub const UPDATE_FAILED_REASON: &str = "node.machine.sapcloud.io/update-failed-reason";
/// Annotation on sets and deployments: the revision number.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation on a set: its former revisions.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation on a set: the deployment's replicas when the set was last scaled.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation on a set: the deployment's replicas plus maxSurge when the set was last scaled.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Annotation on old sets, and taint key on their Nodes, during a rollout.
pub const PREFER_NO_SCHEDULE: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
/// Annotation with which a user ends a freeze.
pub const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";
/// Annotation on a Node: the autoscaler must not remove it.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// Annotation on a Node: [`SCALE_DOWN_DISABLED`] was set by mcm, so mcm may remove it.
pub const SCALE_DOWN_DISABLED_BY_MCM: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm";
/// Value of the two annotations above.
pub const SCALE_DOWN_IS_DISABLED: &str = "true";
/// Annotation on a MachineClass: the problems that its driver reported. It replaces a condition, because a MachineClass
/// has no status and the CRD of the reference prunes unknown fields. The reference neither reads nor writes it.
pub const CLASS_PROBLEMS: &str = "machine.sapcloud.io/class-problems";
/// Annotation on a Machine: the Secret with its own user data, under the key `value`, which replaces that of its class.
/// The provider for Cluster API writes it. The data is used as it is, without placeholders.
pub const USER_DATA_SECRET: &str = "machine.mcm/user-data-secret";
/// Key of the user data in that Secret.
pub const USER_DATA_KEY: &str = "value";
/// Annotation on a Machine that the orphan collector created for a VM without one, to drain its Node: the pool that the VM was
/// created for; empty without a pool. The collector writes and reads it. Without it the Machine is kept.
pub const ORPHAN: &str = "machine.mcm/orphan-of";
/// Annotation on a Machine of the provider for Cluster API: the zone of its VM, as the cloud reports it.
pub const VM_ZONE: &str = "machine.mcm/zone";
/// Annotation on a Machine of the provider for Cluster API: `spec.providerID` of its Node, if only the driver can tell it.
pub const NODE_PROVIDER_ID: &str = "machine.mcm/node-provider-id";
/// Label on native objects: the MCMMachinePool that they belong to. The provider for Cluster API writes and reads it.
pub const POOL: &str = "machine.mcm/pool";
/// Annotation on a Machine or MachineDeployment of the provider for Cluster API: its VMs are deleted with it. The provider
/// writes it before it deletes the object. A user writes it to delete the VM of an object whose owner was removed by force.
pub const DELETE_VM: &str = "machine.mcm/delete-vm";
/// Annotation on a MachineClass that the provider made of the description in an MCMMachine: a hash of the part of the description that
/// only another VM can have. Written and read by the provider.
pub const DESCRIPTION_HASH: &str = "machine.mcm/description-hash";
/// Annotation on a Machine of the provider for Cluster API whose VM may be under creation: `clusterctl move` waits for
/// its end.
pub const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";
/// Annotation on objects of both sides while `mcm adopt` moves them: the name of their MCMMigration. No controller touches a
/// native object that has it.
pub const MIGRATION: &str = "machine.mcm/migration";
/// Annotation on a native Machine while `mcm adopt` migrates it: its former state, as JSON.
pub const BEFORE_MIGRATION: &str = "machine.mcm/before-migration";
/// Label on a Namespace whose objects of Cluster API the stand-in serves, with the value [`SERVED`]. Users write it. On native
/// On an object of a namespace that is being deleted, followed by the name of a Lease: who leads in place of its holder.
pub const LEADER_PREFIX: &str = "machine.mcm/leader-of.";
/// deployments, classes and Secrets: the MachineDeployment of Cluster API that the stand-in made them from.
pub const STAND_IN: &str = "machine.mcm/stand-in";
/// Value of [`STAND_IN`] on a Namespace, and on an MCMMigration that the stand-in made.
pub const SERVED: &str = "enabled";
/// Annotation on a MachineSet or Machine of Cluster API: the stand-in shows a native object in it.
pub const MIRROR: &str = "machine.mcm/mirror";
/// Label on a Secret that the stand-in copied: the resource version of its source.
pub const COPIED_VERSION: &str = "machine.mcm/copied-version";
/// Annotation on a MachineSet: a hash of its name and of the template that its deployment created it for. The deployment
/// writes and reads it. The API server may have stored another template.
pub const MADE_FOR: &str = "machine.mcm/made-for";
/// Annotation in the template of a MachineDeployment: when its machines were last restarted. `mcm rollout restart` writes it, so that
/// the template is another one; no program reads it.
pub const RESTARTED_AT: &str = "machine.mcm/restarted-at";
/// Annotation on a Machine that `mcm machine replace` replaces: how far it is. That command alone writes and reads it.
pub const REPLACEMENT: &str = "machine.mcm/replacement";
/// Annotation on a MachineDeployment, written by users: with the value [`ZERO`], absent replicas are 0 whichever client
/// left them out. Read by the deployment controller.
pub const ABSENT_REPLICAS: &str = "machine.mcm/absent-replicas";
/// Value of [`ABSENT_REPLICAS`].
pub const ZERO: &str = "zero";
/// Annotation on the Leases of managers, written by their holder while Machines are frozen, because an API server does not answer:
/// since when and why, in JSON. Read by `mcm why` and other commands that only read.
pub const FROZEN: &str = "machine.mcm/frozen";
/// Label on the Leases of the members of a fleet, with the name of the fleet. Written and read by its replicas. Operators also set it
/// on the Namespaces of shoots that a fleet serves: `config/gardener/fleet.yaml` and its `--fleet-selector` select them by it.
pub const FLEET: &str = "machine.mcm/fleet";
/// Annotation on the Lease of a member of a fleet: the namespaces that it is ready to take over, separated by commas. Written and
/// read by the replicas of the fleet.
pub const ASKS_FOR: &str = "machine.mcm/asks-for";
/// Annotation of kubectl; never copied.
pub const KUBECTL_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Taint on a Node that waits for its critical components; delays the transition from Pending to Running.
pub const CRITICAL_COMPONENTS_TAINT: &str = "node.gardener.cloud/critical-components-not-ready";

/// Taint on the Node of a preserved Machine that failed.
pub const PRESERVED_TAINT: &str = "node.machine.sapcloud.io/preserved";

/// Finalizer on Machine, MachineSet, MachineDeployment and MachineClass.
pub const FINALIZER: &str = "machine.sapcloud.io/machine-controller-manager";
/// Finalizer of the stand-in on MachineDeployments and Machines of Cluster API.
pub const STAND_IN_FINALIZER: &str = "machine.mcm/stand-in";
/// Finalizer on Secrets that a class refers to.
pub const SECRET_FINALIZER: &str = "machine.sapcloud.io/machine-controller";
/// Finalizer on Nodes that a Machine backs.
pub const NODE_FINALIZER: &str = "node.machine.sapcloud.io/machine-controller";

/// Value `True` of labels and annotations.
pub const TRUE: &str = "True";

/// An object has a label with the value [`TRUE`].
pub fn is_true(object: &impl ResourceExt, label: &str) -> bool {
    object.labels().get(label).is_some_and(|value| value == TRUE)
}
