//! The causes for which objects of Cluster API wait: rows of the catalogue of waits beside those of [`super::guide`].

use super::{
    WaitKind,
    guide::{
        CHECK_CLASS, SEE_UNREADABLE, WaitEnd, WaitGuide, WaitRemedy, guide, kills_pods, loses_data, replaces, safe,
    },
    shell::CommandCluster,
};

/// Declares the causes, and the row of each: the kind of its waits, how they end, their meaning, and remedies.
macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident = $kind:ident, $end:ident, $meaning:expr, $remedies:expr;)+) => {
        /// Why an object of Cluster API waits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WaitCause { $($(#[$doc])* $cause),+ }

        impl WaitCause {
            /// All causes.
            pub const ALL: &[Self] = &[$(Self::$cause),+];

            /// The kind of its waits.
            pub const fn kind(self) -> WaitKind {
                match self { $(Self::$cause => WaitKind::$kind),+ }
            }

            /// Its row in the catalogue.
            pub fn guide(self) -> WaitGuide {
                match self { $(Self::$cause => guide($meaning, WaitEnd::$end, $remedies)),+ }
            }
        }
    };
}

const DESCRIBE: WaitRemedy =
    safe("kubectl describe {kind} {name} -n {namespace}", "shows its conditions and its events");
/// The MCMMachine of a Machine; other objects themselves.
const DESCRIBE_VM: WaitRemedy = safe("kubectl describe {vm} -n {namespace}", "shows its conditions and its events");
const DESCRIBE_CLUSTER: WaitRemedy = safe("kubectl describe cluster {cluster} -n {namespace}", "shows its conditions");
const REACH_NODES: WaitRemedy =
    safe("clusterctl get kubeconfig {cluster} -n {namespace}", "for kubectl in the workload cluster");
const SEE_CONSOLE: WaitRemedy = safe("see the console of the VM, and the log of cloud-init on it", "");
const REPLACE: WaitRemedy =
    replaces("kubectl delete machine.cluster.x-k8s.io {machine} -n {namespace}", "its MachineSet creates another one");

/// A remedy whose command is for the workload cluster.
const fn in_workload(remedy: WaitRemedy) -> WaitRemedy {
    remedy.of_cluster(CommandCluster::Workload)
}

/// The meaning of each pause of an object.
const OF_PAUSE: &str = "A paused object is not reconciled, neither by core nor by providers.";
/// The meaning of each wait for bootstrap data.
const OF_BOOTSTRAP: &str =
    "No VM is created before the bootstrap provider has stored the bootstrap data of the Machine in a Secret.";

