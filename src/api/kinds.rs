//! The catalogue of kinds: those of `machine.sapcloud.io`, of Cluster API and of its provider mcm, and the built-in ones
//! that mcm reads or writes.

use kube::core::ApiResource;

/// API group of mcm.
pub const GROUP: &str = "machine.sapcloud.io";
/// The only version: served and stored.
pub const VERSION: &str = "v1alpha1";
/// API group of the core kinds of Cluster API.
pub const CORE_GROUP: &str = "cluster.x-k8s.io";
/// API group of infrastructure providers.
pub const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// A kind of object, by its names in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// API group; empty for core/v1.
    pub group: &'static str,
    /// Version of the group.
    pub version: &'static str,
    /// `kind` of its objects.
    pub name: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Names that kubectl accepts beside the singular and the plural.
    pub short_names: &'static [&'static str],
    /// Its objects are in namespaces.
    pub is_namespaced: bool,
    /// Status is written through its subresource only.
    pub has_status: bool,
    /// `spec.replicas` can be written through the subresource `scale`.
    pub has_scale: bool,
    /// A custom resource: it has a generation and no strategic merge patch.
    pub is_custom: bool,
}

impl ResourceKind {
    /// A namespaced custom resource without subresources.
    pub const fn custom(group: &'static str, version: &'static str, name: &'static str, plural: &'static str) -> Self {
        Self { is_custom: true, ..Self::built_in(group, version, name, plural) }
    }

    const fn built_in(group: &'static str, version: &'static str, name: &'static str, plural: &'static str) -> Self {
        let (is_namespaced, has_status, has_scale, is_custom) = (true, false, false, false);
        Self { group, version, name, plural, short_names: &[], is_namespaced, has_status, has_scale, is_custom }
    }

    const fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    const fn of_cluster(self) -> Self {
        Self { is_namespaced: false, ..self }
    }

    const fn status(self) -> Self {
        Self { has_status: true, ..self }
    }

    const fn scale(self) -> Self {
        Self { has_scale: true, ..self }
    }

    /// The name of one object.
    pub fn singular(&self) -> String {
        self.name.to_lowercase()
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// An argument of kubectl that means no other kind: `machines.machine.sapcloud.io`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// The word, in lower case, is its singular, plural or short name.
    pub fn is_named(&self, word: &str) -> bool {
        word == self.plural || word == self.singular() || self.short_names.contains(&word)
    }

    /// Its objects have the subresource.
    pub fn has_subresource(&self, name: &str) -> bool {
        match name {
            "status" => self.has_status,
            "scale" => self.has_scale,
            "eviction" => *self == PODS,
            _ => false,
        }
    }

    /// For requests.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.name.to_owned(),
            plural: self.plural.to_owned(),
        }
    }
}

/// Declares a constant for each kind, and the list of all.
macro_rules! catalogue {
    ($($constant:ident = $scope:ident($group:expr, $version:expr, $name:literal, $plural:literal)
        $(.$mark:ident($($value:expr)?))*;)+) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: ResourceKind =
                ResourceKind::$scope($group, $version, $name, $plural)$(.$mark($($value)?))*;
        )+
        /// All kinds.
        pub const KINDS: &[ResourceKind] = &[$($constant),+];
    };
}

