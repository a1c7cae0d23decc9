//! The capacity of a server of a class: that of its flavor, or of its root volume.

use std::collections::BTreeMap;

use mcm_driver::{
    Code, DriverError,
    capacity::{GpuCapacity, VmCapacity},
};
use serde::Deserialize;

use super::{
    keystone::Service,
    session::{Kind, Session},
    spec::{Reference, Spec},
};

/// Virtual GPUs in the extra specs of a flavor.
const VGPU: &str = "resources:VGPU";
/// PCI devices in the extra specs, by an alias of the operator: GPUs or others.
const PCI_ALIAS: &str = "pci_passthrough:alias";

#[derive(Deserialize)]
struct NovaFlavor {
    vcpus: u64,
    /// In MiB.
    ram: u64,
    /// In GiB; 0 is the size of the image, or that of the volume.
    disk: u64,
}

/// All that the capacity depends on; `None` for a class without region or flavor.
pub(crate) fn capacity_key(spec: &Spec) -> Option<String> {
    let Spec { region, zone, flavor, disk_size, .. } = spec;
    (!region.is_empty() && !flavor.is_empty()).then(|| format!("{region} {zone} {flavor} {disk_size}"))
}

impl Session {
    /// The capacity of a server.
    ///
    /// # Errors
    /// [`Code::ResourceExhausted`]: there is no such flavor.
    pub async fn capacity(&self) -> Result<VmCapacity, DriverError> {
        let spec = &self.spec;
        let id = self.id_of(Kind::Flavor, &Reference::Name(spec.flavor.clone())).await?;
        let found: Option<NovaFlavor> = self.region.one(Service::Compute, &["flavors", &id], "flavor").await?;
        let Some(flavor) = found else {
            let message = format!("there is no flavor {:?} in region {}", spec.flavor, spec.region);
            return Err(DriverError::new(Code::ResourceExhausted, message));
        };
        let of_volume = u64::try_from(spec.disk_size).ok().filter(|size| *size > 0);
        Ok(VmCapacity {
            instance_type: spec.flavor.clone(),
            region: spec.region.clone(),
            zone: Some(spec.zone.clone()).filter(|zone| !zone.is_empty()),
            cpus: flavor.vcpus,
            memory_mib: flavor.ram,
            gpus: self.gpus(&id).await?,
            architecture: None,
            disk_gib: of_volume.or(Some(flavor.disk).filter(|size| *size > 0)),
        })
    }

    /// The GPUs of a flavor; `None` where a cloud shows its extra specs to administrators only, or they have PCI devices.
    async fn gpus(&self, flavor: &str) -> Result<Option<GpuCapacity>, DriverError> {
        let path = ["flavors", flavor, "os-extra_specs"];
        let specs: BTreeMap<String, String> = match self.region.one(Service::Compute, &path, "extra_specs").await {
            Ok(specs) => specs.unwrap_or_default(),
            Err(error) if error.code == Code::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        };
        if specs.contains_key(PCI_ALIAS) {
            return Ok(None);
        }
        Ok(match specs.get(VGPU).map(|count| count.parse()) {
            None | Some(Ok(0)) => Some(GpuCapacity::NONE),
            // Nova names no maker.
            Some(Ok(count)) => Some(GpuCapacity { resource: None, count }),
            Some(Err(_)) => None,
        })
    }
}
