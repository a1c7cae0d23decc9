//! The catalogue of waits: the meaning of each kind, how it ends, and what a user can do.

use schemars::JsonSchema;
use serde::Serialize;

use super::{WaitKind, shell::CommandCluster};

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum WaitEnd {
    /// Only a user can end it.
    User,
    /// Other programs end it, such as a cloud, a kubelet or an API server; a user may have to help.
    Others,
    /// The controllers end it.
    Controllers,
    /// It has no end: the object is as it should be, and is looked at from time to time.
    Routine,
}

/// The effect of a remedy on what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum RemedyDanger {
    /// Nothing that runs is disturbed.
    Safe,
    /// Pods are deleted.
    KillsPods,
    /// Machines are deleted or replaced.
    ReplacesMachines,
    /// Data may be lost.
    LosesData,
}

/// Something that a user can do. `{kind}`, `{namespace}` and `{name}` stand for those of the object that waits. A remedy with
/// `{machine}`, `{machineset}` or `{node}` is only for a Machine, a MachineSet, or a Machine with a Node; one with `{budget}` or
/// `{secret}` for a wait whose text names a PodDisruptionBudget or a missing Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WaitRemedy {
    /// A command, or an instruction.
    pub text: &'static str,
    /// The effect; empty if the text names it.
    pub note: &'static str,
    /// Its effect.
    pub danger: RemedyDanger,
    /// The cluster of its command.
    pub cluster: CommandCluster,
}

impl WaitRemedy {
    /// The same for another cluster than that of the MCM objects.
    pub(super) const fn of_cluster(self, cluster: CommandCluster) -> Self {
        Self { cluster, ..self }
    }

    /// Its text with values for `{places}`; `None` if it names a place without a value.
    pub fn text_with(&self, places: &[(&str, Option<&str>)]) -> Option<String> {
        let (mut text, mut rest) = (String::new(), self.text);
        // One pass: a value may look like a place.
        while let Some((before, after)) = rest.split_once('{') {
            text += before;
            let found =
                places.iter().find_map(|(place, value)| Some((value, after.strip_prefix(place)?.strip_prefix('}')?)));
            match found {
                Some((value, after)) => (text, rest) = (text + (*value)?, after),
                None => (text, rest) = (text + "{", after),
            }
        }
        Some(text + rest)
    }
}

/// The entry of a kind in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitGuide {
    /// One or two sentences.
    pub meaning: &'static str,
    /// How the wait ends.
    pub end: WaitEnd,
    /// Remedies, the first of which is tried first.
    pub remedies: Vec<WaitRemedy>,
}

pub(super) const fn safe(text: &'static str, note: &'static str) -> WaitRemedy {
    WaitRemedy { text, note, danger: RemedyDanger::Safe, cluster: CommandCluster::Control }
}

pub(super) const fn kills_pods(text: &'static str, note: &'static str) -> WaitRemedy {
    WaitRemedy { text, note, danger: RemedyDanger::KillsPods, cluster: CommandCluster::Control }
}

pub(super) const fn replaces(text: &'static str, note: &'static str) -> WaitRemedy {
    WaitRemedy { text, note, danger: RemedyDanger::ReplacesMachines, cluster: CommandCluster::Control }
}

pub(super) const fn loses_data(text: &'static str, note: &'static str) -> WaitRemedy {
    WaitRemedy { text, note, danger: RemedyDanger::LosesData, cluster: CommandCluster::Control }
}

pub(super) fn guide(meaning: &'static str, end: WaitEnd, remedies: &[WaitRemedy]) -> WaitGuide {
    WaitGuide { meaning, end, remedies: remedies.to_vec() }
}

/// A remedy whose command is for the target cluster.
const fn in_target(remedy: WaitRemedy) -> WaitRemedy {
    remedy.of_cluster(CommandCluster::Target)
}

const DESCRIBE: WaitRemedy = safe("kubectl describe {kind} {name} -n {namespace}", "shows its status and its events");
const SEE_MACHINES: WaitRemedy = safe("mcm why -n {namespace}", "names the machines that wait");
const REPLACE: WaitRemedy =
    replaces("kubectl delete machines.machine.sapcloud.io {machine} -n {namespace}", "replaces it now");