catalogue! {
    MACHINE_CLASSES = custom(GROUP, VERSION, "MachineClass", "machineclasses").short(&["mcc"]);
    MACHINE_DEPLOYMENTS = custom(GROUP, VERSION, "MachineDeployment", "machinedeployments")
        .short(&["mcd"]).status().scale();
    MACHINE_SETS = custom(GROUP, VERSION, "MachineSet", "machinesets").short(&["mcs"]).status().scale();
    MACHINES = custom(GROUP, VERSION, "Machine", "machines").short(&["mc"]).status();
    CLUSTERS = custom(CORE_GROUP, "v1beta2", "Cluster", "clusters").short(&["cl"]).status();
    CAPI_MACHINE_DEPLOYMENTS = custom(CORE_GROUP, "v1beta2", "MachineDeployment", "machinedeployments")
        .short(&["md"]).status().scale();
    CAPI_MACHINE_SETS = custom(CORE_GROUP, "v1beta2", "MachineSet", "machinesets").short(&["ms"]).status().scale();
    CAPI_MACHINES = custom(CORE_GROUP, "v1beta2", "Machine", "machines").short(&["ma"]).status();
    MACHINE_POOLS = custom(CORE_GROUP, "v1beta2", "MachinePool", "machinepools").short(&["mp"]).status().scale();
    MACHINE_HEALTH_CHECKS = custom(CORE_GROUP, "v1beta2", "MachineHealthCheck", "machinehealthchecks")
        .short(&["mhc", "mhcs"]).status();
    MCM_CLUSTERS = custom(INFRASTRUCTURE_GROUP, "v1beta2", "MCMCluster", "mcmclusters").status();
    MCM_CLUSTER_TEMPLATES = custom(INFRASTRUCTURE_GROUP, "v1beta2", "MCMClusterTemplate", "mcmclustertemplates");
    MCM_MACHINES = custom(INFRASTRUCTURE_GROUP, "v1beta2", "MCMMachine", "mcmmachines").status();
    MCM_MACHINE_TEMPLATES = custom(INFRASTRUCTURE_GROUP, "v1beta2", "MCMMachineTemplate", "mcmmachinetemplates")
        .status();
    MCM_MACHINE_POOLS = custom(INFRASTRUCTURE_GROUP, "v1beta2", "MCMMachinePool", "mcmmachinepools").status();
    MCM_MACHINE_POOL_TEMPLATES =
        custom(INFRASTRUCTURE_GROUP, "v1beta2", "MCMMachinePoolTemplate", "mcmmachinepooltemplates");
    MCM_MIGRATIONS = custom(INFRASTRUCTURE_GROUP, "v1beta2", "MCMMigration", "mcmmigrations").status();
    SECRETS = built_in("", "v1", "Secret", "secrets");
    CONFIG_MAPS = built_in("", "v1", "ConfigMap", "configmaps").short(&["cm"]);
    NODES = built_in("", "v1", "Node", "nodes").short(&["no"]).of_cluster().status();
    PODS = built_in("", "v1", "Pod", "pods").short(&["po"]).status();
    EVENTS = built_in("", "v1", "Event", "events").short(&["ev"]);
    PERSISTENT_VOLUME_CLAIMS = built_in("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims").short(&["pvc"]).status();
    PERSISTENT_VOLUMES = built_in("", "v1", "PersistentVolume", "persistentvolumes").short(&["pv"]).of_cluster().status();
    NAMESPACES = built_in("", "v1", "Namespace", "namespaces").short(&["ns"]).of_cluster().status();
    POD_DISRUPTION_BUDGETS = built_in("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets").short(&["pdb"]).status();
    VOLUME_ATTACHMENTS = built_in("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments").of_cluster().status();
    LEASES = built_in("coordination.k8s.io", "v1", "Lease", "leases");
    DEPLOYMENTS = built_in("apps", "v1", "Deployment", "deployments").short(&["deploy"]).status().scale();
    CUSTOM_RESOURCE_DEFINITIONS = built_in("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
        .short(&["crd", "crds"]).of_cluster().status();
}

/// The kind of `machine.sapcloud.io` with this name.
pub fn mcm_kind(name: &str) -> Option<&'static ResourceKind> {
    KINDS.iter().find(|kind| kind.group == GROUP && kind.name == name)
}

#[cfg(test)]
mod tests {
    use std::{
        any::TypeId,
        fs,
        path::{Path, PathBuf},
    };

    use k8s_openapi::{
        ClusterResourceScope, NamespaceResourceScope, Resource,
        api::{
            apps::v1::Deployment,
            coordination::v1::Lease,
            core::v1::{ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret},
            policy::v1::PodDisruptionBudget,
            storage::v1::VolumeAttachment,
        },
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    };
    use rstest::rstest;

