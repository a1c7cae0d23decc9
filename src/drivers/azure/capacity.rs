//! The capacity of a VM of a class: that of its size, and its OS disk.

use mcm_driver::{
    Code, DriverError,
    capacity::{GpuCapacity, VmCapacity, architecture},
};

use crate::{inspect::Sku, session::Session, spec::Spec};

/// All that the capacity depends on; `None` for a class without location or size.
pub(crate) fn capacity_key(spec: &Spec) -> Option<String> {
    let Spec { location, vm_size, zone, os_disk, .. } = spec;
    (!location.is_empty() && !vm_size.is_empty()).then(|| format!("{location} {zone:?} {vm_size} {}", os_disk.size))
}

impl Session {
    /// The capacity of a VM.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the location does not offer the size.
    pub async fn capacity(&self) -> Result<VmCapacity, DriverError> {
        let (spec, location) = (&self.spec, &self.scope.location);
        let name = &spec.vm_size;
        let Some(sku) = self.sku().await? else {
            return Err(DriverError::new(Code::InvalidArgument, format!("{location} does not offer {name}")));
        };
        let number = |name: &str| sku.capability(name)?.parse::<f64>().ok().filter(|number| *number >= 0.0);
        // A size may have fewer CPUs than its family.
        let cpus = number("vCPUsAvailable").or_else(|| number("vCPUs"));
        let (Some(cpus), Some(memory)) = (cpus, number("MemoryGB")) else {
            let message = format!("the size {name} of {location} has no vCPUs or no MemoryGB");
            return Err(DriverError::new(Code::Internal, message));
        };
        Ok(VmCapacity {
            instance_type: name.clone(),
            region: location.clone(),
            zone: spec.zone.map(|zone| format!("{location}-{zone}")),
            cpus: cpus as u64,
            // Azure's GB are GiB.
            memory_mib: (memory * 1024.0) as u64,
            gpus: gpus(&sku),
            architecture: sku.capability("CpuArchitectureType").and_then(architecture),
            disk_gib: u64::try_from(spec.os_disk.size).ok().filter(|size| *size > 0),
        })
    }
}

/// The GPUs of a size, which names no maker; `None` for a part of a GPU.
fn gpus(sku: &Sku) -> Option<GpuCapacity> {
    let Some(count) = sku.capability("GPUs") else { return Some(GpuCapacity::NONE) };
    let name = sku.name.to_ascii_lowercase();
    let is_of_amd = name.starts_with("standard_ng") || name.contains("mi300") || name.ends_with("as_v4");
    let maker = if is_of_amd { "amd" } else { "nvidia" };
    count.parse().ok().map(|count| GpuCapacity::made_by(maker, count))
}