pub(super) const CHECK_CLASS: WaitRemedy = safe(
    "kubectl get machineclasses.machine.sapcloud.io,secrets -n {namespace} -o yaml | mcm class check -f -",
    "names each wrong field",
);
pub(super) const SEE_UNREADABLE: WaitRemedy =
    safe("kubectl get events -n {namespace} --field-selector reason=Unreadable", "names the field to correct");
const SEE_NODES: WaitRemedy = in_target(safe("kubectl get nodes", IN_TARGET));
const FORCE_DRAIN: WaitRemedy = kills_pods(
    "mcm drain force {machine} -n {namespace}",
    "deletes its pods and ignores their budgets; a machine that is updated or preserved stays",
);
/// For commands that need the kubeconfig of the target cluster.
const IN_TARGET: &str = "with the kubeconfig of the target cluster";

impl WaitKind {
    /// The kind with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| format!("{kind:?}") == name)
    }

    /// All kinds, in the order of their names.
    pub const ALL: [Self; 46] = [
        Self::ApiServers,
        Self::BootstrapToken,
        Self::CacheUntrusted,
        Self::Class,
        Self::ClassUnknown,
        Self::CloudOperation,
        Self::DriverRetry,
        Self::Eviction,
        Self::Finalizers,
        Self::Hold,
        Self::InPlaceUpdate,
        Self::Infrastructure,
        Self::MachineAvailability,
        Self::MachineCount,
        Self::MachineDeletion,
        Self::MachineWrite,
        Self::Manager,
        Self::NodeClaim,
        Self::NodeHealth,
        Self::NodeJoin,
        Self::NodeTemplate,
        Self::NodeWrite,
        Self::NodeWriteRefused,
        Self::NodesUnknown,
        Self::OrphanCheck,
        Self::Owner,
        Self::Paused,
        Self::PodList,
        Self::PodTermination,
        Self::Preservation,
        Self::Replacement,
        Self::ReplacementPermit,
        Self::Rollout,
        Self::ScaleUpBlocked,
        Self::Secret,
        Self::SpecCorrection,
        Self::Unreadable,
        Self::Unsupported,
        Self::Users,
        Self::VmCheck,
        Self::VmLookup,
        Self::VolumeAttachment,
        Self::VolumeDetachment,
        Self::VolumeTurn,
        Self::VolumesUnknown,
        Self::WriteUndone,
    ];

    /// An object that waits for nothing else is as it should be.
    pub fn is_routine(self) -> bool {
        self.guide().end == WaitEnd::Routine
    }

    /// Its entry in the catalogue.
    pub fn guide(self) -> WaitGuide {
        match self {
            Self::ApiServers => guide(
                "The API servers are probed regularly. While one does not answer, no machine fails and none is replaced.",
                WaitEnd::Routine,
                &[],
            ),
            Self::BootstrapToken => guide(
                "The bootstrap token of a machine could not be created in the target cluster, so its VM is not created yet.",
                WaitEnd::Others,
                &[safe("allow the manager to create Secrets in the namespace kube-system of the target cluster", "")],
            ),
            Self::CacheUntrusted => guide(
                "The list of objects may be incomplete: an API server was silent, or an object cannot be decoded. Nothing is concluded from a missing object.",
                WaitEnd::Others,
                &[
                    safe(
                        "kubectl get --raw /readyz",
                        "checks the API server; also with the kubeconfig of the target cluster",
                    ),
                    SEE_UNREADABLE,
                ],
            ),
            Self::Class => guide(
                "The MachineClass is missing, invalid, or of a provider that this manager does not serve.",
                WaitEnd::User,
                &[CHECK_CLASS, safe("kubectl get machineclasses.machine.sapcloud.io -n {namespace}", "")],
            ),
            Self::ClassUnknown => guide(
                "The MachineClass cannot be decoded, or the MachineClasses have not been read since the manager started.",
                WaitEnd::User,
                &[SEE_UNREADABLE, safe("allow the manager to list and watch machineclasses", "")],
            ),
            Self::CloudOperation => guide(
                "The cloud works on a request, such as the creation or deletion of a VM.",
                WaitEnd::Others,
                &[DESCRIBE],
            ),
            Self::DriverRetry => guide(
                "A call of the cloud failed, and is made again later. The error is in the status of the Machine.",
                WaitEnd::Others,
                &[
                    DESCRIBE,
                    safe(
                        "kubectl get machineclasses.machine.sapcloud.io,secrets -n {namespace} -o yaml | mcm class check --live -f -",
                        "asks the cloud for the image, the network and the quota of the class",
                    ),
                    safe(
                        "after a stock-out: raise the quota, or change the instance type or zone in the class",
                        "the next attempt uses it",
                    ),
                ],
            ),
            Self::Eviction => guide(
                "Pods of a Node that is drained are not evicted: a PodDisruptionBudget allows no disruption now, or the eviction fails.",
                WaitEnd::Others,
                &[
                    in_target(safe(
                        "kubectl get pdb -A",
                        "with the kubeconfig of the target cluster: shows the budgets that allow no disruption",
                    )),
                    safe("scale the workload up, so that its budget allows a disruption", ""),
                    in_target(kills_pods(
                        "kubectl patch pdb {budget} -n {budget-namespace} --type merge -p \
                         '{\"spec\":{\"minAvailable\":null,\"maxUnavailable\":1}}'",
                        "with the kubeconfig of the target cluster: lets pods be evicted one after the other",
                    )),
                    kills_pods("wait until the drain timeout: the pods are deleted then", ""),
                    FORCE_DRAIN,
                ],
            ),
            Self::Finalizers => guide(
                "Other controllers keep the object with their finalizers.",
                WaitEnd::Others,
                &[safe(
                    "kubectl get {kind} {name} -n {namespace} -o jsonpath='{.metadata.finalizers}'",
                    "shows the finalizers: each names its controller",
                )],
            ),
            Self::Hold => guide(
                "The object or its namespace is paused, or another controller has it.",
                WaitEnd::User,
                &[
                    safe("resume the Cluster or the object, if it is paused on purpose", ""),
                    safe(
                        "kubectl get {kind} {name} -n {namespace} -o yaml",
                        "its owners and annotations name the controller",
                    ),
                    safe("if it is migrated: mcm adopt status --cluster NAME", ""),
                    safe(
                        "kubectl get leases,deployments -n {namespace}",
                        "who manages the namespace, and whether its machine-controller-manager is scaled to 0",
                    ),
                ],
            ),
            Self::InPlaceUpdate => {
                guide("A Node is updated in place by an agent on it.", WaitEnd::Others, &[SEE_NODES])
            }
            Self::Infrastructure => guide(
                "Cluster API or its objects do not have what the machine needs yet, such as bootstrap data or a VM.",
                WaitEnd::Others,
                &[safe("clusterctl describe cluster NAME -n {namespace} --show-conditions all", "")],
            ),
            Self::MachineAvailability => guide(
                "Machines have to become available before the next change.",
                WaitEnd::Controllers,
                &[SEE_MACHINES],
            ),
            Self::MachineCount => guide(
                "The number of machines is counted regularly. Above its limit no machines are created.",
                WaitEnd::Routine,
                &[],
            ),
            Self::MachineDeletion => guide("Machines have to be deleted first.", WaitEnd::Controllers, &[SEE_MACHINES]),
            Self::MachineWrite => guide(
                "The API server refuses a write of the Machine, for example because of an admission webhook or a quota.",
                WaitEnd::User,
                &[DESCRIBE, safe("kubectl get validatingwebhookconfigurations,validatingadmissionpolicies", "")],
            ),
            Self::Manager => guide(
                "No manager renews the Lease of the controllers for this kind, so nothing is done with the object.",
                WaitEnd::User,
                &[
                    safe("mcm check -n {namespace}", "names the Leases and their holders"),
                    safe("start the manager, or scale its Deployment up", ""),
                ],
            ),
            Self::NodeClaim => guide(
                "A Node has no Machine yet, or nothing shows that it is that of the Machine which names it.",
                WaitEnd::Controllers,
                &[safe("kubectl get machines.machine.sapcloud.io -n {namespace}", "")],
            ),
            Self::NodeHealth => guide(
                "The Node is not healthy. At the end of the health timeout the Machine fails and is replaced.",
                WaitEnd::Others,
                &[SEE_NODES, REPLACE],
            ),
            Self::NodeJoin => guide(
                "The VM runs, and its Node has not joined the cluster, or is not healthy. At the end of the creation timeout the Machine is replaced.",
                WaitEnd::Others,
                &[safe("read the console log of the VM: most often the user data failed", ""), SEE_NODES, REPLACE],
            ),
            Self::NodeTemplate => guide(
                "The API server refuses the labels, annotations or taints of the node template.",
                WaitEnd::User,
                &[safe("correct spec.template.spec.nodeTemplate of the MachineDeployment", "")],
            ),
            Self::NodeWrite => guide("A write of the Node failed, and is made again.", WaitEnd::Others, &[SEE_NODES]),
            Self::NodeWriteRefused => guide(
                "The API server of the target cluster refuses a write of the Node.",
                WaitEnd::User,
                &[safe("allow the manager to patch nodes in the target cluster", "")],
            ),
            Self::NodesUnknown => guide(
                "The Nodes of the target cluster are not known, so nothing is concluded from a missing Node.",
                WaitEnd::Others,
                &[safe("check the API server of the target cluster, and the kubeconfig of the manager for it", "")],
            ),
            Self::OrphanCheck => guide("VMs without a Machine are looked for regularly.", WaitEnd::Routine, &[]),
            Self::Owner => guide(
                "The object has no owner, or no Cluster, yet.",
                WaitEnd::Others,
                &[safe("clusterctl describe cluster NAME -n {namespace}", "")],
            ),
            Self::Paused => guide(
                "The deployment is paused: its machines are scaled, and a new template waits.",
                WaitEnd::User,
                &[
                    safe("mcm plan {name} -n {namespace} --set paused=false", "shows what happens when it is resumed"),
                    replaces(
                        "kubectl patch machinedeployments.machine.sapcloud.io {name} -n {namespace} --type merge -p '{\"spec\":{\"paused\":false}}'",
                        "resumes it, as mcm rollout resume does",
                    ),
                ],
            ),
            Self::PodList => guide(
                "The pods of the Node could not be listed.",
                WaitEnd::Others,
                &[safe("allow the manager to list pods in the target cluster", "")],
            ),
            Self::PodTermination => guide(
                "Pods were evicted and still terminate.",
                WaitEnd::Others,
                &[in_target(safe("kubectl get pods -A --field-selector spec.nodeName={node}", IN_TARGET)), FORCE_DRAIN],
            ),
            Self::Preservation => guide(
                "Machines are preserved until a time.",
                WaitEnd::Controllers,
                &[
                    DESCRIBE,
                    replaces(
                        "kubectl annotate machines.machine.sapcloud.io {machine} -n {namespace} node.machine.sapcloud.io/preserve=false --overwrite",
                        "ends its preservation: a failed Machine is replaced",
                    ),
                ],
            ),
            Self::Replacement => {
                guide("A failed Machine is replaced by its MachineSet.", WaitEnd::Controllers, &[DESCRIBE])
            }
            Self::ReplacementPermit => guide(
                "Many machines became unhealthy at the same time. They are replaced one after the other, so that an outage of a network does not delete a cluster.",
                WaitEnd::Controllers,
                &[SEE_NODES],
            ),
            Self::Rollout => guide(
                "The rollout continues when the machines that it began with are created, available or deleted.",
                WaitEnd::Controllers,
                &[SEE_MACHINES],
            ),
            Self::ScaleUpBlocked => guide(
                "The MachineSet is frozen or must not be scaled up.",
                WaitEnd::User,
                &[
                    safe(
                        "kubectl get machinesets.machine.sapcloud.io {machineset} -n {namespace} -o yaml",
                        "shows the condition Frozen with its reason",
                    ),
                    replaces(
                        "kubectl annotate machinesets.machine.sapcloud.io {machineset} -n {namespace} safety.machine.sapcloud.io/unfreeze=True --overwrite",
                        "lets it create machines, if their number is right",
                    ),
                ],
            ),
            Self::Secret => guide(
                "A Secret of the class is missing, unreadable or incomplete.",
                WaitEnd::User,
                &[
                    safe(
                        "create the Secret {secret} in namespace {namespace} with the keys that its class needs, such as userData",
                        "",
                    ),
                    safe("kubectl get secrets -n {namespace}", "shows the Secrets that exist"),
                    CHECK_CLASS,
                ],
            ),
            Self::SpecCorrection => guide(
                "The spec is invalid.",
                WaitEnd::User,
                &[safe("kubectl edit {kind} {name} -n {namespace}", "correct the field that the wait names")],
            ),
            Self::Unreadable => guide(
                "An object of the family cannot be decoded, so it is not known what it says.",
                WaitEnd::User,
                &[SEE_UNREADABLE],
            ),
            Self::Unsupported => guide(
                "The object uses a feature that this version does not have.",
                WaitEnd::User,
                &[safe("choose another strategy, or another version", "")],
            ),
            Self::Users => guide(
                "Other objects use this one, so it is not deleted.",
                WaitEnd::User,
                &[safe(
                    "kubectl get machinedeployments.machine.sapcloud.io,machinesets.machine.sapcloud.io,machines.machine.sapcloud.io -n {namespace} -o wide",
                    "",
                )],
            ),
            Self::VmCheck => guide("The VM of a machine is looked at regularly.", WaitEnd::Routine, &[]),
            Self::VmLookup => guide(
                "The VM of the machine is looked for: without an answer of the cloud none is created or deleted.",
                WaitEnd::Others,
                &[DESCRIBE],
            ),
            Self::VolumeAttachment => guide(
                "Volumes have to be attached to another Node before the next pod with volumes is evicted.",
                WaitEnd::Others,
                &[in_target(safe("kubectl get volumeattachments", IN_TARGET)), FORCE_DRAIN],
            ),
            Self::VolumeDetachment => guide(
                "Volumes have to be detached from the Node before its VM is deleted.",
                WaitEnd::Others,
                &[
                    in_target(safe("kubectl get volumeattachments", IN_TARGET)),
                    loses_data("mcm drain force {machine} -n {namespace}", "does not wait for volumes"),
                ],
            ),
            Self::VolumeTurn => guide(
                "Pods with volumes are evicted one after the other, and this one is not next.",
                WaitEnd::Controllers,
                &[in_target(safe("kubectl get volumeattachments", IN_TARGET))],
            ),
            Self::VolumesUnknown => guide(
                "The volumes of pods could not be read.",
                WaitEnd::Others,
                &[safe(
                    "allow the manager to read persistentvolumes and persistentvolumeclaims in the target cluster",
                    "",
                )],
            ),
            Self::WriteUndone => guide(
                "The API server stores another value than the one that was written, or another client changes it back. It is \
                 written again after 5 s, and then ever more rarely, up to every 10 minutes.",
                WaitEnd::User,
                &[
                    safe(
                        "kubectl get mutatingwebhookconfigurations,mutatingadmissionpolicies",
                        "may change what is written",
                    ),
                    safe(
                        "kubectl get {kind} {name} -n {namespace} -o yaml --show-managed-fields",
                        "names the clients that write each field",
                    ),
                ],
            ),
        }
    }
}

