//! The causes for which an object of Cluster API waits: the meaning of each, how it ends, and what a user can do. Pure.

use jiff::Timestamp;

use super::object::{CapiObject, Kind};
use crate::story::{ExplainedWait, ObjectRemedy};
use mcm_rules::plan::{
    WaitKind,
    guide::{RemedyDanger, WaitEnd},
    shell::word,
};

/// Why an object of Cluster API waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// An annotation or the Cluster pauses it.
    Paused,
    /// The MachineDeployment is paused.
    PausedRollout,
    /// Cluster API core has not done its part.
    Core,
    /// The bootstrap provider has made no bootstrap data.
    Bootstrap,
    /// The control plane is not initialized.
    ControlPlane,
    /// The infrastructure of the Cluster is not provisioned.
    ClusterInfrastructure,
    /// The class of the VM, or a Secret of it.
    Class,
    /// Another obstacle that only a user removes.
    Obstacle,
    /// The VM is registered in a load balancer, or leaves it.
    LoadBalancer,
    /// The cloud creates or deletes the VM.
    Vm,
    /// Infrastructure of another provider.
    OtherProvider,
    /// The provider has not acted.
    Provider,
    /// The Node has not joined.
    NodeJoin,
    /// The Node is not healthy.
    NodeHealth,
    /// Core cannot reach the workload cluster.
    Connection,
    /// Pods of the Node have to be evicted.
    Drain,
    /// Volumes have to be detached.
    Volumes,
    /// A hook of another controller.
    Hook,
    /// Another step of the deletion.
    Deletion,
    /// A health check failed.
    Remediation,
    /// Machines below the object.
    Machines,
    /// A new template rolls out.
    Rollout,
}

/// An object that waits, for the texts of remedies.
pub struct WaitingObject<'a> {
    pub kind: Kind,
    pub object: &'a CapiObject,
    pub namespace: &'a str,
}

impl WaitingObject<'_> {
    fn kubectl(&self, kind: Kind, verb: &str, name: &str) -> String {
        let argument = kind.argument(&word(name)).replacen('/', " ", 1);
        format!("kubectl {verb} {argument} -n {}", self.namespace)
    }

    /// The object itself.
    fn own(&self, verb: &str) -> String {
        self.kubectl(self.kind, verb, self.object.name())
    }

    /// The name of the Cluster.
    fn cluster(&self) -> &str {
        if self.kind == Kind::Cluster { self.object.name() } else { self.object.cluster_name() }
    }

    fn why_cluster(&self) -> String {
        format!("mcm why {} -n {}", word(&Kind::Cluster.argument(self.cluster())), self.namespace)
    }

    fn is_machine(&self) -> bool {
        self.kind == Kind::Machine
    }
}

impl WaitCause {
    /// The wait for this cause.
    pub fn told(
        self,
        place: &WaitingObject<'_>,
        text: impl Into<String>,
        forced_at: Option<Timestamp>,
    ) -> ExplainedWait {
        let (kind, end, meaning) = self.entry();
        let text = text.into();
        let remedies = self.remedies(place);
        ExplainedWait { kind, text, meaning, end, next_attempt: None, forced_at, since: None, plans: None, remedies }
    }

