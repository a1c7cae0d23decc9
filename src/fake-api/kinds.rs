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
    /// `spec.replicas` can be written through the subresource `scale`.
    pub has_scale: bool,
    pub short_names: &'static [&'static str],
}

impl Kind {
    const fn custom(plural: &'static str, name: &'static str, short: &'static [&'static str]) -> Self {
        let (group, version) = ("machine.sapcloud.io", "v1alpha1");
        Self { is_custom: true, has_status: true, ..Self::in_group(group, version, plural, name).called(short) }
    }

    const fn core(plural: &'static str, name: &'static str) -> Self {
        Self::in_group("", "v1", plural, name)
    }

    const fn in_group(group: &'static str, version: &'static str, plural: &'static str, name: &'static str) -> Self {
        let (is_namespaced, has_status, is_custom, has_scale) = (true, false, false, false);
        Self { group, version, plural, name, is_namespaced, has_status, is_custom, has_scale, short_names: &[] }
    }

    const fn called(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    const fn of_cluster(self) -> Self {
        Self { is_namespaced: false, ..self }
    }

    const fn with_status(self) -> Self {
        Self { has_status: true, ..self }
    }

    const fn scalable(self) -> Self {
        Self { has_scale: true, ..self }
    }

    /// The name of one object.
    pub(crate) fn singular(&self) -> String {
        self.name.to_lowercase()
    }

    pub(crate) fn has_subresource(&self, name: &str) -> bool {
        match name {
            "status" => self.has_status,
            "scale" => self.has_scale,
            "eviction" => *self == PODS,
            _ => false,
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

pub static MACHINES: Kind = Kind::custom("machines", "Machine", &["mc"]);
pub static SETS: Kind = Kind::custom("machinesets", "MachineSet", &["mcs"]).scalable();
pub static DEPLOYMENTS: Kind = Kind::custom("machinedeployments", "MachineDeployment", &["mcd"]).scalable();
pub static CLASSES: Kind = Kind { has_status: false, ..Kind::custom("machineclasses", "MachineClass", &["mcc"]) };
pub static SECRETS: Kind = Kind::core("secrets", "Secret");
pub static CONFIG_MAPS: Kind = Kind::core("configmaps", "ConfigMap").called(&["cm"]);
pub static NODES: Kind = Kind::core("nodes", "Node").of_cluster().with_status().called(&["no"]);
pub static PODS: Kind = Kind::core("pods", "Pod").with_status().called(&["po"]);
pub static EVENTS: Kind = Kind::core("events", "Event").called(&["ev"]);
pub static BUDGETS: Kind =
    Kind::in_group("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget").with_status().called(&["pdb"]);
pub static CLAIMS: Kind = Kind::core("persistentvolumeclaims", "PersistentVolumeClaim").with_status().called(&["pvc"]);
pub static VOLUMES: Kind =
    Kind::core("persistentvolumes", "PersistentVolume").of_cluster().with_status().called(&["pv"]);
pub static ATTACHMENTS: Kind =
    Kind::in_group("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment").of_cluster().with_status();
pub static LEASES: Kind = Kind::in_group("coordination.k8s.io", "v1", "leases", "Lease");
pub static NAMESPACES: Kind = Kind::core("namespaces", "Namespace").of_cluster().with_status().called(&["ns"]);
pub static WORKLOADS: Kind =
    Kind::in_group("apps", "v1", "deployments", "Deployment").with_status().scalable().called(&["deploy"]);
pub static DEFINITIONS: Kind =
    Kind::in_group("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
        .of_cluster()
        .with_status()
        .called(&["crd", "crds"]);

pub static ALL: [&Kind; 17] = [
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
    &DEFINITIONS,
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
        // These are subresources of a Namespace.
        ["namespaces", _, "status" | "finalize"] => "",
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