impl RemedyDanger {
    /// As users read it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::KillsPods => "kills pods",
            Self::ReplacesMachines => "replaces machines",
            Self::LosesData => "may lose data",
        }
    }
}

impl WaitEnd {
    /// As users read it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::User => "a user has to act",
            Self::Others => "it ends when another program acts",
            Self::Controllers => "the controllers end it",
            Self::Routine => "routine",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use rstest::rstest;

    use super::{
        super::{cause::WaitCause, shell::is_of_target},
        *,
    };

    /// The names that remedies leave open.
    const PLACES: [&str; 13] = [
        "kind",
        "namespace",
        "name",
        "machine",
        "machineset",
        "node",
        "budget",
        "budget-namespace",
        "secret",
        "cluster",
        "vm",
        "config-kind",
        "config",
    ];

    fn page() -> String {
        let mut text = "# Waits\n\nEach kind of wait that plans, logs, `mcm why` and its JSON name, with the causes for which objects of \
                        Cluster API wait. Generated from `src/rules/plan/guide.rs` and `src/rules/plan/cause.rs`: run \
                        `UPDATE_DOCS=1 cargo test -p mcm-rules waits_page` after a change.\n"
            .to_owned();
        for kind in WaitKind::ALL {
            text += &format!("\n## {kind:?}\n{}", row(&kind.guide()));
            for cause in WaitCause::ALL.iter().filter(|cause| cause.kind() == kind) {
                text += &format!("\n### Cluster API: {cause:?}\n{}", row(&cause.guide()));
            }
        }
        text
    }