causes! {
    /// An annotation pauses it.
    Paused = Hold, User, OF_PAUSE, &[
        safe(
            "kubectl annotate {kind} {name} -n {namespace} cluster.x-k8s.io/paused-",
            "resumes it, if it was paused on purpose",
        ),
    ];
    /// Its Cluster pauses it.
    PausedCluster = Hold, User, OF_PAUSE, &[
        safe("if clusterctl move or mcm adopt paused it, let that end", ""),
        safe(
            r#"kubectl patch cluster {cluster} -n {namespace} --type merge -p '{"spec":{"paused":false}}'"#,
            "resumes the Cluster, if a user paused it",
        ),
    ];
    /// The MachineDeployment is paused.
    PausedRollout = Paused, User, "A paused MachineDeployment does not roll out.", &[
        replaces(
            r#"kubectl patch {kind} {name} -n {namespace} --type merge -p '{"spec":{"paused":false}}'"#,
            "resumes it, and rolls out a new template",
        ),
    ];
    /// Cluster API core has not done its part.
    Core = Owner, Others,
        "Cluster API core acts first: it sets owners, and reads the objects that a Machine names.", &[DESCRIBE];
    /// The bootstrap provider has made no bootstrap data.
    Bootstrap = Infrastructure, Others,
        OF_BOOTSTRAP, &[
        safe("kubectl describe {config-kind} {config} -n {namespace}", "its conditions name the reason"),
        safe("see the log of the bootstrap provider", ""),
    ];
    /// No bootstrap provider makes bootstrap data.
    BootstrapSecret = Infrastructure, User,
        OF_BOOTSTRAP, &[
        safe("create the Secret, and set spec.bootstrap.dataSecretName of the Machine", ""),
    ];
    /// The control plane is not initialized.
    ControlPlane = Infrastructure, Others,
        "Workers get bootstrap data, and Nodes are looked at, once the first Machine of the control plane has a Node.", &[
        safe("mcm why cluster/{cluster} -n {namespace}", "names the machines of the control plane"), DESCRIBE_CLUSTER,
    ];
    /// No object of Cluster API manages the control plane, and nothing has reported that it runs.
    ExternalControlPlane = Infrastructure, User,
        "Core looks at Nodes once the control plane is initialized. It cannot see that of a control plane without an \
         object, so a user reports it in the status of the Cluster.", &[
        safe(
            r#"kubectl patch cluster {cluster} -n {namespace} --subresource=status --type=merge -p '{"status":{"initialization":{"controlPlaneInitialized":true},"conditions":[{"type":"ControlPlaneInitialized","status":"True","reason":"Initialized","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}'"#,
            "reports that the control plane runs; repeat it after clusterctl move, which moves no status",
        ),
        DESCRIBE_CLUSTER,
    ];
    /// The infrastructure of the Cluster is not provisioned.
    ClusterInfrastructure = Infrastructure, Others,
        "No machine is created before the infrastructure of the Cluster is provisioned.", &[
        safe("mcm why cluster/{cluster} -n {namespace}", "shows its infrastructure"), DESCRIBE_CLUSTER,
    ];
    /// The class of the VM, or a Secret of it.
    Class = Class, User, "The class of the VM, or its Secret, cannot be used.", &[CHECK_CLASS, DESCRIBE];
    /// An object that the VM needs cannot be read.
    Unreadable = Unreadable, User,
        "An object that the VM needs cannot be read, so the provider does not act.", &[DESCRIBE, SEE_UNREADABLE];
    /// Another obstacle that only a user removes.
    Obstacle = SpecCorrection, User,
        "The provider never guesses in such a case, because a VM could be lost.", &[DESCRIBE];
    /// The VM is registered in a load balancer, or leaves it.
    LoadBalancer = CloudOperation, Others,
        "A VM of the control plane is registered in the load balancer before it counts as provisioned, and deregistered \
         before it is deleted.", &[DESCRIBE_VM];
    /// The cloud creates or deletes the VM.
    Vm = CloudOperation, Others, "The cloud works on the VM.", &[DESCRIBE_VM];
    /// Infrastructure of another provider.
    OtherProvider = Infrastructure, Others,
        "The machine belongs to another infrastructure provider, whose controllers have the details.", &[DESCRIBE];
    /// The provider has not acted.
    Provider = Infrastructure, Others, "The controllers of the provider have not acted: they may not run.", &[
        safe("kubectl get pods -n capmcm-system", "shows whether the provider runs"), DESCRIBE,
    ];
    /// The Node has not joined.
    NodeJoin = NodeJoin, Others,
        "The VM runs, but its kubelet has not joined the cluster.", &[REACH_NODES, SEE_CONSOLE, REPLACE];
    /// The Node is not healthy.
    NodeHealth = NodeHealth, Others,
        "The kubelet reports a problem, or nothing at all.", &[REACH_NODES, SEE_CONSOLE, REPLACE];
    /// Core cannot reach the workload cluster.
    Connection = NodesUnknown, Others, "Core does not reach the API server of the workload cluster.", &[
        safe("kubectl get secret {cluster}-kubeconfig -n {namespace}", "core connects with it"), REACH_NODES,
    ];
    /// Pods of the Node have to be evicted.
    Drain = Eviction, Others,
        "Core evicts the pods of the Node before the VM is deleted, and waits for budgets and for pods that terminate.", &[
        REACH_NODES,
        in_workload(safe("kubectl get pdb -A", "in the workload cluster: shows the budgets that allow no disruption")),
        kills_pods(
            "kubectl annotate {kind} {name} -n {namespace} machine.cluster.x-k8s.io/exclude-node-draining=",
            "deletes the VM without a drain",
        ),
    ];
    /// Volumes have to be detached.
    Volumes = VolumeDetachment, Others, "Volumes are still attached to the Node.", &[
        REACH_NODES,
        in_workload(safe("kubectl get volumeattachments", "in the workload cluster")),
        loses_data(
            "kubectl annotate {kind} {name} -n {namespace} machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach=",
            "does not wait for them",
        ),
    ];
    /// A hook of another controller.
    Hook = Finalizers, Others, "An annotation of another controller holds the deletion.", &[
        safe("kubectl get {kind} {name} -n {namespace} -o yaml", "an annotation with delete.hook names the controller"),
        safe("see the log of that controller; remove the annotation only if it does not exist any more", ""),
    ];
    /// Another step of the deletion.
    Deletion = MachineDeletion, Others, "A deletion removes one part after the other.", &[DESCRIBE];
    /// A health check failed.
    Remediation = Replacement, Others, "A health check failed, so the owner of the Machine replaces it.", &[
        safe("kubectl describe machinehealthcheck -n {namespace}", "shows whether replacements are allowed"), DESCRIBE,
    ];
    /// Machines below the object.
    Machines = MachineAvailability, Controllers, "Machines have to become available.", &[];
    /// A new template rolls out.
    Rollout = Rollout, Controllers, "Machines with a former template are replaced one after the other.", &[];
}