    const fn entry(self) -> (WaitKind, WaitEnd, &'static str) {
        match self {
            Self::Paused => {
                (WaitKind::Hold, WaitEnd::User, "A paused object is not reconciled, neither by core nor by providers.")
            }
            Self::PausedRollout => (WaitKind::Paused, WaitEnd::User, "A paused MachineDeployment does not roll out."),
            Self::Core => (
                WaitKind::Owner,
                WaitEnd::Others,
                "Cluster API core acts first: it sets owners, and reads the objects that a Machine names.",
            ),
            Self::Bootstrap => (
                WaitKind::Infrastructure,
                WaitEnd::Others,
                "No VM is created before the bootstrap provider has stored the bootstrap data of the Machine in a Secret.",
            ),
            Self::ControlPlane => (
                WaitKind::Infrastructure,
                WaitEnd::Others,
                "Workers get bootstrap data, and Nodes are looked at, once the first Machine of the control plane has a Node.",
            ),
            Self::ClusterInfrastructure => (
                WaitKind::Infrastructure,
                WaitEnd::Others,
                "No machine is created before the infrastructure of the Cluster is provisioned.",
            ),
            Self::Class => (WaitKind::Class, WaitEnd::User, "The class of the VM, or its Secret, cannot be used."),
            Self::Obstacle => (
                WaitKind::SpecCorrection,
                WaitEnd::User,
                "The provider never guesses in such a case, because a VM could be lost.",
            ),
            Self::LoadBalancer => (
                WaitKind::CloudOperation,
                WaitEnd::Others,
                "A VM of the control plane is registered in the load balancer before it counts as provisioned, and deregistered before it is deleted.",
            ),
            Self::Vm => (WaitKind::CloudOperation, WaitEnd::Others, "The cloud works on the VM."),
            Self::OtherProvider => (
                WaitKind::Infrastructure,
                WaitEnd::Others,
                "The machine belongs to another infrastructure provider, whose controllers have the details.",
            ),
            Self::Provider => (
                WaitKind::Infrastructure,
                WaitEnd::Others,
                "The controllers of the provider have not acted: they may not run.",
            ),
            Self::NodeJoin => {
                (WaitKind::NodeJoin, WaitEnd::Others, "The VM runs, but its kubelet has not joined the cluster.")
            }
            Self::NodeHealth => {
                (WaitKind::NodeHealth, WaitEnd::Others, "The kubelet reports a problem, or nothing at all.")
            }
            Self::Connection => {
                (WaitKind::NodesUnknown, WaitEnd::Others, "Core does not reach the API server of the workload cluster.")
            }
            Self::Drain => (
                WaitKind::Eviction,
                WaitEnd::Others,
                "Core evicts the pods of the Node before the VM is deleted, and waits for budgets and for pods that terminate.",
            ),
            Self::Volumes => (WaitKind::VolumeDetachment, WaitEnd::Others, "Volumes are still attached to the Node."),
            Self::Hook => {
                (WaitKind::Finalizers, WaitEnd::Others, "An annotation of another controller holds the deletion.")
            }
            Self::Deletion => {
                (WaitKind::MachineDeletion, WaitEnd::Others, "A deletion removes one part after the other.")
            }
            Self::Remediation => (
                WaitKind::Replacement,
                WaitEnd::Others,
                "A health check failed, so the owner of the Machine replaces it.",
            ),
            Self::Machines => {
                (WaitKind::MachineAvailability, WaitEnd::Controllers, "Machines have to become available.")
            }
            Self::Rollout => (
                WaitKind::Rollout,
                WaitEnd::Controllers,
                "Machines with a former template are replaced one after the other.",
            ),
        }
    }