    fn row(guide: &WaitGuide) -> String {
        let WaitGuide { meaning, end, remedies } = guide;
        let mut text = format!("\n{meaning}\n\nEnd: {}.\n", end.text());
        if !remedies.is_empty() {
            text += "\n| You can | Effect |\n|---|---|\n";
        }
        for WaitRemedy { text: remedy, note, danger, .. } in remedies {
            let remedy = PLACES.into_iter().fold(remedy.replace('|', "\\|"), |text, place| {
                text.replace(&format!("{{{place}}}"), &format!("<{place}>"))
            });
            let is_command = ["kubectl ", "mcm ", "clusterctl "].iter().any(|start| remedy.starts_with(start));
            let remedy = if is_command { format!("`{remedy}`") } else { remedy };
            let note = if note.is_empty() { String::new() } else { format!(": {note}") };
            text += &format!("| {remedy}{note} | {} |\n", danger.text());
        }
        text
    }

    #[test]
    fn each_wait_that_a_user_or_another_program_ends_has_a_remedy() {
        let all: BTreeSet<WaitKind> = WaitKind::ALL.into();
        assert_eq!(all.len(), WaitKind::ALL.len());
        for kind in all {
            let WaitGuide { meaning, end, remedies } = kind.guide();
            assert!(meaning.ends_with('.'), "{kind:?}");
            assert_eq!(remedies.is_empty(), end == WaitEnd::Routine, "{kind:?}");
            let is_for_all = |remedy: &WaitRemedy| {
                ["{machineset}", "{node}", "{budget}", "{secret}"].iter().all(|one| !remedy.text.contains(one))
            };
            let is_of_sets = kind == WaitKind::ScaleUpBlocked;
            assert!(
                end == WaitEnd::Routine || is_of_sets || remedies.iter().any(is_for_all),
                "{kind:?} has no remedy for every kind of object"
            );
        }
    }