    use super::*;

    fn definitions(folder: &Path) -> Vec<CustomResourceDefinition> {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = paths.into_iter().partition(|path| path.is_dir());
        let files = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "yaml"));
        let here = files.map(|path| serde_yaml_ng::from_str(&fs::read_to_string(path).unwrap()).unwrap());
        here.chain(folders.iter().flat_map(|folder| definitions(folder))).collect()
    }

    fn defined(crd: CustomResourceDefinition) -> ResourceKind {
        let text = |text: String| -> &'static str { text.leak() };
        let (names, [version]) = (crd.spec.names, <[_; 1]>::try_from(crd.spec.versions).unwrap());
        let short_names: Vec<&str> = names.short_names.unwrap_or_default().into_iter().map(text).collect();
        let subresources = version.subresources.unwrap_or_default();
        assert_eq!(names.singular.unwrap(), names.kind.to_lowercase());
        ResourceKind {
            group: text(crd.spec.group),
            version: text(version.name),
            name: text(names.kind),
            plural: text(names.plural),
            short_names: short_names.leak(),
            is_namespaced: crd.spec.scope == "Namespaced",
            has_status: subresources.status.is_some(),
            has_scale: subresources.scale.is_some(),
            is_custom: true,
        }
    }

    #[test]
    fn each_custom_kind_is_as_its_definition() {
        let mut of_files: Vec<ResourceKind> =
            definitions(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds")).into_iter().map(defined).collect();
        // The stand-in does not serve it.
        of_files.push(MACHINE_POOLS);
        let by_name = |kind: &ResourceKind| (kind.group, kind.name);
        of_files.sort_by_key(by_name);
        let mut custom: Vec<ResourceKind> = KINDS.iter().filter(|kind| kind.is_custom).copied().collect();
        custom.sort_by_key(by_name);
        assert_eq!(custom, of_files);
    }

    fn check<K: Resource>(kind: ResourceKind)
    where
        K::Scope: 'static,
    {
        assert_eq!((kind.group, kind.version, kind.name), (K::GROUP, K::VERSION, K::KIND));
        assert_eq!((kind.plural, kind.api_version().as_str()), (K::URL_PATH_SEGMENT, K::API_VERSION));
        let scope = TypeId::of::<K::Scope>();
        assert!([TypeId::of::<NamespaceResourceScope>(), TypeId::of::<ClusterResourceScope>()].contains(&scope));
        assert_eq!(kind.is_namespaced, scope == TypeId::of::<NamespaceResourceScope>(), "{}", kind.name);
    }

    #[test]
    fn each_built_in_kind_is_as_the_api_of_kubernetes_has_it() {
        check::<Secret>(SECRETS);
        check::<ConfigMap>(CONFIG_MAPS);
        check::<Node>(NODES);
        check::<Pod>(PODS);
        check::<Event>(EVENTS);
        check::<PersistentVolumeClaim>(PERSISTENT_VOLUME_CLAIMS);
        check::<PersistentVolume>(PERSISTENT_VOLUMES);
        check::<Namespace>(NAMESPACES);
        check::<PodDisruptionBudget>(POD_DISRUPTION_BUDGETS);
        check::<VolumeAttachment>(VOLUME_ATTACHMENTS);
        check::<Lease>(LEASES);
        check::<Deployment>(DEPLOYMENTS);
        check::<CustomResourceDefinition>(CUSTOM_RESOURCE_DEFINITIONS);
        assert_eq!(KINDS.iter().filter(|kind| !kind.is_custom).count(), 13, "a kind is not compared");
    }

    #[rstest]
    #[case("machineclasses", true)]
    #[case("machineclass", true)]
    #[case("mcc", true)]
    #[case("MachineClass", false)]
    #[case("machine", false)]
    fn a_kind_has_the_names_that_kubectl_takes(#[case] word: &str, #[case] expected: bool) {
        assert_eq!(MACHINE_CLASSES.is_named(word), expected);
    }
}
