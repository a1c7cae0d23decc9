//! The resources of a VM of a class, as the cloud describes its type.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Resources of `nodeTemplate.capacity` of a class, and of a Node.
const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const STORAGE: &str = "ephemeral-storage";
/// GPUs in `nodeTemplate.capacity`, whoever made them.
pub const GPU: &str = "gpu";

/// GPUs of one maker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuCapacity {
    /// The resource of Nodes with them, such as `nvidia.com/gpu`; `None` if their device plugin is not known.
    pub resource: Option<&'static str>,
    /// Their number.
    pub count: u64,
}

/// The resources of a VM of a class. What the cloud does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmCapacity {
    /// The type of the VM.
    pub instance_type: String,
    /// The region of the VM.
    pub region: String,
    /// The zone of the VM, if the class determines it.
    pub zone: Option<String>,
    /// Virtual CPUs.
    pub cpus: u64,
    /// Memory in MiB. The memory of its Node is smaller: the kernel keeps a part.
    pub memory_mib: u64,
    /// GPUs, none or of one maker.
    pub gpus: Option<GpuCapacity>,
    /// CPU architecture in the words of Kubernetes, such as `arm64`.
    pub architecture: Option<&'static str>,
    /// The disk that the VM boots from, in GiB. The file system of its Node is smaller.
    pub disk_gib: Option<u64>,
}

impl GpuCapacity {
    /// No GPU.
    pub const NONE: Self = Self { resource: None, count: 0 };

    /// GPUs of a maker, in the words of the cloud.
    pub fn made_by(maker: &str, count: u64) -> Self {
        let maker = maker.to_ascii_lowercase();
        let resource = ["nvidia.com/gpu", "amd.com/gpu"].into_iter().find(|resource| {
            let domain = resource.split_once('.').map(|(domain, _)| domain);
            domain.is_some_and(|domain| maker.starts_with(domain))
        });
        Self { resource, count }
    }
}

impl VmCapacity {
    /// As `nodeTemplate.capacity` of a class.
    pub fn class_resources(&self) -> BTreeMap<String, Quantity> {
        let gpus = self.gpus.as_ref().map(|gpus| (GPU.to_owned(), Quantity(gpus.count.to_string())));
        self.common().into_iter().chain(gpus).collect()
    }

    /// As the capacity of a Node.
    pub fn node_resources(&self) -> BTreeMap<String, Quantity> {
        let gpus = self.gpus.as_ref().filter(|gpus| gpus.count > 0);
        let gpus = gpus.and_then(|gpus| Some((gpus.resource?.to_owned(), Quantity(gpus.count.to_string()))));
        self.common().into_iter().chain(gpus).collect()
    }

    fn common(&self) -> BTreeMap<String, Quantity> {
        let memory = match self.memory_mib {
            mib if mib > 0 && mib.is_multiple_of(1024) => format!("{}Gi", mib / 1024),
            mib => format!("{mib}Mi"),
        };
        let disk = self.disk_gib.map(|gib| (STORAGE, format!("{gib}Gi")));
        let all = [(CPU, self.cpus.to_string()), (MEMORY, memory)].into_iter().chain(disk);
        all.map(|(name, amount)| (name.to_owned(), Quantity(amount))).collect()
    }
}

/// A CPU architecture in the words of Kubernetes; `None` if it has no word for it.
pub fn architecture(name: &str) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_str() {
        "x86_64" | "amd64" | "x64" => Some("amd64"),
        "arm64" | "aarch64" => Some("arm64"),
        "ppc64le" => Some("ppc64le"),
        "s390x" => Some("s390x"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn vm(memory_mib: u64, gpus: Option<GpuCapacity>, disk_gib: Option<u64>) -> VmCapacity {
        VmCapacity { cpus: 4, memory_mib, gpus, disk_gib, ..VmCapacity::default() }
    }

    #[rstest]
    #[case::plain(
        vm(16384, Some(GpuCapacity::NONE), None),
        json!({"cpu": "4", "memory": "16Gi", "gpu": "0"}),
        json!({"cpu": "4", "memory": "16Gi"}),
    )]
    #[case::with_gpus(
        vm(7680, Some(GpuCapacity::made_by("NVIDIA", 2)), Some(50)),
        json!({"cpu": "4", "memory": "7680Mi", "gpu": "2", "ephemeral-storage": "50Gi"}),
        json!({"cpu": "4", "memory": "7680Mi", "nvidia.com/gpu": "2", "ephemeral-storage": "50Gi"}),
    )]
    #[case::with_others(
        vm(1024, Some(GpuCapacity::made_by("Habana", 8)), None),
        json!({"cpu": "4", "memory": "1Gi", "gpu": "8"}),
        json!({"cpu": "4", "memory": "1Gi"}),
    )]
    #[case::unknown(
        vm(1024, None, None),
        json!({"cpu": "4", "memory": "1Gi"}),
        json!({"cpu": "4", "memory": "1Gi"}),
    )]
    fn gpus_have_one_name_in_classes_and_that_of_their_maker_on_nodes(
        #[case] vm: VmCapacity,
        #[case] class: Value,
        #[case] node: Value,
    ) {
        assert_eq!((json!(vm.class_resources()), json!(vm.node_resources())), (class, node));
    }

    #[rstest]
    #[case("nvidia-l4", Some("nvidia.com/gpu"))]
    #[case("AMD", Some("amd.com/gpu"))]
    #[case("ct5lp", None)]
    fn a_maker_is_known_by_the_begin_of_a_name(#[case] maker: &str, #[case] resource: Option<&str>) {
        assert_eq!(GpuCapacity::made_by(maker, 1).resource, resource);
    }
}