    #[test]
    fn a_remedy_that_deletes_machines_or_pods_says_so_and_names_the_group_of_its_kinds() {
        for remedy in WaitKind::ALL.into_iter().flat_map(|kind| kind.guide().remedies) {
            let deletes = ["kubectl delete ", "mcm drain force "].iter().any(|start| remedy.text.starts_with(start));
            assert!(!deletes || remedy.danger != RemedyDanger::Safe, "{remedy:?}");
            assert!(
                !remedy.text.contains("force-deletion"),
                "{remedy:?}: the label depends on the reason for the drain"
            );
            for kind in ["machine", "machineset", "machinedeployment", "machineclass"] {
                let is_ambiguous =
                    |word: &str| word == kind || word.strip_suffix('s') == Some(kind) || word == "machineclasses";
                let is_of_kubectl = remedy.text.starts_with("kubectl ");
                assert!(!is_of_kubectl || !remedy.text.split([' ', ',']).any(is_ambiguous), "{remedy:?}");
            }
        }
    }

    #[test]
    fn a_note_names_the_cluster_of_a_command_that_is_not_that_of_its_objects() {
        let causes = WaitCause::ALL.iter().flat_map(|cause| cause.guide().remedies);
        for remedy in WaitKind::ALL.into_iter().flat_map(|kind| kind.guide().remedies).chain(causes) {
            let is_told = |words: &str| remedy.note.starts_with(words);
            let expected = match remedy.note {
                _ if is_told("with the kubeconfig of the target cluster") => CommandCluster::Target,
                _ if is_told("in the workload cluster") => CommandCluster::Workload,
                _ => CommandCluster::Control,
            };
            assert_eq!(remedy.cluster, expected, "{remedy:?}");
            let is_of_nodes = is_of_target(remedy.text) && !remedy.text.contains("capmcm-system");
            assert!(!is_of_nodes || remedy.cluster != CommandCluster::Control, "{remedy:?}");
        }
    }

    #[test]
    fn the_waits_page_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/waits.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, page()).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap() == page(), "run UPDATE_DOCS=1 cargo test -p mcm-rules waits_page");
    }

    #[rstest]
    #[case("describe {kind} {name}", Some("describe machine a{kind}"))]
    #[case("patch {name} -p '{\"spec\":{}}'", Some("patch a{kind} -p '{\"spec\":{}}'"))]
    #[case("delete {machine}", None)]
    fn a_value_that_looks_like_a_place_stays_as_it_is(#[case] text: &'static str, #[case] expected: Option<&str>) {
        let places = [("kind", Some("machine")), ("name", Some("a{kind}")), ("machine", None)];
        assert_eq!(safe(text, "").text_with(&places).as_deref(), expected);
    }
}
