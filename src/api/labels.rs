//! Names on objects that other programs read too: labels, annotations, taints, finalizers. All values are fixed by the
//! Go reference, and half-finished objects carry them.

/// Label on a Machine: the name of its Node. The only link from Machine to Node.
pub const NODE: &str = "node";
/// Label on a Machine, set through the template: the name of its MachineDeployment.
pub const DEPLOYMENT_NAME: &str = "name";
/// Label that keeps the MachineSets of one MachineDeployment apart.
pub const TEMPLATE_HASH: &str = "machine-template-hash";
/// Label on sets and deployments; `True` forbids the set to create Machines.
pub const FREEZE: &str = "freeze";
/// Label on a Machine: drain by force, and go on when a step fails.
pub const FORCE_DELETION: &str = "force-deletion";
/// Label on a Node: the name of its Machine.
pub const MACHINE_NAME: &str = "node.gardener.cloud/machine-name";
/// Label on a Machine or Node that reports the result of an in-place update.
pub const UPDATE_RESULT: &str = "node.machine.sapcloud.io/update-result";
/// Label on a MachineSet; its presence forbids growth during an in-place rollout.
pub const SCALE_UP_DISABLED: &str = "node.machine.sapcloud.io/scale-up-disabled";

/// Annotation on a Machine: deletion priority, an integer; the lower dies first, 3 if absent.
pub const PRIORITY: &str = "machinepriority.machine.sapcloud.io";
/// The priority a Machine gets when it has none.
pub const DEFAULT_PRIORITY: i64 = 3;
/// Annotation on a Machine: when the autoscaler chose it for deletion.
pub const MARKED_FOR_DELETION_TIME: &str = "machine.sapcloud.io/marked-for-deletion-time";
/// Annotation on deployment and set: when the autoscaler last changed the replicas.
pub const LAST_SCALER_CHANGE: &str = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
/// Annotation on a MachineDeployment: the Machines that the autoscaler wants gone.
pub const TRIGGER_DELETION: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
/// Annotation that overrides the creation timeout of Machines made from now on (Go duration).
pub const EFFECTIVE_CREATION_TIMEOUT: &str = "node.machine.sapcloud.io/effective-creation-timeout";
/// Annotation on a Machine or Node that asks to keep a failed Machine.
pub const PRESERVE: &str = "node.machine.sapcloud.io/preserve";
/// Annotation on a Machine: the last `preserve` value seen on its Node.
pub const LAST_NODE_PRESERVE: &str = "node.machine.sapcloud.io/last-applied-node-preserve-value";
/// Annotation on a Node: merge base for annotations, labels and taints (JSON of the Machine's node template).
pub const LAST_APPLIED_NODE_TEMPLATE: &str = "node.machine.sapcloud.io/last-applied-anno-labels-taints";
/// Annotation on a Node: merge base for virtual capacity (JSON).
pub const LAST_APPLIED_VIRTUAL_CAPACITY: &str = "node.machine.sapcloud.io/last-applied-virtual-capacity";
/// Annotation on a Node: not backed by any Machine, leave it alone.
pub const NOT_MANAGED: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
/// Annotation on a Machine: how long it took to join.
pub const JOIN_DURATION: &str = "node.machine.sapcloud.io/machine-join-duration";
/// Annotation on sets and deployments: the revision number.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation on a set: revisions it served before.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation on a set: the deployment's replicas when the set was last sized.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation on a set: the deployment's replicas plus surge when the set was last sized.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Annotation and taint key on what is about to be rolled away.
pub const PREFER_NO_SCHEDULE: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
/// Annotation by which an operator ends a freeze.
pub const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";
/// Annotation on a Node: the autoscaler must not remove it.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// Annotation on a Node: [`SCALE_DOWN_DISABLED`] was set by us and may be removed by us.
pub const SCALE_DOWN_DISABLED_BY_MCM: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm";
/// Annotation on a MachineClass: what its driver finds wrong with it. It stands for a condition, because a MachineClass has
/// no status and the CRD of the reference prunes unknown fields. Ours alone; the reference neither reads nor writes it.
pub const CLASS_PROBLEMS: &str = "machine.sapcloud.io/class-problems";
/// Written by kubectl; never copied.
pub const KUBECTL_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Taint with which a Node waits for its critical components; holds back Pending → Running.
pub const CRITICAL_COMPONENTS_TAINT: &str = "node.gardener.cloud/critical-components-not-ready";

/// Finalizer on Machine, MachineSet, MachineDeployment and MachineClass.
pub const FINALIZER: &str = "machine.sapcloud.io/machine-controller-manager";
/// Finalizer on Secrets that a class refers to.
pub const SECRET_FINALIZER: &str = "machine.sapcloud.io/machine-controller";
/// Finalizer on Nodes that a Machine backs.
pub const NODE_FINALIZER: &str = "node.machine.sapcloud.io/machine-controller";

/// `True`, as the reference writes it into labels and annotations.
pub const TRUE: &str = "True";
