//! The served kinds, and their rules.

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub name: &'static str,
    pub is_namespaced: bool,
    /// Status is written through its subresource only.
    pub has_status: bool,
    /// A custom resource: it has a generation and no strategic merge patch.
    pub is_custom: bool,
}

impl Kind {
    const fn custom(plural: &'static str, name: &'static str, has_status: bool) -> Self {
        let (group, version) = ("machine.sapcloud.io", "v1alpha1");
        Self { group, version, plural, name, is_namespaced: true, has_status, is_custom: true }
    }

    const fn core(plural: &'static str, name: &'static str, is_namespaced: bool, has_status: bool) -> Self {
        Self { group: "", version: "v1", plural, name, is_namespaced, has_status, is_custom: false }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

pub static MACHINES: Kind = Kind::custom("machines", "Machine", true);
pub static SETS: Kind = Kind::custom("machinesets", "MachineSet", true);
pub static DEPLOYMENTS: Kind = Kind::custom("machinedeployments", "MachineDeployment", true);
pub static CLASSES: Kind = Kind::custom("machineclasses", "MachineClass", false);
pub static SECRETS: Kind = Kind::core("secrets", "Secret", true, false);
pub static CONFIG_MAPS: Kind = Kind::core("configmaps", "ConfigMap", true, false);
pub static NODES: Kind = Kind::core("nodes", "Node", false, true);
pub static PODS: Kind = Kind::core("pods", "Pod", true, true);
pub static EVENTS: Kind = Kind::core("events", "Event", true, false);
pub static BUDGETS: Kind = Kind {
    group: "policy",
    version: "v1",
    plural: "poddisruptionbudgets",
    name: "PodDisruptionBudget",
    is_namespaced: true,
    has_status: true,
    is_custom: false,
};
pub static CLAIMS: Kind = Kind::core("persistentvolumeclaims", "PersistentVolumeClaim", true, true);
pub static VOLUMES: Kind = Kind::core("persistentvolumes", "PersistentVolume", false, true);
pub static ATTACHMENTS: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    plural: "volumeattachments",
    name: "VolumeAttachment",
    is_namespaced: false,
    has_status: true,
    is_custom: false,
};
pub static LEASES: Kind = Kind {
    group: "coordination.k8s.io",
    version: "v1",
    plural: "leases",
    name: "Lease",
    is_namespaced: true,
    has_status: false,
    is_custom: false,
};

pub static NAMESPACES: Kind = Kind::core("namespaces", "Namespace", false, true);
pub static WORKLOADS: Kind = Kind {
    group: "apps",
    version: "v1",
    plural: "deployments",
    name: "Deployment",
    is_namespaced: true,
    has_status: true,
    is_custom: false,
};

pub static ALL: [&Kind; 16] = [
    &MACHINES,
    &SETS,
    &DEPLOYMENTS,
    &CLASSES,
    &SECRETS,
    &CONFIG_MAPS,
    &NODES,
    &PODS,
    &EVENTS,
    &BUDGETS,
    &CLAIMS,
    &VOLUMES,
    &ATTACHMENTS,
    &LEASES,
    &NAMESPACES,
    &WORKLOADS,
];

/// The kind at a path, the namespace, and the rest of the path.
pub(super) fn find(path: &str) -> Option<(&'static Kind, &str, Vec<&str>)> {
    let mut parts = path.trim_matches('/').split('/');
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    let version = parts.next()?;
    let mut rest: Vec<&str> = parts.collect();
    let namespace = match rest.as_slice() {
        ["namespaces", namespace, _, ..] => {
            let namespace = *namespace;
            rest.drain(..2);
            namespace
        }
        _ => "",
    };
    let plural = if rest.is_empty() { return None } else { rest.remove(0) };
    let kind = ALL.into_iter().find(|kind| kind.group == group && kind.version == version && kind.plural == plural)?;
    Some((kind, namespace, rest))
}
