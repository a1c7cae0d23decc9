//! The capacity of a VM of a class: that of its machine type, with the GPUs and the boot disk of the class.

use mcm_driver::{
    DriverError,
    capacity::{GpuCapacity, VmCapacity, architecture},
    code::Code,
};
use serde::Deserialize;

use super::{session::Session, spec::Spec};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeResources {
    guest_cpus: u64,
    memory_mb: u64,
    architecture: Option<String>,
    /// GPUs that each VM of the type has.
    #[serde(default)]
    accelerators: Vec<GuestAccelerator>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GuestAccelerator {
    guest_accelerator_type: String,
    guest_accelerator_count: u64,
}

/// All that the capacity depends on; `None` for a class without zone or type.
pub(super) fn capacity_key(spec: &Spec) -> Option<String> {
    let Spec { zone, machine_type, gpu, .. } = spec;
    let known = !zone.is_empty() && !machine_type.is_empty();
    known.then(|| format!("{zone} {machine_type} {gpu:?} {:?}", boot_disk(spec)))
}

impl Session {
    /// The capacity of a VM.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the zone does not offer the type.
    pub(super) async fn capacity(&self) -> Result<VmCapacity, DriverError> {
        let spec = &self.spec;
        let (zone, name) = (&spec.zone, &spec.machine_type);
        let found: Option<TypeResources> = self.get(format!("zones/{zone}/machineTypes/{name}")).await?;
        let Some(found) = found else {
            return Err(DriverError::new(Code::InvalidArgument, format!("{zone} does not offer {name}")));
        };
        Ok(VmCapacity {
            instance_type: name.clone(),
            region: spec.region.clone(),
            zone: Some(zone.clone()),
            cpus: found.guest_cpus,
            // Google's MB are MiB.
            memory_mib: found.memory_mb,
            gpus: Some(gpus(spec, &found.accelerators)),
            architecture: found.architecture.as_deref().and_then(architecture),
            disk_gib: boot_disk(spec),
        })
    }
}

/// The GPUs of the type, or the GPUs that the class adds.
fn gpus(spec: &Spec, of_type: &[GuestAccelerator]) -> GpuCapacity {
    let added = spec.gpu.as_ref().map(|gpu| (gpu.accelerator_type.as_str(), u64::try_from(gpu.count).unwrap_or(0)));
    let built_in = of_type.iter().map(|one| (one.guest_accelerator_type.as_str(), one.guest_accelerator_count));
    match built_in.chain(added).find(|(_, count)| *count > 0) {
        Some((maker, count)) => GpuCapacity::made_by(maker, count),
        None => GpuCapacity::NONE,
    }
}

/// The size of the boot disk, if the class gives it. Google's GB are GiB.
fn boot_disk(spec: &Spec) -> Option<u64> {
    let boot = spec.disks.iter().find(|disk| disk.boot)?;
    u64::try_from(boot.size).ok().filter(|size| *size > 0)
}