    fn remedies(self, place: &WaitingObject<'_>) -> Vec<ObjectRemedy> {
        let namespace = place.namespace;
        let describe = || safe(place.own("describe"), "shows its conditions and its events");
        let nodes = || {
            safe(
                format!("clusterctl get kubeconfig {} -n {namespace}", word(place.cluster())),
                "for kubectl in the workload cluster",
            )
        };
        let infrastructure =
            |name: &str| safe(place.kubectl(Kind::MCMMachine, "describe", name), "shows its conditions and its events");
        match self {
            Self::Paused if place.object.has_pause() => {
                let command = format!("{} cluster.x-k8s.io/paused-", place.own("annotate"));
                vec![safe(command, "resumes it, if it was paused on purpose")]
            }
            Self::Paused => {
                let patch = place.kubectl(Kind::Cluster, "patch", place.cluster());
                let command = format!("{patch} --type merge -p '{{\"spec\":{{\"paused\":false}}}}'");
                vec![
                    safe("if clusterctl move or mcm adopt paused it, let that end", ""),
                    safe(command, "resumes the Cluster, if a user paused it"),
                ]
            }
            Self::PausedRollout => {
                let command = format!("{} --type merge -p '{{\"spec\":{{\"paused\":false}}}}'", place.own("patch"));
                let note = "resumes it, and rolls out a new template";
                vec![ObjectRemedy { text: command, note, danger: RemedyDanger::ReplacesMachines }]
            }
            Self::Bootstrap => match &place.object.spec.bootstrap.config_ref {
                config if config.name.is_empty() => {
                    vec![safe("create the Secret, and set spec.bootstrap.dataSecretName of the Machine", "")]
                }
                config => {
                    let kind = config.kind.to_lowercase();
                    let (kind, name) = (word(&kind), word(&config.name));
                    let command = format!("kubectl describe {kind} {name} -n {namespace}");
                    vec![
                        safe(command, "its conditions name the reason"),
                        safe("see the log of the bootstrap provider", ""),
                    ]
                }
            },
            Self::ControlPlane => vec![
                safe(place.why_cluster(), "names the machines of the control plane"),
                safe(place.kubectl(Kind::Cluster, "describe", place.cluster()), "shows its conditions"),
            ],
            Self::ClusterInfrastructure => {
                vec![safe(place.why_cluster(), "shows its infrastructure")]
            }
            Self::Class => vec![
                safe(
                    format!(
                        "kubectl get machineclasses.machine.sapcloud.io,secrets -n {namespace} -o yaml | mcm class check -f -"
                    ),
                    "names each wrong field",
                ),
                describe(),
            ],
            Self::LoadBalancer | Self::Vm if place.is_machine() => {
                vec![infrastructure(&place.object.spec.infrastructure_ref.name)]
            }
            Self::Provider => {
                vec![safe("kubectl get pods -n capmcm-system", "shows whether the provider runs"), describe()]
            }
            Self::NodeJoin | Self::NodeHealth => {
                let mut all = vec![nodes(), safe("see the console of the VM, and the log of cloud-init on it", "")];
                if place.is_machine() {
                    let note = "its MachineSet creates another one";
                    all.push(ObjectRemedy { text: place.own("delete"), note, danger: RemedyDanger::ReplacesMachines });
                }
                all
            }
            Self::Connection => vec![
                safe(
                    format!("kubectl get secret {} -n {namespace}", word(&format!("{}-kubeconfig", place.cluster()))),
                    "core connects with it",
                ),
                nodes(),
            ],
            Self::Drain => {
                let command = format!("{} machine.cluster.x-k8s.io/exclude-node-draining=", place.own("annotate"));
                vec![
                    nodes(),
                    safe("kubectl get pdb -A", "in the workload cluster: shows the budgets that allow no disruption"),
                    ObjectRemedy {
                        text: command,
                        note: "deletes the VM without a drain",
                        danger: RemedyDanger::KillsPods,
                    },
                ]
            }
            Self::Volumes => {
                let annotation = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach=";
                let text = format!("{} {annotation}", place.own("annotate"));
                let note = "does not wait for them";
                vec![
                    nodes(),
                    safe("kubectl get volumeattachments", "in the workload cluster"),
                    ObjectRemedy { text, note, danger: RemedyDanger::LosesData },
                ]
            }
            Self::Hook => vec![
                safe(place.own("get") + " -o yaml", "an annotation with delete.hook names the controller"),
                safe("see the log of that controller; remove the annotation only if it does not exist any more", ""),
            ],
            Self::Remediation => vec![
                safe(
                    format!("kubectl describe machinehealthcheck -n {namespace}"),
                    "shows whether replacements are allowed",
                ),
                describe(),
            ],
            Self::Machines | Self::Rollout => Vec::new(),
            Self::Core | Self::Obstacle | Self::LoadBalancer | Self::Vm | Self::OtherProvider | Self::Deletion => {
                vec![describe()]
            }
        }
    }
}

fn safe(text: impl Into<String>, note: &'static str) -> ObjectRemedy {
    ObjectRemedy { text: text.into(), note, danger: RemedyDanger::Safe }
}
